"""G-4: limits that several processes keep together: who passes, who is refused, and until when."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from tallies import count_taken, read_tallies

from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.limiter import CallEstimate, LimitedCaller, Limiter
from foldline.errors import StoreFailed
from foldline.settings.limit_rules import parse_limit_rules
from foldline.stores.base import Draft, Name, Row
from foldline.stores.open_store import store_at

ALICE = LimitedCaller("acme", "alice", "laptop", "claude-opus-4-6")
BOB = LimitedCaller("acme", "bob", "ci", "gpt-5")
PICO = 10**12
NOON = 86_400.0 * 20_000 + 43_200.0


class Clock:
    """A clock that tests move."""

    def __init__(self, now=NOON):
        self.now = now

    def __call__(self):
        """Its time."""
        return self.now


class Broken:
    """A store that can be away, or lose its answers."""

    def __init__(self, store):
        self._store, self.is_away, self.loses = store, False, False
        self.statements = 0

    async def get(self, *args):
        """Read, unless it is away."""
        self.statements += 1
        if self.is_away:
            raise StoreFailed("away")
        return await self._store.get(*args)

    async def put(self, *args, **given):
        """Write, unless it is away."""
        self.statements += 1
        if self.is_away:
            raise StoreFailed("away")
        done = await self._store.put(*args, **given)
        if self.loses:
            raise StoreFailed("whether it was done is not known")
        return done


@asynccontextmanager
async def several(count, *tables, clock=None, **given):
    """Limiters of several processes at one store."""
    store = Broken(store_at(":memory:"))
    rules = parse_limit_rules(tables)
    made = [Limiter(store, rules, clock=clock or Clock(), **given) for _ in range(count)]
    yield store, *made
    await store._store.close()


def estimate(tokens=0, dollars=0.0):
    return CallEstimate(tokens, round(dollars * PICO))


async def make_call(limiter, caller=ALICE, tokens=0, dollars=0.0, took=1.0):
    """A call that takes a share of what it may take; the refusal if it is refused."""
    try:
        admission = await limiter.admit_call(caller, estimate(tokens, dollars))
    except Refusal as refusal:
        return refusal
    limiter.settle_call(admission, tokens=int(tokens * took), pico=round(dollars * took * PICO))
    return admission


async def count_passed(limiters, tries, caller=ALICE, **given):
    """How many of so many calls pass, one after the other at each process in turn."""
    found = [await make_call(limiters[at % len(limiters)], caller, **given) for at in range(tries)]
    return sum(not isinstance(one, Refusal) for one in found)


@pytest.mark.parametrize("processes", [1, 2, 8])
def test_exactly_as_many_requests_pass_as_the_limit_says(processes):
    async def check():
        async with several(processes, {"owner": "*", "requests_per_minute": 40}) as (_, *limiters):
            assert await count_passed(limiters, 100) == 40
            assert await count_passed(limiters, 50, BOB) == 40  # each owner has a limit of its own

    asyncio.run(check())


def test_a_new_minute_begins_anew():
    async def check():
        clock = Clock()
        async with several(2, {"owner": "*", "requests_per_minute": 5}, clock=clock) as (_, *all_):
            assert await count_passed(all_, 20) == 5
            clock.now += 20
            refused = [await make_call(all_[0]) for _ in range(40)]
            # Until the minute is over; clients come back spread over three seconds.
            assert {one.retry for one in refused} == {40, 41, 42}
            clock.now += 40
            assert await count_passed(all_, 20) == 5

    asyncio.run(check())


def test_tokens_are_reserved_first_and_settled_by_what_was_counted():
    async def check():
        clock = Clock()
        table = {"tenant": "acme", "tokens_per_minute": 10_000}
        async with several(3, table, clock=clock) as (_, *all_):
            for one in all_:
                one.start_trading()
            passed = 0
            for at in range(100):
                passed += await count_passed([all_[at % 3]], 1, tokens=2_000, took=0.1)
                await asyncio.sleep(0.005)  # what is idle is given back meanwhile
                clock.now += 0.4
            # Each may take 2,000 and takes 200: fifty would fit, less what the last may take.
            assert 34 <= passed <= 50
            for one in all_:
                await one.end_trading()

    asyncio.run(check())


def test_dollars_of_a_day_are_spent_until_midnight_and_no_sdk_should_wait_for_that():
    async def check():
        clock = Clock()
        async with several(2, {"owner": "alice", "dollars_per_day": 2}, clock=clock) as (_, *all_):
            # A part of one call may be idle at each.
            assert 19 <= await count_passed(all_, 40, dollars=0.1) <= 20
            clock.now += 4
            for one in all_:  # tells the others what was used
                one._look_around()
            await asyncio.sleep(0.05)
            refused = await make_call(all_[0], dollars=0.2)
            assert (refused.status, refused.code, refused.retry) == (429, "limit_spent", 43_196)
            assert (b"x-should-retry", b"false") in refused.headers
            assert "2.00 dollars per day of tenant acme, owner alice" in refused.message
            assert not isinstance(await make_call(all_[0], BOB, dollars=0.1), Refusal)

    asyncio.run(check())


def test_calls_under_way_are_limited_and_their_places_come_back():
    async def check():
        async with several(2, {"key": "*", "concurrent_calls": 3}) as (_, one, other):
            held = [await one.admit_call(ALICE, estimate()) for _ in range(2)]
            held.append(await other.admit_call(ALICE, estimate()))
            for limiter in (one, other):
                with pytest.raises(Refusal) as refused:
                    await limiter.admit_call(ALICE, estimate())
                assert refused.value.retry == 1
            one.start_trading()
            one.settle_call(held.pop(0), tokens=0, pico=0)
            while True:  # until the place is given back
                other._full.clear()
                try:
                    held.append(await other.admit_call(ALICE, estimate()))
                    break
                except Refusal:
                    await asyncio.sleep(0.01)
            await one.end_trading()

    asyncio.run(check())


def test_the_rule_that_fits_best_sets_a_limit_and_others_hold_beside_it():
    async def check():
        tables = (
            {"owner": "*", "requests_per_minute": 3},
            {"owner": "alice", "requests_per_minute": 6},
            {"owner": "ci-*", "requests_per_minute": "unlimited"},
            {"tenant": "acme", "requests_per_minute": 20},
        )
        async with several(1, *tables) as (_, one):
            assert await count_passed([one], 30, BOB) == 3
            assert await count_passed([one], 30, ALICE) == 6
            assert await count_passed([one], 30, ALICE._replace(owner="ci-1")) == 11

    asyncio.run(check())


def test_models_of_a_pattern_are_counted_together_and_a_star_is_each():
    async def check():
        tables = (
            {"model": "claude-opus-*", "owner": "*", "requests_per_minute": 4},
            {"model": "*", "requests_per_minute": 9},
        )
        async with several(1, *tables) as (_, one):
            assert await count_passed([one], 3, ALICE) == 3
            assert await count_passed([one], 9, ALICE._replace(model="claude-opus-5")) == 1
            assert await count_passed([one], 20, BOB) == 9

    asyncio.run(check())


def test_a_warning_comes_before_the_limit():
    async def check():
        async with several(1, {"owner": "*", "dollars_per_day": 1, "soft": 0.8}) as (_, one):
            found = [await make_call(one, dollars=0.1) for _ in range(10)]
            assert [bool(each.warnings) for each in found] == [False] * 7 + [True] * 3
            ((name, value),) = found[7].encode_headers()
            assert name == b"x-foldline-limit"
            assert value == b"dollars_per_day; tenant acme, owner alice; used=0.80; limit=1.00; share=0.80"  # fmt: skip

    asyncio.run(check())


def test_other_limits_hold_at_once_and_what_was_used_counts():
    async def check():
        async with several(1, {"owner": "*", "dollars_per_day": 1}) as (_, one):
            assert await count_passed([one], 20, dollars=0.1) == 10
            one.set_rules(parse_limit_rules([{"owner": "*", "dollars_per_day": 1.5}]))
            assert await count_passed([one], 20, dollars=0.1) == 5
            one.set_rules(())
            assert await count_passed([one], 20, dollars=0.1) == 20

    asyncio.run(check())


def test_far_from_a_limit_calls_cost_hardly_any_statement():
    async def check():
        clock = Clock(NOON + 1)
        table = {"owner": "*", "requests_per_minute": 10_000, "dollars_per_day": 1_000}
        async with several(1, table, clock=clock) as (store, one):
            for _ in range(1_000):
                assert not isinstance(await make_call(one, dollars=0.1, took=0.3), Refusal)
                clock.now += 0.05
            assert store.statements < 60

    asyncio.run(check())


def test_a_killed_process_forgets_nothing_and_its_lease_counts_as_spent():
    async def check():
        clock = Clock()
        async with several(2, {"owner": "*", "dollars_per_day": 10}, clock=clock) as (
            store,
            dead,
            one,
        ):
            assert await count_passed([dead], 20, dollars=0.2) == 20
            held = dead.bind_limits(ALICE)[0].counter.parts["dollars_per_day"].held
            clock.now += 1_000  # its lease has expired
            passed = await count_passed([one], 100, dollars=0.2)
            spent = (await read_tallies(store, "acme", "tenant acme, owner alice"))[
                "dollars_per_day"
            ]
            assert count_taken(spent) <= 10 * PICO
            assert 4.0 + passed * 0.2 <= 10.0 < 4.0 + passed * 0.2 + held / PICO + 0.2

    asyncio.run(check())


@pytest.mark.parametrize("passes", [False, True])
def test_while_the_store_is_away_known_allowances_last_and_then_the_tenant_decides(passes):
    async def check():
        clock, table = Clock(), {"owner": "*", "requests_per_minute": 100}
        async with several(1, table, clock=clock, passes_faults=lambda _: passes) as (store, one):
            assert await count_passed([one], 60) == 60
            left = one.bind_limits(ALICE)[0].counter.parts["requests_per_minute"].find_idle()
            store.is_away = True
            assert await count_passed([one], 60) == (60 if passes else left)
            clock.now += 60  # as much as it had in the minute before
            assert await count_passed([one], 100) == (100 if passes else 60 + left)
            refused = await make_call(one)
            if not passes:
                assert (refused.status, refused.code) == (503, "limits_away")
            store.is_away = False
            clock.now += 60
            assert await count_passed([one], 200) == 100

    asyncio.run(check())


def test_an_answer_of_the_store_that_is_lost_counts_nothing_twice():
    async def check():
        async with several(1, {"owner": "*", "dollars_per_day": 10}) as (store, one):
            for at in range(200):
                store.loses = at % 3 == 0
                await make_call(one, dollars=0.2)
            store.loses = False
            await one.end_trading()
            spent = (await read_tallies(store, "acme", "tenant acme, owner alice"))[
                "dollars_per_day"
            ]
            assert spent.spent <= 10 * PICO
            assert spent.spent % (PICO // 5) == 0

    asyncio.run(check())


def test_who_has_stored_too_much_is_refused_until_it_is_less():
    async def check():
        clock = Clock()
        tables = (
            {"tenant": "acme", "owner": "*", "stored_bytes": 1_000, "soft": 0.5},
            {"tenant": "acme", "stored_bytes": 1_000_000},
        )
        async with several(2, *tables, clock=clock) as (store, one, other):
            inner = store._store
            store.sessions = inner.sessions
            await inner.claim(Name("acme", "long"), "alice")
            rows = [Row("user", b"x" * 600)]
            await inner.append(Name("acme", "long"), Draft(rows))
            for limiter in (one, other):  # the first call begins to measure
                assert not isinstance(await make_call(limiter), Refusal)
                await asyncio.gather(*limiter._sizes._tasks.values())
            warned = await make_call(one)
            assert warned.warnings == ["stored_bytes; tenant acme, owner alice; used=600; limit=1000; share=0.60"]  # fmt: skip
            await inner.append(Name("acme", "long"), Draft(rows))
            clock.now += 61
            await make_call(one)
            await asyncio.gather(*one._sizes._tasks.values())
            refused = await make_call(one)
            assert (refused.status, refused.code) == (429, "limit_spent")
            assert "may store 1,000" in refused.message
            assert not isinstance(await make_call(one, BOB), Refusal)
            await inner.erase(Name("acme", "long"))
            for _ in range(2):
                clock.now += 61
                await make_call(one)
                await asyncio.gather(*one._sizes._tasks.values())
            assert not isinstance(await make_call(one), Refusal)

    asyncio.run(check())


def test_far_from_a_limit_no_call_is_refused_however_many_come_at_once():
    async def check():
        table = {"owner": "*", "requests_per_minute": 1_000_000, "tokens_per_minute": 10**12}
        async with several(2, table) as (_, *all_):
            for _ in range(5):
                calls = [make_call(one, tokens=40_000, took=0.1) for one in all_ for _ in range(50)]
                assert not any(isinstance(one, Refusal) for one in await asyncio.gather(*calls))

    asyncio.run(check())


def test_as_many_pass_as_the_limit_says_if_all_come_at_once():
    async def check():
        async with several(4, {"owner": "*", "requests_per_minute": 100}) as (_, *all_):
            found = await asyncio.gather(*(make_call(one) for one in all_ for _ in range(60)))
            passed = sum(not isinstance(one, Refusal) for one in found)
            assert 85 <= passed <= 100

    asyncio.run(check())
