"""A worker: fires what is due, once, however many workers there are, and has it answered.

    scheduler = Scheduler(Schedules(store, "local"), seats, told=print)
    await scheduler.run()                       # until scheduler.stop()

For each due time the worker claims the entry by compare-and-set, appends the message to the
session's log under that time's key, and only then marks the entry as fired. A worker that dies in
between leaves a claim that expires; another appends the same message under the same key, which the
log takes once. Then the agent answers, under the session's lease. If somebody else holds the
session, the message is in its log and the holder sees it; the worker tries again until it is
answered.

Claims compare the clocks of machines. If they differ, two workers may append the same message, and
one copy is written.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Literal, Protocol, TypeAlias

from msgspec.structs import replace

from foldline.agent.loop import Agent, Ended, iterate_answers, told_to_go_on
from foldline.agent.schedule.schedule_entry import (
    Claim,
    Owed,
    ScheduleEntry,
    make_run_key,
    mark_fired,
    mark_lost,
    render_run_message,
    settle_or_claim,
)
from foldline.agent.schedule.schedule_store import Schedules
from foldline.core.parts import calls_of
from foldline.errors import BadInput, Busy, Conflict, Erased, FoldlineError
from foldline.models.retries import Outage
from foldline.session.model_facts import FactsOf, of_session
from foldline.session.session import AsyncSession
from foldline.session.stored_session import open_stored_session
from foldline.stores.base import Name

Seats: TypeAlias = Callable[[str], AbstractAsyncContextManager[Agent]]
"""Opens a session's agent and holds the session; raises `Busy` if another has it."""
HOLD = 60.0
"""Seconds after which another worker takes over a claim."""
_LOOK = 5.0  # seconds between two looks for changed entries
_AGAIN = 15.0  # seconds until a busy session is tried again
_TRIES = 5  # failed answers; the wait doubles after each


