"""`create`: a request, its answer and the session, in one call; types are checked by tests/types."""

import asyncio

import anthropic
import openai
import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion

import foldline
from foldline.errors import BadInput
from foldline.testing.provider import Provider


@pytest.fixture
def provider():
    with Provider(lambda _: "Hello, Ann.") as provider:
        yield provider


def clients(provider, *, awaited=False):
    """A client of each SDK, with a model that it asks and what it answers."""
    kinds = (openai.AsyncOpenAI, anthropic.AsyncAnthropic) if awaited else (openai.OpenAI, anthropic.Anthropic)  # fmt: skip
    given = {"api_key": "none", "max_retries": 0}
    return [
        (kinds[0](base_url=f"{provider.url}/v1", **given), "gpt-4o", ChatCompletion),
        (kinds[1](base_url=provider.url, **given), "claude-sonnet-5-5", Message),
    ]


def test_the_answer_is_added_and_given(provider):
    for client, model, kind in clients(provider):
        with foldline.open(":memory:", model=model) as s:
            s.add("I am Ann.")
            answer = s.create(client, max_tokens=50)
            assert type(answer) is kind
            s.add("Who am I?")
            assert s.request()["messages"][1]["role"] == "assistant"
            assert provider.asked[-1]["max_tokens"] == 50


def test_the_same_awaited(provider):
    async def talk():
        for client, model, kind in clients(provider, awaited=True):
            async with client, foldline.aopen(":memory:", model=model) as s:
                await s.add("I am Ann.")
                assert type(await s.create(client)) is kind
                assert len((await s.request())["messages"]) >= 2

    asyncio.run(talk())


def test_what_it_does_not_take(provider):
    (chat, gpt, _), (messages, claude, _) = clients(provider)
    with foldline.open(":memory:", model=gpt) as s:
        s.add("hello")
        with pytest.raises(BadInput, match=r"OpenAI's SDK.*Anthropic"):
            s.create(messages)
        with pytest.raises(BadInput, match=r"stream=True.*wrap"):
            s.create(chat, stream=True)
        with pytest.raises(BadInput, match=r"switch\('gpt-5'\)"):
            s.create(chat, model="gpt-5")
        assert s.asked == -1, "nothing was asked"
        (awaited, _, _), _ = clients(provider, awaited=True)
        with pytest.raises(BadInput, match="has to be awaited"):
            s.create(awaited)
    with foldline.open(":memory:", model=claude) as s:
        s.add("hello")
        with pytest.raises(BadInput, match=r"Anthropic's SDK.*OpenAI"):
            s.create(chat)
    assert provider.asked == []
