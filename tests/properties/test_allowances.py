"""The arithmetic of shared limits: windows, leases and settlement, with processes that die, stall and lose answers."""

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from mutants import broken
from tallies import count_taken

from foldline.apps.gateway.allowances import (
    MEASURES,
    Allowance,
    Part,
    Tally,
    find_window_end,
    make_trade,
    number_window,
)

MODULE = "foldline.apps.gateway.allowances"
LIMIT = 1_000
DAY = MEASURES["dollars_per_day"]
BEGIN = 86_400.0 * 20_000


@dataclass
class Process:
    """One of several, with its part and the calls that it makes."""

    name: str
    part: Part
    calls: list[int] = field(default_factory=list)
    """What is reserved for each."""
    flight: tuple | None = None
    """A trade that is on its way to the store: what it was made from, the tally, the trade."""
    dead: bool = False


@dataclass
class World:
    """Processes that share one tally, and what their calls have really taken."""

    measure: object = DAY
    now: float = BEGIN
    tally: Tally = field(default_factory=lambda: Tally(number_window("day", BEGIN)))
    processes: list[Process] = field(default_factory=list)
    took: int = 0
    """By calls that are over."""
    died_with: int = 0
    """What the leases of dead processes held when these died."""
    dead_took: int = 0

    def add(self):
        """One more process."""
        name = f"p{len(self.processes)}"
        self.processes.append(Process(name, Part(number_window(self.measure.window, self.now))))

    def begin(self, process, *, wanted=0, ending=False):
        """Send a trade to the store; one is under way at a time."""
        part = process.part
        part.waiting += wanted
        tally, trade = make_trade(
            self.tally, part, process.name, measure=self.measure, limit=LIMIT, now=self.now, ending=ending
        )  # fmt: skip
        part.waiting -= wanted
        part.sent = trade
        process.flight = self.tally, tally, trade

    def arrive(self, process, outcome):
        """The trade arrives: written, unless another was first, or it gets lost; its answer may, too."""
        (seen, tally, trade), process.flight = process.flight, None
        written = seen is self.tally and outcome.startswith("written")
        if written:
            self.tally = msgspec.msgpack.decode(msgspec.msgpack.encode(tally), type=Tally)
        if outcome.endswith("unheard"):
            return
        process.part.sent = None
        if written:
            process.part.confirm_trade(trade)

    def trade(self, process, *, wanted=0, outcome="written", ending=False):
        """Trade at once."""
        if process.flight is None:
            self.begin(process, wanted=wanted, ending=ending)
        self.arrive(process, outcome)

    def call(self, process, need):
        """A call that needs so much: it is made if it may be, without asking or after it."""
        if process.part.find_left(self.now) < need and process.flight is None:
            self.trade(process, wanted=need)
        if process.part.find_left(self.now) < need:
            return False
        process.part.reserve_need(need)
        process.calls.append(need)
        return True

    def end(self, process, share):
        """The newest call is over, and took a share of what was reserved."""
        need = process.calls.pop()
        took = int(need * share)
        process.part.settle_need(need, took)
        self.took += took

    def kill(self, process):
        """End a process; each of its calls may have taken all that was reserved."""
        process.dead = True
        self.died_with += process.part.held
        self.dead_took += sum(process.calls)

    @property
    def under_way(self):
        """What calls under way may take."""
        return sum(sum(one.calls) for one in self.processes if not one.dead)

    @property
    def used(self):
        """What all calls took, or may take."""
        return self.took + self.dead_took + self.under_way


OUTCOMES = ("written", "refused", "written unheard", "not written, unheard")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.integers(0, 3), st.integers(1, 300)),
        st.tuples(st.just("call"), st.integers(0, 3), st.integers(1, 9)),
        st.tuples(st.just("end"), st.integers(0, 3), st.floats(0, 1)),
        st.tuples(st.just("begin"), st.integers(0, 3), st.integers(0, 99)),
        st.tuples(st.just("trade"), st.integers(0, 3), st.sampled_from(OUTCOMES)),
        st.tuples(st.just("wait"), st.integers(0, 0), st.sampled_from((0.01, 1.0, 30.0, 1_000.0))),
        st.tuples(st.just("kill"), st.integers(0, 3), st.none()),
    ),
    max_size=60,
)  # fmt: skip


def play(steps, *, deaths=True, check=True):
    """Let four processes do some steps; what they used never exceeds the limit."""
    world = World()
    for _ in range(4):
        world.add()
    for what, at, detail in steps:
        process = world.processes[at]
        if what == "wait":
            if world.now + detail < find_window_end("day", world.tally.window):
                world.now += detail
        elif process.dead:
            continue
        elif what == "call":
            world.call(process, detail)
        elif what == "end" and process.calls:
            world.end(process, detail)
        elif what == "begin" and process.flight is None:
            world.begin(process, wanted=detail, ending=detail % 2 == 0)
        elif what == "trade":
            world.trade(process, outcome=detail)
        elif what == "kill" and deaths:
            world.kill(process)
        if check:
            assert world.used <= LIMIT, (what, world)
            assert count_taken(world.tally) <= LIMIT, (what, world)
    return world


def finish(world):
    """End all calls and all leases."""
    for process in world.processes:
        while not process.dead and process.calls:
            world.end(process, 0.5)
    for process in world.processes:
        for _ in range(0 if process.dead else 2):  # the first may have been under way for long
            world.trade(process, ending=True)
    world.now += 1_000.0
    world.add()
    world.trade(world.processes[-1], ending=True)
    for process in world.processes:
        if not process.dead:
            world.trade(process, ending=True)
    return world


