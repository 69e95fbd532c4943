"""What a checker sees of `create`: the SDK's own answer, as if the client had been called."""

from typing import assert_type

import anthropic
import openai
from anthropic.types import Message
from openai.types.chat import ChatCompletion

import foldline
from foldline.core.edits.fold import Loss


def ask(s: foldline.Session) -> None:
    """Without `await`."""
    chat = s.create(openai.OpenAI(), temperature=0)
    assert_type(chat, ChatCompletion)
    assert_type(s.create(openai.AzureOpenAI()), ChatCompletion)
    message = s.create(anthropic.Anthropic(), max_tokens=100)
    assert_type(message, Message)
    assert_type(s.add("hello"), int)
    assert_type(s.fold(preview=True), Loss | None)
    assert_type(s.fork("other"), foldline.Session)
    assert_type(s.recall("log:1", most=100), str)


async def ask_async(s: foldline.AsyncSession) -> None:
    """With `await`."""
    assert_type(await s.create(openai.AsyncOpenAI()), ChatCompletion)
    assert_type(await s.create(anthropic.AsyncAnthropic()), Message)
    assert_type(await s.add("hello"), int)
    assert_type(await s.fork("other"), foldline.AsyncSession)


async def open_both() -> None:
    """What opening gives."""
    with foldline.open(":memory:", model="m", system=[{"type": "text", "text": "Hi."}]) as s:
        assert_type(s, foldline.Session)
    async with foldline.aopen(":memory:", model="m") as entered:
        assert_type(entered, foldline.AsyncSession)
    awaited = await foldline.aopen(":memory:", model="m")
    assert_type(awaited, foldline.AsyncSession)
    async with awaited as same:
        assert_type(same, foldline.AsyncSession)
