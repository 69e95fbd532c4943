"""A worker: fires what is due, once, however many others do the same, and has it answered.

    scheduler = Scheduler(Schedules(store, "local"), seats, told=print)
    await scheduler.run()                       # until scheduler.stop()

For each time that comes: the entry is claimed by compare-and-set, the words go into the session's
log under the key of that time, whoever works there, and only then does the entry say `fired`. A
worker that dies in between leaves a claim that runs out: another says the same under the same key,
which writes it once. Then the agent answers, under the session's lease. Where somebody else holds
the session the message stands in its log and the holder sees it; it is tried again until it is
answered.

Claims compare the clocks of machines: where those differ, two may say the same, and one is written.
Knows the order of these steps. Refuses to know how an agent is made: `seats` does.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol, TypeAlias

from msgspec.structs import replace

from foldline.agent.loop import Agent, Ended
from foldline.agent.schedule.entry import Claim, Owed, ScheduleEntry, fired, key, lost, said, step
from foldline.agent.schedule.kept import Schedules
from foldline.agent.unfinished import answers, told_to_go_on
from foldline.core.parts import calls_of
from foldline.errors import BadInput, Busy, Conflict, Erased, FoldlineError
from foldline.session.session import AsyncSession
from foldline.session.stored_session import left
from foldline.stores.base import Name

Seats: TypeAlias = Callable[[str], AbstractAsyncContextManager[Agent]]
"""A session's agent, held for ourselves: `Busy` where another has the session."""
HOLD = 60.0
"""Seconds after which another worker takes over what one has claimed."""
_LOOK = 5.0  # seconds between two looks at what people have changed
_AGAIN = 15.0  # seconds until a session that somebody holds is tried again
_TRIES = 5  # answers that fail, each tried again after twice the time


