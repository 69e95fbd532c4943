"""The queue of folds on PostgreSQL, and sessions that defer to it what a worker should do.

    async with Queue("postgresql://host/db") as queue:
        await queue.defer(Name("local", "main"), install=True)      # False: it is queued already

Knows procrastinate's tables, in a schema of their own beside the store's (`foldline_jobs`), and
that a wish is one row: one at a time for a session, once in the queue. Refuses to know what a job
does. The queue names sessions of all tenants and holds nothing that they said; a row goes when its
job is done. Nothing in it is precious: sessions wish again what they still want.

Needs the extra `[worker]`, and a server that is spoken to without a pooler of transactions.
"""

from asyncio import CancelledError, Task, create_task, timeout
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any, Self

import procrastinate
import psycopg
from procrastinate import exceptions
from procrastinate.schema import SchemaManager, migrations_path
from psycopg.conninfo import conninfo_to_dict

from foldline.core.edits import fold
from foldline.errors import BadInput, FormatError, StoreFailed
from foldline.session.log_handle import Live
from foldline.session.summaries import prepared, state
from foldline.stores.base import Name
from foldline.stores.postgres.connections import sid
from foldline.stores.postgres.url import PostgresSchema, place

TASK = "foldline.fold"
_LOCK = "select pg_advisory_xact_lock(hashtextextended('foldline jobs of ' || %s, 0))"
# The table itself, not to_regnamespace(): that may still know what was so before we had the lock.
_SEEN = "select obj_description(oid, 'pg_namespace') from pg_namespace where nspname = %s"
_COUNTS = "select status::text as status, count(*) as jobs from procrastinate_jobs group by 1"
# Every job of ours has a lock, which is looked up among all that wait: a third faster with 800.
_INDEX = "create index foldline_lock on procrastinate_jobs (lock) where status in ('todo', 'doing')"
_GRANT = """
    do $$ begin
        if to_regrole('{role}') is not null then
            grant usage on schema {schema} to {role};
            grant all on all tables in schema {schema} to {role};
            grant all on all sequences in schema {schema} to {role};
        end if;
    end $$
"""
_AGAIN = 30.0  # seconds in which a view's wish is not deferred a second time
_CLOSING = 0.5  # seconds that whoever closes a session waits for its wish to be queued


class Queue:
    """The jobs of one store."""

    def __init__(self, address: str, *, connections: int = 2) -> None:
        self.place = place(address)
        self.schema = f"{self.place.schema}_jobs"
        self.name = self.place.schema
        """The queue's own: channels belong to a database, and are woken by their queue's name."""
        options = conninfo_to_dict(self.place.address).get("options") or ""
        self.options = f"{options} -c search_path={self.schema}".strip()
        self.connector = procrastinate.PsycopgConnector(
            conninfo=self.place.address,
            kwargs={"options": self.options},
            min_size=1,
            max_size=connections,
            name=self.schema,
            timeout=10.0,
        )
        self.app = procrastinate.App(connector=self.connector)

    async def __aenter__(self) -> Self:
        try:
            await _made(self.place, self.schema)
            await self.app.open_async()
        except (psycopg.Error, exceptions.ProcrastinateException) as fault:
            raise _failed(self.place, fault) from fault
        except BaseException:
            await self.app.close_async()  # a pool that nobody waits for goes on connecting
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.app.close_async()

    async def defer(
        self,
        name: Name,
        *,
        install: bool = False,
        tries: int = 0,
        seconds: float = 0.0,
        through: "psycopg.AsyncConnection[Any] | None" = None,
    ) -> bool:
        """Queue a session's fold, to begin in so many seconds; False where it is queued already."""
        lock = sid(name).hex
        job = self.app.configure_task(
            TASK,
            queue=self.name,
            lock=lock,
            queueing_lock=f"{lock} install" if install else lock,
            connection=through,
            schedule_in={"milliseconds": round(seconds * 1_000)} if seconds else None,
        )
        try:
            await job.defer_async(
                tenant=name.tenant, session=name.session, install=install, tries=tries
            )
        except exceptions.AlreadyEnqueued:
            return False
        except exceptions.ProcrastinateException as fault:
            raise _failed(self.place, fault) from fault
        return True

    async def counts(self) -> Counter[str]:
        """How many jobs are `todo` and `doing`; what is done is gone."""
        try:
            rows = await self.connector.execute_query_all_async(_COUNTS)
        except exceptions.ProcrastinateException as fault:
            raise _failed(self.place, fault) from fault
        return Counter({row["status"]: row["jobs"] for row in rows})


