"""The questions that `Health` answers, asked of a server.

    async with await opened(place) as connection:
        health = await look(Asking(connection, place))

Knows the catalogs. Each question is a transaction that cannot write and that a clock ends. Refuses
to know what a good answer is, and to migrate: a database is left as it was found.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

import psycopg

from foldline.stores.postgres.connections import Connection
from foldline.stores.postgres.health import (
    Applied,
    Health,
    IndexHealth,
    Login,
    OldestTransaction,
    PendingWork,
    Routine,
    RowPolicy,
    ServerState,
    Slot,
    Table,
    Unseen,
)
from foldline.stores.postgres.url import PostgresSchema

T = TypeVar("T")
_UNITS = {"B": 1, "kB": 1 << 10, "8kB": 1 << 13, "MB": 1 << 20, "ms": 1, "s": 1_000, "min": 60_000}
_SECONDS = 15  # that one question may take
_SETTINGS = (
    "autovacuum", "default_transaction_read_only", "effective_cache_size", "fsync",
    "full_page_writes", "idle_in_transaction_session_timeout", "lock_timeout", "max_connections",
    "max_wal_size", "shared_buffers", "statement_timeout", "superuser_reserved_connections",
    "synchronous_commit", "track_counts", "transaction_timeout", "wal_level",
)  # fmt: skip


class RunStatement(Protocol):
    """One statement of a transaction."""

    async def __call__(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Its rows."""
        ...


