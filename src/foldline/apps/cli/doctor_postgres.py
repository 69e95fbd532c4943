"""`foldline doctor postgresql://…`: checks of a server, its settings, this login and our schema.

`stores.postgres.health` reads, this module judges: each check is a row of (when it applies, level,
finding, remedy), and the first row that applies is reported. Nothing is written, and a schema that
is missing is reported, not created.
"""

import re
from collections import Counter
from collections.abc import Generator, Sequence
from statistics import median

import psycopg
from psycopg.conninfo import conninfo_to_dict

from foldline.apps.cli.doctor import Check, Level, join_names
from foldline.apps.cli.output import format_size
from foldline.core.names import format_count
from foldline.errors import BadInput
from foldline.stores.postgres.health import (
    BUCKETS,
    DEFINERS,
    INDEXED,
    INDEXES,
    PARTED,
    SECURED,
    Applied,
    Health,
    IndexHealth,
    Login,
    OldestTransaction,
    PendingWork,
    Plan,
    PlanSession,
    ReadingConnection,
    Routine,
    RowPolicy,
    ServerState,
    Slot,
    Table,
    Unseen,
    compare_migrations,
    expected_routines,
    explain_turn,
    find_longest_session,
    open_readonly_connection,
    read_health,
    try_query,
)
from foldline.stores.postgres.schema import load_migrations
from foldline.stores.postgres.url import PostgresSchema, parse_postgres_url

_OLDEST = 140_000  # PostgreSQL 14: lz4, and functions of its kind
_GB = 1_000_000_000
_JOURNAL = _GB  # a smaller max_wal_size makes checkpoints under load
_MEMORY = 128 << 20  # the default of shared_buffers
_MINUTE, _HOUR = 60, 3_600
_FREEZE = 500_000_000, 1_500_000_000  # transactions; the server stops at 2.1 billion
_SLOT = 5 * _GB
_MANY = 1_000  # sessions of a tenant that its next search has to index first
_DEAD, _SHARE = 10_000, 0.3  # dead rows of a table, and their share of all its rows
_SKEW, _LARGE = 4, 1_000_000_000  # times the median partition, and bytes
_BODIES = ("events", "blobs")
_PATH = "pg_catalog, pg_temp"


async def inspect_postgres(address: str, tenant: str) -> tuple[str, list[Check]]:
    """Return the address without secrets, and all checks."""
    try:
        where = parse_postgres_url(address)
    except BadInput as fault:
        return "postgresql://…", [Check("bad", "store", str(fault), "mend the address")]
    try:
        async with await open_readonly_connection(where) as connection:
            ask = ReadingConnection(connection, where)
            health = await read_health(ask)
            session, plans = await _collect_turn_plans(ask, health.login, tenant)
    except psycopg.Error as fault:
        wrong = isinstance(fault, psycopg.ProgrammingError)
        todo = "mend the address" if wrong else "start the server or mend the address"
        finding = f"no connection to {where.shown}: {_redact_fault(where, fault)}"
        return where.shown, [Check("bad", "store", finding, todo)]
    schema = inspect_schema(health, where, session, plans)
    return where.shown, [*inspect_server(health, where), *schema]


async def _collect_turn_plans(
    ask: ReadingConnection, login: Login, tenant: str
) -> tuple[PlanSession | Unseen | None, list[Plan] | Unseen]:
    if login.owner is None or not login.enters:
        return None, []
    session = await try_query(find_longest_session(ask, login, tenant))
    if session is None or isinstance(session, Unseen):
        return session, []
    return session, await try_query(explain_turn(ask, login, session))


def _redact_fault(where: PostgresSchema, fault: psycopg.Error) -> str:
    """Return the driver's message without the password."""
    finding = " ".join(str(fault).split())
    try:
        secret = str(conninfo_to_dict(where.address).get("password") or "")
    except psycopg.ProgrammingError:  # then the message quotes the address
        return re.sub(r'"[^"]*"', "…", finding)
    return finding.replace(secret, "…") if secret else finding


def _choose(what: str, *rows: tuple[object, Level, str, str]) -> Check:
    """Make a check from the first row that applies."""
    return next(
        Check(level, what, finding, todo) for applies, level, finding, todo in rows if applies
    )


