"""Mask old results with stubs, in one batch; exclude what a person wants out of sight.

A mask breaks the cache from its first stub on: the caller decides whether that is worth it.
"""

from collections.abc import Sequence

from foldline.core.item import Item
from foldline.core.log import Excluded, Masked
from foldline.core.names import format_handle, format_way_back
from foldline.core.parts import Stub, text_of
from foldline.core.spine import Change, Range, Spine, apply_spine_change
from foldline.core.tokens import MESSAGE, count_tokens
from foldline.core.view import View
from foldline.errors import BadHandle, BrokenView, UndoFirst

_SKELETON = 60  # characters of the first words that a stub keeps


def list_results(view: View, *, turn_only: bool) -> list[Item]:
    """List the results in sight, oldest first; with `turn_only`, those of the current turn."""
    start = 0
    if turn_only:
        users = [index for index, item in enumerate(view.items) if item.role == "user"]
        start = users[-1] if users else 0
    return [item for item in view.items[start:] if item.role == "result"]


def select_middle_results(found: list[Item], *, first: int, last: int) -> list[Item]:
    """Select the results that are neither among the first nor the last; none if both are 0."""
    if first <= 0 and last <= 0:
        return []
    return found[max(first, 0) : max(len(found) - max(last, 0), 0)]


def mask_results(
    view: View, found: list[Item], *, least: int = 1, recall: bool = True
) -> Masked | None:
    """Put stubs over results, to be appended next; None if that gains less than `least` tokens."""
    whole = [item for item in found if item.state in ("whole", "clipped")]
    stubs = {item.seq: render_stub(item, recall=recall) for item in whole}
    gains = {item.seq: item.tokens - count_tokens(stubs[item.seq]) - MESSAGE for item in whole}
    worth = sorted(seq for seq, gain in gains.items() if gain > 0)
    if not worth or sum(gains[seq] for seq in worth) < least:
        return None
    change, after = _add_mask(view, worth)
    return Masked(tuple(Stub(seq, stubs[seq]) for seq in worth), change, after)


def exclude_events(view: View, seqs: Sequence[int], *, recall: bool = True) -> Excluded:
    """Put stubs over what a person wants out of sight; no fold will read or quote it."""
    items = (*view.items, *view.waiting)
    shown = {item.seq for item in items if item.state != "folded" and item.role != "system"}
    places = sorted({*seqs})
    absent = [format_handle(seq) for seq in places if seq not in shown]
    if absent or not places:
        raise BadHandle(
            f"{', '.join(absent) or 'nothing'} is not in the model's sight and cannot be excluded; "
            "undo() brings what was folded into sight again"
        )
    for at, fold in view.list_folds().items():
        read = fold.reads is not None and any(fold.reads.lo <= seq for seq in places)
        if read or {*fold.verbatim, *fold.clipped} & {*places}:
            raise UndoFirst(places[0], at)  # that fold's text may contain its words
    change, after = _add_mask(view, places)
    ways = {seq: format_way_back(seq, recall=recall) for seq in places}
    stubs = tuple(Stub(seq, f"[taken out by the user]\n{way}") for seq, way in ways.items())
    return Excluded(stubs, change, after)


def _add_mask(view: View, seqs: Sequence[int]) -> tuple[Change, Spine]:
    change = Change(span=Range(seqs[0], seqs[-1]), masks_on=(view.head + 1,))
    after = apply_spine_change(view.spine, change)
    if after is None:
        raise BrokenView(f"a mask at {view.head + 1} stands already")
    return change, after


def render_stub(item: Item, *, recall: bool = True) -> str:
    """Render the stub of a result: its size, handle, outcome and first words."""
    outcome = "ok" if item.ok else "error"
    way = format_way_back(item.seq, outcome=outcome, again="read it again", recall=recall)
    words = " ".join(text_of(item.parts).split())[:_SKELETON]
    skeleton = f"\n[it began: {words}]" if words else ""
    return f"[result masked — ~{item.tokens} tokens removed]\n{way}{skeleton}"