class ReadingConnection:
    """A connection that only reads."""

    def __init__(self, connection: Connection, place: PostgresSchema) -> None:
        self.connection = connection
        self.place = place

    async def __call__(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement, in a transaction that ends with it."""
        async with self.together() as run:
            return await run(statement, *values)

    @asynccontextmanager
    async def together(self) -> AsyncGenerator[RunStatement]:
        """Statements of one transaction: behind a pooler the next may be another server process."""

        async def run(statement: str, *values: Any) -> list[tuple[Any, ...]]:
            cursor = await self.connection.execute(self._text(statement), values or None)
            return await cursor.fetchall() if cursor.description else []

        async with self.connection.transaction():
            await run(f"set local statement_timeout = '{_SECONDS}s'")
            await run("set local lock_timeout = '2s'")
            yield run

    def _text(self, statement: str) -> bytes:
        return self.place.put_in(statement)


async def opened(place: PostgresSchema) -> Connection:
    """A connection whose transactions cannot write."""
    connection = await psycopg.AsyncConnection.connect(
        place.address, autocommit=True, prepare_threshold=None, connect_timeout=10
    )
    await connection.set_read_only(True)
    return connection


async def seen(work: Coroutine[Any, Any, T]) -> T | Unseen:
    """An answer, or why there is none."""
    try:
        return await work
    except psycopg.errors.InsufficientPrivilege:
        return Unseen("this login may not see it")
    except psycopg.errors.QueryCanceled:
        return Unseen(f"the server took longer than {_SECONDS} s to tell")
    except (psycopg.errors.ProgrammingError, psycopg.errors.LockNotAvailable) as fault:
        return Unseen(f"the server does not tell: {fault.diag.message_primary}")


async def look(ask: ReadingConnection) -> Health:
    """Ask all questions."""
    about = await login(ask)
    there = about.owner is not None and about.enters

    async def of_schema(
        question: Callable[[ReadingConnection], Coroutine[Any, Any, T]],
    ) -> T | Unseen:
        return await seen(question(ask)) if there else Unseen("there is no schema to look at")

    hidden = Unseen("this login may not see it: grant pg_monitor to it")
    return Health(
        server=await server(ask),
        login=about,
        ages=await seen(_ages(ask)),
        slots=await seen(_slots(ask)),
        oldest=await seen(_oldest(ask)) if about.watches else hidden,
        applied=await of_schema(_applied),
        tables=await of_schema(_tables),
        policies=await of_schema(_policies),
        routines=await of_schema(_routines),
        indexes=await of_schema(_indexes),
        public=await of_schema(_public),
        waiting=await of_schema(_waiting),
    )


async def server(ask: ReadingConnection) -> ServerState:
    """The version, the settings that matter, and who is connected."""
    ((number, replica, taken, backend),) = await ask(
        "select current_setting('server_version_num')::int, pg_is_in_recovery(), "
        "(select count(*) from pg_stat_activity where backend_type is null "
        "or backend_type = 'client backend'), pg_backend_pid()"
    )
    rows = await ask(
        # Not `setting`: that is what this transaction has set for itself.
        "select name, reset_val, unit, enumvals from pg_settings where name = any (%s)",
        [*_SETTINGS, "default_toast_compression"],
    )
    settings = {
        name: int(setting) * _UNITS[unit] if unit else setting
        for name, setting, unit, _ in rows
        if name in _SETTINGS
    }
    return ServerState(
        number=number,
        replica=replica,
        settings=settings,
        lz4=any(kinds and "lz4" in kinds for *_, kinds in rows),
        taken=taken,
        pooled=backend != ask.connection.info.backend_pid,
    )


async def login(ask: ReadingConnection) -> Login:
    """Who we are, and what we may."""
    (row,) = await ask(
        """
        select m.rolname, m.rolsuper or m.rolbypassrls,
            m.rolsuper or pg_has_role(m.oid, 'pg_read_all_stats', 'usage'),
            r.oid is not null, coalesce(r.rolsuper or r.rolbypassrls, false),
            coalesce(pg_has_role(m.oid, r.oid, 'usage'), false), pg_get_userbyid(n.nspowner),
            coalesce(pg_has_role(m.oid, n.nspowner, 'usage'), false),
            coalesce(has_schema_privilege(n.oid, 'usage'), false)
        from pg_roles as m left join pg_roles as r on r.rolname = %s
            left join pg_namespace as n on n.nspname = %s
        where m.rolname = current_user
        """,
        ask.place.role,
        ask.place.schema,
    )
    name, bypasses, watches, there, role_bypasses, member, owner, owns, enters = row
    return Login(
        name=name,
        bypasses=bypasses,
        watches=watches,
        role=ask.place.role,
        role_there=there,
        role_bypasses=role_bypasses,
        member=member,
        owner=owner,
        owns=owns,
        enters=enters,
    )


async def _ages(ask: ReadingConnection) -> tuple[int, int]:
    (row,) = await ask(
        "select age(datfrozenxid), mxid_age(datminmxid) from pg_database "
        "where datname = current_database()"
    )
    return row[0], row[1]


async def _slots(ask: ReadingConnection) -> list[Slot]:
    rows = await ask(
        """
        select slot_name, active, coalesce(pg_wal_lsn_diff(
            case when pg_is_in_recovery() then pg_last_wal_replay_lsn()
            else pg_current_wal_lsn() end, restart_lsn), 0)::bigint
        from pg_replication_slots
        """
    )
    return [Slot(*row) for row in rows]


async def _oldest(ask: ReadingConnection) -> OldestTransaction | None:
    rows = await ask(
        """
        select pid, usename, state, seconds from (
            select pid, usename::text, state, extract(epoch from now() - xact_start)::float8
            from pg_stat_activity where xact_start is not null and pid <> pg_backend_pid()
                and backend_type = 'client backend'
            union all
            select 0, owner::text, 'prepared as ' || gid,
                extract(epoch from now() - prepared)::float8
            from pg_prepared_xacts
        ) as every (pid, usename, state, seconds) order by seconds desc limit 1
        """
    )
    return OldestTransaction(*rows[0]) if rows else None


async def _applied(ask: ReadingConnection) -> list[Applied]:
    ((there,),) = await ask("select to_regclass(%s) is not null", f"{ask.place.schema}.migrations")
    if not there:
        return []
    rows = await ask("select number, name, sha256, lives_with from {schema}.migrations order by 1")
    return [(row[0], row[1], row[2], row[3]) for row in rows]


async def _tables(ask: ReadingConnection) -> list[Table]:
    rows = await ask(
        """
        select c.relname, p.relname, coalesce(pg_get_expr(c.relpartbound, c.oid), ''),
            c.relrowsecurity, c.relforcerowsecurity, coalesce(pg_relation_size(c.oid), 0),
            coalesce(pg_indexes_size(c.oid), 0),
            coalesce(pg_total_relation_size(nullif(c.reltoastrelid, 0)), 0),
            greatest(coalesce(s.n_live_tup, 0), c.reltuples::bigint), coalesce(s.n_dead_tup, 0),
            c.reltuples >= 0,
            (select a.attcompression = 'l' from pg_attribute as a
                where a.attrelid = c.oid and a.attname = 'body'),
            array(select case when g.grantee = 0 then 'public' else pg_get_userbyid(g.grantee) end
                || ' ' || g.privilege_type from aclexplode(c.relacl) as g
                where g.grantee <> c.relowner)
        from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
            left join pg_inherits as i on i.inhrelid = c.oid
            left join pg_class as p on p.oid = i.inhparent
            left join pg_stat_all_tables as s on s.relid = c.oid
        where n.nspname = %s and c.relkind in ('r', 'p') order by c.relname
        """,
        ask.place.schema,
    )
    return [
        Table(
            **dict(zip(Table.__slots__, row[:-1], strict=False)),
            grants=tuple((who, what) for who, _, what in (one.rpartition(" ") for one in row[-1])),
        )
        for row in rows
    ]


async def _policies(ask: ReadingConnection) -> list[RowPolicy]:
    rows = await ask(
        """
        select c.relname, p.polname, p.polcmd = '*' and p.polroles = '{0}',
            coalesce(pg_get_expr(p.polqual, p.polrelid), ''),
            coalesce(pg_get_expr(p.polwithcheck, p.polrelid), '')
        from pg_policy as p join pg_class as c on c.oid = p.polrelid
        where c.relnamespace = %s::regnamespace order by 1, 2
        """,
        ask.place.schema,
    )
    return [RowPolicy(*row) for row in rows]


async def _routines(ask: ReadingConnection) -> list[Routine]:
    rows = await ask(
        """
        select proname, prosecdef, (
            select substr(one, 13) from unnest(proconfig) as one where one like 'search_path=%%'
        ), proacl is null or exists (select from aclexplode(proacl) as g where g.grantee = 0),
            oid::regprocedure::text
        from pg_proc where pronamespace = %s::regnamespace order by 1, 5
        """,
        ask.place.schema,
    )
    return [Routine(*row) for row in rows]


async def _indexes(ask: ReadingConnection) -> list[IndexHealth]:
    rows = await ask(
        """
        select c.relname, i.indisvalid from pg_index as i join pg_class as c on c.oid = i.indexrelid
        where c.relnamespace = %s::regnamespace and not c.relispartition
        """,
        ask.place.schema,
    )
    return [IndexHealth(*row) for row in rows]


async def _public(ask: ReadingConnection) -> bool:
    ((public,),) = await ask(
        "select exists (select from pg_namespace, aclexplode(nspacl) as g "
        "where nspname = %s and g.grantee = 0)",
        ask.place.schema,
    )
    return public


async def _waiting(ask: ReadingConnection) -> PendingWork:
    (row,) = await ask(
        """
        select s.rows, s.tenant, w.rows, w.tenant from (select 1) as one
        left join (select tenant, count(*) as rows from {schema}.erased where not swept
            group by 1 order by 2 desc limit 1) as s on true
        left join (select tenant, count(*) as rows from {schema}.unindexed
            group by 1 order by 2 desc limit 1) as w on true
        """
    )
    return PendingWork(row[0] or 0, row[1], row[2] or 0, row[3])
