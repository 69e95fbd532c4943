"""Kill workers over cron entries, and find each time fired once, or counted as missed.

    just chaos schedule             1,000 times on SQLite and on PostgreSQL each, some six minutes
    just chaos schedule --short     a few on both and the controls: half a minute

Two real processes fire ten entries, every minute of a clock that runs forty times as fast, on a store
that is slow. They are killed -9 at random, by the clock and by themselves, before or behind an operation of
the store (so between claim and append, and between append and mark), and are started again. At the end
every time that came is asked for by its key: it stands in the log once, at a place of its own, and the entry
says `fired`, or the entry says `missed`; there is no third. Every message was shown to the model.

Controls that must be caught, or the run fails: a worker that says a time under a key of its own, and one
that takes a claim that has run out for fired.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from random import Random
from typing import Any

from msgspec.structs import replace

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / folder) for folder in ("properties", "stores")]
from mutants import broken  # noqa: E402 - beside us
from serving import a_schema, address_of  # noqa: E402

from foldline.agent.loop import Agent  # noqa: E402
from foldline.agent.schedule.schedule_entry import (  # noqa: E402
    ScheduleEntry,
    Times,
    build_schedule_entry,
    make_run_key,
)
from foldline.agent.schedule.schedule_store import Schedules  # noqa: E402
from foldline.agent.schedule.scheduler import Scheduler  # noqa: E402
from foldline.core.log import Opened, UserSaid  # noqa: E402
from foldline.errors import FoldlineError  # noqa: E402
from foldline.session.log_handle import Live  # noqa: E402
from foldline.session.model_facts import of_session  # noqa: E402
from foldline.session.stored_session import hold_stored_session, open_stored_session  # noqa: E402
from foldline.stores.base import Draft, Name, Row  # noqa: E402
from foldline.stores.open_store import store_at  # noqa: E402
from foldline.stores.postgres import PostgresStore  # noqa: E402, F401 - imported before the first fork
from foldline.stores.sqlite import SqliteStore  # noqa: E402, F401
from foldline.testing import ScriptedModel  # noqa: E402

BEGIN = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)  # Berlin's clock leaps half an hour later
RATE = 40.0
ENTRIES, SESSIONS = 10, 3
RULES = ("all", "all", "all", "once", "skip")
PATIENCE = 40.0  # seconds in which all is settled once nobody is killed
OWN_KEY = (
    "foldline.agent.schedule.scheduler",
    'return await session.add(words, speaker="cron", author=entry.name, once=once)',
    'return await session.add(words, speaker="cron", author=entry.name, once=once + self._by)',
)  # fmt: skip
BELIEVED = (
    "foldline.agent.schedule.schedule_entry",
    "return replace(entry, claim=replace(entry.claim, by=by, until=until))",
    "return replace(entry, claim=None, fired=entry.fired + 1)",
)


class Broken(Exception):  # noqa: N818 - named for what was found
    """Something is not as it must be."""


@dataclass(frozen=True)
class Fast:
    """A clock that all processes share, faster than the wall's."""

    since: float

    def now(self) -> datetime:
        """In UTC."""
        return BEGIN + timedelta(seconds=(time.time() - self.since) * RATE)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds / RATE)


class Slow:
    """A store far away, on the way to which a worker may die."""

    def __init__(self, inner: Any, random: Random, deaths: float) -> None:
        self._inner, self._random, self._deaths = inner, random, deaths

    def __getattr__(self, name: str) -> Any:
        work = getattr(self._inner, name)
        return self._far(work) if name in ("put", "append") else work

    def _far(self, work: Any) -> Any:
        async def doing(*given: Any, **more: Any) -> Any:
            await self._way()
            done = await work(*given, **more)
            await self._way()
            return done

        return doing

    async def _way(self) -> None:
        await asyncio.sleep(self._random.uniform(0, 0.002))
        if self._random.random() < self._deaths:
            os.kill(os.getpid(), signal.SIGKILL)


def nothing() -> None:
    """The first process waits until all is imported; the others are there at once."""


def worker(address: str, since: float, seed: int, deaths: float, mutant: Any) -> None:
    """A process that fires until it is killed."""

    async def work() -> None:
        store: Any = Slow(store_at(address), Random(seed), deaths)
        model = ScriptedModel(lambda _: "ok")

        @asynccontextmanager
        async def seat(session: str) -> Any:
            opened = await open_stored_session(store, Name("local", session))
            async with hold_stored_session(opened, seconds=2.0):
                yield Agent(opened, model)

        clock = Fast(since)
        await Scheduler(Schedules(store, "local"), seat, clock=clock, look=30.0).run()

    with broken(*mutant) if mutant else contextlib.nullcontext():
        asyncio.run(work())


