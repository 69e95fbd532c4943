"""A client's own messages: what each is known by, what it says, and how an edit is patched in.

Knows which differences between two requests mean nothing: cache marks, a string for a list with one
text, key order, blanks at the ends, thinking. Refuses to know conversations.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from foldline.core.item import Item
from foldline.core.log import Event, Instructed, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Call, Text, Tool
from foldline.dialects.anthropic import forms
from foldline.dialects.anthropic.blocks import Block, content_of, opened
from foldline.dialects.anthropic.read import (
    answered,
    from_user,
    instructions,
    message_content,
    message_of,
    tool_of,
)
from foldline.dialects.client_messages import (
    MARK,
    Described,
    check_keys,
    cut_blocks,
    digest_of,
    linked,
    replace_content,
    replace_in_blocks,
    shows_media,
    telling,
    without_query,
)
from foldline.dialects.json_reader import Json, readable, shaped_bytes
from foldline.dialects.json_slices import find_fields, find_values, splice
from foldline.errors import WireError

_THINKING = ("thinking", "redacted_thinking")


def describe(raw: bytes) -> Described:
    """What a message is known by; `WireError` where it is none."""
    readable(raw)
    check_keys(raw)
    came = message_of(raw)
    content = msgspec.json.decode(came.content)
    if not isinstance(content, str | list):
        raise WireError("a message's content is neither a text nor a list")
    # Results come before words, as they are read: a message says the same in either order.
    blocks = sorted(_blocks(content), key=lambda block: forms.kind(block) != "tool_result")
    normal = {"role": came.role, "content": _normal(blocks, came.role)}
    return Described(
        came.role,
        digest_of(normal),
        marked=any(MARK in block for block in blocks),
        thinks=any(forms.kind(block) in _THINKING for block in blocks),
    )


def answer_message(body: Mapping[str, Any]) -> bytes:
    """An answer as the message that a client says again."""
    return msgspec.json.encode({"role": "assistant", "content": body.get("content") or []})


def complete_answer(body: Json, prefill: bytes) -> Json:
    """An answer together with what the client began it with."""
    begun = _blocks(msgspec.json.decode(message_of(prefill).content))
    return {**body, "content": _joined(begun, _blocks(body.get("content") or []))}


def read_message(raw: bytes, described: Described) -> list[Event]:
    """A message as events; its own JSON is kept only where ours would mean something else."""
    content = message_content(message_of(raw))
    if described.role == "system":
        return [Instructed(instructions(content), aside=True, link=described.digest)]
    exact: list[Event] = []
    if described.role == "assistant":
        exact.append(answered(content, exact=True))
    else:
        exact += from_user(content, exact=True)
    plain = [_plain(event) for event in exact]
    items = [item_of(event) for event in plain]
    same = describe(write_message(items)).digest == described.digest
    return linked(plain if same else exact, described.digest)


def read_instructions(fields: Mapping[str, bytes], leading: Sequence[bytes]) -> Instructed:
    """The system prompt and the tools of a request."""
    parts = [*instructions(content_of(fields["system"]))] if _says(fields.get("system")) else []
    for raw in leading:
        parts += instructions(message_content(message_of(raw)))
    tools: list[Tool] = []
    if _says(fields.get("tools")):
        rows = shaped_bytes(fields["tools"], list[msgspec.Raw], "a list of tools", path="$.tools")
        tools = [tool_of(raw, path=f"$.tools[{at}]", exact=False) for at, raw in enumerate(rows)]
    return Instructed(tuple(parts), tuple(tools), replaces=True)


def replace_text(raw: bytes, event: Event, item: Item) -> bytes:
    """A message that shows of one of its events what an item does."""
    text = "\n".join(part.text for part in item.parts if isinstance(part, Text))
    content = find_fields(raw)["content"]
    media = shows_media(item)
    if isinstance(event, ModelSaid):
        return _with_stub(raw, text)
    is_list = raw[content.start : content.start + 1] == b"["
    if isinstance(event, UserSaid) and not is_list:
        return splice(raw, replace_content(raw, content, text, media=media))
    blocks = [(place, find_fields(raw, place)) for place in find_values(raw, content)]
    if isinstance(event, ToolReturned):
        for _, fields in blocks:
            if _value(raw, fields.get("tool_use_id")) == event.call_id and "content" in fields:
                return splice(raw, replace_content(raw, fields["content"], text, media=media))
        return raw
    words = [place for place, fields in blocks if _value(raw, fields.get("type")) != "tool_result"]
    every = [place for place, _ in blocks]
    return splice(raw, replace_in_blocks(raw, words, text, media=media, among=every))


def drop_thinking(raw: bytes) -> bytes:
    """A message without its thinking; as it is, where it says nothing else."""
    return cut_blocks(raw, (b'"thinking"', b'"redacted_thinking"'))


def write_handoff(items: Sequence[Item], mark: bytes) -> bytes:
    """A handoff as messages, with the cache mark that stood in what it replaces."""
    written: list[bytes] = []
    for item in items:
        role = "assistant" if item.role == "model" else "user"
        words = "\n".join(part.text for part in item.parts if isinstance(part, Text))
        content: Any = words
        if mark and item is items[-1]:
            content = [{"type": "text", "text": words, MARK: msgspec.Raw(mark)}]
        written.append(msgspec.json.encode({"role": role, "content": content}))
    return b",".join(written)


def write_message(items: Sequence[Item]) -> bytes:
    """The message that some items of one client's message are, in our own words."""
    blocks: list[Block] = []
    for item in items:
        own = opened(item.native)
        if own is not None:
            blocks += own.blocks
        elif item.role == "result":
            blocks.append(forms.result(item.call_id, item.parts, ok=item.ok))
        else:
            blocks += forms.written(item.parts)
    role = "assistant" if items and items[0].role == "model" else "user"
    content = [msgspec.Raw(block.body) for block in blocks]
    return msgspec.json.encode({"role": role, "content": content})


