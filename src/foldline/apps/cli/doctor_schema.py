"""What is well with a schema of PostgreSQL: migrations, partitions, rights, indexes, plans, sizes.

Knows what a schema of this release has, and the statement that puts back what is not so. Refuses to
ask by itself, and to write.
"""

import re
from collections import Counter
from collections.abc import Generator, Sequence
from statistics import median

from foldline.apps.cli.checks import Check, some
from foldline.apps.cli.output import size
from foldline.core.saying import many
from foldline.stores.postgres.health import (
    BUCKETS,
    DEFINERS,
    INDEXES,
    PARTED,
    SECURED,
    Applied,
    Health,
    IndexHealth,
    PendingWork,
    Routine,
    RowPolicy,
    Table,
    Unseen,
    compared,
    expected_routines,
)
from foldline.stores.postgres.query_plans import Plan, PlanSession
from foldline.stores.postgres.schema import released
from foldline.stores.postgres.url import PostgresSchema

_MANY = 1_000  # sessions of a tenant that its next search takes in first
_DEAD, _SHARE = 10_000, 0.3  # rows of a table, and of its rows
_SKEW, _LARGE = 4, 1_000_000_000  # times the middle one, and bytes
_BODIES = ("events", "blobs")
_PATH = "pg_catalog, pg_temp"


def checks(
    health: Health,
    where: PostgresSchema,
    session: PlanSession | Unseen | None,
    plans: list[Plan] | Unseen,
) -> Generator[Check]:
    """What there is to say of the schema."""
    schema, login = where.schema, health.login
    if login.owner is None:
        todo = "open it once as a login that may create it: foldline sessions --store ADDRESS"
        yield Check("bad", "schema", f"there is no schema {schema} here", todo)
        return
    if not login.enters:
        todo = f"grant {login.role} to {login.name}"
        yield Check("bad", "schema", f"{login.name} may not use the schema {schema}", todo)
        return
    yield from migrations(health.applied, schema)
    if not health.applied:
        return  # nothing of ours is there yet
    if isinstance(health.tables, Unseen):
        yield Check("warn", "tables", health.tables.why)
    else:
        yield partitions(health.tables, schema)
        yield from security(health.tables, health.policies, schema)
        yield rights(health, health.tables, schema)
        yield compression(health.tables, schema, lz4=health.server.lz4)
    yield routines(health.routines)
    yield indexes(health.indexes, schema)
    yield from turn(session, plans, schema)
    if not isinstance(health.tables, Unseen):
        yield from sizes(health.tables, schema)
    yield from waiting(health.waiting)


def migrations(applied: list[Applied] | Unseen, schema: str) -> Generator[Check]:
    """Whether this release can work with it."""
    if isinstance(applied, Unseen):
        yield Check("warn", "schema", f"its migrations: {applied.why}")
        return
    known = released()
    found = compared(known, applied)
    told = f"{schema}, {len(applied)} of {many(len(known), 'migration')}"
    opening = "open it once as the owner: foldline sessions --store ADDRESS"
    if not applied:
        told = f"the schema {schema} has no tables of foldline"
        yield Check("bad", "schema", told, opening)
        return
    for _, name, *_ in found.strange:
        told = f"{name} is of a later release, and this one cannot live with it"
        yield Check("bad", "schema", told, "upgrade foldline")
    for _, name, *_ in found.altered:
        told = f"{name} was applied as another than this release's"
        todo = "use the release that made it, or restore a backup"
        yield Check("bad", "schema", told, todo)
    for one in found.removed:
        values = f"{one.number}, '{one.name}', '{one.sha256}', {one.lives_with}"
        todo = "restore a backup; or, where only its row is gone: insert into "
        todo += f"{schema}.migrations (number, name, sha256, lives_with) values ({values})"
        yield Check("bad", "schema", f"{one.name} is not in its list, but later ones are", todo)
    if found.missing:
        names = some([one.name for one in found.missing])
        yield Check("warn", "schema", f"{names} not applied yet", opening)
    if found.newer:
        names = some([name for _, name, *_ in found.newer])
        told = f"{names} of a later release; this one can live with it"
        yield Check("warn", "schema", told, "upgrade foldline when you can")
    if not any((found.strange, found.altered, found.removed, found.missing, found.newer)):
        yield Check("ok", "schema", f"{told}, as they were released")


