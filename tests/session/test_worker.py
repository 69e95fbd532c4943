"""A worker's fold: installed once whatever ends the worker, never in a holder's way, nothing sent."""

import asyncio
from contextlib import suppress

import pytest
from folding import SETTINGS, due, events_of, folds_of, goals, made, telling
from mutants import broken

from foldline.core import log
from foldline.core.log import Edit
from foldline.dialects.openai_chat.dialect import DIALECT as OPENAI
from foldline.dialects.provider_errors import Fault
from foldline.errors import BadInput, Conflict
from foldline.models.summarize import Tellers
from foldline.session import planning
from foldline.session.fold_worker import fold_session
from foldline.session.log_handle import Live
from foldline.session.model_facts import of_session
from foldline.session.summaries import Preparing
from foldline.stores import event_log
from foldline.stores.base import Name
from foldline.stores.sqlite import SqliteStore
from foldline.testing import ScriptedModel, calls, model, user

pytestmark = pytest.mark.anyio
NAME = Name("acme", "main")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def store():
    opened = SqliteStore(":memory:")
    yield opened
    await opened.close()


async def test_a_fold_that_is_due_is_installed_with_its_narrative(store):
    """Nothing else is appended, and the second run finds nothing to do."""
    await made(store, NAME)
    teller = ScriptedModel(goals)
    done = await fold_session(store, NAME, tellers=telling(teller), install=True)
    assert (done.outcome, done.reason, done.by) == ("folded", "", "scripted")
    assert done.after < done.before / 1.5
    (fold,) = await folds_of(store, NAME)
    assert fold.by == "scripted"
    assert "# The user's goals and preferences" in fold.text
    events = await events_of(store, NAME)
    assert all(isinstance(event, Edit) for event in events[len(due()) :])
    assert not any(isinstance(event, log.Asked) for event in events)
    again = await fold_session(store, NAME, tellers=telling(teller), install=True)
    assert again.outcome == "nothing"
    assert await events_of(store, NAME) == events
    assert len(teller.requests) <= 2
    assert not await _held(store)


async def test_the_session_goes_on_from_it(store):
    await made(store, NAME)
    await fold_session(store, NAME, install=True)
    live = await Live.open(store, NAME, facts=of_session("scripted", SETTINGS))
    sent = await planning.plan_and_record_request(live, {}, dialect=OPENAI)
    assert b"go on" in sent
    assert len(await folds_of(store, NAME)) == 1


@pytest.mark.parametrize("turns", [5, 8], ids=["near", "due"])
async def test_without_install_it_only_prepares(store, turns):
    """The session's own request takes what is prepared."""
    events = due(turns=turns)
    await made(store, NAME, events)
    done = await fold_session(store, NAME, tellers=telling())
    assert (done.outcome, done.by) == ("prepared", "scripted")
    assert await events_of(store, NAME) == events
    facts = of_session("scripted", SETTINGS)
    live = await Live.open(store, NAME, facts=facts)
    live.narrator = Preparing(Tellers(()))
    for n in range(8):
        await live.receive_events(user(f"more {n} " + "pasted text " * 20))
        await planning.plan_and_record_request(live, {}, dialect=OPENAI)
        await live.receive_events(model("answer text " * 20))
        if found := await folds_of(store, NAME):
            break
    assert found[0].by == "scripted"
    nobody = await fold_session(store, Name("acme", "none"), tellers=telling())
    assert nobody.outcome == "gone"


async def test_nothing_is_due_and_nothing_is_written(store):
    await made(store, NAME, due(turns=1))
    done = await fold_session(store, NAME, tellers=telling(), install=True)
    assert (done.outcome, done.reason) == ("nothing", "no fold is due")
    assert len(await events_of(store, NAME)) == len(due(turns=1))


async def test_a_session_that_is_held_is_left_to_its_holder(store):
    await made(store, NAME)
    held = await store.lease(NAME, "somebody", seconds=30)
    done = await fold_session(store, NAME, install=True)
    assert done.outcome == "busy"
    assert "somebody works on the session" in done.reason
    assert not await folds_of(store, NAME)
    await store.release(held)
    assert (await fold_session(store, NAME, install=True)).outcome == "folded"


@pytest.mark.parametrize("when", ["before", "while it is told", "never there"])
async def test_an_erased_session_is_done_with(store, when):
    """R-73: no error, nothing to try again, and nothing comes back."""
    if when != "never there":
        await made(store, NAME)
    if when == "before":
        await store.erase(NAME)

    def erasing(request):
        store.db.sql("delete from side")
        asyncio.get_running_loop().create_task(store.erase(NAME))
        return goals(request)

    teller = ScriptedModel(erasing if when == "while it is told" else goals, delay=0.01)
    done = await fold_session(store, NAME, tellers=telling(teller), install=True)
    assert done.outcome == "gone"
    assert await store.sessions("acme") == []


async def test_a_session_in_the_middle_of_something_is_left(store):
    """Whoever waits for an answer or a result finds the log as it was."""
    await made(store, NAME, [*due(), calls("c1")])
    done = await fold_session(store, NAME, install=True)
    assert (done.outcome, "calls wait" in done.reason) == ("left", True)
    other = Name("acme", "asked")
    facts = of_session("scripted", {**SETTINGS, "window": 100_000})
    await made(store, other, due())
    live = await Live.open(store, other, facts=facts)
    await planning.plan_and_record_request(live, {}, dialect=OPENAI)
    head = (await store.head(other)).seq
    done = await fold_session(store, other, install=True)
    assert (done.outcome, "an answer is under way" in done.reason) == ("left", True)
    assert (await store.head(other)).seq == head


