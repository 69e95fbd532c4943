"""A provider on a real port, scripted: for tests of clients, wraps and gateways.

Speaks every dialect of the registry, streamed or not, counts what it is sent and refuses what is
above its window: in the words of llama.cpp, of OpenAI where it is asked for a response, and of
Google where it is asked for contents.
Knows no model: a script says what is answered, or which trouble there is instead.

    with Provider(window=2_048) as provider:
        client = OpenAI(base_url=provider.url + "/v1", api_key="none")
    with Provider([Trouble.RATE, "ok"]) as provider:   # refused once, then answered
"""

import json
import select
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Self, TypeAlias, cast

from foldline.core.tokens import count_tokens
from foldline.dialects.base import ANTHROPIC, CHAT, GEMINI, find_path_dialect

Json: TypeAlias = dict[str, Any]
RESPONSES = "openai-responses"
INTERACTIONS = "gemini-interactions"
_TOO_LONG = (
    "Your input exceeds the context window of this model. Please adjust your input and try again."
)
_LOOK = 0.02  # seconds between two looks at whether a client has hung up


class Trouble(Enum):
    """How an answer may go wrong, or right."""

    TIMEOUT = "timeout"
    """Never answered."""
    RATE = "429"
    """Refused, with a time to come back after."""
    ERROR = "500"
    """A fault of the server."""
    EMPTY = "empty"
    """An answer without words."""
    BLANK = "blank"
    """An answer of white space."""
    CUT = "cut"
    """The connection is closed in the middle of the answer."""
    REFUSAL = "refusal"
    """The model will not."""
    CALL = "tool call"
    """A tool call instead of text."""
    ECHO = "echo"
    """The newest message, said again."""
    STALE = "stale"
    """Answered late, when the client may have gone on."""


Answer: TypeAlias = "str | Json | Trouble"
"""Words, an OpenAI message (with `tool_calls`, with a `refusal`), or trouble."""
Script: TypeAlias = Callable[[Json], Answer]
"""The answer to a request's body."""
HALF = "This answer breaks off in the middle of its only sentence."
LATE = "An answer to a question of long ago."


class _Server(ThreadingHTTPServer):
    request_queue_size = 256  # clients that may connect at once