def inspect_server(health: Health, where: PostgresSchema) -> Generator[Check]:
    """Check the server, and what this login may do there."""
    yield Check("ok", "store", where.shown)
    server = health.server
    yield from inspect_version(server)
    yield from inspect_server_settings(server)
    yield inspect_connections(server, where.pool)
    yield inspect_login(health.login, pooled=server.pooled)
    yield inspect_oldest_transaction(health.oldest, server)
    yield from inspect_slots(health.slots)
    yield inspect_wraparound(health.ages)


def inspect_version(server: ServerState) -> Generator[Check]:
    """Check the server's version, and that it can be written to."""
    name = f"PostgreSQL {server.number // 10_000}.{server.number % 10_000}"
    name += ", behind a pooler: nothing is prepared" if server.pooled else ""
    yield _choose(
        "server",
        (server.number < _OLDEST, "bad", name, "upgrade it: foldline needs 14 or later"),
        (server.replica, "warn", f"{name}, a replica",
         "nothing can be appended here: give programs the primary's address"),
        (server.settings.get("default_transaction_read_only") == "on", "bad",
         f"{name}, only for reading",
         "nothing can be appended: alter role … set default_transaction_read_only = off"),
        (True, "ok", name, ""),
    )  # fmt: skip


def inspect_server_settings(server: ServerState) -> Generator[Check]:
    """Check the settings under which writes are lost, slow or cut short."""
    settings = server.settings
    durable = ("fsync", "full_page_writes", "synchronous_commit")
    off = [name for name in durable if settings.get(name) == "off"]
    commit = settings.get("synchronous_commit", "on")
    lost = "an append that was confirmed as written may be lost when the server falls"
    mend = " ".join(f"alter system set {name} = 'on';" for name in off)
    yield _choose(
        "durable",
        (off, "bad", f"{' and '.join(off)} off: {lost}", f"{mend} select pg_reload_conf();"),
        (True, "ok", f"fsync and full_page_writes are on, synchronous_commit = {commit}", ""),
    )  # fmt: skip
    level, most = settings.get("wal_level", ""), _parse_setting(server, "max_wal_size")
    finding = f"wal_level = {level}, max_wal_size = {_memory_of(most)}"
    replica = "alter system set wal_level = 'replica', and restart"
    yield _choose(
        "journal",
        (level == "minimal", "warn", finding,
         f"no backup to a point in time and no replica: {replica}"),
        (most < _JOURNAL, "warn", finding,
         "checkpoints come too often under load: alter system set max_wal_size = '4GB'"),
        (True, "ok", finding, ""),
    )  # fmt: skip
    own, cached = (
        _parse_setting(server, name) for name in ("shared_buffers", "effective_cache_size")
    )
    finding = f"shared_buffers = {_memory_of(own)}, effective_cache_size = {_memory_of(cached)}"
    more = "alter system set effective_cache_size = '3GB' (three quarters of the memory)"
    yield _choose(
        "memory",
        (own < _MEMORY, "warn", finding,
         "alter system set shared_buffers = '1GB' (a quarter of the memory), and restart"),
        (cached < own, "warn", finding,
         f"the planner thinks little is cached and may avoid indexes: {more}"),
        (True, "ok", finding, ""),
    )  # fmt: skip
    vacuum = [name for name in ("autovacuum", "track_counts") if settings.get(name) != "on"]
    mend = f"alter system set {next(iter(vacuum), '')} = 'on'"
    yield _choose(
        "vacuum",
        (vacuum, "warn", f"{' and '.join(vacuum)} off",
         f"{mend}, or VACUUM by a timer: each turn leaves a dead row"),
        (True, "ok", "autovacuum is on", ""),
    )  # fmt: skip
    limits = {
        name: _parse_setting(server, name)
        for name in ("statement_timeout", "lock_timeout", "transaction_timeout")
    }
    cut = {name: limit for name, limit in limits.items() if 0 < limit < _MINUTE * 1_000}
    idle = _parse_setting(server, "idle_in_transaction_session_timeout")
    ends = f"idle transactions end after {idle / 1_000:g} s" if idle else "idle ones never end"
    unset = f"alter role … set {next(iter(cut), '')} = 0"
    yield _choose(
        "timeouts",
        (cut, "warn", " and ".join(f"{name} = {limit / 1_000:g} s" for name, limit in cut.items()),
         f"it may cut a migration: migrate as a login without it ({unset})"),
        (True, "ok", f"none that cuts a migration; {ends}", ""),
    )  # fmt: skip


