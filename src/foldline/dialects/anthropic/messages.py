"""Parses messages, tools and answers into events.

A user's message may hold results and words: each result becomes an event, and the words become one
after them. Cache marks in messages are removed, because a client moves them with every request.

Where the neutral form would not be written as it came, the JSON of the blocks is kept beside the
event. Bytes (`exact`) are compared byte for byte and go back whatever they are. Dicts are compared
by value; blank words, which no provider accepts, are left out, and JSON that the provider would
refuse is not kept. Unknown kinds of blocks and tools are kept.
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from foldline.core.log import (
    Event,
    Instructed,
    ModelSaid,
    Stop,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import (
    Media,
    Native,
    Part,
    Text,
    Thought,
    Tool,
    calls_of,
    spoken_text_of,
)
from foldline.dialects.anthropic.blocks import (
    SERVED_CALLS,
    Block,
    Content,
    content_of,
    encode_content,
    encode_result,
    is_blank,
    parse_input_content,
    parse_model_blocks,
    replace_media_parts,
)
from foldline.dialects.anthropic.validate import list_faults
from foldline.dialects.anthropic.write import strip_marks, write_tool
from foldline.dialects.client_messages import EMPTY
from foldline.dialects.json_slices import (
    Json,
    convert_to_shape,
    dict_of,
    encode_json,
    list_of,
    shaped_bytes,
)
from foldline.errors import WireError

_MAY_BE_NEW = ("block", "server")
"""Rules of `list_faults` that a new kind breaks, or a server tool's result of an earlier answer."""
_HI: Json = {"role": "user", "content": "hi"}
_STOPS: dict[str, Stop] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
    "pause_turn": "paused",
    "cut": "cut",
}


class WireMessage(msgspec.Struct):
    """A message with its content as it came; a client's may have none."""

    role: str
    content: msgspec.Raw = msgspec.Raw(b"[]")


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: Json | None = None
    output_tokens: int | None = None
    output_tokens_details: Json | None = None


class _Answer(msgspec.Struct):
    content: list[Json]
    stop_reason: str | None = None
    usage: _Usage | None = None


class _Tool(msgspec.Struct):
    name: str | None = None
    type: str | None = None
    description: str | None = None
    input_schema: msgspec.Raw = msgspec.Raw(b"null")
    defer_loading: object = None


def parse_message(given: Mapping[str, Any], *, saw: int | None = None) -> list[Event]:
    """Parse a message dict into events."""
    came = decode_message(encode_json(given))
    if given.get("content") is None:
        raise WireError("a message without content at $", path="$")
    content = message_content(came)
    match came.role:
        case "user":
            return from_user(content, exact=False)
        case "assistant":
            return [build_model_event(content, saw=saw, exact=False)]
        case "system":
            return [Instructed(parse_instructions(content))]
        case role:
            raise WireError(
                f"a message of role {role!r} at $.role; known are user, assistant and system",
                path="$.role",
            )


def decode_message(raw: bytes) -> WireMessage:
    """Decode a message; a content of null is an empty one."""
    came = shaped_bytes(raw, WireMessage, "an Anthropic message")
    return WireMessage(came.role) if bytes(came.content) == b"null" else came


def message_content(came: WireMessage, *, path: str = "$") -> Content:
    """Return a message's content without cache marks."""
    return strip_marks(content_of(came.content, path=f"{path}.content"))


def parse_instructions(content: Content) -> tuple[Part, ...]:
    """Return the parts of a system prompt."""
    return parse_input_content([block.fields for block in content.blocks])


def parse_answer(given: Mapping[str, Any], *, saw: int | None, asked: int | None) -> list[Event]:
    """Parse an answer into its message, then its usage."""
    came = shaped_bytes(encode_json(given), _Answer, "an Anthropic answer")
    content = Content(tuple(Block(msgspec.json.encode(block)) for block in came.content))
    said = build_model_event(content, saw=saw, exact=False)
    stop = _STOPS.get(came.stop_reason or "", said.stop)
    events: list[Event] = [msgspec.structs.replace(said, stop=stop)]
    if came.usage is not None:
        events.append(make_usage_event(came.usage, asked=asked))
    return events


def parse_usage(body: Json) -> UsageReported | None:
    """Return the usage that an answer reports, or None."""
    given = body.get("usage")
    if not isinstance(given, dict):
        return None
    came = convert_to_shape(cast("Json", given), _Usage, "an Anthropic usage")
    report = make_usage_event(came, asked=None)
    return None if report == UsageReported() else report


def make_usage_event(came: _Usage, *, asked: int | None) -> UsageReported:
    """Make a usage event; this dialect's input count excludes the cache, ours includes it."""
    beside = (came.cache_read_input_tokens or 0) + (came.cache_creation_input_tokens or 0)
    details = came.output_tokens_details or {}
    thought = details.get("thinking_tokens")
    long = (came.cache_creation or {}).get("ephemeral_1h_input_tokens")
    return UsageReported(
        asked=asked,
        input=None if came.input_tokens is None else came.input_tokens + beside,
        cache_read=came.cache_read_input_tokens,
        cache_write=came.cache_creation_input_tokens,
        cache_write_long=long if type(long) is int and long else None,
        output=came.output_tokens,
        reasoning=thought if type(thought) is int else None,
    )


def parse_tool(given: Mapping[str, Any]) -> Tool:
    """Parse a tool dict."""
    return tool_of(encode_json(given), exact=False)


