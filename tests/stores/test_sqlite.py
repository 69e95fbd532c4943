"""What is SQLite's own: the file, its versions, its neighbours. The promises are `test_conformance`'s."""

import asyncio
import hashlib
import re
import subprocess
import sys
import threading
from contextlib import nullcontext
from random import Random

import apsw
import pytest
from mutants import broken
from test_suite_can_fail import altered

from foldline.core import log
from foldline.core.log import UserSaid
from foldline.core.parts import Media, Text
from foldline.core.spine import Range
from foldline.errors import BadInput, BrokenView, Conflict, FormatError, StoreFailed
from foldline.stores import event_log, search_ranking
from foldline.stores.base import Draft, Name
from foldline.stores.search_terms import list_query_terms
from foldline.stores.sqlite import SqliteStore, retention, schema, session_rows
from foldline.testing import play, steps
from foldline.testing.lasting import rows as lasting

MINE = Name("acme", "one")


@pytest.mark.anyio
async def test_bytes_come_back_as_they_were_given(tmp_path):
    """R-35: what lies on disk is exactly what was encoded, also after all edits."""
    talk = play(steps(Random(7), 300))
    path = str(tmp_path / "chat.db")
    store = SqliteStore(path)
    await event_log.append_events(store, MINE, talk.events, after=-1)
    await store.close()
    found = apsw.Connection(path).execute("select body from events order by seq").fetchall()
    assert [body for (body,) in found] == [log.encode_event(event) for event in talk.events]


@pytest.mark.anyio
async def test_appends_that_wait_are_flushed_together(tmp_path):
    """Each is done or refused by itself; nobody is told before all of them are on the disk."""
    path = str(tmp_path / "chat.db")
    store = SqliteStore(path)
    names = [Name("acme", f"s{n}") for n in range(30)]
    commits, beside = [], apsw.Connection(path)
    store.db.connection.set_commit_hook(lambda: bool(commits.append(1)))  # False: let it pass

    async def one(n, name):
        end = await store.append(name, lasting("a", "b"), after=-1 if n % 3 else 7)
        seen = beside.execute("select head from sessions where session = ?", (name.session,))
        assert seen.fetchall() == [(end,)]
        return end

    told = await asyncio.gather(*(one(*pair) for pair in enumerate(names)), return_exceptions=True)
    assert [type(one) for one in told[::3]] == [Conflict] * 10
    assert told[1::3] == told[2::3] == [1] * 10
    assert len(commits) < 10
    assert [(await store.head(name)).seq for name in names[:3]] == [-1, 1, 1]
    await store.close()


@pytest.mark.anyio
async def test_what_fails_as_a_whole_is_told_to_all_of_it(tmp_path):
    """A flush that fails undid all that it was for; what comes behind it is done."""
    store = SqliteStore(str(tmp_path / "chat.db"))
    names = [Name("acme", f"s{n}") for n in range(10)]
    await store.append(MINE, lasting("a"))
    failing = [True]
    store.db.connection.set_commit_hook(lambda: failing[0])
    told = await asyncio.gather(
        *(store.append(name, lasting("a")) for name in names), return_exceptions=True
    )
    assert [type(one) for one in told] == [StoreFailed] * 10
    failing[0] = False
    assert [(await store.head(name)).seq for name in names] == [-1] * 10
    assert await store.append(MINE, lasting("b")) == 1
    await store.close()


@pytest.mark.anyio
async def test_another_schema_is_refused(tmp_path):
    path = str(tmp_path / "later.db")
    await SqliteStore(path).close()
    apsw.Connection(path).pragma("user_version", 99)
    with pytest.raises(FormatError, match="schema 99"):
        SqliteStore(path)


def test_what_is_no_store_of_ours_is_refused_and_left_alone(tmp_path):
    other = str(tmp_path / "other.db")
    apsw.Connection(other).execute("create table users (name)")
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to look at " * 50)
    for address in (other, str(text), str(tmp_path / "no" / "where.db"), "postgresql://h/d"):
        with pytest.raises(BadInput):
            SqliteStore(address)
    assert apsw.Connection(other).execute("select name from sqlite_master").fetchall() == [
        ("users",)
    ]


OLD = """
    create table events (
        tenant text not null, session text not null, seq integer not null, kind text not null,
        edit integer not null, time text not null default (strftime('%Y-%m-%dT%H:%M:%fZ')),
        body blob not null, primary key (tenant, session, seq)
    ) without rowid, strict;
    create index edits on events (tenant, session, seq) where edit;
    pragma application_id = 0x464F4C44;
    pragma user_version = 1;
"""


