"""How much of a view stands as it was last sent: what a provider's cache can give back.

Knows requests, and what changes a prefix: edits, another model, other tools or instructions.
Refuses to know tokens and prices, and whether the cache is still warm.

Where it cannot be told, because a fold has put the last request out of sight, it says less rather
than more: a bill may be smaller than drawn, never larger for this reason.
"""

from collections.abc import Sequence

from foldline.core.item import Item
from foldline.core.log import Asked, Edit, Folded, Instructed, ModelSwitched, Opened, Undone
from foldline.core.parts import Media
from foldline.core.view import View


def kept(view: View) -> int | None:
    """How many items, from the first on, the last request showed as they are.

    None where not even what opens the request is the same, or no request is in sight.
    """
    asked = view.held.get(view.asked)
    if not isinstance(asked, Asked):
        return None
    at = asked.at
    since = [event for seq, event in sorted(view.held.items()) if seq > at]
    edits = [event for event in since if isinstance(event, Edit)]
    if any(isinstance(event, ModelSwitched) for event in since) or _tools_changed(view, at):
        return None
    moving = [edit for edit in edits if isinstance(edit, Folded | Undone)]  # masks leave the base
    if moving and not _same_base(view, moving[0].change.base):
        return None
    changed = min((edit.change.span.lo for edit in edits), default=view.head + 1)
    for place, item in enumerate(view.items):
        if item.seq > at or _place(view, item) >= changed:
            return _before_media(view.items, place)
    return len(view.items)


def _before_media(items: Sequence[Item], place: int) -> int:
    """The same place, or one before: some dialects show a result's pictures behind all results."""
    first = place
    while first and items[place].role == "result" and items[first - 1].role == "result":
        first -= 1
    shown = (at for at in range(first, place) if any(isinstance(p, Media) for p in items[at].parts))
    return next(shown, place)


def _tools_changed(view: View, at: int) -> bool:
    """Whether the tools are others than the request at that place showed."""
    told = (event for seq, event in sorted(view.held.items(), reverse=True) if seq <= at)
    then = next((event.tools for event in told if isinstance(event, Instructed)), ())
    return then != view.newest.tools


def _same_base(view: View, before: int | None) -> bool:
    """Whether the instructions that open the request are those from before an edit."""
    now = view.spine.base
    if before is not None or now is None:
        return before == now
    # The first fold names what opens every request. That was so before it, if nobody had spoken
    # when it was said; of what the fold covers only this much can still be told.
    return now == 0 or (now == 1 and isinstance(view.held.get(0), Opened))


def _place(view: View, item: Item) -> int:
    """Where in the log an item stands: for a handoff, where the events begin that it covers."""
    return view.fold_at(item.seq).change.span.lo if item.state == "folded" else item.seq
