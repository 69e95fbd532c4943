"""Taking an edit back, and taking that back.

Knows the spine before and after an edit. Refuses to know what the edit was for.
"""

import msgspec

from foldline.core.log import Edit, Undone
from foldline.core.spine import Change, FoldAt, overlap, swap
from foldline.core.view import View
from foldline.errors import NotAnEdit, UndoFirst


def undo(view: View, seq: int, edit: Edit) -> Undone:
    """Take back the edit at `seq`; undoing an `Undone` is the redo."""
    spine, change = view.spine, edit.change
    # A later fold has refreshed what stands; only the newest restores what stood before it.
    newest = not any(isinstance(s, FoldAt) and s.edit > seq for s in spine.segments)
    restored = change.stood if newest else None
    back = Change(
        span=change.span,
        took=change.put,
        put=change.took,
        masks_off=change.masks_on,
        masks_on=change.masks_off,
        stood=None if restored is None else spine.standing,
    )
    after = swap(spine, back)
    if after is None:
        over = [at for at, fold in view.folds().items() if overlap(fold.change.span, change.span)]
        if over and max(over) != seq:
            raise UndoFirst(seq, max(over))
        raise NotAnEdit(f"the edit at {seq} is already undone; undo the undoing to have it back")
    if restored is not None:
        after = msgspec.structs.replace(after, standing=restored)
    if not isinstance(edit, Undone):
        after = msgspec.structs.replace(after, unfolded=(*after.unfolded, change.span))
    return Undone(seq, back, after)