def partitions(tables: Sequence[Table], schema: str) -> Check:
    """Whether all buckets are there, and about as large as each other."""
    lacking: list[str] = []
    for parent in PARTED:
        there = {
            int(told[1])
            for one in tables
            if one.parent == parent and (told := re.search(r"remainder (\d+)", one.bounds))
        }
        lacking += [f"{parent}_{at:02}" for at in range(BUCKETS) if at not in there]
    if lacking:
        parent, _, bucket = lacking[0].rpartition("_")
        values = f"for values with (modulus {BUCKETS}, remainder {int(bucket)})"
        todo = "what hashes there cannot be written. If it is only detached: alter table "
        todo += f"{schema}.{parent} attach partition {schema}.{lacking[0]} {values}; "
        told = f"{len(lacking)} missing: {some(lacking)}"
        return Check("bad", "partitions", told, f"{todo}else restore a backup")
    parts = [one.size for one in tables if one.parent == "events"]
    largest, middle = max(parts), median(parts)
    told = f"{BUCKETS} each of {', '.join(PARTED)}; the largest of events has {size(largest)}"
    if largest > _LARGE and largest > _SKEW * middle:
        told += f", {largest / max(middle, 1):.1f} times the middle one: a few sessions hold most"
        names = f"{schema}.heads order by size desc limit 10"
        todo = f"select tenant, session, size from {names}"  # noqa: S608 - for a person to run
        return Check("warn", "partitions", told, todo)
    return Check("ok", "partitions", told)


def security(
    tables: Sequence[Table], policies: list[RowPolicy] | Unseen, schema: str
) -> Generator[Check]:
    """Whether no tenant can see another's rows."""
    by_name = {one.name: one for one in tables}
    ours = [*SECURED, *(one.name for one in tables if one.parent in PARTED)]
    lacking = [name for name in (*SECURED, "words") if name not in by_name]
    off = [name for name in (*ours, "words") if name in by_name and not by_name[name].secured]
    loose = [name for name in ours if name in by_name and not by_name[name].forced]
    if lacking:
        told, todo = f"no table {some(lacking)}", "restore a backup"
        yield Check("bad", "security", told, todo)
    if off:
        todo = "; ".join(f"alter table {schema}.{name} enable row level security" for name in off)
        told = f"row-level security is off on {some(off)}: tenants are not apart"
        yield Check("bad", "security", told, todo)
    if loose:
        todo = "; ".join(f"alter table {schema}.{name} force row level security" for name in loose)
        told = f"row-level security is not forced on {some(loose)}: its owner goes round it"
        yield Check("bad", "security", told, todo)
    if isinstance(policies, Unseen):
        yield Check("warn", "policies", policies.why)
        return
    good = {one.table for one in policies if _is_ours(one, schema)}
    bare = [name for name in SECURED if name in by_name and name not in good]
    for name in bare:
        asked = f"{schema}.tenant()"
        once = f"(select {asked})" if name in _BODIES else asked
        todo = f"drop policy if exists tenants on {schema}.{name}; create policy tenants on "
        todo += f"{schema}.{name} using (tenant = {once}) with check (tenant = {asked})"
        yield Check("bad", "policies", f"{name} has not the policy that keeps tenants apart", todo)
    others = [one for one in policies if not (_is_ours(one, schema) and one.table in SECURED)]
    others = [one for one in others if not (one.name == "tenants" and one.table in bare)]
    for one in others:
        todo = f'drop policy "{one.name}" on {schema}.{one.table}'
        told = f"{one.name} on {one.table} is none of foldline's and may open it"
        yield Check("bad", "policies", told, todo)
    if not (lacking or off or loose or bare or others):
        told = f"forced on {len(ours)} tables and partitions, {many(len(good), 'policy')}"
        yield Check("ok", "security", told.replace("policys", "policies"))


def _is_ours(one: RowPolicy, schema: str) -> bool:
    asks = f"(tenant = {schema}.tenant())"
    using = re.sub(r"\( SELECT (.*?) AS tenant\)", r"\1", one.using)
    return one.name == "tenants" and one.every and (using, one.check) == (asks, asks)


