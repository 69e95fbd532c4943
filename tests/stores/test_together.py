"""Eight processes on one store at once: leases, failures, retention and erasure under way.

Each on a SQLite file and on PostgreSQL, and each with the broken store that it must see. Writing to one
session is `test_processes`'s. The children are `together.py`.
"""

# ruff: noqa: S608 - the names in these statements are made here

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import apsw
import pytest
from serving import a_schema, address_of, connected
from together import CANARY, GROUP, SHARED, TENANT, group, is_whole

from foldline.core.log import Folded, UserSaid
from foldline.core.spine import Range
from foldline.errors import FoldlineError
from foldline.stores import event_log
from foldline.stores.base import Name, Retention
from foldline.stores.open_store import store_at
from foldline.stores.postgres import retention
from foldline.stores.postgres.connections import sid_of
from foldline.stores.sqlite import retention as sqlite_keeping
from foldline.testing.stores import rows

PROCESSES = 8
PATIENCE = 180  # seconds: what is waited for comes sooner, unless the machine stands still
PROGRAM = Path(__file__).with_name("together.py")
SEEN = (AssertionError, FoldlineError, subprocess.TimeoutExpired)
pytestmark = pytest.mark.real


@pytest.fixture(params=["sqlite", "postgres"])
def address(request, tmp_path):
    """A new store, made: a child that finds none would make it."""
    with a_store(request.param, tmp_path) as made:
        yield made


@contextmanager
def a_store(kind, tmp_path):
    """The address of a new store of a kind."""

    async def make(made):
        store = store_at(made)
        await store.head(SHARED)
        await store.close()

    if kind == "sqlite":
        made = str(tmp_path / "talks.db")
        asyncio.run(make(made))
        yield made
        return
    with a_schema() as schema:
        asyncio.run(make(address_of(schema)))
        yield address_of(schema)


def schema_of(address):
    """The schema of PostgreSQL's address, or none."""
    named = re.search(r"schema=(\w+)", address)
    return named and named[1]