class Provider:
    """A server of one scripted model, on a port of its own: `provider.url`.

    The script is a function of the request's body, or answers in order: words, an OpenAI message,
    or `Trouble`. More than `window` tokens are refused, in the words of llama.cpp or OpenAI.
    """

    def __init__(
        self, script: Script | Iterable[Answer] | None = None, *, window: int = 1_000_000
    ) -> None:
        self.window = window
        self.script: Script = scripted(script)
        self.bodies: list[bytes] = []
        """Every body that was asked, in order, also those refused."""
        self.statuses: list[int] = []
        """What each was answered with; 0: nothing."""
        self.lock = Lock()
        self.cut: int | None = None
        """After how many events a stream breaks off."""
        self.stall: int | None = None
        """After how many events a stream stands still."""
        self.refusal: tuple[int, Json] | None = None
        """What every request is refused with, and the status."""
        self.delay = 0.0
        """Seconds before each answer."""
        self.late = 1.0
        """Seconds before a stale answer."""
        self.retry_after = "0.05"
        """Seconds to come back after, as the header says it."""
        self.left: list[float] = []
        """When clients hung up on what was not answered yet, by the monotonic clock."""
        self.ended = Event()
        outer = self

        class Handler(_Handler):
            provider = outer

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        Thread(
            target=self._server.serve_forever, args=(_LOOK,), name="provider", daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def asked(self) -> list[Json]:
        """The bodies that were answered."""
        pairs = zip(self.bodies, self.statuses, strict=True)
        return [json.loads(body) for body, status in pairs if status == 200]

    def refuse(self, body: bytes) -> tuple[int, Json] | None:
        """Why a body is refused, if it is."""
        if self.refusal is not None:
            return self.refusal
        tokens = count_tokens(body.decode())
        if tokens <= self.window:
            return None
        if "input" in json.loads(body):
            error = {"message": _TOO_LONG, "type": "invalid_request_error", "param": "input"}
            return 400, {"error": {**error, "code": "context_length_exceeded"}}
        if "contents" in json.loads(body):
            words = (
                f"The input token count ({tokens}) exceeds the maximum number of tokens allowed "
                f"({self.window})."
            )
            return 400, {"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}}
        words = overflow(tokens, self.window)
        error = {"code": 400, "message": words, "type": "exceed_context_size_error"}
        return 400, {"error": {**error, "n_prompt_tokens": tokens, "n_ctx": self.window}}


def scripted(script: Script | Iterable[Answer] | None) -> Script:
    """A script out of what was given: itself, answers one after another, or "ok" for ever."""
    if script is None:
        return lambda _: "ok"
    if callable(script):
        return script
    answers = iter(script)

    def following(_: Json) -> Answer:
        try:
            return next(answers)
        except StopIteration:
            raise AssertionError("the script has no answer left; give it one more") from None

    return following


def overflow(tokens: int, window: int) -> str:
    """A refusal, in the words of llama.cpp."""
    return (
        f"request ({tokens} tokens) exceeds the available context size "
        f"({window} tokens), try increasing it"
    )


def write_trouble(trouble: Trouble, given: Json) -> Json:
    """The message that some trouble is answered with, as far as it is."""
    match trouble:
        case Trouble.EMPTY:
            return {"content": ""}
        case Trouble.BLANK:
            return {"content": " \n\t "}
        case Trouble.REFUSAL:
            return {"content": None, "refusal": "I'm sorry, but I can't help with that."}
        case Trouble.CALL:
            function = {"name": "run", "arguments": '{"command": "ls"}'}
            call = {"id": "call_1", "type": "function", "function": function}
            return {"content": None, "tool_calls": [call]}
        case Trouble.ECHO:
            return {"content": _newest(given)}
        case Trouble.STALE:
            return {"content": LATE}
        case _:
            return {"content": HALF}


def _newest(given: Json) -> str:
    listed = next(given[name] for name in ("input", "contents", "messages") if name in given)
    if isinstance(listed, str):
        return listed
    fields = ("content", "output", "parts")
    content: Any = next((listed[-1][name] for name in fields if listed[-1].get(name)), "")
    if isinstance(content, str):
        return content
    blocks = cast("list[Json]", content)
    return "\n".join(str(block["text"]) for block in blocks if "text" in block)


class _Handler(BaseHTTPRequestHandler):
    provider: Provider
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes: each answer would wait 40 ms

    def do_POST(self) -> None:
        """Answer one request."""
        provider = self.provider
        length = int(self.headers["content-length"])
        body = self.rfile.read(length)
        if len(body) < length:  # the client hung up
            self.close_connection = True
            return
        refused = provider.refuse(body)
        with provider.lock:
            place = len(provider.bodies)
            provider.bodies.append(body)
            provider.statuses.append(refused[0] if refused else 200)
        if refused:
            self._send(json.dumps(refused[1]).encode(), status=refused[0])
            return
        given = cast("Json", json.loads(body))
        said = provider.script(given)
        if provider.delay:
            provider.ended.wait(provider.delay)
        if not isinstance(said, Trouble):
            self._answer({"content": said} if isinstance(said, str) else said, body=body)
            return
        match said:
            case Trouble.TIMEOUT:
                provider.statuses[place] = 0
                self._hang()
            case Trouble.RATE | Trouble.ERROR:
                status = provider.statuses[place] = int(said.value)
                words = "Rate limit reached" if status == 429 else "The server had an error"
                error = json.dumps({"error": {"message": words, "code": status}})
                self._send(error.encode(), status=status)
            case Trouble.STALE:
                provider.ended.wait(provider.late)
                self._answer(write_trouble(said, given), body=body)
            case _:
                self._answer(write_trouble(said, given), body=body, cut=said is Trouble.CUT)

    def _answer(self, message: Json, *, body: bytes, cut: bool = False) -> None:
        given = cast("Json", json.loads(body))
        whole, events = written(self._dialect, given, message, count_tokens(body.decode()))
        if not (given.get("stream") or self.path.endswith(":streamGenerateContent?alt=sse")):
            self._send(json.dumps(whole).encode(), cut=cut)
            return
        lines = [*events]
        end = len(lines) // 2 if cut else self.provider.cut
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        if cut:  # so that the client can tell this from an end
            self.send_header("content-length", str(len("".join(lines).encode())))
        self.end_headers()
        self.wfile.write("".join(lines[:end][: self.provider.stall]).encode())
        self.close_connection = True
        if self.provider.stall is not None:
            self._hang()

    @property
    def _dialect(self) -> str:
        found = find_path_dialect(self.path.partition("?")[0])
        return found.name if found else CHAT

    def _hang(self) -> None:
        """Say nothing until the client hangs up."""
        self.close_connection = True
        while not self.provider.ended.is_set():
            readable, _, _ = select.select([self.connection], [], [], _LOOK)
            with suppress(ConnectionError):
                if not readable or self.connection.recv(1, socket.MSG_PEEK):
                    continue
            self.provider.left.append(monotonic())
            return

    def _send(self, body: bytes, *, status: int = 200, cut: bool = False) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if status == 429:
            self.send_header("retry-after", self.provider.retry_after)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = self.close_connection or cut

    def handle(self) -> None:
        """Serve a connection; a client that hangs up is no fault."""
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it is called by
        """Say nothing."""


def written(dialect: str, given: Json, message: Json, tokens: int) -> tuple[Json, Iterator[str]]:
    """An answer in a dialect, whole and as the events of a stream.

    The message is OpenAI's, as in a script. It may also have `reasoning`: in Responses the text of
    a sealed item before it, at Anthropic a signed thought, at Gemini a thought and the signature of
    the first call, which is signed in any case. In Responses it may have an `id`.
    """
    writers = {
        ANTHROPIC: _anthropic,
        RESPONSES: _responses,
        GEMINI: _gemini,
        INTERACTIONS: _interactions,
    }
    write = writers.get(dialect, _openai)
    return write(given, message, tokens)


def _openai(given: Json, message: Json, tokens: int) -> tuple[Json, Iterator[str]]:
    said = {"role": "assistant", **message}
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    usage = {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1}
    base = {"id": "c", "created": 0, "model": given["model"]}
    whole = {"object": "chat.completion", **base, "usage": usage}
    whole["choices"] = [{"index": 0, "message": said, "finish_reason": reason, "logprobs": None}]

    def events() -> Iterator[str]:
        calls = [{"index": at, **call} for at, call in enumerate(message.get("tool_calls", ()))]
        words = str(message.get("content") or "")
        pieces = [words[at : at + 5] for at in range(0, len(words), 5)]
        deltas: list[Json] = [{"role": "assistant"}]
        deltas += [{"reasoning": message["reasoning"]}] if message.get("reasoning") else []
        deltas += [{"content": piece} for piece in pieces]
        deltas += [{"refusal": message["refusal"]}] if message.get("refusal") else []
        deltas += [{"tool_calls": calls}] if calls else []
        for delta, reason_ in [*((delta, None) for delta in deltas), ({}, reason)]:
            choice = {"index": 0, "delta": delta, "finish_reason": reason_}
            chunk = {"object": "chat.completion.chunk", **base, "choices": [choice]}
            yield f"data: {json.dumps(chunk)}\n\n"
        options = cast("Json", given.get("stream_options") or {})
        if options.get("include_usage"):
            counted: Json = {"object": "chat.completion.chunk", **base, "usage": usage}
            counted["choices"] = []
            yield f"data: {json.dumps(counted)}\n\n"
        yield "data: [DONE]\n\n"

    return whole, events()


def _anthropic(given: Json, message: Json, tokens: int) -> tuple[Json, Iterator[str]]:
    words = str(message.get("content") or message.get("refusal") or "")
    blocks: list[Json] = [{"type": "text", "text": words}] if words else []
    if thought := message.get("reasoning"):
        blocks.insert(0, {"type": "thinking", "thinking": thought, "signature": thought})
    for call in message.get("tool_calls", ()):
        made = json.loads(call["function"]["arguments"])
        use = {"id": call["id"], "name": call["function"]["name"], "input": made}
        blocks.append({"type": "tool_use", **use})
    reason = "tool_use" if message.get("tool_calls") else "end_turn"
    reason = "refusal" if message.get("refusal") else reason
    usage = {"input_tokens": tokens, "output_tokens": 1}
    whole = {"id": "m", "type": "message", "role": "assistant", "model": given["model"]}
    whole |= {"content": blocks, "stop_reason": reason, "stop_sequence": None, "usage": usage}

    def events() -> Iterator[str]:
        def event(name: str, **fields: Any) -> str:
            return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n"

        yield event("message_start", message={**whole, "content": [], "stop_reason": None})
        for at, block in enumerate(blocks):
            empty, deltas = _split_block(block)
            yield event("content_block_start", index=at, content_block=empty)
            for delta in deltas:
                yield event("content_block_delta", index=at, delta=delta)
            yield event("content_block_stop", index=at)
        yield event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 1})
        yield event("message_stop")

    return whole, events()


