"""A scripted provider on loopback that records: Anthropic messages, OpenAI chat and Responses, Gemini, streamed or not.

It plays a job. For each turn of the user it calls the client's own shell tool `rounds` times, with commands that
always print the same, and then answers. A client without a shell tool gets long answers instead. A request for a
title or a summary gets one. The turn is known by words in the user's text, see `prompt_of`. A plan says which
turns take other steps: look at a picture, ask a helper (a sub-agent of the client's), search for a deferred tool,
call a tool by its name. A tool that the model cannot see ends the turn with words that say so.

It refuses what providers refuse: requests above the window, calls without results, results without calls, more
than four cache marks, thinking that was changed or is missing before the newest calls, a thinking budget that is not
below `max_tokens`, empty messages, references to tools that are not there. Over Responses
also: items with a foreign or a doubled id, reasoning that was changed or stands without what followed it, unknown
items and parts, compaction items of others. Over Gemini also: results that are not as many as the calls or in
another order, signatures of others, and by Gemini 3 a step of the turn whose first call has none.

    python tests/clients/upstream.py --port 9000 --window 60000 --log requests.jsonl     by hand
"""

import argparse
import asyncio
import base64
import binascii
import functools
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from aiohttp import web
from prompt_cache import (
    Block,
    CacheUse,
    MarkCache,
    PrefixCache,
    has_mark,
    iterate_raw_blocks,
    write_key,
)

TAP_HEADER = "x-tap"
SIDE_WORDS = ("A title for the job", "A summary of the job")
"""What answers to titles and summaries begin with, and no other answer has."""
_MARK = re.compile(r"Turn (\d+) of the ledger job")
HELPER = 1_000
"""What is added to a turn's number in the job of its helper."""
PICTURE = "picture.png"
"""The file that a step looks at, in the folder that the client works in."""
IMAGE_TOKENS = 1_500
_REMINDERS = (
    "<system-reminder>",
    "Tool loaded",
    "<subagent_notification>",
)  # agents' own words behind a result
_HANDLE = re.compile(r"\blog:\d+-\d+")
_SHELLS = ("Bash", "bash", "exec_command", "run_shell_command")
_READERS = ("Read", "read", "read_file", "view_image")
_HELPERS = ("Agent", "Task", "task", "spawn_agent", "agent")
_HELPER_ID = re.compile(r"\bagent_id\W+([\w-]+)")
_MAX_MARKS = 4
_NO_PREFILL = re.compile(r"claude-\w+-(4-[6-9]|[5-9])")  # they do not go on with words of their own
_MAX_ID = 64
_GEMINI = re.compile(r"/models/([^/:]+):(\w+)$")
_SIGNING = re.compile(r"gemini-[3-9]")
_SKIP = "skip_thought_signature_validator"
"""What Google takes for the signature of a call that its models did not make."""

ITEM_PREFIXES = {
    "message": "msg", "reasoning": "rs", "compaction": "cmp",
    "function_call": "fc", "function_call_output": "fc", "custom_tool_call": "ctc", "custom_tool_call_output": "ctc",
    "local_shell_call": "lsh", "local_shell_call_output": "lsh", "shell_call": "sh", "shell_call_output": "sh",
    "apply_patch_call": "apc", "apply_patch_call_output": "apc", "tool_search_call": "tsc", "tool_search_output": "tso",
    "web_search_call": "ws", "file_search_call": "fs", "code_interpreter_call": "ci", "image_generation_call": "ig",
    "item_reference": "", "additional_tools": "",
}  # fmt: skip
"""The items that may be in a request of Responses, and what their ids begin with."""
PARTS = {
    "assistant": ("output_text", "refusal"),
    "user": ("input_text", "input_image", "input_file"),
}
"""The parts that a message of Responses may have; every role but the assistant has the user's."""


def prompt_of(turn: int) -> str:
    """What the user says in a turn, or the model to its helper."""
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
    """A request, in one form for all dialects."""

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
        return sum(map(count_tokens, self.fixed)) + sum(count_text(t) for _, t in self.texts)

    def list_pieces(self) -> list[tuple[str, int]]:
        """All that the model reads, piece by piece, with the tokens of each."""
        fixed = [(text, count_tokens(text)) for text in self.fixed]
        return fixed + [(f"{role}\x1f{text}", count_text(text)) for role, text in self.texts]


def count_text(text: str) -> int:
    """Tokens of a block's text; a picture costs the same whatever it shows."""
    return IMAGE_TOKENS if text.startswith(_PICTURE) else count_tokens(text) + 4


_PICTURE = "\x1epicture "
"""What the text of a picture begins with."""


def join_text(content: Any) -> str:
    """The text of a content: a string, or blocks."""
    if content is None or isinstance(content, str):
        return content or ""
    for one in content:
        if one.get("type") in ("image", "image_url", "input_image") or "inlineData" in one:
            return _PICTURE + hashlib.sha256(json.dumps(one).encode()).hexdigest()
    return "\n".join(one.get("text") or json.dumps(one, sort_keys=True) for one in content)


def list_references(body: dict[str, Any]) -> list[str]:
    """The tools that results in a request to Anthropic refer to, by their names."""
    results = (
        block.get("content")
        for message in body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    )
    pieces = (one for content in results if isinstance(content, list) for one in content)
    return [one["tool_name"] for one in pieces if one["type"] == "tool_reference"]


