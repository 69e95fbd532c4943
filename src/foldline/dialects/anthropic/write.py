"""Encodes requests as bytes, with cache marks, and decides how a request may end.

The dialect wants two roles that take turns, results before words, and ids unique in the request.

What is exact: the frame of a message, `{"role":…,"content":…}`, is ours. Messages that came in this
dialect and are shown whole keep their order, boundaries and bytes, except that neighbours of one
role are joined, a string becomes a list of one text where it is marked or joined, and cache marks
change. Tools, system blocks and parameters keep their bytes too.

The end: a request that ends with an answer asks the model to continue it. After `pause_turn`
providers expect that of every model. An answer that the caller began ("prefill"), or that was cut
at its length, is continued by models up to 4.5. Later ones refuse it, as does any model that
thinks, or where the last words end in blanks. An answer that a model ended itself is not continued.

Cache marks: at most four; the provider looks back 20 blocks from each, and not every block takes
one. A client moves its marks with every request, so those in messages are removed on reading, or
they would pile up past the limit; those on tools and system stay. Adding or removing a mark touches
no other byte of a block.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from foldline.core.item import Item
from foldline.core.log import ModelSaid
from foldline.core.parts import Call, Part, Tool, calls_of, spoken_text_of
from foldline.core.request import Request
from foldline.core.view import View
from foldline.dialects.anthropic.blocks import (
    DIALECT,
    LONGEST_CALLED,
    LONGEST_NAME,
    SERVED_CALLS,
    THOUGHTS,
    Block,
    Content,
    blocks_of,
    decode_native,
    encode_content,
    encode_parts,
    encode_result,
    kind_of_block,
    make_text_block,
    replace_media_parts,
)
from foldline.dialects.client_messages import find_last_answer
from foldline.dialects.json_slices import Json, dict_of, list_of
from foldline.dialects.tools import (
    Names,
    parse_object_schema,
    select_tools,
)

__all__ = ["DIALECT", "ENCODER", "encode_blocks", "encode_request", "write_tool"]

LEAST_BUDGET = 1_024  # tokens of manual thinking: the provider takes no less
_CONTINUES = re.compile(  # names of models up to 4.5, with or without a date
    r"claude-(?:v?2|instant|3|[a-z]+-4(?:[-.][0-5](?!\d))?(?=$|[@:]|-v\d|-\d{8}|-latest))"
)


def refuses_end(view: View, parameters: Mapping[str, Any]) -> bool:
    """Whether a request would end with an answer that the provider does not continue."""
    last = find_last_answer(view, DIALECT)
    if last is None:
        return False
    said = view.held.get(last.seq)
    if not isinstance(said, ModelSaid):
        return True
    return not (_is_paused(said) or _is_continued(said, view.model, parameters))


def _is_paused(said: ModelSaid) -> bool:
    """Whether the answer says it paused, or ends with a call that the provider runs."""
    if said.stop == "paused":
        return True
    content = decode_native(said.native)
    return bool(content and content.blocks and content.blocks[-1].kind in SERVED_CALLS)


def _is_continued(said: ModelSaid, model: str, parameters: Mapping[str, Any]) -> bool:
    """Whether the model continues this answer, begun by the caller or cut."""
    words = spoken_text_of(said.parts)
    ended = said.stop in ("done", "refused") and said.saw is not None
    takes = _CONTINUES.search(model.lower()) is not None and not _has_thinking(parameters)
    return takes and not ended and words == words.rstrip()


def _has_thinking(parameters: Mapping[str, Any]) -> bool:
    return _read_thinking(parameters) not in (None, "disabled")


def thinks_manually(parameters: Mapping[str, Any]) -> bool:
    """Whether a request gives thinking a budget: then a tool loop goes on only with its own."""
    return _read_thinking(parameters) == "enabled"


def _read_thinking(parameters: Mapping[str, Any]) -> str | None:
    """Return the kind of thinking that a request asks for; None if it asks for none."""
    thinking = _decode_object(parameters, "thinking")
    return str(thinking.get("type", "")) if thinking else None


def _decode_object(parameters: Mapping[str, Any], name: str) -> Json:
    value = parameters.get(name)
    return dict_of(msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value)


def fit_parameters(request: Request, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fit manual thinking to the answer's limit, and leave it out of a loop begun without it.

    Another model may have begun the loop, or a person excluded what the model thought.
    """
    if not thinks_manually(parameters):
        return parameters
    off = {**parameters, **_turn_thinking_off(parameters)}
    del off["thinking"]
    thinking, most = _decode_object(parameters, "thinking"), parameters.get("max_tokens")
    budget = thinking.get("budget_tokens")
    most = msgspec.json.decode(most) if isinstance(most, msgspec.Raw) else most
    if isinstance(budget, int) and isinstance(most, int) and budget >= most:
        less = max(most // 2, LEAST_BUDGET)
        if less >= most:
            return off
        parameters = {**parameters, "thinking": {**thinking, "budget_tokens": less}}
    messages: list[Json] = msgspec.json.decode(encode_request(request, parameters))["messages"]
    return off if find_thoughtless_loop(messages) is not None else parameters


def change_thoughtless(
    parameters: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]
) -> Json:
    """Return the fields to change where manual thinking goes on in a loop that began without it."""
    if not thinks_manually(parameters) or find_thoughtless_loop(messages) is None:
        return {}
    return _turn_thinking_off(parameters)


