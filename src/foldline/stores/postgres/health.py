"""The state of a server and of our schema, as values: `Health`, and a turn's query plans.

    async with await open_readonly_connection(place) as connection:
        health = await read_health(ReadingConnection(connection, place))

Every answer is a value, or `Unseen` if this login may not see it; the caller judges. Each question
is a read-only transaction with a time limit, and nothing is migrated.

`explain_turn` runs the head, the rows and the search as the store does and counts their buffers.
The append is only explained, so that no row is written or locked.
"""

import hashlib
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeVar
from uuid import UUID

import psycopg

from foldline.stores.postgres.connections import Connection, build_call_statement
from foldline.stores.postgres.schema import Migration, load_migrations
from foldline.stores.postgres.url import PostgresSchema

T = TypeVar("T")
_UNITS = {"B": 1, "kB": 1 << 10, "8kB": 1 << 13, "MB": 1 << 20, "ms": 1, "s": 1_000, "min": 60_000}
_SECONDS = 15  # the longest that one question may take
_SETTINGS = (
    "autovacuum", "default_transaction_read_only", "effective_cache_size", "fsync",
    "full_page_writes", "idle_in_transaction_session_timeout", "lock_timeout", "max_connections",
    "max_wal_size", "shared_buffers", "statement_timeout", "superuser_reserved_connections",
    "synchronous_commit", "track_counts", "transaction_timeout", "wal_level",
)  # fmt: skip


