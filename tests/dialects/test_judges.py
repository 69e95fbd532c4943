"""The official SDKs' own types as a second judge of what is written: Law 2."""

import jury
import pytest
from hypothesis import given

from foldline.core import rules
from foldline.core.request import render
from foldline.dialects.base import DIALECTS
from foldline.testing.strategies import conversations


@given(conversations())
def test_both_judges_of_every_dialect_take_every_conversation(talk):
    """R-20: however broken the log, whatever was folded, masked, excluded and undone."""
    view = talk.view.copy()
    for event in rules.make_closing_events(view):
        view.append(view.head + 1, event)
    assert jury.refused(render(view)) == []


@pytest.mark.parametrize(
    ("adapters", "bad"),
    [
        (jury.CHAT, {"messages": [{"role": "tool", "content": 5}]}),
        (jury.CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}),
        (jury.CHAT, {"tools": [{"name": "run"}]}),
        (jury.MESSAGES, {"messages": [{"role": "user"}]}),
        (jury.MESSAGES, {"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
        (jury.MESSAGES, {"tools": [{"name": "run"}]}),
        (jury.MESSAGES, {"system": [{"type": "image"}]}),
        (jury.RESPONSES, {"input": [{"type": "function_call", "name": "run"}]}),
        (
            jury.RESPONSES,
            {"input": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
        ),
        (jury.RESPONSES, {"input": [{"type": "reasoning", "summary": "no list"}]}),
        (jury.RESPONSES, {"instructions": ["Be brief."]}),
        (jury.RESPONSES, {"tools": [{"name": "run"}]}),
        (jury.GEMINI, {"contents": [{"role": "user", "content": "Hi"}]}),
        (
            jury.GEMINI,
            {"contents": [{"role": "user", "parts": [{"functionCall": {"args": "{}"}}]}]},
        ),
        (jury.GEMINI, {"config": {"tools": [{"name": "run"}]}}),
        (jury.INTERACTIONS, {"input": [{"type": "function_call", "name": "run"}]}),
        (jury.INTERACTIONS, {"input": [{"type": "user_input", "content": [{"type": "text"}]}]}),
        (jury.INTERACTIONS, {"system_instruction": ["Be brief."]}),
        (jury.INTERACTIONS, {"tools": [{"type": "function", "name": 5}]}),
    ],
)
def test_the_second_judge_can_say_no(adapters, bad):
    """A check that cannot fail is a defect; also deep inside, where the types are read late."""
    assert jury.mistyped(bad, adapters)


def test_no_dialect_is_without_a_second_judge():
    assert {*jury.SDK} == {*DIALECTS}
