"""Workers on a real store: what is fired, said, answered and taken over. A year is simulated."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from foldline.agent.loop import Agent
from foldline.agent.schedule.schedule_entry import (
    Owed,
    build_schedule_entry,
    pause_entry,
    resume_entry,
    settle_or_claim,
)
from foldline.agent.schedule.schedule_store import Schedules
from foldline.agent.schedule.scheduler import Scheduler
from foldline.agent.tool import Tool
from foldline.agent.tool import said as result
from foldline.core.log import Folded, Interrupted, ModelSaid, Opened, ToolReturned, UserSaid
from foldline.core.parts import Text, text_of
from foldline.dialects.provider_errors import Fault
from foldline.errors import BadInput, Conflict, ModelFailed, StoreFailed
from foldline.models.retries import Patience
from foldline.session.log_handle import Live
from foldline.session.model_facts import of_session
from foldline.session.stored_session import (
    hold_stored_session,
    iterate_summaries,
    open_stored_session,
)
from foldline.session.turn import turn_of
from foldline.stores.base import Name
from foldline.stores.sqlite import SqliteStore
from foldline.testing import ScriptedModel

pytestmark = pytest.mark.anyio
BEGIN = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Simulated:
    """A clock that is as fast as what waits for it."""

    def __init__(self, now=BEGIN, until=None):
        self.time, self.until, self.stop = now, until, lambda: None

    def now(self):
        """In UTC."""
        return self.time

    async def sleep(self, seconds):
        """Let the time pass."""
        self.time += timedelta(seconds=seconds)
        if self.until is not None and self.time > self.until:
            self.stop()
        for _ in range(3):
            await asyncio.sleep(0)


class House:
    """A store with sessions, and workers of one process."""

    def __init__(self, model=None, *, tools=()):
        self.store = SqliteStore(":memory:")
        self.model, self.tools = model or ScriptedModel(lambda _: "ok"), tools
        self.schedules, self.clock, self.told = Schedules(self.store, "local"), Simulated(), []

    async def begun(self, session="main", **more):
        """A session, and an entry for it."""
        live = await Live.open(self.store, Name("local", session), facts=of_session("scripted", {}))
        await live.append([Opened("scripted", {"window": 4_000})])
        return await self.entry(session=session, **more)

    async def entry(self, name="look", session="main", *, cron="0 * * * *", **more):
        """An entry more."""
        entry = build_schedule_entry(
            name, session, cron=cron, words="Look.", now=self.clock.now(), **more
        )
        await self.schedules.add_entry(entry)
        return entry

    @asynccontextmanager
    async def seat(self, session):
        """As `seated` does it."""
        opened = await open_stored_session(self.store, Name("local", session))
        async with hold_stored_session(opened):
            yield Agent(opened, self.model, tools=self.tools, patience=Patience(tries=1))

    def worker(self, **more):
        """One more."""
        return Scheduler(self.schedules, self.seat, clock=self.clock, told=self.told.append, **more)

    async def at(self, hours, *, worker=None, minutes=0):
        """What a worker does so long after the beginning."""
        self.clock.time = BEGIN + timedelta(hours=hours, minutes=minutes)
        one = worker or self.worker()
        await one.run_due_entries()
        while one._tasks:
            await asyncio.wait([*one._tasks])
        return [(one.what, one.words) for one in self.told]

    async def logged(self, session="main"):
        """The whole log."""
        opened = await open_stored_session(self.store, Name("local", session))
        return await opened.history.events()

    async def events(self, kind, session="main"):
        """What is in a log."""
        return [event for _, event in await self.logged(session) if isinstance(event, kind)]

    async def said(self, session="main"):
        """The messages."""
        return [text_of(one.parts) for one in await self.events(UserSaid, session)]

    async def now(self, name="look"):
        """An entry as it is."""
        return (await self.schedules.find_entry(name)).entry


async def test_it_speaks_as_cron_and_the_agent_answers():
    house = House()
    await house.begun()
    assert await house.at(0) == []
    assert await house.at(0.5) == [("fired", ""), ("answered", "ok")]
    (said,) = await house.events(UserSaid)
    assert (said.speaker, said.author, text_of(said.parts)) == ("cron", "look", "Look.")
    assert house.model.requests[0]["messages"][-1]["content"] == "[cron: look]\nLook."
    entry = await house.now()
    assert (entry.fired, entry.missed, entry.owed, entry.claim) == (1, 0, None, None)


async def test_a_simulated_year_in_two_zones_with_restarts():
    """Each time is fired once; when clocks change too; after a restart one run stands for all."""
    house = House()
    await house.begun(cron="30 2 * * *", zone="Europe/Berlin")
    await house.entry("nine", cron="0 9 * * 1", zone="America/New_York")
    house.clock.until = BEGIN
    for days in (100, 3, 97, 165):  # three days nobody is there
        house.clock.until += timedelta(days=days)
        if days == 3:
            house.clock.time = house.clock.until
            continue
        one = house.worker(look=86_400.0)
        house.clock.stop = one.stop
        await one.run()
    berlin, york = await house.now("look"), await house.now("nine")
    assert (berlin.fired + berlin.missed, berlin.missed) == (365, 2)
    assert york.fired + york.missed == 52  # Mondays
    said = await house.events(UserSaid)
    assert len(said) == berlin.fired + york.fired
    answers = len(await house.events(ModelSaid))  # those of one moment are answered together
    assert len(said) - 2 <= answers <= len(said)
    assert berlin.owed is york.owed is None
    assert {one.author for one in said} == {"look", "nine"}
    assert sum("2 runs before it were missed" in text for text in await house.said()) == 1


async def test_two_workers_fire_once():
    house = House()
    await house.begun()
    one, two = house.worker(), house.worker()
    house.clock.time = BEGIN + timedelta(minutes=31)
    await asyncio.gather(one.run_due_entries(), two.run_due_entries())
    for worker in (one, two):
        await worker._answered_all()
    assert await house.said() == ["Look."]
    assert (await house.now()).fired == 1
    assert len(house.model.requests) == 1


async def test_a_worker_that_dies_before_the_append_is_followed_by_another():
    house = House()
    await house.begun()
    seen = await house.schedules.find_entry("look")
    claimed = settle_or_claim(seen.entry, BEGIN + timedelta(minutes=30), by="dead", hold=60.0)
    assert await house.schedules.write_entry(claimed, seen.version)
    assert await house.at(0.5) == []  # it may be alive
    assert await house.at(0.5, minutes=2) == [("fired", ""), ("answered", "ok")]
    assert await house.said() == ["Look."]


async def test_a_worker_that_dies_behind_the_append_is_followed_and_nothing_is_said_twice():
    house = House()
    await house.begun()
    worker = house.worker()

    async def dying(*_):
        raise SystemError("killed")

    worker._finish_claim = dying
    house.clock.time = BEGIN + timedelta(minutes=30)
    with pytest.raises(SystemError):
        await worker.run_due_entries()
    assert await house.said() == ["Look."]
    assert (await house.now()).fired == 0
    assert await house.at(0.5, minutes=2) == [("fired", ""), ("answered", "ok")]
    assert await house.said() == ["Look."]
    assert (await house.now()).fired == 1


async def test_who_was_thought_dead_and_comes_back_says_and_marks_nothing_twice():
    house = House()
    await house.begun()
    slow, other = house.worker(), house.worker()
    saying = slow._append_message

    async def stalled(*given):
        house.clock.time += timedelta(minutes=5)
        await other.run_due_entries()
        await other._answered_all()
        return await saying(*given)

    slow._append_message = stalled
    house.clock.time = BEGIN + timedelta(minutes=30)
    await slow.run_due_entries()
    assert await house.said() == ["Look."]
    assert ((await house.now()).fired, len(house.model.requests)) == (1, 1)


async def test_a_session_that_somebody_holds_gets_the_message_and_is_answered_later():
    """The holder sees it at its next call of the model; where it does not answer, we do."""
    house = House()
    await house.begun()
    holder = await open_stored_session(house.store, Name("local", "main"))
    async with hold_stored_session(holder):
        told = await house.at(0.5)
        assert [what for what, _ in told] == ["fired", "busy"]
        assert await house.said() == ["Look."]
        await house.at(0.5, minutes=1)
        assert [one.what for one in house.told] == ["fired", "busy", "busy"]
    await house.at(0.5, minutes=2)
    assert house.told[-1].what == "answered"
    assert (await house.now()).owed is None
    assert await house.said() == ["Look."]


async def test_what_the_holder_has_answered_is_not_answered_again():
    house = House()
    await house.begun()
    holder = await open_stored_session(house.store, Name("local", "main"))
    async with hold_stored_session(holder):
        await house.at(0.5)
        await holder.live.catch_up()
        await Agent(holder, house.model).turn("And I have a question.")
    await house.at(0.5, minutes=1)
    assert (house.told[-1].what, len(house.model.requests)) == ("answered", 1)
    assert len(await house.events(ModelSaid)) == 1


async def test_a_worker_that_died_in_the_middle_of_a_turn_is_followed():
    """What was called for and has no result is closed; the answer is made by another."""
    runs = []

    async def look(arguments):
        runs.append(arguments)
        if len(runs) == 1:
            raise asyncio.CancelledError
        return result("seen")

    calls = [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    house = House(
        ScriptedModel([{"content": None, "tool_calls": calls}, "It is there."]),
        tools=[Tool(name="look", description="", schema={"type": "object"}, run=look)],
    )
    await house.begun()
    await house.at(0.5)
    assert (await house.now()).owed is not None
    await house.at(0.5, minutes=2)
    assert [text_of(one.parts) for one in await house.events(ModelSaid)][-1] == "It is there."
    assert len(await house.events(Interrupted)) + len(await house.events(ToolReturned)) == 1
    assert (await house.now()).owed is None


async def test_a_model_that_fails_is_asked_again_and_given_up_at_last():
    house = House(ScriptedModel(lambda _: ModelFailed("scripted", Fault("auth", "no key"))))
    await house.begun(cron="0 1 1 1 *")
    worker = house.worker()
    for hours in range(12):
        await house.at(0.5 + hours, worker=worker)
    entry = await house.now()
    assert (len(house.model.requests), entry.owed) == (5, None)
    assert "no key" in entry.fault
    assert [one.what for one in house.told] == ["fired", "failed", "failed"], (
        "C-11: once, and the end"
    )
    assert house.told[-1].words.endswith("given up after 5 tries")


async def test_what_was_cut_in_its_middle_is_gone_on_with():
    house = House(ScriptedModel(["It is there."]))
    await house.begun()
    session = await open_stored_session(house.store, Name("local", "main"))
    place = await session.add("Look.", speaker="cron", author="look", once="k")
    await session.add(ModelSaid((Text("It is"),), stop="cut"))
    entry = await house.schedules.change_entry(
        "look", lambda one: replace(one, owed=Owed(place, BEGIN))
    )
    await house.at(0)
    assert house.told[-1].words == "It is there."
    assert "Go on with it" in house.model.requests[0]["messages"][-1]["content"]
    assert entry.owed.place == place


async def test_an_erased_session_stops_its_entries_and_the_run_is_missed():
    house = House()
    await house.begun()
    await house.entry("other", "nobody")
    await house.store.erase(Name("local", "main"))
    told = await house.at(0.5)
    assert [what for what, _ in told] == ["missed", "missed"]
    for name in ("look", "other"):
        entry = await house.now(name)
        assert (entry.enabled, entry.missed, entry.fired) == (False, 1, 0)
    assert "no session 'nobody'" in (await house.now("other")).fault


async def test_a_store_that_fails_at_the_append_is_tried_again():
    house = House()
    await house.begun()
    worker, whole = house.worker(), house.store.append

    async def failing(*_, **__):
        raise StoreFailed("the disk is full")

    house.store.append = failing
    await house.at(0.5, worker=worker)
    assert [one.what for one in house.told] == ["failed"]
    house.store.append = whole
    await house.at(0.5, worker=worker, minutes=2)
    assert [one.what for one in house.told] == ["failed", "fired", "answered"]
    assert await house.said() == ["Look."]


async def test_entries_are_changed_while_workers_have_them():
    house = House()
    await house.begun()
    worker = house.worker()
    await house.at(0, worker=worker)
    with pytest.raises(BadInput, match="there is an entry 'look' already"):
        await house.entry()
    with pytest.raises(BadInput, match="did you mean look"):
        await house.schedules.read_entry("lok")
    await house.entry("soon", cron="40 * * * *")
    await house.at(0.25, worker=worker)
    assert next((one.what, one.entry.name) for one in house.told) == ("fired", "soon")
    await house.schedules.remove_entry("look")
    await house.at(0.5, worker=worker)
    assert "look" not in {one.entry.name for one in house.told}
    assert [one.name for one in await house.schedules.list_entries()] == ["soon"]
    await house.entry()  # the name is free again, and old versions are not
    seen = await house.schedules.find_entry("look")
    assert seen.version > 2
    await house.at(1.5, worker=worker)
    assert {one.entry.name for one in house.told} == {"look", "soon"}


async def test_by_hand_it_speaks_now_and_its_times_stay():
    house = House()
    before = await house.begun()
    told = await house.worker().fire("look")
    assert (told.what, told.words) == ("answered", "ok")
    entry = await house.now()
    assert (entry.next, entry.fired, entry.owed) == (before.next, 0, None)
    holder = await open_stored_session(house.store, Name("local", "main"))
    async with hold_stored_session(holder):
        assert (await house.worker().fire("look")).what == "busy"
    await house.at(0, minutes=20)
    assert house.told[-1].what == "answered"
    assert (len(await house.said()), len(house.model.requests)) == (2, 2)


async def test_it_ends_when_told_to_and_another_goes_on_at_once():
    house = House(ScriptedModel(lambda _: "ok", delay=60.0))
    await house.begun()
    house.clock.time = BEGIN + timedelta(minutes=30)
    worker = house.worker()
    running = asyncio.create_task(worker.run(drain=0.05))
    while not house.model.requests:  # noqa: ASYNC110 - a list tells nobody
        await asyncio.sleep(0)
    worker.stop()
    await asyncio.wait_for(running, 30)
    assert (await house.now()).owed.until <= house.clock.now()
    house.model.delay = 0.0
    await house.worker().run(once=True)
    assert house.told[-1].what == "answered"
    assert await house.said() == ["Look."]


async def test_once_ends_when_nothing_is_due():
    house = House()
    await house.begun()
    house.clock.time = BEGIN + timedelta(hours=5)
    await house.worker().run(once=True)
    assert [one.what for one in house.told] == ["missed", "fired", "answered"]
    assert "4 runs before it" in (await house.said())[0]


async def test_an_answer_that_takes_long_is_begun_once_here():
    house = House(ScriptedModel(lambda _: "ok", delay=0.2))
    await house.begun(cron="0 1 1 1 *")
    house.clock.time = BEGIN + timedelta(minutes=30)
    worker = house.worker()
    await worker.run_due_entries()
    for _ in range(3):  # past the time after which others would look
        house.clock.time += timedelta(minutes=5)
        await worker.run_due_entries()
        assert len(worker._tasks) == 1
    await worker._answered_all()
    assert [one.what for one in house.told] == ["fired", "answered"]


async def test_an_answer_to_an_older_message_leaves_the_newer_one_owed():
    house = House()
    entry = await house.begun()
    newer = Owed(9, BEGIN + timedelta(days=1))
    await house.schedules.change_entry("look", lambda one: replace(one, owed=newer))
    await house.worker()._settle_answer(entry, 3, lambda _: None)
    assert (await house.now()).owed == newer
    await house.worker()._settle_answer(entry, 9, lambda _: None)
    assert (await house.now()).owed is None


async def test_a_session_that_is_taken_over_in_the_middle_of_an_answer_is_no_failure():
    house = House()
    await house.begun()

    async def taken(*_, **__):
        raise Conflict.make_fence_conflict("main", 1, 2)

    house.model.say = taken
    await house.at(0.5)
    assert [one.what for one in house.told] == ["fired", "busy"]
    assert (await house.now()).owed.tries == 0


async def test_who_rests_and_is_resumed_is_seen_by_a_worker_that_knew_it():
    house = House()
    await house.begun()
    worker = house.worker()
    await house.schedules.change_entry("look", lambda one: pause_entry(one, BEGIN))
    await house.at(0, worker=worker)
    await house.schedules.change_entry("look", lambda one: resume_entry(one, BEGIN))
    await house.at(0.5, worker=worker)
    assert [one.what for one in house.told] == ["fired", "answered"]


async def scheduled_hours(count, **settings):
    """A session that only cron spoke in, so many times."""
    house = House()
    live = await Live.open(house.store, Name("local", "main"), facts=of_session("scripted", {}))
    await live.append([Opened("scripted", {"window": 8_000, **settings})])
    await house.entry()
    for hour in range(1, count + 1):
        await house.at(hour)
    return house


async def test_scheduled_turns_are_turns_in_the_history():
    """M-6: `history` said "0 turns, 0 calls" of a session that only cron spoke in."""
    house = await scheduled_hours(3)
    opened = await open_stored_session(house.store, Name("local", "main"))
    turns = await opened.history.turns()
    assert [(one.number, one.calls, one.speaker) for one in turns] == [
        (1, 1, "cron"),
        (2, 1, "cron"),
        (3, 1, "cron"),
    ]
    assert all(one.words.startswith("[cron: look] Look.") for one in turns)  # not the user's words
    listed = [one async for one in iterate_summaries(house.store, "local")]
    assert [(one.turns, one.words) for one in listed] == [(3, "")]
    assert turn_of(opened.live.view) == turns[-1].at  # caps of a turn begin anew


async def test_sliding_counts_scheduled_turns_and_folds_on_them():
    """M-6, P3-10: five scheduled turns are five turns; the sixth call sends the fold."""
    house = await scheduled_hours(7, policy="sliding")
    (fold, *_) = await house.events(Folded)
    assert fold.why == "due"
    spoken = [seq for seq, event in await house.logged() if isinstance(event, UserSaid)]
    assert set(fold.starts) <= set(spoken)
    assert fold.starts
    own, _, others = fold.text.partition("# Said by others")
    assert "Look." not in own  # law 8: cron never speaks as the user
    assert "[cron: look]" in others
