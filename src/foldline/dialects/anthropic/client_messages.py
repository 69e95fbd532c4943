"""Identifies, reads and patches the messages of Anthropic clients.

Two messages have one digest if they differ only in cache marks, a string for a list with one text,
key order, blanks at the ends, or thinking.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from foldline.core.item import Item
from foldline.core.log import Event, Instructed, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Call, Part, Text, Tool
from foldline.dialects.anthropic import content_blocks
from foldline.dialects.anthropic.content_blocks import Block, content_of, decode_native
from foldline.dialects.anthropic.read import (
    build_model_event,
    from_user,
    message_content,
    message_of,
    parse_instructions,
    tool_of,
)
from foldline.dialects.anthropic.write import write_tool
from foldline.dialects.client_messages import (
    MARK,
    Described,
    append_value,
    check_keys,
    cut_blocks,
    digest_of,
    item_of,
    link_events,
    replace_content,
    replace_in_blocks,
    shows_media,
    strip_empty_fields,
    without_query,
)
from foldline.dialects.json_slices import (
    Json,
    Splice,
    apply_splices,
    check_readable,
    find_fields,
    find_values,
    shaped_bytes,
)
from foldline.errors import WireError

_THINKING = ("thinking", "redacted_thinking")


def describe_message(raw: bytes) -> Described:
    """Return a message's role and digest; raises `WireError` if it is not a message."""
    check_readable(raw)
    check_keys(raw)
    came = message_of(raw)
    content = msgspec.json.decode(came.content)
    if not isinstance(content, str | list):
        raise WireError("a message's content is neither a text nor a list")
    # Results first, as they are read: a message says the same in either order.
    blocks = sorted(
        _parse_blocks(content),
        key=lambda block: content_blocks.kind_of_block(block) != "tool_result",
    )
    normal = {"role": came.role, "content": _normalise_blocks(blocks, came.role)}
    return Described(
        came.role,
        digest_of(normal),
        marked=any(MARK in block for block in blocks),
        thinks=any(content_blocks.kind_of_block(block) in _THINKING for block in blocks),
    )


def answer_messages(body: Mapping[str, Any]) -> list[bytes]:
    """Encode an answer as the message that a client sends back."""
    return [msgspec.json.encode({"role": "assistant", "content": body.get("content") or []})]


def complete_answer(body: Json, prefill: bytes) -> Json:
    """Join an answer with the text the client began it with."""
    begun = _parse_blocks(msgspec.json.decode(message_of(prefill).content))
    return {**body, "content": _join_prefill(begun, _parse_blocks(body.get("content") or []))}


def read_message(raw: bytes, described: Described) -> list[Event]:
    """Read a message as events; keep its JSON only where ours would mean something else."""
    content = message_content(message_of(raw))
    if described.role == "system":
        return [Instructed(parse_instructions(content), aside=True, link=described.digest)]
    exact: list[Event] = []
    if described.role == "assistant":
        exact.append(build_model_event(content, exact=True))
    else:
        exact += from_user(content, exact=True)
    plain = [_strip_native(event) for event in exact]
    items = [item_of(event) for event in plain]
    same = describe_message(write_message(items)).digest == described.digest
    return link_events(plain if same else exact, described.digest)


def read_instructions(fields: Mapping[str, bytes], leading: Sequence[bytes]) -> Instructed:
    """Read the system prompt and the tools of a request."""
    parts: list[Part] = []
    if _has_value(fields.get("system")):
        parts += parse_instructions(content_of(fields["system"]))
    for raw in leading:
        parts += parse_instructions(message_content(message_of(raw)))
    tools: list[Tool] = []
    if _has_value(fields.get("tools")):
        rows = shaped_bytes(fields["tools"], list[msgspec.Raw], "a list of tools", path="$.tools")
        tools = [tool_of(raw, path=f"$.tools[{at}]", exact=False) for at, raw in enumerate(rows)]
    return Instructed(tuple(parts), tuple(tools), replaces=True)


def replace_text(raw: bytes, event: Event, item: Item) -> bytes:
    """Show an item's text in place of one of the message's events."""
    text = "\n".join(part.text for part in item.parts if isinstance(part, Text))
    content = find_fields(raw)["content"]
    media = shows_media(item)
    if isinstance(event, ModelSaid):
        return _with_stub(raw, text)
    is_list = raw[content.start : content.start + 1] == b"["
    if isinstance(event, UserSaid) and not is_list:
        return apply_splices(raw, replace_content(raw, content, text, media=media))
    blocks = [(place, find_fields(raw, place)) for place in find_values(raw, content)]
    if isinstance(event, ToolReturned):
        for _, fields in blocks:
            answers = _decode_slice(raw, fields.get("tool_use_id"))
            if answers == event.call_id and "content" in fields:
                found = replace_content(raw, fields["content"], text, media=media)
                return apply_splices(raw, found)
        return raw
    words = [
        place for place, fields in blocks if _decode_slice(raw, fields.get("type")) != "tool_result"
    ]
    every = [place for place, _ in blocks]
    return apply_splices(raw, replace_in_blocks(raw, words, text, media=media, among=every))


