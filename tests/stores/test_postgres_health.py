"""The doctor on a real server: a schema that is well, and every fault that can be made in one."""
# ruff: noqa: S608 - the names in these statements are made here

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from serving import PGBOUNCER, SERVER, a_schema, address_of, connected, pooler, with_setting

from foldline.apps.cli.doctor_postgres import inspect_postgres
from foldline.draw.wording import measure_width
from foldline.stores.base import Draft, Name, Row
from foldline.stores.postgres import PostgresStore
from foldline.stores.postgres.connections import sid_of
from foldline.stores.postgres.health import (
    DEFINERS,
    INDEXES,
    SECURED,
    ReadingConnection,
    expected_routines,
    open_readonly_connection,
    read_health,
)
from foldline.stores.postgres.url import parse_postgres_url
from foldline.testing.stores import rows

pytestmark = [pytest.mark.real, pytest.mark.anyio]
FOLDLINE = Path(sys.executable).with_name("foldline")
LONG = Name("acme", "long")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def made():
    """A schema with one session of 2,000 rows, another that is short, and an index of words."""
    with a_schema() as name:

        async def make():
            store = PostgresStore(address_of(name))
            body = json.dumps({"text": os.urandom(400).hex()}).encode()
            for _ in range(4):
                await store.append(LONG, Draft([Row("user_said", body) for _ in range(500)]))
            await store.append(Name("acme", "short"), rows("hello"))
            await store.search("acme", "hello")
            await store.close()

        asyncio.run(make())
        yield name


async def found(schema, server=SERVER, tenant="local"):
    """What the doctor says, but what is well of the machine: (level, what) → sentences."""
    _, checks = await inspect_postgres(address_of(schema, server), tenant)
    told: dict[tuple[str, str], list[str]] = {}
    for check in checks:
        told.setdefault((check.level, check.what), []).append(f"{check.told}; {check.todo}")
    return told


def bad(told):
    return {what for level, what in told if level == "bad"}


async def test_a_schema_that_is_well(made):
    """Nothing is bad; what this release looks for is what its migrations make."""
    told = await found(made)
    assert bad(told) == set()
    well = {what for level, what in told if level == "ok"}
    assert well >= {
        "store", "server", "durable", "journal", "memory", "timeouts", "room", "wraparound",
        "schema", "partitions", "security", "rights", "lz4", "functions", "indexes", "plans",
        "size", "dead rows", "waiting",
    }  # fmt: skip
    (plans,) = told["ok", "plans"]
    assert "2,000 events" in plans
    where = parse_postgres_url(address_of(made))
    async with await open_readonly_connection(where) as connection:
        health = await read_health(ReadingConnection(connection, where))
    assert {one.name for one in health.indexes} == {*INDEXES, "migrations_pkey"}
    assert {one.name for one in health.routines} == expected_routines()
    assert {one.name for one in health.routines if one.definer} == {*DEFINERS}
    assert {one.table for one in health.policies} == {*SECURED}


async def test_nothing_is_written(made):
    """Neither rows nor locks nor a schema: what the server counts stays as it was."""
    asked = f"select sum(n_tup_ins + n_tup_upd + n_tup_del) from pg_stat_all_tables where schemaname = '{made}'"
    with connected() as server:
        server.execute("select pg_stat_clear_snapshot()")
        before = server.execute(asked).fetchone()
        await found(made)
        await asyncio.sleep(1.5)  # counters are told late
        server.execute("select pg_stat_clear_snapshot()")
        assert server.execute(asked).fetchone() == before
        where = parse_postgres_url(address_of(made))
        async with await open_readonly_connection(where) as connection:
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                await ReadingConnection(connection, where)("delete from {schema}.heads")
        missing = f"{made}_no"
        told = await found(missing)
        assert bad(told) == {"schema"}
        assert "there is no schema" in told["bad", "schema"][0]
        there = server.execute("select count(*) from pg_namespace where nspname = %s", [missing])
        assert there.fetchone() == (0,)


