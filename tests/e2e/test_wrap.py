"""Wrapped clients against a real server that refuses what is too long: R-08, R-13."""

import anthropic
import httpx2
import openai
import pytest

import foldline

WORDS = "The test run printed nothing of note, and the file is as it was. " * 8


def heard(statuses):
    """An HTTP client that notes every status which really came over the wire."""
    return httpx2.Client(event_hooks={"response": [lambda r: statuses.append(r.status_code)]})


def with_openai(server, statuses):
    client = foldline.wrap(
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", http_client=heard(statuses))
    )  # fmt: skip
    history = []
    for turn in range(11):
        history.append({"role": "user", "content": f"Turn {turn}. {WORDS}"})
        reply = client.chat.completions.create(model="smollm2", messages=history, max_tokens=4)
        history.append(reply.choices[0].message)
    return client


def with_anthropic(server, statuses):
    client = foldline.wrap(
        anthropic.Anthropic(base_url=server.url, api_key="none", http_client=heard(statuses))
    )  # fmt: skip
    history = []
    for turn in range(11):
        history.append({"role": "user", "content": f"Turn {turn}. {WORDS}"})
        with client.messages.stream(model="smollm2", messages=history, max_tokens=4) as stream:
            reply = stream.get_final_message()
        history.append({"role": "assistant", "content": reply.content})
    return client


@pytest.mark.real
@pytest.mark.parametrize("talk", [with_openai, with_anthropic])
def test_a_real_overflow_is_recovered_in_one_retry(narrow_server, talk):
    """Nobody said how large the window is: one refusal teaches it, and no other ever comes.

    The clients retry as they come: the server may close a connection that was idle for five seconds, and no status tells of it.
    """
    statuses = []
    with talk(narrow_server, statuses) as client:
        session = client.foldline.session
        print(f"\n{talk.__name__}: {statuses.count(200)} answers, {statuses.count(400)} refused; {session.report}")  # fmt: skip
        assert statuses.count(200) == 11
        assert statuses.count(400) == 1
        assert session.report.window == narrow_server.window
        assert session.edits
