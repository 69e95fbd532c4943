"""Rewinding: a client's history shows other messages of its log than the log's newest view does.

Knows how messages are taken out of a spine, and how a fold gives way to what it covers. Refuses to
know why: whoever compares a request with the log says what the request no longer shows.
"""

from collections.abc import Iterable, Mapping

import msgspec

from foldline.core.log import Folded, Hiding, Rewound
from foldline.core.spine import Change, FoldAt, Range, Segment
from foldline.core.view import View


def rewind(
    view: View,
    *,
    dropped: Iterable[Range],
    opened: Mapping[int, Folded] | None = None,
    everything: bool = False,
    compacted: bool = False,
) -> Rewound:
    """The event after which the dropped events are out of sight, to be appended to `view` next.

    `opened` are the folds that give way to what they cover, by their place in the log. With
    `everything` nothing that was said stays in sight.
    """
    gone = sorted(dropped, key=lambda span: span.lo)
    shown = () if everything else _opened(view.spine.segments, opened or {})
    segments = [kept for segment in shown for kept in _without(segment, gone)]
    if not segments or not isinstance(segments[-1], Range) or segments[-1].hi is not None:
        segments.append(Range(view.head + 1))
    spine = msgspec.structs.replace(
        view.spine,
        segments=tuple(segments),
        masks=tuple(at for at in view.spine.masks if _hides(view, at, segments)),
        standing=view.standing(),
        base=view.instructed,
    )
    return Rewound(spine, Change(Range(view.head + 1, view.head + 1)), compacted=compacted)


def covered(segments: Iterable[Segment], folds: Mapping[int, Folded]) -> Iterable[Range]:
    """The ranges that some segments stand for, where all their folds are opened."""
    for segment in segments:
        if isinstance(segment, Range):
            yield segment
        else:
            yield from covered(folds[segment.edit].change.took, folds)


def _opened(segments: Iterable[Segment], opened: Mapping[int, Folded]) -> Iterable[Segment]:
    for segment in segments:
        if isinstance(segment, FoldAt) and segment.edit in opened:
            yield from _opened(opened[segment.edit].change.took, opened)
        else:
            yield segment


def _without(segment: Segment, gone: list[Range]) -> Iterable[Segment]:
    """A segment without the events of some spans."""
    if isinstance(segment, FoldAt):
        yield segment
        return
    lo, hi = segment.lo, segment.hi
    for span in gone:
        last = span.lo if span.hi is None else span.hi
        if last < lo or (hi is not None and span.lo > hi):
            continue
        if span.lo > lo:
            yield Range(lo, span.lo - 1)
        lo = last + 1
    if hi is None or lo <= hi:
        yield Range(lo, hi)


def _hides(view: View, at: int, segments: Iterable[Segment]) -> bool:
    """Whether a mask is over anything that is still shown."""
    mask = view.held[at]
    ranges = [one for one in segments if isinstance(one, Range)]
    return isinstance(mask, Hiding) and any(
        one.lo <= stub.seq and (one.hi is None or stub.seq <= one.hi)
        for stub in mask.stubs
        for one in ranges
    )