@pytest.mark.parametrize("fault", [Fault("overloaded", "gone fishing"), "Sure! All is well."])
async def test_a_teller_that_fails_does_not_keep_the_fold(store, fault):
    await made(store, NAME)
    teller = ScriptedModel(lambda _: fault)
    done = await fold_session(store, NAME, tellers=telling(teller), install=True)
    assert (done.outcome, done.by) == ("folded", "")
    assert done.reason
    assert teller.requests


async def test_a_teller_that_cannot_be_had_does_not_keep_the_fold(store):
    await made(store, NAME)

    def missing(_model, _host):
        raise BadInput("no key for scripted")

    done = await fold_session(store, NAME, tellers=missing, install=True)
    assert (done.outcome, done.reason) == ("folded", "no key for scripted")


class Killed(BaseException):
    """As kill -9: nothing of ours runs after it."""


class Deadly:
    """A store whose owner is killed at its nth operation, before or behind it."""

    def __init__(self, store, at, *, behind):
        self._store, self._at, self._behind, self.count = store, at, behind, 0

    def __getattr__(self, name):
        async def doing(*args, **kwargs):
            self.count += 1
            if self.count > self._at or (self.count == self._at and not self._behind):
                raise Killed
            result = await getattr(self._store, name)(*args, **kwargs)
            if self.count == self._at:
                raise Killed
            return result

        return doing


async def _killed_everywhere(store):
    """Kill a worker at every operation in turn; how many points there are."""
    at, done = 0, False
    while not done:
        at += 1
        for behind in (False, True):
            name = Name("acme", f"{at} {behind}")
            await made(store, name)
            try:
                deadly = Deadly(store, at, behind=behind)
                await fold_session(deadly, name, tellers=telling(), install=True, seconds=0.02)
                done = True
            except Killed:
                pass
            for _ in range(100):
                second = await fold_session(store, name, tellers=telling(), install=True)
                if second.outcome != "busy":
                    break
                await asyncio.sleep(0.005)  # until the lease of who was killed has run out
            assert second.outcome in ("folded", "nothing")
            events = await events_of(store, name)
            assert sum(isinstance(event, log.Folded) for event in events) == 1, (at, behind)
            assert events[: len(due())] == due()
            assert all(isinstance(event, Edit) for event in events[len(due()) :])
            live = await Live.open(store, name, facts=of_session("scripted", SETTINGS))
            assert b"go on" in await planning.plan_and_record_request(live, {}, dialect=OPENAI)
    return at - 1


async def test_whoever_is_killed_at_any_point_the_fold_is_made_once(store):
    points = await _killed_everywhere(store)
    print(f"\nkilled at {points} operations, before and behind each")
    assert points >= 10


async def test_a_worker_that_folds_whether_it_is_due_or_not_is_seen(store):
    """The control: the second run would fold once more."""
    line = "facts = replace(facts, cache=cache, prepared="
    instead = "facts = replace(facts, now=True, prepared="
    with broken("foldline.session.planning", line, instead), pytest.raises(AssertionError):
        await _killed_everywhere(store)


class Slow:
    """A store whose owner stands still before it appends, until told to go on."""

    def __init__(self, store):
        self._store, self.there, self.go = store, asyncio.Event(), asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def append(self, *args, **kwargs):
        """Stand still."""
        self.there.set()
        await self.go.wait()
        return await self._store.append(*args, **kwargs)


async def _overtaken(store):
    """A worker stands still for longer than its lease; another one makes the fold meanwhile."""
    await made(store, NAME)
    slow = Slow(store)
    first = asyncio.create_task(fold_session(slow, NAME, install=True, seconds=1.0))
    await slow.there.wait()
    assert (await fold_session(store, NAME, install=True)).outcome == "busy"
    await asyncio.sleep(1.05)
    assert (await fold_session(store, NAME, install=True)).outcome == "folded"
    slow.go.set()
    with suppress(Conflict):
        await first
    assert len(await folds_of(store, NAME)) == 1


async def test_two_workers_make_one_fold(store):
    """R-63: who comes late is refused by a number, and folds nothing."""
    await _overtaken(store)
    assert (await store.lease(NAME, "somebody", seconds=1)).fence == 3


async def test_without_fence_and_end_there_would_be_two(store):
    line = "await self.store.append(self.name, draft, after=after, fence=fence)"
    with (
        broken(
            "foldline.session.log_handle",
            line,
            "await self.store.append(self.name, draft)",
        ),
        pytest.raises(AssertionError),
    ):
        await _overtaken(store)


async def test_what_comes_in_meanwhile_is_folded_with_or_kept(store):
    """A message between the plan and the append: decided again, of what is there then."""
    await made(store, NAME)
    slow = Slow(store)
    work = asyncio.create_task(fold_session(slow, NAME, install=True))
    await slow.there.wait()
    await event_log.append_events(store, NAME, [user("inbound")], once="m1")
    slow.go.set()
    assert (await work).outcome == "folded"
    assert len(await folds_of(store, NAME)) == 1
    live = await Live.open(store, NAME, facts=of_session("scripted", SETTINGS))
    assert (await planning.plan_and_record_request(live, {}, dialect=OPENAI)).count(b"inbound") == 1


async def _held(store):
    lease = await store.lease(NAME, "somebody else", seconds=0.01)
    return lease is None
