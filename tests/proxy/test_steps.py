"""Planning and recording a large request takes no long step on the event loop."""

import asyncio
import json
import time
from asyncio.events import Handle

import pytest

from foldline.dialects import base
from foldline.proxy.conversations import Conversations
from foldline.session.model_facts import build_facts
from foldline.stores.open_store import store_at

LONGEST = 0.012  # seconds of the processor; the 5 ms on a core that is half as fast
WORDS = "lorem ipsum " * 1_000_000


def make_text():
    return [{"role": "user", "content": WORDS}]


def make_messages():
    return [{"role": ("user", "assistant")[n % 2], "content": f"m{n}"} for n in range(8_001)]


def make_few_messages():
    return [{"role": ("user", "assistant")[n % 2], "content": f"m{n}"} for n in range(1_501)]


def make_calls():
    """An answer that calls a tool with very many values."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "x", "input": {"a": [{}] * 100_000}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
    return [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]


@pytest.fixture
def steps(monkeypatch):
    """The seconds of the processor of each step that the loop runs."""
    found, run = [], Handle._run

    def measured(self):
        begun = time.thread_time()
        run(self)
        found.append(time.thread_time() - begun)

    monkeypatch.setattr(Handle, "_run", measured)
    return found


@pytest.mark.parametrize("make", [make_text, make_messages, make_few_messages, make_calls])
def test_no_step_of_a_request_takes_long(steps, tmp_path, make):
    """First as a new conversation, then continued by a process that has to read it."""
    dialect = base.find_path_dialect("/v1/messages")
    messages = make()

    def encode():
        return json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages}).encode()  # fmt: skip

    async def run(body, place):
        facts = {"window": 200_000, "reserve": None, "policy": "steady"}
        for _ in range(2):
            store = store_at(str(place))
            conversations = Conversations(store, lambda model: build_facts(model, **facts), shared=True)  # fmt: skip
            exchange = await conversations.start_exchange(dialect, body)
            await exchange.release()
            await conversations.close()

    asyncio.run(run(encode()[:-2] + b"]}", tmp_path / "imports.db"))  # loads what is loaded once
    del steps[:]
    messages[0]["content"] += "!"
    asyncio.run(run(encode(), tmp_path / "s.db"))
    assert max(steps) < LONGEST, sorted(steps)[-3:]
