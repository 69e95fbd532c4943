"""Requests as bytes.

Knows how this dialect writes items: two roles that take turns, results before words, ids unique in
the whole request. Refuses to know where the items came from, and who must speak last (`ending`).

What is exact. A message's frame, `{"role":…,"content":…}`, is ours. What came in this dialect and
is shown whole has its messages in their order and with their boundaries, but that neighbours of one
role become one message; its content is a string or a list, as it came, but that a string becomes
a list of one text where it is marked or has a neighbour; and every block has the bytes it came in,
but for cache marks. So have tools, the blocks of the system, and parameters.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from foldline.core.item import Item
from foldline.core.parts import Call, Part, Tool, calls_of
from foldline.core.request import Request
from foldline.dialects.anthropic import cache_marks, forms
from foldline.dialects.anthropic.blocks import DIALECT, Block, Content, opened, text
from foldline.dialects.json_reader import Json, object_of
from foldline.dialects.tools import Names, named, once

__all__ = ["DIALECT", "ENCODER", "blocks", "encode", "write_tool"]

ENCODER = 4
"""Raised when the same request would be written in other bytes."""
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ITS_OWN_ID = re.compile(r"[a-zA-Z0-9_-]+")  # what came in this dialect may be longer
_BEGAN = text(b'"[the conversation begins with what the assistant said]"')
_ALONE = Names({}, forms.LONGEST_NAME)


@dataclass(slots=True)
class _MessageDraft:
    """One message: a role and its blocks; `alone` where one text is written as a string."""

    role: str
    blocks: list[Block] = field(default_factory=list[Block])
    alone: bool = False


def encode(request: Request, parameters: Mapping[str, Any]) -> bytes:
    """The request's bytes, from which the SDK's keyword arguments are decoded.

    Messages come last, so that a request that only grew begins with the bytes of the one before.
    """
    tools, names = _tools(request)
    turns = _turns(request, names)
    system = _system(request)
    # One at the top has the provider mark the end by itself, and none of ours may lie before it.
    if cache_marks.NAME not in parameters:
        cache_marks.mark(tools, system.blocks, [turn.blocks for turn in turns])
    body: Json = {"model": request.model.removeprefix("anthropic/"), **parameters}
    if tools:
        body["tools"] = [msgspec.Raw(tool.body) for tool in tools]
    if system.blocks:
        body["system"] = _content(system)
    body["messages"] = [{"role": turn.role, "content": _content(turn)} for turn in turns]
    return msgspec.json.encode(body)


def blocks(request: Request) -> list[bytes]:
    """The blocks of all messages in order, each in its own bytes, without cache marks."""
    return [
        framed(turn.role, block)
        for turn in (_system(request), *_turns(request, _tools(request)[1]))
        for block in turn.blocks
    ]


def framed(role: str, block: Block) -> bytes:
    """A block and who says it, without its mark."""
    return msgspec.json.encode(
        {"role": role, "block": msgspec.Raw(cache_marks.unmarked(block).body)}
    )


def write_tool(tool: Tool, names: Names = _ALONE) -> Block:
    """One tool, without regard to a native form; its schema is always that of an object."""
    words = {"description": tool.description} if tool.description else {}
    head = {"name": names.of(tool.name), **words}
    return Block(msgspec.json.encode({**head, "input_schema": _schema(tool.schema)}))


def _schema(text: str) -> Json:
    if object_of(text) is None:
        return {"type": "object", "properties": {}}
    schema = msgspec.json.decode(text)
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}


def _tools(request: Request) -> tuple[list[Block], Names]:
    """The request's tools, and how they are named; how names and repeats are written: `tools`."""
    tools = once(request.tools, dialect=DIALECT)
    names = named(tools, dialect=DIALECT, longest=forms.LONGEST_NAME, called=forms.LONGEST_CALLED)
    return [_tool(tool, names) for tool in tools], names


def _tool(tool: Tool, names: Names) -> Block:
    own = opened(tool.native)
    return own.blocks[0] if own and own.blocks else write_tool(tool, names)


def _system(request: Request) -> _MessageDraft:
    own = [content for native in request.native if (content := opened(native))]
    if not own:
        return _MessageDraft("system", forms.written(forms.worded(request.system)))
    blocks = [block for content in own for block in content.blocks]
    return _MessageDraft("system", blocks, alone=len(own) == 1 and own[0].alone)


def _turns(request: Request, names: Names) -> list[_MessageDraft]:
    turns: list[_MessageDraft] = []
    used: set[str] = set()
    ids: dict[str, str] = {}  # of the newest group: the id shown → the id written
    for item in request.items:
        role = "assistant" if item.role == "model" else "user"
        own = _own(item)
        if item.role == "model":
            ids = _own_ids(item, used, _ID if own is None else _ITS_OWN_ID)
        found = own if own is not None and _stands(item, own, ids) else _written(item, ids, names)
        if found is not own and not found.blocks:
            continue
        if not turns and role == "assistant":
            turns.append(_MessageDraft("user", [_BEGAN]))
        if not turns or turns[-1].role != role:
            turns.append(_MessageDraft(role, alone=found.alone))
        else:
            turns[-1].alone = False
        turns[-1].blocks += found.blocks
    return turns


def _content(turn: _MessageDraft) -> msgspec.Raw | list[msgspec.Raw]:
    if turn.alone and len(turn.blocks) == 1 and turn.blocks[0].words:
        return msgspec.Raw(turn.blocks[0].words)
    return [msgspec.Raw(block.body) for block in turn.blocks]


def _own(item: Item) -> Content | None:
    """What an item came in; instructions that changed in mid-talk are always told in our words."""
    content = opened(item.native) if item.role != "system" else None
    # Other agents' files have marks too.
    return content and cache_marks.bare(content)


def _stands(item: Item, own: Content, ids: Mapping[str, str]) -> bool:
    """Whether what an item came in has the ids that are written."""
    if item.role == "result":
        call_id = ids.get(item.call_id, item.call_id)
        return bool(own.blocks) and own.blocks[0].answers == call_id
    return item.role != "model" or all(ids[call.id] == call.id for call in calls_of(item.parts))


def _written(item: Item, ids: Mapping[str, str], names: Names) -> Content:
    """One item as blocks."""
    if item.role == "result":
        call_id = ids.get(item.call_id, item.call_id)
        return Content((forms.result(call_id, item.parts, ok=item.ok),))
    said = forms.worded(_renamed(item.parts, ids)) if item.role == "model" else item.parts
    found = forms.content(said, names)
    return Content(found.blocks, alone=found.alone and item.native is None)


def _renamed(parts: Sequence[Part], ids: Mapping[str, str]) -> list[Part]:
    return [
        Call(ids[one.id], one.name, one.arguments) if isinstance(one, Call) else one
        for one in parts
    ]


def _own_ids(item: Item, used: set[str], allowed: re.Pattern[str]) -> dict[str, str]:
    """The ids of a group as this dialect takes them: few signs, and each once in a request."""
    ids: dict[str, str] = {}
    for call in calls_of(item.parts):
        own = call.id
        if not allowed.fullmatch(own) or own in used:
            own = f"{re.sub(r'[^a-zA-Z0-9_-]', '_', call.id)[:40] or 'call'}_{item.seq}"
        while own in used:
            own += "_"
        used.add(own)
        ids[call.id] = own
    return ids
