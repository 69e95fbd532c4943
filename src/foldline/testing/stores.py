"""What every store must do, as one suite: for our backends, and for those that others write.

    from foldline.testing.stores import Conformance

    class TestMyStore(Conformance):
        @pytest.fixture
        async def store(self): ...

A store without an index over all sessions says so: `searches_tenants = False`. It is then asked to
refuse such a search, and to answer it session by session.

Knows the store's promises and nothing of how they are kept. Each test names its requirement.
"""

import asyncio
import hashlib
from random import Random

import pytest

from foldline.core.log import Instructed, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Media, Native, Text
from foldline.core.spine import Range
from foldline.errors import BadInput, Conflict, Erased, Unsupported
from foldline.store import logs
from foldline.store.base import Draft, Found, Name, Retention, Row, Store
from foldline.testing.play import play, steps

MINE, THEIRS = Name("acme", "one"), Name("other", "one")


def rows(*bodies: str, edit: bool = False) -> Draft:
    """Rows that say what they are given."""
    return Draft([Row("user_said", _body(one), edit) for one in bodies])


def _body(words: str) -> bytes:
    return logs.draft([UserSaid((Text(words),))]).rows[0].body


async def _whole(store: Store, name: Name) -> list[bytes]:
    head = await store.head(name)
    return [row.body for row in await store.read(name, [(0, head.seq)])]


