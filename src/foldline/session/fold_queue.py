"""The queue of folds on PostgreSQL, and the narrator that leaves narratives to workers.

    async with Queue("postgresql://host/db") as queue:
        await queue.defer(Name("local", "main"), install=True)      # False: it is queued already

The tables are procrastinate's, in a schema beside the store's (`foldline_jobs`). A session's fold
is queued at most once and runs one at a time. The queue names sessions of all tenants but holds
nothing that was said; a row goes when its job is done. Losing it is harmless: sessions ask again.

Needs the extra `[worker]`, and a server that is reached without a transaction pooler.
"""

import logging
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
from foldline.session.summaries import read_narrator_state, read_prepared
from foldline.stores.base import Name
from foldline.stores.postgres.connections import sid_of
from foldline.stores.postgres.schema import hold_migration_lock
from foldline.stores.postgres.url import PostgresSchema, parse_postgres_url

TASK = "foldline.fold"
# The table itself, not to_regnamespace(): that may be cached from before we had the lock.
_SEEN = "select obj_description(oid, 'pg_namespace') from pg_namespace where nspname = %s"
_COUNTS = "select status::text as status, count(*) as jobs from procrastinate_jobs group by 1"
# Every job has a lock, which is looked up among all that wait: a third faster with 800 jobs.
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
_LACKS_JOBS = (
    "select 1 from pg_roles where rolname = %s and not has_schema_privilege(rolname, %s, 'usage')"
)
_AGAIN = 30.0  # seconds in which a view's narrative is not deferred a second time
_CLOSING = 0.5  # seconds that closing a session waits for its job to be queued


class Queue:
    """The jobs of one store."""

    def __init__(self, address: str, *, connections: int = 2) -> None:
        self.place = parse_postgres_url(address)
        self.schema = f"{self.place.schema}_jobs"
        self.name = self.place.schema
        """The queue's name: notifications reach a whole database and carry it."""
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
            await _create_tables(self.place, self.schema)
            await self.app.open_async()
        except (psycopg.Error, exceptions.ProcrastinateException) as fault:
            raise _translate_fault(self.place, fault) from fault
        except BaseException:
            await self.app.close_async()  # an abandoned pool would keep connecting
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
        """Queue a session's fold, to start after `seconds`; False if it is queued already."""
        lock = sid_of(name).hex
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
            raise _translate_fault(self.place, fault) from fault
        return True

    async def count_jobs(self) -> Counter[str]:
        """Count the jobs that are `todo` and `doing`; finished ones are deleted."""
        try:
            rows = await self.connector.execute_query_all_async(_COUNTS)
        except exceptions.ProcrastinateException as fault:
            raise _translate_fault(self.place, fault) from fault
        return Counter({row["status"]: row["jobs"] for row in rows})


async def defer_fold(address: str, name: Name, *, install: bool = False) -> bool:
    """Queue one session's fold on a new connection; False if it is queued already."""
    queue = Queue(address)
    try:
        await _create_tables(queue.place, queue.schema)
        async with await _open_connection(queue.place, options=queue.options) as connection:
            return await queue.defer(name, install=install, through=connection)
    except psycopg.Error as fault:
        raise _translate_fault(queue.place, fault) from fault


async def migrate_queue(address: str) -> None:
    """Create the jobs' tables, and give the role of programs its rights in them."""
    queue = Queue(address)
    try:
        await _create_tables(queue.place, queue.schema)
        async with (
            await _open_connection(queue.place) as connection,
            hold_migration_lock(connection, f"jobs of {queue.schema}"),
        ):
            grant = _GRANT.replace("{schema}", queue.schema).replace("{role}", queue.place.role)
            await connection.execute(grant.encode())
    except psycopg.Error as fault:
        raise _translate_fault(queue.place, fault) from fault


async def list_pending_queue(address: str) -> list[str]:
    """Say what `migrate_queue` would do; nothing is changed."""
    queue = Queue(address)
    newest = max(file.name for file in migrations_path.glob("*.sql"))
    try:
        async with await _open_connection(queue.place) as connection:
            if not await _has_our_tables(connection, queue.place, queue.schema, newest):
                return [f"the workers' jobs, in schema {queue.schema}"]
            named = (queue.place.role, queue.schema)
            row = await (await connection.execute(_LACKS_JOBS, named)).fetchone()
    except psycopg.Error as fault:
        raise _translate_fault(queue.place, fault) from fault
    return [f"rights of {queue.place.role} in schema {queue.schema}"] if row else []


