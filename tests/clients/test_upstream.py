"""The scripted provider refuses what providers refuse: else a gateway's defects would go unseen."""

import pytest
from upstream import Job, Upstream, find_fault, prompt_of, read_anthropic, read_chat, sign

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": sign("hm")}
CALL = {"type": "tool_use", "id": "c", "name": "bash", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "done"}
MARKED = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
CHAT_CALL = {
    "role": "assistant",
    "tool_calls": [{"id": "c", "function": {"name": "bash", "arguments": "{}"}}],
}


def ask_anthropic(*contents, **more):
    """Messages of the user and the assistant in turn."""
    messages = [
        {"role": ("user", "assistant")[at % 2], "content": one} for at, one in enumerate(contents)
    ]
    return read_anthropic({"max_tokens": 100, "messages": messages, **more})


def test_a_sound_request_is_answered():
    assert not find_fault(ask_anthropic("Begin.", [THOUGHT, CALL], [RESULT]))
    assert not find_fault(
        read_chat({"messages": [CHAT_CALL, {"role": "tool", "tool_call_id": "c"}]})
    )


@pytest.mark.parametrize(
    "asked",
    [
        ask_anthropic("Begin.", [CALL], "Go on."),
        ask_anthropic("Begin.", "Yes.", [RESULT]),
        ask_anthropic("Begin.", [{**THOUGHT, "thinking": "ho"}, CALL], [RESULT]),
        ask_anthropic([MARKED] * 5),
        ask_anthropic("Begin.", thinking={"type": "enabled", "budget_tokens": 100}),
        read_chat({"messages": [CHAT_CALL, {"role": "user", "content": "Go on."}]}),
        read_chat({"messages": [{"role": "tool", "tool_call_id": "c", "content": "done"}]}),
    ],
)
def test_a_broken_one_is_refused(asked):
    assert find_fault(asked)


def test_a_request_above_the_window_is_refused():
    upstream = Upstream(Job(1, (10, 20)), window=100)
    assert not upstream.find_overflow(ask_anthropic("word " * 50))
    assert upstream.find_overflow(ask_anthropic("word " * 200))


def test_a_turn_has_its_rounds_and_then_an_answer():
    job, tools = Job(2, (100, 200)), [{"name": "bash", "input_schema": {"required": ["command"]}}]
    kinds = [job.answer(ask_anthropic(prompt_of(1), tools=tools)).kind for _ in range(3)]
    assert kinds == ["call", "call", "answer"]
    assert job.answer(ask_anthropic(prompt_of(1), system="Write a title.")).kind == "title"
    asked = ask_anthropic(
        [{"type": "text", "text": text} for text in (prompt_of(1), "Sum it up.")], tools=tools
    )
    assert job.answer(asked).kind == "summary"