def inspect_connections(server: ServerState, pool: int) -> Check:
    """Check that one more of our processes finds free connections."""
    reserved = _parse_setting(server, "superuser_reserved_connections")
    most = _parse_setting(server, "max_connections") - reserved
    finding = f"{server.taken} of {most} taken; a process takes up to {pool} (?pool={pool})"
    more = "alter system set max_connections"
    return _choose(
        "room",
        (server.pooled, "ok", f"{finding}, here of the pooler's", ""),
        (pool > most, "bad", finding,
         f"{more} = '{2 * pool + 10}' and restart, or a smaller ?pool="),
        (pool > most - server.taken, "warn", finding,
         f"{more} = '{2 * most}' and restart, a smaller ?pool=, or pgbouncer in between"),
        (True, "ok", finding, ""),
    )  # fmt: skip


def inspect_login(login: Login, *, pooled: bool) -> Check:
    """Check that this login can work there and cannot bypass row-level security."""
    role, name = login.role, login.name
    evades = f"{name} goes round row-level security"
    make, grant = f"create role NAME login in role {role}", f"grant {role} to {name}"
    may = "owns the schema" if login.owns else f"is a member of {role}"
    return _choose(
        "login",
        (login.role_bypasses, "bad", f"{role} goes round row-level security",
         f"alter role {role} nosuperuser nobypassrls"),
        (login.bypasses and pooled, "bad",
         f"{evades}, and behind a pooler the store refuses that", make),
        (login.bypasses and login.owner and not login.role_there, "bad",
         f"{evades}, and there is no role {role} to work as",
         f"create role {role} nologin, then grant to it as in 006_rights.sql"),
        (login.bypasses and login.owner and not login.member, "bad",
         f"{evades}, and may not work as {role}, which cannot", grant),
        (login.bypasses, "warn", f"{evades}; the store works as {role}, which cannot",
         f"give programs a login of their own: {make}"),
        (login.owner and not (login.member or login.owns), "bad",
         f"{name} is no member of {role}", grant),
        (True, "ok", f"{name} {may if login.owner else 'can log in'}; policies hold for it", ""),
    )  # fmt: skip


def inspect_oldest_transaction(
    oldest: OldestTransaction | Unseen | None, server: ServerState
) -> Check:
    """Check that no old transaction holds up vacuum."""
    if isinstance(oldest, Unseen):
        return Check("warn", "oldest", f"transactions of others: {oldest.why}")
    if oldest is None or oldest.seconds < _HOUR:
        return Check("ok", "oldest", "no transaction is older than an hour")
    who = f"process {oldest.pid}" if oldest.pid else "one"
    finding = f"{who} of {oldest.user} ({oldest.state}) began {oldest.seconds / _HOUR:.1f} h ago"
    end = f"select pg_terminate_backend({oldest.pid})" if oldest.pid else "rollback prepared it"
    todo = f"nothing dead since is vacuumed: {end}"
    idle = "idle_in_transaction_session_timeout"
    if not _parse_setting(server, idle):
        todo += f"; alter system set {idle} = '5min' ends idle ones"
    return Check("bad" if oldest.seconds > 24 * _HOUR else "warn", "oldest", finding, todo)


def inspect_slots(found: list[Slot] | Unseen) -> Generator[Check]:
    """Check that no replication slot keeps journal for nobody."""
    if isinstance(found, Unseen):
        yield Check("warn", "slots", f"replication slots: {found.why}")
        return
    held = [slot for slot in found if slot.held > _SLOT]
    for slot in held:
        finding = f"{slot.name} holds {format_size(slot.held)} of journal back"
        drop = f"start its replica, or: select pg_drop_replication_slot('{slot.name}')"
        todo = "its replica is behind: look at it" if slot.active else drop
        yield Check("warn" if slot.active else "bad", "slots", finding, todo)
    if not held:
        names = join_names([slot.name for slot in found])
        yield Check("ok", "slots", f"{names}: none holds much" if names else "no replication slots")


