"""The connection pool, running one statement on it, and the meaning of its errors.

Every statement calls one of our SQL functions, and its first value is the tenant, set for this
transaction in the same round trip: no statement can run without one.
"""

import asyncio
import hashlib
import os
import select
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from foldline.errors import BadInput, FoldlineError, FormatError, StoreFailed
from foldline.stores.base import Name
from foldline.stores.postgres import schema
from foldline.stores.postgres.url import PostgresSchema

T = TypeVar("T")
Connection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"
PATIENCE = 30.0
"""Seconds that an operation waits for a server that does not answer."""
_PAUSES = (0.02, 0.1, 0.5, 1.0)
_LOGIN = """
    select rolsuper or rolbypassrls, pg_backend_pid() from pg_roles where rolname = current_user
"""
_CLOSED = "the session is closed; open it again"
_UNKNOWN = "whether it was done is not known: look at the log's end, then repeat the call"


def build_call_statement(function: str, *types: str) -> str:
    """Build the statement that sets the tenant and calls one of our functions."""
    values = ", ".join(
        ("set_config('foldline.tenant', %b::text, true)", *(f"%b::{t}" for t in types))
    )
    return f"select * from {{schema}}.{function}({values})"  # noqa: S608 - no user's text in it


async def wait_before_retry(tries: int) -> None:
    """Wait before another try, longer each time."""
    await asyncio.sleep(_PAUSES[min(tries, len(_PAUSES)) - 1])


@lru_cache(maxsize=4_096)
def sid_of(name: Name) -> UUID:
    """Return the id of a session's rows; session "" holds a tenant's own side values."""
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

    def encode_statement(self, statement: str) -> bytes:
        """Encode a statement with our schema's name in it; cached."""
        text = self._texts.get(statement)
        if text is None:
            text = self._texts[statement] = self.place.put_in(statement)
        return text

    async def run_statement(
        self, statement: str, *values: Any, again: bool = False
    ) -> list[tuple[Any, ...]]:
        """Return the rows of one statement; `again` says that it may safely run twice."""

        async def run(connection: Connection) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(self.encode_statement(statement), values, binary=True)
            return await cursor.fetchall()

        return await self.run_with_retries(run, again=again)

    async def run_with_retries(
        self, run: Callable[[Connection], Awaitable[T]], *, again: bool = False
    ) -> T:
        """Run something on a connection; `again` says that it may safely run twice."""
        started = time.monotonic()
        tries = 0
        while True:
            try:
                async with self.take_connection() as connection:
                    return await run(connection)
            except psycopg.Error as fault:
                lost = again and is_lost(fault)
                if not (lost or is_undone(fault)) or time.monotonic() - started > PATIENCE:
                    raise self.translate_error(fault) from fault
            tries += 1
            await wait_before_retry(tries)

    @asynccontextmanager
    async def take_connection(self) -> AsyncGenerator[Connection]:
        """Take a connection that was still open a moment ago."""
        pool = self._pool or await self._open_pool()
        connection = await pool.getconn(PATIENCE)
        for _ in range(self.place.pool):  # a server's restart may have ended them all
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
        """Close all connections; a second call does nothing."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    def check_open(self) -> None:
        """Raise `BadInput` if the store is closed or was opened before a fork."""
        if os.getpid() != self._process:
            raise BadInput("this store was opened before a fork; open it again in this process")
        if self._closed:
            raise BadInput(_CLOSED)

    async def _open_pool(self) -> "AsyncConnectionPool[Connection]":
        self.check_open()
        async with self._opening:
            if self._pool is not None:
                return self._pool
            try:
                first, bypasses = await self._open_first_connection()
            except psycopg.OperationalError as fault:
                raise StoreFailed(
                    f"no connection to {self.place.shown}: {fault}; "
                    "start the server or mend the address"
                ) from fault
            except psycopg.ProgrammingError as fault:
                raise BadInput(f"{self.place.shown} cannot be opened: {fault}") from fault
            except psycopg.Error as fault:
                raise self.translate_error(fault) from fault

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
            await pool.open(wait=True)  # without waiting the pool would open a second connection
            self._pool = pool
            return pool

    async def _open_first_connection(self) -> tuple[Connection, bool]:
        """Connect and migrate; also return whether the login bypasses row-level security."""
        connection = await psycopg.AsyncConnection.connect(
            self.place.address, autocommit=True, prepare_threshold=None, connect_timeout=10
        )
        try:
            return connection, await self._prepare_connection(connection)
        except BaseException:
            await connection.close()
            raise

    async def _prepare_connection(self, connection: Connection) -> bool:
        await schema.migrate_schema(connection, self.place)
        cursor = await connection.execute(_LOGIN)
        bypasses, backend = await cursor.fetchone() or (False, 0)
        # A pooler reports a process number of its own, and PgBouncer before 1.21 forgets prepared
        # statements between transactions.
        if backend == connection.info.backend_pid:
            connection.prepare_threshold = 0
        elif bypasses:
            raise BadInput(
                f"this login of {self.place.shown} goes round row-level security, and behind a "
                "connection pooler no other role can be taken; log in as a role without "
                f"SUPERUSER and BYPASSRLS that is a member of {self.place.role}"
            )
        return bool(bypasses)

    def translate_error(self, fault: psycopg.Error, *, alone: bool = True) -> FoldlineError:
        """Translate a driver's error; unless `alone`, nobody knows which call it ended."""
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
    """Return a connection class for a pool whose first connection is already open."""
    opened = [first]

    class Begun(psycopg.AsyncConnection[tuple[Any, ...]]):
        @classmethod
        async def connect(cls, conninfo: str = "", **kwargs: Any) -> Connection:
            if opened:
                return opened.pop()
            return await psycopg.AsyncConnection.connect(conninfo, **kwargs)

    return Begun


def is_lost(fault: psycopg.Error) -> bool:
    """Whether the connection ended, so that nobody knows what became of the statement."""
    state = fault.sqlstate or ""
    if isinstance(fault, PoolTimeout | PoolClosed):
        return False
    if fault.diag.severity_nonlocalized in ("FATAL", "PANIC"):
        return True  # the server died: when its journal is full, the commit may be in it or not
    return isinstance(fault, psycopg.OperationalError | psycopg.InterfaceError) and (
        not state or state.startswith(("08", "57P"))
    )


def is_undone(fault: psycopg.Error) -> bool:
    """Whether the server rolled the transaction back and asks to repeat it."""
    return (fault.sqlstate or "").startswith("40")


def is_standing(connection: Connection) -> bool:
    """Whether the server has not closed an idle connection, as far as we know."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)  # a server writes to an idle connection only to end it