def _turn_thinking_off(parameters: Mapping[str, Any]) -> Json:
    """Return the fields of a request without thinking: what clears thoughts is refused then."""
    context = _decode_object(parameters, "context_management")
    edits = [dict_of(one) for one in list_of(context.get("edits"))]
    kept = [one for one in edits if not str(one.get("type")).startswith("clear_thinking")]
    managed = {"context_management": {**context, "edits": kept}} if kept != edits else {}
    return {"thinking": {"type": "disabled"}, **managed}


def find_thoughtless_loop(messages: Sequence[Mapping[str, Any]]) -> int | None:
    """Find the first answer of the tool loop under way, if it does not begin with thinking.

    With a budget the provider refuses that. Later answers of a loop may have none: most models
    think once, before the first call. Words of the user behind results do not end the loop.
    """
    first, has_results = None, False
    for at in range(len(messages) - 1, -1, -1):
        kinds = [kind_of_block(block) for block in blocks_of(messages[at].get("content"))]
        if messages[at].get("role") == "user":
            has_results = "tool_result" in kinds
        elif not has_results:
            break
        else:
            first = None if kinds[:1] and kinds[0] in THOUGHTS else at
    return first


MOST = 4
NAME = "cache_control"
_LOOK_BACK = 19  # blocks before a mark in which the provider finds an earlier request's mark
_TAKES = {"text", "image", "document", "tool_use", "tool_result"}
_MARK = b',"cache_control":{"type":"ephemeral"}}'
_ESCAPED = re.compile(rb"\\u00[567]")  # a key may be written with escapes
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def apply_cache_marks(
    tools: list[Block], system: list[Block], messages: Sequence[list[Block]]
) -> None:
    """Mark blocks in place: the fixed part, the first message, and the end.

    The first message holds the folds, which change seldom. The end has two marks, so that a step of
    many blocks still finds the marks of the previous request. A client that marks its tools or its
    system has said where the fixed part ends: we add none there, and fewer after it.
    """
    theirs = sum(map(is_marked, (*tools, *system)))
    said = [place for place, block in enumerate(system) if _can_take_mark(block)]
    if not theirs and said:
        system[said[-1]] = add_mark(system[said[-1]])
    elif not theirs and tools:
        tools[-1] = add_mark(tools[-1])
    room = max(0, MOST - max(theirs, 1))
    flat = [(blocks, place) for blocks in messages for place in range(len(blocks))]
    last = len(flat) - 1
    ends = {len(messages[0]) - 1 if messages else -1, last - _LOOK_BACK, last}
    found: set[int | None] = set()
    for end in sorted((end for end in ends if end >= 0), reverse=True)[:room]:
        takes = (at for at in range(end, -1, -1) if _can_take_mark(flat[at][0][flat[at][1]]))
        found.add(next(takes, None))
    for blocks, place in (flat[at] for at in found if at is not None):
        blocks[place] = add_mark(blocks[place])


def add_mark(block: Block) -> Block:
    """Return a block with our mark."""
    return Block(block.body[:-1] + _MARK)


def is_marked(block: Block) -> bool:
    """Whether a block has a mark, ours or the client's."""
    return _can_have_mark(block.body) and NAME in block.fields


def strip_marks(content: Content) -> Content:
    """Return a content without any marks."""
    return Content(tuple(map(strip_block_marks, content.blocks)), content.alone)


