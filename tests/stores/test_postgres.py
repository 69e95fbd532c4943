"""What is PostgreSQL's own: tenants, migrations, plans, connections that end.

The promises of every store are `test_postgres_conformance`'s.
"""

# ruff: noqa: S608 - the names in these statements are made here

import asyncio
import json
import os
import re
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import psycopg
import pytest
from serving import SERVER, a_schema, address_of, connected

import foldline
from foldline.core.log import UserSaid
from foldline.core.parts import Media, Text
from foldline.errors import BadInput, Conflict, Erased, FormatError, StoreFailed
from foldline.stores import event_log, search_ranking
from foldline.stores import open_store as at
from foldline.stores.base import Draft, Name, Retention, Row
from foldline.stores.postgres import PostgresStore, append, retention, schema
from foldline.stores.postgres.connections import sid_of
from foldline.stores.postgres.url import parse_postgres_url
from foldline.stores.search_terms import list_query_terms
from foldline.testing.stores import Conformance, rows

pytestmark = [pytest.mark.real, pytest.mark.anyio]
MINE = Name("acme", "one")
TABLES = ("heads", "events", "seen", "blobs", "side", "erased", "unindexed")
OPERATIONS = 10_000 if os.environ.get("FOLDLINE_LAWS") == "deep" else 150


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def made():
    """A schema for all tests here, made once; each has sessions of its own."""
    with a_schema() as name:

        async def make():
            store = PostgresStore(address_of(name))
            await store.head(MINE)
            await store.close()

        asyncio.run(make())
        yield name


@pytest.fixture
async def store(made):
    store = PostgresStore(address_of(made))
    yield store
    await store.close()


def working(made):
    """A connection that works as the store does: as a role that row-level security holds for."""
    connection = connected()
    connection.execute(f"set role {made}_app")
    return connection


# Tenants.


async def test_nothing_is_reached_without_a_tenant(made, store):
    """R-69: neither before one was ever set in a connection, nor after; also by a function."""
    picture = [UserSaid((Text("canary"), Media("image", base64="A" * 20_000)))]
    await event_log.append_events(store, MINE, picture, once="k")
    await store.put(MINE, "s", "k", b"canary")
    await store.append(Name("acme", "gone"), rows("canary"))
    await store.erase(Name("acme", "gone"))
    with working(made) as connection:
        role = connection.execute(
            "select rolsuper or rolbypassrls from pg_roles where rolname = current_user"
        )
        assert role.fetchone() == (False,)
        for _ in range(2):
            for table in TABLES:
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match="not set"):
                    connection.execute(f"select * from {made}.{table}")
            for call in (
                f"read(null, '{sid_of(MINE)}', '{{0}}', '{{9}}')",
                "search('acme', null, 'x', 9)",
                "postings_of('acme', null, null, 0, '{1}')",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match="not set"):
                    connection.execute(f"select * from {made}.{call}")
            with connection.transaction():  # what is left behind is '', and no tenant
                connection.execute("select set_config('foldline.tenant', 'acme', true)")
                found = connection.execute(f"select tenant from {made}.events").fetchall()
                assert ("acme",) in found
            assert connection.execute("show foldline.tenant").fetchone() == ("",)