def inspect_wraparound(found: tuple[int, int] | Unseen) -> Check:
    """Check how far the server is from refusing writes."""
    if isinstance(found, Unseen):
        return Check("warn", "wraparound", found.why)
    oldest = max(found)
    finding = f"{oldest:,} transactions of 2.1 billion"
    levels: list[Level] = ["ok", "warn", "bad"]
    level = levels[sum(oldest > limit for limit in _FREEZE)]
    todo = "" if level == "ok" else "vacuum (freeze), and end what holds it up"
    return Check(level, "wraparound", finding, todo)


def inspect_schema(
    health: Health,
    where: PostgresSchema,
    session: PlanSession | Unseen | None,
    plans: list[Plan] | Unseen,
) -> Generator[Check]:
    """Check the schema; one that is missing, closed or empty is not looked at further."""
    schema, login, tables = where.schema, health.login, health.tables
    if login.owner is None:
        todo = "open it once as a login that may create it: foldline sessions --store ADDRESS"
        yield Check("bad", "schema", f"there is no schema {schema} here", todo)
        return
    if not login.enters:
        todo = f"grant {login.role} to {login.name}"
        yield Check("bad", "schema", f"{login.name} may not use the schema {schema}", todo)
        return
    yield from inspect_migrations(health.applied, schema)
    if not health.applied:
        return
    if isinstance(tables, Unseen):
        yield Check("warn", "tables", tables.why)
    else:
        yield inspect_partitions(tables, schema)
        yield from inspect_row_security(tables, health.policies, schema)
        yield inspect_rights(health, tables, schema)
        yield inspect_compression(tables, schema, lz4=health.server.lz4)
    yield inspect_routines(health.routines)
    yield inspect_indexes(health.indexes, schema)
    yield from inspect_query_plans(session, plans, schema)
    if not isinstance(tables, Unseen):
        yield from inspect_sizes(tables, schema)
    yield from inspect_pending_work(health.waiting)


def inspect_migrations(applied: list[Applied] | Unseen, schema: str) -> Generator[Check]:
    """Check that this release can work with the migrations of the schema."""
    if isinstance(applied, Unseen):
        yield Check("warn", "schema", f"its migrations: {applied.why}")
        return
    known = load_migrations()
    state = compare_migrations(known, applied)
    opening = "open it once as the owner: foldline sessions --store ADDRESS"
    if not applied:
        finding = f"the schema {schema} has no tables of foldline"
        yield Check("bad", "schema", finding, opening)
        return
    for _, name, *_ in state.strange:
        finding = f"{name} is of a later release, and this one cannot live with it"
        yield Check("bad", "schema", finding, "upgrade foldline")
    for _, name, *_ in state.altered:
        finding = f"{name} was applied as another than this release's"
        yield Check("bad", "schema", finding, "use the release that made it, or restore a backup")
    for one in state.removed:
        values = f"{one.number}, '{one.name}', '{one.sha256}', {one.lives_with}"
        todo = "restore a backup; or, where only its row is gone: insert into "
        todo += f"{schema}.migrations (number, name, sha256, lives_with) values ({values})"
        yield Check("bad", "schema", f"{one.name} is not in its list, but later ones are", todo)
    if state.missing:
        names = join_names([one.name for one in state.missing])
        yield Check("warn", "schema", f"{names} not applied yet", opening)
    if state.newer:
        names = join_names([name for _, name, *_ in state.newer])
        finding = f"{names} of a later release; this one can live with it"
        yield Check("warn", "schema", finding, "upgrade foldline when you can")
    if not any((state.strange, state.altered, state.removed, state.missing, state.newer)):
        count = f"{len(applied)} of {format_count(len(known), 'migration')}"
        yield Check("ok", "schema", f"{schema}, {count}, as they were released")


