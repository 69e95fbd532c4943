"""Undo and redo edits; rewind a view to what a client's history still shows.

For a rewind, the caller compares the client's request with the log and says what was dropped.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from foldline.core.log import Edit, Event, Excluded, Folded, Hiding, Rewound, Undone
from foldline.core.spine import (
    Change,
    FoldAt,
    Range,
    Segment,
    Spine,
    apply_spine_change,
    has_overlap,
    is_shown,
)
from foldline.core.view import View
from foldline.errors import NotAnEdit, UndoFirst


def undo_edit(view: View, seq: int, edit: Edit) -> Undone:
    """Undo the edit at `seq`; undoing an `Undone` is the redo."""
    spine, change = view.spine, edit.change
    # What was said since the edit followed words that change again now.
    since = (Range(seq + 1, view.head),) if seq < view.head else ()
    later = [at for at, event in view.held.items() if at > seq and isinstance(event, Edit)]
    if later:  # among other edits it is unknown which signed thoughts hold: drop all behind it
        since = (Range(change.span.lo, view.head),)
    back = Change(
        span=change.span,
        took=change.put,
        put=change.took,
        masks_off=change.masks_on,
        masks_on=change.masks_off,
        base=spine.base,
        turned_off=change.turned_on,
        turned_on=(*change.turned_off, *since),
    )
    after = apply_spine_change(spine, back)
    if after is None:
        over = [
            at
            for at, fold in view.list_folds().items()
            if has_overlap(fold.change.span, change.span)
        ]
        if over and max(over) != seq:
            raise UndoFirst(seq, max(over))
        raise NotAnEdit(f"the edit at {seq} is already undone; undo the undoing to have it back")
    if isinstance(edit, Undone) and (at := _tells_hidden(view, back, later)) is not None:
        raise UndoFirst(seq, at)
    unfolded = after.unfolded if isinstance(edit, Undone) else (*after.unfolded, change.span)
    base = _choose_base(view, after, (change.base, spine.base) if change.put else (spine.base,))
    after = msgspec.structs.replace(
        after, unfolded=unfolded, base=base, standing=view.list_standing_events()
    )
    return Undone(seq, back, after)


def _tells_hidden(view: View, redo: Change, later: Sequence[int]) -> int | None:
    """Find the edit because of which a redo could bring excluded words into sight again."""
    if later and _has_exclusions(view):
        return max(later)  # what comes back may contain what was excluded since
    if redo.masks_on and not redo.put:
        over = (
            a for a, fold in view.list_folds().items() if has_overlap(fold.change.span, redo.span)
        )
        return next(over, None)  # what would be hidden again has gone into a fold
    if any(isinstance(one, FoldAt) for one in redo.put):
        stay = {*view.spine.masks} - {*redo.masks_off}
        return next((at for at in stay if _has_exclusion_in(view.held[at], redo.span)), None)
    return None


def _has_exclusions(view: View) -> bool:
    """Whether a person excluded anything that an edit in reach could bring back."""
    folded = any(fold.excluded for fold in view.list_folds().values())
    return folded or any(isinstance(event, Excluded) for event in view.held.values())


def _has_exclusion_in(event: Event, span: Range) -> bool:
    if not isinstance(event, Excluded):
        return False
    return any(has_overlap(span, Range(stub.seq, stub.seq)) for stub in event.stubs)


def _choose_base(view: View, after: Spine, wanted: tuple[int | None, ...]) -> int | None:
    """Choose the first of the wanted instructions that leaves no newer ones out of sight."""
    newest = view.instructed
    for base in wanted:
        if newest is None or newest == base or is_shown(after, newest):
            return base
    return newest


def rewind_view(
    view: View,
    *,
    dropped: Iterable[Range],
    opened: Mapping[int, Folded] | None = None,
    everything: bool = False,
    compacted: bool = False,
) -> Rewound:
    """Build the event that takes the dropped events out of sight, to be appended to `view` next.

    `opened` are the folds to replace by what they cover, by their place in the log. With
    `everything`, nothing that was said stays in sight.
    """
    gone = sorted(dropped, key=lambda span: span.lo)
    shown = () if everything else _expand_folds(view.spine.segments, opened or {})
    segments = [kept for segment in shown for kept in _remove_ranges(segment, gone)]
    if not segments or not isinstance(segments[-1], Range) or segments[-1].hi is not None:
        segments.append(Range(view.head + 1))
    spine = msgspec.structs.replace(
        view.spine,
        segments=tuple(segments),
        masks=tuple(at for at in view.spine.masks if _is_mask_used(view, at, segments)),
        standing=view.list_standing_events(),
        base=view.instructed,
    )
    return Rewound(spine, Change(Range(view.head + 1, view.head + 1)), compacted=compacted)


def iterate_covered_ranges(
    segments: Iterable[Segment], folds: Mapping[int, Folded]
) -> Iterable[Range]:
    """Yield the ranges that segments stand for, with all their folds opened."""
    for segment in segments:
        if isinstance(segment, Range):
            yield segment
        else:
            yield from iterate_covered_ranges(folds[segment.edit].change.took, folds)


def _expand_folds(segments: Iterable[Segment], opened: Mapping[int, Folded]) -> Iterable[Segment]:
    for segment in segments:
        if isinstance(segment, FoldAt) and segment.edit in opened:
            yield from _expand_folds(opened[segment.edit].change.took, opened)
        else:
            yield segment


def _remove_ranges(segment: Segment, gone: list[Range]) -> Iterable[Segment]:
    """Yield what is left of a segment without the events of some spans."""
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


def _is_mask_used(view: View, at: int, segments: Iterable[Segment]) -> bool:
    """Whether a mask covers anything that is still shown."""
    mask = view.held[at]
    ranges = [one for one in segments if isinstance(one, Range)]
    return isinstance(mask, Hiding) and any(
        one.lo <= stub.seq and (one.hi is None or stub.seq <= one.hi)
        for stub in mask.stubs
        for one in ranges
    )
