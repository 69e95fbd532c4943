"""The gateway before a real model: official SDKs, both dialects, streamed and not."""

import asyncio
import os

import anthropic
import openai
import pytest
from gateway_thread import Served

from foldline.core import log
from foldline.core.log import Asked, ModelSaid, UserSaid
from foldline.core.spine import Range
from foldline.session import planning
from foldline.session.log_handle import Live
from foldline.session.model_facts import build_facts
from foldline.stores.base import Name
from foldline.stores.open_store import store_at

pytestmark = pytest.mark.real
BOTH = pytest.mark.parametrize("store", [None, ":memory:"], ids=["plain", "sessions"])
CALLS = 300 if os.environ.get("FOLDLINE_LAWS") == "deep" else 16
FACTS = build_facts("smollm2", window=None, reserve=None, policy="steady")
SAID = [{"role": "user", "content": "Say one word."}]


@BOTH
def test_openai(model_server, store):
    with Served(model_server.url, store=store) as gateway, openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:  # fmt: skip
        create = client.chat.completions.create
        create(model="smollm2", messages=SAID, max_tokens=4)  # from here on it is in the cache
        whole = create(model="smollm2", messages=SAID, max_tokens=4, temperature=0)
        assert whole.usage.completion_tokens > 0
        pieces = list(create(model="smollm2", messages=SAID, max_tokens=4, temperature=0, stream=True))  # fmt: skip
        streamed = "".join(one.choices[0].delta.content or "" for one in pieces if one.choices)
        assert streamed == whole.choices[0].message.content
        schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}  # fmt: skip
        shaped = create(model="smollm2", messages=SAID, max_tokens=30, response_format=schema)
        assert shaped.choices[0].message.content.lstrip().startswith("{")
        assert client.models.list().data
        with pytest.raises(openai.APIStatusError) as fault:
            create(model="smollm2", messages=[{"role": "nobody"}], max_tokens=4)
        assert "x-foldline-error" not in fault.value.response.headers  # the server's own words


@BOTH
def test_anthropic(model_server, store):
    with Served(model_server.url, store=store) as gateway, anthropic.Anthropic(base_url=gateway.url, api_key="none") as client:  # fmt: skip
        asked = {
            "model": "smollm2",
            "messages": SAID,
            "max_tokens": 4,
            "extra_body": {"temperature": 0},
        }
        client.messages.create(**asked)  # from here on it is in the cache
        whole = client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            streamed = "".join(stream.text_stream)
        assert streamed == whole.content[0].text
        assert client.messages.count_tokens(model="smollm2", messages=SAID).input_tokens > 0


def note(turn):
    """What a person says: 16 of them are more than the narrow window holds."""
    return f"Note {turn}: the door of room {turn} is locked, and its key hangs in room {turn + 1}. " * 3  # fmt: skip


def openai_turn(client, history, *, stream):
    """One call; the answer, taken into the history as a loop would."""
    given = {"model": "smollm2", "messages": history, "max_tokens": 3, "temperature": 0}
    if stream:
        pieces = client.chat.completions.create(**given, stream=True)
        words = "".join(one.choices[0].delta.content or "" for one in pieces if one.choices)
    else:
        words = client.chat.completions.create(**given).choices[0].message.content
    history.append({"role": "assistant", "content": words})


def anthropic_turn(client, history, *, stream):
    given = {
        "model": "smollm2",
        "messages": history,
        "max_tokens": 3,
        "extra_body": {"temperature": 0},
    }
    if stream:
        with client.messages.stream(**given) as pieces:
            words = "".join(pieces.text_stream)
    else:
        words = client.messages.create(**given).content[0].text
    history.append({"role": "assistant", "content": words or "."})


def run(turn, client, calls):
    """A loop that keeps the whole history; every second call is streamed."""
    history = []
    for at in range(calls):
        history.append({"role": "user", "content": note(at)})
        turn(client, history, stream=at % 2 == 1)
    assert len(history) == 2 * calls


async def kept(store, session, calls):
    """The log has all of it, once and in order, and each request can be had again."""
    live = await Live.open(store, Name("local", session), facts=FACTS)
    events = [one for _, one in await live.read_events(Range(0, live.view.head))]
    said = [one.parts[0].text for one in events if isinstance(one, UserSaid)]
    assert said == [note(at) for at in range(calls)]
    assert sum(isinstance(one, ModelSaid) for one in events) == calls
    asked = [seq for seq, one in enumerate(events) if isinstance(one, Asked)]
    for seq in asked[:: max(len(asked) // 40, 1)]:
        await planning.rebuild_request(live, seq)
    assert any(isinstance(one, log.Edit) for one in events)


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_run_that_overflows_straight_to_the_server_goes_on_through_the_gateway(
    narrow_server, tmp_path, dialect
):
    """Must show: 300 calls (16 in CI; a third by Anthropic's SDK) and no error, unedited clients."""
    calls = CALLS if dialect == "openai" else max(CALLS // 3, 16)
    turn = openai_turn if dialect == "openai" else anthropic_turn

    def client_of(url, **options):
        if dialect == "openai":
            return openai.OpenAI(base_url=f"{url}/v1", api_key="none", **options)
        return anthropic.Anthropic(base_url=url, api_key="none", **options)

    path = str(tmp_path / "sessions.db")
    with (
        Served(narrow_server.url, store=path) as gateway,
        client_of(gateway.url, max_retries=0) as client,
    ):
        run(turn, client, calls)

    async def looked():
        store = store_at(path)
        (found,) = await store.sessions("local", limit=9)
        await kept(store, found.session, calls)
        await store.close()

    asyncio.run(looked())
    # Straight to the server with the SDK's own retries: it ends connections that idle.
    with (
        client_of(narrow_server.url) as client,
        pytest.raises((openai.BadRequestError, anthropic.BadRequestError), match="exceed"),
    ):
        run(turn, client, calls)
