"""A scripted provider on loopback that records: Anthropic messages and OpenAI chat, streamed or not.

It plays a job. For each turn of the user it calls the client's own shell tool `rounds` times, with commands that
always print the same, and then answers. A client without a shell tool gets long answers instead. A request for a
title or a summary gets one. The turn is known by words in the user's text, see `prompt_of`.

It refuses what providers refuse: requests above the window, calls without results, results without calls, more
than four cache marks, thinking that was changed, a thinking budget that is not below `max_tokens`.
"""

import functools
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

TAP_HEADER = "x-tap"
SIDE_WORDS = ("A title for the job", "A summary of the job")
"""What answers to titles and summaries begin with, and no other answer has."""
_MARK = re.compile(r"Turn (\d+) of the ledger job")
_SHELLS = ("Bash", "bash")
_MAX_MARKS = 4


def prompt_of(turn: int) -> str:
    """What the user says in a turn."""
    return f"Turn {turn} of the ledger job: go on with it, one step at a time."


@functools.cache
def load_encoding() -> Any:
    """The o200k encoding, or None where its file cannot be had."""
    shared = os.environ.get("FOLDLINE_SHARED")
    if shared and (Path(shared) / "data/tiktoken").is_dir():
        os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(Path(shared) / "data/tiktoken"))
    try:
        import tiktoken  # noqa: PLC0415 - it loads a file of megabytes

        return tiktoken.get_encoding("o200k_base")
    except Exception:  # noqa: BLE001 - not installed, or no network
        return None


@functools.lru_cache(maxsize=20_000)
def count_tokens(text: str) -> int:
    """Tokens of a text; a quarter of its letters where there is no encoding."""
    encoding = load_encoding()
    return len(encoding.encode(text, disallowed_special=())) if encoding else len(text) // 4


@dataclass(frozen=True)
class Asked:
    """A request, in one form for both dialects."""

    dialect: str
    body: dict[str, Any]
    fixed: tuple[str, ...]
    """Instructions and tools."""
    texts: tuple[tuple[str, str], ...]
    """Each block of each message: who said it, and its text."""
    schemas: dict[str, dict[str, Any]]
    """The tools' parameters."""

    @property
    def tokens(self) -> int:
        """What a provider would count."""
        return sum(map(count_tokens, self.fixed)) + sum(count_tokens(t) + 4 for _, t in self.texts)