def inspect_partitions(tables: Sequence[Table], schema: str) -> Check:
    """Check that all partitions are there, and about equally large."""
    lacking: list[str] = []
    for parent in PARTED:
        there = {
            int(bucket[1])
            for one in tables
            if one.parent == parent and (bucket := re.search(r"remainder (\d+)", one.bounds))
        }
        lacking += [f"{parent}_{at:02}" for at in range(BUCKETS) if at not in there]
    if lacking:
        parent, _, bucket = lacking[0].rpartition("_")
        values = f"for values with (modulus {BUCKETS}, remainder {int(bucket)})"
        todo = "what hashes there cannot be written. If it is only detached: alter table "
        todo += f"{schema}.{parent} attach partition {schema}.{lacking[0]} {values}; "
        finding = f"{len(lacking)} missing: {join_names(lacking)}"
        return Check("bad", "partitions", finding, f"{todo}else restore a backup")
    sizes = [one.size for one in tables if one.parent == "events"]
    largest, middle = max(sizes), median(sizes)
    finding = f"{BUCKETS} each of {', '.join(PARTED)}; "
    finding += f"the largest of events has {format_size(largest)}"
    if largest > _LARGE and largest > _SKEW * middle:
        finding += (
            f", {largest / max(middle, 1):.1f} times the middle one: a few sessions hold most"
        )
        names = f"{schema}.heads order by size desc limit 10"
        todo = f"select tenant, session, size from {names}"  # noqa: S608 - for a person to run
        return Check("warn", "partitions", finding, todo)
    return Check("ok", "partitions", finding)


def inspect_row_security(
    tables: Sequence[Table], policies: list[RowPolicy] | Unseen, schema: str
) -> Generator[Check]:
    """Check that no tenant can see another's rows."""
    by_name = {one.name: one for one in tables}
    ours = [*SECURED, *(one.name for one in tables if one.parent in PARTED)]
    lacking = [name for name in (*SECURED, *INDEXED) if name not in by_name]
    off = [name for name in (*ours, *INDEXED) if name in by_name and not by_name[name].secured]
    loose = [name for name in ours if name in by_name and not by_name[name].forced]
    if lacking:
        yield Check("bad", "security", f"no table {join_names(lacking)}", "restore a backup")
    for names, how, finding in (
        (off, "enable", f"off on {join_names(off)}: tenants are not apart"),
        (loose, "force", f"not forced on {join_names(loose)}: its owner goes round it"),
    ):
        if names:
            todo = [f"alter table {schema}.{name} {how} row level security" for name in names]
            yield Check("bad", "security", f"row-level security is {finding}", "; ".join(todo))
    if isinstance(policies, Unseen):
        yield Check("warn", "policies", policies.why)
        return
    good = {one.table for one in policies if _is_ours(one, schema)}
    bare = [name for name in SECURED if name in by_name and name not in good]
    for name in bare:
        tenant = f"{schema}.tenant()"
        once = f"(select {tenant})" if name in _BODIES else tenant
        todo = f"drop policy if exists tenants on {schema}.{name}; create policy tenants on "
        todo += f"{schema}.{name} using (tenant = {once}) with check (tenant = {tenant})"
        yield Check("bad", "policies", f"{name} has not the policy that keeps tenants apart", todo)
    others = [
        one
        for one in policies
        if not (_is_ours(one, schema) and one.table in SECURED)
        and not (one.name == "tenants" and one.table in bare)
    ]
    for one in others:
        todo = f'drop policy "{one.name}" on {schema}.{one.table}'
        finding = f"{one.name} on {one.table} is none of foldline's and may open it"
        yield Check("bad", "policies", finding, todo)
    if not (lacking or off or loose or bare or others):
        count = f"{len(good)} {'policy' if len(good) == 1 else 'policies'}"
        yield Check("ok", "security", f"forced on {len(ours)} tables and partitions, {count}")


def _is_ours(one: RowPolicy, schema: str) -> bool:
    asks = f"(tenant = {schema}.tenant())"
    using = re.sub(r"\( SELECT (.*?) AS tenant\)", r"\1", one.using)
    return one.name == "tenants" and one.every and (using, one.check) == (asks, asks)