@pytest.mark.anyio
async def test_a_file_of_schema_1_becomes_one_of_today(tmp_path):
    """Migrations: every byte and place stays, and it is done once."""
    path = str(tmp_path / "old.db")
    talk = play(steps(Random(5), 200))
    old = apsw.Connection(path)
    old.execute(OLD)
    for name in ("one", "two"):
        given = [("acme", name, seq, log.event_kind_of(event), isinstance(event, log.Edit), log.encode_event(event)) for seq, event in enumerate(talk.events)]  # fmt: skip
        old.executemany("insert into events (tenant, session, seq, kind, edit, body) values (?, ?, ?, ?, ?, ?)", given)  # fmt: skip
    old.close()
    for _ in range(2):
        store = SqliteStore(path)
        for name in ("one", "two"):
            found = await event_log.read_events(store, Name("acme", name), Range(0, 10_000))
            assert [event for _, event in found] == talk.events
            tail = await event_log.read_tail(store, Name("acme", name))
            assert {seq for seq, _ in tail.events} == set(talk.view.held)
        await store.close()


TO_3 = """
    drop table postings;
    create virtual table words using fts5 (text, content = '', contentless_delete = 1);
    insert into words (rowid, text) values (1, 'indexedcanary from before');
    update sessions set indexed = head;
    pragma user_version = 3;
"""


@pytest.mark.anyio
async def test_a_file_of_schema_3_is_indexed_anew(tmp_path):
    """All of it is found, and the words of the earlier index leave the file."""
    path = tmp_path / "old.db"
    store = SqliteStore(str(path))
    await event_log.append_events(store, MINE, [UserSaid((Text("from before"),))])
    await store.search("acme", "before")
    await store.close()
    old = apsw.Connection(str(path))
    old.execute(TO_3)
    old.execute("pragma wal_checkpoint(truncate)")
    assert b"indexedcanary" in path.read_bytes()
    old.close()
    for _ in range(2):
        store = SqliteStore(str(path))
        assert [hit.seq for hit in await store.search("acme", "before")] == [0]
        await store.close()
    assert b"indexedcanary" not in path.read_bytes()


@pytest.mark.anyio
async def test_a_file_of_schema_2_becomes_one_of_today(tmp_path, monkeypatch):
    """Its sessions have no owner; a process that dies on the way leaves a file of schema 2."""
    path = str(tmp_path / "old.db")
    store = SqliteStore(path)
    await event_log.append_events(store, MINE, [UserSaid((Text("from before"),))])
    await store.close()
    old = apsw.Connection(path)
    old.execute(f"{TO_3} drop index sessions_by_owner; alter table sessions drop column owner; pragma user_version = 2")  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr(schema, "_FROM_2", f"{schema._FROM_2}; select no_such_function()")
        with pytest.raises(BadInput, match="no_such_function"):
            SqliteStore(path)
    assert old.pragma("user_version") == 2
    columns = old.execute("select name from pragma_table_info('sessions')").fetchall()
    assert ("session",) in columns
    assert ("owner",) not in columns
    old.close()
    for _ in range(2):
        store = SqliteStore(path)
        assert (await store.head(MINE)).owner == ""
        assert await store.claim(MINE, "alice") == ""
        assert [one.owner for one in await store.sessions("acme")] == [""]
        assert len(await event_log.read_events(store, MINE, Range(0, 9))) == 1
        await store.close()
    store = SqliteStore(path)
    assert await store.claim(Name("acme", "new"), "alice") == "alice"
    assert [one.session for one in await store.sessions("acme", owner="alice")] == ["new"]
    plan = store.db.sql(f"explain query plan {retention._OWNED}", ("acme", "alice", "", 9))
    assert "sessions_by_owner (tenant=? AND owner=? AND session>?)" in plan[0][3]
    await store.close()


def test_two_processes_migrate_one_file(tmp_path):
    """A new file that several open at once is made once."""
    path = str(tmp_path / "new.db")
    code = f"from foldline.stores.sqlite import SqliteStore; SqliteStore({path!r})"
    started = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(6)]
    assert [process.wait() for process in started] == [0] * 6


