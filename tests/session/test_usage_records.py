"""Usage: summed in memory, written in batches, merged over processes, erased with its days."""

import asyncio
import os
from contextlib import asynccontextmanager
from random import Random

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import a_schema, address_of

from foldline.errors import StoreFailed
from foldline.session import usage_records
from foldline.session.usage_records import (
    UsageGroup,
    UsageRecorder,
    UsageSums,
    group_usage,
    list_tenants,
    merge_day,
    read_usage,
    tidy_usage,
)
from foldline.stores.encryption import CryptStore
from foldline.stores.open_store import store_at
from foldline.stores.sqlite import SqliteStore

pytestmark = pytest.mark.anyio
DAY, HOUR = 86_400, 3_600
NOW = 20_000 * DAY + 15 * HOUR
ALICE, BOB = UsageGroup("alice", "laptop", "m"), UsageGroup("bob", "ci", "m")


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Clock:
    """A clock that stands until it is set."""

    def __init__(self):
        self.now = float(NOW)

    def __call__(self):
        """Its time."""
        return self.now


class Unreliable:
    """A store whose writes fail now and then, with or without an effect, and that counts statements."""

    def __init__(self, inner, random=None):
        self.inner, self.random, self.statements = inner, random, 0

    async def get(self, *given):
        """Read."""
        self.statements += 1
        return await self.inner.get(*given)

    async def put(self, *given, **more):
        """Write, or fail."""
        self.statements += 1
        chance = self.random.random() if self.random else 1.0
        if chance < 0.1:
            raise StoreFailed("not written")
        done = await self.inner.put(*given, **more)
        if chance < 0.2:
            raise StoreFailed("written, and nobody knows")
        return done


def took(calls=1, pico=1, **more):
    return UsageSums(calls=calls, pico=pico, **more)


async def summed(store, tenant="acme", clock=NOW):
    rows = await read_usage(store, tenant, since=clock - 30 * DAY, until=clock + 30 * DAY)
    (total,) = group_usage(rows, ()) or [None]
    return total.sums if total else UsageSums()


@asynccontextmanager
async def opened(store=None):
    store = store or SqliteStore(":memory:")
    try:
        yield store
    finally:
        await store.close()


async def test_sums_of_all_processes_by_what_is_asked():
    async with opened() as store:
        clock = Clock()
        one, two = (UsageRecorder(store, clock=clock) for _ in range(2))
        one.add("acme", ALICE, took(pico=5, input=100, errors={"cut": 1}))
        two.add("acme", ALICE, took(pico=7, input=10, errors={"cut": 1, "gone": 1}))
        two.add("acme", BOB, took(pico=1))
        clock.now += HOUR
        one.add("acme", BOB, took(pico=2))
        one.add("other", BOB, took(pico=100))
        await one.flush()
        await two.flush()
        rows = await read_usage(store, "acme", since=NOW, until=clock.now + 1)
        by_owner = group_usage(rows, ("owner",))
        assert [(one.values, one.sums.pico) for one in by_owner] == [(("alice",), 12), (("bob",), 3)]  # fmt: skip
        assert by_owner[0].sums.errors == {"cut": 2, "gone": 1}
        assert by_owner[0].sums.input == 110
        hours = group_usage(rows, ("hour", "owner"))
        assert [one.values for one in hours] == [
            ("2024-10-04T15:00Z", "alice"),
            ("2024-10-04T15:00Z", "bob"),
            ("2024-10-04T16:00Z", "bob"),
        ]
        later = await read_usage(store, "acme", since=NOW + HOUR, until=clock.now + 1)
        assert [row.sums.pico for row in later] == [2]
        assert await list_tenants(store) == ["acme", "other"]


async def test_a_flush_is_one_statement_and_none_without_calls():
    async with opened() as inner:
        store = Unreliable(inner)
        recorder = UsageRecorder(store, clock=Clock())
        recorder.add("acme", ALICE, took())
        await recorder.flush()
        store.statements = 0
        for _ in range(500):
            recorder.add("acme", ALICE, took())
        assert store.statements == 0
        await recorder.flush()
        assert store.statements == 1
        await recorder.flush()
        assert store.statements == 1
        assert (await summed(store)).calls == 501


