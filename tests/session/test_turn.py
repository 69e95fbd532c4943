"""A turn: planned, asked, healed once, and left whole whatever ends it."""

import asyncio
import time

import pytest
from mutants import broken

import foldline
from foldline.core.log import Asked, ModelSaid, ServerTruncated, UsageReported, WindowLearned
from foldline.core.policy import named
from foldline.dialects import anthropic as messages
from foldline.dialects import openai_chat as chat
from foldline.dialects.provider_errors import Fault
from foldline.errors import BadInput, Conflict, ModelFailed, Spent
from foldline.models.clients import client
from foldline.models.retries import Patience
from foldline.session.spending import Cap, Caps, Spending
from foldline.session.turn import reply, turn_of
from foldline.testing import Provider, ScriptedModel, Trouble
from foldline.testing.provider import HALF

WORDS = "The run printed nothing of note, and the file is as it was. " * 6
ONCE = Patience(tries=1, call=5.0)
NAMES = {"openai": "gpt-x", "anthropic": "claude-x"}
BOTH = pytest.mark.parametrize("sdk", NAMES)


async def events(session):
    return [event for _, event in await session.history.events()]


async def of_kind(session, kind):
    return [event for event in await events(session) if isinstance(event, kind)]


def a_client(provider, sdk):
    return client(NAMES[sdk], base_url=provider.url + ("/v1" if sdk == "openai" else ""))


@BOTH
@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_outlives_a_window_that_nobody_stated(sdk, stream):
    """R-08, R-13: told 100,000 and given 3,000, one refusal teaches it; no other ever comes."""
    judge = (messages if sdk == "anthropic" else chat).list_faults
    pieces = []

    async def talk(provider):
        model = a_client(provider, sdk)
        given = {"heard": pieces.append} if stream else {}
        async with foldline.aopen(":memory:", model=NAMES[sdk], window=100_000, reserve=200) as s:
            for turn in range(30):
                await s.add(f"Turn {turn}. {WORDS}")
                answer = await reply(s, model, patience=ONCE, max_tokens=150, **given)
                assert answer
            assert s.edits
            assert [one.window for one in await of_kind(s, WindowLearned)] == [3_000]
            assert len(await of_kind(s, ModelSaid)) == 30
            assert len(await of_kind(s, UsageReported)) == 30
            assert (await s.history.sent(s.asked))["messages"] == provider.asked[-1]["messages"]
        await model.close()

    with Provider(lambda body: f"noted {len(body['messages'])}", window=3_000) as provider:
        asyncio.run(talk(provider))
        assert provider.statuses.count(400) == 1
        assert provider.statuses.count(200) == 30
        for body in provider.asked:
            assert not judge(body["messages"])
    assert bool(pieces) is stream


def run(script, work, *, name="scripted", window=100_000, **given):
    """Some work on a session with one message in it, and a scripted model."""
    model = ScriptedModel(script, name=name, window=given.pop("takes", None))

    async def working():
        async with foldline.aopen(":memory:", model=name, window=window, **given) as s:
            await s.add("Make the tests pass.")
            return await work(s, model)

    return asyncio.run(working())


def test_one_retry_and_no_more():
    """R-13: a provider that refuses everything is asked twice, and its own words are told."""
    refusal = Fault("tokens", "too long")

    async def work(s, model):
        for turn in range(40):
            await s.add(f"{turn} {WORDS}")
        with pytest.raises(ModelFailed, match="too long"):
            await reply(s, model, patience=ONCE)
        return len(model.requests), len(await of_kind(s, Asked)), await of_kind(s, ModelSaid)

    assert run([refusal] * 9, work) == (2, 2, [])
    with broken("foldline.session.turn", "return await one.call_model(instead, patience, heard)", "return await reply(session, model, patience=patience)"):  # fmt: skip
        assert run([refusal] * 9, work) != (2, 2, [])


def test_a_refusal_that_no_edit_heals_is_told_at_once():
    for fault in (Fault("auth", "who?"), Fault("media", "no pictures"), Fault("other", "what?")):

        async def work(s, model):
            with pytest.raises(ModelFailed):
                await reply(s, model, patience=ONCE)
            return len(model.requests)

        assert run([fault, "never said"], work) == 1


