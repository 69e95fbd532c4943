"""A whole request as a gateway gets it: bytes in, events and parameters out.

Knows which of its messages are instructions, and keeps every message whose bytes our own encoder
would not write. Refuses to judge: what the client sent goes on as it came, the provider decides.
"""

from dataclasses import dataclass

import msgspec

from foldline.core.log import Event, Instructed, ToolReturned
from foldline.core.parts import Gap, Media, Native, Part, Thought, Tool, calls_of, text_of
from foldline.core.request import Request
from foldline.errors import WireError
from foldline.wire.openai_chat.read import Said, event_of, tool_of, written
from foldline.wire.openai_chat.shapes import Message
from foldline.wire.openai_chat.write import DIALECT, blocks, write_tool
from foldline.wire.reading import shaped_bytes

EMPTY = Gap("[says nothing]")
"""What stands in a view for a message without words, so that it is shown and goes back."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a client asks: the conversation, and every other field of the body as it came."""

    model: str
    events: tuple[Event, ...]
    parameters: dict[str, msgspec.Raw]


def decode(body: bytes) -> Decoded:
    """Read a request; encoded again, unedited, its messages and tools have the same bytes."""
    try:
        body.decode()
    except UnicodeDecodeError as fault:
        raise WireError(f"not UTF-8: {fault}") from fault
    fields = shaped_bytes(body, dict[str, msgspec.Raw], "an OpenAI request")
    if "messages" not in fields:
        raise WireError("not an OpenAI request: it has no messages", path="$.messages")
    given = shaped_bytes(
        fields.pop("messages"), list[msgspec.Raw], "a list of messages", path="$.messages"
    )
    name = fields.pop("model", None)
    model = shaped_bytes(name, str, "a model's name", path="$.model") if name else ""
    tools: tuple[Tool, ...] = ()
    if "tools" in fields and _filled(fields["tools"]):
        raws = shaped_bytes(
            fields.pop("tools"), list[msgspec.Raw], "a list of tools", path="$.tools"
        )
        tools = tuple(_tool(raw, f"$.tools[{place}]") for place, raw in enumerate(raws))
    return Decoded(model, tuple(_events(given, tools)), fields)


def _filled(raw: msgspec.Raw) -> bool:
    """Whether a list of tools says anything: null and [] go back with the parameters."""
    return bytes(raw) != b"null" and bytes(raw)[1:-1].strip() != b""


def _events(given: list[msgspec.Raw], tools: tuple[Tool, ...]) -> list[Event]:
    events: list[Event] = []
    told = Instructed((), tools)
    opened = False  # whether anything but instructions has been said
    for place, raw in enumerate(given):
        path = f"$.messages[{place}]"
        event = event_of(shaped_bytes(raw, Message, "an OpenAI message", path=path), path=path)
        if isinstance(event, Instructed):
            told = Instructed((*told.parts, *event.parts), tools, (*told.native, _native(raw)))
            if opened:
                events.append(told)
            continue
        if not opened:
            events += _first(told)
            opened = True
        events.append(_exact(event, bytes(raw)))
    return events if opened else _first(told)


def _first(told: Instructed) -> list[Event]:
    """The instructions that a request begins with, if there are any."""
    if told == Instructed():
        return []
    alone = blocks(Request("", told.parts, (), ()))
    if alone == [native.body.encode() for native in told.native]:
        return [Instructed(told.parts, told.tools)]
    return [told]


def _exact(event: Said, raw: bytes) -> Said:
    """The event, with its own bytes where we would write others."""
    if not isinstance(event, ToolReturned) and not _shows(event.parts):
        event = msgspec.structs.replace(event, parts=(*event.parts, EMPTY))
    if msgspec.json.encode(written(event)) == raw:
        return event
    return msgspec.structs.replace(event, native=_native(raw))


def _shows(parts: tuple[Part, ...]) -> bool:
    """Whether a view would show these parts."""
    if calls_of(parts) or any(isinstance(part, Media) for part in parts):
        return True
    return bool(text_of(part for part in parts if not isinstance(part, Thought)).strip())


def _tool(raw: msgspec.Raw, path: str) -> Tool:
    neutral = tool_of(raw, path=path)
    if msgspec.json.encode(write_tool(neutral)) == bytes(raw):
        return neutral
    return msgspec.structs.replace(neutral, native=_native(raw))


def _native(raw: bytes | msgspec.Raw) -> Native:
    return Native(DIALECT, bytes(raw).decode())
