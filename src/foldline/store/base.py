"""The store's port: the operations that every backend has, and what they promise.

Knows names, bytes and places. Refuses to know what an event means beyond whether it is an edit.

Promises: a session's log is dense from 0 and append-only; an append is all or nothing; an append
that expected another end raises `Conflict` and writes nothing; bytes come back as they were given.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from foldline.core.log import Event, Logged
from foldline.core.spine import Spine


class Name(NamedTuple):
    """What a session is called: nothing works without both."""

    tenant: str
    session: str


@dataclass(frozen=True, slots=True)
class Tail:
    """What a view is loaded from: the spine in force, the events it needs, the log's end."""

    spine: Spine
    events: list[Logged]
    head: int
    """The place of the newest event, -1 for a log that has none."""


class Store(Protocol):
    """A place where logs are kept."""

    async def append(self, name: Name, events: Sequence[Event], *, after: int) -> int:
        """Add events behind `after`, the place where the log must end now; the new end."""
        ...

    async def read(self, name: Name, lo: int, hi: int) -> list[Logged]:
        """The events from `lo` up to and including `hi`."""
        ...

    async def tail(self, name: Name, *, at: int | None = None) -> Tail:
        """What the view at `at` (or the end) is made of, however long the log."""
        ...

    async def close(self) -> None:
        """Let go of files and connections."""
        ...
