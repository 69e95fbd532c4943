"""Sessions that last and sessions that go: what every store does with forks, floors, erasure.

One half of the stores' suite, and what both halves share; `foldline.testing.stores` has all of it.
Knows the store's promises and nothing of how they are kept. Each test names its requirement.
"""

import asyncio
import hashlib
from random import Random

import pytest

from foldline.core.log import UserSaid
from foldline.core.parts import Media, Text
from foldline.core.spine import Range
from foldline.errors import BadInput, Conflict, Erased, Unsupported
from foldline.stores import event_log
from foldline.stores.base import Draft, Found, Name, Retention, Row, Store
from foldline.testing.play import play, steps

MINE, THEIRS = Name("acme", "one"), Name("other", "one")


def rows(*bodies: str, edit: bool = False) -> Draft:
    """Rows that say what they are given."""
    return Draft([Row("user_said", body_of(one), edit) for one in bodies])


def body_of(words: str) -> bytes:
    """The bytes of such a row."""
    return event_log.build_draft([UserSaid((Text(words),))]).rows[0].body


async def whole(store: Store, name: Name) -> list[bytes]:
    """All rows of a session."""
    head = await store.head(name)
    return [row.body for row in await store.read(name, [(0, head.seq)])]


@pytest.mark.anyio
class Lasting:
    """What is asked of forks, retention and erasure."""

    searches_tenants = True
    """Whether a search may leave out the session; False: it raises `Unsupported` then."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        """Stores are asyncio's."""
        return "asyncio"

    async def search_all(self, store: Store, tenant: str, words: str) -> list[Found]:
        """A search over all sessions, the newest session first where each is asked alone."""
        if self.searches_tenants:
            return await store.search(tenant, words)
        with pytest.raises(Unsupported):
            await store.search(tenant, words)
        listed = sorted(await store.sessions(tenant), key=lambda one: -one.opened)
        found = [await store.search(tenant, words, session=one.session) for one in listed]
        return [hit for hits in found for hit in hits]

    # Forks.

    async def test_a_fork_shares_what_was_before(self, store: Store) -> None:
        """The tail is copied, the rest is read from the ancestor; both go on alone."""
        talk = play(steps(Random(11), 300))
        await event_log.append_events(store, MINE, talk.events, after=-1)
        at = len(talk.events) * 2 // 3
        before = await event_log.read_tail(store, MINE, at=at)
        await event_log.fork_log(store, MINE, "fork", at=at)
        new = Name("acme", "fork")
        assert await event_log.read_tail(store, new) == before
        assert [
            event for _, event in await event_log.read_events(store, new, Range(0, at + 5))
        ] == (talk.events[: at + 1])
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

    async def test_a_fork_has_the_edits_of_its_ancestors(self, store: Store) -> None:
        """Also those that were not copied for it: before the fork a view is as it was."""
        for at in range(40):
            await store.append(MINE, rows(f"{at}", edit=at in (10, 20, 30)))
        await store.fork(MINE, "child", at=35, keep=[(10, 10), (30, 35)])
        child, grandchild = Name("acme", "child"), Name("acme", "grandchild")
        await store.append(child, rows("own", edit=True))
        await store.fork(child, "grandchild", at=36, keep=[(36, 36)])
        places = ((5, None), (15, 10), (25, 20), (32, 30), (35, 30), (36, 36), (None, 36))
        for one in (child, grandchild):
            for at, edit in places:
                found = (await store.head(one, at=at)).edit
                assert (found.seq if found else None) == edit, (one.session, at)

    async def test_a_fork_sees_no_edit_behind_it(self, store: Store) -> None:
        """What its ancestor edits later is not its own."""
        for at in range(12):
            await store.append(MINE, rows(f"{at}", edit=at in (2, 9)))
        await store.fork(MINE, "child", at=6, keep=[(2, 6)])
        child = Name("acme", "child")
        await store.append(child, rows(*"abcdef"))
        for at in (None, 11, 9, 7, 6, 4):
            found = (await store.head(child, at=at)).edit
            assert (found.seq if found else None) == 2, at

    async def test_a_fork_outlives_its_ancestors(self, store: Store) -> None:
        """What was copied stays, with its pictures; what only the ancestor had is gone."""
        said = [UserSaid((Media("image", base64=f"A{at}" * 20_000),)) for at in range(4)]
        await event_log.append_events(store, MINE, said)
        await store.fork(MINE, "two", at=3, keep=[(2, 3)])
        await store.fork(Name("acme", "two"), "three", at=3, keep=[(2, 3)])
        await store.erase(MINE)
        await store.erase(Name("acme", "two"))
        three = Name("acme", "three")
        assert [
            event for _, event in await event_log.read_events(store, three, Range(0, 3))
        ] == said[2:]

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
        """By count, size, age, the least lately changed first; never what is held."""
        names = [f"s{at}" for at in range(6)]
        for name in names:
            await store.append(Name("acme", name), rows("x" * 100))
            await asyncio.sleep(0.002)
        await store.append(THEIRS, rows("x" * 100))  # counts for nobody else
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
        """Originals, index and side entries go; late writes are refused; with a receipt."""
        picture = Media("image", base64="secret" * 9_000)
        await event_log.append_events(store, MINE, [UserSaid((Text("canary"), picture))])
        await store.put(MINE, "prepared", "k", b"canary")
        assert len(await self.search_all(store, "acme", "canary")) == 1
        receipt = await store.erase(MINE)
        assert (receipt.sessions, receipt.events) == (("one",), 1)
        assert receipt.size > 0
        assert await whole(store, MINE) == []
        assert await self.search_all(store, "acme", "canary") == []
        assert await store.search("acme", "canary", session="one") == []
        assert await store.get(MINE, "prepared", "k") is None
        assert await store.sessions("acme") == []
        name = hashlib.sha256(picture.base64.encode()).hexdigest()
        assert await store.blobs(MINE, [name]) == {}
        with pytest.raises(Erased, match="erased on"):
            await store.append(MINE, rows("late"))
        with pytest.raises(Erased):
            await store.put(MINE, "prepared", "k", b"a late fold")
        with pytest.raises(Erased):
            await store.lease(MINE, "a", seconds=9)
        await store.append(Name("acme", "two"), rows("two"))
        with pytest.raises(Erased):
            await store.fork(Name("acme", "two"), "one", at=0, keep=[])
        assert (await store.erase(MINE)).events == 0
        await store.append(THEIRS, rows("fine"))

    async def test_erasure_of_what_has_no_log_yet(self, store: Store) -> None:
        """Side values alone are a session too; the tenant's own are none."""
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
        await event_log.append_events(store, MINE, said)
        await event_log.append_events(store, other, said)
        await store.erase(MINE)
        assert [
            event for _, event in await event_log.read_events(store, other, Range(0, 0))
        ] == said
