"""A session of our own store as a record that the lab can replay.

Knows what our own log says that others' files do not: what had been decided then. Refuses to
decide anew: a fold of that time becomes a note of what stood in the request after it, so that the
recorded calls keep the sizes they had. Masks and exclusions of that time are not carried: such a
session is taken for larger than it was.
"""

from collections.abc import Sequence

from foldline.core.log import Checkpointed, Event, Folded, ModelSwitched, Opened, Undone
from foldline.core.spine import FoldAt, Range, Spine
from foldline.errors import BadInput
from foldline.lab.recorded import Recorded
from foldline.stores import event_log
from foldline.stores.base import Name, Store

_PIECE = 2_000  # events that are read at a time


async def stored(store: Store, name: Name) -> Recorded:
    """A session of the store, whole, with the times of its events."""
    head = (await store.head(name)).seq
    times = [row.time async for row in event_log.walk(store, name, head)]
    events: list[Event] = []
    for lo in range(0, head + 1, _PIECE):
        span = Range(lo, min(lo + _PIECE - 1, head))
        events += [event for _, event in await event_log.read(store, name, span)]
    if len(events) != head + 1 or not events:
        raise BadInput(
            f"session {name.session!r} holds {len(events):,} of its {head + 1:,} events, the rest "
            "was erased; only whole logs are replayed"
        )
    return recorded(name.session, events, times)


def recorded(name: str, events: Sequence[Event], times: Sequence[float] = ()) -> Recorded:
    """A log of ours as a record: its folds as compactions, each with what it left standing."""
    kept: list[Event] = []
    dates: list[float] = []
    places: list[int] = []
    model = ""
    for seq, event in enumerate(events):
        places.append(len(kept))
        if isinstance(event, Opened | ModelSwitched):
            model = event.model
        told = _told(event.spine, events, places) if isinstance(event, Folded | Undone) else [event]
        kept += told
        dates += [times[seq] if seq < len(times) else 0.0] * len(told)
    return Recorded(name, model, tuple(kept), tuple(dates))


def _told(spine: Spine, events: Sequence[Event], places: Sequence[int]) -> list[Event]:
    """What stands after an edit: handoffs as one text, and the place from which all is shown."""
    folds = [events[one.edit] for one in spine.segments if isinstance(one, FoldAt)]
    texts = [fold.text for fold in folds if isinstance(fold, Folded)]
    shown = [one.lo for one in spine.segments if isinstance(one, Range) and one.lo < len(places)]
    first = places[max(shown)] if texts and shown else 0
    whole = Checkpointed("compaction", "\n\n".join(texts))
    return [whole, Checkpointed("kept from", str(first if shown else places[-1]))]