class Clock(Protocol):
    """What the time is, and how to wait."""

    def now(self) -> datetime:
        """In UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Wall:
    """The machine's clock."""

    def now(self) -> datetime:
        """In UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class ScheduleNotice:
    """Something that a worker tells."""

    what: Literal["fired", "missed", "answered", "busy", "failed"]
    entry: ScheduleEntry | None
    """None: it is of the worker itself."""
    words: str = ""
    """The answer; why there is none; what was missed."""


def _silent(_: ScheduleNotice) -> None:
    pass


class Scheduler:
    """One worker."""

    def __init__(  # noqa: PLR0913 - what may be otherwise
        self,
        schedules: Schedules,
        seats: Seats,
        *,
        clock: Clock | None = None,
        told: Callable[[ScheduleNotice], None] = _silent,
        hold: float = HOLD,
        look: float = _LOOK,
        concurrency: int = 4,
    ) -> None:
        self.schedules, self.clock = schedules, clock or Wall()
        self._seats, self._told, self._hold, self._look = seats, told, hold, look
        self._by = f"{os.getpid()}-{os.urandom(6).hex()}"
        self._stop = asyncio.Event()
        self._known: dict[
            str, tuple[int, ScheduleEntry]
        ] = {}  # by name: its change, and what was read
        self._answering: dict[str, asyncio.Task[None]] = {}  # by session, the newest
        self._tasks: set[asyncio.Task[None]] = set()
        self._doing: Counter[str] = Counter()  # answers under way or queued, by entry
        self._free = asyncio.Semaphore(concurrency)

    def stop(self) -> None:
        """Begin nothing more."""
        self._stop.set()

    async def run(self, *, once: bool = False, drain: float = 8.0) -> None:
        """Fire what is due until told to stop; `once` ends when nothing is due any more."""
        try:
            while not self._stop.is_set():
                try:
                    seconds = await self.tick()
                except FoldlineError as fault:
                    if once:
                        raise
                    self._told(
                        ScheduleNotice("failed", None, str(fault))
                    )  # a store that comes back
                    seconds = self._look
                if once and not await self._answered_all():
                    return
                if not once:
                    await self._pause(seconds)
        finally:
            await self._end(drain)

    async def tick(self) -> float:
        """Do what is due now; how many seconds nothing is."""
        index = await self.schedules.index()
        for name in [*self._known]:
            if name not in index:
                del self._known[name]
        soonest = self._look
        for name, change in index.items():
            if self._stop.is_set():
                break
            seen = self._known.get(name)
            if seen is None or seen[0] != change or self._wakes(seen[1]) <= 0:
                entry = await self._caught_up(name)
                if entry is None:
                    continue
                self._known[name] = (change, entry)
            soonest = min(soonest, self._wakes(self._known[name][1]))
        return max(soonest, 0.0)

    async def fire(self, name: str) -> ScheduleNotice:
        """Say an entry's words now, by hand; its times stay as they are."""
        entry = await self.schedules.named(name)
        once = f"cron:{entry.name}:by hand:{os.urandom(8).hex()}"
        place = await self._said(entry, entry.words, once)
        owed = Owed(place, self.clock.now() + timedelta(seconds=self._hold))
        entry = await self.schedules.change(name, lambda one: replace(one, owed=owed))
        return await self._answer(entry, place)

    async def _caught_up(self, name: str) -> ScheduleEntry | None:
        """An entry behind all its steps that are due now."""
        while (seen := await self.schedules.get(name)) is not None:
            now = self.clock.now()
            stepped = step(seen.entry, now, by=self._by, hold=self._hold)
            if stepped is None or self._stop.is_set():
                self._owes(seen.entry)
                return seen.entry
            if not await self.schedules.put(stepped, seen.version):
                continue  # another worker was first
            if stepped.missed > seen.entry.missed:
                gap = stepped.gaps[-1]
                self._told(ScheduleNotice("missed", stepped, f"{gap.count:,}: {gap.why}"))
            if stepped.claim is not None and not await self._fire(stepped, stepped.claim):
                return stepped
        return None

    async def _fire(self, entry: ScheduleEntry, claim: Claim) -> bool:
        """Say what was claimed, then mark it; whether it goes on."""
        try:
            place = await self._said(entry, said(entry, claim), key(entry, claim.at))
        except (Erased, BadInput) as fault:
            why = str(fault)
            await self._marked(entry, claim, lambda one: lost(one, why))
            self._told(ScheduleNotice("missed", entry, why))
            return True
        except FoldlineError as fault:  # the claim runs out, and it is tried again
            self._told(ScheduleNotice("failed", entry, str(fault)))
            return False
        until = self.clock.now() + timedelta(seconds=self._hold)
        if await self._marked(entry, claim, lambda one: fired(one, place, until=until)):
            self._told(ScheduleNotice("fired", entry))
            self._begin(entry, place)
        return True

    async def _said(self, entry: ScheduleEntry, words: str, once: str) -> int:
        """Words in the log of a session, once, whoever holds it; their place."""
        session = await left(self.schedules.store, Name(self.schedules.tenant, entry.session))
        if session.live.view.head < 0:
            raise BadInput(
                f"there is no session {entry.session!r}; `foldline chat {entry.session}` begins it"
            )
        return await session.add(words, speaker="cron", author=entry.name, once=once)

    async def _marked(
        self, entry: ScheduleEntry, claim: Claim, how: Callable[[ScheduleEntry], ScheduleEntry]
    ) -> bool:
        """Write the end of a claim; not where another has taken it over and written it."""
        while (seen := await self.schedules.get(entry.name)) is not None:
            if seen.entry.claim is None or seen.entry.claim.at != claim.at:
                return False
            if await self.schedules.put(how(seen.entry), seen.version):
                return True
        return False

    # The answer.

    def _owes(self, entry: ScheduleEntry) -> None:
        owed = entry.owed
        if owed is not None and owed.until <= self.clock.now() and not self._doing[entry.name]:
            self._begin(entry, owed.place)

    def _begin(self, entry: ScheduleEntry, place: int) -> None:
        """Answer beside what else is due; one turn of a session at a time."""
        before = self._answering.get(entry.session)

        async def work() -> None:
            if before is not None:
                await asyncio.wait((before,))
            async with self._free:
                if not self._stop.is_set():
                    await self._answer(entry, place)

        def over(done: "asyncio.Task[None]") -> None:
            self._doing[entry.name] -= 1
            self._tasks.discard(done)
            if self._answering.get(entry.session) is done:
                del self._answering[entry.session]

        self._doing[entry.name] += 1
        task = self._answering[entry.session] = asyncio.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(over)

    async def _answer(self, entry: ScheduleEntry, place: int) -> ScheduleNotice:
        """Let the agent answer what stands at a place, unless that was done."""
        try:
            told = await self._tried(entry, place)
        except asyncio.CancelledError:  # another worker may go on at once
            await asyncio.shield(self._settle(entry, place, lambda owed: self._later(owed, 0.0)))
            raise
        except FoldlineError as fault:  # the store: what is owed is tried again
            told = ScheduleNotice("failed", entry, str(fault))
        self._told(told)
        return told

    async def _tried(self, entry: ScheduleEntry, place: int) -> ScheduleNotice:
        words = ""
        try:
            async with self._seats(entry.session) as agent:
                if not await _is_answered(agent.session, place):
                    words = (await _gone_on(agent)).words
        except (Busy, Conflict) as fault:  # another has it, or has taken it over
            await self._settle(entry, place, lambda owed: self._later(owed, _AGAIN))
            return ScheduleNotice("busy", entry, str(fault))
        except FoldlineError as fault:
            await self._settle(entry, place, self._once_more, fault=str(fault))
            return ScheduleNotice("failed", entry, str(fault))
        await self._settle(entry, place, lambda _: None)
        return ScheduleNotice("answered", entry, words)

    async def _settle(
        self,
        entry: ScheduleEntry,
        place: int,
        how: "Callable[[Owed], Owed | None]",
        *,
        fault: str = "",
    ) -> None:
        """Write what became of an answer that was owed, unless a later one is."""
        while (seen := await self.schedules.get(entry.name)) is not None:
            owed = seen.entry.owed
            if owed is None or owed.place > place:
                return
            changed = replace(seen.entry, owed=how(owed), fault=fault)
            if await self.schedules.put(changed, seen.version):
                return

    def _later(self, owed: Owed, seconds: float) -> Owed:
        return replace(owed, until=self.clock.now() + timedelta(seconds=seconds))

    def _once_more(self, owed: Owed) -> Owed | None:
        tries = owed.tries + 1
        if tries >= _TRIES:
            return None
        return replace(self._later(owed, self._hold * 2**tries), tries=tries)

    # Waiting.

    def _wakes(self, entry: ScheduleEntry) -> float:
        """Seconds until an entry is to be looked at again."""
        whens = [entry.next] if entry.enabled and entry.claim is None else []
        whens += [entry.claim.until] if entry.claim else []
        whens += [entry.owed.until] if entry.owed and not self._doing[entry.name] else []
        now = self.clock.now()
        return min(((one - now).total_seconds() for one in whens), default=self._look)

    async def _pause(self, seconds: float) -> None:
        sleeping = asyncio.ensure_future(self.clock.sleep(max(seconds, 0.01)))
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((sleeping, stopping), return_when="FIRST_COMPLETED")
        finally:
            for one in (sleeping, stopping):
                one.cancel()
            await asyncio.gather(sleeping, stopping, return_exceptions=True)

    async def _answered_all(self) -> bool:
        """Wait for the answers under way; whether there were any."""
        tasks = [*self._tasks]
        if tasks:
            await asyncio.wait(tasks)
        return bool(tasks)

    async def _end(self, drain: float) -> None:
        """Let answers end for so long, then stop them: what happened is in their logs."""
        self.stop()
        if self._tasks:
            await asyncio.wait([*self._tasks], timeout=drain)
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _is_answered(session: AsyncSession, place: int) -> bool:
    """Whether a model was shown the message there, and has come to an end behind it."""
    async for _, answer in answers(session, place):
        if not calls_of(answer.parts):
            return True
    return False


async def _gone_on(agent: Agent) -> Ended:
    """What the agent answers; where it was stopped in the middle of an answer, it is told so."""
    view = agent.session.live.view
    last = next(reversed((*view.items, *view.waiting)), None)
    if last is not None and last.role == "model" and not view.open:
        await told_to_go_on(agent.session)
    return await agent.go_on()
