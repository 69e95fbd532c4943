"""A side value that many processes change loses no change."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from foldline.errors import StoreFailed
from foldline.stores import side_values
from foldline.stores.base import Name
from foldline.stores.open_store import store_at
from foldline.stores.side_values import change_value

PLACE = Name("acme", ""), "n", "k"


@asynccontextmanager
async def opened(place):
    """A store that is closed again."""
    store = store_at(place)
    try:
        yield store
    finally:
        await store.close()


def count_up(value):
    """One more."""
    return b"%d" % (int(value or 0) + 1)


def test_no_change_is_lost(tmp_path):
    """Two stores at one file, as two processes have them, with a hundred changes at once."""

    async def change_all():
        async with opened(tmp_path / "s.db") as one, opened(tmp_path / "s.db") as two:
            stores = (one, two) * 50
            done = await asyncio.gather(*(change_value(at, *PLACE, count_up) for at in stores))
            return done, await one.get(*PLACE)

    done, entry = asyncio.run(change_all())
    assert entry.value == b"100"
    assert set(done) == {True}


def test_what_is_not_changed_is_not_written():
    """Also where there is nothing; None removes."""

    async def change_some():
        async with opened(":memory:") as store:
            assert not await change_value(store, *PLACE, lambda value: value)
            assert await store.get(*PLACE) is None
            assert await change_value(store, *PLACE, count_up)
            version = (await store.get(*PLACE)).version
            assert not await change_value(store, *PLACE, lambda value: value)
            assert (await store.get(*PLACE)).version == version
            assert await change_value(store, *PLACE, lambda _: None)
            assert await store.get(*PLACE) is None

    asyncio.run(change_some())


def test_one_that_never_wins_says_so(monkeypatch):
    """Somebody else is faster every time."""
    monkeypatch.setattr(side_values, "_PAUSE", 0)

    async def lose():
        async with opened(":memory:") as store:

            async def put(*_, **__):
                return False

            store.put = put
            await change_value(store, *PLACE, count_up)

    with pytest.raises(StoreFailed, match="n/k of 'acme' is written by too many at once"):
        asyncio.run(lose())
