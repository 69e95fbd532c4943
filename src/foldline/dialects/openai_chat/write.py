"""Requests as bytes.

Knows how this dialect writes items: groups of at most 128 calls, media of results behind them, and
an older kind of call that has no id. Refuses to know where the items came from, and what a picture
or a tool's name is written as (`dialects.media`, `dialects.tools`).

A group of more calls than one message may hold is written as several, each with its own results:
every call stays a call with its result, only that they were made at once is not said any more. The
older kind of call is written as such where it is alone; beside others it has no place among their
results, and is written as they are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from foldline.core.item import Item
from foldline.core.parts import Call, Media, Native, Part, Thought, Tool, calls_of, text_of
from foldline.core.request import Request
from foldline.dialects import media as kinds
from foldline.dialects.json_reader import object_of
from foldline.dialects.openai_chat.shapes import Json
from foldline.dialects.openai_chat.validate import LONGEST_ID, LONGEST_NAME, MOST_CALLS
from foldline.dialects.tools import Names, marked, named, once

DIALECT = "openai-chat"
ENCODER = 2
"""Raised when the same request would be written in other bytes."""
LEGACY = "function:"
"""What the id of a call begins with that came as `function_call`, which has none."""
_ANY = Names({}, LONGEST_NAME)
_SOUNDS = {"audio/mpeg": "mp3", "audio/wav": "wav"}
_ADDRESSES = ("https://", "http://", "data:")


class _Role(msgspec.Struct):
    role: Any = None


@dataclass(frozen=True, slots=True)
class Group:
    """How the calls of one answer are written, and so the results behind it."""

    ids: Mapping[str, str] = field(default_factory=dict[str, str])
    """The id shown → the id written."""
    legacy: bool = True
    """Whether a call without an id is written as one."""
    names: Names = _ANY


def encode(request: Request, parameters: Mapping[str, Any]) -> bytes:
    """The request's bytes, from which the SDK's keyword arguments are decoded.

    Messages come last, so that a request that only grew begins with the bytes of the one before.
    """
    body: Json = {"model": request.model, **parameters}
    tools, names = _tools(request)
    if tools:
        body["tools"] = [_raw(tool.native) or write_tool(tool, names) for tool in tools]
    body["messages"] = [msgspec.Raw(block) for block in blocks(request)]
    return msgspec.json.encode(body)


def blocks(request: Request) -> list[bytes]:
    """The messages of a request, each in its own bytes."""
    written = [native.body.encode() for native in request.native if native.dialect == DIALECT]
    told = _worded(request.system)
    if not written and told.strip():
        written.append(_write({"role": "system", "content": told}))
    _, names = _tools(request)
    for head, results in _groups(request.items):
        written += _group(head, results, names=names)
        # A tool message holds text only: pictures follow all results, as one user message.
        shown = [part for item in results if not _own(item) for part in item.parts]
        if media := tuple(part for part in shown if isinstance(part, Media)):
            written.append(_write({"role": "user", "content": _contents(media)}))
    return written


def _tools(request: Request) -> tuple[list[Tool], Names]:
    """The tools that are written, and how they are named; how repeats and names are: `tools`."""
    tools = once(request.tools, dialect=DIALECT)
    return tools, named(tools, dialect=DIALECT, longest=LONGEST_NAME, called=LONGEST_NAME)


def _groups(items: Sequence[Item]) -> Iterator[tuple[Item, list[Item]]]:
    """Every item, with the results behind it."""
    start = 0
    for end in range(1, len(items) + 1):
        if end == len(items) or items[end].role != "result":
            yield items[start], list(items[start + 1 : end])
            start = end


def _group(head: Item, results: list[Item], *, names: Names) -> Iterator[bytes]:
    """An item and the results behind it, as messages."""
    if own := _own(head):
        group = Group(names=names, ids={call.id: call.id for call in calls_of(head.parts)})
        yield own
        yield from (_own(item) or _write(write_message(item, group)) for item in results)
        return
    group = group_of(calls_of(head.parts), names)
    pieces = _pieces(head)
    for piece in pieces:
        yield _write(write_message(piece, group))
        ids = {call.id for call in calls_of(piece.parts)}
        for item in results:
            if len(pieces) == 1 or item.call_id in ids:
                own = _own(item) if _stands(item, group) else None
                yield own or _write(write_message(item, group))


def _pieces(item: Item) -> list[Item]:
    """An answer in pieces of as many calls as a message may hold: almost always one."""
    calls = calls_of(item.parts)
    if len(calls) <= MOST_CALLS:
        return [item]
    said = tuple(part for part in item.parts if not isinstance(part, Call))
    first, *rest = (calls[at : at + MOST_CALLS] for at in range(0, len(calls), MOST_CALLS))
    return [msgspec.structs.replace(item, parts=some) for some in ((*said, *first), *rest)]


def group_of(calls: Sequence[Call], names: Names = _ANY) -> Group:
    """How calls of one answer are written: no two under one id."""
    ids = {call.id: call.id for call in calls if len(call.id) <= LONGEST_ID}
    for call in calls:
        if call.id not in ids:
            ids[call.id] = own_id(call.id, taken=ids.values())
    return Group(ids, legacy=len(calls) == 1, names=names)


def _own(item: Item) -> bytes | None:
    """What an item came in."""
    native = item.native
    return native.body.encode() if native and native.dialect == DIALECT else None


def _stands(item: Item, group: Group) -> bool:
    """Whether what a result came in has the id, and the kind, that its call is written with."""
    if not item.call_id.startswith(LEGACY):
        return group.ids.get(item.call_id) == item.call_id
    role = msgspec.json.decode(_own(item) or b"{}", type=_Role).role
    return group.legacy == (role == "function")


def write_message(item: Item, group: Group | None = None) -> Json:
    """One item as a message, without regard to a native form."""
    match item.role:
        case "system":
            return {"role": "system", "content": text_of(item.parts)}
        case "handoff" if item.in_system:
            return {"role": "system", "content": text_of(item.parts)}
        case "user" | "handoff":
            return {"role": "user", "content": _contents(item.parts)}
        case "result":
            return _result(item, group or Group())
        case "model":
            return _answer(item, group or group_of(calls_of(item.parts)))


def _result(item: Item, group: Group) -> Json:
    words = text_of(item.parts)
    if not item.ok and item.state == "whole" and not words.lower().startswith("error"):
        words = f"Error: {words}"
    if group.legacy and item.call_id.startswith(LEGACY):
        name = group.names.of(item.call_id.removeprefix(LEGACY))
        return {"role": "function", "name": name, "content": words}
    call_id = group.ids.get(item.call_id) or own_id(item.call_id)
    return {"role": "tool", "tool_call_id": call_id, "content": words}


def _answer(item: Item, group: Group) -> Json:
    said = _worded(part for part in item.parts if not isinstance(part, Thought))
    body: Json = {"role": "assistant", "content": said or None}
    calls: list[Json] = []
    for call in calls_of(item.parts):
        name = group.names.of(call.name)
        if group.legacy and call.id.startswith(LEGACY):
            return {**body, "function_call": {"name": name, "arguments": call.arguments}}
        function = {"name": name, "arguments": call.arguments or "{}"}
        calls.append({"id": group.ids[call.id], "type": "function", "function": function})
    return {**body, "tool_calls": calls} if calls else body


def _worded(parts: Iterable[Part]) -> str:
    """Parts where there may be only words: media are named, calls left out."""
    return "\n".join(kinds.words(part) for part in parts if not isinstance(part, Call))


def _contents(parts: tuple[Part, ...]) -> str | list[Json]:
    if not any(isinstance(part, Media) for part in parts):
        return text_of(parts)
    return [
        {"type": "text", "text": text_of((part,))} if not isinstance(part, Media) else _media(part)
        for part in parts
        if not isinstance(part, Call)
    ]


def _media(part: Media) -> Json:
    """Pictures, sounds of two kinds and files that have bytes; any other is named."""
    if part.form == "image":
        url = part.url or f"data:{part.mime};base64,{part.base64}"
        if url.startswith(_ADDRESSES) and not url.endswith(";base64,"):
            return {"type": "image_url", "image_url": {"url": url}}
    elif not part.url and part.base64:  # only pictures are taken by their address
        if part.form == "file":
            held = f"data:{part.mime};base64,{part.base64}"
            return {"type": "file", "file": {"filename": part.name, "file_data": held}}
        if form := _SOUNDS.get(kinds.kind(part)):
            return {"type": "input_audio", "input_audio": {"data": part.base64, "format": form}}
        return {"type": "text", "text": kinds.untaken(part)}
    return {"type": "text", "text": kinds.named(part)}


def own_id(call_id: str, *, taken: Iterable[str] = ()) -> str:
    """A call's id as this dialect takes it: one that is too long is shortened, always the same."""
    if len(call_id) <= LONGEST_ID:
        return call_id
    return marked(call_id[:23], call_id, digits=16, taken=taken)


def write_tool(tool: Tool, names: Names = _ANY) -> Json:
    """One tool, without regard to a native form; parameters that are no object say nothing."""
    function: Json = {"name": names.of(tool.name)}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = msgspec.Raw(tool.schema.encode())
    if object_of(tool.schema) is None:
        function["parameters"] = {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def _raw(native: Native | None) -> msgspec.Raw | None:
    return msgspec.Raw(native.body.encode()) if native and native.dialect == DIALECT else None


def _write(body: Json) -> bytes:
    return msgspec.json.encode(body)