@dataclass
class Workers:
    """Two processes, started again when they are dead."""

    address: str
    since: float
    random: Random
    mutant: Any
    deaths: float
    """How often one kills itself, on each way to the store and back."""
    running: list[Any] = field(default_factory=list)
    context: Any = field(default_factory=lambda: multiprocessing.get_context("forkserver"))
    seen: Counter[str] = field(default_factory=Counter)

    def full(self) -> None:
        """See that there are two."""
        alive = [one for one in self.running if one.is_alive()]
        for one in self.running:
            if not one.is_alive() and one.exitcode != -signal.SIGKILL:
                raise Broken(f"a worker ended by itself: {one.exitcode}")
        self.seen["kills by themselves"] += len(self.running) - len(alive)
        while len(alive) < 2:
            seed = self.random.randrange(1 << 30)
            given = (self.address, self.since, seed, self.deaths, self.mutant)
            one = self.context.Process(target=worker, args=given, daemon=True)
            one.start()
            alive.append(one)
        self.running = alive

    def kill(self) -> None:
        """Kill -9 one of them."""
        one = self.running.pop(self.random.randrange(len(self.running)))
        if one.is_alive():
            one.kill()
            self.seen["kills by the clock"] += 1
        one.join()

    def end(self) -> None:
        """Kill all that is left."""
        for one in self.running:
            one.kill()
            one.join()
        self.running = []


async def begun(store: Any) -> None:
    """Sessions, and the entries that speak into them."""
    for number in range(SESSIONS):
        name = Name("local", f"s{number}")
        live = await Live.open(store, name, facts=of_session("scripted", {}))
        await live.append([Opened("scripted", {"window": 8_000})])
    for number in range(ENTRIES):
        rule: Any = RULES[number % len(RULES)]
        entry = build_schedule_entry(f"e{number}", f"s{number % SESSIONS}", cron="* * * * *", words="Look.",
                     now=BEGIN, zone="Europe/Berlin", rule=rule)  # fmt: skip
        await Schedules(store, "local").add_entry(entry)


