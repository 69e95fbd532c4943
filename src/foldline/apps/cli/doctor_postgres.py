"""`foldline doctor postgresql://…`: what is well with a server, its settings and this login.

Knows which answers of the server are good, and the setting or statement that makes another one so.
`doctor_schema` knows it of our schema. Refuses to ask by itself (`stores.postgres.health_queries`
does), to write, and to migrate: a schema that is not there is told, not made.
"""

import re
from collections.abc import Generator

import psycopg
from psycopg.conninfo import conninfo_to_dict

from foldline.apps.cli import doctor_schema
from foldline.apps.cli.checks import Check, Level, some
from foldline.apps.cli.output import size
from foldline.errors import BadInput
from foldline.stores.postgres.health import (
    Health,
    Login,
    OldestTransaction,
    ServerState,
    Slot,
    Unseen,
)
from foldline.stores.postgres.health_queries import ReadingConnection, look, opened, seen
from foldline.stores.postgres.query_plans import Plan, PlanSession, longest, plans
from foldline.stores.postgres.url import PostgresSchema, place

_OLDEST = 140_000  # PostgreSQL 14: lz4, and functions of its kind
_GB = 1_000_000_000
_JOURNAL = _GB  # a smaller max_wal_size makes checkpoints under load
_MEMORY = 128 << 20  # what a server has that nobody has set
_MINUTE, _HOUR = 60, 3_600
_FREEZE = 500_000_000, 1_500_000_000  # transactions; the server stops at 2.1 billion
_SLOT = 5 * _GB


async def examined(address: str, tenant: str) -> tuple[str, list[Check]]:
    """The address as it may be shown, and all checks."""
    try:
        where = place(address)
    except BadInput as fault:
        return "postgresql://…", [Check("bad", "store", str(fault), "mend the address")]
    try:
        connection = await opened(where)
        async with connection:
            ask = ReadingConnection(connection, where)
            health = await look(ask)
            session, found = await _turn(ask, health.login, tenant)
    except psycopg.ProgrammingError as fault:
        return where.shown, [_unreached(where, fault, "mend the address")]
    except psycopg.Error as fault:
        return where.shown, [_unreached(where, fault, "start the server or mend the address")]
    schema = doctor_schema.checks(health, where, session, found)
    return where.shown, [*checks(health, where), *schema]


def checks(health: Health, where: PostgresSchema) -> Generator[Check]:
    """What there is to say of the server and of who we are there."""
    yield Check("ok", "store", where.shown)
    server, login = health.server, health.login
    yield from version(server)
    yield from settings(server)
    yield connections(server, where.pool)
    yield who(login, pooled=server.pooled)
    yield transaction(health.oldest, server)
    yield from slots(health.slots)
    yield ages(health.ages)


def version(server: ServerState) -> Generator[Check]:
    """Which server, and whether it can be written to."""
    told = f"PostgreSQL {server.number // 10_000}.{server.number % 10_000}"
    told += ", behind a pooler: nothing is prepared" if server.pooled else ""
    if server.number < _OLDEST:
        yield Check("bad", "server", told, "upgrade it: foldline needs 14 or later")
    elif server.replica:
        todo = "nothing can be appended here: give programs the primary's address"
        yield Check("warn", "server", f"{told}, a replica", todo)
    elif server.settings.get("default_transaction_read_only") == "on":
        todo = "nothing can be appended: alter role … set default_transaction_read_only = off"
        yield Check("bad", "server", f"{told}, only for reading", todo)
    else:
        yield Check("ok", "server", told)


def settings(server: ServerState) -> Generator[Check]:
    """What is set so that writes are lost, slow or cut short."""
    yield _durable(server)
    yield _journal(server)
    yield _memory(server)
    vacuum = [name for name in ("autovacuum", "track_counts") if server.settings.get(name) != "on"]
    if vacuum:
        todo = f"{_system(vacuum[0], 'on')}, or VACUUM by a timer: each turn leaves a dead row"
        yield Check("warn", "vacuum", f"{' and '.join(vacuum)} off", todo)
    else:
        yield Check("ok", "vacuum", "autovacuum is on")
    yield _timeouts(server)