def started(address, work, **options):
    """Eight processes at some work."""
    given = json.dumps({"processes": PROCESSES} | options)
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), address, work, given],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def ended(process):
    """What they tell; no other error than those they expect."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert (err.decode(), process.returncode) == ("", 0)
    return json.loads(out)


def alter(address, *changes):
    """Functions of the server with a line replaced: what a broken release would have made."""
    with connected() as owner:
        for function, line, instead in changes:
            ((text,),) = owner.execute(
                "select pg_get_functiondef(oid) from pg_proc where proname = %s "
                "and pronamespace = %s::regnamespace",
                (function, schema_of(address)),
            ).fetchall()
            assert line in text, f"{line!r} is not in {function}"
            owner.execute(text.replace(line, instead))


# one fold at a time, fenced.


def fold_under_leases(address, holdings=3, **options):
    told = ended(started(address, "folding", holdings=holdings, **options))
    leases = sorted((one for each in told for one in each["leases"]), key=lambda one: one["fence"])
    fences = [one["fence"] for one in leases]
    assert fences == sorted(set(fences)), "two leases under one fence"
    for one, following in pairwise(leases):
        ends = min(one["until"], one.get("released", one["until"]))
        assert following["taken"] > ends - 0.0001, f"two holders at once: {one}, {following}"
    lost = [one for one in leases if "lost" in one]
    assert all(
        of == "fence" and found > one["fence"] for one in lost for of, found in [one["lost"]]
    )
    under = sorted((seq, one["fence"]) for one in leases for seq in one["wrote"])

    async def log():
        store = store_at(address)
        found = await event_log.read_events(store, SHARED, Range(0, 100_000))
        await store.close()
        return found

    found = asyncio.run(log())
    assert [seq for seq, _ in under] == [seq for seq, _ in found], "written once, and told"
    by = [fence for _, fence in under]
    assert by == sorted(by), "written under a lease that another had taken over"
    folds = sum(isinstance(event, Folded) for _, event in found)
    busy = sum(each["busy"] for each in told)
    print(
        f"\n{len(leases)} leases, {busy} times refused, {len(lost)} lost to another and told so; "
        f"{len(found)} events, {folds} folds"
    )
    assert min(len(lost), folds, busy) > 0  # the control: they did meet


def test_one_process_folds_at_a_time(address):
    fold_under_leases(address)


FENCE = "if fence is not None and fence != found.fence:"
HELD = "if found.holder and found.until > now and not mine:"


@pytest.mark.parametrize("what", ["fence", "holder"])
def test_broken_leases_are_seen_on_sqlite(tmp_path, what):
    mutant = (
        ["foldline.stores.sqlite.session_rows", FENCE, "if False:"]
        if what == "fence"
        else ["foldline.stores.sqlite.session_rows", HELD, "if False:"]
    )
    with a_store("sqlite", tmp_path) as address, pytest.raises(SEEN):
        fold_under_leases(address, broken=[mutant])


@pytest.mark.parametrize("what", ["fence", "holder"])
def test_broken_leases_are_seen_on_postgres(tmp_path, what):
    mutants = {
        "fence": [
            ("append_one", "and (p_fence is null or fence = p_fence)", ""),
            ("admit", "if p_fence <> known.fence then", "if false then"),
        ],
        "holder": [("lease", "and known.until > told and known.holder <> p_holder", "and false")],
    }
    with a_store("postgres", tmp_path) as address:
        alter(address, *mutants[what])
        with pytest.raises(SEEN):
            fold_under_leases(address)


# a failure is loud, and nothing goes on as if it were written.

ROUNDS = 4


def end_connections(schema):
    """End every append in the middle: each waits for a row that we hold."""
    told = []  # to end: such a one may still be listed
    with connected() as ours, connected() as beside:  # a transaction sees one moment's list
        for _ in range(ROUNDS):
            waiting = []
            with ours.transaction(force_rollback=True):
                ours.execute(f"select 1 from {schema}.heads for update")
                until = time.monotonic() + PATIENCE
                while len(waiting) < PROCESSES and time.monotonic() < until:
                    time.sleep(0.02)
                    waiting = beside.execute(
                        "select pid from pg_stat_activity where wait_event_type = 'Lock' "
                        "and query like %s and pid <> all(%s)",
                        (f'%"{schema}".append%', told),
                    ).fetchall()
                assert len(waiting) == PROCESSES
                for (pid,) in waiting:
                    beside.execute("select pg_terminate_backend(%s)", (pid,))
                    told.append(pid)
                time.sleep(0.05)


def fail(address, **options):
    schema = schema_of(address)

    async def begin():
        store = store_at(address)
        for who in range(PROCESSES):
            await store.append(Name(TENANT, f"p{who}"), rows("begun"))
        await store.close()

    asyncio.run(begin())
    process = started(address, "failing", rounds=ROUNDS, **options)
    try:
        if schema:
            end_connections(schema)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)  # else they write until their connections are ended
        raise
    told = ended(process)

    async def compare():
        store = store_at(address)
        for who, one in enumerate(told):
            found = await event_log.read_events(store, Name(TENANT, f"p{who}"), Range(0, 10_000))
            assert found[-1].seq == one["head"], "the view is not at the log's end"
            said = [event.parts[0].text for _, event in found if isinstance(event, UserSaid)][1:]
            there = [int(re.match("<([0-9]+)>", text)[1]) for text in said]
            assert there == sorted(set(there))
            assert set(one["done"]) <= set(there) <= {*one["done"], *one["failed"]}
            assert one["shown"] == [], "shown before it was written"
            assert len(one["failed"]) >= ROUNDS
        await store.close()

    asyncio.run(compare())
    done, failed = (sum(len(one[what]) for one in told) for what in ("done", "failed"))
    print(f"\n{done} appends done, {failed} failed and told so")


def test_a_store_that_fails_is_loud(address):
    """A connection ended in the middle, a file that may not grow; afterwards the same view goes on."""
    fail(address)


def test_broken_a_store_that_fails_in_silence_is_seen(address):
    with pytest.raises(AssertionError):
        fail(address, forgiving=True)


# retention while others append.


def retain(address, tmp_path, seconds=2.0, **options):
    sessions = [f"s{at:02}" for at in range(24)]
    held = {"s00", "s01"}
    stop = tmp_path / "stop"

    async def begin():
        store = store_at(address)
        size = 0
        for session in sessions:
            draft = group("first", 0)
            await store.append(Name(TENANT, session), draft)
            size += sum(len(row.body) for row in draft.rows)
        for session in held:
            await store.hold(Name(TENANT, session), on=True)
        await store.close()
        return size

    size = asyncio.run(begin())
    process = started(address, "appending", stop=str(stop), sessions=sessions, **options)
    try:
        receipts = asyncio.run(retain_some(address, held, seconds))
    finally:
        stop.touch()
        told = ended(process)
    events = len(sessions) * GROUP + sum(one["events"] for one in told)
    size += sum(one["size"] for one in told)
    gone = sum(receipt.events for receipt in receipts)
    gone_size = sum(receipt.size for receipt in receipts)

    async def left():
        store = store_at(address)
        listed = await store.sessions(TENANT, limit=10_000)
        for one in listed:
            assert is_whole(await store.read(Name(TENANT, one.session), [(0, 100_000)]))
        await store.close()
        return sum(one.head + 1 for one in listed), sum(one.size for one in listed)

    left_events, left_size = asyncio.run(left())
    reads, halves, late = (sum(o[what] for o in told) for what in ("reads", "halves", "erased"))
    sessions_gone = sum(len(receipt.sessions) for receipt in receipts)
    print(
        f"\n{events} events appended, {gone} of {sessions_gone} sessions erased by {len(receipts)} "
        f"retentions, {left_events} left; {reads} reads, {halves} of half a session; {late} late"
    )
    assert (gone + left_events, gone_size + left_size) == (events, size), "the receipts add up"
    assert halves == 0
    assert min(gone, late, reads) > 0


async def retain_some(address, held, seconds):
    """By count, by size, by age, each dry first."""
    store = store_at(address)
    receipts = []
    for _ in range(400):
        if any(one.head > 3 * GROUP for one in await store.sessions(TENANT, limit=1_000)):
            break
        await asyncio.sleep(0.05)  # until they write
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        await asyncio.sleep(0.05)
        total = sum(one.size for one in await store.sessions(TENANT, limit=1_000))
        for rule in (
            Retention(sessions=20),
            Retention(size=total * 3 // 4),
            Retention(seconds=0.15),
        ):
            before = {one.session for one in await store.sessions(TENANT, limit=1_000)}
            dry = await store.retain(TENANT, rule, dry=True)
            after = {one.session for one in await store.sessions(TENANT, limit=1_000)}
            assert before <= after, "a dry run erased something"
            assert set(dry.sessions) <= after
            assert dry.dry
            receipt = await store.retain(TENANT, rule)
            receipts.append(receipt)
            now = {one.session for one in await store.sessions(TENANT, limit=1_000)}
            assert not held & {*dry.sessions, *receipt.sessions}
            assert held <= now
            assert not now & set(receipt.sessions)
    await store.close()
    return receipts


def test_retention_while_others_append(address, tmp_path, monkeypatch):
    """Nothing that is held, nothing by halves, and the receipts add up to what is missing."""
    monkeypatch.setattr(retention, "_BATCH", 4)  # rows: so that a sweep is several transactions
    retain(address, tmp_path)


def test_broken_retention_is_seen_on_sqlite(tmp_path):
    """Rows in a transaction of their own: half of an append is read, and a receipt lacks the rest."""
    line = "_insert(db, found.sid, found.head + 1, draft, now)"
    torn = (
        "_insert(db, found.sid, found.head + 1, Draft(draft.rows[:1]), now), db.sql('commit'), "
        "db.sql('begin immediate'), _insert(db, found.sid, found.head + 2, Draft(draft.rows[1:]), now)"
    )
    with a_store("sqlite", tmp_path) as address, pytest.raises(SEEN):
        retain(
            address,
            tmp_path,
            seconds=6,
            broken=[["foldline.stores.sqlite.session_rows", line, torn]],
        )


@pytest.mark.parametrize("what", ["late ones come in", "held ones go"])
def test_broken_retention_is_seen_on_postgres(tmp_path, what, monkeypatch):
    """A session that is begun anew under an erasure, and one that is held."""
    monkeypatch.setattr(retention, "_BATCH", 4)
    with a_store("postgres", tmp_path) as address:
        schema = schema_of(address)
        mutants = {
            "late ones come in": [
                (
                    "begun",
                    f'from "{schema}".erased where sid',
                    f'from "{schema}".erased where false and sid',
                )
            ],
            "held ones go": [
                ("leaving", "and not h.held", ""),
                ("erase", "(known.held or known.changed > p_unless)", "false"),
            ],
        }
        alter(address, *mutants[what])
        with pytest.raises(SEEN):
            retain(address, tmp_path)


def come_back(address, what, monkeypatch):
    """Retention, with somebody who comes between its list and its first erasure."""

    async def between(name):
        store = store_at(address)
        if what == "hold":
            await store.hold(name, on=True)
        else:
            await store.append(name, rows("I am back"))
        await store.close()

    async def run():
        store = store_at(address)
        for session in ("one", "two"):
            await store.append(Name(TENANT, session), rows("x"))
        coming = iter([Name(TENANT, "one")])
        if schema_of(address):
            erasing = retention.erase_session

            async def wait_and_erase(db, name, **given):
                for one in coming:
                    await between(one)
                return await erasing(db, name, **given)

            monkeypatch.setattr(retention, "erase_session", wait_and_erase)
        else:

            def trace(_cursor, sql, _bindings):
                for one in coming if sql.startswith("begin immediate") else ():
                    with ThreadPoolExecutor() as beside:
                        beside.submit(asyncio.run, between(one)).result()
                return True

            store.db.connection.exec_trace = trace
        receipt = await store.retain(TENANT, Retention(sessions=0))
        assert next(coming, None) is None
        assert receipt.sessions == ("two",)
        assert [one.session for one in await store.sessions(TENANT)] == ["one"]
        await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("what", ["hold", "append"])
def test_who_comes_back_after_retention_made_its_list_stays(address, what, monkeypatch):
    """R-67, R-74: held or written to since, it is not what the rule meant."""
    come_back(address, what, monkeypatch)


@pytest.mark.parametrize("what", ["hold", "append"])
def test_broken_who_comes_back_is_erased(address, what, monkeypatch):
    if schema_of(address):
        alter(address, ("erase", "(known.held or known.changed > p_unless)", "false"))
    else:
        monkeypatch.setattr(sqlite_keeping, "_STAYS", "select 1 where ? > ? and false")
    with pytest.raises(AssertionError):
        come_back(address, what, monkeypatch)


# erasure while others write.


def erase(address, **options):
    schema = schema_of(address)
    process = started(address, "writing", **options)

    async def erasing():
        store = store_at(address)
        try:
            for _ in range(3_000):
                if (await store.head(SHARED)).seq > 60:
                    break
                await asyncio.sleep(0.01)
            await store.append(Name(TENANT, "other"), rows("stays"))
            receipt = await store.erase(SHARED)
            return receipt, await store.erase(SHARED)
        finally:
            await store.close()

    try:
        receipt, second = asyncio.run(erasing())
    finally:
        told = ended(process)
    events, size, refused = (
        sum(one[what] for one in told) for what in ("events", "size", "refused")
    )
    tables = traces(address)
    print(f"\n{events} events in {receipt.events} erased, {refused} refused; {len(tables)} tables")
    assert (receipt.sessions, receipt.events, receipt.size) == (("shared",), events, size)
    assert second.events == 0
    assert [one["let in"] for one in told] == [[]] * PROCESSES
    assert [name for name, found in tables.items() if found] == []
    assert len(tables) > (100 if schema else 6)


def traces(address):
    """In how many rows of every table the canary or the session's own number is left."""
    schema = schema_of(address)
    if not schema:
        db = apsw.Connection(address)
        tables = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]  # fmt: skip
        found = {}
        for table in tables:
            rows_of = db.execute(f'select * from "{table}"').fetchall()
            found[table] = sum(CANARY in repr(row) or "'shared'" in repr(row) for row in rows_of)
        db.close()
        files = [
            path for path in Path(address).parent.glob("talks.db*") if path.suffix != ".db-shm"
        ]
        return found | {f.name: f.read_bytes().count(CANARY.encode()) for f in files}
    with connected() as owner:
        owner.execute("set bytea_output = 'escape'")
        tables = owner.execute(
            "select relname from pg_class where relnamespace = %s::regnamespace "
            "and relkind in ('r', 'm')",
            (schema,),
        ).fetchall()
        count = f"select count(*) from {schema}.%s as t where t::text like any (%%s)"
        own = [f"%{CANARY}%", f"%{sid_of(SHARED)}%", f"%{sid_of(SHARED).hex}%"]
        return {
            table: owner.execute(
                count % table, (own[:1] if table == "erased" else own,)
            ).fetchone()[0]
            for (table,) in tables
        }


def test_erasure_while_others_write(address):
    """Nothing is left in any table, whoever was writing what; late writes are refused."""
    erase(address)


def test_broken_erasure_is_seen_on_sqlite(tmp_path):
    """Late writes are let in: what an erasure does not find stays."""
    mutant = ["foldline.stores.sqlite.connection", "        if rows:\n", "        if False:\n"]
    with a_store("sqlite", tmp_path) as address, pytest.raises(SEEN):
        erase(address, broken=[mutant], seconds=2)


@pytest.mark.parametrize("table", ["blobs", "seen", "postings"])
def test_broken_erasure_is_seen_on_postgres(tmp_path, table):
    with a_store("postgres", tmp_path) as address:
        schema = schema_of(address)
        alter(
            address,
            (
                "forget" if table == "postings" else "sweep",
                f'delete from "{schema}".{table} where sid = p_sid;',
                "",
            ),
        )
        with pytest.raises(AssertionError):
            erase(address)