@given(STEPS)
def test_all_processes_together_never_use_more_than_the_limit(steps):
    play(steps)


@given(STEPS)
def test_nothing_that_was_spent_is_forgotten_and_a_death_costs_at_most_its_lease(steps):
    world = finish(play(steps))
    spent = world.tally.spent
    assert sum(one.held for one in world.tally.leases.values()) == 0
    assert world.took + world.dead_took <= spent
    assert spent <= world.took + world.died_with + sum(p.part.used for p in world.processes if p.dead) + world.dead_took  # fmt: skip


@given(STEPS)
def test_without_deaths_the_count_is_exact(steps):
    world = finish(play(steps, deaths=False))
    assert world.tally.spent == world.took


@given(st.lists(st.integers(1, 20), min_size=1, max_size=200), st.integers(1, 4))
def test_calls_are_refused_only_when_little_is_left(needs, processes):
    """A call that fits into what is neither used nor leased is never refused, and little is leased in vain."""
    world = World()
    for _ in range(processes):
        world.add()
    for at, need in enumerate(needs):
        process = world.processes[at % processes]
        others = sum(one.part.find_idle() for one in world.processes if one is not process)
        if not world.call(process, need):
            assert world.used + need + others > LIMIT
            idle = sum(one.part.find_idle() for one in world.processes)
            assert idle <= LIMIT // 4, world
            return
        world.end(process, 1.0)
        world.now += 0.05


BACK = (st.integers(1, LIMIT), st.integers(1, LIMIT), st.sampled_from(OUTCOMES))


@given(*BACK)
def test_what_is_on_its_way_back_is_used_by_nobody(held, need, outcome):
    world = World()
    for _ in range(2):
        world.add()
    one, other = world.processes
    world.trade(one, wanted=held)
    world.begin(one, ending=True)
    world.call(one, need)  # while the store has not answered
    world.arrive(one, outcome)
    while world.call(other, 10) or world.call(other, 1):
        pass
    assert world.used <= LIMIT


@given(st.integers(0, 4_102_444_800), st.sampled_from(("minute", "day", "month")))
def test_windows_follow_each_other(now, kind):
    number = number_window(kind, now)
    end = find_window_end(kind, number)
    assert find_window_end(kind, number - 1) <= now < end
    assert number_window(kind, end) == number + 1
    assert number_window(kind, end - 0.001) == number


def test_a_tally_of_an_earlier_window_begins_anew():
    minute = MEASURES["tokens_per_minute"]
    old = Tally(7, 990, {"a": _lease(10)})
    part = Part(8, waiting=600)
    tally, trade = make_trade(old, part, "b", measure=minute, limit=LIMIT, now=485.0)
    assert (tally.window, tally.spent, trade.free) == (8, 0, LIMIT)


def test_places_of_a_dead_process_come_back_and_count_as_nothing():
    calls = MEASURES["concurrent_calls"]
    old = Tally(0, 0, {"dead": _lease(5, until=100.0)})
    for now, held in ((99.0, 0), (101.0, 5)):
        tally, trade = make_trade(old, Part(0, waiting=5), "b", measure=calls, limit=5, now=now)
        assert (tally.spent, trade.held) == (0, held)


def test_a_lease_that_has_expired_is_not_used():
    """Others have its places by then."""
    part = Part(0, waiting=3)
    _, trade = make_trade(
        Tally(), part, "a", measure=MEASURES["concurrent_calls"], limit=5, now=0.0
    )
    part.waiting = 0
    part.confirm_trade(trade)
    assert [part.find_left(now) for now in (0.0, 59.9, 60.0)] == [3, 3, 0]


def _lease(held, until=1e12):
    return Allowance(held, until, 1)


MUTANTS = (
    # what is leased to others is free, too
    ("free = limit - spent - sum(one.held for one in leases.values())", "free = limit - spent", "over"),
    # more is taken than is free
    ("held = max(min(needed + more, free), part.reserved, 0)", "held = max(needed + more, 0)", "over"),
    # a lease that ended is forgotten
    ("            spent += tally.leases[name].held\n", "            pass\n", "lost"),
    # and one of a process that comes back is counted twice
    ("(counted.held if counted is not None else 0), 0)", "0, 0)", "exact"),
    # a trade whose answer was lost is made twice
    ("        part.confirm_trade(sent)\n", "        pass\n", "exact"),
    # what is given back is used while the store has not answered
    ("            held = min(held, self.sent.held + self.sent.used)\n", "            pass\n", "back"),
    # what was used is not reported
    ("        self.used += took\n", "        pass\n", "lost"),
    # or reported again and again
    ("        self.used -= trade.used\n", "        pass\n", "exact"),
)  # fmt: skip
LAWS = {
    "over": (test_all_processes_together_never_use_more_than_the_limit, (STEPS,)),
    "back": (test_what_is_on_its_way_back_is_used_by_nobody, BACK),
    "lost": (
        test_nothing_that_was_spent_is_forgotten_and_a_death_costs_at_most_its_lease,
        (STEPS,),
    ),
    "exact": (test_without_deaths_the_count_is_exact, (STEPS,)),
}


@pytest.mark.slow
@pytest.mark.parametrize(("line", "instead", "law"), MUTANTS)
def test_mutants_are_caught(line, instead, law):
    test, drawn = LAWS[law]
    check = given(*drawn)(test.hypothesis.inner_test)
    check = settings(max_examples=3_000, database=None, phases=[Phase.generate])(check)
    with broken(MODULE, line, instead), pytest.raises(AssertionError):
        check()