async def killed(address: str, *, minutes: int, random: Random, mutant: Any = None) -> Counter[str]:
    """Let entries come for so many minutes, kill workers over them, and look at every time."""
    store: Any = store_at(address)
    await begun(store)
    workers = Workers(address, time.time(), random, mutant, deaths=0.08 if mutant else 0.02)
    clock, end = Fast(workers.since), BEGIN + timedelta(minutes=minutes)
    try:
        workers.full()
        while clock.now() < end:
            await asyncio.sleep(random.uniform(0.1, 0.5))
            if random.random() < 0.15:
                workers.kill()
            workers.full()
        workers.end()
        workers.deaths = 0.0
        await _settled(store, workers, end)
    finally:
        workers.end()
    seen = workers.seen
    for entry in await Schedules(store, "local").list_entries():
        await _looked_at(store, entry, seen, mutant=bool(mutant))
    await store.close()
    if (
        seen["kills by the clock"] + seen["kills by themselves"] < max(minutes // 4, 2)
        and not mutant
    ):
        raise Broken("hardly anybody was killed: nothing was tested")
    return seen


async def _settled(store: Any, workers: Workers, end: datetime) -> None:
    """Wait until all that came before the end is settled, let the entries rest, and all be answered."""
    since, schedules, resting = time.monotonic(), Schedules(store, "local"), False
    while time.monotonic() - since < PATIENCE:
        workers.full()
        await asyncio.sleep(0.1)
        entries = await schedules.list_entries()
        if not resting and all(one.next > end for one in entries):
            resting = True
            for one in entries:
                await schedules.change_entry(one.name, _rests)
        elif resting and all(one.claim is None and one.owed is None for one in entries):
            return
    stuck = [f"{one.name} {one.next} {one.claim} {one.owed} {one.fault}" for one in await schedules.list_entries()
             if one.claim or one.owed or one.next <= end]  # fmt: skip
    raise Broken(f"stuck: {stuck[:2]}")


def _rests(entry: ScheduleEntry) -> ScheduleEntry:
    return replace(entry, enabled=False)


async def _looked_at(store: Any, entry: ScheduleEntry, seen: Counter[str], *, mutant: bool) -> None:
    """Each time of an entry, by its key."""
    name = Name("local", entry.session)
    session = await open_stored_session(store, name)
    log = [(seq, event) for seq, event in await session.history.events()
           if isinstance(event, UserSaid)]  # fmt: skip
    said = [seq for seq, event in log if event.speaker == "cron" and event.author == entry.name]
    came = [
        *takewhile(lambda at: at < entry.next, Times(entry.cron, entry.zone).iterate_after(BEGIN))
    ]
    if len(said) > entry.fired:
        raise Broken(f"twice: {entry.name} says {entry.fired} times fired, its log has {len(said)}")
    if len(said) < entry.fired:
        raise Broken(f"lost: {entry.name} says {entry.fired} times fired, its log has {len(said)}")
    if entry.fired + entry.missed != len(came):
        raise Broken(f"lost: {entry.name} came {len(came)} times, {entry.fired} fired, {entry.missed} missed")  # fmt: skip
    if entry.rule == "all" and entry.missed:
        raise Broken(f"lost: {entry.name} makes up for all and has missed {entry.missed}")
    head, places = session.live.view.head, []
    for at in came:
        # A key that was said before gives its place again; another is written behind the end.
        probe = Draft([Row("user_said", b'{"kind":"user_said","parts":[]}')])
        place = await store.append(name, probe, once=make_run_key(entry, at))
        places += [place] if place <= head else []
    if sorted(places) != said and not mutant:  # a control is caught by what it did, not by its key
        raise Broken(f"{entry.name}: the places of its keys are not those of its messages")
    if session.live.view.shown < max(said, default=-1):
        raise Broken(f"{entry.name}: its last message was never shown to the model")
    seen["times"] += len(came)
    seen["fired"] += entry.fired
    seen["missed"] += entry.missed


@contextmanager
def places() -> Iterator[dict[str, str]]:
    """A store of each kind, for one campaign."""
    with tempfile.TemporaryDirectory(prefix="foldline-chaos-") as folder, a_schema() as schema:
        yield {"SQLite": f"{folder}/talks.db", "PostgreSQL": address_of(schema)}


def part(kind: str, *, minutes: int, random: Random) -> bool:
    """A campaign that finds nothing."""
    start = time.monotonic()
    with places() as addresses:
        try:
            seen = asyncio.run(killed(addresses[kind], minutes=minutes, random=random))
        except (Broken, FoldlineError) as fault:
            print(f"{kind}: BROKEN: {fault}", flush=True)
            return False
    figures = ", ".join(f"{what} {count:,}" for what, count in sorted(seen.items()))
    print(f"{kind}: {figures} ({time.monotonic() - start:.0f} s)", flush=True)
    return seen["times"] >= minutes * ENTRIES and seen["fired"] > seen["times"] // 4


def control(name: str, mutant: Any, expected: str, *, minutes: int, random: Random) -> bool:
    """Whether broken workers are found out, and for what they do."""
    for _ in range(5):
        with places() as addresses:
            try:
                asyncio.run(killed(addresses["SQLite"], minutes=minutes, random=random, mutant=mutant))  # fmt: skip
            except Broken as fault:
                caught = str(fault).startswith(expected)
                how = "caught" if caught else "caught for ANOTHER REASON"
                print(f"control, {name}: {how}: {fault}", flush=True)
                return caught
    print(f"control, {name}: NOT caught", flush=True)
    return False


def main() -> int:
    """Print the figures; 1 where a time is lost or fired twice, or a control is not caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--short", action="store_true", help="some 100 times each")
    parser.add_argument("--minutes", type=int, default=100)
    parser.add_argument("--only", choices=("SQLite", "PostgreSQL"), help="one store, no controls")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    random, good, start = Random(args.seed), True, time.monotonic()
    minutes = 5 if args.short else args.minutes
    print(f"seed {args.seed}", flush=True)
    first = multiprocessing.get_context("forkserver").Process(target=nothing)
    first.start()
    first.join()
    for kind in (args.only,) if args.only else ("SQLite", "PostgreSQL"):
        good &= part(kind, minutes=minutes, random=random)
    for name, mutant, expected in (
        ()
        if args.only
        else (
            ("each worker under a key of its own", OWN_KEY, "twice"),
            ("a claim that ran out is believed", BELIEVED, "lost"),
        )
    ):
        good &= control(name, mutant, expected, minutes=4, random=random)
    print(f"{'all as it must be' if good else 'BROKEN'} in {time.monotonic() - start:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
