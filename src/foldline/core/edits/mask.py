"""Masking: old results become stubs, in one batch that stays; and what a person excludes.

Knows which results a rule lets go and the words of their stubs. Refuses to know when: a mask breaks
the cache from its first stub on, so whoever asks for one has counted the cost.
"""

from collections.abc import Sequence

from foldline.core.handles import handle
from foldline.core.item import Item
from foldline.core.log import Excluded, Masked
from foldline.core.parts import Stub, text_of
from foldline.core.spine import Change, Range, Spine, swap
from foldline.core.tokens import MESSAGE, count
from foldline.core.view import View
from foldline.errors import BadHandle, BrokenView, UndoFirst

_SKELETON = 60  # characters of the first words that a stub keeps


def results(view: View, *, turn_only: bool) -> list[Item]:
    """The results in sight, oldest first; of the current turn only, where that is asked."""
    start = 0
    if turn_only:
        users = [index for index, item in enumerate(view.items) if item.role == "user"]
        start = users[-1] if users else 0
    return [item for item in view.items[start:] if item.role == "result"]


def between(found: list[Item], *, first: int, last: int) -> list[Item]:
    """The results that are neither among the first nor the last; none where both are 0."""
    if first <= 0 and last <= 0:
        return []
    return found[max(first, 0) : max(len(found) - max(last, 0), 0)]


def mask(view: View, found: list[Item], *, least: int = 1) -> Masked | None:
    """Stubs over some results, to be appended next; None where that gains less than `least`."""
    whole = [item for item in found if item.state in ("whole", "clipped")]
    stubs = {item.seq: stub(item) for item in whole}
    gains = {item.seq: item.tokens - count(stubs[item.seq]) - MESSAGE for item in whole}
    worth = sorted(seq for seq, gain in gains.items() if gain > 0)
    if not worth or sum(gains[seq] for seq in worth) < least:
        return None
    change, after = _put(view, worth)
    return Masked(tuple(Stub(seq, stubs[seq]) for seq in worth), change, after)


def exclude(view: View, seqs: Sequence[int]) -> Excluded:
    """Stubs over what a person wants out of the model's sight; no fold will read or quote it."""
    items = (*view.items, *view.waiting)
    shown = {item.seq for item in items if item.state != "folded" and item.role != "system"}
    places = sorted({*seqs})
    absent = [handle(seq) for seq in places if seq not in shown]
    if absent or not places:
        raise BadHandle(
            f"{', '.join(absent) or 'nothing'} is not in the model's sight and cannot be excluded; "
            "undo() brings what was folded into sight again"
        )
    for at, fold in view.folds().items():
        read = fold.reads is not None and any(fold.reads.lo <= seq for seq in places)
        if read or {*fold.verbatim, *fold.clipped} & {*places}:
            raise UndoFirst(places[0], at)  # its words have gone into that fold's, or may have
    change, after = _put(view, places)
    stubs = (Stub(seq, f"[taken out by the user]\n[whole: {handle(seq)}]") for seq in places)
    return Excluded(tuple(stubs), change, after)


def _put(view: View, seqs: Sequence[int]) -> tuple[Change, Spine]:
    change = Change(span=Range(seqs[0], seqs[-1]), masks_on=(view.head + 1,))
    after = swap(view.spine, change)
    if after is None:
        raise BrokenView(f"a mask at {view.head + 1} stands already")
    return change, after


def stub(item: Item) -> str:
    """What stands for a result: that it is gone, how it ended, how it began, and its handle."""
    outcome = "ok" if item.ok else "error"
    words = " ".join(text_of(item.parts).split())[:_SKELETON]
    skeleton = f"\n[it began: {words}]" if words else ""
    return (
        f"[result masked — ~{item.tokens} tokens removed]\n[whole: {handle(item.seq)}; {outcome}]"
        f"{skeleton}"
    )
