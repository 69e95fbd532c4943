"""What every store must do, as one suite: for our backends, and for those that others write.

    from foldline.testing.stores import Conformance

    class TestMyStore(Conformance):
        @pytest.fixture
        async def store(self): ...

A store without an index over all sessions says so: `searches_tenants = False`. It is then asked to
refuse such a search, and to answer it session by session.

Knows the store's promises and nothing of how they are kept. Each test names its requirement. Forks,
retention and erasure are `foldline.testing.lasting`'s, and part of this suite.
"""

import asyncio
from random import Random

import pytest

from foldline.core.log import Instructed, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Media, Native, Text
from foldline.core.spine import Range
from foldline.errors import Conflict, Erased
from foldline.stores import event_log
from foldline.stores.base import Draft, Name, Retention, Row, Store
from foldline.testing.lasting import MINE, THEIRS, Lasting, body_of, rows, whole
from foldline.testing.play import play, steps


@pytest.mark.anyio
class Conformance(Lasting):
    """All that a store promises, as tests: give a fixture `store`, new for each of them."""

    # Logs.

    async def test_a_log_is_dense_and_in_order(self, store: Store) -> None:
        """Places are given one after another."""
        assert (await store.head(MINE)).seq == -1
        assert await store.append(MINE, rows("a", "b"), after=-1) == 1
        assert await store.append(MINE, rows("c")) == 2
        found = await store.read(MINE, [(0, 9)])
        assert [(row.seq, row.body) for row in found] == [
            (seq, body_of(words)) for seq, words in enumerate("abc")
        ]
        assert (await store.head(MINE)).seq == 2
        assert (await store.head(MINE, at=0)).seq == 0

    async def test_an_append_is_all_or_nothing(self, store: Store) -> None:
        """A conflict is an integer, and nothing is written."""
        await store.append(MINE, rows("a"), after=-1)
        with pytest.raises(Conflict) as conflict:
            await store.append(MINE, rows("b", "c"), after=-1)
        assert (conflict.value.expected, conflict.value.found) == (-1, 0)
        assert len(await whole(store, MINE)) == 1

    async def test_an_append_of_one_row_is_compared_too(self, store: Store) -> None:
        """Most appends are one row, and a store may have a path of its own for them."""
        await store.append(MINE, rows("a"), after=-1)
        await store.append(MINE, rows("b"), after=0)
        for late in (-1, 0, 2):
            with pytest.raises(Conflict) as conflict:
                await store.append(MINE, rows("late"), after=late)
            assert (conflict.value.expected, conflict.value.found) == (late, 1)
        assert await store.append(MINE, rows("c"), after=1) == 2
        assert await whole(store, MINE) == [body_of(words) for words in "abc"]

    async def test_once(self, store: Store) -> None:
        """What was delivered twice is there once, wherever the log has gone since."""
        first = await store.append(MINE, rows("hello"), once="update 7")
        await store.append(MINE, rows("more"))
        assert await store.append(MINE, rows("hello"), once="update 7") == first
        assert await store.append(MINE, rows("hello"), once="update 7", after=99) == first
        assert len(await whole(store, MINE)) == 2
        await store.append(THEIRS, rows("hello"), once="update 7")
        assert len(await whole(store, THEIRS)) == 1

    async def test_many_writers_of_one_log(self, store: Store) -> None:
        """Whoever loses tries again; all are there, once."""

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
        found = await whole(store, MINE)
        assert sorted(found) == sorted(body_of(f"{w} {a}") for w in range(4) for a in range(20))

    async def test_bytes_come_back(self, store: Store) -> None:
        """Also NUL, what is no UTF-8, and megabytes."""
        bodies = [b"\x00\xff\xfe", b"", b'{"b":1,"a":1,"a":2}', Random(1).randbytes(2_000_000)]
        await store.append(MINE, Draft([Row("user_said", body) for body in bodies]))
        assert await whole(store, MINE) == bodies

    async def test_times(self, store: Store) -> None:
        """What happened long ago keeps its date; what does not say when is dated now."""
        said = [UserSaid((Text(words),)) for words in "ab"]
        await store.append(MINE, event_log.build_draft(said, [5.5, 0.0]))
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
        await event_log.append_events(store, MINE, talk.events, after=-1)
        tail = await event_log.read_tail(store, MINE)
        assert {seq for seq, _ in tail.events} == set(talk.view.held)
        assert [
            event
            for _, event in await event_log.read_events(store, MINE, Range(0, len(talk.events)))
        ] == (talk.events)

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
        await event_log.append_events(store, MINE, said)
        assert [event for _, event in await event_log.read_events(store, MINE, Range(0, 9))] == said
        drafted = event_log.build_draft(said)
        assert len(drafted.blobs) == 2
        assert sum(len(row.body) for row in drafted.rows) < 2_000
        for other in (THEIRS, Name("acme", "two")):
            await store.append(other, rows("mine has no picture"))
            assert await store.blobs(other, list(drafted.blobs)) == {}

    # Tenants.

    async def test_no_other_tenants_strings(self, store: Store) -> None:
        """A canary in every operation that gives something back."""
        await store.append(MINE, rows("canary of acme"), once="k")
        await store.put(MINE, "space", "key", b"canary")
        assert len(await self.search_all(store, "acme", "canary")) == 1
        assert await store.read(THEIRS, [(0, 9)]) == []
        assert (await store.head(THEIRS)).seq == -1
        assert await store.get(THEIRS, "space", "key") is None
        assert await store.sessions("other") == []
        assert await self.search_all(store, "other", "canary") == []
        assert await store.search("other", "canary", session="one") == []
        assert (await store.retain("other", Retention(sessions=0))).sessions == ()
        await store.erase(THEIRS)
        assert await whole(store, MINE) == [body_of("canary of acme")]

    # Owners.

    async def test_an_owner_stays(self, store: Store) -> None:
        """The first to claim a session has it, whatever is written or refused there since."""
        assert (await store.head(MINE)).owner == ""
        assert await store.claim(MINE, "alice") == "alice"
        assert await store.claim(MINE, "bob") == "alice"
        with pytest.raises(Conflict):
            await store.append(MINE, rows("too late"), after=7)
        assert (await store.head(MINE)).owner == "alice"
        await store.append(MINE, rows("a", "b"), after=-1)
        await store.append(MINE, rows("c", edit=True), after=1)
        assert await store.claim(MINE, "bob") == "alice"
        for at in (None, 0):
            assert (await store.head(MINE, at=at)).owner == "alice"
        assert await store.claim(THEIRS, "bob") == "bob"
        assert (await store.head(MINE)).owner == "alice"

    async def test_what_somebody_else_wrote_is_not_claimed(self, store: Store) -> None:
        """Events without an owner stay without: whoever wrote them gave them to nobody."""
        await store.append(MINE, rows("from the command line"))
        assert await store.claim(MINE, "alice") == ""
        assert (await store.head(MINE)).owner == ""
        lease = await store.lease(Name("acme", "leased"), "worker", seconds=60)
        assert await store.claim(Name("acme", "leased"), "alice") == "alice"
        assert lease is not None
        await store.append(Name("acme", "leased"), rows("mine"), fence=lease.fence)

    async def test_what_was_erased_is_not_claimed(self, store: Store) -> None:
        """An erased session does not come back under another owner."""
        await store.claim(MINE, "alice")
        await store.append(MINE, rows("a"))
        await store.erase(MINE)
        with pytest.raises(Erased):
            await store.claim(MINE, "bob")
        assert await store.sessions("acme") == []

    async def test_many_claim_one_session(self, store: Store) -> None:
        """One of them owns it, and each call returns that one."""
        names = [f"owner{at}" for at in range(8)]
        owners = await asyncio.gather(*(store.claim(MINE, one) for one in names))
        assert set(owners) == {(await store.head(MINE)).owner}
        assert owners[0] in names

    async def test_a_fork_has_its_origins_owner(self, store: Store) -> None:
        """So recall through ancestors never leaves the owner; nobody forks into a claim."""
        await store.claim(MINE, "alice")
        await store.append(MINE, rows("a", "b"))
        await store.fork(MINE, "two", at=1, keep=[(1, 1)])
        assert (await store.head(Name("acme", "two"))).owner == "alice"
        assert await store.claim(Name("acme", "two"), "bob") == "alice"
        assert await store.claim(Name("acme", "bobs"), "bob") == "bob"
        with pytest.raises(Conflict):
            await store.fork(MINE, "bobs", at=1, keep=[(1, 1)])
        assert (await store.head(Name("acme", "bobs"))).owner == "bob"

    async def test_sessions_of_one_owner(self, store: Store) -> None:
        """By pages, each once, and nobody else's; without `owner` all of them."""
        owners = {f"s{at:02}": ("alice", "bob", "")[at % 3] for at in range(24)}
        for session, owner in owners.items():
            if owner:
                await store.claim(Name("acme", session), owner)
            await store.append(Name("acme", session), rows("x"))
        await store.claim(Name("other", "s99"), "alice")
        for owner in ("alice", "bob", "", "nobody"):
            found: list[str] = []
            while page := await store.sessions(
                "acme", after=found[-1] if found else "", limit=3, owner=owner
            ):
                found += [one.session for one in page]
                assert {one.owner for one in page} == {owner}
            assert found == [one for one, whose in owners.items() if whose == owner]
        assert {one.session: one.owner for one in await store.sessions("acme")} == owners

    async def test_a_search_for_one_owner(self, store: Store) -> None:
        """A canary in every session: only those of the owner are found."""
        for owner in ("alice", "bob"):
            await store.claim(Name("acme", f"{owner}s"), owner)
            await store.append(Name("acme", f"{owner}s"), rows(f"canary of {owner}"))
        await store.append(Name("acme", "nobodys"), rows("canary of nobody"))
        asked = [("alices", "alice", 1), ("alices", "bob", 0), ("alices", None, 1)]
        for session, owner, count in (*asked, ("nobodys", "alice", 0)):
            found = await store.search("acme", "canary", session=session, owner=owner)
            assert len(found) == count, (session, owner)
        if self.searches_tenants:
            for owner in ("alice", "bob"):
                found = await store.search("acme", "canary", owner=owner)
                assert [one.session for one in found] == [f"{owner}s"]
            assert await store.search("acme", "canary", owner="carol") == []
            assert len(await store.search("acme", "canary")) == 3

    # Leases.

    async def test_a_lease_is_one_holders(self, store: Store) -> None:
        """One at a time, and who comes late writes nothing."""
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
        """A message that comes during a turn is taken, and the turn goes on behind it."""
        lease = await store.lease(MINE, "a", seconds=60)
        assert lease is not None
        await store.append(MINE, rows("inbound"), once="m1")
        await store.append(MINE, rows("answer"), fence=lease.fence)
        assert await whole(store, MINE) == [body_of("inbound"), body_of("answer")]

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
        """Any word is enough, the best comes first, then the newest, whatever signs are in them."""
        await store.append(MINE, rows("the parser fails", "a café in Köln", "the parser passes"))
        await store.append(Name("acme", "two"), rows('quote " and parser* (x'))
        assert [hit.seq for hit in await store.search("acme", "parser", session="one")] == [2, 0]
        assert len(await self.search_all(store, "acme", "parser")) == 3
        found = await store.search("acme", "PARSERS failing", session="one")
        assert [hit.seq for hit in found] == [0, 2]
        assert found[0].score > found[1].score > 0
        assert len(await store.search("acme", "parser", session="one", limit=1)) == 1
        for odd in ('"', "*", "NEAR(", "a OR", "", "-", "café", "\0", "x" * 100_000):
            await store.search("acme", odd, session="one")
        assert [hit.seq for hit in await self.search_all(store, "acme", "cafe koln")] == [1]
        await store.append(MINE, rows("another parser"))
        assert (await store.search("acme", "parser", session="one"))[0].seq == 3

    async def test_a_search_ranks_by_rarity_frequency_and_length(self, store: Store) -> None:
        """A rare word counts more than a common one, twice more than once, short more than long."""
        await store.append(MINE, rows(*("common words" for _ in range(9)), "a rare word", "common"))
        assert (await store.search("acme", "common rare", session="one"))[0].seq == 9
        other = Name("acme", "two")
        await store.append(other, rows("budget, budget, lunch", "lunch and budget", "lunch"))
        found = await store.search("acme", "budget", session="two")
        assert [hit.seq for hit in found] == [0, 1]
        long = Name("acme", "three")
        await store.append(long, rows("short budget", "the budget " + "is long " * 50))
        found = await store.search("acme", "budget", session="three")
        assert [hit.seq for hit in found] == [0, 1]

    async def test_stop_words_weigh_nothing(self, store: Store) -> None:
        """Unless there is nothing else to look for."""
        await store.append(MINE, rows("what is it that you are", "the harbor", "who are you"))
        found = await store.search("acme", "what is that harbor", session="one")
        assert [hit.seq for hit in found] == [1]
        assert [hit.seq for hit in await store.search("acme", "who are", session="one")] == [2, 0]

    async def test_parts_of_identifiers_and_unspaced_text(self, store: Store) -> None:
        """Parts and wholes of names and paths; two characters of Chinese, one of Thai."""
        said = (
            "see parse_count",
            "parseCount fails",
            "in src/a/b.py",
            "我家的狗叫旺财",
            "ทดสอบระบบ",
        )
        await store.append(MINE, rows(*said))
        asked = {
            "count": {0, 1}, "parsecount": {1}, "parse_count": {0, 1}, "a/b.py": {2},
            "src/a/b.py": {2}, "旺财": {3}, "狗": {3}, "我家狗": {3}, "ระบบ": {4},
        }  # fmt: skip
        for query, places in asked.items():
            found = await store.search("acme", query, session="one")
            assert {hit.seq for hit in found} == places, query
        found = await store.search("acme", "parse_count", session="one")
        assert [hit.seq for hit in found] == [0, 1]

    async def test_a_search_knows_only_its_scope(self, store: Store) -> None:
        """Neither results, order nor scores change with what is said elsewhere."""
        await store.claim(MINE, "alice")
        await store.append(MINE, rows("a lamp", "a rare lamp", "rare", "lamp oil", "rare oil"))
        before = await store.search("acme", "rare lamp oil", session="one")
        mine = None
        if self.searches_tenants:
            mine = await store.search("acme", "rare lamp oil", owner="alice")
        for name in (THEIRS, Name("acme", "two"), Name("other", "two")):
            await store.append(name, rows(*("rare oil" for _ in range(20)), "long " * 99))
            await store.search(name.tenant, "rare", session=name.session)
        after = await store.search("acme", "rare lamp oil", session="one")
        assert after == before
        if self.searches_tenants:
            assert await store.search("acme", "rare lamp oil", owner="alice") == mine

    async def test_a_search_after_blocks_and_trimming(self, store: Store) -> None:
        """An index that is built in parts, and anew, finds what one built at once finds."""
        other = Name("acme", "two")
        said = [f"lamp {at % 7} {'oil ' * (at % 5)}" for at in range(4_200)]
        await store.append(MINE, rows(*said))
        for lo, hi in ((0, 3), (3, 4_095), (4_095, 4_098), (4_098, 4_200)):
            await store.append(other, rows(*said[lo:hi]))
            await store.search("acme", "lamp", session="two")

        async def find(session: str) -> list[tuple[int, float]]:
            found = await store.search("acme", "oil 3", session=session, limit=4_200)
            return [(hit.seq, hit.score) for hit in found]

        assert await find("two") == await find("one")
        assert len(await find("one")) > 3_360
        await store.trim(MINE, 2_000, keep=[4])
        assert {seq for seq, _ in await find("one") if seq < 2_000} == {4}
        await store.trim(other, 2_000, keep=[4])
        assert await find("two") == await find("one")