async def test_other_tenants_are_neither_read_nor_written(made, store):
    """R-69: not by a statement that forgets to ask for the tenant, and not beside the tables."""
    await store.append(Name("first", "s"), rows("canary"), once="k")
    await store.append(Name("second", "s"), rows("theirs"))
    with working(made) as connection, connection.transaction(force_rollback=True):
        connection.execute("select set_config('foldline.tenant', 'second', true)")
        for table in TABLES:
            found = connection.execute(f"select distinct tenant from {made}.{table}").fetchall()
            assert found in ([], [("second",)])
        assert connection.execute(f"delete from {made}.events").rowcount == 1
        for statement in (
            f"insert into {made}.side values (gen_random_uuid(), 's', 'k', 'first', '', 1)",
            f"select * from {made}.search('first', null, 'x', 9)",
            f"select * from {made}.postings_of('first', null, null, 0, '{{1}}')",
            f"select * from {made}.postings",
            f"select * from {made}.events_00",
            f"select * from {made}.words",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(statement)
    with connected() as owner:  # the control: who goes round it sees both
        found = owner.execute(f"select distinct tenant from {made}.events").fetchall()
        assert {("first",), ("second",)} <= set(found)


async def test_canaries(store):
    """R-69: ten tenants with the same session names do all they can; nobody sees another's mark."""
    random = Random(8)
    tenants = [f"canary{n}x" for n in range(10)]
    names = [Name(tenant, f"s{at}") for tenant in tenants for at in range(3)]
    seen = 0

    async def one(name):
        nonlocal seen
        mark = f"mark {name.tenant} mark"
        match random.randrange(9):
            case 0 | 1:
                await store.append(name, rows(mark), once=f"{random.randrange(50)}")
                found = ""
            case 2:
                await store.put(name, "space", f"k{random.randrange(3)}", mark.encode())
                found = ""
            case 3:
                found = await store.get(name, "space", f"k{random.randrange(3)}")
            case 4:
                found = await store.sessions(name.tenant)
                assert {row.session for row in found} <= {"s0", "s1", "s2", "fork"}
            case 5:
                head = (await store.head(name)).seq
                found = await store.read(name, [(max(0, head - 5), head + 5)])
            case 6:
                other = random.choice(tenants)
                found = await store.search(name.tenant, other)
                assert other == name.tenant or not found
            case 7:
                found = await store.retain(name.tenant, Retention(sessions=99))
            case _:
                found = await store.blobs(name, ["0" * 64])
        told = re.findall("canary[0-9]x", repr(found))
        assert set(told) <= {name.tenant}
        seen += len(told)

    for _ in range(OPERATIONS // 10):
        await asyncio.gather(*(one(random.choice(names)) for _ in range(100)))
    assert seen > OPERATIONS  # the control: marks did come back


# Plans and counts.


def plan_of(connection, statement, *values):
    (row,) = connection.execute(f"explain (analyze, buffers, format json) {statement}", values)
    return row[0][0]["Plan"]


def nodes(plan):
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def body_of(made, function):
    """The statements of a function, as the server has them."""
    with connected() as owner:
        found = owner.execute(
            "select prosrc from pg_proc where proname = %s and pronamespace = %s::regnamespace",
            (function, made),
        )
        return found.fetchone()[0]


async def test_a_search_reads_what_it_finds(made, store):
    """By the key of the postings: as many buffers however much others, or other words, have."""
    many = [UserSaid((Text(f"common {n} " + "filler " * 20),)) for n in range(3_000)]
    for tenant in ("large", "larger"):
        await event_log.append_events(store, Name(tenant, "s"), many)
    await event_log.append_events(
        store, Name("large", "t"), [UserSaid((Text("needle in common hay"),))]
    )
    assert len(await store.search("large", "needle")) == 1
    assert len(await store.search("larger", "common", limit=5)) == 5
    mark = search_ranking.mark_tenant("large")
    (needle,) = list_query_terms("needle")
    select = re.search(r"return query\s+(select.*?);", body_of(made, "postings_of"), re.DOTALL)[1]
    given = {
        "p_terms": f"'{{{needle ^ mark}}}'::bigint[]",
        "p_every": "0",
        "p_tenant": "'large'",
        "p_sid": "null::uuid",
        "p_owner": "null::text",
    }
    for name, value in given.items():
        select = re.sub(rf"\b{name}\b", value, select)
    with connected() as owner:
        owner.execute(f"analyze {made}.postings, {made}.heads")
        plan = plan_of(owner, select)
        used = [node for node in nodes(plan) if node.get("Index Name") == "postings_pkey"]
        assert used, plan
        assert sum(node["Actual Rows"] for node in used) == 1
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 30
        # The control: the same without the key's first column reads every row.
        whole = plan_of(owner, re.sub(r"p\.term = any \(.*?\)", f"p.term + 0 = {needle ^ mark}", select))  # fmt: skip
        assert whole["Shared Hit Blocks"] > 3 * plan["Shared Hit Blocks"]
        print(f"\nsearch: {plan['Shared Hit Blocks']} buffers, without its key {whole['Shared Hit Blocks']}")  # fmt: skip


async def test_an_earlier_release_is_told_to_upgrade(made, store):
    """It goes on with all but its search, which finds nothing wrong: it says what to do."""
    await store.append(Name("old", "s"), rows("said"))
    with working(made) as connection, connection.transaction(force_rollback=True):
        connection.execute("select set_config('foldline.tenant', 'old', true)")
        sid = sid_of(Name("old", "s"))
        learned = connection.execute(
            f"select {made}.learn('old', '{sid}', -1, 0, '{{0}}', '{{0}}', '{{said}}')"
        )
        assert learned.fetchone() == (False,)
        for call in ("search('old', null, 'x', 9)", "search_of('old', null, 'x', 9, null)"):
            with (
                pytest.raises(psycopg.errors.FeatureNotSupported, match="upgrade foldline"),
                connection.transaction(),
            ):
                connection.execute(f"select * from {made}.{call}")
    assert len(await store.search("old", "said")) == 1


async def test_a_list_of_one_owner_reads_what_it_lists(made, store):
    """A range of the owners' index, however many sessions others of the tenant have."""
    with connected() as owner:
        owner.execute(
            f"insert into {made}.heads (sid, tenant, session, owner_name, opened, changed) "
            "select gen_random_uuid(), 'owned', format('s%s', n), "
            "case when n % 1000 = 0 then 'alice' else 'bob' end, 0, 0 "
            "from generate_series(1, 20000) as n"
        )
        owner.execute(f"analyze {made}.heads")
    assert len(await store.sessions("owned", owner="alice")) == 20
    body = re.search(r"return query\s+(select.*?);", body_of(made, "sessions_of"), re.DOTALL)[1]
    given = {"p_tenant": "'owned'", "p_after": "''", "p_limit": "100", "p_owner": "'alice'"}
    with working(made) as connection, connection.transaction():
        connection.execute("select set_config('foldline.tenant', 'owned', true)")
        blocks = {}
        for whose in ("'alice'", "null::text"):
            select = body
            for name, value in {**given, "p_owner": whose}.items():
                select = re.sub(rf"\b{name}\b", value, select)
            plan = plan_of(connection, select)
            blocks[whose] = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            used = [node["Index Name"] for node in nodes(plan) if "Index Name" in node]
            assert used == ["heads_by_owner" if whose != "null::text" else "heads_by_name"], plan
    print(f"\nbuffers of one owner's list, of all: {blocks}")
    assert blocks["'alice'"] < 60


@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_a_tail_reads_what_is_live(made, store, analyzed):
    """Law 6: as many rows and buffers for the newest edit and 50 rows, of however many."""
    counted: dict[int, list[int]] = {}
    for length in (100, 30_000):
        name, body = Name("tails", f"s{length} {analyzed}"), os.urandom(400)
        await store.append(
            name, Draft([Row("user_said", body, edit=n % 50 == 9) for n in range(length)])
        )
        if analyzed:  # a session that has a partition to itself looks as if most of it were wanted
            with connected() as owner:
                owner.execute(f"vacuum analyze {made}.events")
        calls = [
            (f"head(%s, '{sid_of(name)}', null)", 1),
            (f"head(%s, '{sid_of(name)}', {length - 60})", 1),
            (f"read(%s, '{sid_of(name)}', '{{{length - 50}}}', '{{{length - 1}}}')", 50),
            (f"read(%s, '{sid_of(name)}', '{{{length - 50},5}}', '{{{length - 1},5}}')", 51),
            (f"read(%s, '{sid_of(name)}', '{{0}}', '{{{length}}}')", length),
        ]
        with working(made) as connection, connection.transaction():
            connection.execute("select set_config('foldline.tenant', 'tails', true)")
            counted[length] = []
            for call, count in calls:
                for _ in range(3):  # what is read of the catalogue is read once
                    plan = plan_of(connection, f"select * from {made}.{call}", "tails")
                assert plan["Actual Rows"] == count
                counted[length].append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
    print(f"\nbuffers of head, head(at), reads of 50, of 51, of all: {counted}")
    short, long = counted[100], counted[30_000]
    assert all(after <= before + 3 for before, after in zip(short[:4], long[:4], strict=True))
    assert long[4] > 10 * short[4]  # the control


@pytest.mark.parametrize("held", [10, 5_000])
async def test_a_turn_is_as_many_statements_however_long_the_log(store, held):
    """Law 6: opening is two statements, an append one."""
    name = Name("counted", f"s{held}")
    await store.append(name, rows(*(f"{n}" for n in range(held)), edit=False))
    asked = []
    before = store.db.run_statement

    async def counting(statement, *values, **how):
        asked.append(statement)
        return await before(statement, *values, **how)

    store.db.run_statement = counting
    await store.head(name)
    await store.read(name, [(held - 5, held - 1)])
    await store.append(name, rows("more"), after=held - 1)
    assert len(asked) == 2


# Migrations.


def test_migrations_are_numbered_and_can_be_lived_with():
    """The previous release works on a database that has the next one's: nothing is taken away."""
    known = schema.load_migrations()
    assert [one.number for one in known] == list(range(1, len(known) + 1))
    takes = re.compile(
        r"\b(drop|rename|truncate)\b|alter column \w+ (type|set not null)", re.IGNORECASE
    )
    for one in known:
        if takes.search(one.text):
            assert one.lives_with == one.number, one.name
    assert takes.search("alter table x drop column y")  # the control


async def test_an_altered_migration_is_refused(made):
    with connected() as owner:
        owner.execute(f"update {made}.migrations set sha256 = 'x' || sha256 where number = 2")
        try:
            store = PostgresStore(address_of(made))
            with pytest.raises(FormatError, match="002_appending"):
                await store.head(MINE)
        finally:
            owner.execute(
                f"update {made}.migrations set sha256 = substr(sha256, 2) where number = 2"
            )


@pytest.mark.parametrize("lives_with", [1, 99])
async def test_a_newer_schema(made, lives_with):
    """One that this release can live with is opened; another says to upgrade."""
    with connected() as owner:
        owner.execute(
            f"insert into {made}.migrations values (99, '099_later.sql', '', {lives_with})"
        )
        store = PostgresStore(address_of(made))
        try:
            if lives_with == 1:
                await store.head(MINE)
            else:
                with pytest.raises(FormatError, match="upgrade foldline"):
                    await store.head(MINE)
        finally:
            await store.close()
            owner.execute(f"delete from {made}.migrations where number = 99")


async def open_at_once(*addresses):
    """Open a store at each, all at the same time."""
    stores = [PostgresStore(address) for address in addresses]
    try:
        await asyncio.gather(*(store.append(MINE, rows("x")) for store in stores))
        return (await stores[0].head(MINE)).seq
    finally:
        await asyncio.gather(*(store.close() for store in stores))


async def test_many_open_a_new_schema_at_once():
    """Some of few succeed even where those who wait see the catalogue as it was before."""
    with a_schema() as name:
        assert await open_at_once(*[address_of(name)] * 30) == 29


async def test_another_database_of_the_server_is_opened_at_the_same_time():
    """The role of programs is the server's, and a lock is one database's."""
    with a_schema() as name, connected() as beside, connected() as looking:
        with beside.transaction():
            beside.execute(f"create role {name}_app")
            opening = asyncio.create_task(open_at_once(address_of(name)))
            waits = "select from pg_stat_activity where wait_event_type = 'Lock' and query like %s"
            async with asyncio.timeout(60):
                while not looking.execute(waits, (f"%{name}_app%",)).rowcount:  # noqa: ASYNC110 - the server's
                    await asyncio.sleep(0.05)
        assert await opening == 0


async def test_rights_are_given_at_once(made):
    """As by several `foldline migrate` on one database."""
    place = parse_postgres_url(address_of(made))

    async def give():
        async with await psycopg.AsyncConnection.connect(place.address, autocommit=True) as server:
            for _ in range(5):
                await schema.grant_rights(server, place)

    await asyncio.gather(*(give() for _ in range(8)))


# Connections that end.


async def end_all(made):
    """End every connection of the store, as a restart does."""
    with connected() as owner:
        owner.execute(
            "select pg_terminate_backend(a.pid) from pg_stat_activity as a "
            "where a.pid <> pg_backend_pid() and a.datname = current_database() "
            "and a.query like %s",
            (f"%{made}%",),
        )


async def test_an_idle_connection_that_ended_is_replaced(made, store):
    """Nothing was sent on it, so nothing is unknown: no error."""
    name = Name("ended", "idle")
    for at_end in range(3):
        assert await store.append(name, rows("x")) == at_end
        await end_all(made)
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("once", [None, "k"])
async def test_an_append_whose_connection_ends(made, store, once):
    """With a key it is sent again and is there once; without one its outcome is said to be unknown."""
    name = Name("ended", f"{once}")
    await store.append(name, rows("first"))
    with connected() as other, other.transaction(force_rollback=True):
        other.execute(f"select 1 from {made}.heads where sid = %s for update", (sid_of(name),))
        hanging = asyncio.create_task(store.append(name, rows("second"), once=once))
        await asyncio.sleep(0.3)
        assert not hanging.done()
        with connected() as owner:
            ended = owner.execute(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity "
                "where wait_event_type = 'Lock' and query like %s",
                (f'%"{made}".append_one%',),
            )
            assert ended.fetchone() == (1,)
        await asyncio.sleep(0.1)
    if once:
        assert await hanging == 1
    else:
        with pytest.raises(StoreFailed, match="not known"):
            await hanging
    assert (await store.head(name)).seq == (1 if once else 0)
    assert await store.append(name, rows("third"), once="k") == 1


async def test_appends_that_wait_are_sent_together(made, store):
    """Each is a transaction of its own: one that is refused takes none with it."""
    names = [Name("batch", f"s{n}") for n in range(40)]
    await asyncio.gather(*(store.append(name, rows("a")) for name in names))
    sent = []
    before = store._appends._send_batch

    async def counting(connection, batch):
        sent.append(len(batch))
        await before(connection, batch)

    store._appends._send_batch = counting
    told = await asyncio.gather(
        *(store.append(name, rows("b"), after=n % 2 - 1) for n, name in enumerate(names)),
        store.append(names[1], Draft([Row("user_said", b"1"), Row("user_said", b"2")])),
        return_exceptions=True,
    )
    assert [type(one) for one in told[:40:2]] == [Conflict] * 20
    assert told[1:40:2] == [1] * 20
    assert told[40] == 3
    assert max(sent) > 5
    with connected() as owner:
        found = owner.execute(
            f"select count(distinct xmin::text) from {made}.events where tenant = 'batch' and seq = 1 "
            "and sid <> %s", (sid_of(names[1]),)
        )  # fmt: skip
        assert found.fetchone() == (19,)


async def test_appends_of_several_rows_are_sent_together(made, store):
    """As those of one row: each by itself, its rows in order, its newest edit and its `once` its own."""
    names = [Name("several", f"s{n}") for n in range(30)]
    await asyncio.gather(*(store.append(name, rows("a")) for name in names))
    sent, before = [], store._appends._send_batch

    async def counting(connection, batch):
        sent.append([len(one.draft.rows) for one in batch])
        await before(connection, batch)

    store._appends._send_batch = counting

    def draft(n):
        words = [Row("user_said", f'"{n} {at}"'.encode()) for at in range(n % 4 + 1)]
        return Draft([*words, Row("masked", b'"edit"', edit=True), Row("asked", b'"last"')])

    told = await asyncio.gather(
        *(
            store.append(name, draft(n), after=-(n % 5 == 0), once=f"k{n}")
            for n, name in enumerate(names)
        ),
        return_exceptions=True,
    )
    assert any(len(batch) > 5 for batch in sent)
    for n, name in enumerate(names):
        head, given = await store.head(name), draft(n).rows
        if n % 5 == 0:
            assert isinstance(told[n], Conflict)
            assert head.seq == 0
            continue
        assert told[n] == head.seq == len(given)
        assert head.edit.seq == len(given) - 1
        found = await store.read(name, [(1, head.seq)])
        assert [(row.kind, row.body) for row in found] == [(row.kind, row.body) for row in given]
        assert await store.append(name, draft(n), once=f"k{n}") == head.seq
    with connected() as owner:
        found = owner.execute(
            f"select count(distinct xmin::text), count(distinct sid) from {made}.events where tenant = 'several' and seq > 0"
        )
        assert found.fetchone() == (24, 24)


@asynccontextmanager
async def panicking(made):
    """The address of a server that does the first append, and whose last word is that its disk is full."""
    fields = (b"SPANIC", b"VPANIC", b"C53100", b"Mno space left on device", b"")
    body = b"\0".join(fields) + b"\0"
    left, serving = [1], set()
    with connected() as owner:
        at_server = owner.info.host, owner.info.port
        login, database = owner.info.user, owner.info.dbname

    async def serve(reader, writer):
        serving.add(asyncio.current_task())
        there, to = await asyncio.open_connection(*at_server)
        last = False
        while chunk := await reader.read(1 << 16):
            last = bool(left[0]) and chunk[:1] == b"B" and b"foldline_append_one" in chunk
            to.write(chunk)
            answer = await there.read(1 << 16)
            if last:
                left[0] = 0
                writer.write(b"E" + (len(body) + 4).to_bytes(4, "big") + body)
                break
            writer.write(answer)
        for one in (to, writer):
            one.close()
            await one.wait_closed()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    base = f"postgresql://{login}@127.0.0.1:{port}/{database}?sslmode=disable&gssencmode=disable"
    try:
        yield address_of(made, base)
    finally:
        listening.close()
        await asyncio.gather(*serving)


@pytest.mark.parametrize("once", [None, "k"])
async def test_a_servers_last_word_does_not_say_what_became_of_an_append(made, once):
    """The journal may hold the commit of one that met the end of its disk."""
    name = Name("panicking", f"{once}")
    async with panicking(made) as address:
        store = PostgresStore(address)
        try:
            if once:
                assert await store.append(name, rows("a"), once=once) == 0
            else:
                with pytest.raises(StoreFailed, match="not known"):
                    await store.append(name, rows("a"))
            assert (await store.head(name)).seq == 0
        finally:
            await store.close()


async def test_one_who_gave_up_leaves_its_statement_prepared(made):
    """The server knows it and we do not: the connection is as good as before."""
    name = Name("prepared", "one")
    store = PostgresStore(f"{address_of(made)}&pool=1")
    try:
        assert await store.append(name, rows("a")) == 0
        append._prepared.clear()
        assert await store.append(name, rows("b")) == 1
    finally:
        await store.close()


async def test_opening_and_a_turn_make_one_connection(made, monkeypatch):
    """R-68: the one that looked for migrations goes on; a new one costs as much as opening's reads."""
    connect, made_so_far = psycopg.AsyncConnection.connect, []

    async def counted(*args, **kwargs):
        made_so_far.append(await connect(*args, **kwargs))
        return made_so_far[-1]

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", counted)
    async with foldline.aopen(address_of(made), model="m", session="one") as s:
        await s.add("hello")
        await s.request()
        assert len(made_so_far) == 1
    assert made_so_far[0].closed


async def test_one_that_fails_takes_none_with_it(made, store):
    """What was sent with it is sent again by itself, and all hear of it at once."""
    names = [Name("failing", f"s{n}") for n in range(12)]
    await asyncio.gather(*(store.append(name, rows("a")) for name in names))
    with connected() as owner:
        owner.execute(
            f"create function {made}.no_room() returns trigger language plpgsql as $$ begin "
            "raise exception 'no space' using errcode = 'disk_full'; end $$"
        )
        owner.execute(
            f"create trigger no_room before insert on {made}.events for each row "
            f"when (new.sid = '{sid_of(names[7])}') execute function {made}.no_room()"
        )
        try:
            async with asyncio.timeout(10):
                told = await asyncio.gather(
                    *(store.append(name, rows("b"), once="k") for name in names),
                    return_exceptions=True,
                )
        finally:
            owner.execute(f"drop function {made}.no_room cascade")
    fault = told.pop(7)
    assert told == [1] * 11
    assert isinstance(fault, StoreFailed)
    assert "no space" in str(fault)
    assert "not known" in str(fault)  # it was sent twice, and of the first time nothing was heard
    assert await store.append(names[7], rows("b"), once="k") == 1


# Pieces.


async def test_a_trim_takes_the_pieces_that_nothing_names(store):
    name = Name("trimming", "one")
    said = [
        UserSaid((Media("image", base64=f"A{at_place % 2}" * 20_000),)) for at_place in range(4)
    ]
    await event_log.append_events(store, name, [*said, UserSaid((Text("end"),))])
    hashes = list(event_log.build_draft(said).blobs)
    assert await store.trim(name, 3, keep=[]) == 3
    assert set(await store.blobs(name, hashes)) == {hashes[1]}
    assert await store.trim(name, 4, keep=[]) == 1
    assert await store.blobs(name, hashes) == {}


# Erasure.


async def test_erased_sentences_leave_the_files_by_vacuum_full_alone(made, store):
    """As the page says of erasure: an ordinary vacuum leaves them in the pages."""
    name, words = Name("acme", "pages"), b"axolotl seven"
    # Others stand before it in the page: else vacuum gives the page back, or moves others over it.
    await asyncio.gather(*(store.append(Name("acme", f"p{n}"), rows("x")) for n in range(200)))
    await store.append(name, rows(words.decode()))

    def count_files():
        with connected() as server:
            server.execute("checkpoint")
            return server.execute(
                "select count(*) from pg_class where relnamespace = %s::regnamespace "
                "and relkind = 'r' and position(%s in pg_read_binary_file(pg_relation_filepath(oid))) > 0",
                (made, words),
            ).fetchone()[0]

    assert count_files() == 1
    await store.erase(name)
    with connected() as server:
        server.execute(f"vacuum (analyze) {made}.events")
        assert count_files() == 1
        server.execute(f"vacuum (full, analyze) {made}.events")
    assert count_files() == 0


async def test_erased_is_gone_from_every_table(made, store, monkeypatch):
    """R-73: rows, pieces, deliveries, side values and words; also where a sweep was cut short."""
    monkeypatch.setattr(retention, "_BATCH", 7)
    name = Name("erasing", "one")
    picture = Media("image", base64="secret" * 9_000)
    await event_log.append_events(store, name, [UserSaid((Text("canary"), picture))] * 20, once="k")
    await store.put(name, "s", "k", b"canary")
    assert len(await store.search("erasing", "canary")) == 20
    one = sid_of(name)
    cut = iter([1, 0])
    before = store.db.run_statement

    async def cutting(statement, *values, **how):
        if "sweep" in statement and not next(cut):
            raise StoreFailed("cut")
        return await before(statement, *values, **how)

    store.db.run_statement = cutting
    with pytest.raises(StoreFailed):
        await store.erase(name)
    store.db.run_statement = before
    assert await store.read(name, [(0, 99)]) == []
    with pytest.raises(Erased):
        await store.append(name, rows("late"))
    with connected() as owner:
        count = "select count(*) from {}.{} where sid = %s"
        assert owner.execute(count.format(made, "events"), (one,)).fetchone() == (13,)
        receipt = await store.erase(name)
        assert (receipt.sessions, receipt.events) == (("one",), 13)
        for table in ("heads", "events", "seen", "blobs", "side", "unindexed", "words"):
            assert owner.execute(count.format(made, table), (one,)).fetchone() == (0,), table
        assert owner.execute(count.format(made, "erased"), (one,)).fetchone() == (1,)


@pytest.mark.parametrize("seen", ["stable", "volatile"])
async def test_nobody_reads_half_of_what_is_being_erased(monkeypatch, seen):
    """R-67, R-73: a sweep between two statements of a read; the control is a read of two moments."""
    monkeypatch.setattr(retention, "_BATCH", 4)
    with a_schema() as name:
        store = PostgresStore(address_of(name))
        await store.append(MINE, rows(*"abcdefghijkl"))
        with connected() as owner:
            ((text,),) = owner.execute(
                "select pg_get_functiondef(oid) from pg_proc where proname = 'read' "
                "and pronamespace = %s::regnamespace",
                (name,),
            ).fetchall()
            slow = text.replace("return query", "perform pg_sleep(0.7); return query", 1)
            assert "STABLE" in slow
            owner.execute(slow.replace("STABLE", seen.upper()))
        before = store.db.run_statement
        reading = asyncio.create_task(store.read(MINE, [(0, 99)]))
        await asyncio.sleep(0.3)
        swept = iter([1])

        async def cutting(statement, *values, **how):
            if "sweep" in statement and not next(swept, 0):
                raise StoreFailed("cut")
            return await before(statement, *values, **how)

        store.db.run_statement = cutting
        with pytest.raises(StoreFailed):
            await store.erase(MINE)
        assert len(await reading) == (12 if seen == "stable" else 8)
        await store.close()


async def test_a_body_that_was_altered_is_told(made, store):
    name = Name("altered", "one")
    await store.append(name, rows("a"))
    with connected() as owner:
        owner.execute(f"update {made}.events set body = 'other' where sid = %s", (sid_of(name),))
    with pytest.raises(FormatError, match="sha256"):
        await store.read(name, [(0, 0)])


# Addresses.


async def test_open(made):
    """`foldline.aopen` on an address, and again where it was left."""
    for said in (1, 2):
        async with foldline.aopen(
            address_of(made), model="m/x", session="opened", window=9_000
        ) as s:
            await s.add(f"hello {said}")
            sent = json.dumps(await s.request())
            assert f"hello {said}" in sent


async def test_a_reserved_word_may_name_a_schema():
    with connected() as server:
        server.execute('drop schema if exists "full" cascade')
    try:
        store = PostgresStore(address_of("full"))
        assert await store.append(MINE, rows("a", "b")) == 1
        assert await store.append(MINE, rows("c")) == 2
        assert len(await store.read(MINE, [(0, 9)])) == 3
        await store.close()
    finally:
        with connected() as server:
            server.execute('drop schema "full" cascade')
            server.execute("drop role full_app")


async def test_an_owner_of_the_schema_alone_can_migrate_it():
    """One who may make nothing else in the database."""
    with a_schema() as name, connected() as server:
        server.execute(f"create role {name}_owner login")
        server.execute(f"create schema {name} authorization {name}_owner")
        try:
            given = psycopg.conninfo.conninfo_to_dict(SERVER)
            where = f"{given.get('host', '127.0.0.1')}:{given.get('port', 5432)}/{given['dbname']}"
            store = PostgresStore(address_of(name, f"postgresql://{name}_owner@{where}"))
            assert await store.append(MINE, rows("a")) == 0
            await store.close()
        finally:
            server.execute(f"drop owned by {name}_owner cascade")
            server.execute(f"drop role {name}_owner")


def test_no_command_prints_a_password(made):
    given = psycopg.conninfo.conninfo_to_dict(SERVER)
    where = f"{given.get('host', '127.0.0.1')}:{given.get('port', 5432)}/{given['dbname']}"
    with connected() as server:
        user = server.execute("select current_user").fetchone()[0]
    address = address_of(made, f"postgresql://{user}:opensesame@{where}")
    for command in (["sessions"], ["sessions", "--json"], ["doctor"], ["show", "nobody"]):
        ended = subprocess.run(
            [Path(sys.executable).with_name("foldline"), *command, "--store", address],
            capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
        assert f"postgresql://{where}" in ended.stdout or command[0] == "show"
        assert ended.returncode in (0, 1)
        assert "opensesame" not in ended.stdout + ended.stderr, command


def test_addresses():
    found = parse_postgres_url("postgresql://u:secret@h:1/d?schema=x&sslmode=require&pool=3")
    assert (found.schema, found.pool, found.address) == (
        "x",
        3,
        "postgresql://u:secret@h:1/d?sslmode=require",
    )
    assert "secret" not in found.shown
    assert parse_postgres_url("postgresql:///test?schema=x").address == "postgresql:///test"
    spaced = "postgresql:///test?options=-c%20a%3Db%2Bc"
    assert parse_postgres_url(spaced).address == spaced  # libpq reads no + as a blank
    for hidden in ("postgresql://u:se@cret@h/d", "postgresql://u:se?cret@h/d"):
        with pytest.raises(BadInput, match="%40") as told:
            parse_postgres_url(hidden)
        assert "cret" not in str(told.value)
    for bad in ("postgresql:///d?schema=X;drop", "postgresql:///d?pool=0", "mysql://x"):
        with pytest.raises(BadInput):
            parse_postgres_url(bad)


async def test_a_server_that_is_not_there():
    store = PostgresStore("postgresql://127.0.0.1:1/nowhere")
    with pytest.raises(StoreFailed, match="no connection to"):
        await store.head(MINE)
    await store.close()
    with pytest.raises(BadInput, match="closed"):
        await store.append(MINE, rows("x"))


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "foldline.stores.postgres", None)
    with pytest.raises(BadInput, match=r"foldline\[pg\]"):
        at.store_at(SERVER)


@pytest.mark.parametrize("name", [Name("", "s"), Name("a\0b", "s"), Name("a", "s\ud800")])
async def test_names_that_it_cannot_keep(store, name):
    with pytest.raises(BadInput):
        await store.append(name, rows("x"))


# The suite can fail here, too.

MUTANTS = [
    ("the end is not compared", "elsif p_after <> known.head then", "elsif false then", "an_append_is_all_or_nothing"),
    ("the plain case compares no end", "and (p_after is null or head = p_after) and", "and", "an_append_of_one_row_is_compared_too"),
    ("the fence is not compared", "and (p_fence is null or fence = p_fence)\n", "\n", "a_lease_is_one_holders"),
    ("deliveries are not remembered", "if p_once is not null then\n        if outcome = 0 then", "if false then\n        if outcome = 0 then", "once"),
    ("the newest edit is not noted", "edit = case when p_edit then head + 1 else edit end", "edit = edit", "the_newest_edit"),
    ("a fork has no ancestors", "exit when known.origin is null;", "exit;", "a_fork_shares_what_was_before"),
    ("a fork has its own edits alone", "while known.origin is not null and head <= known.origin_at loop", "while false loop", "a_fork_has_the_edits_of_its_ancestors"),
    ("a fork copies no pieces", "if named is not null then", "if false then", "a_fork_outlives_its_ancestors"),
    ("erased sessions come back", "select time into moment from {schema}.erased where sid = p_sid;", "select null into moment where false;", "erasure"),
    ("a held session is taken", "and known.until > told and known.holder <> p_holder then", "and false then", "a_lease_is_one_holders"),
    ("retention takes what is held", "and not h.held", "", "retention"),
    ("a fork forgets its owner", "owner_name = known.owner_name, floor", "floor", "a_fork_has_its_origins_owner"),
    ("a claim overwrites", "h.owner_name = '' and h.head < 0;", "h.head < 0;", "an_owner_stays"),
    ("a claim takes what others wrote", "h.owner_name = '' and h.head < 0;", "h.owner_name = '';", "what_somebody_else_wrote_is_not_claimed"),
    ("a refused append takes a claim away", "fence = greatest(h.fence, 1)", "fence = h.fence", "an_owner_stays"),
    ("lists others' sessions", "            and (p_owner is null or h.owner_name = p_owner)\n        order by h.session", "        order by h.session", "sessions_of_one_owner"),
    ("searches others' sessions", "            and (p_owner is null or h.owner_name = p_owner);", ";", "a_search_for_one_owner"),
    ("searches all sessions", "            and (p_sid is null or p.sid = p_sid)\n            and (p_owner", "            and (p_owner", "a_search_knows_only_its_scope"),
    ("searches without a tenant", "where p.term = any (p_terms) and h.tenant = p_tenant", "where true", "no_other_tenants_strings"),
    ("a block is written over", "set packed = p.packed || excluded.packed", "set packed = excluded.packed", "a_search_after_blocks_and_trimming"),
    ("a trim leaves its index", "delete from {schema}.postings where sid = p_sid;", "", "a_search_after_blocks_and_trimming"),
    ("a trimmed session is not indexed anew", "if p_floor is not null then\n        update", "if false then\n        update", "a_search_after_blocks_and_trimming"),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=[one[0] for one in MUTANTS])
async def test_a_broken_store_is_seen(mutant, monkeypatch):
    _, line, instead, test = mutant
    known = schema.load_migrations()
    assert any(line in one.text for one in known)
    altered = [
        schema.Migration(one.number, one.name, one.text.replace(line, instead), one.lives_with)
        for one in known
    ]
    monkeypatch.setattr(schema, "load_migrations", lambda: altered)
    with a_schema() as name:
        store = PostgresStore(address_of(name))
        try:
            with pytest.raises(
                (
                    AssertionError,
                    pytest.fail.Exception,
                    foldline.errors.FoldlineError,
                    psycopg.Error,
                )
            ):
                await getattr(Conformance(), f"test_{test}")(store)
        finally:
            await store.close()
