"""The calls of a log: found near a place, with what they showed, and why a cache was missed."""

import asyncio

import msgspec
import pytest
from logs import MODEL, asked, conversation, fold, write

from foldline.apps.pages import logged_calls
from foldline.core.log import (
    Instructed,
    ModelSaid,
    ModelSwitched,
    Opened,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Text, Tool
from foldline.session.model_facts import of_session
from foldline.stores import event_log
from foldline.stores.base import Name
from foldline.stores.open_store import store_at

NAME = Name("local", "mine")


class Counting:
    """A store that counts the rows that were read."""

    def __init__(self, store):
        self._store, self.rows = store, 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def read(self, name, spans):
        """Read, and count."""
        rows = await self._store.read(name, spans)
        self.rows += len(rows)
        return rows


def in_log(events, work):
    """Something done with a log."""

    async def run():
        store = Counting(store_at(":memory:"))
        await write(store, "mine", events)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def find(events, at):
    return in_log(
        events, lambda store: logged_calls.find_calls(store, NAME, at, head=len(events) - 1)
    )


def test_each_place_finds_the_last_call_up_to_it():
    events = conversation(30)
    wanted = [at for at, event in enumerate(events) if type(event).__name__ == "Asked"]
    second = [
        at
        for at, event in enumerate(events)
        if isinstance(event, ModelSaid) and isinstance(events[at - 1], ToolReturned)
    ]
    places = sorted(wanted + second)  # the turn's second answer has no request of its own
    for at in range(len(events)):
        near = find(events, at)
        before = [one for one in places if one <= at]
        assert near.current.at == (before[-1] if before else places[0])
        assert (near.before.at if near.before else None) == (
            before[-2] if len(before) > 1 else None
        )
        later = [one for one in places if one > near.current.at]
        assert (near.following.at if near.following else None) == (later[0] if later else None)


def test_a_call_has_its_answer_and_its_count():
    events = [
        Opened(MODEL),
        UserSaid((Text("Hi."),)),
        asked(1, 55),
        ModelSaid((Text("Yes."),)),
        UsageReported(input=77, output=3),
        asked(4, 66),
    ]
    first, second = (find(events, at).current for at in (3, 9))
    assert (first.at, first.shown, first.answered, first.tokens, first.is_reported) == (
        2,
        1,
        3,
        77,
        True,
    )
    assert (second.at, second.answered, second.tokens, second.is_reported) == (5, -1, 66, False)


def test_answers_stand_for_requests_that_nobody_recorded():
    events = [
        Opened(MODEL),
        *[one for at in range(9) for one in (UserSaid((Text(f"{at}"),)), ModelSaid((Text("ok"),)))],
    ]
    near = find(events, 8)
    assert (near.current.at, near.current.shown, near.before.at, near.following.at) == (8, 7, 6, 10)


def test_a_log_without_calls_has_none():
    near = find([Opened(MODEL), UserSaid((Text("Hi."),))], 1)
    assert near.current is near.before is near.following is None


@pytest.mark.parametrize("at", [0.0, 0.5, 1.0])
def test_finding_a_call_reads_as_much_of_a_long_log_as_of_a_short_one(at):
    """Also where no request was made for a while: then it reads further, and no more than that."""

    def rows(turns):
        events = conversation(turns, size=1)

        async def work(store):
            head = len(events) - 1
            await logged_calls.find_calls(store, NAME, int(head * at), head=head)
            return store.rows

        return in_log(events, work)

    assert rows(4_000) <= rows(60) + 16
    quiet = [Opened(MODEL), asked(0), *(UserSaid((Text("x"),)) for _ in range(900)), asked(900)]
    assert find(quiet, 700).current.at == 1


def test_the_view_of_a_call_is_what_it_showed():
    events = conversation(12)

    async def work(store):
        await fold(store, "mine")
        head = (await store.head(NAME)).seq
        for at in (2, 20, len(events) - 1, head):
            bounded = await logged_calls.load_view(store, NAME, at)
            whole = (await event_log.read_tail(store, NAME, at=at)).build_view()
            assert bounded.left_out == 0
            assert bounded.view.items == whole.items
            assert (bounded.view.model, bounded.view.head) == (MODEL, at)

    in_log(events, work)


def test_of_a_view_without_bounds_only_the_newest_is_loaded():
    """And it says how much is left out; model and instructions stay known."""
    events = conversation(900, size=1)

    async def work(store):
        bounded = await logged_calls.load_view(store, NAME, len(events) - 1)
        assert store.rows < 1_100
        assert bounded.left_out > 4_000
        assert bounded.view.model == MODEL
        assert bounded.view.items[-1].seq == len(events) - 2

    in_log(events, work)


def explain(between, *, now, before=None, seconds=10.0, parameters=("{}", "{}")):
    """What the second of two calls found; `between` happened since the first."""
    start = [
        Opened(MODEL),
        Instructed((Text("Be brief."),), (Tool("t", "T", "{}"),)),
        UserSaid((Text("Hi."),)),
    ]
    first = [
        asked(2, parameters=parameters[0]),
        ModelSaid((Text("Yes."),)),
        before or UsageReported(input=40_000, cache_read=0, output=9),
    ]
    events = [*start, *first, *between]
    events += [asked(len(events) - 1, parameters=parameters[1]), ModelSaid((Text("Yes."),)), now]

    async def work(store):
        times = [1_000.0] * (3 + len(first)) + [1_000.0 + seconds] * (len(between) + 3)
        name = Name("local", "dated")
        await store.append(name, event_log.build_draft(events, times))
        near = await logged_calls.find_calls(store, name, len(events), head=len(events) - 1)
        view = (await logged_calls.load_view(store, name, near.current.shown)).view
        past = (await logged_calls.load_view(store, name, near.before.shown)).view
        return logged_calls.explain_cache(near, view, past, of_session(view.model, {}))

    return in_log([Opened(MODEL)], work)


SAID = [UserSaid((Text("More."),))]
COLD = UsageReported(input=41_000, cache_read=0, output=9)


@pytest.mark.parametrize(
    ("between", "seconds", "parameters", "words"),
    [
        ([*SAID, ModelSwitched("anthropic/claude-opus-4-5")], 10, ("{}", "{}"), "another model"),
        ([Instructed((Text("Be loud."),), (Tool("t", "T", "{}"),), replaces=True), *SAID], 10, ("{}", "{}"), "the system prompt changed"),
        ([Instructed((Text("Be brief."),), (Tool("u", "U", "{}"),)), *SAID], 10, ("{}", "{}"), "the tools changed"),
        (SAID, 10, ("{}", '{"thinking":{"type":"enabled"}}'), "the level of thinking changed"),
        (SAID, 4_000, ("{}", "{}"), "more time had passed"),
        ([ToolReturned("x", (Text("late"),))], 10, ("{}", "{}"), "nothing in the log explains it"),
    ],
)  # fmt: skip
def test_a_miss_has_its_cause(between, seconds, parameters, words):
    found = explain(between, now=COLD, seconds=seconds, parameters=parameters)
    assert found.kind == "miss"
    assert words in found.words
    assert "40,000 tokens were sent again" in found.words


def test_a_hit_and_what_is_not_known():
    assert explain(SAID, now=UsageReported(input=41_000, cache_read=40_000, output=9)).kind == "hit"
    assert (
        explain(SAID, now=UsageReported(input=41_000, cache_read=30_000, output=9)).kind == "part"
    )
    assert explain(SAID, now=UsageReported(input=41_000, output=9)).kind == "unknown"
    assert explain(SAID, now=UsageReported(output=9)).kind == "unknown"
    small = UsageReported(input=400, cache_read=0, output=9)
    assert (
        "too little"
        in explain(SAID, before=small, now=msgspec.structs.replace(small, input=420)).words
    )


def test_a_guess_is_called_one():
    """The record shows no change, and yet nothing was found at the begin of a turn."""
    found = explain(SAID, now=COLD)
    assert found.kind == "miss"
    assert "a guess" in found.words


def test_an_edit_is_named_by_what_it_did():
    async def work(store):
        at = await fold(store, "mine")
        ((seq, told), *_) = await logged_calls.list_newest_edits(
            store, NAME, head=(await store.head(NAME)).seq, most=5
        )
        assert seq == at
        assert told.describe().startswith("fold of ")
        (event,) = await event_log.read_events(store, NAME, logged_calls.Range(at, at))
        assert logged_calls.summarise_edit(event.event) == told

    in_log(conversation(12), work)
