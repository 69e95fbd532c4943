"""A whole request as a gateway gets it: bytes in, events and parameters out.

Knows which of its messages are instructions, and keeps every message whose bytes our own encoder
would not write. Refuses to judge: what the client sent goes on as it came, the provider decides.
"""

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from foldline.core.log import Event, Instructed, ToolReturned
from foldline.core.parts import Gap, Media, Native, Part, Thought, Tool, calls_of, text_of
from foldline.core.request import Request
from foldline.errors import WireError
from foldline.wire.openai_chat.check import MOST_CALLS
from foldline.wire.openai_chat.read import Said, event_of, tool_of, written
from foldline.wire.openai_chat.shapes import Message
from foldline.wire.openai_chat.write import DIALECT, blocks, write_tool
from foldline.wire.reading import Decoded, readable, shaped_bytes
from foldline.wire.tools import repeated

RECENT = 8
"""The system messages of mid-talk that are said again behind a fold, with the leading ones: older
ones stay where they stood and are folded there. All of them, each time, would be quadratic."""
REPEATED = 1_000_000
OURS = b'{"role":"'
"""How every message begins that our own encoder writes."""
EMPTY = Gap("[says nothing]")
"""What stands in a view for a message without words, so that it is shown and goes back."""


def decode(body: bytes) -> Decoded:
    """Read a request; encoded again, unedited, its messages and tools have the same bytes."""
    readable(body)
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
        tools = _tools(raws)
    return Decoded(model, tuple(_events(given, tools)), fields)


def sent(_: Mapping[str, msgspec.Raw], messages: Sequence[msgspec.Raw]) -> list[bytes]:
    """Messages of a client as `blocks` would give them."""
    return [bytes(raw) for raw in messages]


def own(message: bytes) -> Native:
    """A message to be said again in its own bytes."""
    return Native(DIALECT, message.decode())


def _filled(raw: msgspec.Raw) -> bool:
    """Whether a list of tools says anything: null and [] go back with the parameters."""
    return bytes(raw) != b"null" and bytes(raw)[1:-1].strip() != b""


def _events(given: list[msgspec.Raw], tools: tuple[Tool, ...]) -> list[Event]:
    events: list[Event] = []
    leading: list[Instructed] = []
    recent = deque[Instructed](maxlen=RECENT)
    repeated = 0
    opened = False  # whether anything but instructions has been said
    for place, raw in enumerate(given):
        path = f"$.messages[{place}]"
        event = event_of(shaped_bytes(raw, Message, "an OpenAI message", path=path), path=path)
        if not isinstance(event, Instructed):
            if not opened:
                events += _first(_together(leading, tools))
                opened = True
            events.append(_exact(event, bytes(raw)))
            continue
        told = msgspec.structs.replace(event, native=(_native(raw),))
        if not opened:
            leading.append(told)
            continue
        recent.append(told)
        repeated += len(leading)
        if repeated > REPEATED:
            raise WireError(f"too many system messages to keep at {path}", path=path)
        events.append(_together([*leading, *recent], tools))
    return events if opened else _first(_together(leading, tools))


def _together(told: list[Instructed], tools: tuple[Tool, ...]) -> Instructed:
    parts = tuple(part for one in told for part in one.parts)
    return Instructed(parts, tools, tuple(native for one in told for native in one.native))


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
    whole = len(calls_of(event.parts)) <= MOST_CALLS  # else it would be written in pieces
    if whole and raw.startswith(OURS) and msgspec.json.encode(written(event)) == raw:
        return event
    return msgspec.structs.replace(event, native=_native(raw))


def _shows(parts: tuple[Part, ...]) -> bool:
    """Whether a view would show these parts."""
    if calls_of(parts) or any(isinstance(part, Media) for part in parts):
        return True
    return bool(text_of(part for part in parts if not isinstance(part, Thought)).strip())


def _tools(raws: list[msgspec.Raw]) -> tuple[Tool, ...]:
    """Tools, with their own bytes where we would write others, or only one of a name."""
    tools = [tool_of(raw, path=f"$.tools[{place}]") for place, raw in enumerate(raws)]
    twice = repeated(tools)
    return tuple(
        tool
        if tool.name not in twice and msgspec.json.encode(write_tool(tool)) == bytes(raw)
        else msgspec.structs.replace(tool, native=_native(raw))
        for tool, raw in zip(tools, raws, strict=True)
    )


def _native(raw: bytes | msgspec.Raw) -> Native:
    return Native(DIALECT, bytes(raw).decode())