FAULTS = {
    # What is done, which check finds it, what that says, what undoes it: "" is what it says to do.
    "policy dropped": (
        "drop policy tenants on {s}.heads",
        "policies",
        "heads has not the policy",
        "",
    ),
    "policy that lets all in": (
        "alter policy tenants on {s}.events using (true)",
        "policies",
        "events has not the policy",
        "",
    ),
    "policy for one role": (
        "alter policy tenants on {s}.side to {s}_app",
        "policies",
        "side has not the policy",
        "",
    ),
    "another policy": (
        "create policy open on {s}.heads using (true)",
        "policies",
        "open on heads is none of",
        "",
    ),
    "policy on a partition": (
        "create policy open on {s}.blobs_00 using (true)",
        "policies",
        "open on blobs_00",
        "",
    ),
    "not forced on a partition": (
        "alter table {s}.events_17 no force row level security",
        "security",
        "not forced on events_17",
        "",
    ),
    "not enabled": (
        "alter table {s}.erased disable row level security",
        "security",
        "off on erased",
        "",
    ),
    "postings open": (
        "alter table {s}.postings disable row level security",
        "security",
        "off on postings",
        "",
    ),
    "table gone": (
        "alter table {s}.unindexed rename to elsewhere",
        "security",
        "no table unindexed",
        "alter table {s}.elsewhere rename to unindexed",
    ),
    "partition detached": (
        "alter table {s}.seen detach partition {s}.seen_03",
        "partitions",
        "1 missing: seen_03",
        "",
    ),
    "definer without a path": (
        "alter function {s}.postings_of reset search_path",
        "functions",
        "whatever search_path",
        "",
    ),
    "another definer": (
        "alter function {s}.read security definer",
        "functions",
        "read works as its owner",
        "",
    ),
    "definer no longer": (
        "alter function {s}.post security invoker",
        "functions",
        "post should work as the owner",
        "",
    ),
    "function gone": (
        "alter function {s}.hold rename to elsewhere",
        "functions",
        "hold not there",
        "alter function {s}.elsewhere rename to hold",
    ),
    "public function": (
        "grant execute on function {s}.search to public",
        "rights",
        "public may do more",
        "",
    ),
    "public table": ("grant select on {s}.postings to public", "rights", "public may do more", ""),
    "public schema": ("grant usage on schema {s} to public", "rights", "public may do more", ""),
    "postings for the role": (
        "grant select on {s}.postings to {s}_app",
        "rights",
        "{s}_app may do more",
        "",
    ),
    "role without rights": (
        "revoke delete on {s}.events from {s}_app",
        "rights",
        "{s}_app may not work on events",
        "",
    ),
    "role that goes round": ("alter role {s}_app bypassrls", "login", "{s}_app goes round", ""),
    "index dropped": (
        "drop index {s}.postings_by_session",
        "indexes",
        "postings_by_session is not there",
        "",
    ),
    "key dropped": (
        "alter table {s}.events drop constraint events_pkey",
        "plans",
        "from end to end",
        "alter table {s}.events add primary key (sid, seq)",
    ),
    "migration altered": (
        "update {s}.migrations set sha256 = 'x' || sha256 where number = 2",
        "schema",
        "002_appending.sql was",
        "update {s}.migrations set sha256 = substr(sha256, 2) where number = 2",
    ),
    "migration removed": (
        "delete from {s}.migrations where number = 3",
        "schema",
        "003_reading.sql is not in",
        "",
    ),
    "migration from the future": (
        "insert into {s}.migrations values (99, '099_far.sql', 'x', 99)",
        "schema",
        "099_far.sql is of a later release",
        "delete from {s}.migrations where number = 99",
    ),
    "no list of migrations": (
        "alter table {s}.migrations rename to elsewhere",
        "schema",
        "no tables of foldline",
        "alter table {s}.elsewhere rename to migrations",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_each_fault_is_found_and_mended(made, name):
    """What it says to do is run as it stands, and then all is well again."""
    text, what, sentence, undo = (part.replace("{s}", made) for part in FAULTS[name])
    with connected() as server:
        server.execute(text)
        _, checks = await inspect_postgres(address_of(made), "local")
        wrong = [one for one in checks if one.level == "bad"]
        for todo in [undo] if undo else [one.todo for one in wrong]:
            server.execute(todo.rpartition(": ")[2].removesuffix("; else restore a backup"))
    assert any(one.what == what and sentence in one.told for one in wrong), wrong
    assert bad(await found(made)) == set()


async def test_a_turn_without_its_index_reads_whole_tables():
    """Also the append, which is only explained; and little is not much, whatever the plan."""
    with a_schema() as schema:
        store = PostgresStore(address_of(schema))
        await store.append(LONG, rows("one"))
        with connected() as server:
            server.execute(f"alter table {schema}.heads drop constraint heads_pkey")
            assert ("bad", "plans") not in await found(schema)
            server.execute(
                f"insert into {schema}.heads (sid, tenant, session, opened, changed) "
                "select gen_random_uuid(), 'acme', 'a' || n, 0, 0 from generate_series(1, 9000) as n"
            )
        told = await found(schema)
        await store.close()
    slow = [*told["bad", "plans"], *told["warn", "plans"]]
    assert {one.split()[0] for one in slow} == {"head", "read", "search", "append"}


async def test_work_left_over(made):
    name = Name("acme", "cut short")
    store = PostgresStore(address_of(made))
    await store.append(name, rows("one"))
    await store.close()
    with connected() as server:
        server.execute("select set_config('foldline.tenant', 'acme', false)")
        server.execute(f"select {made}.erase('acme', '{sid_of(name)}', 'cut short', null)")
    told = await found(made)
    assert "1 erasure cut short, of tenant 'acme'" in told["warn", "waiting"][0]
    again = PostgresStore(address_of(made))
    await again.erase(name)
    await again.close()
    assert ("warn", "waiting") not in await found(made)


async def test_a_long_transaction_and_a_slot(made, monkeypatch):
    """Found in the server's own lists; the limits are lowered, an hour is too long here."""
    monkeypatch.setattr("foldline.apps.cli.doctor_postgres._HOUR", 0.05)
    monkeypatch.setattr("foldline.apps.cli.doctor_postgres._SLOT", -1)
    slot = f"{made}_slot"
    with connected() as idle, connected() as server:
        idle.execute("begin")
        idle.execute("select 1")
        number = idle.info.backend_pid
        server.execute("select pg_create_physical_replication_slot(%s, true)", [slot])
        try:
            await asyncio.sleep(0.2)
            told = await found(made)
        finally:
            server.execute("select pg_drop_replication_slot(%s)", [slot])
    (oldest,) = [one for (_, what), one in told.items() if what == "oldest"]
    assert "pg_terminate_backend" in oldest[0]
    assert str(number) in oldest[0] or "process" in oldest[0]  # another test's may be older
    assert any(slot in one for one in told["bad", "slots"])


async def test_a_schema_without_tables():
    """Made by hand for us, and never opened."""
    with a_schema() as schema:
        with connected() as server:
            server.execute(f"create schema {schema}")
        told = await found(schema)
    assert "has no tables of foldline" in told["bad", "schema"][0]
    assert "partitions" not in {what for _, what in told}


async def test_logins_that_see_less(made):
    """Somebody who works there, who owns nothing and who may not come in: told, and no failure."""
    login, stranger = f"{made}_login", f"{made}_none"
    with connected() as server:
        server.execute(f"create role {login} login in role {made}_app")
        server.execute(f"create role {stranger} login")
    try:
        host = with_setting(SERVER, "user={}")
        told = await found(made, host.format(login), tenant="acme")
        assert bad(told) == set()
        assert "may not see it" in told["warn", "oldest"][0]
        assert "may not see it" in told["warn", "waiting"][0]
        assert "2,000 events" in told["ok", "plans"][0]  # of the tenant that was named
        assert ("ok", "login") in told
        told = await found(made, host.format(login), tenant="nobody")
        assert "no session yet" in told["ok", "plans"][0]
        told = await found(made, host.format(stranger))
        assert bad(told) == {"login", "schema"}
        assert f"grant {made}_app to {stranger}" in told["bad", "schema"][0]
        with connected() as server:
            server.execute(f"alter role {login} set synchronous_commit = off")
            server.execute(f"alter role {login} set statement_timeout = '20s'")
        told = await found(made, host.format(login))
        assert bad(told) == {"durable"}
        assert "statement_timeout = 20 s" in told["warn", "timeouts"][0]
    finally:
        with connected() as server:
            server.execute(f"drop role {login}")
            server.execute(f"drop role {stranger}")


@pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not here; FOLDLINE_PGBOUNCER names it")
async def test_behind_a_pooler(made, tmp_path):
    """It is seen; the work goes on over other connections; a superuser is refused there."""
    login = f"{made}_pooled"
    with connected() as server:
        server.execute(f"create role {login} login in role {made}_app")
        user = server.execute("select current_user").fetchone()[0]
    try:
        with pooler(tmp_path, [login, user], size=2) as where:
            told = await found(made, f"postgresql://{login}@{where}", tenant="acme")
            assert "behind a pooler" in told["ok", "server"][0]
            assert bad(told) == set()
            assert ("ok", "plans") in told
            told = await found(made, f"postgresql://{user}@{where}")
            assert "the store refuses that" in told["bad", "login"][0]
    finally:
        with connected() as server:
            server.execute(f"drop role {login}")


@pytest.mark.parametrize("columns", [80, 120])
def test_as_a_person_runs_it(made, columns):
    """The program, at two widths: lines that fit, the same answer in JSON, the address by --store."""

    def ran(*arguments):
        env = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"}
        return subprocess.run(
            [FOLDLINE, *arguments], env=env, capture_output=True, text=True, check=False, timeout=60
        )

    address = address_of(made)
    told = ran("doctor", address)
    assert (told.returncode, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    assert max(measure_width(line) for line in lines) <= columns
    assert lines[-1].endswith("warn")
    assert 30 < len(lines) < 55
    body = json.loads(ran("doctor", "--json", "--store", address).stdout)
    assert (body["ok"], body["store"]) == (True, f"{parse_postgres_url(address).shown}")
    by_env = subprocess.run(
        [FOLDLINE, "doctor", "--json"],
        env={**os.environ, "FOLDLINE_STORE": address},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert [one["what"] for one in json.loads(by_env.stdout)["checks"]] == [
        one["what"] for one in body["checks"]
    ]
