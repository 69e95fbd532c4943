"""SQLite keeps what it is given, dense, once, and gives back a tail."""

from random import Random

import apsw
import pytest

from foldline.core import log
from foldline.errors import BadInput, Conflict, FormatError
from foldline.store.base import Name
from foldline.store.sqlite import SqliteStore
from foldline.testing import play, steps, user

MINE, THEIRS = Name("acme", "one"), Name("other", "one")


@pytest.fixture(params=[":memory:", "file"])
def path(request, tmp_path):
    return request.param if request.param == ":memory:" else str(tmp_path / "chat.db")


@pytest.mark.anyio
async def test_append_is_dense_and_all_or_nothing(path):
    store = SqliteStore(path)
    assert (await store.tail(MINE)).head == -1
    assert await store.append(MINE, [user("a"), user("b")], after=-1) == 1
    with pytest.raises(Conflict) as conflict:
        await store.append(MINE, [user("c")], after=0)
    assert (conflict.value.expected, conflict.value.found) == (0, 1)
    assert [seq for seq, _ in await store.read(MINE, 0, 9)] == [0, 1]
    await store.close()


@pytest.mark.anyio
async def test_a_name_is_tenant_and_session(path):
    """R-69."""
    store = SqliteStore(path)
    await store.append(MINE, [user("secret")], after=-1)
    assert await store.read(THEIRS, 0, 9) == []
    assert (await store.tail(THEIRS)).head == -1
    await store.close()


@pytest.mark.anyio
async def test_bytes_come_back_as_they_were_given(tmp_path):
    """R-35: what lies on disk is exactly what was encoded, also after all edits."""
    talk = play(steps(Random(7), 300))
    path = str(tmp_path / "chat.db")
    store = SqliteStore(path)
    await store.append(MINE, talk.events, after=-1)
    await store.close()
    rows = apsw.Connection(path).execute("select body from events order by seq").fetchall()
    assert [body for (body,) in rows] == [log.encode(event) for event in talk.events]


@pytest.mark.anyio
async def test_a_tail_reads_the_live_part_only():
    """Law 6: rows read depend on the spine, not on the log's length."""
    store = SqliteStore(":memory:")
    talk = play(steps(Random(3), 400))
    await store.append(MINE, talk.events, after=-1)
    tail = await store.tail(MINE)
    assert {seq for seq, _ in tail.events} == set(talk.view.held)


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