def strip_block_marks(block: Block) -> Block:
    """Return a block without its mark and without those of blocks inside it."""
    if block.words or not _can_have_mark(block.body):
        return block
    body = _cut_marks(block.body)
    return block if body is block.body else Block(body)


def _can_have_mark(body: bytes) -> bool:
    """Whether there may be a mark; `in` is ten times as fast as one regex for both."""
    return b"cache_control" in body or (b"\\u00" in body and bool(_ESCAPED.search(body)))


def _cut_marks(body: bytes) -> bytes:
    kept, last = list[bytes](), 0
    for start, end in sorted(_find_mark_spans(body)):
        kept.append(body[last:start])
        last = end
    return b"".join((*kept, body[last:])) if kept else body


class _Field(NamedTuple):
    """A field's start and end in a block, and the comma before it (the first: its start)."""

    key: str
    comma: int
    start: int
    end: int


@dataclass(slots=True)
class _Level:
    """An object or list being read; for a block, its fields so far."""

    block: bool = False
    blocks: bool = False
    """Whether it is a list of blocks."""
    fields: list[_Field] = field(default_factory=list[_Field])
    key: str | None = None
    start: int = 0
    comma: int | None = None

    def end_field(self, at: int) -> None:
        """End the current field, if there is one."""
        if self.key is not None:
            comma = self.start if self.comma is None else self.comma
            self.fields.append(_Field(self.key, comma, self.start, at))
        self.key = None

    def iterate_mark_spans(self) -> Iterable[tuple[int, int]]:
        """Yield the spans of marks, each with the comma before it, or after it if it is first."""
        first = True
        for place, mark in enumerate(self.fields):
            if mark.key != NAME:
                first = False
            elif first and place + 1 < len(self.fields):
                yield mark.start, self.fields[place + 1].start
            else:
                yield (mark.start if first else mark.comma), mark.end


def _find_mark_spans(body: bytes) -> list[tuple[int, int]]:
    """Find the marks of a block and of blocks in its content."""
    found: list[tuple[int, int]] = []
    levels: list[_Level] = []
    end = 0
    for token in _TOKEN.finditer(body):
        sign, above = token[0], levels[-1] if levels else _Level(blocks=True)
        if sign == b"{":
            levels.append(_Level(block=above.blocks))
        elif sign == b"[":
            levels.append(_Level(blocks=above.block and above.key == "content"))
        elif sign in (b"}", b"]", b","):
            above.end_field(end)
            above.comma = token.start()
            if sign != b",":
                found += levels.pop().iterate_mark_spans()
        elif above.block and above.key is None:
            above.key, above.start = msgspec.json.decode(sign), token.start()
        end = token.end()
    return found


def _can_take_mark(block: Block) -> bool:
    return block.kind in _TAKES and (block.kind != "text" or bool(block.fields.get("text")))


ENCODER = 4
"""Incremented when the same request would be written in other bytes."""
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ITS_OWN_ID = re.compile(r"[a-zA-Z0-9_-]+")  # ids that came in this dialect may be longer
_BEGAN = make_text_block(b'"[the conversation begins with what the assistant said]"')
_ALONE = Names({}, LONGEST_NAME)
_ANYTHING: Json = {"type": "object", "properties": {}}


@dataclass(slots=True)
class _MessageDraft:
    """A message's role and blocks; `alone` if its one text is written as a string."""

    role: str
    blocks: list[Block] = field(default_factory=list[Block])
    alone: bool = False


def encode_request(request: Request, parameters: Mapping[str, Any]) -> bytes:
    """Encode a request; the SDK's keyword arguments are decoded from these bytes.

    Messages come last, so that a request that only grew begins with the bytes of the one before.
    """
    tools, names = _encode_tools(request)
    turns = _build_message_drafts(request, names)
    system = _build_system_draft(request)
    # A mark at the top has the provider mark the end itself; ours must not come before it.
    if NAME not in parameters:
        apply_cache_marks(tools, system.blocks, [turn.blocks for turn in turns])
    body: Json = {"model": request.model.removeprefix("anthropic/"), **parameters}
    if tools:
        body["tools"] = [msgspec.Raw(tool.body) for tool in tools]
    if system.blocks:
        body["system"] = _encode_content(system)
    body["messages"] = [{"role": turn.role, "content": _encode_content(turn)} for turn in turns]
    return msgspec.json.encode(body)