def _durable(server: ServerState) -> Check:
    off = [
        name
        for name in ("fsync", "full_page_writes", "synchronous_commit")
        if server.settings.get(name) == "off"
    ]
    if not off:
        how = server.settings.get("synchronous_commit", "on")
        told = f"fsync and full_page_writes are on, synchronous_commit = {how}"
        return Check("ok", "durable", told)
    lost = "an append that was told as written may be lost when the server falls"
    todo = " ".join(_system(name, "on") + ";" for name in off) + " select pg_reload_conf();"
    return Check("bad", "durable", f"{' and '.join(off)} off: {lost}", todo)


def _journal(server: ServerState) -> Check:
    level, most = server.settings.get("wal_level", ""), _number(server, "max_wal_size")
    told = f"wal_level = {level}, max_wal_size = {_memory_of(most)}"
    if level == "minimal":
        todo = f"no backup to a point in time and no replica: {_system('wal_level', 'replica')}"
        return Check("warn", "journal", told, f"{todo}, and restart")
    if most < _JOURNAL:
        todo = f"checkpoints come too often under load: {_system('max_wal_size', '4GB')}"
        return Check("warn", "journal", told, todo)
    return Check("ok", "journal", told)


def _memory(server: ServerState) -> Check:
    own, all_of_it = _number(server, "shared_buffers"), _number(server, "effective_cache_size")
    told = f"shared_buffers = {_memory_of(own)}, effective_cache_size = {_memory_of(all_of_it)}"
    if own < _MEMORY:
        todo = f"{_system('shared_buffers', '1GB')} (a quarter of the memory), and restart"
        return Check("warn", "memory", told, todo)
    if all_of_it < own:
        todo = "the planner thinks little is cached and may avoid indexes: "
        todo += f"{_system('effective_cache_size', '3GB')} (three quarters of the memory)"
        return Check("warn", "memory", told, todo)
    return Check("ok", "memory", told)


def _timeouts(server: ServerState) -> Check:
    names = ("statement_timeout", "lock_timeout", "transaction_timeout")
    cut = {name: found for name in names if 0 < (found := _number(server, name)) < _MINUTE * 1_000}
    idle = _number(server, "idle_in_transaction_session_timeout")
    ends = f"idle transactions end after {idle / 1_000:g} s" if idle else "idle ones never end"
    if cut:
        told = " and ".join(f"{name} = {found / 1_000:g} s" for name, found in cut.items())
        todo = (
            f"it may cut a migration: migrate as a login without it "
            f"(alter role … set {next(iter(cut))} = 0)"
        )
        return Check("warn", "timeouts", told, todo)
    return Check("ok", "timeouts", f"none that cuts a migration; {ends}")


def connections(server: ServerState, pool: int) -> Check:
    """Whether one more process of ours finds room."""
    most = _number(server, "max_connections") - _number(server, "superuser_reserved_connections")
    told = f"{server.taken} of {most} taken; a process takes up to {pool} (?pool={pool})"
    if server.pooled:
        return Check("ok", "room", f"{told}, here of the pooler's")
    if pool > most:
        todo = f"{_system('max_connections', str(2 * pool + 10))} and restart, or a smaller ?pool="
        return Check("bad", "room", told, todo)
    if pool > most - server.taken:
        todo = f"{_system('max_connections', str(2 * most))} and restart, a smaller ?pool=, "
        return Check("warn", "room", told, f"{todo}or pgbouncer in between")
    return Check("ok", "room", told)


def who(login: Login, *, pooled: bool) -> Check:
    """Whether this login can work there, and cannot go round row-level security."""
    role, name = login.role, login.name
    make = f"create role NAME login in role {role}"
    if login.role_bypasses:
        todo = f"alter role {role} nosuperuser nobypassrls"
        return Check("bad", "login", f"{role} goes round row-level security", todo)
    if login.bypasses and pooled:
        told = f"{name} goes round row-level security, and behind a pooler the store refuses that"
        return Check("bad", "login", told, make)
    if login.bypasses and login.owner and not login.role_there:
        told = f"{name} goes round row-level security, and there is no role {role} to work as"
        todo = f"create role {role} nologin, then grant to it as in 006_rights.sql"
        return Check("bad", "login", told, todo)
    if login.bypasses and login.owner and not login.member:
        told = f"{name} goes round row-level security, and may not work as {role}, which cannot"
        return Check("bad", "login", told, f"grant {role} to {name}")
    if login.bypasses:
        told = f"{name} goes round row-level security; the store works as {role}, which cannot"
        return Check("warn", "login", told, f"give programs a login of their own: {make}")
    if login.owner and not (login.member or login.owns):
        told = f"{name} is no member of {role}"
        return Check("bad", "login", told, f"grant {role} to {name}")
    may = "owns the schema" if login.owns else f"is a member of {role}"
    return Check(
        "ok", "login", f"{name} {may if login.owner else 'can log in'}; policies hold for it"
    )