async def _open_connection(place: PostgresSchema, **options: Any) -> "psycopg.AsyncConnection[Any]":
    return await psycopg.AsyncConnection.connect(
        place.address, autocommit=True, prepare_threshold=None, connect_timeout=10, **options
    )


async def _create_tables(place: PostgresSchema, schema: str) -> None:
    """Create the tables once, even if several processes start; check that they are ours."""
    newest = max(file.name for file in migrations_path.glob("*.sql"))
    async with await _open_connection(place) as connection:
        if await _has_our_tables(connection, place, schema, newest):
            return
        async with hold_migration_lock(connection, f"jobs of {schema}"):
            if await _has_our_tables(connection, place, schema, newest):
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


async def _has_our_tables(
    connection: "psycopg.AsyncConnection[Any]", place: PostgresSchema, schema: str, newest: str
) -> bool:
    row = await (await connection.execute(_SEEN, (schema,))).fetchone()
    if row is None:
        return False
    owner = str(row[0] or "")
    if owner != f"foldline, procrastinate {newest}":
        raise FormatError(
            f"the jobs of {place.shown} are kept by {owner or 'another program'}, this process has "
            f"procrastinate {newest}; end all workers and drop the schema {schema}: "
            "what is queued is wished again"
        )
    return True


def _translate_fault(place: PostgresSchema, fault: Exception) -> Exception:
    cause = fault.__cause__ or fault
    if isinstance(cause, psycopg.errors.InsufficientPrivilege):
        return BadInput(
            f"this login may not make the jobs' tables of {place.shown}: "
            f"{cause.diag.message_primary}; run `foldline migrate` as the schema's owner"
        )
    words = " ".join(str(cause).split()) or type(cause).__name__
    return StoreFailed(f"the jobs of {place.shown} cannot be reached: {words}")


@dataclass(slots=True)
class Deferring:
    """Leaves narratives to a worker: queues a job in the background."""

    address: str
    deferred: int = 0
    """How many jobs were queued, now or before."""
    failed: int = 0
    """How many were lost because the queue could not be reached."""
    reason: str = ""
    """Why the last one was lost."""
    _task: "Task[None] | None" = field(default=None, init=False)
    _before: tuple[fold.Prepared | None, float] = field(default=(None, 0.0), init=False)

    async def find_prepared(self, live: Live) -> fold.Prepared | None:
        """Return what is prepared for the current view."""
        return await read_prepared(live.store, live.name, live.view.spine)

    def schedule_narrative(self, live: Live, ask: fold.Ask) -> None:
        """Queue a job in the background, unless that was just done."""
        last, when = self._before
        again = last is not None and last.is_valid_for(ask.base) and monotonic() - when < _AGAIN
        if not again and (self._task is None or self._task.done()):
            self._before = (fold.Prepared(ask.base, ask.range, ()), monotonic())
            self._task = create_task(self._defer_request(live), name=f"wish of {live.name.session}")

    async def fetch_narrative(self, live: Live, focus: str) -> fold.Prepared | None:  # noqa: ARG002 - a port
        """Return what is prepared: a fold by hand waits for no worker."""
        return await self.find_prepared(live)

    async def close(self) -> None:
        """Wait a moment for the last job to be queued."""
        if self._task is not None and not self._task.done():
            with suppress(TimeoutError):
                async with timeout(_CLOSING):
                    await self._task

    async def _defer_request(self, live: Live) -> None:
        try:
            if (await read_narrator_state(live.store, live.name)).until > time():
                return  # it failed recently: a worker would only skip it
            await defer_fold(self.address, live.name)
            self.deferred += 1
        except CancelledError:
            self._record_failure("the session was closed")
            raise
        except Exception as fault:  # noqa: BLE001 - no request may fail because of it
            self._record_failure(str(fault))

    def _record_failure(self, reason: str) -> None:
        logging.getLogger("foldline.session").warning("a fold was not queued: %s", reason)
        self.failed, self.reason = self.failed + 1, reason
        self._before = (None, 0.0)
