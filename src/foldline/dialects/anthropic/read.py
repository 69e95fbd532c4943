"""Messages, tools and answers as events.

Knows what servers and clients of this dialect write. Refuses to know sessions. A user's message may
hold results and words: each result is an event, and the words are one behind them. Cache marks in
messages are taken out: a client moves them with every request.

Where the neutral form would not be written as it came, the blocks' own JSON is kept beside the
event. What came as bytes (`exact`) is compared byte for byte and goes back whatever it is. What
came as a dict is compared by its values; blank words, which no provider takes, are left out, and
what the provider would refuse is not kept: then the neutral form is written. Kinds of blocks and
tools that nobody knows yet are carried all the same.
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
    Gap,
    Media,
    Native,
    Part,
    Text,
    Thought,
    Tool,
    calls_of,
    sound,
    spoken,
)
from foldline.dialects.anthropic import forms
from foldline.dialects.anthropic.blocks import Block, Content, content_of
from foldline.dialects.anthropic.cache_marks import bare
from foldline.dialects.anthropic.validate import faults
from foldline.dialects.anthropic.write import write_tool
from foldline.dialects.json_reader import Json, plain, shaped, shaped_bytes
from foldline.errors import WireError

EMPTY = Gap("[says nothing]")
"""What stands in a view for a message without words, so that it is shown and goes back."""
_MAY_BE_NEW = ("block", "server")
"""The judge's rules that a kind of tomorrow breaks, and a served result of an earlier answer."""
_HI: Json = {"role": "user", "content": "hi"}
_STOPS: dict[str, Stop] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
    "pause_turn": "paused",
    "cut": "cut",
}


class WireMessage(msgspec.Struct):
    """One message, its content as it came."""

    role: str
    content: msgspec.Raw


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
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


def said(text: str) -> UserSaid:
    """A user's plain words."""
    return UserSaid((Text(sound(text)),))


def message(given: Mapping[str, Any], *, saw: int | None = None) -> list[Event]:
    """One message dict as events."""
    came = message_of(msgspec.json.encode(plain(given)))
    content = message_content(came)
    match came.role:
        case "user":
            return from_user(content, exact=False)
        case "assistant":
            return [answered(content, saw=saw, exact=False)]
        case _:
            return [Instructed(instructions(content))]


def message_of(raw: bytes | msgspec.Raw, *, path: str = "$") -> WireMessage:
    """A message whose role is known."""
    came = shaped_bytes(raw, WireMessage, "an Anthropic message", path=path)
    if came.role not in ("user", "assistant", "system"):
        raise WireError(
            f"a message of role {came.role!r} at {path}.role; known are user, assistant and system",
            path=f"{path}.role",
        )
    return came


def message_content(came: WireMessage, *, path: str = "$") -> Content:
    """A message's content, without its marks."""
    return bare(content_of(came.content, path=f"{path}.content"))


def instructions(content: Content) -> tuple[Part, ...]:
    """What the blocks of a system say."""
    return forms.heard([block.fields for block in content.blocks])


def answer(given: Mapping[str, Any], *, saw: int | None, asked: int | None) -> list[Event]:
    """An answer as the events it tells of: what was said, then what it cost."""
    came = shaped(plain(given), _Answer, "an Anthropic answer")
    content = Content(tuple(Block(msgspec.json.encode(block)) for block in came.content))
    said_ = answered(content, saw=saw, exact=False)
    stop = _STOPS.get(came.stop_reason or "", "done")
    events: list[Event] = [msgspec.structs.replace(said_, stop=stop)]
    if came.usage is not None:
        events.append(usage(came.usage, asked=asked))
    return events


def usage(came: _Usage, *, asked: int | None) -> UsageReported:
    """What was counted: here reads and writes of the cache stand beside the rest of the input."""
    beside = (came.cache_read_input_tokens or 0) + (came.cache_creation_input_tokens or 0)
    details = came.output_tokens_details or {}
    thought = details.get("thinking_tokens")
    return UsageReported(
        asked=asked,
        input=None if came.input_tokens is None else came.input_tokens + beside,
        cache_read=came.cache_read_input_tokens,
        cache_write=came.cache_creation_input_tokens,
        output=came.output_tokens,
        reasoning=thought if type(thought) is int else None,
    )


def tool(given: Mapping[str, Any]) -> Tool:
    """One tool dict."""
    return tool_of(msgspec.json.encode(plain(given)), exact=False)