@pytest.mark.parametrize(("filled", "outcome"), [(0.84, ("other", 1)), (0.9, ("answered", 2))])
def test_an_unexplained_refusal_of_a_full_window_is_suspected(filled, outcome, monkeypatch):
    """R-12, by what the SDK raised: above 85 % it is taken for an overflow, below it is not."""
    monkeypatch.setattr("foldline.session.refusals.measure_fill", lambda _: filled)
    asked = []

    async def talk(provider):
        model = client("gpt-x", base_url=f"{provider.url}/v1")
        async with foldline.aopen(":memory:", model="gpt-x", window=3_000, reserve=10) as s:
            for turn in range(12):
                await s.add(f"{turn} {WORDS}")
                await s.add({"role": "assistant", "content": f"noted {turn}"})
            await s.add("And now?")
            try:
                await reply(s, model, patience=ONCE)
            except ModelFailed as failed:
                return failed.fault.kind
            finally:
                await model.close()
            return "answered"

    def refuse(body, *_):
        asked.append(body)
        return (400, {"error": {"message": "Error"}}) if len(asked) == 1 else None

    with Provider() as provider:
        provider.refuse = refuse
        assert (asyncio.run(talk(provider)), len(asked)) == outcome


def test_a_server_that_cuts_the_prompt_is_noticed():
    """R-11: what it counted is far below what was sent."""
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}

    async def work(s, model):
        await s.add(WORDS * 10)
        say = model.say

        async def counted(request, **given):
            return {**await say(request, **given), "usage": usage}

        model.say = counted
        await reply(s, model)
        return await of_kind(s, ServerTruncated)

    (found,) = run(["ok"], work)
    assert found.reported == 9
    assert found.estimated > 500


# whatever ends a call, the log goes on.


