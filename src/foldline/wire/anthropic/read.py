"""Messages, tools and answers as events.

Knows what servers and clients of this dialect write. Refuses to know sessions. A user's message may
hold results and words: each result is an event, and the words are one behind them. Where the
neutral form would not be written as it came, the blocks' own JSON is kept beside the event.
"""

from collections.abc import Mapping, Sequence
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
from foldline.core.parts import Native, Part, Text, Thought, Tool, sound
from foldline.errors import WireError
from foldline.wire.anthropic import forms
from foldline.wire.anthropic.write import DIALECT, write_tool
from foldline.wire.reading import Json, plain, shaped

_STOPS: dict[str, Stop] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
    "cut": "cut",
}


class _Message(msgspec.Struct):
    role: str
    content: str | list[Json]


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
    name: str
    description: str | None = None
    input_schema: Json | None = None


def said(text: str) -> UserSaid:
    """A user's plain words."""
    return UserSaid((Text(sound(text)),))


def message(given: Mapping[str, Any], *, saw: int | None = None, path: str = "$") -> list[Event]:
    """One message dict as events."""
    body = plain(given)
    came = shaped(body, _Message, "an Anthropic message", path=path)
    match came.role:
        case "user":
            return _from_user(came.content)
        case "assistant":
            return [_answered(came.content, saw=saw)]
        case "system":
            return [Instructed(forms.heard(came.content))]
        case role:
            raise WireError(
                f"a message of role {role!r} at {path}.role; known are user, assistant and system",
                path=f"{path}.role",
            )


def system(given: str | Sequence[Mapping[str, Any]]) -> tuple[Part, ...]:
    """The system's words, as the top of a request has them."""
    if isinstance(given, str):
        return (Text(sound(given)),) if given else ()
    return forms.heard([plain(block) for block in given])


def answer(given: Mapping[str, Any], *, saw: int | None, asked: int | None) -> list[Event]:
    """An answer as the events it tells of: what was said, then what it cost."""
    came = shaped(plain(given), _Answer, "an Anthropic answer")
    said_ = _answered(came.content, saw=saw)
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


def tool(given: Mapping[str, Any], *, path: str = "$") -> Tool:
    """One tool dict; one that runs at the provider has no schema and goes back as it came."""
    body = plain(given)
    came = shaped(body, _Tool, "an Anthropic tool", path=path)
    schema = msgspec.json.encode(came.input_schema or {}).decode()
    neutral = Tool(came.name, came.description or "", schema)
    if body == write_tool(neutral):
        return neutral
    return msgspec.structs.replace(neutral, native=_native([body]))


def _from_user(content: str | list[Json]) -> list[Event]:
    events: list[Event] = []
    words: list[Json] = []
    for block in forms.blocks_of(content):
        if forms.kind(block) == "tool_result":
            events.append(_result(block))
        else:
            words.append(block)
    if words or not events:
        said_ = UserSaid(forms.heard(words))
        native = None if _same(words, said_.parts, content) else _native(words)
        events.append(msgspec.structs.replace(said_, native=native))
    return events


def _result(block: Json) -> ToolReturned:
    call_id = str(block.get("tool_use_id", ""))
    ok = block.get("is_error") is not True
    found = forms.heard(block.get("content") or "")
    event = ToolReturned(call_id, found, ok=ok)
    if block == forms.result(call_id, found, ok=ok):
        return event
    return msgspec.structs.replace(event, native=_native([block]))


def _answered(content: str | list[Json], *, saw: int | None) -> ModelSaid:
    came = forms.blocks_of(content)
    event = ModelSaid(forms.parts(came), saw=saw)
    # A thought goes back only as it came, to whom it came from.
    thoughts = any(isinstance(one, Thought) for one in event.parts)
    if not thoughts and _same(came, event.parts, content):
        return event
    return msgspec.structs.replace(event, native=_native(came))


def _same(came: list[Json], parts: tuple[Part, ...], content: Any) -> bool:
    """Whether the neutral form is written as it came: one text alone is written as a string."""
    again = forms.written(parts)
    alone = len(again) == 1 and again[0]["type"] == "text"
    return again == came and alone == isinstance(content, str)


def _native(came: list[Json]) -> Native:
    return Native(DIALECT, msgspec.json.encode(cast("Any", came)).decode())
