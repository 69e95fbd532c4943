"""What encryption promises beyond the store's promises, which are `test_conformance`'s."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from random import Random

import pytest
from program import PROGRAM, served

import foldline
from foldline.core.log import UserSaid
from foldline.core.parts import Media, Text
from foldline.core.spine import Range
from foldline.errors import BadInput, Sealed, Unsupported
from foldline.stores import encryption, event_log
from foldline.stores.base import Draft, Name, Row
from foldline.stores.encryption import CryptStore
from foldline.stores.open_store import ENCRYPT, store_at
from foldline.stores.sqlite import SqliteStore
from foldline.testing import Provider
from foldline.testing.stores import rows

KEY, OTHER = bytes(range(32)), bytes(32)
MINE, TWO = Name("acme", "one"), Name("acme", "two")
CANARIES = ("CANARY-text", "CANARY-picture", "CANARY-side", "CANARY-once", "CANARY-fork")
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def plain():
    """The store inside, which a thief would have."""
    store = SqliteStore(":memory:")
    yield store
    await store.close()


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "control"])
async def test_nothing_is_found_in_the_files(tmp_path, sealed):
    """R-71: database, journal and its index; without the wrapper all of it is found."""
    path = tmp_path / "talks.db"
    inner = SqliteStore(str(path))
    store = CryptStore(inner, KEY) if sealed else inner
    picture = Media("image", base64="CANARY-picture" * 4_000)
    said = [UserSaid((Text("CANARY-text"), picture))] * 3
    await event_log.append_events(store, MINE, said, after=-1, once="CANARY-once")
    await store.put(MINE, "prepared", "k", b"CANARY-side")
    await store.put(Name("acme", ""), "spend", "k", b"CANARY-side")
    await event_log.fork_log(store, MINE, "two", at=1)
    await store.append(TWO, rows("CANARY-fork"))
    assert len(await store.search("acme", "CANARY", session="one")) == 3
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["talks.db", "talks.db-shm", "talks.db-wal"]
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert len(kept) > 60_000
    found = [canary for canary in CANARIES if canary.encode() in kept]
    assert found == ([] if sealed else list(CANARIES))
    assert b"CANARY" not in kept or not sealed
    await store.close()


async def test_another_master_key_is_refused(plain):
    """Never garbage: reading, writing, side values, by the same error."""
    await event_log.append_events(
        CryptStore(plain, KEY), MINE, [UserSaid((Text("hello"),))], after=-1
    )
    await CryptStore(plain, KEY).put(MINE, "s", "k", b"1")
    wrong = CryptStore(plain, OTHER)
    for attempt in (
        wrong.read(MINE, [(0, 0)]),
        wrong.append(MINE, rows("x")),
        wrong.get(MINE, "s", "k"),
        wrong.search("acme", "hello", session="one"),
        event_log.fork_log(wrong, MINE, "two", at=0),
    ):
        with pytest.raises(Sealed, match="another master key"):
            await attempt
    with pytest.raises(BadInput, match="32 bytes, not 5"):
        CryptStore(plain, b"short")
    assert (await plain.head(MINE)).seq == 0


MOVES = {
    "a row to another session": "update events set body = (select body from events where sid = 2 and seq = 0) where sid = 1 and seq = 0",
    "a row to another place": "update events set body = (select body from events where sid = 1 and seq = 1) where sid = 1 and seq = 0",
    "a row that becomes an edit": "update events set edit = 1 where sid = 1 and seq = 0",
    "a row of another kind": "update events set kind = 'model_said' where sid = 1 and seq = 0",
    "a changed byte": "update events set body = cast(body || x'00' as blob) where sid = 1 and seq = 0",
    "a cut row": "update events set body = x'01' where sid = 1 and seq = 0",
    "a place that is not bound any more": "update events set body = cast(x'02' || substr(body, 2) as blob) where sid = 1 and seq = 0",
    "another session's keys": "update side set value = (select value from side where session = 'two' and space = 'crypt') where session = 'one' and space = 'crypt'",
    "a side value at another place": "update side set value = (select value from side where session = 'one' and key = 'b') where session = 'one' and key = 'a'",
    "a side value of another session": "update side set value = (select value from side where session = 'two' and key = 'a') where session = 'one' and key = 'a'",
    "another piece": "update blobs set body = (select body from blobs order by hash desc limit 1)",
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
async def test_nothing_can_be_put_in_anothers_place(plain, move):
    store = CryptStore(plain, KEY)

    async def everything(reader):
        found = await event_log.read_events(reader, MINE, Range(0, 9))
        return [event for _, event in found], [await reader.get(MINE, "s", key) for key in "ab"]

    said = [UserSaid((Text(f"{n}"), Media("image", base64=f"A{n}" * 20_000))) for n in range(2)]
    for name in (MINE, TWO):
        await event_log.append_events(store, name, said, after=-1)
        for key in "ab":
            await store.put(name, "s", key, name.session.encode())
    before = await everything(CryptStore(plain, KEY))
    assert before[0] == said
    plain.db.sql(move)
    with pytest.raises(Sealed):
        await everything(CryptStore(plain, KEY))


async def test_a_row_whose_place_was_not_known_is_still_bound_to_its_session(plain):
    """Without `after` nobody knows the place before the store does."""
    store = CryptStore(plain, KEY)
    await store.append(MINE, rows("a", "b"))
    await store.append(TWO, rows("c"))
    plain.db.sql("update events set body = (select body from events where sid = 2) where sid = 1 and seq = 0")  # fmt: skip
    with pytest.raises(Sealed, match="the row at 0"):
        await store.read(MINE, [(0, 1)])


async def test_equal_pictures_cannot_be_told_to_be_equal(plain):
    said = [UserSaid((Media("image", base64="A" * 50_000),))]
    store = CryptStore(plain, KEY)
    for name in (MINE, TWO):
        await event_log.append_events(store, name, said)
        await event_log.append_events(store, name, said)
    stored = plain.db.sql("select hash, body from blobs")
    assert len({name for name, _ in stored}) == len({body for _, body in stored}) == 2
    assert set(event_log.build_draft(said).blobs).isdisjoint(name for name, _ in stored)


async def test_a_turn_reads_no_key(plain):
    """The keys of a session are read once in a process; statements are those of the store inside."""
    store = CryptStore(plain, KEY)
    statements: list[str] = []

    async def turn(through):
        statements.clear()
        end = (await through.head(MINE)).seq
        await through.append(MINE, rows("x"), after=end)
        await through.read(MINE, [(end, end + 1)])
        return len(statements)

    await turn(store)
    plain.db.connection.exec_trace = lambda _cursor, sql, _bindings: not statements.append(sql)
    first = await turn(CryptStore(plain, KEY))
    counts = [await turn(store) for _ in range(3)]
    bare = SqliteStore(":memory:")
    await turn(bare)
    bare.db.connection.exec_trace = lambda _cursor, sql, _bindings: not statements.append(sql)
    assert counts == [await turn(bare)] * 3
    assert first == counts[0] + 1  # the control: a store that has not read them yet
    await bare.close()


async def test_erased_means_that_no_key_is_left(plain):
    """R-73: whatever a crash or a backup leaves behind is noise, also beside a fork."""
    store = CryptStore(plain, KEY)
    said = [
        UserSaid((Text(f"secret {n}"), Media("image", base64=f"{n}" * 20_000))) for n in range(4)
    ]
    await event_log.append_events(store, MINE, said, after=-1)
    await store.fork(MINE, "two", at=3, keep=[(2, 3)])
    left = plain.db.sql("select seq, body from events where sid = 1 order by seq")
    await store.erase(MINE)
    assert plain.db.sql("select 1 from side where session = 'one'") == []
    assert [event for _, event in await event_log.read_events(store, TWO, Range(0, 3))] == said[2:]
    ring = await store._find_ring(TWO)
    opened = [ring.decrypt_row(Row("user_said", body, seq=seq)) is not None for seq, body in left]
    assert opened == [False, False, True, True]  # the copies that the fork has itself


async def test_an_erasure_that_was_cut_short_is_finished_by_another(plain):
    store = CryptStore(plain, KEY)
    await store.append(MINE, rows("secret"))
    await plain.put(MINE, "crypt", "keys", None)  # as far as erase came
    again = CryptStore(plain, KEY)
    for attempt in (again.read(MINE, [(0, 0)]), again.append(MINE, rows("x"))):
        with pytest.raises(Sealed, match="erasure was cut short"):
            await attempt
    assert (await again.erase(MINE)).events == 1


async def test_a_session_that_was_never_sealed_is_not_mixed(plain):
    await plain.append(MINE, rows("in clear"))
    store = CryptStore(plain, KEY)
    for attempt in (store.read(MINE, [(0, 0)]), store.append(MINE, rows("x")), store.put(MINE, "s", "k", b"1")):  # fmt: skip
        with pytest.raises(Sealed, match="written without encryption"):
            await attempt


async def test_a_new_master_key(plain):
    """Only the wrapped keys change; a session that is in no list follows when it is used."""
    store = CryptStore(plain, KEY)
    for n in range(130):
        await store.append(Name("acme", f"s{n:03}"), rows(f"hello {n}"), after=-1)
    await store.fork(Name("acme", "s000"), "fork", at=0, keep=[(0, 0)])
    await store.put(Name("acme", ""), "s", "k", b"the tenant's")
    await store.put(TWO, "s", "k", b"no log yet")
    bodies = plain.db.sql("select sid, seq, body from events order by 1, 2")
    assert await store.rekey(OTHER, tenants=["acme"]) == 132
    assert await store.rekey(OTHER, tenants=["acme"]) == 0
    assert plain.db.sql("select sid, seq, body from events order by 1, 2") == bodies
    fresh = CryptStore(plain, OTHER)
    for name in ("s000", "s129", "fork"):
        assert len(await fresh.read(Name("acme", name), [(0, 0)])) == 1
    assert (await fresh.get(Name("acme", ""), "s", "k")).value == b"the tenant's"
    with pytest.raises(Sealed):
        await CryptStore(plain, KEY).read(Name("acme", "s000"), [(0, 0)])
    with pytest.raises(Sealed):
        await fresh.get(TWO, "s", "k")
    assert (await CryptStore(plain, OTHER, older=[KEY]).get(TWO, "s", "k")).value == b"no log yet"
    assert (await CryptStore(plain, OTHER).get(TWO, "s", "k")).value == b"no log yet"


async def test_keys_that_two_make_at_once_are_one(tmp_path):
    path = str(tmp_path / "talks.db")
    stores = [CryptStore(SqliteStore(path), KEY) for _ in range(4)]
    await asyncio.gather(*(store.append(MINE, rows(f"{n}")) for n, store in enumerate(stores)))
    for store in stores:
        assert len(await store.read(MINE, [(0, 9)])) == 4
        await store.close()


async def test_a_fork_into_a_name_whose_keys_another_process_holds(plain):
    """Side values came first, then the fork: both open, in every process."""
    one, other = CryptStore(plain, KEY), CryptStore(plain, KEY)
    await one.append(MINE, rows("a", "b"), after=-1)
    await other.put(TWO, "s", "k", b"1")
    await one.fork(MINE, "two", at=1, keep=[(1, 1)])
    for store in (one, other):
        assert [row.seq for row in await store.read(TWO, [(0, 9)])] == [0, 1]
        assert (await store.get(TWO, "s", "k")).value == b"1"


async def test_a_fork_that_fails_leaves_no_keys(plain):
    store = CryptStore(plain, KEY)
    await store.append(MINE, rows("a"), after=-1)
    with pytest.raises(BadInput):
        await store.fork(MINE, "two", at=5, keep=[(0, 0)])
    assert await plain.get(TWO, "crypt", "keys") is None


async def test_search_is_bounded_and_says_what_it_cannot(plain, monkeypatch):
    store = CryptStore(plain, KEY)
    with pytest.raises(Unsupported, match="name one `session`"):
        await store.search("acme", "needle")
    await store.append(MINE, rows("needle", *("hay" for _ in range(1_200)), "needle"), after=-1)
    hits = [hit.seq for hit in await store.search("acme", "needle", session="one")]
    assert hits == [1_201, 0]
    monkeypatch.setattr(encryption, "REACH", 1_201)
    assert [hit.seq for hit in await store.search("acme", "needle", session="one")] == [1_201]


async def test_search_finds_what_the_store_inside_would(plain):
    """The same words, the same order, in a log and in a fork of it."""
    bare, random = SqliteStore(":memory:"), Random(4)
    words = ["Straße", "café", "CAFE", "foo_bar", "foo", "bar", "x-y", "naïve", "東京", "12"]
    said = [" ".join(random.choices(words, k=3)) for _ in range(700)]
    for store in (bare, CryptStore(plain, KEY)):
        await store.append(MINE, rows(*said), after=-1)
        await store.fork(MINE, "two", at=699, keep=[(600, 650)])
        await store.append(TWO, rows(*said[:20]))
    store = CryptStore(plain, KEY)
    for query in (*words, "foo bar", "cafe strasse", "naive 12", "missing", "foo* OR"):
        for session in ("one", "two"):
            mine = await store.search("acme", query, session=session, limit=50)
            assert mine == await bare.search("acme", query, session=session, limit=50)
    await bare.close()


async def test_the_space_of_the_keys_is_not_for_others(plain):
    store = CryptStore(plain, KEY)
    for attempt in (store.get(MINE, "crypt", "keys"), store.put(MINE, "crypt", "keys", None)):
        with pytest.raises(BadInput, match="holds the keys"):
            await attempt


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    store = SqliteStore(":memory:")
    with pytest.raises(BadInput, match=r"pip install 'foldline\[crypt\]'"):
        CryptStore(store, KEY)


async def test_a_draft_of_nothing(plain):
    store = CryptStore(plain, KEY)
    assert await store.append(MINE, Draft([]), after=-1) == -1


# The variable that encrypts whatever opens a store.

SAMPLE = Path(__file__).parents[1] / "importers" / "files" / "pi.jsonl"


def read_files(folder):
    return b"".join(file.read_bytes() for file in folder.glob("talks.db*"))


def list_settings(key, folder):
    """A key itself, a command that prints it, and the key behind a newer one."""
    (folder / "keys").write_text(f"{key.hex()}\n")
    return (
        key.hex(),
        f"{sys.executable} -c 'print(open(\"{folder}/keys\").read())'",
        f"{OTHER.hex()} {key.hex()}",
    )


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "control"])
def test_the_variable_encrypts_what_the_library_writes(tmp_path, monkeypatch, sealed):
    path = str(tmp_path / "talks.db")
    if sealed:
        monkeypatch.setenv(ENCRYPT, KEY.hex())
    with foldline.open(path, session="one", model="gpt-5", window=9_000) as session:
        session.add("CANARY-library")
    assert (b"CANARY" in read_files(tmp_path)) is not sealed
    if not sealed:
        return
    for value in list_settings(KEY, tmp_path):
        monkeypatch.setenv(ENCRYPT, value)
        with foldline.open(path, session="one", model="gpt-5", window=9_000) as session:
            assert "CANARY-library" in str(session.request())
    monkeypatch.setenv(ENCRYPT, bytes(reversed(KEY)).hex())
    with pytest.raises(Sealed):
        foldline.open(path, session="one", model="gpt-5", window=9_000)


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "control"])
def test_the_variable_encrypts_what_commands_and_the_gateway_write(tmp_path, sealed):
    env = {ENCRYPT: list_settings(KEY, tmp_path)[1]} if sealed else {}
    shared = ["--store", tmp_path / "talks.db"]

    def run(*args, **more):
        done = subprocess.run(
            [PROGRAM, *args, *shared], env={**os.environ, **more}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    assert run("import", SAMPLE, "--as", "one", **env)[0] == 0
    said = run("show", "one", **env)
    assert said[0] == 0
    with Provider(["CANARY-answer"]) as provider:
        with served([*shared, "--port", "0", "--upstream", provider.url], tmp_path, **env) as begun:
            body = {"model": "m", "messages": [{"role": "user", "content": "CANARY-asked"}]}
            urllib.request.urlopen(
                urllib.request.Request(
                    f"http://127.0.0.1:{begun.port}/v1/chat/completions",
                    json.dumps(body).encode(),
                    {"content-type": "application/json", "x-foldline-session": "two"},
                ),
                timeout=20,
            ).close()
        assert len(provider.bodies) == 1
    code, shown = run("show", "two", **env)
    assert code == 0
    assert "CANARY-asked" in shown
    assert "CANARY-answer" in shown
    assert (b"CANARY" in read_files(tmp_path)) is not sealed
    if sealed:
        assert run("show", "two")[0] != 0


@pytest.mark.parametrize(
    "value", [" ", "abc", KEY.hex()[2:], f"{KEY.hex()} ab", "false", "no-such-command", "echo", "'"]
)
def test_a_variable_without_a_key_opens_nothing(tmp_path, monkeypatch, value):
    """Never in clear instead, and the words of the variable are in no message."""
    monkeypatch.setenv(ENCRYPT, value)
    with pytest.raises(BadInput) as refused:
        store_at(str(tmp_path / "talks.db"))
    assert KEY.hex()[2:] not in str(refused.value)
    assert list(tmp_path.iterdir()) == []