@pytest.mark.parametrize("streams", [False, True])
def test_a_cut_answer_is_kept_as_far_as_it_was_heard(streams):
    heard = []

    async def work(s, model):
        with pytest.raises(ModelFailed):
            await reply(s, model, patience=ONCE, heard=heard.append if streams else None)
        said = await of_kind(s, ModelSaid)
        await s.add("go on")
        assert not chat.list_faults((await s.request())["messages"])
        return said

    said = run([Trouble.CUT], work)
    assert len(said) == streams
    if streams:
        assert said[0].stop == "cut"
        assert said[0].parts[0].text == "".join(heard) == HALF[: len(HALF) // 2]
        assert said[0].saw == 1


@BOTH
@pytest.mark.parametrize("where", ["before the first token", "in the middle"])
def test_a_cancelled_turn_ends_within_a_second_and_leaves_the_log_whole(
    sdk, where, tmp_path, timed
):
    middle = where == "in the middle"
    heard = []

    async def work(provider):
        model = a_client(provider, sdk)
        store = str(tmp_path / "chat.db")
        async with foldline.aopen(store, model=NAMES[sdk], window=100_000) as s:
            await s.add("Make the tests pass.")
            task = asyncio.create_task(reply(s, model, heard=heard.append))
            while not (heard if middle else provider.bodies):  # noqa: ASYNC110 - of a thread
                await asyncio.sleep(0.005)
            begun = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            took = time.monotonic() - begun
            said = await of_kind(s, ModelSaid)
            await s.add("never mind, go on")
            provider.stall = None
            await reply(s, model)
            assert provider.asked[-1]["messages"][-1]["role"] == "user"
        async with foldline.aopen(store, model=NAMES[sdk], window=100_000) as s:
            assert len(await of_kind(s, ModelSaid)) == len(said) + 1
        await model.close()
        return took, said

    script = ["words that come " * 3 if middle else Trouble.TIMEOUT, "gone on"]
    with Provider(script) as provider:
        provider.stall = 3 if middle else None
        took, said = asyncio.run(work(provider))
        while not provider.left:
            time.sleep(0.005)
    print(f"\n{sdk}, {where}: a turn cancelled in {took * 1000:.0f} ms")
    assert took < timed(1.0)
    assert [one.stop for one in said] == (["cancelled"] if middle else [])
    if middle:
        assert said[0].parts[0].text == "".join(heard)


def test_an_answer_that_cannot_be_read_adds_nothing():
    async def work(s, model):
        before = len(await events(s))

        async def nothing(_request, **_):
            return {"object": "chat.completion", "choices": []}

        model.say = nothing
        with pytest.raises(ModelFailed, match="cannot be read"):
            await reply(s, model)
        return len(await events(s)) - before

    assert run(["ok"], work) == 1  # that it was asked


def test_a_message_that_came_during_the_answer_is_not_taken_for_answered():
    async def work(s, model):
        model.delay = 0.05
        answering = asyncio.create_task(reply(s, model))
        await asyncio.sleep(0.02)
        await s.add("and the docs too")
        await answering
        request = await s.request()
        return [one["content"] for one in request["messages"]]

    assert run(["done"], work) == ["Make the tests pass.", "done", "and the docs too"]


def test_another_writer_is_told_of():
    """A conflict raises; the answer is not forced in."""

    async def work(s, model):
        async def meanwhile(request, **given):
            other = type(s.live)(
                s.live.store, s.live.name, view=s.live.view.copy(), facts=s.live.facts
            )
            await type(s)(other).add("from elsewhere")
            return await ScriptedModel(["ok"]).say(request, **given)

        model.say = meanwhile
        with pytest.raises(Conflict):
            await reply(s, model)

    run([], work)


def test_a_model_of_another_dialect_is_told_before_anything_is_sent():
    async def work(s, _):
        with pytest.raises(BadInput, match="dialect"):
            await reply(s, ScriptedModel(name="claude-x"))
        return len(await events(s))

    assert run([], work) == 2


def test_where_a_turn_began():
    """Notices and results begin none; a fold does not hide it."""

    async def work(s, model):
        assert turn_of(s.live.view) == 1
        await s.add("news", speaker="notice")
        assert turn_of(s.live.view) == 1
        await s.add("tick", speaker="cron")  # scheduled turns are turns, with caps of their own
        assert turn_of(s.live.view) == s.live.view.head
        for turn in range(20):
            await s.add(f"{turn} {WORDS}")
            place = s.live.view.head
            assert turn_of(s.live.view) == place
            await reply(s, model)
            assert turn_of(s.live.view) == place
        return s.edits

    assert run(lambda _: "ok", work, window=2_000, reserve=100)


# What is spent on a turn.


def spending(s, **caps):
    return Spending(s.live.store, s.live.name, s.live.facts.prices, Caps(**caps))


def test_a_cap_stops_a_turn_before_it_is_sent():
    async def work(s, model):
        purse = spending(s, turn=Cap(tokens=1_300))
        await reply(s, model, spending=purse, max_tokens=500)
        await reply(s, model, spending=purse, max_tokens=500)
        with pytest.raises(Spent, match="cap per turn"):
            await reply(s, model, spending=purse, max_tokens=1_250)
        asked = len(model.requests)
        await s.add("another turn")
        await reply(s, model, spending=purse, max_tokens=1_000)
        counted = await purse.read_spent()
        used = [one.input + one.output for one in await of_kind(s, UsageReported)]
        assert counted.session.tokens == sum(used)
        assert counted.turn.tokens == used[-1]
        return asked, len(model.requests)

    assert run(lambda _: "ok", work) == (2, 3)


def test_a_refused_call_costs_nothing_and_its_retry_is_paid():
    async def work(s, model):
        purse = spending(s, session=Cap(dollars=10.0))
        for turn in range(8):
            await s.add(f"{turn} {WORDS}")
        await reply(s, model, spending=purse, patience=ONCE, max_tokens=50)
        assert len(model.requests) == 2
        (used,) = await of_kind(s, UsageReported)
        assert (await purse.read_spent()).session.tokens == used.input + used.output
        with pytest.raises(ModelFailed):
            await reply(s, model, spending=purse, patience=ONCE, max_tokens=50)
        assert (await purse.read_spent()).session.tokens == used.input + used.output

    run(["ok", Fault("auth", "who?")], work, takes=700, policy=named("steady").name)


def test_a_cut_or_cancelled_call_is_counted_as_estimated():
    async def work(s, model):
        purse = spending(s, session=Cap(tokens=100_000))
        with pytest.raises(ModelFailed):
            await reply(s, model, spending=purse, patience=ONCE, heard=lambda _: None)
        cut = (await purse.read_spent()).session.tokens
        task = asyncio.create_task(reply(s, model, spending=purse, patience=ONCE))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        counted = await purse.read_spent()
        assert 0 < cut < counted.session.tokens < 100
        # Nothing is left set aside: all but what was counted may be spent.
        await purse.reserve_call(0, 100_000 - counted.session.tokens)

    run([Trouble.CUT, Trouble.TIMEOUT], work)
