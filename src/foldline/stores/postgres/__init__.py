"""PostgreSQL through psycopg 3: many processes, many tenants, many sessions.

    append          Appends
    connections     Connections to PostgreSQL, and one statement on one of them
    health          What a server says of itself and of our schema, as values: `Health`
    health_queries  The questions that `Health` answers, asked of a server
    leases          Leases with fences, and the side table; one statement each
    query_plans     How the server does what a turn asks of it
    retention       What is kept, whose it is and for how long
    rows            Logs in tables: heads, rows, pieces, forks; one statement each
    schema          The numbered migrations in `sql/`, and how a database comes to have them
    search          Search: words in a table of their own, brought up to date when it is asked
    url             A PostgreSQL address: what libpq is told, and what is ours in it
    wire_format     The statements of every append in PostgreSQL's own bytes

Knows which function of the server each operation is. Refuses to know what they do: that is in
`sql/`, one function and one round trip for each operation, the tenant set in the same one.
"""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from foldline.stores.base import Draft, Name
from foldline.stores.postgres import leases, retention, rows
from foldline.stores.postgres import search as finding
from foldline.stores.postgres.append import Appends
from foldline.stores.postgres.connections import Connections
from foldline.stores.postgres.url import place

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
    claim = _operation(retention.claim)
    sessions = _operation(retention.sessions)
    search = _operation(finding.search)
    hold = _operation(retention.hold)
    trim = _operation(retention.trim)
    retain = _operation(retention.retain)
    erase = _operation(retention.erase)

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