def words_of(raw: bytes) -> str:
    """The texts of a message."""
    content = _blocks(msgspec.json.decode(message_of(raw).content))
    return "\n".join(str(block["text"]) for block in content if isinstance(block.get("text"), str))


def is_results(raw: bytes) -> bool:
    """Whether a user's message begins with results: the client has not spoken since the calls."""
    content = _blocks(msgspec.json.decode(message_of(raw).content))
    return bool(content) and forms.kind(content[0]) == "tool_result"


def item_of(event: Event) -> Item:
    """A message's event as it came, to be written."""
    match event:
        case ToolReturned():
            return Item(
                0, "result", event.parts, 0, call_id=event.call_id, ok=event.ok, native=event.native
            )
        case ModelSaid():
            return Item(0, "model", event.parts, 0, native=event.native)
        case UserSaid():
            return Item(0, "user", event.parts, 0, native=event.native)
        case _:
            raise WireError("an event that nobody said")


def _plain(event: Event) -> Event:
    if isinstance(event, UserSaid | ModelSaid | ToolReturned):
        return msgspec.structs.replace(event, native=None)
    return event


def _says(raw: bytes | None) -> bool:
    """Whether a field says anything."""
    return raw is not None and raw not in (b"null", b'""') and raw[1:-1].strip() != b""


def _value(raw: bytes, place: Any) -> Any:
    return msgspec.json.decode(raw[slice(*place)]) if place else None


def _blocks(content: Any) -> list[Json]:
    found = forms.blocks_of(content)
    if isinstance(content, list) and len(found) < len(cast("list[Any]", content)):
        raise WireError("a block is no object")
    return found


def _normal(blocks: Sequence[Json], role: str) -> list[Json]:
    return [found for block in blocks if (found := _normal_block(block, role)) is not None]


def _normal_block(block: Json, role: str) -> Json | None:
    match forms.kind(block):
        case "text":
            words = str(block.get("text", "")).strip()
            rest = {} if role == "assistant" else telling(block, "text")
            return {**rest, "type": "text", "text": words} if words else None
        case "thinking" | "redacted_thinking" if role == "assistant":
            return None
        case "tool_use":
            given = {key: block.get(key) for key in ("id", "name")}
            return {**given, "type": "tool_use", "input": block.get("input") or {}}
        case "tool_result":
            rest = telling(block, "content", "is_error")
            said = _normal(_blocks(block.get("content") or ""), "user")
            return {**rest, "content": said, "is_error": block.get("is_error") is True}
        case _:
            found = telling(block)
            source = found.get("source")
            if isinstance(source, dict) and "url" in source:
                url = without_query(cast("Json", source)["url"])
                found["source"] = {**cast("Json", source), "url": url}
            return found


def _joined(begun: list[Json], said: list[Json]) -> list[Json]:
    """What a client began and what was answered, as the client says it again: one text."""
    first, last = begun[-1:] or [{}], said[:1] or [{}]
    if first[0].get("type") == "text" == last[0].get("type"):
        words = f"{first[0].get('text', '')}{last[0].get('text', '')}"
        return [*begun[:-1], {"type": "text", "text": words}, *said[1:]]
    return [*begun, *said]


def _with_stub(raw: bytes, text: str) -> bytes:
    """An answer that somebody took out of sight: a text, and its calls without arguments."""
    calls: list[Json] = [
        {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
        for part in answered(message_content(message_of(raw)), exact=True).parts
        if isinstance(part, Call)
    ]
    content: list[Json] = [{"type": "text", "text": text}, *calls]
    return msgspec.json.encode({"role": "assistant", "content": content})
