"""One connection to a SQLite file: statements and transactions."""

import hashlib
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any, NamedTuple, cast

import apsw

from foldline.errors import BadInput, Erased, FoldlineError, StoreFailed
from foldline.stores.base import Name, Row

_SESSION = """
    select sid, head, floor, trimmed, fence, holder, until, origin, origin_at, owner from sessions
"""
_LONGEST = 0.05  # seconds between two looks at a lock


class LockPatience:
    """How long a writer waits for a lock: some seconds, and only while its caller waits."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._since = seconds, 0.0
        self.is_left: Callable[[], bool] = lambda: False
        """Whether nobody waits any more for what is being written."""

    def __call__(self, looked: int) -> bool:
        """Return whether to look again; SQLite asks this after every look."""
        if looked == 0:
            self._since = monotonic()
        if self.is_left() or monotonic() - self._since >= self._seconds:
            return False
        sleep(min(0.001 * 2 ** min(looked, 10), _LONGEST))
        return True


class SessionRow(NamedTuple):
    """A row of the table `sessions`."""

    sid: int
    head: int
    floor: int
    trimmed: float | None
    fence: int
    holder: str
    until: float
    origin: int | None
    origin_at: int
    owner: str


class Db:
    """A connection."""

    def __init__(self, connection: apsw.Connection, patience: LockPatience) -> None:
        self.connection = connection
        self.patience = patience
        connection.set_busy_handler(patience)
        self._joined = False

    @contextmanager
    def open_transaction(self, mode: str = "immediate") -> Generator[None]:
        """Open a transaction, or a savepoint inside `join_transactions`."""
        joined = self._joined
        if joined and not self.connection.in_transaction:
            raise self._make_undone_error()
        self.sql("savepoint part" if joined else f"begin {mode}")
        try:
            yield
            if not joined:
                self._must_be_wanted()
        except BaseException:
            if self.connection.in_transaction:  # on a full disk SQLite rolls back by itself
                self.sql("rollback to part; release part" if joined else "rollback")
            raise
        self.sql("release part" if joined else "commit")

    @contextmanager
    def join_transactions(self) -> Generator[None]:
        """Commit several transactions under one flush; each can still fail by itself."""
        with self.open_transaction():
            self._joined = True
            try:
                yield
            finally:
                self._joined = False
            if not self.connection.in_transaction:
                raise self._make_undone_error()

    def _must_be_wanted(self) -> None:
        if self.patience.is_left():
            raise self._make_undone_error()

    def _make_undone_error(self) -> StoreFailed:
        return StoreFailed(
            f"the store {self.connection.filename!r} failed beside this and undid it; "
            "repeat the call"
        )

    def sql(self, statement: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, or several without bindings."""
        run = cast("Any", self.connection).execute  # apsw's stubs name a type pyright cannot find
        try:
            return run(statement, bindings).fetchall()
        except apsw.Error as fault:
            raise self._translate_error(fault) from fault

    def _translate_error(self, fault: apsw.Error) -> FoldlineError:
        match fault:
            case apsw.ConnectionClosedError():
                return BadInput("the session is closed; open it again")
            case apsw.BusyError():
                way = "another program holds a lock on it; end that one, then repeat the call"
            case apsw.FullError() | apsw.IOError():
                way = "make room or mend the disk, then repeat the call"
            case _:
                way = "`foldline doctor` says whether the file is sound"
        return StoreFailed(f"the store {self.connection.filename!r} failed: {fault}; {way}")

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run one statement with each row."""
        try:
            cast("Any", self.connection).executemany(statement, rows)
        except apsw.Error as fault:
            raise self._translate_error(fault) from fault

    def read_rows(self, statement: str, bindings: Sequence[Any]) -> list[Row]:
        """Return events as rows; the statement selects seq, kind, edit, time and body."""
        return [
            Row(kind, body, bool(edit), seq, when)
            for seq, kind, edit, when, body in self.sql(statement, bindings)
        ]

    def find_session(self, name: Name) -> SessionRow | None:
        """Return a session's row, if there is one."""
        rows = self.sql(f"{_SESSION} where tenant = ? and session = ?", name)
        return SessionRow(*rows[0]) if rows else None

    def find_origin(self, of: SessionRow) -> SessionRow | None:
        """Return the row of a fork's origin, if it still exists."""
        rows = [] if of.origin is None else self.sql(f"{_SESSION} where sid = ?", (of.origin,))
        return SessionRow(*rows[0]) if rows else None

    def create_session(self, name: Name, now: float) -> SessionRow:
        """Create a session; raises `Erased` if it was erased."""
        self.refuse_erased(name)
        self.sql(
            "insert into sessions (tenant, session, opened, changed) values (?, ?, ?, ?)",
            (*name, now, now),
        )
        return cast("SessionRow", self.find_session(name))

    def refuse_erased(self, name: Name) -> None:
        """Raise `Erased` if the session was erased."""
        rows = self.sql("select time from erased where key = ?", (make_tombstone(name),))
        if rows:
            raise Erased(name.session, rows[0][0])


def make_tombstone(name: Name) -> bytes:
    """Return the hash by which an erased session is remembered instead of its name."""
    return hashlib.sha256("\0".join(name).encode()).digest()