@pytest.mark.anyio
class Conformance:
    """Give a fixture `store`, new for each test."""

    searches_tenants = True
    """Whether a search may leave out the session; False: it raises `Unsupported` then."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        """Stores are asyncio's."""
        return "asyncio"

    async def _search(self, store: Store, tenant: str, words: str) -> list[Found]:
        """A search over all sessions, the newest session first where each is asked alone."""
        if self.searches_tenants:
            return await store.search(tenant, words)
        with pytest.raises(Unsupported):
            await store.search(tenant, words)
        listed = sorted(await store.sessions(tenant), key=lambda one: -one.opened)
        found = [await store.search(tenant, words, session=one.session) for one in listed]
        return [hit for hits in found for hit in hits]

    # Logs.

    async def test_a_log_is_dense_and_in_order(self, store: Store) -> None:
        """Places are given one after another."""
        assert (await store.head(MINE)).seq == -1
        assert await store.append(MINE, rows("a", "b"), after=-1) == 1
        assert await store.append(MINE, rows("c")) == 2
        found = await store.read(MINE, [(0, 9)])
        assert [(row.seq, row.body) for row in found] == [
            (seq, _body(words)) for seq, words in enumerate("abc")
        ]
        assert (await store.head(MINE)).seq == 2
        assert (await store.head(MINE, at=0)).seq == 0

    async def test_an_append_is_all_or_nothing(self, store: Store) -> None:
        """R-63: a conflict is an integer, and nothing is written."""
        await store.append(MINE, rows("a"), after=-1)
        with pytest.raises(Conflict) as conflict:
            await store.append(MINE, rows("b", "c"), after=-1)
        assert (conflict.value.expected, conflict.value.found) == (-1, 0)
        assert len(await _whole(store, MINE)) == 1

    async def test_once(self, store: Store) -> None:
        """R-81: what was delivered twice is there once, wherever the log has gone since."""
        first = await store.append(MINE, rows("hello"), once="update 7")
        await store.append(MINE, rows("more"))
        assert await store.append(MINE, rows("hello"), once="update 7") == first
        assert await store.append(MINE, rows("hello"), once="update 7", after=99) == first
        assert len(await _whole(store, MINE)) == 2
        await store.append(THEIRS, rows("hello"), once="update 7")
        assert len(await _whole(store, THEIRS)) == 1

    async def test_many_writers_of_one_log(self, store: Store) -> None:
        """R-62: whoever loses tries again; all are there, once."""

        async def write(who: int) -> None:
            for at in range(20):
                while True:
                    end = (await store.head(MINE)).seq
                    try:
                        await store.append(MINE, rows(f"{who} {at}"), after=end)
                    except Conflict:
                        continue
                    break

        await asyncio.gather(*(write(who) for who in range(4)))
        found = await _whole(store, MINE)
        assert sorted(found) == sorted(_body(f"{w} {a}") for w in range(4) for a in range(20))

    async def test_bytes_come_back(self, store: Store) -> None:
        """R-35: also NUL, what is no UTF-8, and megabytes."""
        bodies = [b"\x00\xff\xfe", b"", b'{"b":1,"a":1,"a":2}', Random(1).randbytes(2_000_000)]
        await store.append(MINE, Draft([Row("user_said", body) for body in bodies]))
        assert await _whole(store, MINE) == bodies

    async def test_times(self, store: Store) -> None:
        """What happened long ago keeps its date; what does not say when is dated now."""
        said = [UserSaid((Text(words),)) for words in "ab"]
        await store.append(MINE, logs.draft(said, [5.5, 0.0]))
        old, new = await store.read(MINE, [(0, 1)])
        assert old.time == 5.5
        assert new.time > 1e9

    async def test_spans(self, store: Store) -> None:
        """Several at a time, in order, each row once."""
        await store.append(MINE, rows(*"abcdefgh"))
        found = await store.read(MINE, [(6, 9), (1, 2), (2, 3)])
        assert [row.seq for row in found] == [1, 2, 3, 6, 7]

    async def test_the_newest_edit(self, store: Store) -> None:
        """The newest one up to a place."""
        await store.append(MINE, rows("a"))
        await store.append(MINE, rows("b", edit=True))
        await store.append(MINE, rows("c"))
        await store.append(MINE, rows("d", edit=True))
        for at, edit in ((0, None), (1, 1), (2, 1), (3, 3), (None, 3)):
            found = (await store.head(MINE, at=at)).edit
            assert (found.seq if found else None) == edit

    async def test_a_tail_is_the_live_part(self, store: Store) -> None:
        """Law 6: whatever is loaded, at any place, is what the view there holds."""
        talk = play(steps(Random(3), 300))
        await logs.append(store, MINE, talk.events, after=-1)
        tail = await logs.tail(store, MINE)
        assert {seq for seq, _ in tail.events} == set(talk.view.held)
        assert [event for _, event in await logs.read(store, MINE, Range(0, len(talk.events)))] == (
            talk.events
        )

    async def test_large_pieces_are_kept_once(self, store: Store) -> None:
        """Pictures and foreign JSON, by hash; a hash alone opens nothing."""
        picture = Media("image", mime="image/png", base64="iVBO" * 20_000)
        foreign = Native("x", "{" + " " * 40_000 + "}")
        said = [
            UserSaid((Text("look"), picture), native=foreign),
            ToolReturned("c", (picture,)),
            ModelSaid((Text("a cat"),)),
            Instructed((Text("be brief"),)),
        ]
        await logs.append(store, MINE, said)
        assert [event for _, event in await logs.read(store, MINE, Range(0, 9))] == said
        drafted = logs.draft(said)
        assert len(drafted.blobs) == 2
        assert sum(len(row.body) for row in drafted.rows) < 2_000
        for other in (THEIRS, Name("acme", "two")):
            await store.append(other, rows("mine has no picture"))
            assert await store.blobs(other, list(drafted.blobs)) == {}

    # Tenants.

    async def test_no_other_tenants_strings(self, store: Store) -> None:
        """R-69: a canary in every operation that gives something back."""
        await store.append(MINE, rows("canary of acme"), once="k")
        await store.put(MINE, "space", "key", b"canary")
        assert len(await self._search(store, "acme", "canary")) == 1
        assert await store.read(THEIRS, [(0, 9)]) == []
        assert (await store.head(THEIRS)).seq == -1
        assert await store.get(THEIRS, "space", "key") is None
        assert await store.sessions("other") == []
        assert await self._search(store, "other", "canary") == []
        assert await store.search("other", "canary", session="one") == []
        assert (await store.retain("other", Retention(sessions=0))).sessions == ()
        await store.erase(THEIRS)
        assert await _whole(store, MINE) == [_body("canary of acme")]

    # Leases.

    async def test_a_lease_is_one_holders(self, store: Store) -> None:
        """R-63: one at a time, and who comes late writes nothing."""
        one = await store.lease(MINE, "a", seconds=60)
        assert one is not None
        assert await store.lease(MINE, "b", seconds=60) is None
        again = await store.lease(MINE, "a", seconds=60)
        assert again is not None
        assert again.fence == one.fence
        await store.append(MINE, rows("a's"), fence=one.fence)
        await store.release(one)
        two = await store.lease(MINE, "b", seconds=0.02)
        assert two is not None
        assert two.fence > one.fence
        with pytest.raises(Conflict, match="another worker took over"):
            await store.append(MINE, rows("too late"), fence=one.fence)
        await asyncio.sleep(0.05)  # b is gone
        three = await store.lease(MINE, "c", seconds=60)
        assert three is not None
        assert three.fence > two.fence
        await store.release(two)  # too late: does nothing
        assert await store.lease(MINE, "d", seconds=60) is None

    async def test_inbound_needs_no_lease(self, store: Store) -> None:
        """R-28: a message that comes during a turn is taken, and the turn goes on behind it."""
        lease = await store.lease(MINE, "a", seconds=60)
        assert lease is not None
        await store.append(MINE, rows("inbound"), once="m1")
        await store.append(MINE, rows("answer"), fence=lease.fence)
        assert await _whole(store, MINE) == [_body("inbound"), _body("answer")]

    # The side table.

    async def test_compare_and_set(self, store: Store) -> None:
        """A version that moved on is not overwritten."""
        assert await store.put(MINE, "s", "k", b"1", version=0)
        assert not await store.put(MINE, "s", "k", b"2", version=0)
        entry = await store.get(MINE, "s", "k")
        assert entry is not None
        assert entry.value == b"1"
        assert await store.put(MINE, "s", "k", b"2", version=entry.version)
        assert not await store.put(MINE, "s", "k", None, version=entry.version)
        assert await store.put(MINE, "s", "k", None)
        assert await store.get(MINE, "s", "k") is None

    async def test_entries_run_out(self, store: Store) -> None:
        """And make room for new ones."""
        await store.put(MINE, "s", "k", b"1", seconds=0.02)
        await asyncio.sleep(0.05)
        assert await store.get(MINE, "s", "k") is None
        assert await store.put(MINE, "s", "k", b"2", version=0)

    # Lists and search.

    async def test_sessions_by_pages(self, store: Store) -> None:
        """By name, each once."""
        names = [f"s{at:02}" for at in range(25)]
        for name in names:
            await store.append(Name("acme", name), rows("x"))
        found: list[str] = []
        while page := await store.sessions("acme", after=found[-1] if found else "", limit=10):
            found += [one.session for one in page]
            assert all(one.head == 0 and one.size > 0 and one.changed > 0 for one in page)
        assert found == names

    async def test_search(self, store: Store) -> None:
        """All words, the newest first, whatever signs are in them."""
        await store.append(MINE, rows("the parser fails", "a café in Köln", "the parser passes"))
        await store.append(Name("acme", "two"), rows('quote " and parser* (x'))
        assert [hit.seq for hit in await store.search("acme", "parser", session="one")] == [2, 0]
        assert len(await self._search(store, "acme", "parser")) == 3
        assert [hit.seq for hit in await self._search(store, "acme", "PARSER fails")] == [0]
        assert len(await store.search("acme", "parser", session="one", limit=1)) == 1
        for odd in ('"', "*", "NEAR(", "a OR", "", "-", "café"):
            await store.search("acme", odd, session="one")
        assert [hit.seq for hit in await self._search(store, "acme", "cafe koln")] == [1]
        await store.append(MINE, rows("another parser"))
        assert (await store.search("acme", "parser", session="one"))[0].seq == 3

    # Forks.

    async def test_a_fork_shares_what_was_before(self, store: Store) -> None:
        """The tail is copied, the rest is read from the ancestor; both go on alone."""
        talk = play(steps(Random(11), 300))
        await logs.append(store, MINE, talk.events, after=-1)
        at = len(talk.events) * 2 // 3
        before = await logs.tail(store, MINE, at=at)
        await logs.fork(store, MINE, "fork", at=at)
        new = Name("acme", "fork")
        assert await logs.tail(store, new) == before
        assert [event for _, event in await logs.read(store, new, Range(0, at + 5))] == (
            talk.events[: at + 1]
        )
        assert await store.append(new, rows("another way"), after=at) == at + 1
        assert (await store.head(MINE)).seq == len(talk.events) - 1
        await store.fork(new, "second", at=at + 1, keep=[(at + 1, at + 1)])
        found = await store.read(Name("acme", "second"), [(0, at + 1)])
        assert [row.seq for row in found] == list(range(at + 2))
        with pytest.raises(Conflict):
            await store.fork(MINE, "fork", at=at, keep=[])
        with pytest.raises(BadInput):
            await store.fork(MINE, "beyond", at=10_000, keep=[])
        assert {one.session: one.origin for one in await store.sessions("acme")} == {
            "fork": "one", "one": "", "second": "fork"
        }  # fmt: skip

    async def test_a_fork_outlives_its_ancestors(self, store: Store) -> None:
        """What was copied stays, with its pictures; what only the ancestor had is gone."""
        said = [UserSaid((Media("image", base64=f"A{at}" * 20_000),)) for at in range(4)]
        await logs.append(store, MINE, said)
        await store.fork(MINE, "two", at=3, keep=[(2, 3)])
        await store.fork(Name("acme", "two"), "three", at=3, keep=[(2, 3)])
        await store.erase(MINE)
        await store.erase(Name("acme", "two"))
        three = Name("acme", "three")
        assert [event for _, event in await logs.read(store, three, Range(0, 3))] == said[2:]

    # Retention and erasure.

    async def test_a_floor(self, store: Store) -> None:
        """What a view still needs stays."""
        await store.append(MINE, rows(*"abcdefgh"))
        assert await store.trim(MINE, 5, keep=[2]) == 4
        assert [row.seq for row in await store.read(MINE, [(0, 9)])] == [2, 5, 6, 7]
        head = await store.head(MINE)
        assert (head.floor, head.trimmed is not None) == (5, True)
        assert await store.trim(MINE, 3, keep=[]) == 0

    async def test_retention(self, store: Store) -> None:
        """R-67, R-74: by count, size, age, the least lately changed first; never what is held."""
        names = [f"s{at}" for at in range(6)]
        for name in names:
            await store.append(Name("acme", name), rows("x" * 100))
            await asyncio.sleep(0.002)
        await store.hold(Name("acme", "s0"), on=True)
        dry = await store.retain("acme", Retention(sessions=3), dry=True)
        assert (dry.sessions, dry.dry) == (("s1", "s2", "s3"), True)
        assert len(await store.sessions("acme")) == 6
        assert (await store.retain("acme", Retention(sessions=4))).sessions == ("s1", "s2")
        assert (await store.retain("acme", Retention(seconds=3600))).sessions == ()
        size = (await store.sessions("acme"))[0].size
        assert (await store.retain("acme", Retention(size=3 * size))).sessions == ("s3",)
        assert (await store.retain("acme", Retention(seconds=0))).sessions == ("s4", "s5")
        assert [one.session for one in await store.sessions("acme")] == ["s0"]
        await store.hold(Name("acme", "s0"), on=False)
        receipt = await store.retain("acme", Retention(sessions=0))
        assert (receipt.sessions, receipt.events) == (("s0",), 1)

    async def test_erasure(self, store: Store) -> None:
        """R-73: originals, index and side entries go; late writes are refused; with a receipt."""
        picture = Media("image", base64="secret" * 9_000)
        await logs.append(store, MINE, [UserSaid((Text("canary"), picture))])
        await store.put(MINE, "prepared", "k", b"canary")
        assert len(await self._search(store, "acme", "canary")) == 1
        receipt = await store.erase(MINE)
        assert (receipt.sessions, receipt.events) == (("one",), 1)
        assert receipt.size > 0
        assert await _whole(store, MINE) == []
        assert await self._search(store, "acme", "canary") == []
        assert await store.search("acme", "canary", session="one") == []
        assert await store.get(MINE, "prepared", "k") is None
        assert await store.sessions("acme") == []
        name = hashlib.sha256(picture.base64.encode()).hexdigest()
        assert await store.blobs(MINE, [name]) == {}
        with pytest.raises(Erased, match="erased on"):
            await store.append(MINE, rows("late"))
        with pytest.raises(Erased):
            await store.put(MINE, "prepared", "k", b"a late fold")
        assert (await store.erase(MINE)).events == 0
        await store.append(THEIRS, rows("fine"))

    async def test_erasure_of_what_has_no_log_yet(self, store: Store) -> None:
        """R-73: side values alone are a session too; the tenant's own are none."""
        await store.put(MINE, "prepared", "k", b"canary")
        await store.put(Name("acme", ""), "spend", "k", b"1")
        await store.erase(MINE)
        assert await store.get(MINE, "prepared", "k") is None
        with pytest.raises(Erased):
            await store.append(MINE, rows("late"))
        await store.erase(Name("acme", ""))
        assert await store.get(Name("acme", ""), "spend", "k") is not None

    async def test_a_piece_stays_while_another_session_names_it(self, store: Store) -> None:
        """Erasing one session takes nothing from another."""
        said = [UserSaid((Media("image", base64="A" * 50_000),))]
        other = Name("acme", "two")
        await logs.append(store, MINE, said)
        await logs.append(store, other, said)
        await store.erase(MINE)
        assert [event for _, event in await logs.read(store, other, Range(0, 0))] == said
