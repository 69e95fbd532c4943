"""Patience: what is asked again, how long is waited, and whom else to ask."""

import asyncio
import random
import time

import pytest
from mutants import broken

from foldline.dialects.provider_errors import Fault
from foldline.errors import ModelFailed
from foldline.models.clients import client
from foldline.models.retries import Patience, call_with_retries
from foldline.testing import Provider, ScriptedModel, Trouble

QUICK = Patience(tries=4, first=0.001, longest=1.0, call=5.0, whole=10.0)
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Say it."}]}


def text(answer):
    return answer["choices"][0]["message"]["content"]


def asked(script, *, patience=QUICK, **given):
    """The answer or the failure, and how often a model was asked."""
    model = ScriptedModel(script)

    async def calling():
        try:
            return text(await call_with_retries(model, ASKED, patience=patience, **given))
        except ModelFailed as failed:
            return failed

    return asyncio.run(calling()), len(model.requests)


@pytest.mark.parametrize("fault", [Fault("rate", "slow"), Fault("overloaded", "busy"), Trouble.RATE, Trouble.ERROR, Trouble.CUT])  # fmt: skip
def test_what_passes_is_asked_again(fault):
    assert asked([fault, fault, "there"]) == ("there", 3)


@pytest.mark.parametrize("kind", ["auth", "tokens", "bytes", "media", "output", "other"])
def test_what_does_not_pass_is_asked_once(kind):
    failed, times = asked([Fault(kind, "no"), "never said"])
    assert (failed.fault.kind, times) == (kind, 1)


def test_a_request_above_a_rate_limit_is_not_asked_again():
    """No waiting heals a request that is larger than what a minute allows."""
    failed, times = asked([Fault("rate", "", limit=1_000, count=2_000), "never said"])
    assert (failed.fault.kind, times) == ("rate", 1)
    assert asked([Fault("rate", "", limit=2_000, count=1_000), "there"]) == ("there", 2)


def test_the_last_try_is_the_last():
    failed, times = asked([Trouble.ERROR] * 9)
    assert (failed.fault.kind, times) == ("overloaded", QUICK.tries)


def test_nothing_is_asked_again_once_it_was_heard():
    pieces = []
    failed, times = asked([Trouble.CUT, "never said"], heard=pieces.append)
    assert failed.begun
    assert times == 1
    assert pieces
    with broken("foldline.models.retries", "if failed.begun or tried", "if tried"):
        answer, times = asked([Trouble.CUT, "said twice"], heard=pieces.append)
        assert (answer, times) == ("said twice", 2)


def test_as_long_as_the_provider_asks(timed):
    """Also where our own pause would be shorter; one that asks for too long is not waited for."""
    begun = time.monotonic()
    assert asked([Fault("rate", "", retry_after=0.3), "there"]) == ("there", 2)
    assert 0.3 <= time.monotonic() - begun < timed(2.0)
    begun = time.monotonic()
    failed, times = asked([Fault("rate", "", retry_after=60.0), "never said"])
    assert (failed.fault.kind, times) == ("rate", 1)
    assert time.monotonic() - begun < timed(0.3)


def test_pauses_grow_and_are_the_same_each_time():
    patience, fault = Patience(first=0.5, longest=3.0), Fault("overloaded", "")
    assert [patience.pause(n, fault) for n in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    drawn = [patience.pause(3, fault, random.Random(seed)) for seed in range(50)]
    assert all(0 <= one <= 2.0 for one in drawn)
    assert len(set(drawn)) == 50
    assert patience.pause(3, fault, random.Random(7)) == patience.pause(3, fault, random.Random(7))


def test_silence_ends_and_says_how_long_was_waited(timed):
    patience = Patience(tries=2, first=0.001, call=0.1, whole=5.0)
    begun = time.monotonic()
    failed, times = asked([Trouble.TIMEOUT] * 2, patience=patience)
    assert "waited for 0.1 seconds" in str(failed)
    assert (failed.fault.kind, failed.begun, times) == ("overloaded", False, 2)
    assert 0.2 <= time.monotonic() - begun < timed(1.5)


def test_all_of_it_ends(timed):
    patience = Patience(tries=1_000, first=0.02, longest=0.02, call=0.05, whole=0.3)
    begun = time.monotonic()
    failed, times = asked([Trouble.TIMEOUT] * 1_000, patience=patience)
    assert failed.fault.kind == "overloaded"
    assert 1 < times < 10
    assert time.monotonic() - begun < timed(1.5)


def test_an_error_that_is_not_the_models_passes_through():
    with pytest.raises(KeyError):
        asked([KeyError("a bug")])


# The same over a real port: ten faults, and each ends as it should.

STREAM = pytest.mark.parametrize("stream", [False, True])


def over_a_port(script, *, stream, patience=QUICK):
    pieces = []

    async def calling(url):
        model = client("gpt-x", base_url=f"{url}/v1")
        try:
            given = {"heard": pieces.append} if stream else {}
            return text(await call_with_retries(model, ASKED, patience=patience, **given))
        except ModelFailed as failed:
            return failed
        finally:
            await model.close()

    with Provider(script) as provider:
        provider.late = 0.3
        return asyncio.run(calling(provider.url)), provider


@STREAM
@pytest.mark.parametrize("trouble", [Trouble.RATE, Trouble.ERROR])
def test_a_refusal_that_passes(trouble, stream):
    answer, provider = over_a_port([trouble, trouble, "there"], stream=stream)
    assert answer == "there"
    assert provider.statuses == [int(trouble.value)] * 2 + [200]


@STREAM
def test_a_server_that_never_answers(stream):
    """Each call is ended in time, and its connection with it."""
    patience = Patience(tries=2, first=0.001, call=1.5, whole=20.0)
    failed, provider = over_a_port([Trouble.TIMEOUT, "there"], stream=stream, patience=patience)
    assert failed == "there"
    assert provider.statuses == [0, 200]
    assert len(provider.left) == 1


def test_a_cut_answer():
    """Unheard it is asked again; heard it is not."""
    answer, provider = over_a_port([Trouble.CUT, "there"], stream=False)
    assert (answer, len(provider.bodies)) == ("there", 2)
    failed, provider = over_a_port([Trouble.CUT, "there"], stream=True)
    assert (failed.begun, len(provider.bodies)) == (True, 1)


@STREAM
@pytest.mark.parametrize(
    ("trouble", "said"),
    [(Trouble.EMPTY, ""), (Trouble.BLANK, " \n\t "), (Trouble.ECHO, "Say it."), (Trouble.REFUSAL, None), (Trouble.CALL, None), (Trouble.STALE, "An answer to a question of long ago.")],
)  # fmt: skip
def test_an_odd_answer_is_given_as_it_is(trouble, said, stream):
    answer, provider = over_a_port([trouble], stream=stream)
    assert answer in (said, said or None)
    assert provider.statuses == [200]


def test_a_stale_answer_comes_to_nobody():
    """It was given up; the late words are written to a closed connection and change nothing."""
    patience = Patience(tries=2, first=0.001, call=0.1, whole=5.0)
    answer, provider = over_a_port([Trouble.STALE, "there"], stream=False, patience=patience)
    assert answer == "there"
    assert len(provider.bodies) == 2