def transaction(oldest: OldestTransaction | Unseen | None, server: ServerState) -> Check:
    """Whether one holds up vacuum."""
    if isinstance(oldest, Unseen):
        return Check("warn", "oldest", f"transactions of others: {oldest.why}")
    if oldest is None or oldest.seconds < _HOUR:
        return Check("ok", "oldest", "no transaction is older than an hour")
    who_ = f"process {oldest.pid}" if oldest.pid else "one"
    told = f"{who_} of {oldest.user} ({oldest.state}) began {oldest.seconds / _HOUR:.1f} h ago"
    end = f"select pg_terminate_backend({oldest.pid})" if oldest.pid else "rollback prepared it"
    todo = f"nothing dead since is vacuumed: {end}"
    if not _number(server, "idle_in_transaction_session_timeout"):
        todo += f"; {_system('idle_in_transaction_session_timeout', '5min')} ends idle ones"
    return Check("bad" if oldest.seconds > 24 * _HOUR else "warn", "oldest", told, todo)


def slots(found: list[Slot] | Unseen) -> Generator[Check]:
    """Whether one keeps journal for nobody."""
    if isinstance(found, Unseen):
        yield Check("warn", "slots", f"replication slots: {found.why}")
        return
    held = [slot for slot in found if slot.held > _SLOT]
    for slot in held:
        told = f"{slot.name} holds {size(slot.held)} of journal back"
        drop = f"start its replica, or: select pg_drop_replication_slot('{slot.name}')"
        todo = "its replica is behind: look at it" if slot.active else drop
        yield Check("warn" if slot.active else "bad", "slots", told, todo)
    if not held:
        told = some([slot.name for slot in found])
        yield Check("ok", "slots", f"{told}: none holds much" if told else "no replication slots")


def ages(found: tuple[int, int] | Unseen) -> Check:
    """How far the server is from refusing writes."""
    if isinstance(found, Unseen):
        return Check("warn", "wraparound", found.why)
    oldest = max(found)
    told = f"{oldest:,} transactions of 2.1 billion"
    levels: list[Level] = ["ok", "warn", "bad"]
    level = levels[sum(oldest > limit for limit in _FREEZE)]
    todo = "" if level == "ok" else "vacuum (freeze), and end what holds it up"
    return Check(level, "wraparound", told, todo)


async def _turn(
    ask: ReadingConnection, login: Login, tenant: str
) -> tuple[PlanSession | Unseen | None, list[Plan] | Unseen]:
    if login.owner is None or not login.enters:
        return None, []
    session = await seen(longest(ask, login, tenant))
    if session is None or isinstance(session, Unseen):
        return session, []
    return session, await seen(plans(ask, login, session))


def _unreached(where: PostgresSchema, fault: psycopg.Error, todo: str) -> Check:
    return Check("bad", "store", f"no connection to {where.shown}: {_unsaid(where, fault)}", todo)


def _unsaid(where: PostgresSchema, fault: psycopg.Error) -> str:
    """What the driver says, without the password."""
    told = " ".join(str(fault).split())
    try:
        secret = str(conninfo_to_dict(where.address).get("password") or "")
    except psycopg.ProgrammingError:  # then it is the address that is quoted
        return re.sub(r'"[^"]*"', "…", told)
    return told.replace(secret, "…") if secret else told


def _number(server: ServerState, name: str) -> int:
    return int(server.settings.get(name, 0))


def _memory_of(count: int) -> str:
    for unit, step in (("GB", 1 << 30), ("MB", 1 << 20)):
        if count >= step:
            return f"{count / step:g} {unit}" if not count % step else f"{count / step:.1f} {unit}"
    return f"{count >> 10} kB"


def _system(name: str, value: str) -> str:
    return f"alter system set {name} = '{value}'"