def _split_block(block: Json) -> tuple[Json, list[Json]]:
    """Split a block of Anthropic's into its beginning and what a stream adds to it."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "thinking":
            signed = {"type": "signature_delta", "signature": block["signature"]}
            thought = {"type": "thinking_delta", "thinking": block["thinking"]}
            return {**block, "thinking": "", "signature": ""}, [thought, signed]
        case _:
            written = json.dumps(block["input"])
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": written}]


def _gemini(_given: Json, message: Json, tokens: int) -> tuple[Json, Iterator[str]]:
    words = str(message.get("content") or "")
    calls: list[Json] = [
        {
            "functionCall": {
                "name": call["function"]["name"],
                "args": json.loads(call["function"]["arguments"]),
            }
        }
        for call in message.get("tool_calls", ())
    ]
    if calls:
        calls[0]["thoughtSignature"] = message.get("reasoning", "c2lnbmVk")
    thoughts: list[Json] = []
    if thought := message.get("reasoning"):
        thoughts = [{"text": thought, "thought": True}]
    reason = "SAFETY" if message.get("refusal") else "STOP"
    usage = {"promptTokenCount": tokens, "candidatesTokenCount": 1, "totalTokenCount": tokens + 1}
    more: Json = {"usageMetadata": usage, "modelVersion": "scripted", "responseId": "r"}

    def build(parts: list[Json], **ends: str) -> Json:
        candidate: Json = {"content": {"role": "model", "parts": parts}, **ends, "index": 0}
        return {"candidates": [candidate], **more}

    def events() -> Iterator[str]:
        pieces = [words[at : at + 5] for at in range(0, len(words), 5)]
        if thoughts:
            yield f"data: {json.dumps(build(thoughts))}\r\n\r\n"
        for piece in pieces:
            yield f"data: {json.dumps(build([{'text': piece}]))}\r\n\r\n"
        last = calls or [{"text": ""}]
        yield f"data: {json.dumps(build(last, finishReason=reason))}\r\n\r\n"

    said: list[Json] = [{"text": words}] if words or not calls else []
    return build([*thoughts, *said, *calls], finishReason=reason), events()


def _interactions(given: Json, message: Json, tokens: int) -> tuple[Json, Iterator[str]]:
    words = str(message.get("content") or message.get("refusal") or "")
    steps: list[Json] = []
    calls = cast("list[Json]", message.get("tool_calls", []))
    if calls:
        steps.append({"type": "thought", "signature": "c2lnbmVk"})
    if words or not calls:
        steps.append({"type": "model_output", "content": [{"type": "text", "text": words}]})
    for call in calls:
        made = json.loads(call["function"]["arguments"])
        own = {"id": call["id"], "name": call["function"]["name"], "arguments": made}
        steps.append({"type": "function_call", **own})
    usage = {"total_input_tokens": tokens, "total_output_tokens": 1, "total_tokens": tokens + 1}
    status = "requires_action" if calls else "completed"
    interaction: Json = {"id": message.get("id", "int_1"), "object": "interaction"}
    interaction |= {"model": given["model"], "status": status}
    whole: Json = {**interaction, "steps": steps, "usage": usage}

    def events() -> Iterator[str]:
        begun = {**interaction, "status": "in_progress"}
        sent: list[Json] = [{"event_type": "interaction.created", "interaction": begun}]
        for at, step in enumerate(steps):
            empty: Json = {**step, "content": []} if "content" in step else {**step}
            empty |= {"arguments": {}} if "arguments" in step else {}
            sent.append({"event_type": "step.start", "index": at, "step": empty})
            deltas: list[Json] = []
            if "content" in step:
                pieces = [words[n : n + 5] for n in range(0, len(words), 5)]
                deltas = [{"type": "text", "text": piece} for piece in pieces]
            elif "arguments" in step:
                written = json.dumps(step["arguments"])
                deltas = [{"type": "arguments_delta", "arguments": written}]
            sent += [{"event_type": "step.delta", "index": at, "delta": one} for one in deltas]
            sent.append({"event_type": "step.stop", "index": at})
        ended = {**interaction, "usage": usage}
        sent.append({"event_type": "interaction.completed", "interaction": ended})
        for event in sent:
            yield f"event: {event['event_type']}\ndata: {json.dumps(event)}\n\n"

    return whole, events()


def _responses(given: Json, message: Json, tokens: int) -> tuple[Json, Iterator[str]]:
    items = _write_items(message)
    usage: Json = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
    usage |= {"input_tokens_details": {"cached_tokens": 0}}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}}
    whole: Json = {"id": message.get("id", "resp_1"), "object": "response", "created_at": 0}
    whole |= {"model": given["model"], "status": "completed", "error": None}
    whole |= {"incomplete_details": None, "instructions": given.get("instructions")}
    whole |= {"metadata": {}, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    whole |= {"temperature": 1.0, "top_p": 1.0, "output": items, "usage": usage}

    def events() -> Iterator[str]:
        begun: Json = {**whole, "status": "in_progress", "output": [], "usage": None}
        sent: list[Json] = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
        ]
        for at, item in enumerate(items):
            sent += _write_item_events(item, at)
        sent.append({"type": "response.completed", "response": whole})
        for number, event in enumerate(sent):
            data = json.dumps({**event, "sequence_number": number})
            yield f"event: {event['type']}\ndata: {data}\n\n"

    return whole, events()


def _write_items(message: Json) -> list[Json]:
    """An OpenAI message as the items of a response."""
    number = message.get("id", 1)
    items: list[Json] = []
    if message.get("reasoning"):
        sealed: Json = {"summary": [], "encrypted_content": message["reasoning"]}
        items.append({"type": "reasoning", "id": f"rs_{number}", **sealed})
    parts: list[Json] = []
    if message.get("refusal"):
        parts.append({"type": "refusal", "refusal": message["refusal"]})
    if message.get("content") or not (parts or message.get("tool_calls")):
        text = str(message.get("content") or "")
        parts.insert(0, {"type": "output_text", "text": text, "annotations": []})
    if parts:
        own = {"id": f"msg_{number}", "status": "completed", "role": "assistant", "content": parts}
        items.append({"type": "message", **own})
    for call in cast("list[Json]", message.get("tool_calls", [])):
        own = {"id": f"fc_{call['id']}", "call_id": call["id"], "status": "completed"}
        items.append({"type": "function_call", **own, **call["function"]})
    return items


def _write_item_events(item: Json, at: int) -> Iterator[Json]:
    """The events by which one item of a response is streamed."""
    place: Json = {"item_id": item["id"], "output_index": at}
    begun = {**item, "status": "in_progress"}
    match item["type"]:
        case "message":
            begun["content"] = []
        case "function_call":
            begun["arguments"] = ""
        case _:
            begun = item
    yield {"type": "response.output_item.added", "output_index": at, "item": begun}
    for number, part in enumerate(cast("list[Json]", item.get("content", []))):
        where: Json = {**place, "content_index": number}
        kind, field = ("refusal",) * 2 if "refusal" in part else ("output_text", "text")
        yield {"type": "response.content_part.added", **where, "part": {**part, field: ""}}
        words = str(part[field])
        for start in range(0, len(words), 5):
            yield {"type": f"response.{kind}.delta", **where, "delta": words[start : start + 5]}
        yield {"type": f"response.{kind}.done", **where, field: words}
        yield {"type": "response.content_part.done", **where, "part": part}
    if "arguments" in item:
        name = "response.function_call_arguments"
        yield {"type": f"{name}.delta", **place, "delta": item["arguments"]}
        yield {"type": f"{name}.done", **place, "arguments": item["arguments"]}
    yield {"type": "response.output_item.done", "output_index": at, "item": item}
