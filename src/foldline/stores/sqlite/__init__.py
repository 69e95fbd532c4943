"""SQLite through apsw: `:memory:` for tests and scripts, one file for a person.

    connection   One connection to a SQLite file, and what every operation on it shares
    disk_thread  The thread that waits for the disk, so that no event loop does
    leases       Who works on a session, and the side table: small values with a version and an end
    retention    What is kept, whose it is and for how long
    rows         Logs in tables: append, read, fork
    schema       The tables of a SQLite file, and how older files become newer ones
    search       Search: an index of what was said, brought up to date when it is asked

Knows the connection's version and pragmas. Refuses to know what the operations do.
"""

import os
from collections.abc import Callable
from functools import wraps
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import apsw

from foldline.errors import BadInput, StoreFailed
from foldline.stores import event_log
from foldline.stores.sqlite import leases, retention, rows, schema
from foldline.stores.sqlite import search as finding
from foldline.stores.sqlite.connection import Db, LockPatience
from foldline.stores.url import SERVER, warn_unclosed, without_secrets

if TYPE_CHECKING:
    from types import CoroutineType

    from foldline.stores.sqlite.disk_thread import DiskThread

P = ParamSpec("P")
R = TypeVar("R")
_OLDEST = (3, 51, 3)  # before it a WAL that is reset while it is read may corrupt the file
_PATIENCE = 30.0  # seconds that a writer waits for another


def _operation(
    work: Callable[Concatenate[Db, P], R], *, joins: bool = False
) -> "Callable[Concatenate[SqliteStore, P], CoroutineType[Any, Any, R]]":
    """The async form of an operation: in the store's thread, so that no event loop stands.

    One that `joins` is flushed with those that wait beside it.
    """

    @wraps(work)
    async def doing(store: "SqliteStore", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await store.run(lambda: work(store.db, *args, **kwargs), joins=joins)

    return doing


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
            self.db = Db(apsw.Connection(path), event_log.words, LockPatience(_PATIENCE))
            if not schema.is_current(self.db.sql):
                with self.db.transaction():
                    schema.prepare(self.db.sql, path)
            _journal(self.db)
            for pragma in ("synchronous = full", "secure_delete = on"):
                self.db.sql(f"pragma {pragma}")
        except (apsw.Error, StoreFailed) as fault:
            raise BadInput(f"{path!r} cannot be opened as a store: {fault}") from fault
        self._path, self._closed = path, False
        self._waiting: DiskThread | None = None
        self._process = os.getpid()
        self._in_memory = path == ":memory:"

    append = _operation(rows.append, joins=True)
    head = _operation(rows.head)
    read = _operation(rows.read)
    blobs = _operation(rows.blobs)
    fork = _operation(rows.fork)
    lease = _operation(leases.lease)
    release = _operation(leases.release)
    get = _operation(leases.get)
    put = _operation(leases.put, joins=True)
    claim = _operation(retention.claim, joins=True)
    sessions = _operation(retention.sessions)
    search = _operation(finding.search)
    hold = _operation(retention.hold)
    trim = _operation(retention.trim)
    retain = _operation(retention.retain)
    erase = _operation(retention.erase)

    async def close(self) -> None:
        """Close the database; a second time does nothing."""
        if self._closed:
            return
        await self.run(self.db.connection.close)
        self._closed = True
        if self._waiting is not None:
            self._waiting.stop()
            self._waiting = None

    def __del__(self) -> None:
        # Whoever drops it loses nothing: the thread ends, and the connection with it.
        if getattr(self, "_waiting", None) is not None:
            warn_unclosed(self._path)

    async def run(self, work: Callable[[], R], *, joins: bool = False) -> R:
        """Do some work where the disk is waited for."""
        if os.getpid() != self._process:
            raise BadInput("this store was opened before a fork; open it again in this process")
        if self._closed:
            raise BadInput("the session is closed; open it again")
        if self._in_memory:
            return work()
        if self._waiting is None:
            from foldline.stores.sqlite.disk_thread import DiskThread  # noqa: PLC0415 - asyncio: half of the time of an import

            self._waiting = DiskThread(self.db.together)
            self.db.patience.is_left = self._waiting.doing.is_left
        return await self._waiting.run(work, joins=joins)


def _journal(db: Db) -> None:
    """Have a journal beside the file; one that is new may be opened by several at this moment.

    Whoever makes the journal needs the file for itself, and SQLite refuses that at once where
    another one is reading, instead of waiting as for anything else.
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
