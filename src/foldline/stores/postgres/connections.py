"""Connections to PostgreSQL, and one statement on one of them.

Knows the pool, what a fault of it means, and which statements may be repeated. Refuses to know what
they are for. Every statement is a call of one of our functions, and its first value is the tenant,
set for this transaction in the same round trip: none can be asked without.
"""

import asyncio
import hashlib
import os
import select
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, TypeAlias
from uuid import UUID

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from foldline.errors import BadInput, FoldlineError, FormatError, StoreFailed
from foldline.stores.base import Name
from foldline.stores.postgres import schema
from foldline.stores.postgres.url import PostgresSchema

Connection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"
PATIENCE = 30.0
"""Seconds that an operation waits for a server that is away."""
_PAUSES = (0.02, 0.1, 0.5, 1.0)
_LOGIN = """
    select rolsuper or rolbypassrls, pg_backend_pid() from pg_roles where rolname = current_user
"""
_CLOSED = "the session is closed; open it again"
_UNKNOWN = "whether it was done is not known: look at the log's end, then repeat the call"


def call(function: str, *types: str) -> str:
    """The statement that calls one of our functions, behind the tenant."""
    values = ", ".join(
        ("set_config('foldline.tenant', %b::text, true)", *(f"%b::{t}" for t in types))
    )
    return f"select * from {{schema}}.{function}({values})"  # noqa: S608 - names of ours alone


async def pause(tries: int) -> None:
    """Wait before something is tried again: longer each time."""
    await asyncio.sleep(_PAUSES[min(tries, len(_PAUSES)) - 1])


@lru_cache(maxsize=4_096)
def sid(name: Name) -> UUID:
    """What a session's rows are found by; a tenant's own entries are those of session ""."""
    try:
        parts = [part.encode() for part in name]
    except UnicodeEncodeError as fault:
        raise BadInput(f"the name {name!r} is no Unicode text: {fault}") from fault
    if not name.tenant or b"\0" in parts[0] + parts[1]:
        raise BadInput(f"{name!r}: a tenant's name is not empty, and PostgreSQL keeps no NUL")
    return UUID(bytes=hashlib.sha256(b"\0".join(parts)).digest()[:16])


