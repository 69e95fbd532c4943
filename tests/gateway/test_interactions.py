"""Google's Interactions, by its own SDK: whole histories and chains, through the gateway, `wrap` and a session."""

import asyncio
import json
from itertools import count

import pytest
from gateway_thread import Served
from google import genai

import foldline
from foldline.models.clients import client as make_client
from foldline.stores.open_store import store_at
from foldline.testing.provider import Provider

WINDOW = 6_000
MODEL = "gemini-3-pro-preview"
PAGE = "The run printed nothing of note, and the file is as it was. " * 25


@pytest.fixture
def provider():
    numbers = count()
    with Provider(
        lambda _: {"content": "ok", "id": f"int_{next(numbers)}"}, window=WINDOW
    ) as provider:
        yield provider


def client_of(url):
    return genai.Client(api_key="k", http_options={"base_url": url})


def user(text):
    return {"type": "user_input", "content": [{"type": "text", "text": text}]}


def plain_steps(interaction):
    return [step.model_dump(mode="json", exclude_none=True) for step in interaction.steps]


def test_a_whole_history_outlives_its_window(provider, tmp_path):
    with Served(provider.url, store=str(tmp_path / "talks.db"), window=WINDOW) as gateway, client_of(gateway.url) as client:  # fmt: skip
        history = []
        for number in range(30):
            history.append(user(f"{number}: {PAGE}"))
            answer = client.interactions.create(model=MODEL, input=history, system_instruction="Be brief.", store=False)  # fmt: skip
            history += plain_steps(answer)
        assert answer.output_text == "ok"
    assert {*provider.statuses} == {200}
    last = json.loads(provider.bodies[-1])
    assert "[handoff: log:" in last["input"][0]["content"][0]["text"]
    assert last["system_instruction"] == "Be brief."


def test_a_chain_is_recorded_and_passed_on(provider, tmp_path):
    """Without `own_history` the server keeps the history; the log is complete all the same."""
    with Served(provider.url, store=str(tmp_path / "talks.db"), window=WINDOW) as gateway, client_of(gateway.url) as client:  # fmt: skip
        before = None
        for number in range(4):
            given = {"previous_interaction_id": before} if before else {}
            before = client.interactions.create(model=MODEL, input=f"{number}: hi", **given).id
    assert [len(json.loads(raw)["input"]) for raw in provider.bodies] == [5] * 4
    assert all("previous_interaction_id" in json.loads(raw) for raw in provider.bodies[1:])
    with foldline.open(str(tmp_path / "talks.db"), model=MODEL, session=one_session(tmp_path)) as s:
        assert [turn.words for turn in s.history.turns()] == [f"{n}: hi" for n in range(4)]


def one_session(folder):
    async def read():
        store = store_at(str(folder / "talks.db"))
        found = [one.session for one in await store.sessions("local")]
        await store.close()
        return found

    (name,) = asyncio.run(read())
    return name


@pytest.mark.parametrize("streams", [False, True])
def test_a_chain_is_written_out_where_the_history_is_ours(provider, streams):
    """Also with inputs of every form; the server is asked to keep nothing."""
    sdk = client_of(provider.url)
    client = foldline.wrap(sdk, window=WINDOW, own_history=True)
    before, inputs = None, [lambda t: t, lambda t: {"type": "text", "text": t}, lambda t: [{"type": "text", "text": t}], lambda t: [user(t)]]  # fmt: skip
    for number in range(24):
        given = {"previous_interaction_id": before} if before else {}
        answer = client.interactions.create(model=MODEL, input=inputs[number % 4](f"{number}: {PAGE}"), stream=streams, **given)  # fmt: skip
        if streams:
            (answer,) = [event.interaction for event in answer if event.event_type == "interaction.completed"]  # fmt: skip
        before = answer.id
    assert {*provider.statuses} == {200}
    bodies = [json.loads(raw) for raw in provider.bodies]
    assert not any("previous_interaction_id" in body for body in bodies)
    assert all(body["store"] is False for body in bodies[1:])
    texts = json.dumps(bodies[-1]["input"])
    assert "[handoff: log:" in texts
    assert "foldline_fold" not in texts
    assert "23: The run" in texts
    client.close()


def test_a_session_asks_by_the_sdk(provider):
    calls = {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}]}  # fmt: skip
    numbers = count()

    def answer(body):
        if body["input"][-1]["type"] == "function_result":
            return "Seen."
        made = json.loads(json.dumps(calls))
        made["tool_calls"][0]["id"] = f"c{next(numbers)}"
        return made

    provider.script = answer
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    with client_of(provider.url) as client, foldline.open(":memory:", model=MODEL, dialect="gemini-interactions", window=WINDOW, system="Be brief.", tools=[tool]) as s:  # fmt: skip
        for number in range(10):
            s.add(f"{number}: {PAGE}")
            reply = s.create(client, store=False)
            for step in reply.steps:
                if step.type == "function_call":
                    s.add(
                        {
                            "type": "function_result",
                            "call_id": step.id,
                            "name": step.name,
                            "result": PAGE,
                        }
                    )
            assert s.create(client, store=False).output_text == "Seen."
        assert s.edits
        assert s.report.source == "reported"
    assert {*provider.statuses} == {200}
    for raw in provider.bodies:
        steps = json.loads(raw)["input"]
        for place, step in enumerate(steps):
            if step["type"] == "function_call" and step["arguments"]:
                assert steps[place - 1]["type"] == "thought"


def test_our_own_client_speaks_it(provider):
    async def ask():
        model = make_client(MODEL, base_url=provider.url, dialect="gemini-interactions")
        heard = []
        whole = await model.say(
            {"input": [user("hi")], "generation_config": {"max_output_tokens": 7}}
        )
        streamed = await model.say({"input": [user("hi")]}, heard=heard.append)
        await model.close()
        return whole, streamed, heard

    whole, streamed, heard = asyncio.run(ask())
    assert whole["steps"] == streamed["steps"]
    assert heard == ["ok"]
    assert json.loads(provider.bodies[0])["generation_config"] == {"max_output_tokens": 7}


def test_agents_and_background_work_are_relayed(provider, tmp_path):
    with (
        Served(provider.url, store=str(tmp_path / "talks.db")) as gateway,
        client_of(gateway.url) as client,
    ):
        client.interactions.create(model=MODEL, input="hi", background=True)
    assert json.loads(provider.bodies[-1]) == {"model": MODEL, "input": "hi", "background": True}