def join_text(content: Any) -> str:
    """The text of a content: a string, or blocks."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(one.get("text") or json.dumps(one, sort_keys=True) for one in content)


def read_anthropic(body: dict[str, Any]) -> Asked:
    """Read a request of Anthropic's messages API."""
    texts = []
    for message in body["messages"]:
        content, role = message["content"], message["role"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            match block["type"]:
                case "tool_result":
                    texts.append(("tool", join_text(block.get("content"))))
                case "tool_use":
                    texts.append((role, block["name"] + json.dumps(block["input"])))
                case "thinking":
                    texts.append((role, block["thinking"]))
                case _:
                    texts.append((role, join_text([block])))
    tools = body.get("tools") or []
    schemas = {one["name"]: one.get("input_schema") or {} for one in tools}
    fixed = (join_text(body.get("system")), json.dumps(tools))
    return Asked("anthropic", body, fixed, tuple(texts), schemas)


def read_chat(body: dict[str, Any]) -> Asked:
    """Read a request of OpenAI's chat API."""
    texts = []
    for message in body["messages"]:
        calls = (one["function"] for one in message.get("tool_calls") or ())
        called = "".join(one["name"] + one["arguments"] for one in calls)
        texts.append((message["role"], join_text(message.get("content")) + called))
    tools = [one["function"] for one in body.get("tools") or ()]
    schemas = {one["name"]: one.get("parameters") or {} for one in tools}
    return Asked("chat", body, (json.dumps(tools) if tools else "",), tuple(texts), schemas)


@dataclass(frozen=True)
class Answer:
    """What the model says: words, or calls of a tool. `kind` is call, answer, title or summary."""

    kind: str
    text: str = ""
    tool: str = ""
    calls: tuple[dict[str, Any], ...] = ()
    """The arguments of each call."""


@dataclass
class Job:
    """The script: rounds of a turn, bytes that a tool prints or an answer is long, and calls at a time."""

    rounds: int
    size: tuple[int, int]
    calls: int = 1
    has_tools: bool = True
    done: Counter[int] = field(default_factory=Counter)

    def answer(self, asked: Asked) -> Answer:
        """The next step of the turn that was asked for last, or a title or a summary."""
        marks = [int(found) for _, text in asked.texts for found in _MARK.findall(text)]
        turn = marks[-1] if marks else 0
        last = next((one for one in reversed(asked.texts) if one[0] in ("user", "tool")), ("", ""))
        is_side = self.has_tools and not asked.schemas
        if is_side or (last[0] == "user" and not _MARK.search(last[1])):
            if is_side and "title" in " ".join(asked.fixed) + asked.texts[0][1]:
                return Answer("title", SIDE_WORDS[0])
            words = f"{SIDE_WORDS[1]}: the newest request is: {prompt_of(turn)}"
            return Answer(
                "summary", f"<summary>{words} {self.done[turn]} steps of it are done.</summary>"
            )
        if self.has_tools and self.done[turn] < self.rounds:
            self.done[turn] += 1
            return self.call(turn, asked)
        text = f"Turn {turn} is done after {self.done[turn]} steps."
        if not self.has_tools:
            lines = (
                f"{turn}.{n}: a line of the answer, of no great use."
                for n in range(self.lines_of(turn, 0))
            )
            text = "\n".join((*lines, text))
        return Answer("answer", text)

    def call(self, turn: int, asked: Asked) -> Answer:
        """Calls of the client's shell."""
        tool = next(name for name in _SHELLS if name in asked.schemas)
        needed = asked.schemas[tool].get("required") or ()
        given = {name: "Run the next step" for name in needed if name != "command"}
        calls = []
        for at in range(self.calls):
            step = self.done[turn] * self.calls + at
            line = f"entry {turn}.{step}.%g of the ledger, {turn * 37 + step} open"
            command = f"seq -f '{line}' 1 {self.lines_of(turn, step)}"
            calls.append({"command": command, **given})
        return Answer("call", tool=tool, calls=tuple(calls))

    def lines_of(self, turn: int, step: int) -> int:
        """How many lines of about 40 bytes a step prints: always the same, and differently many."""
        low, high = self.size
        spread = int(hashlib.sha256(f"{turn}.{step}".encode()).hexdigest()[:8], 16)
        return (low + spread % max(high - low, 1)) // 40


@dataclass(frozen=True)
class Served:
    """One request that came, and what became of it."""

    tap: int
    """The number that the tap gave it; 0 where it came without one."""
    raw: str
    tokens: int
    kind: str
    """The answer's kind, or `refused`."""
    why: str = ""


class Upstream:
    """The provider. `window` is in tokens; 0 is no limit."""

    def __init__(self, job: Job, window: int = 0) -> None:
        self.job, self.window = job, window
        self.served: list[Served] = []

    def make_app(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=200_000_000)
        app.router.add_post("/v1/messages", self.serve)
        app.router.add_post("/v1/chat/completions", self.serve)
        app.router.add_post("/v1/messages/count_tokens", self.count)
        app.router.add_route("*", "/{path:.*}", self.serve_other)
        return app

    async def serve_other(self, request: web.Request) -> web.Response:
        """Whatever is asked besides: HEAD / is fine, the rest is unknown."""
        return web.Response(status=200 if request.method == "HEAD" else 404)

    async def count(self, request: web.Request) -> web.Response:
        """Anthropic's count of tokens."""
        return web.json_response({"input_tokens": read_anthropic(await request.json()).tokens})

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, or refuse it."""
        raw = await request.text()
        read = read_anthropic if request.path.endswith("messages") else read_chat
        asked = read(json.loads(raw))
        tap, tokens = int(request.headers.get(TAP_HEADER, 0)), asked.tokens
        why = self.find_overflow(asked) or find_fault(asked)
        if why:
            self.served.append(Served(tap, raw, tokens, "refused", why))
            error = {
                "type": "invalid_request_error",
                "message": why,
                "code": "context_length_exceeded",
            }
            return web.json_response({"type": "error", "error": error}, status=400)
        answer = self.job.answer(asked)
        self.served.append(Served(tap, raw, tokens, answer.kind))
        say = say_anthropic if asked.dialect == "anthropic" else say_chat
        whole, events = say(asked, answer, len(self.served))
        if not asked.body.get("stream"):
            return web.json_response(whole)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write("".join(events).encode())
        return response

    def find_overflow(self, asked: Asked) -> str:
        """What each provider says of a request above the window."""
        if not self.window or asked.tokens <= self.window:
            return ""
        if asked.dialect == "anthropic":
            return f"prompt is too long: {asked.tokens} tokens > {self.window} maximum"
        return (
            f"This model's maximum context length is {self.window} tokens. However, your messages resulted in "
            f"{asked.tokens} tokens. Please reduce the length of the messages."
        )


def find_fault(asked: Asked) -> str:
    """What else a provider refuses."""
    return (
        find_anthropic_fault(asked.body)
        if asked.dialect == "anthropic"
        else find_chat_fault(asked.body)
    )


def find_anthropic_fault(body: dict[str, Any]) -> str:
    """Cache marks, the thinking budget, thinking itself, and pairs of calls and results."""
    if (marks := json.dumps(body).count('"cache_control": {')) > _MAX_MARKS:
        return f"A maximum of 4 blocks with cache_control may be provided. Found {marks}."
    budget = (body.get("thinking") or {}).get("budget_tokens", 0)
    if budget >= body["max_tokens"]:
        return "`max_tokens` must be greater than `thinking.budget_tokens`."
    open_calls: list[str] = []
    for at, message in enumerate(body["messages"]):
        blocks = message["content"] if isinstance(message["content"], list) else []
        for block in blocks:
            if block["type"] == "thinking" and block["signature"] != sign(block["thinking"]):
                return f"messages.{at}: Invalid `signature` in `thinking` block"
        results = [one["tool_use_id"] for one in blocks if one["type"] == "tool_result"]
        if sorted(results) != sorted(open_calls):
            return f"messages.{at}: `tool_use` ids {open_calls} were followed by `tool_result` blocks of {results}"
        open_calls = [one["id"] for one in blocks if one["type"] == "tool_use"]
    return ""


def find_chat_fault(body: dict[str, Any]) -> str:
    """Pairs of calls and results."""
    open_calls: list[str] = []
    for at, message in enumerate(body["messages"]):
        if message["role"] != "tool":
            if open_calls:
                return f"messages[{at}]: tool_call_ids without response messages: {open_calls}"
            open_calls = [one["id"] for one in message.get("tool_calls") or ()]
        elif message["tool_call_id"] in open_calls:
            open_calls.remove(message["tool_call_id"])
        else:
            return f"messages[{at}]: messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
    return ""


def sign(thinking: str) -> str:
    """The signature of a thinking block."""
    return hashlib.sha256(thinking.encode()).hexdigest()


def say_anthropic(
    asked: Asked, answer: Answer, number: int
) -> tuple[dict[str, Any], Iterator[str]]:
    """An answer in Anthropic's form: whole, and as the events of a stream."""
    blocks: list[dict[str, Any]] = []
    if (asked.body.get("thinking") or {}).get("type") == "enabled":
        thought = f"Thought {number}: this is what the script says next."
        blocks.append({"type": "thinking", "thinking": thought, "signature": sign(thought)})
    if answer.kind == "call":
        for at, given in enumerate(answer.calls):
            called = {"type": "tool_use", "id": f"toolu_{number:04}_{at}", "name": answer.tool}
            blocks.append({**called, "input": given})
    else:
        blocks.append({"type": "text", "text": answer.text})
    end = {
        "stop_reason": "tool_use" if answer.kind == "call" else "end_turn",
        "stop_sequence": None,
    }
    usage = {"input_tokens": asked.tokens, "output_tokens": count_tokens(json.dumps(blocks))}
    head = {
        "id": f"msg_{number:06}",
        "type": "message",
        "role": "assistant",
        "model": asked.body["model"],
    }
    whole = {**head, "content": blocks, **end, "usage": usage}

    def stream() -> Iterator[str]:
        yield write_event(
            {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}
        )
        for index, block in enumerate(blocks):
            match block["type"]:
                case "thinking":
                    empty = {**block, "thinking": "", "signature": ""}
                    deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
                    deltas.append({"type": "signature_delta", "signature": block["signature"]})
                case "tool_use":
                    empty = {**block, "input": {}}
                    deltas = [
                        {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
                    ]
                case _:
                    empty = {**block, "text": ""}
                    deltas = [{"type": "text_delta", "text": block["text"]}]
            yield write_event(
                {"type": "content_block_start", "index": index, "content_block": empty}
            )
            for delta in deltas:
                yield write_event({"type": "content_block_delta", "index": index, "delta": delta})
            yield write_event({"type": "content_block_stop", "index": index})
        yield write_event({"type": "message_delta", "delta": end, "usage": usage})
        yield write_event({"type": "message_stop"})

    return whole, stream()


def say_chat(asked: Asked, answer: Answer, number: int) -> tuple[dict[str, Any], Iterator[str]]:
    """An answer in OpenAI's chat form: whole, and as the chunks of a stream."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.kind == "call":
        message["tool_calls"] = [
            {
                "id": f"call_{number:04}_{at}",
                "type": "function",
                "function": {"name": answer.tool, "arguments": json.dumps(given)},
            }
            for at, given in enumerate(answer.calls)
        ]
    reason = "tool_calls" if answer.kind == "call" else "stop"
    out = count_tokens(json.dumps(message))
    usage = {
        "prompt_tokens": asked.tokens,
        "completion_tokens": out,
        "total_tokens": asked.tokens + out,
    }
    head = {"id": f"chatcmpl-{number:06}", "created": 1, "model": asked.body["model"]}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}

    def stream() -> Iterator[str]:
        delta = dict(message)
        if answer.kind == "call":
            delta["tool_calls"] = [
                {"index": at, **one} for at, one in enumerate(delta["tool_calls"])
            ]
        for said, why in ((delta, None), ({}, reason)):
            chunk = {"index": 0, "delta": said, "finish_reason": why}
            yield write_event({**head, "object": "chat.completion.chunk", "choices": [chunk]})
        if (asked.body.get("stream_options") or {}).get("include_usage"):
            yield write_event(
                {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}
            )
        yield "data: [DONE]\n\n"

    return whole, stream()


def write_event(data: dict[str, Any]) -> str:
    """A server-sent event; Anthropic's have names."""
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n"