def drop_thinking(raw: bytes) -> bytes:
    """Remove a message's thinking, unless nothing else would be left."""
    return cut_blocks(raw, (b'"thinking"', b'"redacted_thinking"'))


def write_handoff(items: Sequence[Item], mark: bytes) -> bytes:
    """Write a handoff as messages, with the cache mark of what it replaces."""
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
    """Write items of one client message as a message in our own form."""
    blocks: list[Block] = []
    for item in items:
        own = decode_native(item.native)
        if own is not None:
            blocks += own.blocks
        elif item.role == "result":
            blocks.append(content_blocks.encode_result(item.call_id, item.parts, ok=item.ok))
        else:
            blocks += content_blocks.encode_parts(item.parts)
    role = "assistant" if items and items[0].role == "model" else "user"
    content = [msgspec.Raw(block.body) for block in blocks]
    return msgspec.json.encode({"role": role, "content": content})


def words_of(raw: bytes) -> str:
    """Return the texts of a message."""
    content = _parse_blocks(msgspec.json.decode(message_of(raw).content))
    return "\n".join(str(block["text"]) for block in content if isinstance(block.get("text"), str))


def is_results(raw: bytes) -> bool:
    """Whether a message begins with results: the user has not spoken since the calls."""
    content = _parse_blocks(msgspec.json.decode(message_of(raw).content))
    return bool(content) and content_blocks.kind_of_block(content[0]) == "tool_result"


def add_words(raw: bytes, words: str) -> bytes:
    """Add words at the end of a message, behind the last mark."""
    content = find_fields(raw)["content"]
    given = raw[slice(*content)]
    if given.startswith(b'"'):
        given = b'[{"type":"text","text":' + given + b"}]"
    put = append_value(given, msgspec.json.encode({"type": "text", "text": words})) or given
    return apply_splices(raw, [Splice(*content, put)])


def add_tool(tools: bytes, tool: Tool) -> bytes | None:
    """Add a tool to those of a request."""
    return append_value(tools, write_tool(tool).body)


def _strip_native(event: Event) -> Event:
    if isinstance(event, UserSaid | ModelSaid | ToolReturned):
        return msgspec.structs.replace(event, native=None)
    return event


def _has_value(raw: bytes | None) -> bool:
    return raw is not None and raw not in (b"null", b'""') and raw[1:-1].strip() != b""


def _decode_slice(raw: bytes, place: Any) -> Any:
    return msgspec.json.decode(raw[slice(*place)]) if place else None


def _parse_blocks(content: Any) -> list[Json]:
    found = content_blocks.blocks_of(content)
    if isinstance(content, list) and len(found) < len(cast("list[Any]", content)):
        raise WireError("a block is no object")
    return found


def _normalise_blocks(blocks: Sequence[Json], role: str) -> list[Json]:
    return [found for block in blocks if (found := _normal_block(block, role)) is not None]


def _normal_block(block: Json, role: str) -> Json | None:
    match content_blocks.kind_of_block(block):
        case "text":
            words = str(block.get("text", "")).strip()
            rest = {} if role == "assistant" else strip_empty_fields(block, "text")
            return {**rest, "type": "text", "text": words} if words else None
        case "thinking" | "redacted_thinking" if role == "assistant":
            return None
        case "tool_use":
            given = {key: block.get(key) for key in ("id", "name")}
            return {**given, "type": "tool_use", "input": block.get("input") or {}}
        case "tool_result":
            rest = strip_empty_fields(block, "content", "is_error")
            said = _normalise_blocks(_parse_blocks(block.get("content") or ""), "user")
            return {**rest, "content": said, "is_error": block.get("is_error") is True}
        case _:
            found = strip_empty_fields(block)
            source = found.get("source")
            if isinstance(source, dict) and "url" in source:
                url = without_query(cast("Json", source)["url"])
                found["source"] = {**cast("Json", source), "url": url}
            return found


def _join_prefill(begun: list[Json], said: list[Json]) -> list[Json]:
    """Join the client's beginning and the answer into one text, as the client sends it back."""
    first, last = begun[-1:] or [{}], said[:1] or [{}]
    if first[0].get("type") == "text" == last[0].get("type"):
        words = f"{first[0].get('text', '')}{last[0].get('text', '')}"
        return [*begun[:-1], {"type": "text", "text": words}, *said[1:]]
    return [*begun, *said]


def _with_stub(raw: bytes, text: str) -> bytes:
    """Replace an answer with a text and its calls without arguments."""
    calls: list[Json] = [
        {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
        for part in build_model_event(message_content(message_of(raw)), exact=True).parts
        if isinstance(part, Call)
    ]
    content: list[Json] = [{"type": "text", "text": text}, *calls]
    return msgspec.json.encode({"role": "assistant", "content": content})