def rights(health: Health, tables: Sequence[Table], schema: str) -> Check:
    """Whether nobody has more than the role that works, and that one has enough."""
    role = health.login.role
    wide = Counter(who for one in tables for who, _ in one.grants if _beyond(one, who, role))
    if health.public is True:
        wide["public"] += 1
    routines = [] if isinstance(health.routines, Unseen) else health.routines
    if any(one.public for one in routines):
        wide["public"] += 1
    if wide:
        who, kinds = next(iter(wide)), ("tables", "routines")
        todo = "; ".join(
            f"revoke all on all {kind} in schema {schema} from {who}" for kind in kinds
        )
        if who == "public":
            todo += f"; revoke all on schema {schema} from public"
        if who == role:
            todo = f"revoke all on {some(_opened(tables, role, schema))} from {who}"
        told = f"{some(list(wide))} may do more than the rows of one tenant need"
        return Check("bad", "rights", told, todo)
    needed = {"SELECT", "INSERT", "UPDATE", "DELETE"}
    short = [
        one.name
        for one in tables
        if one.name in SECURED and needed - {what for who, what in one.grants if who == role}
    ]
    if short and health.login.role_there:
        listed = ", ".join(f"{schema}.{name}" for name in short)
        todo = f"grant select, insert, update, delete on {listed} to {role}"
        return Check("bad", "rights", f"{role} may not work on {some(short)}", todo)
    only = f"only {role}" if health.login.role_there else "nobody"
    return Check("ok", "rights", f"{only} has any beside the owner; none are public")


def _beyond(table: Table, who: str, role: str) -> bool:
    return who == "public" or (who == role and table.name not in (*SECURED, "migrations"))


def _opened(tables: Sequence[Table], role: str, schema: str) -> list[str]:
    found = [one for one in tables if any(_beyond(one, who, role) for who, _ in one.grants)]
    return [f"{schema}.{one.name}" for one in found]


def compression(tables: Sequence[Table], schema: str, *, lz4: bool) -> Check:
    """Whether bodies are kept by lz4."""
    slow = [one.name for one in tables if one.lz4 is False]
    if not slow:
        return Check("ok", "lz4", "bodies are compressed by lz4")
    if not lz4:
        told, todo = "this server has no lz4: bodies are kept by pglz", "use a server built with it"
        return Check("warn", "lz4", told, todo)
    todo = f"alter table {schema}.{slow[0]} alter column body set compression lz4"
    return Check("warn", "lz4", f"bodies are not compressed by lz4 in {some(slow)}", todo)


def routines(found: list[Routine] | Unseen) -> Check:
    """Whether the functions are there, and those that work as the owner look nowhere else."""
    if isinstance(found, Unseen):
        return Check("warn", "functions", found.why)
    lacking = sorted(expected_routines() - {one.name for one in found})
    if lacking:
        todo = "this release cannot work without: restore a backup"
        return Check("bad", "functions", f"{some(lacking)} not there", todo)
    for one in found:
        if one.definer and (one.search_path != _PATH or one.name not in DEFINERS):
            told = f"{one.name} works as its owner, by whatever search_path a caller has"
            todo = f"alter function {one.signature} set search_path = {_PATH}"
            if one.name not in DEFINERS:
                told = f"{one.name} works as its owner and should not"
                todo = f"alter function {one.signature} security invoker"
            return Check("bad", "functions", told, todo)
    named = {one.name for one in found if one.definer}
    changed = [name for name in DEFINERS if name not in named]
    if changed:
        (first,) = [one.signature for one in found if one.name == changed[0]][:1]
        todo = f"alter function {first} security definer"
        told = f"{some(changed)} should work as the owner: search finds nothing else"
        return Check("bad", "functions", told, todo)
    told = f"{len(found)}, of them {len(DEFINERS)} that work as the owner, by a path of their own"
    return Check("ok", "functions", told)


def indexes(found: list[IndexHealth] | Unseen, schema: str) -> Check:
    """Whether all are there and valid."""
    if isinstance(found, Unseen):
        return Check("warn", "indexes", found.why)
    there = {one.name: one.valid for one in found}
    for name, text in INDEXES.items():
        if name not in there:
            told = f"{name} is not there: a turn reads whole tables"
            return Check("bad", "indexes", told, text.replace("{schema}", schema))
        if not there[name]:
            told = f"{name} is not valid, so no statement uses it"
            return Check("bad", "indexes", told, f"reindex index {schema}.{name}")
    return Check("ok", "indexes", f"all {len(INDEXES)} are there and valid")


