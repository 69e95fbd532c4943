"""The store's port: the operations that every backend has, and what they promise.

A row is bytes, a kind, and whether it is an edit. `stores.event_log` turns events into rows and
back; `stores.encryption` wraps any store.

Every backend keeps these promises, and `foldline.testing.stores` tests them:
- A log is dense and append-only. Bytes come back as they were given.
- An append is all or nothing, and durable when it returns. It raises `Conflict` and writes nothing
  if the log does not end at `after`, or if `fence` is not the newest lease's. With `once`, a key
  that was appended before returns that append's end again and writes nothing.
- A lease has one holder at a time until it expires; its fence is larger than any before.
- What was erased stays erased: later appends, forks, claims and side values raise `Erased`.
- A session has one owner for good: the first to claim it while it has no events. A fork has its
  origin's owner. With `owner`, lists and searches show only that owner's sessions.
- A search ranks a scope's messages as `search_ranking` does, whatever is outside of the scope.
- Every operation needs a tenant, and none shows another tenant's data.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec


class Name(NamedTuple):
    """A session's full name: its tenant and its own name."""

    tenant: str
    session: str


class Row(NamedTuple):
    """An event as a store keeps it; the append sets `seq`."""

    kind: str
    body: bytes
    edit: bool = False
    seq: int = -1
    time: float = 0.0
    """When it happened, in seconds since 1970: for people, never for logic. 0.0 means that the
    store's clock dates it."""
    pieces: tuple[str, ...] = ()
    """Hashes of the large pieces that the body refers to."""


class Head(msgspec.Struct, frozen=True):
    """The end of a log, and the edit that its view starts from."""

    seq: int = -1
    """The place of the newest event; -1 for an empty log."""
    edit: Row | None = None
    """The newest edit up to the requested place."""
    floor: int = 0
    """The first place from which retention has deleted nothing."""
    trimmed: float | None = None
    """When retention raised the floor."""
    owner: str = ""
    """Who claimed the session; "" if nobody did."""


class Lease(msgspec.Struct, frozen=True):
    """The right to work on a session, until it expires."""

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
    """Who claimed it; "" if nobody did."""


class Found(NamedTuple):
    """A search hit."""

    session: str
    seq: int
    score: float = 0.0
    """How well it fits; only comparable with the other hits of the same search."""


class Entry(NamedTuple):
    """A value of the side table; `version` counts its writes."""

    value: bytes
    version: int


class Retention(msgspec.Struct, frozen=True):
    """Limits on what a tenant keeps; a limit of None deletes nothing."""

    seconds: float | None = None
    """Erase sessions that have not changed for this long."""
    sessions: int | None = None
    """Erase the least recently changed until this many are left."""
    size: int | None = None
    """Erase the least recently changed until all together take this many bytes."""


class Receipt(msgspec.Struct, frozen=True):
    """What was erased, or in a dry run would be."""

    sessions: tuple[str, ...] = ()
    events: int = 0
    size: int = 0
    time: float = 0.0
    dry: bool = False


class Draft(msgspec.Struct, frozen=True):
    """Rows to append, and the large pieces they refer to, by hash."""

    rows: Sequence[Row]
    blobs: Mapping[str, bytes] = {}

    @property
    def size(self) -> int:
        """The bytes of all rows and pieces, before a store compresses or encrypts them."""
        return sum(len(row.body) for row in self.rows) + sum(map(len, self.blobs.values()))


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
        """Append rows to a log and return the place of the last one."""
        ...

    async def head(self, name: Name, *, at: int | None = None) -> Head:
        """Return where a log ends; rows after `at` are ignored."""
        ...

    async def read(self, name: Name, spans: Sequence[tuple[int, int]]) -> list[Row]:
        """Return the rows of spans (ends included) in order; a fork's include its ancestors'."""
        ...

    async def blobs(self, name: Name, hashes: Sequence[str]) -> dict[str, bytes]:
        """Return those of the large pieces that this session has, by hash."""
        ...

    async def fork(self, name: Name, to: str, *, at: int, keep: Sequence[tuple[int, int]]) -> None:
        """Create a session that continues after `at`, with the rows of `keep` copied."""
        ...

    async def lease(self, name: Name, holder: str, *, seconds: float) -> Lease | None:
        """Take or renew the lease of a session; None while another holds it."""
        ...

    async def release(self, lease: Lease) -> None:
        """Release a lease; does nothing if it has expired."""
        ...

    async def claim(self, name: Name, owner: str) -> str:
        """Set the owner of a session without owner and events; return the owner it has then.

        Creates the session if needed. A session with events and no owner stays without one: whoever
        wrote its events claimed nothing, so nobody may claim them later.
        """
        ...

    async def sessions(
        self, tenant: str, *, after: str = "", limit: int = 100, owner: str | None = None
    ) -> list[Listed]:
        """List a tenant's sessions by name, those after `after`; with `owner` only that owner's."""
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
        """Find messages with any of the words, best first; with `owner` only that owner's.

        `stores.search_ranking` says which are best.
        """
        ...

    async def hold(self, name: Name, *, on: bool) -> None:
        """Exempt a session from retention, or end the exemption."""
        ...

    async def trim(self, name: Name, floor: int, *, keep: Sequence[int]) -> int:
        """Erase the rows below a floor except those of `keep`; return how many."""
        ...

    async def retain(self, tenant: str, rule: Retention, *, dry: bool = False) -> Receipt:
        """Erase the sessions that exceed a rule, in small batches."""
        ...

    async def erase(self, name: Name) -> Receipt:
        """Erase a session for good: rows, pieces, index, side entries."""
        ...

    async def get(self, name: Name, space: str, key: str) -> Entry | None:
        """Return a side value unless it has expired; session "" holds the tenant's own values."""
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
        """Set or remove (None) a side value; with `version` only if it is current (0: no entry)."""
        ...

    async def close(self) -> None:
        """Close files and connections."""
        ...


POSTGRES = ("postgresql://", "postgres://")
SERVER = "://"


def without_secrets(address: str) -> str:
    """Return an address without user, password and parameters, for messages."""
    kind, is_server, place = address.partition("?")[0].partition(SERVER)
    if not is_server:
        return address
    where = place.rpartition("@")[2]
    return f"{'postgresql' if address.startswith(POSTGRES) else kind}{SERVER}{where}"


def warn_unclosed(address: str) -> None:
    """Warn about a store that was dropped without being closed."""
    warnings.warn(
        f"the store {without_secrets(address)!r} was dropped and not closed; close() its session, "
        "or open it in a `with` block",
        ResourceWarning,
        stacklevel=3,
    )
