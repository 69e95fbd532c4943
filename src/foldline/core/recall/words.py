"""The words of events: what recall looks at.

Knows what each event said, unshortened, and how several are put under each other. Refuses to know
how much of that is shown.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
from foldline.core.recall.query import handle
from foldline.core.spine import Range
from foldline.errors import BadHandle


@dataclass(frozen=True, slots=True)
class RecalledEvent:
    """One event: its place and name, and what it said, or None."""

    seq: int
    kind: str
    words: str | None

    @property
    def title(self) -> str:
        """The line above its words."""
        return f"[{handle(self.seq)} {self.kind}]"


def entries(events: Iterable[Logged], *, bulk: bool) -> list[RecalledEvent]:
    """What events said, with the data of pictures and files spelled out or only named."""
    return [RecalledEvent(seq, kind(event), whole(event, bulk=bulk)) for seq, event in events]


def text(found: Sequence[RecalledEvent], absent: Iterable[Range] = ()) -> str:
    """One text: words that stand alone as they were, others each under a line with its handle."""
    said = [(one.seq, f"{one.title}\n{one.words}") for one in found if one.words is not None]
    lost = [
        (span.lo, f"[{handle(span.lo, span.hi)}: not in this session's log]") for span in absent
    ]
    if not said:
        lost += [(one.seq, f"[{handle(one.seq)} {one.kind}: no words]") for one in found]
    elif len(said) == 1 and not lost:
        return next(one.words for one in found if one.words is not None)
    return "\n".join(line for _, line in sorted(said + lost))


def whole(event: Event, *, bulk: bool = True) -> str | None:
    """What an event said, unshortened; None for events that say nothing to a model."""
    match event:
        case UserSaid(parts) | ModelSaid(parts) | Instructed(parts):
            return _words(parts, bulk=bulk)
        case ToolReturned(_, parts):
            return _words(parts, bulk=bulk)
        case Folded():
            return event.text
        case _:
            return None


def missing(span: Range, events: Iterable[Logged]) -> tuple[Range, ...]:
    """The places of a span that are not among some events."""
    assert span.hi is not None, "an open span misses nothing"  # noqa: S101
    found: list[Range] = []
    at = span.lo
    for seq in sorted({one.seq for one in events if span.lo <= one.seq <= span.hi}):
        if seq > at:
            found.append(Range(at, seq - 1))
        at = seq + 1
    if at <= span.hi:
        found.append(Range(at, span.hi))
    return tuple(found)


def gone(span: Range, *, end: int | None = None) -> BadHandle:
    """What to raise where nothing of a span is there; `end` is the log's last place, if known."""
    place = handle(span.lo, span.hi)
    if end is None:
        return BadHandle(f"{place} is not in this session's log; use a handle that stands in it")
    if end < 0:
        return BadHandle(f"{place} is beyond this session's log, which is empty")
    if span.lo > end:
        return BadHandle(
            f"{place} is beyond this session's log, which ends at {end}; write {handle(0, end)} "
            "or a part of it"
        )
    return BadHandle(
        f"{place} is no longer in this session's log, which ends at {end}: it was erased"
    )


def _words(parts: tuple[Part, ...], *, bulk: bool) -> str:
    lines: list[str] = []
    for part in parts:
        match part:
            case Text(text) | Gap(text) | Thought(text):
                lines.append(text)
            case Call(_, name, arguments):
                lines.append(f"{name} {arguments}")
            case Media():
                lines.append(_media(part, bulk=bulk))
    return "\n".join(lines)


def _media(part: Media, *, bulk: bool) -> str:
    """A picture, a sound or a file: by its data, or by its name, kind and size."""
    if bulk:
        data = part.url or f"data:{part.mime};base64,{part.base64}"
        return f"[{part.form} {part.name} {data}]"
    size = len(part.base64.rstrip("=")) * 3 // 4
    where = part.url if part.url and not part.base64 else f"{size:,} bytes"
    return f"[{' '.join(word for word in (part.form, part.name, part.mime, where) if word)}]"
