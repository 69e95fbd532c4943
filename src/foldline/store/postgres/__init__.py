"""PostgreSQL through psycopg 3: many processes, many tenants, many sessions.

    place        an address                     connections  the pool, one statement, its faults
    schema       migrations, from `sql/`        appending    batches of appends, unknown outcomes
    rows         heads, rows, pieces, forks     leases       leases, the side table
    finding      search                         keeping      lists, owners, erasure
    speaking     an append in the server's own bytes
    health       what a server says of itself   questions, plans  how it is asked

Knows which function of the server each operation is. Refuses to know what they do: that is in
`sql/`, one function and one round trip for each operation, the tenant set in the same one.
"""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from foldline.store.base import Draft, Name
from foldline.store.postgres import finding, keeping, leases, rows
from foldline.store.postgres.appending import Appends
from foldline.store.postgres.connections import Connections
from foldline.store.postgres.place import place

if TYPE_CHECKING:
    from types import CoroutineType

P = ParamSpec("P")
R = TypeVar("R")


def _operation(
    work: "Callable[Concatenate[Connections, P], CoroutineType[Any, Any, R]]",
) -> "Callable[Concatenate[PostgresStore, P], CoroutineType[Any, Any, R]]":
    """An operation on the store's connections."""

    @wraps(work)
    async def doing(store: "PostgresStore", /, *args: P.args, **kwargs: P.kwargs) -> R:
        store.db.check()
        return await work(store.db, *args, **kwargs)

    return doing


class PostgresStore:
    """Logs in one schema of a database; the first operation connects and migrates."""

    def __init__(self, address: str) -> None:
        self.db = Connections(place(address))
        self._appends = Appends(self.db)

    head = _operation(rows.head)
    read = _operation(rows.read)
    blobs = _operation(rows.blobs)
    fork = _operation(rows.fork)
    lease = _operation(leases.lease)
    release = _operation(leases.release)
    get = _operation(leases.get)
    put = _operation(leases.put)
    claim = _operation(keeping.claim)
    sessions = _operation(keeping.sessions)
    search = _operation(finding.search)
    hold = _operation(keeping.hold)
    trim = _operation(keeping.trim)
    retain = _operation(keeping.retain)
    erase = _operation(keeping.erase)

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
        return await self._appends.append(name, draft, after=after, fence=fence, once=once)

    async def close(self) -> None:
        """End all connections; a second time does nothing."""
        await self._appends.close()
        await self.db.close()