def tool_of(raw: bytes | msgspec.Raw, *, path: str = "$", exact: bool) -> Tool:
    """One tool; one that runs at the provider has no schema and goes back as it came."""
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
    native = _kept(came_as, Content((write_tool(neutral),)), exact=exact)
    ours = came.type in (None, "custom")  # another is the server's, and may be of tomorrow
    if native and ours and not exact and faults([_HI], tools=[came_as.blocks[0].fields]):
        native = None
    return msgspec.structs.replace(neutral, native=native)


def from_user(content: Content, *, exact: bool) -> list[Event]:
    """A user's message: its results, then its words."""
    events: list[Event] = []
    words: list[Block] = []
    for block in content.blocks:
        if block.kind == "tool_result":
            events.append(_result(block, exact=exact))
        else:
            words.append(block)
    if words or not events:
        parts = forms.heard([block.fields for block in words])
        if exact and not any(isinstance(one, Media) for one in parts) and not spoken(parts).strip():
            parts = (*parts, EMPTY)
        came = Content(tuple(words), content.alone)
        ours = forms.content(parts)
        if events:  # behind results, one text too is written in their list
            ours = Content(ours.blocks)
        native = _kept(came, ours, exact=exact)
        if native and not exact:
            native = native if _taken({"role": "user", "content": _fields(came)}) else None
        events.append(UserSaid(parts, native=native))
    return events


def answered(content: Content, *, saw: int | None = None, exact: bool) -> ModelSaid:
    """An assistant's message."""
    came = forms.spoken(content.blocks)
    parts = tuple(one for one in came if not isinstance(one, Text) or one.text.strip())
    if exact and all(isinstance(one, Thought) for one in parts):
        parts = (*parts, EMPTY)
    native = _kept(content, forms.content(forms.worded(parts)), exact=exact)
    if any(isinstance(one, Thought) for one in parts):
        # A thought goes back only as it came, to whom it came from.
        native = _sayable(content, exact=exact).native()
    if native and not exact:
        answers = [{"type": "tool_result", "tool_use_id": call.id} for call in calls_of(parts)]
        answer = {"role": "assistant", "content": _fields(content)}
        native = native if _taken(_HI, answer, {**_HI, "content": answers or "go on"}) else None
    return ModelSaid(parts, saw=saw, native=native)


def _result(block: Block, *, exact: bool) -> ToolReturned:
    came = block.fields if exact else _without_blanks(block.fields)
    block = block if came == block.fields else Block(msgspec.json.encode(came))
    call_id = str(came.get("tool_use_id", ""))
    ok = came.get("is_error") is not True
    parts = forms.heard(came.get("content") or "")
    native = _kept(Content((block,)), Content((forms.result(call_id, parts, ok=ok),)), exact=exact)
    if native and not exact:
        call: Json = {"type": "tool_use", "id": call_id, "name": "f", "input": {}}
        asked = {"role": "assistant", "content": [call]}
        native = native if _taken(_HI, asked, {"role": "user", "content": [came]}) else None
    return ToolReturned(call_id, parts, ok=ok, native=native)


def _without_blanks(result: Json) -> Json:
    """A result without blank words in its content; without a content, where it has no others."""
    content = result.get("content")
    if isinstance(content, str):
        kept: Any = content.strip() and content
    elif isinstance(content, list):
        rows = cast("list[Any]", content)
        blocks = (cast("Json", one) if isinstance(one, dict) else {} for one in rows)
        kept = [one for one, block in zip(rows, blocks, strict=True) if not forms.is_blank(block)]
    else:
        return result
    rest = {key: value for key, value in result.items() if key != "content"}
    return {**result, "content": kept} if kept else rest


def _taken(*messages: Json) -> bool:
    """Whether a provider would take these, as far as today's rules can say."""
    return all(one.startswith(_MAY_BE_NEW) for one in faults(messages))


def _fields(content: Content) -> list[Json]:
    """The blocks of a content that may be sent."""
    return [block.fields for block in content.blocks if not block.blank]


def _kept(came: Content, ours: Content, *, exact: bool) -> Native | None:
    """What came, if what we would write is not the same."""
    came = _sayable(came, exact=exact)
    if (came.body, came.alone) == (ours.body, ours.alone):
        return None
    if not exact and came.alone == ours.alone:
        values, own = msgspec.json.decode(came.body), msgspec.json.decode(ours.body)
        return None if values == own else came.native()
    return came.native()


def _sayable(content: Content, *, exact: bool) -> Content:
    """A content that may be sent: all of it, or without blank words."""
    if exact or not any(block.blank for block in content.blocks):
        return content
    return Content(tuple(block for block in content.blocks if not block.blank))
