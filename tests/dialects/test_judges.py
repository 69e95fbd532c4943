"""The official SDKs' own types as a second judge of what is written: Law 2."""

import jury
import pytest
from hypothesis import given

from foldline.core import rules
from foldline.core.request import render
from foldline.dialects import anthropic
from foldline.dialects.base import named
from foldline.session.planning import say_to_go_on
from foldline.testing.strategies import conversations


@given(conversations())
def test_both_judges_of_both_dialects_take_every_conversation(talk):
    """R-20: however broken the log, whatever was folded, masked, excluded and undone."""
    view = talk.view.copy()
    for event in rules.closing(view):
        view.append(view.head + 1, event)
    for event in say_to_go_on(view, {}, dialect=named(anthropic.DIALECT)):
        view.append(view.head + 1, event)
    request = render(view)
    if not anthropic.is_silent(request):  # else nothing can be sent
        assert jury.refused(request) == []


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
    ],
)
def test_the_second_judge_can_say_no(adapters, bad):
    """A check that cannot fail is a defect; also deep inside, where the types are read late."""
    assert jury.mistyped(bad, adapters)
