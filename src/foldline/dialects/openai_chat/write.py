"""Encodes requests as bytes.

An answer with more than 128 calls is written as several messages, each with its own results: every
call keeps its result, only that they were made at once is lost. A legacy call (`function_call`,
without an id) is written as such if it is alone; beside others it cannot be paired, and is written
like them. Media of results follow the results in a user message.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from foldline.core.item import Item
from foldline.core.parts import Call, Media, Part, Thought, Tool, calls_of, text_of
from foldline.core.request import Request
from foldline.dialects import tools as kinds
from foldline.dialects.json_slices import Json, object_of
from foldline.dialects.openai import (
    LONGEST_NAME,
    is_picture_address,
    iterate_groups,
    render_parts,
    shorten_id,
)
from foldline.dialects.openai_chat.validate import LONGEST_ID, MOST_CALLS
from foldline.dialects.tools import Names, select_tools

DIALECT = "openai-chat"
ENCODER = 2
"""Incremented when the same request would be written in other bytes."""
LEGACY = "function:"
"""Prefix of the id that we give to a call that came as `function_call`, which has none."""
_ANY = Names({}, LONGEST_NAME)
_SOUNDS = {"audio/mpeg": "mp3", "audio/wav": "wav"}


class _Role(msgspec.Struct):
    role: Any = None


@dataclass(frozen=True, slots=True)
class Group:
    """How the calls of one answer, and their results, are written."""

    ids: Mapping[str, str] = field(default_factory=dict[str, str])
    """The id shown → the id written."""
    legacy: bool = True
    """Whether a legacy call is written as one."""
    names: Names = _ANY


def encode_request(request: Request, parameters: Mapping[str, Any]) -> bytes:
    """Encode a request; the SDK's keyword arguments are decoded from these bytes.

    Messages come last, so that a request that only grew begins with the bytes of the one before.
    """
    body: Json = {"model": request.model, **parameters}
    tools, names = select_tools(request.tools, dialect=DIALECT, longest=LONGEST_NAME)
    if tools:
        body["tools"] = [
            msgspec.Raw(own) if (own := _find_native_body(tool)) else write_tool(tool, names)
            for tool in tools
        ]
    body["messages"] = [msgspec.Raw(block) for block in encode_blocks(request)]
    return msgspec.json.encode(body)


def encode_blocks(request: Request) -> list[bytes]:
    """Encode the messages of a request, each in its own bytes."""
    return [*_iterate_blocks(request)]


def is_silent(request: Request) -> bool:
    """Whether a request has no messages; stops at the first one."""
    return next(_iterate_blocks(request), None) is None


def _iterate_blocks(request: Request) -> Iterator[bytes]:
    system = render_parts(request.system)
    own = [native.body.encode() for native in request.native if native.dialect == DIALECT]
    if own:
        yield from own
    elif system.strip():
        yield msgspec.json.encode({"role": "system", "content": system})
    _, names = select_tools(request.tools, dialect=DIALECT, longest=LONGEST_NAME)
    for head, results in iterate_groups(request.items):
        yield from _encode_group(head, results, names=names)
        # A tool message holds only text: media follow all results, in one user message.
        shown = [part for item in results if not _find_native_body(item) for part in item.parts]
        if media := tuple(part for part in shown if isinstance(part, Media)):
            message = {"role": "user", "content": _encode_content(media)}
            yield msgspec.json.encode(message)


def _encode_group(head: Item, results: list[Item], *, names: Names) -> Iterator[bytes]:
    """Encode an item and the results after it as messages."""
    if own := _find_native_body(head):
        group = Group(names=names, ids={call.id: call.id for call in calls_of(head.parts)})
        yield own
        for item in results:
            yield _find_native_body(item) or msgspec.json.encode(write_message(item, group))
        return
    group = group_of(calls_of(head.parts), names)
    pieces = _split_item(head)
    for piece in pieces:
        yield msgspec.json.encode(write_message(piece, group))
        ids = {call.id for call in calls_of(piece.parts)}
        for item in results:
            if len(pieces) == 1 or item.call_id in ids:
                own = _find_native_body(item) if _has_written_id(item, group) else None
                yield own or msgspec.json.encode(write_message(item, group))


def _split_item(item: Item) -> list[Item]:
    """Split an answer into pieces of at most `MOST_CALLS` calls; almost always one."""
    calls = calls_of(item.parts)
    if len(calls) <= MOST_CALLS:
        return [item]
    said = tuple(part for part in item.parts if not isinstance(part, Call))
    first, *rest = (calls[at : at + MOST_CALLS] for at in range(0, len(calls), MOST_CALLS))
    return [msgspec.structs.replace(item, parts=some) for some in ((*said, *first), *rest)]


def group_of(calls: Sequence[Call], names: Names = _ANY) -> Group:
    """Assign the calls of one answer distinct ids."""
    ids = {call.id: call.id for call in calls if len(call.id) <= LONGEST_ID}
    for call in calls:
        if call.id not in ids:
            ids[call.id] = own_id(call.id, taken=ids.values())
    return Group(ids, legacy=len(calls) == 1, names=names)


def _find_native_body(thing: Item | Tool) -> bytes | None:
    native = thing.native
    return native.body.encode() if native and native.dialect == DIALECT else None


def _has_written_id(item: Item, group: Group) -> bool:
    """Whether a result's native form has the id and kind that its call is written with."""
    if not item.call_id.startswith(LEGACY):
        return group.ids.get(item.call_id) == item.call_id
    role = msgspec.json.decode(_find_native_body(item) or b"{}", type=_Role).role
    return group.legacy == (role == "function")


