"""The spine in force at a place in a log, without a store."""

from collections.abc import Iterable

from foldline.core.log import Edit, Logged
from foldline.core.spine import Spine


def spine_at(events: Iterable[Logged], at: int) -> Spine:
    """Return the spine of the newest edit up to a place."""
    spine = Spine()
    for seq, event in events:
        if seq <= at and isinstance(event, Edit):
            spine = event.spine
    return spine
