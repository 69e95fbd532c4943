"""Clients, turns and cancelling against a real model: both SDKs, streamed and not."""

import asyncio
import time

import pytest

import foldline
from foldline.core.log import Asked, ModelSaid, UsageReported, WindowLearned
from foldline.dialects import base
from foldline.models.clients import client
from foldline.models.retries import Patience
from foldline.session.spending import Cap, Caps, Spending
from foldline.session.turn import reply

NAMES = {"openai": "smollm2", "anthropic": "claude-smollm2"}
BOTH = pytest.mark.parametrize("sdk", NAMES)
WORDS = "The test run printed nothing of note, and the file is as it was. " * 16
ONCE = Patience(tries=2, first=0.1, call=400.0)  # the server ends connections that are idle


def a_client(server, sdk):
    return client(NAMES[sdk], base_url=server.url + ("/v1" if sdk == "openai" else ""))


@pytest.mark.real
@BOTH
def test_answers_with_their_usage(model_server, sdk):
    """Streamed and not, the same words at temperature 0, both from the server's cache.

    A prompt that is read whole gives other last bits than one from the cache, and may give another word.
    """
    request = {
        "model": NAMES[sdk], "max_tokens": 12, "temperature": 0,
        "messages": [{"role": "user", "content": f"{sdk}: {WORDS} Say something."}],
    }  # fmt: skip

    async def work():
        model, pieces = a_client(model_server, sdk), []
        await model.say(request)
        whole = await model.say(request)
        streamed = await model.say(request, heard=pieces.append)
        await model.close()
        return whole, streamed, pieces

    whole, streamed, pieces = asyncio.run(work())
    own = base.choose_model_dialect(NAMES[sdk])
    first, second = (base.parse_any_message(one, own=own, saw=None, asked=None) for one in (whole, streamed))  # fmt: skip
    assert "".join(pieces) == second[0].parts[0].text == first[0].parts[0].text
    assert len(pieces) > 3
    for usage in (first[1], second[1]):
        assert usage.input > 200
        assert 1 <= usage.output <= 12
        assert usage.cache_read > 0.8 * usage.input
    print(f"\n{sdk}: {first[1]}; again, streamed: {second[1]}")


@pytest.mark.real
@pytest.mark.parametrize(("sdk", "stream"), [("openai", True), ("anthropic", False)])
def test_a_turn_survives_an_overflow(model_server, sdk, stream):
    """R-08, R-13: twice the real window is stated; one refusal, one edit, and both are answered."""
    heard = []

    async def work():
        model = a_client(model_server, sdk)
        given = {"heard": heard.append} if stream else {}
        async with foldline.aopen(":memory:", model=NAMES[sdk], window=4_096, reserve=64) as s:
            caps = Caps(session=Cap(tokens=100_000))
            purse = Spending(s.live.store, s.live.name, s.live.facts.prices, caps)
            for turn in range(9):
                await s.add(f"Turn {turn}. {WORDS}")
                await s.add({"role": "assistant", "content": "Noted."})
            for words in ("And now?", "And then?"):
                await s.add(words)
                await reply(s, model, patience=ONCE, spending=purse, max_tokens=4, **given)
            events = [event for _, event in await s.history.events()]
            counted = await purse.read_spent()
            report = s.report
        await model.close()
        return events, counted, report

    events, counted, report = asyncio.run(work())
    learned = [one.window for one in events if isinstance(one, WindowLearned)]
    usages = [one for one in events if isinstance(one, UsageReported)]
    print(f"\n{sdk}: {len(usages)} answers, learned {learned}, {counted.session}; {report}")
    assert learned == [model_server.window]
    assert len([one for one in events if isinstance(one, ModelSaid)]) == 9 + len(usages) == 11
    assert len([one for one in events if isinstance(one, Asked)]) == 3  # one of them was refused
    assert counted.session.tokens == sum(one.input + one.output for one in usages)
    assert report.window == model_server.window
    assert bool(heard) is stream


@pytest.mark.real
@pytest.mark.parametrize(
    ("sdk", "where"),
    [
        ("openai", "before the first token"),
        ("anthropic", "in the middle"),
        pytest.param("openai", "in the middle", marks=pytest.mark.long),
        pytest.param("anthropic", "before the first token", marks=pytest.mark.long),
    ],
)
def test_cancelling_a_real_answer(model_server, sdk, where, timed):
    """R-53: over within a second, and the server's only slot is free for the next one."""
    pieces, middle = [], where == "in the middle"

    async def work():
        model = a_client(model_server, sdk)
        async with foldline.aopen(":memory:", model=NAMES[sdk], window=2_048, reserve=1_000) as s:
            words = "" if middle else WORDS * 2
            await s.add(f"{sdk} {where}. Count from one to one thousand, in words. {words}")
            begun = 0.0

            def stop():
                nonlocal begun
                begun = time.monotonic()
                task.cancel()

            def hear(piece):
                pieces.append(piece)
                if middle and len(pieces) == 1:  # at once: the answer may be a short one
                    stop()

            task = asyncio.create_task(reply(s, model, heard=hear, max_tokens=1_000))
            if not middle:
                await asyncio.sleep(0.3)
                stop()
            with pytest.raises(asyncio.CancelledError):
                await task
            took = time.monotonic() - begun
            said = [event for _, event in await s.history.events() if isinstance(event, ModelSaid)]
            await s.add("Say one word.")
            begun = time.monotonic()
            await reply(s, model, patience=ONCE, max_tokens=2)
            after = time.monotonic() - begun
        await model.close()
        return took, after, said

    took, after, said = asyncio.run(work())
    print(
        f"\n{sdk}, {where}: cancelled in {took * 1000:.0f} ms; the next answer took {after:.1f} s"
    )
    assert took < timed(1.0)
    assert [one.stop for one in said] == ["cancelled"] * bool(pieces)
    assert bool(pieces) is middle