def write_message(item: Item, group: Group | None = None) -> Json:
    """Write an item as a message from its neutral form."""
    match item.role:
        case "system":
            return {"role": "system", "content": text_of(item.parts)}
        case "handoff" if item.in_system:
            return {"role": "system", "content": text_of(item.parts)}
        case "user" | "handoff":
            return {"role": "user", "content": _encode_content(item.parts)}
        case "result":
            return _encode_result(item, group or Group())
        case "model":
            return _encode_answer(item, group or group_of(calls_of(item.parts)))


def _encode_result(item: Item, group: Group) -> Json:
    words = text_of(item.parts)
    if not item.ok and item.state == "whole" and not words.lower().startswith("error"):
        words = f"Error: {words}"
    if group.legacy and item.call_id.startswith(LEGACY):
        name = group.names.resolve_name(item.call_id.removeprefix(LEGACY))
        return {"role": "function", "name": name, "content": words}
    call_id = group.ids.get(item.call_id) or own_id(item.call_id)
    return {"role": "tool", "tool_call_id": call_id, "content": words}


def _encode_answer(item: Item, group: Group) -> Json:
    said = render_parts(part for part in item.parts if not isinstance(part, Thought))
    body: Json = {"role": "assistant", "content": said or None}
    calls: list[Json] = []
    for call in calls_of(item.parts):
        name = group.names.resolve_name(call.name)
        if group.legacy and call.id.startswith(LEGACY):
            return {**body, "function_call": {"name": name, "arguments": call.arguments}}
        function = {"name": name, "arguments": call.arguments or "{}"}
        calls.append({"id": group.ids[call.id], "type": "function", "function": function})
    return {**body, "tool_calls": calls} if calls else body


def _encode_content(parts: tuple[Part, ...]) -> str | list[Json]:
    if not any(isinstance(part, Media) for part in parts):
        return text_of(parts)
    return [
        {"type": "text", "text": text_of((part,))}
        if not isinstance(part, Media)
        else _encode_media(part)
        for part in parts
        if not isinstance(part, Call)
    ]


def _encode_media(part: Media) -> Json:
    """Write images, audio of two kinds and files with bytes; name any other."""
    if part.form == "image":
        url = part.url or f"data:{part.mime};base64,{part.base64}"
        if is_picture_address(url):
            return {"type": "image_url", "image_url": {"url": url}}
    elif not part.url and part.base64:  # only images may be URLs
        if part.form == "file":
            held = f"data:{part.mime};base64,{part.base64}"
            return {"type": "file", "file": {"filename": part.name, "file_data": held}}
        if form := _SOUNDS.get(kinds.mime_of(part)):
            return {"type": "input_audio", "input_audio": {"data": part.base64, "format": form}}
        return {"type": "text", "text": kinds.describe_refused_media(part)}
    return {"type": "text", "text": kinds.describe_media(part)}


def own_id(call_id: str, *, taken: Iterable[str] = ()) -> str:
    """Return a valid call id: one that is too long is shortened, always in the same way."""
    return shorten_id(call_id, LONGEST_ID, stem=23, taken=taken)


def write_tool(tool: Tool, names: Names = _ANY) -> Json:
    """Write a tool from its neutral form; parameters that are not an object are dropped."""
    function: Json = {"name": names.resolve_name(tool.name)}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = msgspec.Raw(tool.schema.encode())
    if object_of(tool.schema) is None:
        function["parameters"] = {"type": "object", "properties": {}}
    return {"type": "function", "function": function}
