"""SQLite through apsw: `:memory:` for tests and scripts, one file for a person.

connection    One connection to a SQLite file
retention     Lists, owners, holds, trimming, retention and erasure
schema        The tables of a SQLite file, and its migrations
session_rows  Appends, reads, forks, leases, side values and search
"""

import os
from collections.abc import Callable
from functools import partial, wraps
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import apsw

from foldline.errors import BadInput, StoreFailed
from foldline.stores.base import SERVER, Found, warn_unclosed, without_secrets
from foldline.stores.sqlite import retention, schema, session_rows
from foldline.stores.sqlite.connection import Db, LockPatience

if TYPE_CHECKING:
    from types import CoroutineType

    from foldline.stores.beside import SharedIndexing
    from foldline.stores.work_thread import WorkThread

P = ParamSpec("P")
R = TypeVar("R")
_OLDEST = (3, 51, 3)  # in older releases a WAL that is reset while it is read can corrupt the file
_PATIENCE = 30.0  # seconds that a writer waits for another


def _wrap_operation(
    work: Callable[Concatenate[Db, P], R], *, joins: bool = False
) -> "Callable[Concatenate[SqliteStore, P], CoroutineType[Any, Any, R]]":
    """Run an operation in the store's thread, so that it blocks no event loop.

    Operations with `joins` share one flush with others that wait.
    """

    @wraps(work)
    async def run_operation(store: "SqliteStore", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await store.run_job(lambda: work(store.db, *args, **kwargs), joins=joins)

    return run_operation


class SqliteStore:
    """Logs in one SQLite database."""

    def __init__(self, path: str) -> None:
        if not path:
            raise BadInput(
                "the store's address is empty; give a file's path, or ':memory:' for none"
            )
        if SERVER in path:
            raise BadInput(
                f"no store for the address {without_secrets(path)!r}; give a file's path, "
                "':memory:', or a postgresql:// address"
            )
        if tuple(map(int, apsw.sqlite_lib_version().split("."))) < _OLDEST:
            raise BadInput(
                f"SQLite {apsw.sqlite_lib_version()} can corrupt a file that several processes "
                "write; install a newer apsw"
            )
        try:
            self.db = Db(apsw.Connection(path), LockPatience(_PATIENCE))
            for pragma in ("synchronous = full", "secure_delete = on"):
                self.db.sql(f"pragma {pragma}")  # first: what a migration drops leaves the file
            if not schema.is_current(self.db.sql):
                with self.db.open_transaction():
                    schema.migrate_schema(self.db.sql, path)
            _set_journal_mode(self.db)
        except (apsw.Error, StoreFailed) as fault:
            raise BadInput(f"{path!r} cannot be opened as a store: {fault}") from fault
        self._path, self._closed = path, False
        self._indexing: SharedIndexing | None = None
        self._waiting: WorkThread | None = None
        self._process = os.getpid()
        self._in_memory = path == ":memory:"

    append = _wrap_operation(session_rows.append_rows, joins=True)
    head = _wrap_operation(session_rows.read_head)
    read = _wrap_operation(session_rows.read_rows)
    blobs = _wrap_operation(session_rows.read_blobs)
    fork = _wrap_operation(session_rows.fork_session)
    lease = _wrap_operation(session_rows.take_lease)
    release = _wrap_operation(session_rows.release_lease)
    get = _wrap_operation(session_rows.find_entry)
    put = _wrap_operation(session_rows.put_entry, joins=True)
    claim = _wrap_operation(retention.claim_session, joins=True)
    sessions = _wrap_operation(retention.list_sessions)
    _index_some = _wrap_operation(session_rows.index_some)
    _search_index = _wrap_operation(session_rows.search_index)
    hold = _wrap_operation(retention.set_hold)
    trim = _wrap_operation(retention.trim_log)
    retain = _wrap_operation(retention.apply_retention)
    erase = _wrap_operation(retention.erase_session)

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
        from foldline.stores import search_terms  # noqa: PLC0415 - for a search alone

        if not search_terms.list_query_terms(words):
            return []
        index_some = partial(self._index_some, tenant, session=session, owner=owner)
        if self._indexing is None:
            from foldline.stores.beside import SharedIndexing  # noqa: PLC0415 - asyncio

            self._indexing = SharedIndexing()
        await self._indexing.index((tenant, session, owner), index_some)
        return await self._search_index(tenant, words, session=session, limit=limit, owner=owner)

    async def close(self) -> None:
        """Close the database; a second call does nothing."""
        if self._closed:
            return
        await self.run_job(self.db.connection.close)
        self._closed = True
        if self._waiting is not None:
            self._waiting.stop()
            self._waiting = None

    def __del__(self) -> None:
        # Dropping a store loses nothing: the thread ends, and the connection with it.
        if getattr(self, "_waiting", None) is not None:
            warn_unclosed(self._path)

    async def run_job(self, work: Callable[[], R], *, joins: bool = False) -> R:
        """Run work in the thread that waits for the disk; `:memory:` runs it right here."""
        if os.getpid() != self._process:
            raise BadInput("this store was opened before a fork; open it again in this process")
        if self._closed:
            raise BadInput("the session is closed; open it again")
        if self._in_memory:
            return work()
        if self._waiting is None:
            from foldline.stores.work_thread import WorkThread  # noqa: PLC0415 - asyncio: half of the time of an import

            self._waiting = WorkThread("foldline-disk", self.db.join_transactions)
            self.db.patience.is_left = self._waiting.doing.is_left
        return await self._waiting.run_job(work, joins=joins)


def _set_journal_mode(db: Db) -> None:
    """Switch to WAL, with retries: several processes may open a new file at the same moment.

    The switch needs the file exclusively, and while another process reads, SQLite refuses it at
    once instead of waiting as it does for other locks.
    """
    end = monotonic() + _PATIENCE
    while True:
        try:
            db.sql("pragma journal_mode = wal")
        except StoreFailed as fault:
            if not isinstance(fault.__cause__, apsw.BusyError) or monotonic() > end:
                raise
            sleep(0.01)
        else:
            return