class RunStatement(Protocol):
    """Runs one statement of a transaction."""

    async def __call__(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return its rows."""
        ...


class ReadingConnection:
    """A connection that only reads."""

    def __init__(self, connection: Connection, place: PostgresSchema) -> None:
        self.connection = connection
        self.place = place

    async def __call__(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a statement in a transaction of its own."""
        async with self.open_transaction() as run:
            return await run(statement, *values)

    @asynccontextmanager
    async def open_transaction(self) -> AsyncGenerator[RunStatement]:
        """Open a transaction; behind a pooler the next may run in another server process."""

        async def run_statement(statement: str, *values: Any) -> list[tuple[Any, ...]]:
            cursor = await self.connection.execute(self.place.put_in(statement), values or None)
            return await cursor.fetchall() if cursor.description else []

        async with self.connection.transaction():
            await run_statement(f"set local statement_timeout = '{_SECONDS}s'")
            await run_statement("set local lock_timeout = '2s'")
            yield run_statement


async def open_readonly_connection(place: PostgresSchema) -> Connection:
    """Open a connection whose transactions cannot write."""
    connection = await psycopg.AsyncConnection.connect(
        place.address, autocommit=True, prepare_threshold=None, connect_timeout=10
    )
    await connection.set_read_only(True)
    return connection


@dataclass(frozen=True, slots=True)
class Unseen:
    """A question without an answer."""

    why: str


async def try_query(work: Coroutine[Any, Any, T]) -> T | Unseen:
    """Return an answer, or why there is none."""
    try:
        return await work
    except psycopg.errors.InsufficientPrivilege:
        return Unseen("this login may not see it")
    except psycopg.errors.QueryCanceled:
        return Unseen(f"the server took longer than {_SECONDS} s to tell")
    except (psycopg.errors.ProgrammingError, psycopg.errors.LockNotAvailable) as fault:
        return Unseen(f"the server does not tell: {fault.diag.message_primary}")


Applied: TypeAlias = tuple[int, str, str, int]


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """An index of the schema that belongs to no partition."""

    name: str
    valid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Our login and its rights."""

    name: str
    bypasses: bool
    """Whether it bypasses row-level security."""
    watches: bool
    """Whether it sees the activity of others."""
    role: str
    """The role that the store uses: `SCHEMA_app`."""
    role_there: bool
    role_bypasses: bool
    member: bool
    owner: str | None
    """Who owns the schema; None if there is no schema."""
    owns: bool
    enters: bool
    """Whether it may use the schema."""


@dataclass(frozen=True, slots=True)
class OldestTransaction:
    """The oldest open transaction."""

    pid: int
    user: str
    state: str
    seconds: float


@dataclass(frozen=True, slots=True)
class PendingWork:
    """Work left for later: the tenant with the most of it, and how many sessions."""

    unswept: int
    unswept_tenant: str | None
    unindexed: int
    unindexed_tenant: str | None


@dataclass(frozen=True, slots=True)
class Routine:
    """A function or procedure of the schema."""

    name: str
    definer: bool
    search_path: str | None
    public: bool
    """Whether everybody may call it."""
    signature: str


@dataclass(frozen=True, slots=True)
class RowPolicy:
    """A policy of row-level security."""

    table: str
    name: str
    every: bool
    """Whether it applies to every command and role."""
    using: str
    check: str


Setting: TypeAlias = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """The server and its settings for this login; sizes in bytes, times in milliseconds."""

    number: int
    """Its version; 150020 is 15.20."""
    replica: bool
    settings: dict[str, Setting]
    lz4: bool
    taken: int
    """How many clients are connected."""
    pooled: bool
    """Whether a pooler is between it and us."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot."""

    name: str
    active: bool
    held: int
    """Bytes of WAL that are kept for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table or partition of the schema; sizes in bytes."""

    name: str
    parent: str | None
    bounds: str
    secured: bool
    forced: bool
    heap: int
    indexes: int
    toast: int
    live: int
    dead: int
    analyzed: bool
    lz4: bool | None
    """Whether its bodies are compressed with lz4; None if it has no bodies."""
    grants: tuple[tuple[str, str], ...]
    """Grantees other than its owner, each with a privilege."""

    @property
    def size(self) -> int:
        """The size of table, indexes and TOAST."""
        return self.heap + self.indexes + self.toast


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """All answers; those about a schema that does not exist are `Unseen`."""

    server: ServerState
    login: Login
    ages: tuple[int, int] | Unseen
    """Transaction and multixact ages of the database."""
    slots: list[Slot] | Unseen
    oldest: OldestTransaction | Unseen | None
    applied: list[Applied] | Unseen
    tables: list[Table] | Unseen
    policies: list[RowPolicy] | Unseen
    routines: list[Routine] | Unseen
    indexes: list[IndexHealth] | Unseen
    public: bool | Unseen
    """Whether everybody may use the schema."""
    waiting: PendingWork | Unseen


async def read_health(ask: ReadingConnection) -> Health:
    """Ask all questions."""
    login = await read_login(ask)
    there = login.owner is not None and login.enters

    async def of_schema(question: Callable[[], Coroutine[Any, Any, T]]) -> T | Unseen:
        return await try_query(question()) if there else Unseen("there is no schema to look at")

    schema = ask.place.schema
    hidden = Unseen("this login may not see it: grant pg_monitor to it")
    return Health(
        server=await read_server_state(ask),
        login=login,
        ages=await try_query(_read_transaction_ages(ask)),
        slots=await try_query(_list_rows(ask, Slot, _SLOTS)),
        oldest=await try_query(_find_oldest_transaction(ask)) if login.watches else hidden,
        applied=await of_schema(lambda: _list_applied_migrations(ask)),
        tables=await of_schema(lambda: _list_tables(ask)),
        policies=await of_schema(lambda: _list_rows(ask, RowPolicy, _POLICIES, schema)),
        routines=await of_schema(lambda: _list_rows(ask, Routine, _ROUTINES, schema)),
        indexes=await of_schema(lambda: _list_rows(ask, IndexHealth, _INDEXES, schema)),
        public=await of_schema(lambda: _is_schema_public(ask)),
        waiting=await of_schema(lambda: _count_pending_work(ask)),
    )


_SLOTS = """
    select slot_name, active, coalesce(pg_wal_lsn_diff(
        case when pg_is_in_recovery() then pg_last_wal_replay_lsn()
        else pg_current_wal_lsn() end, restart_lsn), 0)::bigint
    from pg_replication_slots
"""
_POLICIES = """
    select c.relname, p.polname, p.polcmd = '*' and p.polroles = '{0}',
        coalesce(pg_get_expr(p.polqual, p.polrelid), ''),
        coalesce(pg_get_expr(p.polwithcheck, p.polrelid), '')
    from pg_policy as p join pg_class as c on c.oid = p.polrelid
    where c.relnamespace = %s::regnamespace order by 1, 2
"""
_ROUTINES = """
    select proname, prosecdef, (
        select substr(one, 13) from unnest(proconfig) as one where one like 'search_path=%%'
    ), proacl is null or exists (select from aclexplode(proacl) as g where g.grantee = 0),
        oid::regprocedure::text
    from pg_proc where pronamespace = %s::regnamespace order by 1, 5
"""
_INDEXES = """
    select c.relname, i.indisvalid from pg_index as i join pg_class as c on c.oid = i.indexrelid
    where c.relnamespace = %s::regnamespace and not c.relispartition
"""


async def _list_rows(
    ask: ReadingConnection, kind: Callable[..., T], statement: str, *values: str
) -> list[T]:
    return [kind(*row) for row in await ask(statement, *values)]


async def read_server_state(ask: ReadingConnection) -> ServerState:
    """Read the version, the settings that matter, and the number of clients."""
    ((number, replica, taken, backend),) = await ask(
        "select current_setting('server_version_num')::int, pg_is_in_recovery(), "
        "(select count(*) from pg_stat_activity where backend_type is null "
        "or backend_type = 'client backend'), pg_backend_pid()"
    )
    rows = await ask(
        # Not `setting`: this transaction has changed some for itself.
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


async def read_login(ask: ReadingConnection) -> Login:
    """Read our login and its rights."""
    (row,) = await ask(
        """
        select m.rolname, m.rolsuper or m.rolbypassrls,
            m.rolsuper or pg_has_role(m.oid, 'pg_read_all_stats', 'usage'),
            %s::text, r.oid is not null, coalesce(r.rolsuper or r.rolbypassrls, false),
            coalesce(pg_has_role(m.oid, r.oid, 'usage'), false), pg_get_userbyid(n.nspowner),
            coalesce(pg_has_role(m.oid, n.nspowner, 'usage'), false),
            coalesce(has_schema_privilege(n.oid, 'usage'), false)
        from pg_roles as m left join pg_roles as r on r.rolname = %s
            left join pg_namespace as n on n.nspname = %s
        where m.rolname = current_user
        """,
        ask.place.role,
        ask.place.role,
        ask.place.schema,
    )
    return Login(**dict(zip(Login.__slots__, row, strict=True)))


async def _read_transaction_ages(ask: ReadingConnection) -> tuple[int, int]:
    (row,) = await ask(
        "select age(datfrozenxid), mxid_age(datminmxid) from pg_database "
        "where datname = current_database()"
    )
    return row[0], row[1]


async def _find_oldest_transaction(ask: ReadingConnection) -> OldestTransaction | None:
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


async def _list_applied_migrations(ask: ReadingConnection) -> list[Applied]:
    ((there,),) = await ask("select to_regclass(%s) is not null", f"{ask.place.schema}.migrations")
    if not there:
        return []
    rows = await ask("select number, name, sha256, lives_with from {schema}.migrations order by 1")
    return [(row[0], row[1], row[2], row[3]) for row in rows]


async def _list_tables(ask: ReadingConnection) -> list[Table]:
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


async def _is_schema_public(ask: ReadingConnection) -> bool:
    ((public,),) = await ask(
        "select exists (select from pg_namespace, aclexplode(nspacl) as g "
        "where nspname = %s and g.grantee = 0)",
        ask.place.schema,
    )
    return public


async def _count_pending_work(ask: ReadingConnection) -> PendingWork:
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


_ROWS = 200  # rows at a session's end that a turn reads when it opens it
_SAMPLE = 1_000_000  # with more sessions than this, the longest of a sample is taken
_FEW = 32  # buffers for a row or two: some index levels, the rows, their TOAST
_PAGES = 64  # a table of fewer pages is faster to scan
_FUNCTIONS = {"head": "head_and_owner", "search": "postings_of"}  # others are named like the plan
_COUNTED = "explain (analyze, buffers, timing off, summary off, format json) "
_LONGEST = "select tenant, sid, head from {schema}.heads{some} order by head desc limit 1"
_APPEND = """
    explain (format json) update {schema}.heads set head = head + 1, size = size + 1, changed = 0
    where sid = %s and behind
"""
_SCANS = """
    select c.relname, pg_relation_size(c.oid) / 8192, pg_stat_get_xact_numscans(c.oid)
    from pg_class as c where c.relnamespace = '{schema}'::regnamespace and c.relkind = 'r'
    and pg_stat_get_xact_numscans(c.oid) > 0
"""


@dataclass(frozen=True, slots=True)
class PlanSession:
    """The session whose turn is explained."""

    tenant: str
    sid: UUID
    head: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The cost of one statement of a turn."""

    what: str
    buffers: int | None
    """Pages touched; None if it was only explained."""
    most: int
    """The most pages it should touch."""
    scanned: tuple[str, ...]
    """Tables that were scanned though they are not small."""

    @property
    def slow(self) -> bool:
        """Whether it does more work than needed."""
        return bool(self.scanned) or (self.buffers or 0) > self.most


async def find_longest_session(
    ask: ReadingConnection, login: Login, tenant: str
) -> PlanSession | None:
    """Find the longest session: of all tenants, or of one if the login sees no more."""
    async with ask.open_transaction() as run:
        ((among,),) = await run(
            "select greatest(reltuples, 0)::bigint from pg_class "
            "where oid = '{schema}.heads'::regclass"
        )
        some = f" tablesample system ({100 * _SAMPLE / among})" if among > _SAMPLE else ""
        if not login.bypasses:
            await _set_tenant(run, tenant)
        rows = await run(_LONGEST.replace("{some}", some))
    return PlanSession(rows[0][0], rows[0][1], rows[0][2]) if rows else None


async def explain_turn(ask: ReadingConnection, login: Login, session: PlanSession) -> list[Plan]:
    """Measure or explain each statement of a turn on a session."""
    async with ask.open_transaction() as run:
        if login.bypasses:
            await run(f"set local role {login.role}")
        await _set_tenant(run, session.tenant)
        end, start = session.head, max(session.head - _ROWS + 1, 0)
        ((size,),) = await run(
            "select coalesce(sum(octet_length(body)), 0)::bigint from {schema}.events "
            "where sid = %s and seq >= %s",
            session.sid,
            start,
        )
        nobody = int.from_bytes(hashlib.sha256(session.sid.bytes).digest()[:8], signed=True)
        # At worst each row is on its own page; a long body has TOAST pages and their index.
        most = _FEW + 8 * (end - start + 1) + size // 1_000
        tenant, sid = session.tenant, session.sid
        words = (tenant, None, None, 0, [nobody])
        return [
            await _measure_call(run, "head", "uuid, int4", (tenant, sid, None), most=_FEW),
            await _measure_call(
                run, "read", "uuid, int4[], int4[]", (tenant, sid, [start], [end]), most=most
            ),
            await _measure_call(run, "search", "uuid, text, int8, int8[]", words, most=_FEW),
            await _explain_append(run, session),
        ]


async def _measure_call(
    run: RunStatement, what: str, types: str, values: tuple[Any, ...], *, most: int
) -> Plan:
    function = _FUNCTIONS.get(what, what)
    statement = _COUNTED + build_call_statement(function, *types.split(", ")).replace("%b", "%s")
    await run(statement, *values)  # the first run also fills the connection's caches
    before = {name: scans for name, _, scans in await run(_SCANS)}
    ((explained,),) = await run(statement, *values)
    scans = await run(_SCANS)
    plan = explained[0]["Plan"]
    return Plan(
        what=what,
        buffers=plan["Shared Hit Blocks"] + plan["Shared Read Blocks"],
        most=most,
        scanned=tuple(
            name for name, pages, times in scans if pages > _PAGES and times > before.get(name, 0)
        ),
    )


async def _explain_append(run: RunStatement, session: PlanSession) -> Plan:
    ((explained,),) = await run(_APPEND, session.sid)
    ((pages,),) = await run("select pg_relation_size('{schema}.heads') / 8192")
    direct = _list_plan_indexes(explained[0]["Plan"]) == ["heads_pkey"]
    small = pages <= _PAGES
    return Plan(
        what="append", buffers=None, most=_FEW, scanned=() if direct or small else ("heads",)
    )


def _list_plan_indexes(plan: dict[str, Any]) -> list[str]:
    below = [name for part in plan.get("Plans", ()) for name in _list_plan_indexes(part)]
    return [plan["Index Name"], *below] if "Index Name" in plan else below


async def _set_tenant(run: RunStatement, tenant: str) -> None:
    await run("select set_config('foldline.tenant', %s, true)", tenant)


PARTED: Final = ("events", "seen", "blobs")
BUCKETS: Final = 64
SECURED: Final = ("heads", *PARTED, "side", "erased", "unindexed")
"""The tables on which the tenant policy is forced."""
INDEXED: Final = ("postings", "words")
"""The tables that only the definer functions read."""
DEFINERS: Final = ("learn", "post", "postings_of", "search", "search_of", "forget")
INDEXES: Final = {
    "heads_pkey": "alter table {schema}.heads add primary key (sid)",
    "heads_by_name": "create index heads_by_name on {schema}.heads (tenant, session)",
    "heads_by_owner": "create index heads_by_owner on {schema}.heads (tenant, owner_name, session)",
    "events_pkey": "alter table {schema}.events add primary key (sid, seq)",
    "edits": "create index edits on {schema}.events (sid, seq) where edit",
    "seen_pkey": "alter table {schema}.seen add primary key (sid, key)",
    "blobs_pkey": "alter table {schema}.blobs add primary key (sid, hash)",
    "side_pkey": "alter table {schema}.side add primary key (sid, space, key)",
    "erased_pkey": "alter table {schema}.erased add primary key (sid)",
    "unswept": "create index unswept on {schema}.erased (tenant) where not swept",
    "unindexed_pkey": "alter table {schema}.unindexed add primary key (tenant, sid)",
    "postings_pkey": "alter table {schema}.postings add primary key (term, sid, block)",
    "postings_by_session": "create index postings_by_session on {schema}.postings (sid)",
    "words_pkey": "alter table {schema}.words add primary key (sid, seq)",
    "words_found": "create index words_found on {schema}.words using gin (found) "
    "with (fastupdate = off)",
}
"""The statement that creates each index."""
_ROUTINE = re.compile(r"create (?:function|procedure) \{schema\}\.(\w+)")


@dataclass(frozen=True, slots=True)
class MigrationState:
    """A database's migrations compared with those of this release."""

    missing: list[Migration]
    """Not applied yet."""
    removed: list[Migration]
    """Not applied, though later ones are."""
    altered: list[Applied]
    newer: list[Applied]
    """From a later release, and this one can live with them."""
    strange: list[Applied]
    """From a later release, and this one cannot live with them."""


def expected_routines() -> set[str]:
    """Return the functions that this release's migrations create."""
    return {name for one in load_migrations() for name in _ROUTINE.findall(one.text)}


def compare_migrations(known: Sequence[Migration], applied: Iterable[Applied]) -> MigrationState:
    """Compare a database's migrations with those of this release."""
    theirs = {one[0]: one for one in applied}
    ours = {one.number: one for one in known}
    last = max(theirs, default=0)
    others = [one for number, one in theirs.items() if number not in ours]
    lacking = [one for one in known if one.number not in theirs]
    return MigrationState(
        missing=[one for one in lacking if one.number > last],
        removed=[one for one in lacking if one.number < last],
        altered=[
            one
            for number, one in theirs.items()
            if number in ours and ours[number].sha256 != one[2]
        ],
        newer=[one for one in others if one[3] <= known[-1].number],
        strange=[one for one in others if one[3] > known[-1].number],
    )