@pytest.mark.anyio
@pytest.mark.parametrize("way", ["erase", "trim", "control"])
async def test_erased_is_gone_from_the_files(tmp_path, way):
    """R-73: rows, pieces, side values and the index's words, also in the journal."""
    canaries = ["canarypicture", "canaryside", "canaryonce"] * (way != "trim")
    words = [hashlib.sha256(f"{n}".encode()).hexdigest()[:12] for n in range(20)]
    store = SqliteStore(str(tmp_path / "talks.db"))
    picture = Media("image", base64="canarypicture" * 2_000)
    said = [UserSaid((Text(f"{word} filler"), picture)) for word in words]
    await event_log.append_events(store, MINE, said, once="canaryonce")
    await event_log.append_events(store, MINE, [UserSaid((Text("newest"),))])
    await event_log.append_events(store, Name("acme", "two"), [UserSaid((Text("stays"),))] * 600)
    await store.put(MINE, "prepared", "k", b"canaryside")
    assert len(await store.search("acme", "filler")) == 20
    if way == "erase":
        await store.erase(MINE)
    if way == "trim":
        assert await store.trim(MINE, 20, keep=[]) == 20
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"stays" in kept
    found = [one for one in (*canaries, *words) if one.encode() in kept]
    assert (found == [*canaries, *words]) if way == "control" else (found == [])
    # The index names a word by a number: none of them is left either.
    mark = search_ranking.mark_tenant("acme")
    terms = [(term ^ mark).to_bytes(8, signed=True) for word in words for term in list_query_terms(word)]  # fmt: skip
    assert {term in kept for term in terms} == {way == "control"}
    assert len(await store.search("acme", "filler")) == (20 if way == "control" else 0)
    assert len(await store.search("acme", "stays", limit=900)) == 600
    await store.close()


@pytest.mark.anyio
async def test_terms_with_one_number_are_of_two_tenants(monkeypatch):
    """A tenant's mark is in each term; should two be equal, the tenants still are not."""
    monkeypatch.setattr(search_ranking, "mark_tenant", lambda _: 0)
    store = SqliteStore(":memory:")
    for tenant in ("acme", "other"):
        await event_log.append_events(store, Name(tenant, tenant), [UserSaid((Text("said"),))])
    for tenant in ("acme", "other"):
        assert [hit.session for hit in await store.search(tenant, "said")] == [tenant]
    with altered("foldline.stores.sqlite.session_rows", "where tenant = ? and term in", "where ? is not null and term in"):  # fmt: skip
        assert len(await store.search("acme", "said")) == 2  # the control
    await store.close()


@pytest.mark.anyio
async def test_an_index_that_another_process_empties_is_made_anew(tmp_path):
    """An erasure between two steps of a search: what was indexed before is indexed again."""
    here, there = (SqliteStore(str(tmp_path / "talks.db")) for _ in range(2))
    await event_log.append_events(here, MINE, [UserSaid((Text("early"),))])
    await event_log.append_events(here, Name("acme", "two"), [UserSaid((Text("goes"),))])
    assert len(await here.search("acme", "early")) == 1
    await event_log.append_events(here, MINE, [UserSaid((Text("late"),))])
    erasing = iter([Name("acme", "two")])

    def trace(_cursor, sql, _bindings):
        for name in erasing if sql.startswith("begin") else ():
            retention.erase_session(there.db, name)
        return True

    here.db.connection.exec_trace = trace
    assert len(await here.search("acme", "late")) == 1
    assert next(erasing, None) is None
    assert [len(await here.search("acme", word)) for word in ("early", "late", "goes")] == [1, 1, 0]
    await here.close()
    await there.close()


@pytest.mark.anyio
@pytest.mark.parametrize("verb", ["read", "head", "blobs"])
async def test_a_session_erased_while_it_is_read_shows_no_others_rows(tmp_path, verb):
    """R-69: SQLite gives an erased session's number to the next one, which may be another tenant's."""
    here, there = (SqliteStore(str(tmp_path / "talks.db")) for _ in range(2))
    there.db.connection.set_busy_timeout(0)  # its checkpoint would wait for whom it interrupts
    picture = Media("image", base64="canary" * 5_000)
    draft = event_log.build_draft([UserSaid((Text("canary"), picture))])
    draft = Draft([row._replace(edit=True) for row in draft.rows], draft.blobs)
    await event_log.append_events(here, MINE, [UserSaid((Text("mine"),))])
    erasing = iter([MINE])

    def trace(_cursor, sql, _bindings):
        for name in erasing if re.search("from (events|pieces)", sql) else ():
            retention.erase_session(there.db, name)
            session_rows.append_rows(there.db, Name("other", "one"), draft)
        return True

    here.db.connection.exec_trace = trace
    asked = {
        "read": lambda: here.read(MINE, [(0, 9)]),
        "head": lambda: here.head(MINE),
        "blobs": lambda: here.blobs(MINE, list(draft.blobs)),
    }
    found = await asked[verb]()
    assert next(erasing, None) is None
    assert "canary" not in repr(found)
    assert "canary" in repr(await there.read(Name("other", "one"), [(0, 9)]))
    await here.close()
    await there.close()