def tool_of(raw: bytes | msgspec.Raw, *, path: str = "$", exact: bool) -> Tool:
    """Decode a tool; one that the provider runs has no schema and goes back as it came."""
    came = shaped_bytes(raw, _Tool, "an Anthropic tool", path=path)
    name = came.name or (came.type if came.type != "custom" else "")
    if not name:
        raise WireError(f"a tool without a name at {path}", path=path)
    schema = bytes(came.input_schema).decode()
    if schema != "null" and not schema.startswith("{"):
        where = f"{path}.input_schema"
        raise WireError(f"a schema that is no object at {where}", path=where)
    neutral = Tool(name, came.description or "", "{}" if schema == "null" else schema)
    came_as = Content((Block(bytes(raw)),))
    native = _choose_native(came_as, Content((write_tool(neutral),)), exact=exact)
    ours = came.type in (None, "custom")  # any other is the provider's, and may be new
    if native and ours and not exact and list_faults([_HI], tools=[came_as.blocks[0].fields]):
        native = None
    return msgspec.structs.replace(neutral, native=native, deferred=came.defer_loading is True)


def from_user(content: Content, *, exact: bool) -> list[Event]:
    """Build the events of a user's message: its results, then its words."""
    events: list[Event] = []
    words: list[Block] = []
    for block in content.blocks:
        if block.kind == "tool_result":
            events.append(_build_result_event(block, exact=exact))
        else:
            words.append(block)
    if words or not events:
        parts = parse_input_content([block.fields for block in words])
        if (
            exact
            and not any(isinstance(one, Media) for one in parts)
            and not spoken_text_of(parts).strip()
        ):
            parts = (*parts, EMPTY)
        came = Content(tuple(words), content.alone)
        ours = encode_content(parts)
        if events:  # after results, a single text is written in their list too
            ours = Content(ours.blocks)
        native = _choose_native(came, ours, exact=exact)
        if native and not exact:
            message = {"role": "user", "content": _list_block_fields(came)}
            native = native if _is_accepted(message) else None
        events.append(UserSaid(parts, native=native))
    return events


def build_model_event(content: Content, *, saw: int | None = None, exact: bool) -> ModelSaid:
    """Build the event of an assistant's message."""
    came = parse_model_blocks(content.blocks)
    parts = tuple(one for one in came if not isinstance(one, Text) or one.text.strip())
    if exact and all(isinstance(one, Thought) for one in parts):
        parts = (*parts, EMPTY)
    native = _choose_native(content, encode_content(replace_media_parts(parts)), exact=exact)
    if any(isinstance(one, Thought) for one in parts):
        # A thought goes back only as it came, to the provider it came from.
        native = _strip_blank_blocks(content, exact=exact).make_native()
    if native and not exact:
        answers = [{"type": "tool_result", "tool_use_id": call.id} for call in calls_of(parts)]
        answer = {"role": "assistant", "content": _list_block_fields(content)}
        if not _is_accepted(_HI, answer, {**_HI, "content": answers or "go on"}):
            native = None
    return ModelSaid(
        parts, saw=saw, native=native, stop="paused" if _is_paused(content) else "done"
    )


def _is_paused(content: Content) -> bool:
    """Whether the provider runs a call whose result begins the next message."""
    asked = {str(one.fields.get("id")) for one in content.blocks if one.kind in SERVED_CALLS}
    return not asked <= {str(one.fields.get("tool_use_id")) for one in content.blocks}


def _build_result_event(block: Block, *, exact: bool) -> ToolReturned:
    came = block.fields if exact else _without_blanks(block.fields)
    block = block if came == block.fields else Block(msgspec.json.encode(came))
    call_id = str(came.get("tool_use_id", ""))
    ok = came.get("is_error") is not True
    parts = parse_input_content(came.get("content") or "")
    native = _choose_native(
        Content((block,)), Content((encode_result(call_id, parts, ok=ok),)), exact=exact
    )
    if native and not exact:
        call: Json = {"type": "tool_use", "id": call_id, "name": "f", "input": {}}
        asked = {"role": "assistant", "content": [call]}
        if not _is_accepted(_HI, asked, {"role": "user", "content": [came]}):
            native = None
    return ToolReturned(call_id, parts, ok=ok, native=native)


def _without_blanks(result: Json) -> Json:
    """Remove blank texts from a result's content, and the content if nothing is left."""
    content = result.get("content")
    if isinstance(content, str):
        kept: Any = content.strip() and content
    elif isinstance(content, list):
        kept = [row for row in list_of(content) if not is_blank(dict_of(row))]
    else:
        return result
    rest = {key: value for key, value in result.items() if key != "content"}
    return {**result, "content": kept} if kept else rest


def _is_accepted(*messages: Json) -> bool:
    """Whether a provider would accept these messages, by today's rules."""
    return all(fault.startswith(_MAY_BE_NEW) for fault in list_faults(messages))


def _list_block_fields(content: Content) -> list[Json]:
    return [block.fields for block in content.blocks if not block.blank]


def _choose_native(came: Content, ours: Content, *, exact: bool) -> Native | None:
    """Return the content as it came, unless we would write the same."""
    came = _strip_blank_blocks(came, exact=exact)
    if (came.body, came.alone) == (ours.body, ours.alone):
        return None
    if not exact and came.alone == ours.alone:
        values, own = msgspec.json.decode(came.body), msgspec.json.decode(ours.body)
        return None if values == own else came.make_native()
    return came.make_native()


def _strip_blank_blocks(content: Content, *, exact: bool) -> Content:
    if exact or not any(block.blank for block in content.blocks):
        return content
    return Content(tuple(block for block in content.blocks if not block.blank))