async def defer(address: str, name: Name, *, install: bool = False) -> bool:
    """Queue one session's fold, by a connection of its own; False where it is queued already."""
    queue = Queue(address)
    try:
        await _made(queue.place, queue.schema)
        async with await _connected(queue.place, options=queue.options) as connection:
            return await queue.defer(name, install=install, through=connection)
    except psycopg.Error as fault:
        raise _failed(queue.place, fault) from fault


async def _connected(place: PostgresSchema, **given: Any) -> "psycopg.AsyncConnection[Any]":
    return await psycopg.AsyncConnection.connect(
        place.address, autocommit=True, prepare_threshold=None, connect_timeout=10, **given
    )


async def _made(place: PostgresSchema, schema: str) -> None:
    """Make the tables once, whoever comes at the same time; look whose they are."""
    newest = max(file.name for file in migrations_path.glob("*.sql"))
    async with await _connected(place) as connection:
        if await _ours(connection, place, schema, newest):
            return
        async with connection.transaction():
            await connection.execute(_LOCK, (schema,))
            if await _ours(connection, place, schema, newest):
                return
            for statement in (
                f"create schema {schema}",
                f"set local search_path = {schema}",
                SchemaManager.get_schema(),
                _INDEX,
                f"comment on schema {schema} is 'foldline, procrastinate {newest}'",
                _GRANT.replace("{schema}", schema).replace("{role}", place.role),
            ):
                await connection.execute(statement.encode())


async def _ours(
    connection: "psycopg.AsyncConnection[Any]", place: PostgresSchema, schema: str, newest: str
) -> bool:
    row = await (await connection.execute(_SEEN, (schema,))).fetchone()
    if row is None:
        return False
    told = str(row[0] or "")
    if told != f"foldline, procrastinate {newest}":
        raise FormatError(
            f"the jobs of {place.shown} are kept by {told or 'another program'}, this process has "
            f"procrastinate {newest}; end all workers and drop the schema {schema}: "
            "what is queued is wished again"
        )
    return True


def _failed(place: PostgresSchema, fault: Exception) -> Exception:
    """A fault of the queue as one of ours."""
    cause = fault.__cause__ or fault
    if isinstance(cause, psycopg.errors.InsufficientPrivilege):
        return BadInput(
            f"this login may not make the jobs' tables of {place.shown}: "
            f"{cause.diag.message_primary}; run `foldline worker` once as the schema's owner"
        )
    words = " ".join(str(cause).split()) or type(cause).__name__
    return StoreFailed(f"the jobs of {place.shown} cannot be reached: {words}")


@dataclass(slots=True)
class Deferring:
    """Narratives by a worker: a session only says that it wants one, beside its requests."""

    address: str
    deferred: int = 0
    """How many wishes were queued, or were so already."""
    failed: int = 0
    """How many were lost, because the queue could not be reached."""
    reason: str = ""
    """Why the last of them was."""
    _task: "Task[None] | None" = field(default=None, init=False)
    _before: tuple[fold.Prepared | None, float] = field(default=(None, 0.0), init=False)

    async def find(self, live: Live) -> fold.Prepared | None:
        """What is prepared for the view as it is."""
        return await prepared(live.store, live.name, live.view.spine)

    def wanted(self, live: Live, ask: fold.Ask) -> None:
        """Say so to the workers, unless that was just done; nobody waits."""
        last, when = self._before
        again = last is not None and last.suits(ask.base) and monotonic() - when < _AGAIN
        if not again and (self._task is None or self._task.done()):
            self._before = (fold.Prepared(ask.base, ask.range, ()), monotonic())
            self._task = create_task(self._defer(live), name=f"wish of {live.name.session}")

    async def now(self, live: Live, focus: str) -> fold.Prepared | None:  # noqa: ARG002 - a port
        """A fold by hand waits for no worker: it takes what is prepared."""
        return await self.find(live)

    async def close(self) -> None:
        """Let the last wish be queued, if that is a matter of a moment."""
        if self._task is not None and not self._task.done():
            with suppress(TimeoutError):
                async with timeout(_CLOSING):
                    await self._task

    async def _defer(self, live: Live) -> None:
        try:
            if (await state(live.store, live.name)).until > time():
                return  # it failed lately: a worker would only say so
            await defer(self.address, live.name)
            self.deferred += 1
        except CancelledError:
            self._lost("the session was closed")
            raise
        except Exception as fault:  # noqa: BLE001 - whatever it is, no request hears of it
            self._lost(str(fault))

    def _lost(self, reason: str) -> None:
        self.failed, self.reason = self.failed + 1, reason
        self._before = (None, 0.0)
