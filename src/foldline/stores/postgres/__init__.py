"""PostgreSQL through psycopg 3: many processes, many tenants, many sessions.

    append        Appends, sent in batches
    connections   The connection pool, and running one statement on it
    health        The state of a server and of our schema, as values: `Health`
    retention     Lists, owners, holds, trimming, retention and erasure
    schema        The numbered migrations in `sql/`, and applying them
    session_rows  Reads, forks, leases, side values and search
    url           Parses a PostgreSQL address with our parameters

Each operation is one SQL function in `sql/` and one round trip, which also sets the tenant.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from foldline.stores import search_terms
from foldline.stores.base import Draft, Found, Name
from foldline.stores.beside import SharedIndexing
from foldline.stores.postgres import retention, session_rows
from foldline.stores.postgres.append import Appends
from foldline.stores.postgres.connections import Connections
from foldline.stores.postgres.url import parse_postgres_url

if TYPE_CHECKING:
    from types import CoroutineType

P = ParamSpec("P")
R = TypeVar("R")


def _wrap_operation(
    work: "Callable[Concatenate[Connections, P], CoroutineType[Any, Any, R]]",
) -> "Callable[Concatenate[PostgresStore, P], CoroutineType[Any, Any, R]]":
    @wraps(work)
    async def run_operation(store: "PostgresStore", /, *args: P.args, **kwargs: P.kwargs) -> R:
        store.db.check_open()
        return await work(store.db, *args, **kwargs)

    return run_operation


class PostgresStore:
    """Logs in one schema of a database; the first operation connects and migrates."""

    def __init__(self, address: str) -> None:
        self.db = Connections(parse_postgres_url(address))
        self._appends = Appends(self.db)
        self._indexing = SharedIndexing()

    head = _wrap_operation(session_rows.read_head)
    read = _wrap_operation(session_rows.read_rows)
    blobs = _wrap_operation(session_rows.read_blobs)
    fork = _wrap_operation(session_rows.fork_session)
    lease = _wrap_operation(session_rows.take_lease)
    release = _wrap_operation(session_rows.release_lease)
    get = _wrap_operation(session_rows.find_entry)
    put = _wrap_operation(session_rows.put_entry)
    claim = _wrap_operation(retention.claim_session)
    sessions = _wrap_operation(retention.list_sessions)
    _index_some = _wrap_operation(session_rows.index_some)
    _search_index = _wrap_operation(session_rows.search_index)
    hold = _wrap_operation(retention.set_hold)
    trim = _wrap_operation(retention.trim_log)
    retain = _wrap_operation(retention.apply_retention)
    erase = _wrap_operation(retention.erase_session)

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
        return await self._appends.append(name, draft, after=after, fence=fence, once=once)

    async def search(
        self,
        tenant: str,
        words: str,
        *,
        session: str | None = None,
        limit: int = 20,
        owner: str | None = None,
    ) -> list[Found]:
        """Index what is new a little at a time, then search."""
        if not search_terms.list_query_terms(words):
            return []
        index_some = partial(self._index_some, tenant, session=session)
        await self._indexing.index((tenant, session), index_some)
        return await self._search_index(tenant, words, session=session, limit=limit, owner=owner)

    async def close(self) -> None:
        """Close all connections; a second call does nothing."""
        await self._appends.close()
        await self.db.close()
