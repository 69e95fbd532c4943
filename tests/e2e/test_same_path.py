"""A-47: one and the same path from terminal, HTTP, bot and scheduler: same events, same requests.

The same conversation, with tools and folds, is held with the same scripted model through each call site.
What differs is who speaks: a scheduler speaks as `cron` and under its entry's name, so it is held against a
terminal loop that is told to say the same as `cron`. Requests are compared as the bytes that were sent.

A call site is a function of a model and a folder that gives the events.
"""

import asyncio
import hashlib
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from api_server import serving
from fake_telegram import BotApi

import foldline
from foldline.agent.approval import Approvals
from foldline.agent.loop import Agent
from foldline.agent.schedule.schedule_entry import build_schedule_entry
from foldline.agent.schedule.schedule_store import Schedules
from foldline.agent.schedule.scheduler import Scheduler
from foldline.agent.tool import Tool, said
from foldline.apps.bot.approval_cards import Rules
from foldline.apps.bot.bot_api import BotCalls, CallPace, bot_of
from foldline.apps.bot.bot_server import Telegram
from foldline.core import log
from foldline.session.stored_session import open_stored_session
from foldline.stores.base import Name
from foldline.stores.open_store import store_at
from foldline.testing import ScriptedModel

LONG = "Many words are said here, and more of them, until the window is full. "
WORDS = f"Look at the next page. {LONG * 20}".strip()
TURNS = 16
OPENING = {"model": "scripted", "window": 12_000, "system": "Read."}
ENTRY = "reader"


async def find(arguments):
    return said(f"Page {arguments['page']} says: {LONG * 30}")


TOOL = Tool(name="find", description="Find a page.", schema={"type": "object"}, run=find)


def script():
    """A model that looks at a page, then tells of it; the same for whoever asks."""
    asked = 0

    def answer(_):
        nonlocal asked
        asked += 1
        if not asked % 2:
            return f"Page {asked} is read. {LONG * 5}"
        function = {"name": "find", "arguments": json.dumps({"page": asked})}
        call = {"id": f"c{asked}", "type": "function", "function": function}
        return {"content": None, "tool_calls": [call]}

    return ScriptedModel(answer)


def told(events):
    return [json.loads(log.encode_event(event)) for _, event in events]


async def _logged(address, name="main"):
    store = store_at(address)
    try:
        session = await open_stored_session(store, Name("local", name))
        return told(await session.history.events())
    finally:
        await store.close()


def terminal(model, folder, **speaking):
    """As `foldline chat -m` does it: the session is opened, one message, its answer, and out."""
    address = str(folder / "terminal.db")

    async def talk():
        for _ in range(TURNS):
            opened = foldline.aopen(address, **OPENING, tools=[TOOL.offered], exclusive=30.0)
            async with opened as session:
                ended = await Agent(session, model, tools=[TOOL]).turn(WORDS, **speaking)
                assert ended.how == "answered"
        return await _logged(address)

    return asyncio.run(talk())


def staying(model, folder, **speaking):
    """As the REPL does it: one session, open for the whole of the talk."""
    assert folder

    async def talk():
        async with foldline.aopen(":memory:", **OPENING, tools=[TOOL.offered]) as session:
            agent = Agent(session, model, tools=[TOOL])
            for _ in range(TURNS):
                assert (await agent.turn(WORDS, **speaking)).how == "answered"
            return told(await session.history.events())

    return asyncio.run(talk())


def http(model, folder):
    """The session API on a real port."""
    with serving(str(folder / "http.db"), model, tools_of=lambda _: [TOOL]) as api:
        api.ok("POST", "/sessions", {"name": "main", **OPENING, "tools": []})
        for _ in range(TURNS):
            assert api.say("main", WORDS)["ended"] == "answered"
        return [one["event"] for one in api.events("main")]


class Minutes:
    """A clock that is as fast as what waits for it."""

    def __init__(self):
        self.time = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self):
        """In UTC."""
        return self.time

    async def sleep(self, seconds):
        """Let the time pass."""
        self.time += timedelta(seconds=seconds)