def inspect_rights(health: Health, tables: Sequence[Table], schema: str) -> Check:
    """Check that the working role has all the rights it needs, and nobody has more."""
    role = health.login.role
    excess = [
        (who, f"{schema}.{one.name}")
        for one in tables
        for who, _ in one.grants
        if who == "public" or (who == role and one.name not in (*SECURED, "migrations"))
    ]
    wide = Counter(who for who, _ in excess)
    routines = [] if isinstance(health.routines, Unseen) else health.routines
    if health.public is True or any(one.public for one in routines):
        wide["public"] += 1
    if wide:
        who = next(iter(wide))
        todo = "; ".join(
            f"revoke all on all {kind} in schema {schema} from {who}"
            for kind in ("tables", "routines")
        )
        if who == "public":
            todo += f"; revoke all on schema {schema} from public"
        if who == role:
            open_tables = list(dict.fromkeys(table for _, table in excess))
            todo = f"revoke all on {join_names(open_tables)} from {who}"
        finding = f"{join_names(list(wide))} may do more than the rows of one tenant need"
        return Check("bad", "rights", finding, todo)
    needed = {"SELECT", "INSERT", "UPDATE", "DELETE"}
    short = [
        one.name
        for one in tables
        if one.name in SECURED and needed - {what for who, what in one.grants if who == role}
    ]
    if short and health.login.role_there:
        listed = ", ".join(f"{schema}.{name}" for name in short)
        todo = f"grant select, insert, update, delete on {listed} to {role}"
        return Check("bad", "rights", f"{role} may not work on {join_names(short)}", todo)
    only = f"only {role}" if health.login.role_there else "nobody"
    return Check("ok", "rights", f"{only} has any beside the owner; none are public")


def inspect_compression(tables: Sequence[Table], schema: str, *, lz4: bool) -> Check:
    """Check that bodies are compressed by lz4."""
    slow = [one.name for one in tables if one.lz4 is False]
    return _choose(
        "lz4",
        (not slow, "ok", "bodies are compressed by lz4", ""),
        (not lz4, "warn", "this server has no lz4: bodies are kept by pglz",
         "use a server built with it"),
        (True, "warn", f"bodies are not compressed by lz4 in {join_names(slow)}",
         f"alter table {schema}.{next(iter(slow), '')} alter column body set compression lz4"),
    )  # fmt: skip


def inspect_routines(found: list[Routine] | Unseen) -> Check:
    """Check that all functions are there, and that those of the owner fix their search_path."""
    if isinstance(found, Unseen):
        return Check("warn", "functions", found.why)
    lacking = sorted(expected_routines() - {one.name for one in found})
    if lacking:
        todo = "this release cannot work without: restore a backup"
        return Check("bad", "functions", f"{join_names(lacking)} not there", todo)
    for one in found:
        if one.definer and one.name not in DEFINERS:
            finding = f"{one.name} works as its owner and should not"
            todo = f"alter function {one.signature} security invoker"
            return Check("bad", "functions", finding, todo)
        if one.definer and one.search_path != _PATH:
            finding = f"{one.name} works as its owner, by whatever search_path a caller has"
            todo = f"alter function {one.signature} set search_path = {_PATH}"
            return Check("bad", "functions", finding, todo)
    named = {one.name for one in found if one.definer}
    changed = [name for name in DEFINERS if name not in named]
    if changed:
        first = next(one.signature for one in found if one.name == changed[0])
        finding = f"{join_names(changed)} should work as the owner: search finds nothing else"
        return Check("bad", "functions", finding, f"alter function {first} security definer")
    finding = (
        f"{len(found)}, of them {len(DEFINERS)} that work as the owner, by a path of their own"
    )
    return Check("ok", "functions", finding)


def inspect_indexes(found: list[IndexHealth] | Unseen, schema: str) -> Check:
    """Check that all indexes are there and valid."""
    if isinstance(found, Unseen):
        return Check("warn", "indexes", found.why)
    valid = {one.name: one.valid for one in found}
    for name, text in INDEXES.items():
        if name not in valid:
            finding = f"{name} is not there: a turn reads whole tables"
            return Check("bad", "indexes", finding, text.replace("{schema}", schema))
        if not valid[name]:
            finding = f"{name} is not valid, so no statement uses it"
            return Check("bad", "indexes", finding, f"reindex index {schema}.{name}")
    return Check("ok", "indexes", f"all {len(INDEXES)} are there and valid")