class Clock(Protocol):
    """Tells the time and waits."""

    def now(self) -> datetime:
        """Return the time in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""
        ...


class Wall:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the time in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class ScheduleNotice:
    """Something a worker reports."""

    what: Literal["fired", "missed", "answered", "busy", "failed"]
    entry: ScheduleEntry | None
    """None if it concerns the worker itself."""
    words: str = ""
    """The answer, or why there is none, or what was missed."""


def _discard_notice(_: ScheduleNotice) -> None:
    pass


class Scheduler:
    """One worker."""

    def __init__(  # noqa: PLR0913 - what may be otherwise
        self,
        schedules: Schedules,
        seats: Seats,
        *,
        clock: Clock | None = None,
        told: Callable[[ScheduleNotice], None] = _discard_notice,
        hold: float = HOLD,
        look: float = _LOOK,
        concurrency: int = 4,
        facts_of: FactsOf = of_session,
        random: Random | None = None,
    ) -> None:
        self.schedules, self.clock = schedules, clock or Wall()
        self._facts_of = facts_of
        self._seats, self._told, self._hold, self._look = seats, told, hold, look
        self._by = f"{os.getpid()}-{os.urandom(6).hex()}"
        self._stop = asyncio.Event()
        # By name: the change counter in the index, and the entry as it was read.
        self._known: dict[str, tuple[int, ScheduleEntry]] = {}
        self._answering: dict[str, asyncio.Task[None]] = {}  # by session, the newest
        self._tasks: set[asyncio.Task[None]] = set()
        self._doing: Counter[str] = Counter()  # answers under way or queued, by entry
        self._free = asyncio.Semaphore(concurrency)
        self._random = random
        self._outage = Outage(
            "the schedule cannot be read",
            lambda words: told(ScheduleNotice("failed", None, words)),
            first=look,
            random=random,
        )
        # The last notice of an entry without an answer: the same notice is not repeated.
        self._waiting: dict[str, ScheduleNotice] = {}

    def stop(self) -> None:
        """Start nothing more."""
        self._stop.set()

    async def run(self, *, once: bool = False, drain: float = 8.0) -> None:
        """Fire what is due until stopped; with `once`, until nothing is due any more."""
        try:
            while not self._stop.is_set():
                try:
                    seconds = await self.run_due_entries()
                    self._outage.note_success()
                except FoldlineError as fault:
                    if once:
                        raise
                    seconds = self._outage.note_failure(str(fault))  # the store may come back
                if once and not await self._answered_all():
                    return
                if not once:
                    await self._wait_for_stop(seconds)
        finally:
            await self._stop_answers(drain)

    async def run_due_entries(self) -> float:
        """Fire what is due now; returns the seconds until something may be due again."""
        index = await self.schedules.read_index()
        for name in [*self._known]:
            if name not in index:
                del self._known[name]
        soonest = self._look
        for name, change in index.items():
            if self._stop.is_set():
                break
            seen = self._known.get(name)
            if seen is None or seen[0] != change or self._measure_wait(seen[1]) <= 0:
                entry = await self._caught_up(name)
                if entry is None:
                    continue
                self._known[name] = (change, entry)
            soonest = min(soonest, self._measure_wait(self._known[name][1]))
        return max(soonest, 0.0)

    async def fire(self, name: str) -> ScheduleNotice:
        """Send an entry's message now, by hand; its times stay as they are."""
        entry = await self.schedules.read_entry(name)
        once = f"cron:{entry.name}:by hand:{os.urandom(8).hex()}"
        place = await self._append_message(entry, entry.words, once)
        owed = Owed(place, self.clock.now() + timedelta(seconds=self._hold))
        entry = await self.schedules.change_entry(name, lambda one: replace(one, owed=owed))
        return await self._answer_message(entry, place)

    async def _caught_up(self, name: str) -> ScheduleEntry | None:
        """Settle and fire everything of an entry that is due; returns it afterwards."""
        while (seen := await self.schedules.find_entry(name)) is not None:
            now = self.clock.now()
            stepped = settle_or_claim(seen.entry, now, by=self._by, hold=self._hold)
            if stepped is None or self._stop.is_set():
                self._start_owed_answer(seen.entry)
                return seen.entry
            if not await self.schedules.write_entry(stepped, seen.version):
                continue  # another worker was first
            if stepped.missed > seen.entry.missed:
                gap = stepped.gaps[-1]
                self._told(ScheduleNotice("missed", stepped, f"{gap.count:,}: {gap.why}"))
            if stepped.claim is not None and not await self._fire_claim(stepped, stepped.claim):
                return stepped
        return None

    async def _fire_claim(self, entry: ScheduleEntry, claim: Claim) -> bool:
        """Append the claimed message, then mark it; returns False to stop for now."""
        try:
            place = await self._append_message(
                entry, render_run_message(entry, claim), make_run_key(entry, claim.at)
            )
        except (Erased, BadInput) as fault:
            why = str(fault)
            await self._finish_claim(entry, claim, lambda one: mark_lost(one, why))
            self._told(ScheduleNotice("missed", entry, why))
            return True
        except FoldlineError as fault:  # the claim expires, and a worker tries again
            self._told(ScheduleNotice("failed", entry, str(fault)))
            return False
        until = self.clock.now() + timedelta(seconds=self._hold)
        if await self._finish_claim(entry, claim, lambda one: mark_fired(one, place, until=until)):
            self._told(ScheduleNotice("fired", entry))
            self._start_answer(entry, place)
        return True

    async def _append_message(self, entry: ScheduleEntry, words: str, once: str) -> int:
        """Append a message to a session's log, once, without its lease; returns its place."""
        session = await open_stored_session(
            self.schedules.store,
            Name(self.schedules.tenant, entry.session),
            facts_of=self._facts_of,
        )
        if session.live.view.head < 0:
            raise BadInput(
                f"there is no session {entry.session!r}; `foldline chat {entry.session}` begins it"
            )
        return await session.add(words, speaker="cron", author=entry.name, once=once)

    async def _finish_claim(
        self, entry: ScheduleEntry, claim: Claim, how: Callable[[ScheduleEntry], ScheduleEntry]
    ) -> bool:
        """Write the end of a claim; returns False if another worker already has."""
        while (seen := await self.schedules.find_entry(entry.name)) is not None:
            if seen.entry.claim is None or seen.entry.claim.at != claim.at:
                return False
            if await self.schedules.write_entry(how(seen.entry), seen.version):
                return True
        return False

    def _start_owed_answer(self, entry: ScheduleEntry) -> None:
        owed = entry.owed
        if owed is not None and owed.until <= self.clock.now() and not self._doing[entry.name]:
            self._start_answer(entry, owed.place)

    def _start_answer(self, entry: ScheduleEntry, place: int) -> None:
        """Start an answer in a task; one turn of a session at a time."""
        before = self._answering.get(entry.session)

        async def wait_and_answer() -> None:
            if before is not None:
                await asyncio.wait((before,))
            async with self._free:
                if not self._stop.is_set():
                    await self._answer_message(entry, place)

        def discard_task(done: "asyncio.Task[None]") -> None:
            self._doing[entry.name] -= 1
            self._tasks.discard(done)
            if self._answering.get(entry.session) is done:
                del self._answering[entry.session]

        self._doing[entry.name] += 1
        task = self._answering[entry.session] = asyncio.create_task(wait_and_answer())
        self._tasks.add(task)
        task.add_done_callback(discard_task)

    async def _answer_message(self, entry: ScheduleEntry, place: int) -> ScheduleNotice:
        """Let the agent answer the message at a place, unless it has been answered."""
        try:
            notice = await self._try_answer(entry, place)
        except asyncio.CancelledError:  # another worker may continue at once
            await asyncio.shield(
                self._settle_answer(entry, place, lambda owed: self._defer_answer(owed, 0.0))
            )
            raise
        except FoldlineError as fault:  # the store failed: the answer stays owed
            notice = ScheduleNotice("failed", entry, str(fault))
        self._tell_once(notice)
        return notice

    def _tell_once(self, notice: ScheduleNotice) -> None:
        """Report how an answer went; while a message waits, each reason is reported once."""
        name = "" if notice.entry is None else notice.entry.name
        before = self._waiting.pop(name, None)
        if notice.what in ("busy", "failed"):
            self._waiting[name] = notice
            if before is not None and (before.what, before.words) == (notice.what, notice.words):
                return
        self._told(notice)

    async def _try_answer(self, entry: ScheduleEntry, place: int) -> ScheduleNotice:
        words = ""
        try:
            async with self._seats(entry.session) as agent:
                if not await _is_answered(agent.session, place):
                    words = (await _gone_on(agent)).words
        except (Busy, Conflict) as fault:  # another holds the session, or has taken it over
            await self._settle_answer(entry, place, lambda owed: self._defer_answer(owed, _AGAIN))
            return ScheduleNotice("busy", entry, str(fault))
        except FoldlineError as fault:
            left = await self._settle_answer(entry, place, self._once_more, fault=str(fault))
            end = "" if left is None or left.owed else f"; given up after {_TRIES} tries"
            return ScheduleNotice("failed", entry, f"{fault}{end}")
        await self._settle_answer(entry, place, lambda _: None)
        return ScheduleNotice("answered", entry, words)

    async def _settle_answer(
        self,
        entry: ScheduleEntry,
        place: int,
        how: "Callable[[Owed], Owed | None]",
        *,
        fault: str = "",
    ) -> ScheduleEntry | None:
        """Write the result of an owed answer, unless a later one is owed by now."""
        while (seen := await self.schedules.find_entry(entry.name)) is not None:
            owed = seen.entry.owed
            if owed is None or owed.place > place:
                return None
            changed = replace(seen.entry, owed=how(owed), fault=fault)
            if await self.schedules.write_entry(changed, seen.version):
                return changed
        return None

    def _defer_answer(self, owed: Owed, seconds: float) -> Owed:
        return replace(owed, until=self.clock.now() + timedelta(seconds=seconds))

    def _once_more(self, owed: Owed) -> Owed | None:
        tries = owed.tries + 1
        if tries >= _TRIES:
            return None
        seconds = self._hold * 2**tries
        if self._random is not None:  # entries that failed together do not come back together
            seconds *= self._random.uniform(1.0, 1.5)
        return replace(self._defer_answer(owed, seconds), tries=tries)

    def _measure_wait(self, entry: ScheduleEntry) -> float:
        """Return the seconds until an entry must be examined again."""
        times = [entry.next] if entry.enabled and entry.claim is None else []
        times += [entry.claim.until] if entry.claim else []
        times += [entry.owed.until] if entry.owed and not self._doing[entry.name] else []
        now = self.clock.now()
        return min(((time - now).total_seconds() for time in times), default=self._look)

    async def _wait_for_stop(self, seconds: float) -> None:
        sleeping = asyncio.ensure_future(self.clock.sleep(max(seconds, 0.01)))
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((sleeping, stopping), return_when="FIRST_COMPLETED")
        finally:
            sleeping.cancel()
            stopping.cancel()
            await asyncio.gather(sleeping, stopping, return_exceptions=True)

    async def _answered_all(self) -> bool:
        """Wait for the answers under way; returns whether there were any."""
        tasks = [*self._tasks]
        if tasks:
            await asyncio.wait(tasks)
        return bool(tasks)

    async def _stop_answers(self, drain: float) -> None:
        """Wait `drain` seconds for answers, then cancel them: what happened is in their logs."""
        self.stop()
        if self._tasks:
            await asyncio.wait([*self._tasks], timeout=drain)
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _is_answered(session: AsyncSession, place: int) -> bool:
    """Whether a model has seen the message at a place and finished its turn."""
    async for _, answer in iterate_answers(session, place):
        if not calls_of(answer.parts):
            return True
    return False


async def _gone_on(agent: Agent) -> Ended:
    """Let the agent answer; if its last answer was cut off, tell it so first."""
    view = agent.session.live.view
    last = next(reversed((*view.items, *view.waiting)), None)
    if last is not None and last.role == "model" and not view.open:
        await told_to_go_on(agent.session)
    return await agent.go_on()
