"""The spine: which events a view is made of, and how edits change that.

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
    person unfolded, which automatic edits leave alone until pressure is hard; `turned` the events
    that came after an edit and before its undo: what preceded them then does not precede them now.
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


def ends_of(span: Range) -> tuple[int, int]:
    """Return the first and the last place of a span; of an open one, its first twice."""
    return span.lo, span.lo if span.hi is None else span.hi


def places_of(span: Range) -> range:
    """Return every place of a span."""
    lo, hi = ends_of(span)
    return range(lo, hi + 1)


def list_needed_events(spine: Spine) -> list[int]:
    """List the single events that a spine needs besides its ranges."""
    folds = (segment.edit for segment in spine.segments if isinstance(segment, FoldAt))
    base = () if spine.base is None else (spine.base,)
    return sorted({*folds, *base, *spine.masks, *spine.standing})


def list_edits(spine: Spine) -> list[int]:
    """List the edits that stand in a spine, oldest first."""
    folds = (segment.edit for segment in spine.segments if isinstance(segment, FoldAt))
    return sorted({*folds, *spine.masks})


def select_segments(
    spine: Spine, *, lo: int, hi: int, folds: Mapping[int, Range]
) -> tuple[Segment, ...]:
    """Select the segments that show the events `lo`…`hi`, with ranges cut to them."""
    selected: list[Segment] = []
    for segment in spine.segments:
        match segment:
            case FoldAt(edit):
                if has_overlap(folds[edit], Range(lo, hi)):
                    selected.append(segment)
            case Range(first, last):
                start, stop = max(lo, first), hi if last is None else min(hi, last)
                if start <= stop:
                    selected.append(Range(start, stop))
    return tuple(selected)


def apply_spine_change(spine: Spine, change: Change) -> Spine | None:
    """Apply a change; None if what it takes out does not stand.

    Forgets what a person unfolded where the change touches it.
    """
    segments = spine.segments
    if change.took:
        carved = _split_around(segments, change.took)
        if carved is None:
            return None
        before, after = carved
        segments = _join_ranges([*before, *change.put, *after])
    masks, off, on = set(spine.masks), set(change.masks_off), set(change.masks_on)
    if not off <= masks or on & masks:
        return None
    kept = (span for span in spine.turned if span not in change.turned_off)
    return msgspec.structs.replace(
        spine,
        segments=segments,
        masks=tuple(sorted(masks - off | on)),
        unfolded=drop_overlapping_spans(spine.unfolded, change.span),
        turned=(*kept, *change.turned_on),
    )


def drop_overlapping_spans(spans: tuple[Range, ...], span: Range) -> tuple[Range, ...]:
    """Return the spans that do not overlap `span`."""
    return tuple(other for other in spans if not has_overlap(other, span))


def is_shown(spine: Spine, seq: int) -> bool:
    """Whether an event is in a range, which shows it as it is."""
    here = Range(seq, seq)
    return any(isinstance(one, Range) and has_overlap(one, here) for one in spine.segments)


def has_overlap(one: Range, two: Range) -> bool:
    """Whether two spans share an event."""
    return not (
        (one.hi is not None and one.hi < two.lo) or (two.hi is not None and two.hi < one.lo)
    )


def _join_ranges(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    joined: list[Segment] = []
    for segment in segments:
        last = joined[-1] if joined else None
        if isinstance(last, Range) and isinstance(segment, Range) and last.hi == segment.lo - 1:
            joined[-1] = Range(last.lo, segment.hi)
        else:
            joined.append(segment)
    return tuple(joined)


def _split_around(
    segments: tuple[Segment, ...], took: tuple[Segment, ...]
) -> tuple[list[Segment], list[Segment]] | None:
    """Return what is before and behind `took`; None if it does not stand as one run."""
    for index, segment in enumerate(segments):
        before, rest = list(segments[:index]), list(segments[index:])
        first = took[0]
        if isinstance(segment, Range) and isinstance(first, Range) and segment.lo < first.lo:
            if segment.hi is not None and segment.hi < first.lo:
                continue
            before.append(Range(segment.lo, first.lo - 1))
            rest[0] = Range(first.lo, segment.hi)
        if _strip_prefix(rest, took):
            return before, rest
    return None


def _strip_prefix(rest: list[Segment], took: tuple[Segment, ...]) -> bool:
    """Cut `took` off the front of `rest`, in place; False if `rest` does not begin with it."""
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
