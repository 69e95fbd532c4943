"""A real model's `/v1/responses`, asked by the official SDK, far past its window: through a session, and through `wrap`."""

import pytest
from openai import OpenAI

import foldline

TURNS = 30
WORDS = "The test run printed nothing of note, and the file is as it was. " * 8


def by_session(server, folder):
    """`client.responses.create(**s.request())`: the input tokens that the server counted, and the session."""
    client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=2)
    session = foldline.open(
        folder / "talk.db",
        model="smollm2",
        dialect="openai-responses",
        system="Be brief.",
        window=server.window,
        reserve=64,
    )
    counted = []
    for turn in range(TURNS):
        session.add(f"Turn {turn}. {WORDS}")
        answer = client.responses.create(**session.request(max_output_tokens=8))
        session.add(answer)
        counted.append(answer.usage.input_tokens)
    return counted, session


def by_wrap(server, folder):
    """The same by a wrapped client that keeps its own items, streamed."""
    client = foldline.wrap(
        OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=2),
        store=folder / "talks.db", window=server.window,
    )  # fmt: skip
    items, counted = [], []
    for turn in range(TURNS):
        items.append({"role": "user", "content": f"Turn {turn}. {WORDS}"})
        stream = client.responses.create(
            model="smollm2", input=items, instructions="Be brief.", max_output_tokens=8, stream=True
        )
        # The SDK's `responses.stream()` wants more of each event than this server says.
        answer = [event for event in stream if event.type == "response.completed"][-1].response
        items += [one.model_dump(exclude_none=True) for one in answer.output]
        counted.append(answer.usage.input_tokens)
    return counted, foldline.session_of(client)


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("talk", [by_session, by_wrap])
def test_thirty_turns_stay_inside_a_window_of_2048_tokens(model_server, tmp_path, talk):
    counted, session = talk(model_server, tmp_path)
    print(f"\n{talk.__name__}: {len(counted)} answers, at most {max(counted)} tokens of {model_server.window}")  # fmt: skip
    assert len(counted) == TURNS
    assert max(counted) < model_server.window
    assert TURNS * len(WORDS) / 5 > model_server.window  # it would have been far more
    assert session.edits
