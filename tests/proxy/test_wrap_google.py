"""Google's SDK: a wrapped client, a session that asks by it, and our own client of it."""

import asyncio
import json
import subprocess
import sys

import pytest
from google import genai

import foldline
from foldline.errors import BadInput, ModelFailed
from foldline.models.clients import client as make_client
from foldline.testing.provider import Provider, Trouble

WINDOW = 6_000
MODEL = "gemini-3-pro-preview"
WORDS = "The run printed nothing of note, and the file is as it was. " * 25


@pytest.fixture
def provider():
    with Provider(window=WINDOW) as provider:
        yield provider


@pytest.fixture
def plain(provider):
    """The SDK's own client."""
    with genai.Client(api_key="k", http_options={"base_url": provider.url}) as client:
        yield client


def test_a_wrapped_client_outlives_its_window(provider, plain):
    client = foldline.wrap(plain, window=WINDOW)
    assert type(client) is type(plain)
    chat = client.chats.create(model=MODEL)
    for number in range(30):
        if number % 2:
            assert chat.send_message(f"{number}: {WORDS}").text == "ok"
        else:
            pieces = chat.send_message_stream(f"{number}: {WORDS}")
            assert "".join(piece.text or "" for piece in pieces) == "ok"
    assert {*provider.statuses} == {200}
    session = foldline.session_of(client)
    assert session.edits
    assert session.report.source == "reported"
    first = json.loads(provider.bodies[-1])["contents"][0]["parts"][0]["text"]
    assert first.startswith("[handoff: log:")
    assert plain.chats.create(model=MODEL).send_message("hi").text == "ok"
    assert "handoff" not in provider.bodies[-1].decode()
    client.close()


def test_its_async_side_too(provider):
    sdk = genai.Client(api_key="k", http_options={"base_url": provider.url})
    client = foldline.wrap(sdk, window=WINDOW)
    del sdk  # the wrapped client keeps it: the SDK closes what nobody has any more

    async def talk():
        chat = client.aio.chats.create(model=MODEL)
        for number in range(16):
            assert (await chat.send_message(f"{number}: {WORDS}")).text == "ok"
        async for _ in await chat.send_message_stream("And now?"):
            pass
        edits = foldline.session_of(client.aio).edits
        await client.aio.aclose()
        return edits

    assert asyncio.run(talk())
    client.close()
    assert {*provider.statuses} == {200}


def test_a_session_asks_by_the_sdk_and_adds_what_comes(provider, plain):
    calls = {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}]}  # fmt: skip
    provider.script = lambda body: "Seen." if "functionResponse" in body["contents"][-1]["parts"][0] else calls  # fmt: skip
    tool = {
        "function_declarations": [{"name": "look", "parameters_json_schema": {"type": "object"}}]
    }
    with foldline.open(
        ":memory:", model=MODEL, window=WINDOW, system="Be brief.", tools=[tool]
    ) as s:
        for number in range(12):
            s.add(f"{number}: {WORDS}")
            answer = s.create(plain, config={"temperature": 0})
            for call in answer.function_calls:
                response = {"name": call.name, "response": {"output": WORDS}}
                s.add({"role": "user", "parts": [{"functionResponse": response}]})
            assert s.create(plain).text == "Seen."
        assert s.edits
        assert s.report.source == "reported"
    assert {*provider.statuses} == {200}
    signed = [part for raw in provider.bodies for content in json.loads(raw)["contents"] for part in content["parts"] if "functionCall" in part]  # fmt: skip
    assert signed
    assert all(part["thoughtSignature"] for part in signed)


def test_a_refusal_is_healed_once(provider, plain):
    with foldline.open(":memory:", model=MODEL, window=60_000) as s:
        for number in range(12):
            s.add(f"{number}: {WORDS}")
            s.add({"role": "model", "parts": [{"text": "ok"}]})
        s.add("Go on.")
        provider.window = 3_000
        assert s.create(plain).text == "ok"
    assert provider.statuses == [400, 200]


def test_our_own_client_sends_what_was_encoded_and_streams(provider):
    """Words as they come, and the whole answer as the server wrote it."""
    given = {"config": {"systemInstruction": {"parts": [{"text": "S"}]}, "maxOutputTokens": 7}, "contents": [{"role": "user", "parts": [{"text": "hi", "x": 1}]}]}  # fmt: skip

    async def ask():
        model = make_client(f"google/{MODEL}", base_url=provider.url)
        heard = []
        whole = await model.say(given)
        streamed = await model.say(given, heard=heard.append)
        provider.script = lambda _: Trouble.RATE
        with pytest.raises(ModelFailed) as rate:
            await model.say(given)
        provider.window = 10
        with pytest.raises(ModelFailed) as long:
            await model.say(given, heard=heard.append)
        await model.close()
        return whole, streamed, heard, rate.value.fault, long.value.fault

    whole, streamed, heard, rate, long = asyncio.run(ask())
    assert whole["candidates"][0]["content"] == streamed["candidates"][0]["content"]
    assert heard == ["ok"]
    assert rate.kind == "rate"
    assert (long.kind, long.limit) == ("tokens", 10)
    sent = json.loads(provider.bodies[0])
    assert sent["contents"] == given["contents"]
    assert sent["systemInstruction"] == {"parts": [{"text": "S"}]}
    assert sent["generationConfig"] == {"maxOutputTokens": 7}


def test_a_summarizer_speaks_gemini(provider, plain):
    with foldline.open(
        ":memory:", model=MODEL, window=WINDOW, summarizer=f"{MODEL}@{provider.url}"
    ) as s:
        for number in range(14):
            s.add(f"{number}: {WORDS}")
            s.create(plain)
        s.fold()
    assert any("generationConfig" in json.loads(raw) for raw in provider.bodies)
    assert {*provider.statuses} == {200}


def test_without_a_key_it_says_which(monkeypatch):
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BadInput, match="GEMINI_API_KEY"):
        make_client(MODEL)


def test_the_compatible_address_is_asked_as_openais(provider):
    model = make_client(MODEL, base_url=f"{provider.url}/v1beta/openai")

    async def ask():
        try:
            return await model.say({"messages": [{"role": "user", "content": "hi"}]})
        finally:
            await model.close()

    answer = asyncio.run(ask())
    assert answer["object"] == "chat.completion"


def test_a_program_ends_that_leaves_its_client_open(tmp_path):
    """The SDK closes a client when it is collected: at the end, when no thread runs any more."""
    program = "import foldline; from google import genai; client = foldline.wrap(genai.Client(api_key='k'), store='notes.db')"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == 0
