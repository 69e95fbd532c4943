"""A provider on a real port, scripted: for tests of clients, wraps and gateways.

Speaks OpenAI chat and Anthropic messages, streamed or not, counts what it is sent and refuses what
is above its window, in the words of llama.cpp. Knows no model: a script says what is answered.

    with Provider(window=2_048) as provider:
        client = OpenAI(base_url=provider.url + "/v1", api_key="none")
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Self, TypeAlias, cast

from foldline.core.tokens import count

Json: TypeAlias = dict[str, Any]
Script: TypeAlias = Callable[[Json], "str | Json"]
"""The answer to a request's body: its words, or an OpenAI message with `tool_calls`."""


class Provider:
    """A server of one scripted model."""

    def __init__(self, script: Script | None = None, *, window: int = 1_000_000) -> None:
        self.window = window
        self.script: Script = script or _ok
        self.bodies: list[bytes] = []
        """Every body that was asked, in order, also those refused."""
        self.statuses: list[int] = []
        self.lock = Lock()
        self.cut: int | None = None
        """After how many events a stream breaks off."""
        self.refusal: tuple[int, Json] | None = None
        """What every request is refused with, and the status."""
        outer = self

        class Handler(_Handler):
            provider = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, name="provider", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
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
        tokens = count(body.decode())
        if tokens <= self.window:
            return None
        words = (
            f"request ({tokens} tokens) exceeds the available context size "
            f"({self.window} tokens), try increasing it"
        )
        error = {"code": 400, "message": words, "type": "exceed_context_size_error"}
        return 400, {"error": {**error, "n_prompt_tokens": tokens, "n_ctx": self.window}}


def _ok(_: Json) -> str:
    return "ok"


class _Handler(BaseHTTPRequestHandler):
    provider: Provider
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes: each answer would wait 40 ms

    def do_POST(self) -> None:
        """Answer one request."""
        provider = self.provider
        body = self.rfile.read(int(self.headers["content-length"]))
        refused = provider.refuse(body)
        with provider.lock:
            provider.bodies.append(body)
            provider.statuses.append(refused[0] if refused else 200)
        if refused:
            self._send(json.dumps(refused[1]).encode(), status=refused[0])
            return
        given = cast("Json", json.loads(body))
        said = provider.script(given)
        message: Json = {"content": said} if isinstance(said, str) else said
        write = _anthropic if self.path.endswith("/messages") else _openai
        whole, events = write(given, message, count(body.decode()))
        if not given.get("stream"):
            self._send(json.dumps(whole).encode())
            return
        lines = [*events][: provider.cut]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write("".join(lines).encode())
        self.close_connection = True

    def _send(self, body: bytes, *, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        """Serve a connection; a client that hangs up is no fault."""
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it is called by
        """Say nothing."""


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
        deltas: list[Json] = [{"role": "assistant"}, *({"content": piece} for piece in pieces)]
        deltas += [{"tool_calls": calls}] if calls else []
        for delta, reason_ in [*((delta, None) for delta in deltas), ({}, reason)]:
            choice = {"index": 0, "delta": delta, "finish_reason": reason_}
            chunk = {"object": "chat.completion.chunk", **base, "choices": [choice]}
            yield f"data: {json.dumps(chunk)}\n\n"
        yield "data: [DONE]\n\n"

    return whole, events()


def _anthropic(given: Json, message: Json, tokens: int) -> tuple[Json, Iterator[str]]:
    words = str(message.get("content") or "")
    blocks: list[Json] = [{"type": "text", "text": words}] if words else []
    for call in message.get("tool_calls", ()):
        made = json.loads(call["function"]["arguments"])
        use = {"id": call["id"], "name": call["function"]["name"], "input": made}
        blocks.append({"type": "tool_use", **use})
    reason = "tool_use" if message.get("tool_calls") else "end_turn"
    usage = {"input_tokens": tokens, "output_tokens": 1}
    whole = {"id": "m", "type": "message", "role": "assistant", "model": given["model"]}
    whole |= {"content": blocks, "stop_reason": reason, "stop_sequence": None, "usage": usage}

    def events() -> Iterator[str]:
        def event(name: str, **fields: Any) -> str:
            return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n"

        yield event("message_start", message={**whole, "content": [], "stop_reason": None})
        for at, block in enumerate(blocks):
            text = block["type"] == "text"
            empty: Json = {**block, "text": ""} if text else {**block, "input": {}}
            delta: Json = {"type": "text_delta", "text": block.get("text")}
            if not text:
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            yield event("content_block_start", index=at, content_block=empty)
            yield event("content_block_delta", index=at, delta=delta)
            yield event("content_block_stop", index=at)
        yield event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 1})
        yield event("message_stop")

    return whole, events()
