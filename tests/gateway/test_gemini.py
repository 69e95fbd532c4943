"""Gemini's `generateContent` through the gateway, by Google's own SDK and by hand: planned, healed, counted."""

import asyncio
import http.client
import json

import pytest
from gateway_thread import Served
from google import genai
from google.genai import errors, types

from foldline.apps.gateway.api_keys import Keys, create_key
from foldline.apps.gateway.settings import GatewaySettings, parse_upstreams
from foldline.testing.provider import Provider

WINDOW = 8_000
MODEL = "gemini-3-pro-preview"
PAGE = "The run printed nothing of note, and the file is as it was. " * 30
VERTEX = f"/v1/projects/p/locations/europe-west4/publishers/google/models/{MODEL}"


@pytest.fixture
def provider():
    with Provider(window=WINDOW) as provider:
        yield provider


@pytest.fixture
def gateway(provider, tmp_path):
    with Served(provider.url, store=str(tmp_path / "talks.db"), window=WINDOW) as gateway:
        yield gateway


@pytest.fixture
def client(gateway):
    with client_of(gateway) as client:
        yield client


def client_of(gateway):
    return genai.Client(api_key="k", http_options={"base_url": gateway.url})


def post(gateway, path, body, **headers):
    """One request by hand: the status, our own headers, and the answer."""
    client = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    sent = json.dumps(body)
    client.request("POST", path, sent, {"content-type": "application/json", **headers})
    answer = client.getresponse()
    said = answer.read()
    told = {name.lower()[11:]: value for name, value in answer.getheaders() if name.lower().startswith("x-foldline-")}  # fmt: skip
    client.close()
    return answer.status, told, json.loads(said) if said.startswith(b"{") else said


def user(text):
    return {"role": "user", "parts": [{"text": text}]}


def test_the_sdks_chat_outlives_its_window_ten_times(client, provider):
    chat = client.chats.create(
        model=MODEL, config={"system_instruction": "Be brief.", "max_output_tokens": 500}
    )
    for number in range(80):
        if number % 4:
            assert chat.send_message(f"{number}: {PAGE}").text == "ok"
        else:
            pieces = chat.send_message_stream(f"{number}: {PAGE}")
            assert "".join(piece.text or "" for piece in pieces) == "ok"
    assert {*provider.statuses} == {200}
    last = json.loads(provider.bodies[-1])
    assert "[handoff: log:" in last["contents"][0]["parts"][0]["text"]
    assert last["systemInstruction"]["parts"] == [{"text": "Be brief."}]


@pytest.mark.filterwarnings("ignore:Inheritance class")  # in the SDK itself
def test_the_sdks_async_client_and_its_tools(client, provider):
    """Calls that the SDK runs by itself: signatures and pairs stay, in streams as well."""
    calls = {"tool_calls": [{"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": json.dumps({"at": n})}} for n in range(2)]}  # fmt: skip

    def answer(body):
        last = body["contents"][-1]["parts"][0]
        return "Seen." if "functionResponse" in last else calls

    def look(at: int) -> str:
        """Look at a place."""
        return f"at {at}: {PAGE}"

    provider.script = answer
    config = types.GenerateContentConfig(tools=[look], temperature=0)

    async def talk():
        chat = client.aio.chats.create(model=MODEL, config=config)
        for number in range(6):
            assert (await chat.send_message(f"Look, {number}.")).text == "Seen."
        async for _ in await chat.send_message_stream("Once more."):
            pass
        await client.aio.aclose()

    asyncio.run(talk())
    assert {*provider.statuses} == {200}
    for raw in provider.bodies:
        for content, after in zip(
            json.loads(raw)["contents"], json.loads(raw)["contents"][1:], strict=False
        ):
            made = [part for part in content["parts"] if "functionCall" in part]
            if made:
                assert made[0]["thoughtSignature"]
                assert len([part for part in after["parts"] if "functionResponse" in part]) == len(
                    made
                )
    assert any(b"handoff: log:" in raw or b"[cleared" in raw for raw in provider.bodies)