def read_anthropic(body: dict[str, Any]) -> Asked:
    """Read a request of Anthropic's messages API. The model sees a deferred tool only where a result refers to it."""
    texts, definitions = [], {one["name"]: one for one in body.get("tools") or () if "name" in one}
    for message in body["messages"]:
        content, role = message["content"], message["role"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            match block["type"]:
                case "tool_result":
                    result = block.get("content")
                    if isinstance(result, list):
                        result = [definitions.get(one.get("tool_name"), one) for one in result]
                    texts.append(("tool", join_text(result)))
                case "tool_use":
                    texts.append((role, block["name"] + json.dumps(block["input"])))
                case "thinking":
                    texts.append((role, block["thinking"]))
                case _:
                    texts.append((role, join_text([block])))
    tools, references = body.get("tools") or [], list_references(body)
    loaded = [one for one in tools if not one.get("defer_loading")]
    found = [one for one in tools if one.get("defer_loading") and one["name"] in references]
    schemas = {one["name"]: one.get("input_schema") or {} for one in (*loaded, *found)}
    fixed = (join_text(body.get("system")), json.dumps(loaded))
    return Asked("anthropic", body, fixed, tuple(texts), schemas)


def list_blocks(asked: Asked) -> list[Block]:
    """The blocks of a request to Anthropic, as its cache sees them."""
    blocks, texts = [], iter(asked.texts)
    tools = [one for one in asked.body.get("tools") or () if not one.get("defer_loading")]
    body = {**asked.body, "tools": tools}  # a deferred one is read where a result refers to it
    system = body.get("system") or ""
    parameters = json.dumps([body.get("thinking"), body.get("tool_choice")])
    fixed, end, place = 0, 0, ""
    for at, (where, raw) in enumerate(iterate_raw_blocks(body)):
        key = write_key(raw)
        match where:
            case "tools":
                fixed = end = count_tokens(json.dumps(tools[: at + 1]))
            case "system":
                pieces = system if isinstance(system, str) else system[: at + 1 - len(tools)]
                end = fixed + count_tokens(join_text(pieces))
            case _:
                if place in ("", "tools", "system"):
                    end, key = sum(map(count_tokens, asked.fixed)), parameters + key
                end += count_text(next(texts)[1])
        place = where
        blocks.append(Block(f"{where}\x1f{key}", end, has_mark(raw)))
    return blocks


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


def read_responses(body: dict[str, Any]) -> Asked:
    """Read a request of OpenAI's Responses API; `input` is a list, and holds the whole conversation."""
    texts = []
    for item in body["input"]:
        match item.get("type", "message"):
            case "message":
                texts.append((item["role"], join_text(item["content"])))
            case "reasoning":
                texts.append(("assistant", item.get("encrypted_content") or ""))
            case "compaction":
                texts.append(("user", unseal(item["encrypted_content"])))
            case kind if kind.endswith("_output"):
                texts.append(("tool", join_text(item["output"])))
            case kind:
                given = item.get("arguments") or item.get("input") or json.dumps(item)
                texts.append(("assistant", item.get("name", kind) + given))
    tools = body.get("tools") or []
    spaces = [(f"{one['name']}/", one["tools"]) for one in tools if one["type"] == "namespace"]
    schemas = {
        f"{space}{one['name']}": one.get("parameters") or {}
        for space, group in [("", tools), *spaces]
        for one in group
        if one["type"] == "function"
    }
    fixed = (body.get("instructions") or "", json.dumps(tools) if tools else "")
    return Asked("responses", body, fixed, tuple(texts), schemas)


def read_gemini(body: dict[str, Any]) -> Asked:
    """Read a request of Google's generateContent."""
    texts = []
    for content in body["contents"]:
        role = "assistant" if content.get("role") == "model" else "user"
        for part in content["parts"]:
            if "functionResponse" in part:
                texts.append(("tool", json.dumps(part["functionResponse"]["response"])))
            elif call := part.get("functionCall"):
                signed = part.get("thoughtSignature", "")
                texts.append((role, call["name"] + json.dumps(call.get("args")) + signed))
            else:
                texts.append((role, join_text([part])))
    tools = [
        one for group in body.get("tools") or () for one in group.get("functionDeclarations") or ()
    ]
    schemas = {
        one["name"]: one.get("parametersJsonSchema") or one.get("parameters") or {} for one in tools
    }
    system = (body.get("systemInstruction") or {}).get("parts")
    return Asked("gemini", body, (join_text(system), json.dumps(tools)), tuple(texts), schemas)


@dataclass(frozen=True)
class Answer:
    """What the model says: words, or calls of a tool. `kind` is call, answer, title, summary or compaction."""

    kind: str
    text: str = ""
    tool: str = ""
    calls: tuple[dict[str, Any], ...] = ()
    """The arguments of each call."""


def fill_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """An object of a schema, for a client that wants to know something in JSON."""
    kinds = {name: one["type"].lower() for name, one in schema["properties"].items()}
    return {name: 50 if kind == "integer" else SIDE_WORDS[1] for name, kind in kinds.items()}


def find_turn(asked: Asked) -> int:
    """The turn that was asked for last; turns before it may be quoted behind it, and helpers by those who asked them."""
    found = [
        int(one) for role, text in asked.texts if role != "assistant" for one in _MARK.findall(text)
    ]
    return max((one for one in found if one < HELPER), default=max(found, default=0))


@dataclass
class Job:
    """The script: rounds of a turn, bytes that a tool prints or an answer is long, and calls at a time."""

    rounds: int
    size: tuple[int, int]
    calls: int = 1
    has_tools: bool = True
    recalls: bool = False
    """Whether it looks back once in each turn, where it has a tool for that and sees a handle."""
    plan: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """The steps of turns: `shell`, `picture`, `helper`, `wait` (for it), `search:NAME`, `use:NAME`. Others take `rounds` of the shell."""
    work: str = ""
    """The folder that the client works in."""
    done: Counter[int] = field(default_factory=Counter)
    recalled: set[int] = field(default_factory=set)

    def answer(self, asked: Asked) -> Answer:
        """The next step of the turn that was asked for last, or a title or a summary."""
        turn = find_turn(asked)
        said = (one for one in reversed(asked.texts) if one[0] in ("user", "tool"))
        last = next((one for one in said if not one[1].startswith(_REMINDERS)), ("", ""))
        is_side = self.has_tools and not asked.schemas
        if is_side or (last[0] == "user" and not _MARK.search(last[1])):
            if schema := (asked.body.get("generationConfig") or {}).get("responseJsonSchema"):
                return Answer("summary", json.dumps(fill_schema(schema)))
            if is_side and "title" in " ".join(asked.fixed) + asked.texts[0][1]:
                return Answer("title", SIDE_WORDS[0])
            return Answer("summary", f"<summary>{self.summarize(turn)}</summary>")
        steps = self.plan.get(turn, ("shell",) * self.rounds)
        if self.has_tools and self.done[turn] < len(steps):
            step = steps[self.done[turn]]
            self.done[turn] += 1
            return self.call(turn, asked) if step == "shell" else self.take_step(step, turn, asked)
        if self.recalls and turn not in self.recalled and (call := self.recall(asked)):
            self.recalled.add(turn)
            return call
        text = f"Turn {turn} is done after {self.done[turn]} steps."
        if not self.has_tools:
            lines = (
                f"{turn}.{n}: a line of the answer, of no great use."
                for n in range(self.lines_of(turn, 0))
            )
            text = "\n".join((*lines, text))
        return Answer("answer", text)

    def summarize(self, turn: int) -> str:
        """A summary of the job, by which the turn is known again."""
        words = f"{SIDE_WORDS[1]}: the newest request is: {prompt_of(turn)}"
        return f"{words} {self.done[turn]} steps of it are done."

    def call(self, turn: int, asked: Asked) -> Answer:
        """Calls of the client's shell."""
        tool = next(name for name in _SHELLS if name in asked.schemas)
        key = "cmd" if "cmd" in (asked.schemas[tool].get("properties") or ()) else "command"
        needed = asked.schemas[tool].get("required") or ()
        given = {name: "Run the next step" for name in needed if name != key}
        calls = []
        for at in range(self.calls):
            step = self.done[turn] * self.calls + at
            line = f"entry {turn}.{step}.%g of the ledger, {turn * 37 + step} open"
            command = f"seq -f '{line}' 1 {self.lines_of(turn, step)}"
            calls.append({key: command, **given})
        return Answer("call", tool=tool, calls=tuple(calls))

    def take_step(self, step: str, turn: int, asked: Asked) -> Answer:
        """A step of the plan that is no call of the shell."""
        kind, _, name = step.partition(":")
        given: dict[str, Any] = {}
        match kind:
            case "picture":
                names, given = _READERS, {"path": str(Path(self.work) / PICTURE)}
            case "helper":
                words = {"description": "Help with the ledger", "task_name": f"helper_{turn}"}
                kinds = {"subagent_type": "general-purpose", "fork_turns": "none"}
                prompt = prompt_of(HELPER + turn)
                names, given = _HELPERS, {"prompt": prompt, "message": prompt, **words, **kinds}
            case "wait":
                ids = [
                    one
                    for role, text in asked.texts
                    if role == "tool"
                    for one in _HELPER_ID.findall(text)
                ]
                names, given = ("wait_agent",), {"targets": ids[-1:], "timeout_ms": 20_000}
            case "search":
                names, given = ("ToolSearch",), {"query": f"select:{name}", "max_results": 5}
            case _:
                names = (name,)
        tool = next((one for one in asked.schemas if one.rpartition("/")[2] in names), None)
        if tool is None:
            return Answer("answer", f"Turn {turn} cannot go on: there is no tool {names[0]}.")
        known = asked.schemas[tool].get("properties") or {}
        if "path" in given:
            path = given.pop("path")
            given |= dict.fromkeys(("file_path", "filePath", "path", "absolute_path"), path)
        return Answer(
            "call", tool=tool, calls=({key: given[key] for key in known if key in given},)
        )

    def recall(self, asked: Asked) -> Answer | None:
        """A call of the tool that looks back: what tools printed in the first span with a handle."""
        tool = next((name for name in asked.schemas if name.endswith("recall")), None)
        handles = [one for _, text in asked.texts for one in _HANDLE.findall(text)]
        if tool is None or not handles:
            return None
        return Answer("call", tool=tool, calls=({"handle": handles[0], "grep": "^entry"},))

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
    usage: dict[str, Any] = field(default_factory=dict)
    """What the answer says that it took."""


class Refusal(Exception):  # noqa: N818 - the provider says no, nothing is broken here
    """What a provider answers instead, and its HTTP status."""

    def __init__(
        self, message: str, *, code: str | None = None, param: str | None = None, status: int = 400
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = {
            "type": "invalid_request_error",
            "message": message,
            "param": param,
            "code": code,
        }

    def write(self, path: str) -> dict[str, Any]:
        """The body of an answer, in the dialect of a path."""
        if _GEMINI.search(path):
            said = {"code": self.status, "message": str(self), "status": "INVALID_ARGUMENT"}
            return {"error": said}
        kind = {"type": "error"} if path.endswith("messages") else {}
        return {**kind, "error": self.error}


class Upstream:
    """The provider. `window` is in tokens; 0 is no limit.

    Over Responses, `compaction` says what becomes of a `compaction_trigger`: it is `ignored` and an ordinary message
    comes back, as from every server that does not know it; `refused`; or `made`, as by OpenAI. A `stateless` provider
    refuses `previous_response_id` and keeps no items, as OpenRouter. Over Gemini, one that `takes_repeats` lets results
    pass that were there before with the same id. One that `reports_cache` tells what it has cached over messages and
    chat too, and of a subscription how much of it is used. `pace` is the seconds between the events of a stream.
    """

    def __init__(  # noqa: PLR0913 - one for each thing that providers do differently
        self,
        job: Job,
        window: int = 0,
        *,
        compaction: str = "ignored",
        stateless: bool = False,
        takes_repeats: bool = False,
        reports_cache: bool = False,
        pace: float = 0.0,
    ) -> None:
        self.job, self.window, self.pace = job, window, pace
        self.compaction, self.stateless = compaction, stateless
        self.takes_repeats, self.reports_cache = takes_repeats, reports_cache
        self.served: list[Served] = []
        self.kept: dict[str, list[dict[str, Any]]] = {}
        """The whole conversation behind each response that was to be stored."""
        self.items: dict[str, dict[str, Any]] = {}
        """The items that were stored, by their ids."""
        self.prefixes, self.marked = PrefixCache(), MarkCache()

    def make_app(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=200_000_000)
        app.router.add_post("/v1/messages", self.serve)
        app.router.add_post("/v1/chat/completions", self.serve)
        app.router.add_post("/v1/responses", self.serve)
        app.router.add_post("/v1/messages/count_tokens", self.count)
        app.router.add_post("/expire", self.expire)
        app.router.add_post("/v1beta/models/{model}:countTokens", self.count_gemini)
        app.router.add_post("/v1beta/models/{model}:generateContent", self.serve)
        app.router.add_post("/v1beta/models/{model}:streamGenerateContent", self.serve)
        app.router.add_route("*", "/{path:.*}", self.serve_other)
        return app

    async def serve_other(self, request: web.Request) -> web.Response:
        """Whatever is asked besides: HEAD / is fine, the rest is unknown."""
        return web.Response(status=200 if request.method == "HEAD" else 404)

    async def expire(self, request: web.Request) -> web.Response:
        """Forget what is cached, as after a long pause."""
        del request
        self.prefixes.clear()
        self.marked.clear()
        return web.Response()

    async def count(self, request: web.Request) -> web.Response:
        """Anthropic's count of tokens."""
        return web.json_response({"input_tokens": read_anthropic(await request.json()).tokens})

    async def count_gemini(self, request: web.Request) -> web.Response:
        """Google's count of tokens."""
        body = await request.json()
        asked = read_gemini(body.get("generateContentRequest", body))
        return web.json_response({"totalTokens": asked.tokens})

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, or refuse it."""
        raw, tap = await request.text(), int(request.headers.get(TAP_HEADER, 0))
        tokens = 0
        try:
            asked = self.read(request.path, json.loads(raw))
            tokens = asked.tokens
            checked = replace(asked, body=drop_repeats(asked.body)) if self.takes_repeats else asked
            if refusal := self.find_overflow(asked) or find_fault(checked):
                raise refusal
        except Refusal as refusal:
            request["served"] = Served(tap, raw, tokens, "refused", str(refusal))
            self.served.append(request["served"])
            return web.json_response(refusal.write(request.path), status=refusal.status)
        answer, cache = self.answer(asked), self.use_cache(asked)
        request["served"] = served = Served(tap, raw, tokens, answer.kind)
        self.served.append(served)
        whole, events = self.say(asked, answer, cache)
        served.usage.update(whole.get("usage") or whole.get("usageMetadata") or {})
        quota = self.measure_quota(request) if self.reports_cache else {}
        if not asked.body.get("stream"):
            return web.json_response(whole, headers=quota)
        response = web.StreamResponse(headers={"content-type": "text/event-stream", **quota})
        await response.prepare(request)
        if self.pace:
            with suppress(ConnectionResetError):  # nobody listens any more
                for event in events:
                    await response.write(event.encode())
                    await asyncio.sleep(self.pace)
            return response
        await response.write("".join(events).encode())
        return response

    def measure_quota(self, request: web.Request) -> dict[str, str]:
        """What Anthropic's answers say to the login of a subscription: a percent for each request."""
        if not request.headers.get("authorization", "").startswith("Bearer sk-ant-oat"):
            return {}
        begin, used = "anthropic-ratelimit-unified", 0.30 + len(self.served) / 100
        return {
            f"{begin}-status": "allowed",
            f"{begin}-5h-utilization": f"{used:.2f}",
            f"{begin}-7d-utilization": "0.12",
        }

    def read(self, path: str, body: dict[str, Any]) -> Asked:
        """Read a request of any dialect; of Responses with all that the provider has kept."""
        if path.endswith("messages"):
            return read_anthropic(body)
        if path.endswith("completions"):
            return read_chat(body)
        if found := _GEMINI.search(path):
            is_stream = found[2] == "streamGenerateContent"
            return read_gemini({**body, "model": found[1], "stream": is_stream})
        body = {**body, "input": self.find_conversation(body)}
        check_items(body)
        if body["input"] and body["input"][-1].get("type") == "compaction_trigger":
            if self.compaction == "refused":
                raise name_unknown("compaction_trigger", f"input[{len(body['input']) - 1}]")
            body = {**body, "input": body["input"][:-1], "compaction_trigger": True}
        return read_responses(body)

    def find_conversation(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The items of a request behind those of the response it names, references replaced by what they name."""
        given = body.get("input") or []
        if isinstance(given, str):
            given = [{"type": "message", "role": "user", "content": given}]
        before: list[dict[str, Any]] = []
        if known := body.get("previous_response_id"):
            if self.stateless:
                message = "`previous_response_id` is not supported: this API is stateless."
                raise Refusal(message, code="invalid_prompt", param="previous_response_id")
            if known not in self.kept:
                message = f"Previous response with id '{known}' not found."
                code = "previous_response_not_found"
                raise Refusal(message, code=code, param="previous_response_id")
            before = self.kept[known]
        return [*before, *map(self.find_item, given)]

    def find_item(self, item: dict[str, Any]) -> dict[str, Any]:
        """An item, or the one that it refers to; reasoning without its encrypted content is a reference too."""
        is_bare = item.get("type") == "reasoning" and not item.get("encrypted_content")
        if item.get("type") != "item_reference" and not is_bare:
            return item
        if item["id"] not in self.items:
            message = f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false."
            rest = " Try again with `store` set to true, or remove this item from your input."
            raise Refusal(message + rest, param="input", status=404)
        return self.items[item["id"]]

    def answer(self, asked: Asked) -> Answer:
        """What the job says next, or what becomes of a request to compact."""
        if not asked.body.get("compaction_trigger"):
            return self.job.answer(asked)
        text = self.job.summarize(find_turn(asked))
        return Answer("compaction" if self.compaction == "made" else "summary", text)

    def use_cache(self, asked: Asked) -> CacheUse:
        """What a request takes from the cache, and what it leaves there."""
        if asked.dialect == "anthropic":
            return self.marked.use(asked.body.get("model", ""), list_blocks(asked))
        return self.prefixes.use(asked.list_pieces())

    def say(
        self, asked: Asked, answer: Answer, cache: CacheUse
    ) -> tuple[dict[str, Any], Iterator[str]]:
        """An answer in the dialect of the request: whole, and as the events of a stream."""
        number = len(self.served)
        if asked.dialect == "anthropic":
            return say_anthropic(asked, answer, number, cache if self.reports_cache else None)
        if asked.dialect == "chat":
            return say_chat(asked, answer, number, cache.read if self.reports_cache else None)
        if asked.dialect == "gemini":
            return say_gemini(asked, answer, number, cache.read)
        whole = make_response(asked, answer, number, cache.read)
        if asked.body.get("store") is not False and not self.stateless:
            items = [*asked.body["input"], *whole["output"]]
            self.kept[whole["id"]] = items
            self.items |= {one["id"]: one for one in items if "id" in one}
        return whole, stream_response(whole)

    def find_overflow(self, asked: Asked) -> Refusal | None:
        """What each provider says of a request above the window."""
        if not self.window or asked.tokens <= self.window:
            return None
        code, param = "context_length_exceeded", "messages"
        if asked.dialect == "anthropic":
            message = f"prompt is too long: {asked.tokens} tokens > {self.window} maximum"
        elif asked.dialect == "chat":
            message = (
                f"This model's maximum context length is {self.window} tokens. However, your messages resulted in "
                f"{asked.tokens} tokens. Please reduce the length of the messages."
            )
        elif asked.dialect == "gemini":
            message = (
                f"The input token count ({asked.tokens}) exceeds the maximum number of tokens allowed "
                f"({self.window})."
            )
        else:
            message = "Your input exceeds the context window of this model. Please adjust your input and try again."
            param = "input"
        return Refusal(message, code=code, param=param)


def find_fault(asked: Asked) -> Refusal | None:
    """What else a provider refuses."""
    if asked.dialect == "responses":
        return find_pair_fault(asked.body["input"]) or find_reasoning_fault(asked.body["input"])
    finders = {
        "anthropic": find_anthropic_fault,
        "chat": find_chat_fault,
        "gemini": find_gemini_fault,
    }
    message = finders[asked.dialect](asked.body)
    return Refusal(message) if message else None


def find_anthropic_fault(body: dict[str, Any]) -> str:
    """Cache marks, the thinking budget, thinking itself, and pairs of calls and results."""
    if (marks := json.dumps(body).count('"cache_control": {')) > _MAX_MARKS:
        return f"A maximum of 4 blocks with cache_control may be provided. Found {marks}."
    budget = (body.get("thinking") or {}).get("budget_tokens", 0)
    if budget >= body["max_tokens"]:
        return "`max_tokens` must be greater than `thinking.budget_tokens`."
    if body["messages"][-1]["role"] == "assistant" and _NO_PREFILL.match(body.get("model", "")):
        return "This model does not support assistant message prefill. The conversation must end with a user message."
    known = [one.get("name") for one in body.get("tools") or ()]
    if missing := [one for one in list_references(body) if one not in known]:
        return f"Tool reference '{missing[0]}' not found in available tools"
    open_calls: list[str] = []
    for at, message in enumerate(body["messages"]):
        blocks = message["content"] if isinstance(message["content"], list) else []
        if not message["content"] and not (
            message["role"] == "system" and "output_config" in message
        ):
            return f"messages.{at}: all messages must have non-empty content"
        for block in blocks:
            if block["type"] == "thinking" and block["signature"] != sign(block["thinking"]):
                return f"messages.{at}: Invalid `signature` in `thinking` block"
        results = [one["tool_use_id"] for one in blocks if one["type"] == "tool_result"]
        if sorted(results) != sorted(open_calls):
            return f"messages.{at}: `tool_use` ids {open_calls} were followed by `tool_result` blocks of {results}"
        open_calls = [one["id"] for one in blocks if one["type"] == "tool_use"]
    return find_thinking_fault(body)


def find_thinking_fault(body: dict[str, Any]) -> str:
    """While a tool loop lasts and thinking is enabled, the newest calls stand behind their thinking."""
    newest, thinking = body["messages"][-1]["content"], body.get("thinking") or {}
    is_loop = isinstance(newest, list) and any(one["type"] == "tool_result" for one in newest)
    if thinking.get("type") != "enabled" or not is_loop:
        return ""
    said = next(one["content"] for one in reversed(body["messages"]) if one["role"] == "assistant")
    if said[0]["type"] in ("thinking", "redacted_thinking"):
        return ""
    return (
        f"messages: Expected `thinking` or `redacted_thinking`, but found `{said[0]['type']}`. When `thinking` is "
        "enabled, a final `assistant` message must start with a thinking block."
    )


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


def find_gemini_fault(body: dict[str, Any]) -> str:
    """Turns, pairs of calls and results, and signatures."""
    open_calls: list[tuple[str | None, str]] = []
    said = [(one.get("role", "user"), one["parts"]) for one in body["contents"]]
    if said[-1][0] != "user":
        return "Please ensure that single turn requests end with a user role or the role field is empty."
    asked = max((at for at, (_, parts) in enumerate(said) if is_asking(parts)), default=0)
    for at, (role, parts) in enumerate(said):
        results = list_calls(parts, "functionResponse")
        if len(results) != len(open_calls):
            return (
                "Please ensure that the number of function response parts is equal to the number of function "
                f"call parts of the function call turn. Content {at} has {len(results)} for {len(open_calls)}."
            )
        if results != open_calls:
            return f"Content {at} answers {results} in place of {open_calls}."
        open_calls = list_calls(parts, "functionCall")
        if open_calls and role != "model":
            return "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
        signatures = [one.get("thoughtSignature") for one in parts if "functionCall" in one]
        if signatures and not signatures[0] and at > asked and _SIGNING.match(body["model"]):
            return (
                "Function call is missing a thought_signature in functionCall parts. Additional data, function call "
                f"`default_api:{open_calls[0][1]}`, position {at}."
            )
        signatures = [one["thoughtSignature"] for one in parts if one.get("thoughtSignature")]
        if not all(one == _SKIP or is_own_signature(one) for one in signatures):
            return "Corrupted thought signature."
    return ""


def is_asking(parts: list[dict[str, Any]]) -> bool:
    """Whether the user asks here, so that a turn begins: words, and no results."""
    kinds = {
        kind
        for one in parts
        for kind in ("text", "functionCall", "functionResponse")
        if kind in one
    }
    return kinds == {"text"}


def list_calls(parts: list[dict[str, Any]], kind: str) -> list[tuple[str | None, str]]:
    """The id, if it has one, and the name of each call or result."""
    return [(one[kind].get("id"), one[kind]["name"]) for one in parts if kind in one]


def drop_repeats(body: dict[str, Any]) -> dict[str, Any]:
    """A request over Gemini without results whose id was there before."""
    seen: set[str] = set()
    contents = []
    for content in body["contents"]:
        parts = []
        for part in content["parts"]:
            known = (part.get("functionResponse") or {}).get("id")
            parts += [part] if known is None or known not in seen else []
            seen |= {known} if known else set()
        contents.append({**content, "parts": parts})
    return {**body, "contents": contents}


def make_signature(text: str) -> str:
    """A signature as Google writes it: bytes that only the provider can check."""
    return base64.b64encode(bytes.fromhex(sign(text)) + text.encode()).decode()


def is_own_signature(signature: str) -> bool:
    """Whether a signature was made here; clients may write it in the letters for addresses."""
    try:
        known = base64.b64decode(signature.replace("-", "+").replace("_", "/"), validate=True)
        return signature != "" and known[:32].hex() == sign(known[32:].decode())
    except (binascii.Error, UnicodeDecodeError):
        return False


def name_unknown(value: str, place: str) -> Refusal:
    """The refusal of a value that OpenAI does not know."""
    return Refusal(f"Invalid value: '{value}'.", code="invalid_value", param=place)


def check_items(body: dict[str, Any]) -> None:
    """Refuse items of Responses that are not well formed: kinds, parts, ids, encrypted contents, tools."""
    seen: set[str] = set()
    last = len(body["input"]) - 1
    for at, item in enumerate(body["input"]):
        kind, place = item.get("type", "message"), f"input[{at}]"
        if kind == "compaction_trigger" and at == last:
            continue
        if kind not in ITEM_PREFIXES:
            raise name_unknown(kind, place)
        if kind == "message" and not isinstance(item["content"], str):
            allowed = PARTS.get(item["role"], PARTS["user"])
            for part in item["content"]:
                if part["type"] not in allowed:
                    raise name_unknown(part["type"], f"{place}.content")
        check_item_id(item.get("id"), ITEM_PREFIXES[kind], place)
        if item.get("id") in seen:
            message = f"Duplicate item found with id {item['id']}. Remove duplicate items from your input and try again."
            raise Refusal(message, param="input")
        seen |= {item["id"]} if item.get("id") else set()
        if len(item.get("call_id") or "") > _MAX_ID:
            message = f"Invalid '{place}.call_id': string too long. Expected a string with maximum length 64."
            raise Refusal(message, code="string_above_max_length", param=f"{place}.call_id")
        if kind in ("reasoning", "compaction"):
            check_seal(item)
    for at, tool in enumerate(body.get("tools") or ()):
        if tool["type"] in ("function", "custom", "namespace") and "name" not in tool:
            message = f"Missing required parameter: 'tools[{at}].name'."
            raise Refusal(message, code="missing_required_parameter", param=f"tools[{at}].name")


def check_item_id(known: str | None, prefix: str, place: str) -> None:
    """Refuse an id that cannot be of such an item."""
    if known is None:
        return
    if not re.fullmatch(rf"[A-Za-z0-9_-]{{1,{_MAX_ID}}}", known):
        message = f"Invalid '{place}.id': '{known}'. Expected an ID that contains letters, numbers, underscores, or dashes."
        raise Refusal(message, code="invalid_value", param=f"{place}.id")
    if not known.startswith(prefix):
        message = f"Invalid '{place}.id': '{known}'. Expected an ID that begins with '{prefix}'."
        raise Refusal(message, code="invalid_value", param=f"{place}.id")


def check_seal(item: dict[str, Any]) -> None:
    """Refuse an encrypted content that was not made here, or for another item."""
    sealed = item.get("encrypted_content") or ""
    words = unseal(sealed)
    is_ours = (
        words.startswith(item["id"]) if "id" in item and item["type"] == "reasoning" else words
    )
    if not is_ours:
        short = f"{sealed[:4]}...{sealed[-4:]}"
        message = f"The encrypted content {short} could not be verified."
        raise Refusal(message, code="invalid_encrypted_content")


def find_pair_fault(items: list[dict[str, Any]]) -> Refusal | None:
    """A call without its output, or an output without its call before it."""
    open_calls: dict[str, str] = {}
    for item in items:
        kind, known = item.get("type", "message"), item.get("call_id")
        named = kind.removesuffix("_output").replace("_", " ")
        if kind.endswith("_call_output"):
            if open_calls.pop(known, None) != kind.removesuffix("_output"):
                message = f"No tool call found for {named} output with call_id {known}."
                return Refusal(message, param="input")
        elif f"{kind}_output" in ITEM_PREFIXES:
            open_calls[known] = kind
    for known, kind in open_calls.items():
        message = f"No tool output found for {kind.replace('_', ' ')} {known}."
        return Refusal(message, param="input")
    return None


def find_reasoning_fault(items: list[dict[str, Any]]) -> Refusal | None:
    """Reasoning without what followed it, or the other way round."""
    known = {item.get("id") for item in items}
    for item, following in zip(items, (*items[1:], {"type": ""}), strict=True):
        kind, own_id = item.get("type", "message"), item.get("id") or ""
        if kind == "reasoning":
            next_kind = following.get("type", "message")
            is_models = following.get("role") == "assistant" or next_kind.endswith("_call")
            if not is_models and next_kind != "reasoning":
                message = f"Item '{own_id}' of type 'reasoning' was provided without its required following item."
                return Refusal(message, param="input")
        elif (
            own_id.startswith(_THOUGHTFUL)
            and (thought := f"rs_{own_id.split('_')[2]}") not in known
        ):
            message = f"Item '{own_id}' of type '{kind}' was provided without its required 'reasoning' item: '{thought}'."
            return Refusal(message, param="input")
    return None


_THOUGHTFUL = ("fc_t_", "msg_t_")
"""What the ids of items begin with that followed reasoning; the reasoning has the same number."""
_SEAL = "gAAAAA"


def seal(text: str) -> str:
    """A text as nobody but the provider can read it."""
    return _SEAL + (text.encode() + b"|" + sign(text).encode()).hex()


def unseal(sealed: str) -> str:
    """The text that was sealed; nothing where this is not a seal of ours."""
    try:
        text, _, signature = bytes.fromhex(sealed.removeprefix(_SEAL)).decode().rpartition("|")
    except ValueError:
        return ""
    return text if sealed.startswith(_SEAL) and signature == sign(text) else ""


def sign(thinking: str) -> str:
    """The signature of a thinking block."""
    return hashlib.sha256(thinking.encode()).hexdigest()


def say_anthropic(
    asked: Asked, answer: Answer, number: int, cache: CacheUse | None
) -> tuple[dict[str, Any], Iterator[str]]:
    """An answer in Anthropic's form: whole, and as the events of a stream."""
    blocks: list[dict[str, Any]] = []
    thinking = asked.body.get("thinking") or {}
    if thinking.get("type") == "enabled" or (
        thinking.get("type") == "adaptive" and answer.kind == "call"
    ):
        thought = f"Thought {number}: this is what the script says next."
        thought = "" if thinking.get("display") == "omitted" else thought
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
    if cache is not None:  # Anthropic counts apart what was read and what was written
        lives = "1h" if '"ttl": "1h"' in json.dumps(asked.body) else "5m"
        usage |= {
            "input_tokens": asked.tokens - cache.read - cache.written,
            "cache_read_input_tokens": cache.read,
            "cache_creation_input_tokens": cache.written,
            "cache_creation": {
                f"ephemeral_{name}_input_tokens": cache.written if name == lives else 0
                for name in ("5m", "1h")
            },
        }
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


def say_chat(
    asked: Asked, answer: Answer, number: int, cached: int | None
) -> tuple[dict[str, Any], Iterator[str]]:
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
    usage |= {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
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


def say_gemini(
    asked: Asked, answer: Answer, number: int, cached: int
) -> tuple[dict[str, Any], Iterator[str]]:
    """An answer in Google's form: whole, and as the chunks of a stream, which are answers too.

    Gemini 3 signs the first call of a step or the end of an answer, and gives calls an id.
    """
    is_signing = bool(_SIGNING.match(asked.body["model"]))
    signed = {"thoughtSignature": make_signature(f"thought {number}")} if is_signing else {}
    thinking = (asked.body.get("generationConfig") or {}).get("thinkingConfig") or {}
    parts: list[dict[str, Any]] = []
    if thinking.get("includeThoughts"):
        parts.append({"text": f"**Thought {number}** what the script says next.", "thought": True})
    for at, given in enumerate(answer.calls):
        named = {"id": f"call_{number:04}_{at}"} if is_signing else {}
        call = {"functionCall": {**named, "name": answer.tool, "args": given}}
        parts.append(call if at else {**call, **signed})
    if answer.kind != "call":
        parts.append({"text": answer.text, **signed})
    out = count_tokens(json.dumps(parts))
    usage = {"promptTokenCount": asked.tokens, "totalTokenCount": asked.tokens + out}
    usage |= {"cachedContentTokenCount": cached} if cached else {}
    head = {"modelVersion": asked.body["model"], "responseId": f"resp_{number:06}"}

    def write_whole(parts: list[dict[str, Any]], *, is_last: bool) -> dict[str, Any]:
        end = {"finishReason": "STOP"} if is_last else {}
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **end}
        said = {"candidatesTokenCount": out} if is_last else {}
        return {"candidates": [candidate], "usageMetadata": {**usage, **said}, **head}

    def stream() -> Iterator[str]:
        for part in parts:
            pieces = [part]
            if part.keys() >= {
                "text",
                "thoughtSignature",
            }:  # signed at its end, in a part of its own
                middle = len(part["text"]) // 2
                words = (part["text"][:middle], part["text"][middle:])
                pieces = [*({"text": one} for one in words), {**part, "text": ""}]
            for piece in pieces:
                is_last = part is parts[-1] and piece is pieces[-1]
                yield write_event(write_whole([piece], is_last=is_last))

    return write_whole(parts, is_last=True), stream()


def make_response(asked: Asked, answer: Answer, number: int, cached: int) -> dict[str, Any]:
    """An answer in OpenAI's Responses form. Calls have reasoning before them."""
    output: list[dict[str, Any]] = []
    reasoning: dict[str, Any] = {"type": "reasoning", "id": f"rs_{number:06}", "summary": []}
    reasoning["encrypted_content"] = seal(f"{reasoning['id']}: {'what the script says next. ' * 8}")
    if (asked.body.get("reasoning") or {}).get("summary"):
        reasoning["summary"].append({"type": "summary_text", "text": f"**Thought {number}**"})
    match answer.kind:
        case "call":
            output.append(reasoning)
            for at, given in enumerate(answer.calls):
                call = {
                    "type": "function_call",
                    "id": f"fc_t_{number:06}_{at}",
                    "status": "completed",
                }
                space, _, name = answer.tool.rpartition("/")
                call |= {"call_id": f"call_{number:06}_{at}", "name": name}
                call |= {"namespace": space} if space else {}
                output.append({**call, "arguments": json.dumps(given)})
        case "compaction":
            content = seal(answer.text)
            output.append(
                {"type": "compaction", "id": f"cmp_{number:06}", "encrypted_content": content}
            )
        case _:
            part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
            said = {"type": "message", "id": f"msg_{number:06}", "status": "completed"}
            output.append({**said, "role": "assistant", "content": [part]})
    tokens = sum(count_tokens(json.dumps(one)) for one in output)
    thought = count_tokens(reasoning["encrypted_content"]) if answer.kind == "call" else 0
    return {
        "id": f"resp_{number:06}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": asked.body["model"],
        "output": output,
        "previous_response_id": asked.body.get("previous_response_id"),
        "store": asked.body.get("store", True),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "metadata": {},
        "usage": {
            "input_tokens": asked.tokens,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": tokens,
            "output_tokens_details": {"reasoning_tokens": thought},
            "total_tokens": asked.tokens + tokens,
        },
    }


def stream_response(whole: dict[str, Any]) -> Iterator[str]:
    """A response as the events of a stream."""
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(whole["output"]):
        events += stream_item(item, index)
    events.append({"type": "response.completed", "response": whole})
    for number, event in enumerate(events):
        yield write_event({**event, "sequence_number": number})


def stream_item(item: dict[str, Any], index: int) -> list[dict[str, Any]]:
    """The events of one item. What it holds when it is added is not final: only the item that is done counts."""
    empty: dict[str, Any] = {**item}
    at: dict[str, Any] = {"item_id": item["id"], "output_index": index}
    inside: list[dict[str, Any]] = []
    match item["type"]:
        case "reasoning":
            empty |= {"summary": [], "encrypted_content": seal("unfinished")}
            for n, part in enumerate(item["summary"]):
                there = {**at, "summary_index": n}
                kind, text = "response.reasoning_summary_", part["text"]
                inside += [
                    {"type": f"{kind}part.added", **there, "part": {**part, "text": ""}},
                    {"type": f"{kind}text.delta", **there, "delta": text},
                    {"type": f"{kind}text.done", **there, "text": text},
                    {"type": f"{kind}part.done", **there, "part": part},
                ]
        case "function_call":
            empty |= {"arguments": "", "status": "in_progress"}
            kind, given = "response.function_call_arguments.", item["arguments"]
            inside += [
                {"type": f"{kind}delta", **at, "delta": given},
                {"type": f"{kind}done", **at, "name": item["name"], "arguments": given},
            ]
        case "message":
            empty |= {"content": [], "status": "in_progress"}
            part, there = item["content"][0], {**at, "content_index": 0}
            kind, text = "response.output_text.", {"text": part["text"], "logprobs": []}
            inside += [
                {"type": "response.content_part.added", **there, "part": {**part, "text": ""}},
                {"type": f"{kind}delta", **there, "delta": part["text"], "logprobs": []},
                {"type": f"{kind}done", **there, **text},
                {"type": "response.content_part.done", **there, "part": part},
            ]
    return [
        {"type": "response.output_item.added", "output_index": index, "item": empty},
        *inside,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def write_event(data: dict[str, Any]) -> str:
    """A server-sent event; those of Anthropic and of Responses have names."""
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n"


def main() -> None:
    """Serve until it is ended; each request is a line of JSON in the log."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--window", type=int, default=0, help="tokens; 0 is no limit")
    parser.add_argument("--rounds", type=int, default=5, help="tool rounds of each turn")
    parser.add_argument("--calls", type=int, default=1, help="calls at a time")
    parser.add_argument("--compaction", choices=("ignored", "refused", "made"), default="ignored")
    parser.add_argument("--stateless", action="store_true", help="refuse previous_response_id")
    parser.add_argument("--takes-repeats", action="store_true", help="take results again")
    parser.add_argument("--reports-cache", action="store_true", help="tell what was cached")
    parser.add_argument("--recalls", action="store_true", help="look back once in each turn")
    parser.add_argument("--plan", type=json.loads, default={}, help="the steps of turns, as JSON")
    parser.add_argument(
        "--size", type=int, nargs=2, default=(2_000, 6_000), help="bytes of a result"
    )
    parser.add_argument("--work", default="", help="the folder that the client works in")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds between a stream's events")
    parser.add_argument(
        "--log", type=Path, help="a file for the requests, which are vendors' prompts"
    )
    given = parser.parse_args()
    plan = {int(turn): tuple(steps) for turn, steps in given.plan.items()}
    job = Job(given.rounds, tuple(given.size), given.calls, recalls=given.recalls, plan=plan)
    job.work = given.work
    options = {"compaction": given.compaction, "stateless": given.stateless}
    options |= {"takes_repeats": given.takes_repeats, "reports_cache": given.reports_cache}
    options["pace"] = given.pace
    upstream = Upstream(job, given.window, **options)

    @web.middleware
    async def write_log(request: web.Request, handler: Any) -> web.StreamResponse:
        response = await handler(request)
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() != "authorization"
        }
        line = {"method": request.method, "path": request.path_qs, "headers": headers}
        line |= asdict(request["served"]) if "served" in request else {}
        with given.log.open("a") as file:
            file.write(json.dumps({**line, "status": response.status}) + "\n")
        return response

    app = upstream.make_app()
    if given.log:
        app.middlewares.append(write_log)
    web.run_app(app, host="127.0.0.1", port=given.port, print=None)


if __name__ == "__main__":
    main()
