"""SQLite through apsw: `:memory:` for tests and scripts, one file for a person.

Knows one table. Refuses to know events' content, save which of them are edits.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import apsw

from foldline.core import log
from foldline.core import spine as spines
from foldline.core.log import Edit, Event, Logged
from foldline.core.spine import Range, Spine
from foldline.errors import BadInput, Conflict, FormatError
from foldline.store.base import Name, Tail

_SCHEMA = 1
_APPLICATION = 0x464F4C44  # "FOLD"
_TABLES = """
    create table events (
        tenant  text not null,
        session text not null,
        seq     integer not null,
        kind    text not null,
        edit    integer not null,
        time    text not null default (strftime('%Y-%m-%dT%H:%M:%fZ')),
        body    blob not null,
        primary key (tenant, session, seq)
    ) without rowid, strict;
    create index edits on events (tenant, session, seq) where edit;
"""
_HEAD = "select max(seq) from events where tenant = ? and session = ?"
_INSERT = "insert into events (tenant, session, seq, kind, edit, body) values (?, ?, ?, ?, ?, ?)"
_READ = """
    select seq, body from events
    where tenant = ? and session = ? and seq between ? and ? order by seq
"""
_EDIT = """
    select body from events
    where edit and tenant = ? and session = ? and seq <= ? order by seq desc limit 1
"""


class SqliteStore:
    """Logs in one SQLite database."""

    def __init__(self, path: str) -> None:
        if "://" in path:
            raise BadInput(f"no store for the address {path!r}; give a file's path or ':memory:'")
        try:
            self._db = apsw.Connection(path)
            self._prepare(path)
        except apsw.Error as fault:
            raise BadInput(f"{path!r} cannot be opened as a store: {fault}") from fault

    def _prepare(self, path: str) -> None:
        """Make the tables in an empty file; refuse one that is another program's."""
        self._db.set_busy_timeout(10_000)
        with self._transaction("immediate"):
            ours = self._sql("pragma application_id")[0][0] == _APPLICATION
            found = self._sql("pragma user_version")[0][0]
            if not ours and self._sql("select count(*) from sqlite_master")[0][0]:
                raise BadInput(f"{path!r} is a database of another program; name another file")
            if not ours:
                self._sql(_TABLES)
                self._sql(f"pragma application_id = {_APPLICATION}")
                self._sql(f"pragma user_version = {_SCHEMA}")
            elif found != _SCHEMA:
                raise FormatError(
                    f"{path} has schema {found}, this release reads {_SCHEMA}: upgrade foldline"
                )
        self._sql("pragma journal_mode = wal")
        self._sql("pragma synchronous = full")

    async def append(self, name: Name, events: Sequence[Event], *, after: int) -> int:
        """Add events behind `after`, all or nothing."""
        with self._transaction("immediate"):
            found = self._head(name)
            if found != after:
                raise Conflict(name.session, after, found)
            for seq, event in enumerate(events, after + 1):
                edit = isinstance(event, Edit)
                self._sql(_INSERT, (*name, seq, log.kind(event), edit, log.encode(event)))
        return after + len(events)

    async def read(self, name: Name, lo: int, hi: int) -> list[Logged]:
        """The events from `lo` up to and including `hi`."""
        return self._read(name, lo, hi)

    async def tail(self, name: Name, *, at: int | None = None) -> Tail:
        """The newest edit's spine and the events it names, by key, in one snapshot."""
        events: dict[int, Event] = {}
        with self._transaction("deferred"):
            head = self._head(name) if at is None else min(at, self._head(name))
            spine = self._spine(name, head)
            for segment in spine.segments:
                if isinstance(segment, Range):
                    last = head if segment.hi is None else min(segment.hi, head)
                    events.update(self._read(name, segment.lo, last))
            for seq in spines.needs(spine):
                events.update(self._read(name, seq, seq))
        return Tail(spine, [Logged(seq, events[seq]) for seq in sorted(events)], head)

    async def close(self) -> None:
        """Close the database; a second time does nothing."""
        self._db.close()

    def _head(self, name: Name) -> int:
        found = self._sql(_HEAD, name)[0][0]
        return -1 if found is None else found

    def _read(self, name: Name, lo: int, hi: int) -> list[Logged]:
        return [Logged(seq, log.decode(body)) for seq, body in self._sql(_READ, (*name, lo, hi))]

    def _spine(self, name: Name, at: int) -> Spine:
        for (body,) in self._sql(_EDIT, (*name, at)):
            edit = log.decode(body)
            if isinstance(edit, Edit):
                return edit.spine
        return Spine()

    @contextmanager
    def _transaction(self, mode: str) -> Generator[None]:
        self._sql(f"begin {mode}")
        try:
            yield
        except BaseException:
            self._sql("rollback")
            raise
        self._sql("commit")

    def _sql(self, statement: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        run = cast("Any", self._db).execute  # its stubs name a buffer type that no checker knows
        try:
            return run(statement, bindings).fetchall()
        except apsw.ConnectionClosedError as fault:
            raise BadInput("the session is closed; open it again") from fault