class Connections:
    """The pool of one process, opened by the first statement."""

    def __init__(self, place: PostgresSchema) -> None:
        self.place = place
        self._opening = asyncio.Lock()
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._process = os.getpid()
        self._closed = False
        self._texts: dict[str, bytes] = {}

    def text(self, statement: str) -> bytes:
        """A statement in our schema."""
        found = self._texts.get(statement)
        if found is None:
            found = self.place.put_in(statement)
            self._texts[statement] = found
        return found

    async def ask(self, statement: str, *values: Any, again: bool = False) -> list[tuple[Any, ...]]:
        """The rows of one statement; `again` says that doing it twice is doing it once."""
        started = time.monotonic()
        tries = 0
        while True:
            try:
                async with self.one() as connection:
                    cursor = await connection.execute(self.text(statement), values, binary=True)
                    return await cursor.fetchall()
            except psycopg.Error as fault:
                lost = again and is_lost(fault)
                if not (lost or is_undone(fault)) or time.monotonic() - started > PATIENCE:
                    raise self.meaning(fault) from fault
            tries += 1
            await pause(tries)

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[Connection]:
        """A connection that still stood a moment ago."""
        pool = self._pool or await self._opened()
        connection = await pool.getconn(PATIENCE)
        for _ in range(self.place.pool):  # one after another, where a restart ended them all
            if is_standing(connection):
                break
            await connection.close()
            await pool.putconn(connection)
            connection = await pool.getconn(PATIENCE)
        try:
            yield connection
        finally:
            await pool.putconn(connection)

    async def close(self) -> None:
        """End all connections; a second time does nothing."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    def check(self) -> None:
        """Raise where nothing can be asked here any more."""
        if os.getpid() != self._process:
            raise BadInput("this store was opened before a fork; open it again in this process")
        if self._closed:
            raise BadInput(_CLOSED)

    async def _opened(self) -> "AsyncConnectionPool[Connection]":
        self.check()
        async with self._opening:
            if self._pool is not None:
                return self._pool
            try:
                first, bypasses = await self._first()
            except psycopg.OperationalError as fault:
                raise StoreFailed(
                    f"no connection to {self.place.shown}: {fault}; "
                    "start the server or mend the address"
                ) from fault
            except psycopg.ProgrammingError as fault:
                raise BadInput(f"{self.place.shown} cannot be opened: {fault}") from fault
            except psycopg.Error as fault:
                raise self.meaning(fault) from fault

            async def configure(connection: Connection) -> None:
                if bypasses:
                    await connection.execute(f"set role {self.place.role}".encode())

            pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
                self.place.address,
                connection_class=_beginning_with(first),
                kwargs={"autocommit": True, "prepare_threshold": first.prepare_threshold},
                min_size=1,
                max_size=self.place.pool,
                configure=configure,
                open=False,
                name=f"foldline {self.place.schema}",
            )
            await pool.open(wait=True)  # it has its first one; who does not wait gets a second
            self._pool = pool
            return pool

    async def _first(self) -> tuple[Connection, bool]:
        """A connection to a migrated database, and whether it goes round row-level security."""
        connection = await psycopg.AsyncConnection.connect(
            self.place.address, autocommit=True, prepare_threshold=None, connect_timeout=10
        )
        try:
            return connection, await self._readied(connection)
        except BaseException:
            await connection.close()
            raise

    async def _readied(self, connection: Connection) -> bool:
        await schema.prepare(connection, self.place)
        found = await connection.execute(_LOGIN)
        bypasses, backend = await found.fetchone() or (False, 0)
        # A pooler tells a number of its own for the process that serves us, and one of before
        # 1.21 forgets prepared statements between transactions.
        if backend == connection.info.backend_pid:
            connection.prepare_threshold = 0
        elif bypasses:
            raise BadInput(
                f"this login of {self.place.shown} goes round row-level security, and behind a "
                "connection pooler no other role can be taken; log in as a role without "
                f"SUPERUSER and BYPASSRLS that is a member of {self.place.role}"
            )
        return bool(bypasses)

    def meaning(self, fault: psycopg.Error, *, alone: bool = True) -> FoldlineError:
        """A driver's error as one of ours; of several calls nobody knows which it ended."""
        where = self.place.shown
        match fault:
            case PoolClosed():
                return BadInput(_CLOSED)
            case PoolTimeout():
                way = "start the server, or give more connections by ?pool=NUMBER"
                way = way if alone else f"{way}; {_UNKNOWN}"
                return StoreFailed(f"no connection to {where} for {PATIENCE:.0f} s; {way}")
            case psycopg.errors.UndefinedFunction() | psycopg.errors.UndefinedTable():
                return FormatError(f"{where} lacks what this release needs: {fault}; open it anew")
            case psycopg.errors.DataError():
                return BadInput(f"{where} cannot keep this: {fault}")
            case _ if is_lost(fault) or not alone:
                way = _UNKNOWN
            case _:
                way = "nothing was written; mend what the server names, then repeat the call"
        return StoreFailed(f"the store {where} failed: {str(fault).strip()}; {way}")


def _beginning_with(first: Connection) -> type[Connection]:
    """What a pool makes its connections by: the first one is there already."""
    there = [first]

    class Begun(psycopg.AsyncConnection[tuple[Any, ...]]):
        @classmethod
        async def connect(cls, conninfo: str = "", **kwargs: Any) -> Connection:
            if there:
                return there.pop()
            return await psycopg.AsyncConnection.connect(conninfo, **kwargs)

    return Begun


def is_lost(fault: psycopg.Error) -> bool:
    """Whether the connection ended, so that nobody knows what became of the statement."""
    state = fault.sqlstate or ""
    if isinstance(fault, PoolTimeout | PoolClosed):
        return False
    if fault.diag.severity_nonlocalized in ("FATAL", "PANIC"):
        return True  # the server's last word: a journal that finds no room may hold the commit
    return isinstance(fault, psycopg.OperationalError | psycopg.InterfaceError) and (
        not state or state.startswith(("08", "57P"))
    )


def is_undone(fault: psycopg.Error) -> bool:
    """Whether the server took the transaction back and asks to repeat it."""
    return (fault.sqlstate or "").startswith("40")


def is_standing(connection: Connection) -> bool:
    """Whether an idle connection has not been ended by the other side, as far as we were told."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)  # nobody speaks to us unasked but to say good-bye