def test_a_request_that_is_not_edited_goes_out_byte_for_byte(gateway, provider):
    odd = {
        "system_instruction": {"parts": [{"text": "S"}]},
        "contents": [user("hi")],
        "safetySettings": [{"x": 1.0}],
    }
    status, told, _ = post(gateway, f"/v1beta/models/{MODEL}:generateContent?alt=json", odd)
    assert (status, told["edits"]) == (200, "0")
    assert provider.bodies[-1] == json.dumps(odd).encode()


def test_vertex_and_other_paths_are_planned_by_the_model_in_the_path(gateway, provider):
    status, told, _ = post(gateway, f"{VERTEX}:generateContent", {"contents": [user("hi")]}, authorization="Bearer t")  # fmt: skip
    assert (status, told["edits"]) == (200, "0")
    status, told, body = post(gateway, f"{VERTEX}:streamGenerateContent?alt=sse", {"contents": [user("hi")]}, authorization="Bearer t")  # fmt: skip
    assert (status, told["edits"]) == (200, "0")
    assert b"usageMetadata" in body
    assert len(provider.bodies) == 2


def test_what_refers_to_a_cache_of_the_servers_is_relayed_and_says_so(gateway, provider):
    for name in ("cachedContent", "cached_content"):
        body = {"contents": [user("hi")], name: "cachedContents/1"}
        _, told, _ = post(gateway, f"/v1beta/models/{MODEL}:generateContent", body)
        assert told["unplanned"] == "server-state"
    body = {"contents": [user("hi")], "systemInstruction": {}, "system_instruction": {}}
    _, told, _ = post(gateway, f"/v1beta/models/{MODEL}:generateContent", body)
    assert told["unplanned"] == "unreadable"
    assert len(provider.bodies) == 3


def test_an_answer_limit_that_does_not_fit_is_lowered_where_it_stands(gateway, provider):
    body = {
        "contents": [user(PAGE)],
        "generationConfig": {"temperature": 1.0, "maxOutputTokens": 65_536},
    }
    status, told, _ = post(gateway, f"/v1beta/models/{MODEL}:generateContent", body)
    assert (status, told["patches"]) == (200, "limit=1")
    sent = json.loads(provider.bodies[-1])["generationConfig"]
    assert sent["temperature"] == 1.0
    assert 0 < sent["maxOutputTokens"] < WINDOW


def test_a_refusal_of_googles_is_healed(client, provider):
    """The window turns out smaller than the gateway believes: the client notices nothing."""
    chat = client.chats.create(model=MODEL)
    for number in range(8):
        chat.send_message(f"{number}: {PAGE}")
    provider.window = 2_000
    assert chat.send_message("Go on.").text == "ok"
    assert provider.statuses[-2:] == [400, 200]


def test_errors_of_ours_are_read_by_googles_sdk(provider, tmp_path):
    create_key(tmp_path / "keys", "ci", tenant="acme")
    settings = GatewaySettings(
        upstreams=parse_upstreams([provider.url], {}), keys=Keys(tmp_path / "keys")
    )
    refused = pytest.raises(errors.ClientError)
    with Served(settings) as gateway, client_of(gateway) as client, refused as caught:
        client.models.generate_content(model=MODEL, contents="hi")
    assert caught.value.code == 401
    assert caught.value.status == "UNAUTHENTICATED"


def test_keys_in_the_query_tell_clients_apart(gateway):
    """Two people with the same words: neither gets the other's log."""
    path = f"/v1beta/models/{MODEL}:generateContent"
    sessions = {post(gateway, f"{path}?key={key}", {"contents": [user("hi")]})[1]["session"] for key in ("one", "two")}  # fmt: skip
    assert len(sessions) == 2


def test_the_compatible_route_stays_openais(gateway, provider):
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    status, told, said = post(
        gateway, "/v1beta/openai/chat/completions", body, authorization="Bearer k"
    )
    assert (status, told["edits"]) == (200, "0")
    assert said["object"] == "chat.completion"
    assert provider.bodies[-1] == json.dumps(body).encode()
