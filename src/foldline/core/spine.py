"""Which events a view is made of, and the arithmetic of edits on that: out, in, and the way back.

Knows segments and spans. Refuses to know events: whoever edits says which text stands where.

A spine is kept canonical (neighbouring ranges are one), so that undoing an edit gives back exactly
the spine before it, also when other edits were made and taken back in between.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec


class Range(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """A segment of events shown as they are, from `lo` up to and including `hi`, or open."""

    lo: int
    hi: int | None = None


class FoldAt(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """A segment that shows the handoff of the fold at `edit` instead of the events it covers."""

    edit: int


Segment: TypeAlias = Range | FoldAt


class Spine(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which events a view is made of: enough to load it without reading the rest of the log.

    `masks` are the edits that put stubs over single items; `standing` the events that are in force
    wherever they lie (model, settings, newest instructions, pins); `base` the instructions that
    open every request, newer ones being items until the next fold; `unfolded` the spans that a
    person took back, which automatic edits leave alone until pressure is hard; `turned` the events
    that came after an edit and before it was taken back: what stood before them is not there now.
    """

    segments: tuple[Segment, ...] = (Range(0),)
    masks: tuple[int, ...] = ()
    standing: tuple[int, ...] = ()
    base: int | None = None
    unfolded: tuple[Range, ...] = ()
    turned: tuple[Range, ...] = ()


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an edit did to the spine within `span`; its inverse is the undo."""

    span: Range
    took: tuple[Segment, ...] = ()
    put: tuple[Segment, ...] = ()
    masks_off: tuple[int, ...] = ()
    masks_on: tuple[int, ...] = ()
    base: int | None = None
    """`Spine.base` before the edit."""
    turned_off: tuple[Range, ...] = ()
    turned_on: tuple[Range, ...] = ()
    """What the edit took out of `Spine.turned`, and what it put in."""


def ends(span: Range) -> tuple[int, int]:
    """The first and the last place of a span; of an open one, only its first."""
    return span.lo, span.lo if span.hi is None else span.hi


def places(span: Range) -> range:
    """Every place of a span."""
    lo, hi = ends(span)
    return range(lo, hi + 1)


def needs(spine: Spine) -> list[int]:
    """The single events, besides its ranges, without which a spine cannot be loaded."""
    folds = (segment.edit for segment in spine.segments if isinstance(segment, FoldAt))
    base = () if spine.base is None else (spine.base,)
    return sorted({*folds, *base, *spine.masks, *spine.standing})


def edits(spine: Spine) -> list[int]:
    """The edits that stand in a spine, oldest first."""
    folds = (segment.edit for segment in spine.segments if isinstance(segment, FoldAt))
    return sorted({*folds, *spine.masks})


def covering(spine: Spine, *, lo: int, hi: int, folds: Mapping[int, Range]) -> tuple[Segment, ...]:
    """The segments that show the events `lo`…`hi`, ranges cut to them."""
    found: list[Segment] = []
    for segment in spine.segments:
        match segment:
            case FoldAt(edit):
                if overlap(folds[edit], Range(lo, hi)):
                    found.append(segment)
            case Range(first, last):
                start, stop = max(lo, first), hi if last is None else min(hi, last)
                if start <= stop:
                    found.append(Range(start, stop))
    return tuple(found)


def swap(spine: Spine, change: Change) -> Spine | None:
    """Apply a change, or None where what it takes out does not stand.

    What a person unfolded is forgotten where the change touches it.
    """
    segments = spine.segments
    if change.took:
        carved = _carve(segments, change.took)
        if carved is None:
            return None
        before, after = carved
        segments = _joined([*before, *change.put, *after])
    masks, off, on = set(spine.masks), set(change.masks_off), set(change.masks_on)
    if not off <= masks or on & masks:
        return None
    kept = (span for span in spine.turned if span not in change.turned_off)
    return msgspec.structs.replace(
        spine,
        segments=segments,
        masks=tuple(sorted(masks - off | on)),
        unfolded=without(spine.unfolded, change.span),
        turned=(*kept, *change.turned_on),
    )


def without(spans: tuple[Range, ...], span: Range) -> tuple[Range, ...]:
    """The spans that do not touch `span`."""
    return tuple(other for other in spans if not overlap(other, span))


def shows(spine: Spine, seq: int) -> bool:
    """Whether an event stands in a range, to be shown as it is."""
    here = Range(seq, seq)
    return any(isinstance(one, Range) and overlap(one, here) for one in spine.segments)


def overlap(one: Range, two: Range) -> bool:
    """Whether two spans share an event."""
    return not (
        (one.hi is not None and one.hi < two.lo) or (two.hi is not None and two.hi < one.lo)
    )


def _joined(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    joined: list[Segment] = []
    for segment in segments:
        last = joined[-1] if joined else None
        if isinstance(last, Range) and isinstance(segment, Range) and last.hi == segment.lo - 1:
            joined[-1] = Range(last.lo, segment.hi)
        else:
            joined.append(segment)
    return tuple(joined)


def _carve(
    segments: tuple[Segment, ...], took: tuple[Segment, ...]
) -> tuple[list[Segment], list[Segment]] | None:
    """What stands before and behind `took`, or None where it does not stand as one run."""
    for index, segment in enumerate(segments):
        before, rest = list(segments[:index]), list(segments[index:])
        first = took[0]
        if isinstance(segment, Range) and isinstance(first, Range) and segment.lo < first.lo:
            if segment.hi is not None and segment.hi < first.lo:
                continue
            before.append(Range(segment.lo, first.lo - 1))
            rest[0] = Range(first.lo, segment.hi)
        if _begins(rest, took):
            return before, rest
    return None


def _begins(rest: list[Segment], took: tuple[Segment, ...]) -> bool:
    """Cut `took` off the front of `rest`, in place; False where it does not begin so."""
    for wanted in took:
        if not rest:
            return False
        here = rest[0]
        if here == wanted:
            del rest[0]
        elif (
            isinstance(here, Range)
            and isinstance(wanted, Range)
            and wanted.hi is not None
            and here.lo == wanted.lo
            and (here.hi is None or wanted.hi < here.hi)
        ):
            rest[0] = Range(wanted.hi + 1, here.hi)
        else:
            return False
    return True
