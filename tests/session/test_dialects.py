"""A session asks each model in its own dialect, and takes in answers of both."""

import asyncio
import json

import pytest

import foldline
from foldline.dialects import anthropic, base, openai_chat
from foldline.errors import FormatError

TOOL = {"name": "look", "description": "At a file", "input_schema": {"type": "object"}}
ANSWER = {
    "type": "message",
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"path": "a"}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 40, "output_tokens": 5},
}


def test_anthropic_from_end_to_end():
    """Keyword arguments for `messages.create`, the answer back, and every request again."""
    with foldline.open(
        ":memory:", model="anthropic/claude-x", system="Be brief.", tools=[TOOL], window=4_096
    ) as s:
        s.add("look at a")
        first = s.request()
        assert (first["model"], first["max_tokens"]) == ("claude-x", 409)
        assert first["system"][0]["text"] == "Be brief."
        assert first["tools"][0]["name"] == "look"
        asked = s.asked
        s.add(ANSWER)
        s.add(
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}],
            }
        )
        second = s.request(max_tokens=7)
        assert second["max_tokens"] == 7
        assert second["messages"][1]["content"][:2] == ANSWER["content"]
        assert not anthropic.list_faults(second["messages"])
        assert s.history.sent(asked) == first
        for n in range(80):
            s.add({"role": "assistant", "content": f"answer {n} " * 10})
            s.add(f"say {n} " * 20)
            assert not anthropic.list_faults(s.request()["messages"])
        assert s.edits


def test_a_model_of_the_other_dialect_goes_on():
    """R-14's first half: the same log, asked in the other dialect; thoughts stay with their maker."""
    with foldline.open(":memory:", model="anthropic/claude-x", tools=[TOOL]) as s:
        s.add("look")
        s.request()
        s.add(ANSWER)
        s.add({"role": "tool", "tool_call_id": "toolu_1", "content": "x"})
        wait_switch(s, "gpt-5")
        body = s.request()
        assert not openai_chat.list_faults(body["messages"])
        assert "signature" not in json.dumps(body)
        assert body["tools"][0]["function"]["name"] == "look"


def wait_switch(s, model):
    asyncio.run(s.aio.live.record_opening(model))


@pytest.mark.parametrize(
    ("model", "name"),
    [("anthropic/claude-x", "anthropic"), ("claude-x", "anthropic"), ("openrouter/anthropic/claude-x", "openai-chat"), ("smollm2", "openai-chat"), ("gemini-3-pro", "gemini"), ("google/gemini-3-pro", "gemini"), ("models/gemini-3-pro", "gemini"), ("gemma-3", "openai-chat"), ("openrouter/google/gemini-3-pro", "openai-chat")],
)  # fmt: skip
def test_by_the_models_name(model, name):
    assert base.choose_model_dialect(model).name == name
    assert base.resolve_named_dialect(name).name == name
    with pytest.raises(FormatError):
        base.resolve_named_dialect("soap")