async def test_large_segments_are_left_and_merged(monkeypatch):
    monkeypatch.setattr(usage_records, "_FULL", 300)
    monkeypatch.setattr(usage_records, "_CLOSED", 4)
    monkeypatch.setattr(usage_records, "_CHUNK", 25)
    async with opened() as inner:
        store = Unreliable(inner)
        recorder = UsageRecorder(store, clock=Clock())
        for number in range(200):
            recorder.add("acme", UsageGroup(os.urandom(8).hex()), took(calls=number))
            await recorder.flush()
        day, _ = await usage_records._read_day(store, "acme", NOW // DAY)
        assert any(one.name.startswith("merged.") for one in day.segments)
        assert sum(one.is_full for one in day.segments) <= 4
        assert (await summed(store)).calls == sum(range(200))
        rows = await read_usage(store, "acme", since=NOW, until=NOW + HOUR)
        assert len(rows) == 200


async def test_a_store_that_is_away_loses_nothing(caplog):
    async with opened() as store:
        recorder = UsageRecorder(store, clock=(clock := Clock()))
        away = usage_records.UsageRecorder(Unreliable(store, Fixed(0.05)), clock=clock)
        for one in (recorder, away):
            one.add("acme", ALICE, took())
            await one.flush()
        assert (await summed(store)).calls == 1
        assert caplog.text.count("usage is not written now") == 1
        clock.now += 2 * DAY  # long enough for its day to be merged by others
        await tidy_usage(store, "acme", keep_days=100, now=clock.now)
        away.add("acme", ALICE, took())
        away._store = store
        await away.flush()
        assert (await summed(store, clock=clock.now)).calls == 3


class Fixed:
    """A chance that is always the same."""

    def __init__(self, chance):
        self._chance = chance

    def random(self):
        """The chance."""
        return self._chance


async def test_a_day_that_was_merged_meanwhile_is_not_counted_twice():
    async with opened() as store:
        recorder = UsageRecorder(store, clock=(clock := Clock()))
        recorder.add("acme", ALICE, took())
        await recorder.flush()
        recorder.add("acme", ALICE, took())  # not written yet
        other = UsageRecorder(store, clock=clock)
        other.add("acme", BOB, took())
        await other.flush()
        clock.now += DAY
        await tidy_usage(store, "acme", keep_days=100, now=clock.now)
        day, _ = await usage_records._read_day(store, "acme", NOW // DAY)
        assert [one.name.partition(".")[0] for one in day.segments] == ["merged"]
        await recorder.flush()
        assert (await summed(store)).calls == 3


async def test_old_days_are_erased_and_leave_nothing(tmp_path):
    store = SqliteStore(str(tmp_path / "s.db"))
    async with opened(store):
        clock = Clock()
        recorder = UsageRecorder(store, clock=clock, keep_days=3)
        for _ in range(6):
            recorder.add("acme", ALICE, took())
            await recorder.flush()
            await tidy_usage(store, "acme", keep_days=3, now=clock.now)
            clock.now += DAY
        await tidy_usage(store, "acme", keep_days=3, now=clock.now)
        rows = await read_usage(store, "acme", since=NOW - DAY, until=clock.now)
        assert [row.read_dimension("day") for row in rows] == ["2024-10-07", "2024-10-08", "2024-10-09"]  # fmt: skip
    db = apsw.Connection(str(tmp_path / "s.db"))
    ((left,),) = db.execute("select count(*) from side where space = 'usage'")
    assert left == 3 * 2 + 2  # three days and their segments; the tenants, and what is kept


async def test_encrypted_usage_shows_no_owner(tmp_path):
    inner = SqliteStore(str(tmp_path / "s.db"))
    store = CryptStore(inner, b"k" * 32)
    recorder = UsageRecorder(store, clock=Clock())
    recorder.add("acme", UsageGroup("alice-the-canary"), took())
    await recorder.flush()
    assert (await summed(store)).calls == 1
    await store.close()
    assert b"alice-the-canary" not in b"".join(one.read_bytes() for one in tmp_path.iterdir())


@given(st.integers(0, 2**32))
def test_nothing_is_lost_or_counted_twice(seed):
    """Four processes on a store that fails, with merges at any time; one is killed."""

    async def run():
        random = Random(seed)
        async with opened() as inner:
            clock = Clock()
            clock.now = NOW // DAY * DAY + DAY - 300
            stores = [Unreliable(inner, Random(random.random())) for _ in range(4)]
            recorders = [UsageRecorder(one, clock=clock) for one in stores]
            added = 0
            for _ in range(60):
                step = random.randrange(8)
                recorder = random.choice(recorders)
                if step < 4:
                    recorder.add("acme", random.choice([ALICE, BOB]), took())
                    added += 1
                elif step < 6:
                    await recorder.flush()
                elif step == 6:
                    clock.now += random.choice([1, 60, 600])
                else:
                    today = int(clock.now) // DAY
                    await merge_day(inner, "acme", today, is_over=False)
                    await tidy_usage(inner, "acme", keep_days=9, now=clock.now)
            for recorder in recorders:
                recorder._store = inner
                await recorder.flush()
            assert (await summed(inner)).calls == added

    small = pytest.MonkeyPatch()
    small.setattr(usage_records, "_FULL", 150)
    small.setattr(usage_records, "_CLOSED", 3)
    with small.context():
        asyncio.run(run())
    small.undo()


@pytest.mark.real
async def test_processes_on_postgres():
    with a_schema() as schema:
        stores = [store_at(address_of(schema)) for _ in range(3)]
        recorders = [UsageRecorder(one, clock=Clock()) for one in stores]
        for number in range(9):
            recorders[number % 3].add("acme", UsageGroup(f"o{number % 5}"), took(pico=2**58))
            await asyncio.gather(*(one.flush() for one in recorders))
        await merge_day(stores[0], "acme", NOW // DAY, is_over=True)
        total = await summed(stores[1])
        assert (total.calls, total.pico) == (9, 9 * 2**58)
        for one in stores:
            await one.close()
