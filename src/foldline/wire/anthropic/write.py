"""Requests as bytes.

Knows how this dialect writes items: two roles that take turns, results before words, ids unique in
the whole request. Refuses to know where the items came from.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from foldline.core.item import Item
from foldline.core.parts import Call, Native, Part, Tool, calls_of
from foldline.core.request import Request
from foldline.wire.anthropic import forms
from foldline.wire.anthropic.marks import mark
from foldline.wire.reading import Json

DIALECT = "anthropic"
ENCODER = 1
"""Raised when the same request would be written in other bytes."""
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_BEGAN = "[the conversation begins with what the assistant said]"
_GO_ON = "[nothing new was said; go on]"


@dataclass(slots=True)
class _Turn:
    """One message: a role and its blocks; `alone` where the one text of a user came as a string."""

    role: str
    blocks: list[Json] = field(default_factory=list[Json])
    alone: bool = False


def encode(request: Request, parameters: Mapping[str, Any]) -> bytes:
    """The request's bytes, from which the SDK's keyword arguments are decoded.

    Messages come last, so that a request that only grew begins with the bytes of the one before.
    """
    turns = _turns(request)
    if not turns or turns[-1].role == "assistant":  # newer models refuse to go on by themselves
        turns.append(_Turn("user", [{"type": "text", "text": _GO_ON}]))
    system = forms.written(request.system)
    tools = [_own(tool.native, 0) or write_tool(tool) for tool in request.tools]
    mark(tools, system, [turn.blocks for turn in turns])
    body: Json = {"model": request.model.removeprefix("anthropic/"), **parameters}
    if tools:
        body["tools"] = tools
    if system:
        body["system"] = system
    body["messages"] = [{"role": turn.role, "content": _content(turn)} for turn in turns]
    return msgspec.json.encode(body)


def blocks(request: Request) -> list[bytes]:
    """The blocks of all messages in order, each in its own bytes, without cache marks."""
    system = [{"role": "system", **block} for block in forms.written(request.system)]
    said = [{"role": turn.role, **block} for turn in _turns(request) for block in turn.blocks]
    return [msgspec.json.encode(block) for block in (*system, *said)]


def write_tool(tool: Tool) -> Json:
    """One tool, without regard to a native form."""
    words = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **words, "input_schema": msgspec.json.decode(tool.schema)}


def _turns(request: Request) -> list[_Turn]:
    turns: list[_Turn] = []
    used: set[str] = set()
    ids: dict[str, str] = {}  # of the newest group: the id shown → the id written
    for item in request.items:
        role = "assistant" if item.role == "model" else "user"
        if item.role == "model":
            ids = _own_ids(item, used)
        found = _written(item, ids)
        if not found:
            continue
        if not turns and role == "assistant":
            turns.append(_Turn("user", [{"type": "text", "text": _BEGAN}]))
        if not turns or turns[-1].role != role:
            turns.append(_Turn(role, alone=item.native is None))
        else:
            turns[-1].alone = False
        turns[-1].blocks += found
    return turns


def _content(turn: _Turn) -> str | list[Json]:
    first = turn.blocks[0]
    if turn.alone and len(turn.blocks) == 1 and set(first) == {"type", "text"}:
        return cast("str", first["text"])
    return turn.blocks


def _written(item: Item, ids: Mapping[str, str]) -> list[Json]:
    """One item as blocks: its own JSON where it goes back unchanged."""
    native = _own_all(item.native)
    match item.role:
        case "result":
            call_id = ids.get(item.call_id, item.call_id)
            if native and native[0].get("tool_use_id") == call_id:
                return native
            return [forms.result(call_id, item.parts, ok=item.ok)]
        case "model":
            if native and all(ids[call.id] == call.id for call in calls_of(item.parts)):
                return native
            return forms.written(_renamed(item.parts, ids))
        case _:
            return native or forms.written(item.parts)


def _renamed(parts: Sequence[Part], ids: Mapping[str, str]) -> list[Part]:
    return [
        Call(ids[one.id], one.name, one.arguments) if isinstance(one, Call) else one
        for one in parts
    ]


def _own_ids(item: Item, used: set[str]) -> dict[str, str]:
    """The ids of a group as this dialect takes them: few signs, and each once in a request."""
    ids: dict[str, str] = {}
    for call in calls_of(item.parts):
        own = call.id
        if not _ID.fullmatch(own) or own in used:
            own = f"{re.sub(r'[^a-zA-Z0-9_-]', '_', call.id)[:40] or 'call'}_{item.seq}"
        while own in used:
            own += "_"
        used.add(own)
        ids[call.id] = own
    return ids


def _own_all(native: Native | None) -> list[Json]:
    if native is None or native.dialect != DIALECT:
        return []
    return msgspec.json.decode(native.body)


def _own(native: Native | None, index: int) -> Json | None:
    found = _own_all(native)
    return found[index] if found else None
