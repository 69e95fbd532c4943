"""The port between a session and whoever tells its folds' narratives.

Knows what a session asks of a narrator. Refuses to know models and queues: `summaries` tells in
this process, `fold_queue` leaves it to a worker.
"""

from typing import Protocol

from foldline.core.edits.fold import Ask, Prepared
from foldline.session.log_handle import Live


class Narrator(Protocol):
    """Who has narratives told for folds: in the background, or where a person asks for one now."""

    async def find(self, live: Live) -> Prepared | None:
        """What is prepared for the view as it is."""
        ...

    def wanted(self, live: Live, ask: Ask) -> None:
        """One would be worth having; nobody waits for it."""
        ...

    async def now(self, live: Live, focus: str) -> Prepared | None:
        """A narrative of what a fold made now would take."""
        ...

    async def close(self) -> None:
        """Ask no more."""
        ...
