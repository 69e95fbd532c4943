"""A whole request as a gateway gets it: bytes in, events and parameters out.

Knows where a body keeps what, and which of its messages are instructions. Refuses to judge: what
the client sent goes on as it came (what is exact: see `write`), the provider decides. Refuses to
know sessions: whose conversation it is, and what of it is known already.
"""

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from foldline.core.log import Event, Instructed
from foldline.core.parts import Native, Tool
from foldline.errors import WireError
from foldline.wire.anthropic import forms
from foldline.wire.anthropic.block import Content, content_of, listed
from foldline.wire.anthropic.read import (
    answered,
    from_user,
    instructions,
    kept_whole,
    message_content,
    message_of,
    tool_of,
)
from foldline.wire.anthropic.write import framed
from foldline.wire.reading import Decoded, readable, shaped_bytes
from foldline.wire.tools import repeated

RECENT = 8
"""The system messages of mid-talk that are said again behind a fold, with the system itself: older
ones stay where they stood and are folded there. All of them, each time, would be quadratic."""


def decode(body: bytes) -> Decoded:
    """Read a body; an error names the place that is wrong."""
    readable(body)
    fields = shaped_bytes(body, dict[str, msgspec.Raw], "an Anthropic request")
    if "messages" not in fields:
        raise WireError("not an Anthropic request: it has no messages", path="$.messages")
    name = fields.pop("model", None)
    model = shaped_bytes(name, str, "a model's name", path="$.model") if name else ""
    rows = _rows(fields.pop("messages"), "messages")
    tools: tuple[Tool, ...] = ()
    if _filled(fields.get("tools")):
        given = enumerate(_rows(fields.pop("tools"), "tools"))
        tools = tuple(tool_of(raw, path=f"$.tools[{place}]", exact=True) for place, raw in given)
        # What a client sends twice goes on twice; of our own tools one of a name is written.
        twice = repeated(tools)
        tools = tuple(kept_whole(tool) if tool.name in twice else tool for tool in tools)
    system: list[Content] = []
    if _filled(fields.get("system")):
        system.append(content_of(fields.pop("system"), path="$.system"))
    events = [*_first(system, tools), *_events(rows, system, tools)]
    return Decoded(model, tuple(events), fields)


def sent(fields: Mapping[str, msgspec.Raw], messages: Sequence[msgspec.Raw]) -> list[bytes]:
    """The blocks of a client's system and messages as `blocks` would give them."""
    system = fields.get("system")
    turns = [("system", content_of(system))] if system is not None and _filled(system) else []
    for raw in messages:
        came = message_of(raw)
        turns.append((came.role, content_of(came.content)))
    return [framed(role, block) for role, content in turns for block in content.blocks]


def own(message: bytes) -> Native:
    """A message to be said again in its own bytes."""
    return message_content(message_of(message)).native()


def _filled(raw: msgspec.Raw | None) -> bool:
    """Whether a field says anything: null, "" and [] go back with the parameters."""
    text = b"null" if raw is None else bytes(raw)
    return text not in (b"null", b'""') and not (text[:1] == b"[" and text[1:-1].strip() == b"")


def _rows(raw: msgspec.Raw, name: str) -> list[msgspec.Raw]:
    return shaped_bytes(raw, list[msgspec.Raw], f"a list of {name}", path=f"$.{name}")


def _events(
    rows: Sequence[msgspec.Raw], system: list[Content], tools: tuple[Tool, ...]
) -> list[Event]:
    events: list[Event] = []
    recent = deque[Content](maxlen=RECENT)
    speaking: list[Content] = []  # messages of the assistant, one behind the other
    for place, raw in enumerate(rows):
        path = f"$.messages[{place}]"
        came = message_of(raw, path=path)
        content = message_content(came, path=path)
        if came.role == "assistant":
            speaking.append(content)
            continue
        events += _answer(speaking)
        speaking = []
        if came.role == "user":
            events += from_user(content, exact=True)
            continue
        recent.append(content)
        events.append(_together([*system, *recent], tools))
    return events + _answer(speaking)


def _answer(speaking: list[Content]) -> list[Event]:
    """What the assistant said, as one: its calls are answered behind the last of its messages."""
    if not speaking:
        return []
    if len(speaking) == 1:
        return [answered(speaking[0], exact=True)]
    blocks = tuple(block for content in speaking for block in content.blocks)
    return [answered(Content(blocks), exact=True)]


def _first(system: list[Content], tools: tuple[Tool, ...]) -> list[Event]:
    """The instructions that a request begins with, if there are any."""
    told = _together(system, tools)
    if told == Instructed():
        return []
    if [content.body for content in system] == [listed(forms.written(forms.worded(told.parts)))]:
        return [Instructed(told.parts, told.tools)]
    return [told]


def _together(told: list[Content], tools: tuple[Tool, ...]) -> Instructed:
    parts = tuple(part for content in told for part in instructions(content))
    return Instructed(parts, tools, tuple(content.native() for content in told))
