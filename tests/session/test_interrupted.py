"""R-22: whatever event was the last that reached the disk, the session opens and goes on."""

import json

import pytest

import foldline
from foldline.core.item import LOST
from foldline.core.log import Interrupted, ToolReturned
from foldline.dialects import anthropic as messages
from foldline.dialects import openai_chat as chat
from foldline.stores import event_log
from foldline.stores.base import Name
from foldline.stores.sqlite import SqliteStore

NAME = Name("local", "main")
RUN = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}


def answer(text, *ids):
    calls = [{"id": one, "type": "function", "function": {"name": "run", "arguments": f'{{"n":"{one}"}}'}} for one in ids]  # fmt: skip
    message = {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})
    return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 50, "completion_tokens": 5}}  # fmt: skip


def loop(s):
    """An agent's work: calls one at a time and three at once, results, folds on the way."""
    for turn in range(6):
        s.add(f"turn {turn} " + "pasted text " * 30)
        s.request()
        ids = [f"c{turn}-{n}" for n in range(1 + turn % 3)]
        s.add(answer(None, *ids))
        for one in ids:
            s.add({"role": "tool", "tool_call_id": one, "content": f"result of {one} " * 20})
        s.request()
        s.add(answer("done"))


@pytest.mark.parametrize("model", ["gpt-x", "claude-x"])
def test_killed_behind_every_event(tmp_path, model):
    """Valid in its dialect, what was left open is said to be unknown, and nothing is taken for run."""
    options = {"model": model, "tools": [RUN], "window": 2_000, "reserve": 100}
    whole = str(tmp_path / "whole.db")
    with foldline.open(whole, **options) as s:
        loop(s)
        events = [event for _, event in s.history.events()]
        assert s.edits
    interrupted = 0
    for end in range(1, len(events) + 1):
        path = str(tmp_path / f"{end}.db")
        with foldline.open(path, **options, session="other"):
            pass
        store = SqliteStore(path)
        foldline.session.sync.run_coroutine(
            event_log.append_events(store, NAME, events[:end], after=-1)
        )
        foldline.session.sync.run_coroutine(store.close())
        with foldline.open(path, **options) as s:
            called = list(s.aio.live.view.open.values())
            s.add("go on")
            request = s.request()
            judge = messages.list_faults if model == "claude-x" else chat.list_faults
            assert not judge(request["messages"])
            closed = [e.call_id for _, e in s.history.events() if isinstance(e, Interrupted)]
            assert closed == called
            words = json.dumps(request["messages"])
            assert words.count(LOST) == len(called)
            interrupted += len(called)
            for one in called:  # it comes after all: told, never paired
                s.add(ToolReturned(one, ()))
                assert not judge(s.request()["messages"])
    assert interrupted > 10
