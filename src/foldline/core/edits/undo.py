"""Taking an edit back, and taking that back.

Knows the spine before and after an edit. Refuses to know what the edit was for.
"""

from collections.abc import Sequence

import msgspec

from foldline.core.log import Edit, Event, Excluded, Undone
from foldline.core.spine import Change, FoldAt, Range, Spine, overlap, shows, swap
from foldline.core.view import View
from foldline.errors import NotAnEdit, UndoFirst


def undo(view: View, seq: int, edit: Edit) -> Undone:
    """Take back the edit at `seq`; undoing an `Undone` is the redo."""
    spine, change = view.spine, edit.change
    # What was said since the edit was said behind words that change again now.
    since = (Range(seq + 1, view.head),) if seq < view.head else ()
    later = [at for at, event in view.held.items() if at > seq and isinstance(event, Edit)]
    if later:  # among other edits nobody can tell which thoughts still hold: none behind it do
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
    after = swap(spine, back)
    if after is None:
        over = [at for at, fold in view.folds().items() if overlap(fold.change.span, change.span)]
        if over and max(over) != seq:
            raise UndoFirst(seq, max(over))
        raise NotAnEdit(f"the edit at {seq} is already undone; undo the undoing to have it back")
    if isinstance(edit, Undone) and (at := _tells_hidden(view, back, later)) is not None:
        raise UndoFirst(seq, at)
    unfolded = after.unfolded if isinstance(edit, Undone) else (*after.unfolded, change.span)
    base = _base(view, after, (change.base, spine.base) if change.put else (spine.base,))
    after = msgspec.structs.replace(after, unfolded=unfolded, base=base, standing=view.standing())
    return Undone(seq, back, after)


def _tells_hidden(view: View, redo: Change, later: Sequence[int]) -> int | None:
    """The edit because of which a redo could bring excluded words into sight again, if any."""
    if later and _excludes(view):
        return max(later)  # what comes back may tell what was excluded since
    if redo.masks_on and not redo.put:
        over = (a for a, fold in view.folds().items() if overlap(fold.change.span, redo.span))
        return next(over, None)  # what is to be hidden again has gone into a fold
    if any(isinstance(one, FoldAt) for one in redo.put):
        stay = {*view.spine.masks} - {*redo.masks_off}
        return next((at for at in stay if _hides(view.held[at], redo.span)), None)
    return None


def _excludes(view: View) -> bool:
    """Whether a person took anything out of sight that an edit in reach could bring back."""
    folded = any(fold.excluded for fold in view.folds().values())
    return folded or any(isinstance(event, Excluded) for event in view.held.values())


def _hides(event: Event, span: Range) -> bool:
    """Whether a person took something in a span out of sight."""
    if not isinstance(event, Excluded):
        return False
    return any(overlap(span, Range(stub.seq, stub.seq)) for stub in event.stubs)


def _base(view: View, after: Spine, wanted: tuple[int | None, ...]) -> int | None:
    """The first of the wanted instructions that leaves no newer ones out of sight."""
    newest = view.instructed
    for base in wanted:
        if newest is None or newest == base or shows(after, newest):
            return base
    return newest
