"""The store's port: the operations that every backend has, and what they promise.

Knows names, bytes and places. Refuses to know events: a row is bytes, a kind, and whether it is an
edit. `stores.event_log` turns events into rows and back; `stores.encryption` wraps any store.

Promises, kept by every backend and asked by `foldline.testing.stores`:
- A log is dense and append-only. Bytes come back as they were given.
- An append is all or nothing, and durable when it returns. It raises `Conflict` and writes nothing
  where the log does not end at `after`, or where `fence` is not the newest lease's. With `once`, a
  key that was appended before gives that append's end again and writes nothing.
- A lease is one holder's at a time until it runs out; its fence is larger than any before.
- What was erased stays erased: later appends, forks, claims and side values raise `Erased`.
- A session has one owner for good: the first to claim it while it has no events. A fork has its
  origin's. With `owner`, lists and searches show that owner's sessions and no others.
- Nothing is reached without a tenant; no operation shows another tenant's.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec


class Name(NamedTuple):
    """What a session is called: nothing works without both."""

    tenant: str
    session: str


class Row(NamedTuple):
    """An event as a store keeps it; `seq` is given by the append."""

    kind: str
    body: bytes
    edit: bool = False
    seq: int = -1
    time: float = 0.0
    """When it happened, in seconds since 1970: for people, never for logic. An append that does not
    say so is dated by the store's clock."""
    pieces: tuple[str, ...] = ()
    """The large pieces that its body names, by hash."""


class Head(msgspec.Struct, frozen=True):
    """Where a log ends, and what a view begins with."""

    seq: int = -1
    """The place of the newest event, -1 for a log that has none."""
    edit: Row | None = None
    """The newest edit up to the place that was asked for."""
    floor: int = 0
    """The first place that retention has left whole."""
    trimmed: float | None = None
    """When retention raised the floor."""
    owner: str = ""
    """Who claimed the session; "" where nobody did."""


class Lease(msgspec.Struct, frozen=True):
    """The right to work on a session, until it runs out."""

    name: Name
    holder: str
    fence: int
    until: float


class Listed(msgspec.Struct, frozen=True):
    """One session in a list."""

    session: str
    head: int
    size: int
    """Bytes of its events."""
    opened: float
    changed: float
    origin: str = ""
    """The session it was forked from."""
    held: bool = False
    owner: str = ""
    """Who claimed it; "" where nobody did."""


class Found(NamedTuple):
    """A place that a search found."""

    session: str
    seq: int


class Entry(NamedTuple):
    """A value of the side table; `version` counts its writes."""

    value: bytes
    version: int


class Retention(msgspec.Struct, frozen=True):
    """What may stay; a limit that is None takes nothing away."""

    seconds: float | None = None
    """Sessions that nobody changed for so long go."""
    sessions: int | None = None
    """The least lately changed go until so many are left."""
    size: int | None = None
    """And until all of them together take so many bytes."""


class Receipt(msgspec.Struct, frozen=True):
    """What was erased, or would be."""

    sessions: tuple[str, ...] = ()
    events: int = 0
    size: int = 0
    time: float = 0.0
    dry: bool = False


class Draft(msgspec.Struct, frozen=True):
    """Rows to append, and the large pieces that they name, by hash."""

    rows: Sequence[Row]
    blobs: Mapping[str, bytes] = {}


class Store(Protocol):
    """A place where logs are kept."""

    async def append(
        self,
        name: Name,
        draft: Draft,
        *,
        after: int | None = None,
        fence: int | None = None,
        once: str | None = None,
    ) -> int:
        """Add rows at the end of a log; the place of the last one."""
        ...

    async def head(self, name: Name, *, at: int | None = None) -> Head:
        """Where a log ends; what is behind `at` counts as not there yet."""
        ...

    async def read(self, name: Name, spans: Sequence[tuple[int, int]]) -> list[Row]:
        """The rows of some spans, ends included, in order; of a fork also its ancestors'."""
        ...

    async def blobs(self, name: Name, hashes: Sequence[str]) -> dict[str, bytes]:
        """Large pieces by their hash, as far as this session has them."""
        ...

    async def fork(self, name: Name, to: str, *, at: int, keep: Sequence[tuple[int, int]]) -> None:
        """A new session that goes on behind `at`, with the rows of `keep` copied."""
        ...

    async def lease(self, name: Name, holder: str, *, seconds: float) -> Lease | None:
        """Take a session, or renew what is held; None while another holds it."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give a session back; too late does nothing."""
        ...

    async def claim(self, name: Name, owner: str) -> str:
        """Give a session an owner if it has neither one nor events; the owner that it has then.

        Makes the session where there is none. One that has events and no owner stays without: its
        events were written by somebody who claimed nothing, so that nobody may take them later.
        """
        ...

    async def sessions(
        self, tenant: str, *, after: str = "", limit: int = 100, owner: str | None = None
    ) -> list[Listed]:
        """A tenant's sessions by name, behind `after`; with `owner` only that owner's."""
        ...

    async def search(
        self,
        tenant: str,
        words: str,
        *,
        session: str | None = None,
        limit: int = 20,
        owner: str | None = None,
    ) -> list[Found]:
        """Messages that hold all of some words, the newest first; with `owner` only that one's."""
        ...

    async def hold(self, name: Name, *, on: bool) -> None:
        """Keep a session from retention, or no longer."""
        ...

    async def trim(self, name: Name, floor: int, *, keep: Sequence[int]) -> int:
        """Erase what lies below a floor but the rows of `keep`; how many rows went."""
        ...

    async def retain(self, tenant: str, rule: Retention, *, dry: bool = False) -> Receipt:
        """Erase the sessions that a rule leaves no room for, in small batches."""
        ...

    async def erase(self, name: Name) -> Receipt:
        """Erase a session for good: rows, pieces, index, side entries."""
        ...

    async def get(self, name: Name, space: str, key: str) -> Entry | None:
        """A value of the side table, unless it has run out; a session "" is the tenant's own."""
        ...

    async def put(  # noqa: PLR0913 - a side table is a table
        self,
        name: Name,
        space: str,
        key: str,
        value: bytes | None,
        *,
        version: int | None = None,
        seconds: float | None = None,
    ) -> bool:
        """Set a value, or remove it; with `version` only where it is the entry's now (0: none)."""
        ...

    async def close(self) -> None:
        """Let go of files and connections."""
        ...
