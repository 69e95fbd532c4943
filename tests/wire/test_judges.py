"""The official SDKs' own types as a second judge of what is written: Law 2."""

import json

from anthropic.types import MessageParam, ToolParam
from hypothesis import given
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from foldline.core import rules
from foldline.core.request import render
from foldline.testing.strategies import conversations
from foldline.wire import anthropic, openai_chat

OPENAI = TypeAdapter(list[ChatCompletionMessageParam])
ANTHROPIC = TypeAdapter(list[MessageParam])


def drained(value):
    """Iterables of the SDKs' types are looked at only when they are read."""
    if isinstance(value, dict):
        return {key: drained(one) for key, one in value.items()}
    if isinstance(value, str | bytes | int | float | bool) or value is None:
        return value
    return [drained(one) for one in value]


def closed(talk):
    view = talk.view.copy()
    for event in rules.closing(view):
        view.append(view.head + 1, event)
    return render(view)


@given(conversations())
def test_both_dialects_are_what_their_sdks_say(talk):
    """R-20: however broken the log, whatever was folded, masked, excluded and undone."""
    request = closed(talk)
    drained(OPENAI.validate_python(json.loads(openai_chat.encode(request, {}))["messages"]))
    body = json.loads(anthropic.encode(request, {}))
    drained(ANTHROPIC.validate_python(body["messages"]))
    drained(TypeAdapter(list[ToolParam]).validate_python(body.get("tools", [])))


def test_the_second_judge_can_say_no():
    """A check that cannot fail is a defect."""
    for adapter, bad in (
        (OPENAI, [{"role": "tool", "content": 5}]),
        (ANTHROPIC, [{"role": "user"}]),
    ):
        try:
            drained(adapter.validate_python(bad))
        except ValueError:
            continue
        raise AssertionError(bad)