def turn(
    session: PlanSession | Unseen | None, plans: list[Plan] | Unseen, schema: str
) -> Generator[Check]:
    """Whether the statements of a turn are as little work as they can be."""
    if isinstance(session, Unseen):
        yield Check("warn", "plans", f"the longest session: {session.why}")
    elif session is None:
        yield Check("ok", "plans", "no session yet, so nothing to look at")
    elif isinstance(plans, Unseen):
        yield Check("warn", "plans", plans.why)
    else:
        slow = [plan for plan in plans if plan.slow]
        for plan in slow:
            told = f"{plan.what} reads {some(plan.scanned)} from end to end"
            if not plan.scanned:
                told = f"{plan.what} touches {plan.buffers:,} pages, {plan.most:,} would do"
            tables = [f"{schema}.{name}" for name in plan.scanned or ("heads", "events")]
            todo = f"analyze {', '.join(tables)}; and mend the indexes named here, if any"
            yield Check("bad" if plan.scanned else "warn", "plans", told, todo)
        if not slow:
            counts = [f"{one.what} {one.buffers} pages" for one in plans if one.buffers is not None]
            told = f"by indexes, in the longest session ({many(session.head + 1, 'event')}): "
            yield Check("ok", "plans", f"{told}{', '.join(counts)}")


def sizes(tables: Sequence[Table], schema: str) -> Generator[Check]:
    """How much there is, and how much of it is dead."""
    heap, index, toast = (
        sum(column)
        for column in zip(*((one.heap, one.indexes, one.toast) for one in tables), strict=True)
    )
    events = sum(one.live for one in tables if one.parent == "events")
    heads = sum(one.live for one in tables if one.name == "heads")
    told = f"{size(heap + index + toast)}: rows {size(heap)}, indexes {size(index)}, "
    told += f"long bodies {size(toast)}; about {many(heads, 'session')}, {many(events, 'event')}"
    yield Check("ok", "size", told)
    dead = [one for one in tables if one.dead > _DEAD and one.dead > _SHARE * (one.live + one.dead)]
    if dead:
        names = ", ".join(f"{schema}.{one.name}" for one in dead)
        told = f"{sum(one.dead for one in dead):,} dead in {some([one.name for one in dead])}"
        yield Check("warn", "dead rows", told, f"vacuum (analyze) {names}")
    else:
        told = f"{sum(one.dead for one in tables):,} of {sum(one.live for one in tables):,}"
        yield Check("ok", "dead rows", told)
    blind = [one for one in tables if not one.analyzed and one.live > _DEAD]
    if blind:
        names = ", ".join(f"{schema}.{one.name}" for one in blind)
        told = f"the planner knows nothing of {some([one.name for one in blind])}"
        yield Check("warn", "statistics", told, f"analyze {names}")


def waiting(found: PendingWork | Unseen) -> Generator[Check]:
    """Whether work was left undone."""
    if isinstance(found, Unseen):
        yield Check("warn", "waiting", f"erasures and search: {found.why}")
        return
    if found.unswept:
        told = f"{many(found.unswept, 'erasure')} cut short, of tenant {found.unswept_tenant!r}: "
        told += "nothing reads the rows, but they are there"
        todo = f"store_at(ADDRESS).retain({found.unswept_tenant!r}, Retention()) takes them away"
        yield Check("warn", "waiting", told, todo)
    if found.unindexed > _MANY:
        told = f"{found.unindexed:,} sessions of tenant {found.unindexed_tenant!r} no search knows"
        todo = f"its next search takes long: foldline search x --tenant {found.unindexed_tenant}"
        yield Check("warn", "waiting", told, todo)
    if not found.unswept and found.unindexed <= _MANY:
        behind = "every session is indexed"
        if found.unindexed:
            behind = f"{many(found.unindexed, 'session')} of {found.unindexed_tenant!r} to index"
        told = f"no erasure was cut short; {behind}"
        yield Check("ok", "waiting", told)
