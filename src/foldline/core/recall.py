"""What a handle stands for.

A handle is a place in the session's own log, `log:12`, or a span of it, `log:12-40`. Knows how to
read one and how to show originals whole. Refuses to know where events are kept.
"""

import re
from collections.abc import Iterable

from foldline.core.log import (
    Event,
    Folded,
    Instructed,
    Logged,
    ModelSaid,
    ToolReturned,
    UserSaid,
    kind,
)
from foldline.core.parts import Call, Gap, Media, Part, Text, Thought
from foldline.core.spine import Range
from foldline.errors import BadHandle

_HANDLE = re.compile(r"\s*\[?\s*(?:log:)?(\d{1,18})(?:\s*-\s*(?:log:)?(\d{1,18}))?\s*\]?\s*")


def handle(lo: int, hi: int | None = None) -> str:
    """The handle of an event, or of a span."""
    return f"log:{lo}" if hi is None or hi == lo else f"log:{lo}-{hi}"


def parse(text: str) -> Range:
    """The places that a handle names, as a model may write it."""
    found = _HANDLE.fullmatch(text)
    if found is None:
        raise BadHandle(
            f"{text!r} is not a handle; write log:12 for an event or log:12-40 for a span"
        )
    lo, hi = int(found[1]), int(found[2] or found[1])
    if hi < lo:
        raise BadHandle(f"{text!r} ends before it begins; write log:{hi}-{lo}")
    return Range(lo, hi)


def show(events: Iterable[Logged]) -> str:
    """Originals, whole: one alone as it was, several each under a line with its handle."""
    found = list(events)
    said = [(seq, event, words) for seq, event in found if (words := whole(event)) is not None]
    if len(said) == 1:
        return said[0][2]
    if not said:
        return "\n".join(f"[{handle(seq)} {kind(event)}: no words]" for seq, event in found)
    return "\n".join(f"[{handle(seq)} {kind(event)}]\n{words}" for seq, event, words in said)


def whole(event: Event) -> str | None:
    """What an event said, unshortened; None for events that say nothing to a model."""
    match event:
        case UserSaid(parts) | ModelSaid(parts) | Instructed(parts):
            return _words(parts)
        case ToolReturned(_, parts):
            return _words(parts)
        case Folded():
            return event.text
        case _:
            return None


def _words(parts: tuple[Part, ...]) -> str:
    lines: list[str] = []
    for part in parts:
        match part:
            case Text(text) | Gap(text) | Thought(text):
                lines.append(text)
            case Call(_, name, arguments):
                lines.append(f"{name} {arguments}")
            case Media():
                data = part.url or f"data:{part.mime};base64,{part.base64}"
                lines.append(f"[{part.form} {part.name} {data}]")
    return "\n".join(lines)