def scheduler(model, folder):
    """A worker with an entry that comes every minute."""
    address, clock = str(folder / "scheduler.db"), Minutes()

    @asynccontextmanager
    async def seat(session):
        opening = {**OPENING, "tools": [TOOL.offered], "session": session, "exclusive": 30.0}
        async with foldline.aopen(address, **opening) as opened:
            yield Agent(opened, model, tools=[TOOL])

    async def talk():
        store = store_at(address)
        async with seat("main"):
            pass  # as `foldline schedule add --new` begins it
        schedules = Schedules(store, "local")
        entry = build_schedule_entry(ENTRY, "main", cron="* * * * *", words=WORDS, now=clock.now())
        await schedules.add_entry(entry)
        for _ in range(TURNS):
            clock.time += timedelta(minutes=1)
            await Scheduler(schedules, seat, clock=clock).run(once=True)  # a process of its own
        assert (await schedules.read_entry(ENTRY)).fired == TURNS
        await store.close()
        return await _logged(address)

    return asyncio.run(talk())


def bot(model, folder):
    """A person who writes to the bot, over HTTP to a double of Telegram's API."""
    address = str(folder / "bot.db")
    pace = CallPace(chat=0.0, stream=0.05, again=0.02, reading=5.0, polling=20)

    @asynccontextmanager
    async def seat(session):
        opening = {**OPENING, "tools": [TOOL.offered], "session": session}
        async with foldline.aopen(address, **opening) as opened:
            approvals = Approvals(opened.live.store, "local", root=folder, ask=None)
            agent = Agent(opened, model, tools=[TOOL], approve=approvals)
            yield SimpleNamespace(agent=agent, models=lambda _: model, approvals=approvals)

    async def talk():
        store = store_at(address)
        async with BotApi() as api:
            line = BotCalls(bot_of(api.token, base_url=api.url, pace=pace), pace=pace)
            rules = Rules(allowed=frozenset({7}), lease=5.0, again=0.05, look=5.0)
            at_work = Telegram(
                line, seats=seat, store=store, tenant="local", rules=rules, tell=print
            )
            await at_work.start_bot()
            polling, ann = asyncio.create_task(at_work.poll_updates()), api.person(7, "Ann")
            try:
                for turn in range(TURNS):
                    await ann.say(WORDS)
                    await api.until(lambda: api.screen(7, None).count("📊 Context:") > turn)  # noqa: B023
            finally:
                polling.cancel()
                await asyncio.gather(polling, return_exceptions=True)
                await at_work.close()
                await store.close()
        return await _logged(address, "tg-7")

    return asyncio.run(talk())


HUMAN, CRON = {}, {"speaker": "cron", "author": ENTRY}
SITES = {
    "terminal": (terminal, HUMAN),
    "http": (http, HUMAN),
    "bot": (bot, HUMAN),
    "scheduler": (scheduler, CRON),
}
"""Each call site, and who speaks there."""


def sent(events, model):
    """What was sent, by the log's own hashes and by the bytes that the model was given."""
    bodies = [json.dumps(one, ensure_ascii=False).encode() for one in model.requests]
    return (
        [one["sha256"] for one in events if one["kind"] == "asked"],
        [hashlib.sha256(body).hexdigest() for body in bodies],
    )


@pytest.mark.parametrize("site", SITES)
def test_a47_the_same_conversation_goes_the_same_path(site, tmp_path):
    """A-47: a call site against the loop itself, where the same is said by the same speaker."""
    talk, speaking = SITES[site]
    straight, other = script(), script()
    expected = staying(straight, tmp_path, **speaking)
    found = talk(other, tmp_path)
    assert found == expected
    assert sent(found, other) == sent(expected, straight)
    kinds = [one["kind"] for one in expected]
    assert kinds.count("folded") >= 2
    assert (kinds.count("tool_returned"), kinds.count("user_said")) == (TURNS, TURNS)


def test_a47_who_speaks_is_all_that_differs(tmp_path):
    """The scheduler's log beside a person's: the same kinds in the same order, cron for human."""
    human, cron = terminal(script(), tmp_path), scheduler(script(), tmp_path)
    said_ = [one for one in cron if one["kind"] == "user_said"]
    assert {(one["speaker"], one["author"]) for one in said_} == {("cron", ENTRY)}
    first, second = ([one["kind"] for one in events if one["kind"] not in ("folded", "masked")]
                     for events in (human, cron))  # fmt: skip
    assert first == second

    def same(events, kind):
        return [{**one, "speaker": "", "author": ""} for one in events if one["kind"] == kind]

    for kind in ("user_said", "tool_returned"):
        assert same(human, kind) == same(cron, kind)