class Between:
    """A store where something happens between a tail's two reads, once."""

    def __init__(self, store, happens):
        self._store, self._happens = store, [happens]

    def __getattr__(self, verb):
        return getattr(self._store, verb)

    async def read(self, name, spans):
        """First what happens."""
        if self._happens:
            await self._happens.pop()()
        return await self._store.read(name, spans)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "broken_line", [None, "found is not None and not _has_missing_rows(rows, spans, head.floor)"]
)
async def test_a_tail_whose_session_goes_between_its_reads(broken_line):
    """It is read again: a view of an erased session is empty, of a trimmed one it is what is left."""
    with broken("foldline.stores.event_log", broken_line, "True") if broken_line else nullcontext():
        for seed in range(10):
            talk = play(steps(Random(seed), 200))
            store = SqliteStore(":memory:")
            await event_log.append_events(store, MINE, talk.events)
            erasing = Between(store, lambda store=store: store.erase(MINE))
            if broken_line:
                with pytest.raises((BrokenView, AssertionError)):
                    assert (await event_log.read_tail(erasing, MINE)).build_view().head == -1
                continue
            assert (await event_log.read_tail(erasing, MINE)).build_view().head == -1
        store = SqliteStore(":memory:")
        await event_log.append_events(store, MINE, [UserSaid((Text(word),)) for word in "abcdef"])
        trimming = Between(store, lambda: store.trim(MINE, 4, keep=[1]))
        assert [seq for seq, _ in (await event_log.read_tail(trimming, MINE)).events] == [1, 4, 5]
        assert [seq for seq, _ in (await event_log.read_tail(store, MINE)).events] == [1, 4, 5]


@pytest.mark.anyio
@pytest.mark.parametrize("ends", ["erased", "trimmed", "lost"])
async def test_a_read_whose_pieces_go_between(ends):
    """Rows are read, then what they name: what went in between was not there; what is lost is told."""
    store = SqliteStore(":memory:")
    said = [UserSaid((Media("image", base64=f"{n}A" * 20_000),)) for n in range(3)]
    await event_log.append_events(store, MINE, said)

    async def end():
        if ends == "erased":
            await store.erase(MINE)
        elif ends == "trimmed":
            await store.trim(MINE, 2, keep=[])
        else:
            store.db.sql("delete from blobs")

    class Late:
        def __getattr__(self, verb):
            return getattr(store, verb)

        async def blobs(self, name, hashes):
            await end()
            return await store.blobs(name, hashes)

    if ends == "lost":
        with pytest.raises(FormatError, match="restore a backup"):
            await event_log.read_events(Late(), MINE, Range(0, 2))
        with pytest.raises(FormatError, match="restore a backup"):
            await event_log.read_tail(Late(), MINE)
        return
    left = {"erased": [], "trimmed": [2]}[ends]
    assert [seq for seq, _ in await event_log.read_events(Late(), MINE, Range(0, 2))] == left
    assert [seq for seq, _ in (await event_log.read_tail(Late(), MINE)).events] == left


@pytest.mark.anyio
async def test_a_tail_of_what_was_trimmed_is_two_statements():
    """Law 6: what retention took is not looked for."""
    store = SqliteStore(":memory:")
    await event_log.append_events(store, MINE, [UserSaid((Text(word),)) for word in "abcdef"])
    await store.trim(MINE, 4, keep=[1])
    begun = []
    store.db.connection.exec_trace = lambda _c, sql, _b: begun.append(sql) or True
    await event_log.read_tail(store, MINE)
    assert sum(sql.startswith("begin") for sql in begun) == 2


def test_r65_eight_open_a_new_file_at_once(tmp_path):
    """Whoever makes the journal needs the file alone; SQLite does not wait for that by itself."""
    faults = []
    for n in range(30):
        path, gate = str(tmp_path / f"{n}.db"), threading.Barrier(8)

        def begun(path=path, gate=gate):
            gate.wait()
            try:
                SqliteStore(path).db.connection.close()
            except BadInput as fault:
                faults.append(fault)

        threads = [threading.Thread(target=begun) for _ in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert faults == []


@pytest.mark.parametrize("moment", [0.0, 60.0])
@pytest.mark.anyio
async def test_others_have_their_turn_while_a_long_log_is_indexed(tmp_path, monkeypatch, moment):
    """The first search of a large store reads all of it, which may take minutes."""
    monkeypatch.setattr(session_rows, "_MOMENT", moment)
    store, turns = SqliteStore(str(tmp_path / "chat.db")), 0
    said = [UserSaid((Text(f"build {at} failed"),)) for at in range(5 * search_ranking.BLOCK)]
    await event_log.append_events(store, MINE, said, after=-1)
    found = asyncio.ensure_future(store.search("acme", "build 17"))
    while not found.done():
        await store.head(MINE)
        turns += 1
    assert found.result()[0].seq == 17
    assert (turns > 4) == (not moment), turns
    await store.close()


@pytest.mark.anyio
async def test_a_search_for_no_word_indexes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(session_rows, "_index_block", None)
    store = SqliteStore(str(tmp_path / "chat.db"))
    await event_log.append_events(store, MINE, [UserSaid((Text("build 17 failed"),))], after=-1)
    assert await store.search("acme", " ?! ") == []
    await store.close()
