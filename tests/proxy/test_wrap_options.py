"""Options of a wrapped client that a session has too: reserve, summarizer, caps."""

import json
import time
from contextlib import suppress

import pytest
from test_wrap_names import ask, make_openai

import foldline
from foldline.errors import BadInput, Spent
from foldline.session.spending import Cap, Caps
from foldline.testing.models import ScriptedModel
from foldline.testing.provider import Provider

WORDS = "The run printed nothing of note, and the file is as it was. " * 12


def test_a_reserve_is_kept_free():
    with Provider() as provider, make_openai(provider, window=4_000, reserve=1_500) as client:
        ask(client, "Hello")
        assert foldline.session_of(client).report.reserve == 1_500


def test_a_call_that_would_pass_a_cap_is_not_made_and_says_so():
    caps = Caps(session=Cap(tokens=9_000))
    with (
        Provider() as provider,
        make_openai(provider, window=8_000, reserve=1_000, caps=caps) as client,
    ):
        history, asked = ["Hello"], 0
        with suppress(Spent):
            for _ in range(40):
                history += [ask(client, *history).choices[0].message.content, WORDS]
                asked += 1
        assert 0 < asked < 40  # or nobody was stopped
        assert len(provider.bodies) == asked
        assert len(foldline.session_of(client).history.turns()) == asked  # nothing of the last


def test_what_was_reserved_comes_back_when_a_call_fails():
    """Three calls of 1,000 tokens each would pass the cap if refusals were counted."""
    caps = Caps(session=Cap(tokens=2_500))
    with (
        Provider() as provider,
        make_openai(provider, window=8_000, reserve=1_000, caps=caps) as client,
    ):
        provider.refusal = (500, {"error": {"message": "later"}})
        for _ in range(4):
            with pytest.raises(Exception, match="later"):
                ask(client, "Hello")
        provider.refusal = None
        assert ask(client, "Hello").choices


def test_nobody_answers_and_what_was_reserved_comes_back():
    caps = Caps(session=Cap(tokens=2_500))
    with Provider() as provider:
        client = make_openai(provider, window=8_000, reserve=1_000, caps=caps, session="mine")
        url = client.base_url
        client.base_url = "http://127.0.0.1:9/v1"
        for _ in range(4):
            with pytest.raises(Exception, match="Connection error"):
                ask(client, "Hello")
        client.base_url = url
        assert ask(client, "Hello").choices
        client.close()


def test_a_summarizer_tells_what_folds_have_taken():
    asked = []

    def tell(body):
        asked.append(json.dumps(body))
        return "## Facts\n- The run printed nothing of note."

    with Provider() as provider:
        teller = ScriptedModel(tell)
        with make_openai(provider, window=3_000, summarizer=teller) as client:
            history = ["Hello"]
            for turn in range(24):
                history += [ask(client, *history).choices[0].message.content, f"{turn} {WORDS}"]
                time.sleep(0.02)
            assert asked
            assert foldline.session_of(client).edits


def test_a_summarizer_that_a_wrapped_client_cannot_have_is_refused():
    with Provider() as provider, pytest.raises(BadInput, match="name a model here"):
        make_openai(provider, summarizer="worker")