def encode_blocks(request: Request) -> list[bytes]:
    """Encode the blocks of all messages in order, without cache marks."""
    _, names = _encode_tools(request)
    turns = (_build_system_draft(request), *_build_message_drafts(request, names))
    return [encode_block(turn.role, block) for turn in turns for block in turn.blocks]


def encode_block(role: str, block: Block) -> bytes:
    """Encode a block with its role, without its mark."""
    return msgspec.json.encode({"role": role, "block": msgspec.Raw(strip_block_marks(block).body)})


def write_tool(tool: Tool, names: Names = _ALONE) -> Block:
    """Write a tool from its neutral form; its schema is always an object's."""
    words = {"description": tool.description} if tool.description else {}
    head = {"name": names.resolve_name(tool.name), **words}
    schema = parse_object_schema(tool.schema) or _ANYTHING
    return Block(msgspec.json.encode({**head, "input_schema": schema}))


def _encode_tools(request: Request) -> tuple[list[Block], Names]:
    tools, names = select_tools(
        request.tools, dialect=DIALECT, longest=LONGEST_NAME, called=LONGEST_CALLED
    )
    return [_encode_tool(tool, names) for tool in tools], names


def _encode_tool(tool: Tool, names: Names) -> Block:
    own = decode_native(tool.native)
    return own.blocks[0] if own and own.blocks else write_tool(tool, names)


def _build_system_draft(request: Request) -> _MessageDraft:
    own = [content for native in request.native if (content := decode_native(native))]
    if not own:
        return _MessageDraft("system", encode_parts(replace_media_parts(request.system)))
    blocks = [block for content in own for block in content.blocks]
    return _MessageDraft("system", blocks, alone=len(own) == 1 and own[0].alone)


def _build_message_drafts(request: Request, names: Names) -> list[_MessageDraft]:
    turns: list[_MessageDraft] = []
    used: set[str] = set()
    ids: dict[str, str] = {}  # of the newest group of calls: the id shown → the id written
    for item in request.items:
        role = "assistant" if item.role == "model" else "user"
        own = _find_native_content(item)
        if item.role == "model":
            ids = _own_ids(item, used, _ID if own is None else _ITS_OWN_ID)
        if own is not None and _has_written_ids(item, own, ids):
            found = own
        elif not (found := _encode_item(item, ids, names)).blocks:
            continue
        if not turns and role == "assistant":
            turns.append(_MessageDraft("user", [_BEGAN]))
        if not turns or turns[-1].role != role:
            turns.append(_MessageDraft(role, alone=found.alone))
        else:
            turns[-1].alone = False
        turns[-1].blocks += found.blocks
    return turns


def _encode_content(turn: _MessageDraft) -> msgspec.Raw | list[msgspec.Raw]:
    if turn.alone and len(turn.blocks) == 1 and turn.blocks[0].words:
        return msgspec.Raw(turn.blocks[0].words)
    return [msgspec.Raw(block.body) for block in turn.blocks]


def _find_native_content(item: Item) -> Content | None:
    """Return an item's content as it came; changed instructions are always written in our words."""
    content = decode_native(item.native) if item.role != "system" else None
    return content and strip_marks(content)  # other agents' files have marks too


def _has_written_ids(item: Item, own: Content, ids: Mapping[str, str]) -> bool:
    """Whether an item's native content has the ids that are written."""
    if item.role == "result":
        call_id = ids.get(item.call_id, item.call_id)
        return bool(own.blocks) and own.blocks[0].answers == call_id
    return item.role != "model" or all(ids[call.id] == call.id for call in calls_of(item.parts))


def _encode_item(item: Item, ids: Mapping[str, str], names: Names) -> Content:
    if item.role == "result":
        call_id = ids.get(item.call_id, item.call_id)
        return Content((encode_result(call_id, item.parts, ok=item.ok),))
    parts: Sequence[Part] = item.parts
    if item.role == "model":
        parts = replace_media_parts(_replace_call_ids(parts, ids))
    found = encode_content(parts, names)
    return Content(found.blocks, alone=found.alone and item.native is None)


def _replace_call_ids(parts: Sequence[Part], ids: Mapping[str, str]) -> list[Part]:
    return [
        Call(ids[part.id], part.name, part.arguments) if isinstance(part, Call) else part
        for part in parts
    ]


def _own_ids(item: Item, used: set[str], allowed: re.Pattern[str]) -> dict[str, str]:
    """Map the ids of a group to valid ones, each unique in the request."""
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