def inspect_query_plans(
    session: PlanSession | Unseen | None, plans: list[Plan] | Unseen, schema: str
) -> Generator[Check]:
    """Check that each statement of a turn goes by indexes and touches few pages."""
    if isinstance(session, Unseen):
        yield Check("warn", "plans", f"the longest session: {session.why}")
    elif session is None:
        yield Check("ok", "plans", "no session yet, so nothing to look at")
    elif isinstance(plans, Unseen):
        yield Check("warn", "plans", plans.why)
    else:
        slow = [plan for plan in plans if plan.slow]
        for plan in slow:
            finding = f"{plan.what} reads {join_names(plan.scanned)} from end to end"
            if not plan.scanned:
                finding = f"{plan.what} touches {plan.buffers:,} pages, {plan.most:,} would do"
            tables = [f"{schema}.{name}" for name in plan.scanned or ("heads", "events")]
            todo = f"analyze {', '.join(tables)}; and mend the indexes named here, if any"
            yield Check("bad" if plan.scanned else "warn", "plans", finding, todo)
        if not slow:
            counts = [f"{one.what} {one.buffers} pages" for one in plans if one.buffers is not None]
            events = format_count(session.head + 1, "event")
            finding = f"by indexes, in the longest session ({events}): {', '.join(counts)}"
            yield Check("ok", "plans", finding)


def inspect_sizes(tables: Sequence[Table], schema: str) -> Generator[Check]:
    """Check how much there is, how much of it is dead, and that the planner has statistics."""
    heap, index, toast = (
        sum(getattr(one, part) for one in tables) for part in ("heap", "indexes", "toast")
    )
    events = sum(one.live for one in tables if one.parent == "events")
    heads = sum(one.live for one in tables if one.name == "heads")
    finding = (
        f"{format_size(heap + index + toast)}: rows {format_size(heap)}, "
        f"indexes {format_size(index)}, long bodies {format_size(toast)}; "
        f"about {format_count(heads, 'session')}, {format_count(events, 'event')}"
    )
    yield Check("ok", "size", finding)
    dead = [one for one in tables if one.dead > _DEAD and one.dead > _SHARE * (one.live + one.dead)]
    if dead:
        names = ", ".join(f"{schema}.{one.name}" for one in dead)
        finding = (
            f"{sum(one.dead for one in dead):,} dead in {join_names([one.name for one in dead])}"
        )
        yield Check("warn", "dead rows", finding, f"vacuum (analyze) {names}")
    else:
        finding = f"{sum(one.dead for one in tables):,} of {sum(one.live for one in tables):,}"
        yield Check("ok", "dead rows", finding)
    blind = [one.name for one in tables if not one.analyzed and one.live > _DEAD]
    if blind:
        names = ", ".join(f"{schema}.{name}" for name in blind)
        finding = f"the planner knows nothing of {join_names(blind)}"
        yield Check("warn", "statistics", finding, f"analyze {names}")


def inspect_pending_work(found: PendingWork | Unseen) -> Generator[Check]:
    """Check that no erasure and no search index was left unfinished."""
    if isinstance(found, Unseen):
        yield Check("warn", "waiting", f"erasures and search: {found.why}")
        return
    if found.unswept:
        count = format_count(found.unswept, "erasure")
        finding = f"{count} cut short, of tenant {found.unswept_tenant!r}: "
        finding += "nothing reads the rows, but they are there"
        todo = f"store_at(ADDRESS).retain({found.unswept_tenant!r}, Retention()) takes them away"
        yield Check("warn", "waiting", finding, todo)
    if found.unindexed > _MANY:
        finding = (
            f"{found.unindexed:,} sessions of tenant {found.unindexed_tenant!r} no search knows"
        )
        todo = f"its next search takes long: foldline search x --tenant {found.unindexed_tenant}"
        yield Check("warn", "waiting", finding, todo)
    elif not found.unswept:
        behind = "every session is indexed"
        if found.unindexed:
            count = format_count(found.unindexed, "session")
            behind = f"{count} of {found.unindexed_tenant!r} to index"
        yield Check("ok", "waiting", f"no erasure was cut short; {behind}")


def _parse_setting(server: ServerState, name: str) -> int:
    return int(server.settings.get(name, 0))


def _memory_of(count: int) -> str:
    for unit, step in (("GB", 1 << 30), ("MB", 1 << 20)):
        if count >= step:
            return f"{count / step:g} {unit}" if not count % step else f"{count / step:.1f} {unit}"
    return f"{count >> 10} kB"
