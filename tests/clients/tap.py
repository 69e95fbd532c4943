"""A recording pass-through in front of a gateway, or of a provider: what a client sent, and what it got.

Each request is numbered in a header that a gateway relays, so that it can be found again at the upstream.
"""

import json
from dataclasses import dataclass
from time import monotonic
from typing import Any

import aiohttp
from aiohttp import web
from upstream import TAP_HEADER

_HOP = {
    "host",
    "content-length",
    "connection",
    "transfer-encoding",
    "content-encoding",
    "accept-encoding",
}


@dataclass(frozen=True)
class Exchange:
    """A request and its answer, as the client sent and saw them."""

    number: int
    path: str
    raw: str
    status: int
    answer: str
    seconds: float = 0.0
    unplanned: str = ""
    """Why the gateway passed it on without a plan, in a word."""


class Tap:
    """Passes everything on to `target`."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.exchanges: list[Exchange] = []
        self._count = 0

    def make_app(self) -> web.Application:
        """One route for all."""
        app = web.Application(client_max_size=200_000_000)
        app.router.add_route("*", "/{path:.*}", self.relay)
        return app

    async def relay(self, request: web.Request) -> web.StreamResponse:
        """Pass one request on, and its answer back piece by piece."""
        raw = await request.read()
        begun = monotonic()
        self._count += 1
        number, pieces, response = self._count, [], web.StreamResponse(status=502)
        headers = {
            name: value for name, value in request.headers.items() if name.lower() not in _HOP
        }
        headers[TAP_HEADER] = str(number)
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
                session.request(
                    request.method, self.target + request.path_qs, headers=headers, data=raw or None
                ) as answer,
            ):
                kept = {
                    name: value
                    for name, value in answer.headers.items()
                    if name.lower() not in _HOP
                }
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    pieces.append(piece)
                    await response.write(piece)
        finally:
            if request.method == "POST":
                text = b"".join(pieces).decode()
                self.exchanges.append(
                    Exchange(
                        number,
                        request.path,
                        raw.decode(),
                        response.status,
                        text,
                        monotonic() - begun,
                        response.headers.get("x-foldline-unplanned", ""),
                    )
                )
        return response


def list_output(event: dict[str, Any]) -> list[dict[str, Any]]:
    """The output items that a whole response has, or an event of its stream that gives one when it is done."""
    if event.get("object") == "response":
        return event["output"]
    return [event["item"]] if event.get("type") == "response.output_item.done" else []


def read_output(exchange: Exchange) -> tuple[str, list[dict[str, Any]]]:
    """The id and the output items of an answer in Responses; an empty id where it has none."""
    known, items = "", []
    for event in list_events(exchange.answer):
        items += list_output(event)
        response = event.get("response") or (event if event.get("object") == "response" else {})
        known = response.get("id", known)
    return known, items


def list_events(answer: str) -> list[dict[str, Any]]:
    """The events of a stream, or the answer itself where it is whole."""
    lines = answer.splitlines() if "data: " in answer else [f"data: {answer}"]
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def read_answer(exchange: Exchange) -> tuple[str, ...]:
    """What the client saw of one answer: each call with its arguments, and the text; no ids, no thinking."""
    if exchange.status != web.HTTPOk.status_code:
        return (f"refused with {exchange.status}",)
    calls: dict[Any, list[str]] = {}
    text = ""
    for event in list_events(exchange.answer):
        for item in list_output(event):  # Responses, both
            if item["type"] == "function_call":
                calls[item["call_id"]] = [item["name"], item["arguments"]]
            text += "".join(part.get("text", "") for part in item.get("content") or ())
        for at, block in enumerate(event.get("content") or ()):  # Anthropic, whole
            if block["type"] == "tool_use":
                calls[at] = [block["name"], json.dumps(block["input"])]
            text += block.get("text", "")
        for candidate in event.get("candidates") or ():  # Google, both
            for part in (candidate.get("content") or {}).get("parts") or ():
                if call := part.get("functionCall"):
                    calls[len(calls)] = [call["name"], json.dumps(call.get("args"))]
                elif not part.get("thought"):
                    text += part.get("text", "")
        if event.get("type", "").startswith("response."):
            continue
        block, delta = event.get("content_block") or {}, event.get("delta") or {}  # and streamed
        if block.get("type") == "tool_use":
            calls[event["index"]] = [block["name"], ""]
        if "partial_json" in delta:
            calls[event["index"]][1] += delta["partial_json"]
        text += delta.get("text", "")
        for choice in event.get("choices") or ():  # OpenAI, both
            said = choice.get("delta") or choice.get("message") or {}
            text += said.get("content") or ""
            for at, call in enumerate(said.get("tool_calls") or ()):
                function = call.get("function") or {}
                name, arguments = calls.setdefault(call.get("index", at), ["", ""])
                calls[call.get("index", at)] = [
                    name + (function.get("name") or ""), arguments + (function.get("arguments") or ""),
                ]  # fmt: skip
    steps = [
        f"{name} {json.dumps(json.loads(given or '{}'), sort_keys=True)}"
        for name, given in calls.values()
    ]
    return (*steps, text) if text else tuple(steps)
