"""Recorded sessions before a real server, in both dialects, through the official clients.

This server reads shapes strictly and asks nothing about pairs but at the end: those are the judges'.
"""

import json

import anthropic
import archive
import jury
import openai
import pytest

from foldline.core.budget import limits
from foldline.core.log import Event, Instructed, ToolReturned
from foldline.core.parts import Text
from foldline.core.plan import Facts, Ready
from foldline.core.policy import STEADY
from foldline.dialects import anthropic as messages
from foldline.dialects import openai_chat as chat
from foldline.testing import Planned, calls, model, result, user

WINDOW, RESERVE = 2_048, 16
ONE = {"model": "claude-smollm2", "max_tokens": 1}
PARALLEL = [
    user("Weather in Oslo and Rome?"),
    calls("call 1", "call 2", text="Looking."),
    result("call 1", "4 degrees"),
    result("call 2", "no such city", ok=False),
    model("Four in Oslo; of Rome I do not know."),
    user("And tomorrow?"),
    calls("call 1", "call 2", "call 3"),
    result("call 3"),
    result("call 1"),
    result("call 2"),
]


def brief(event: Event) -> Event:
    """Instructions that leave room for a talk: an agent's own are larger than this window."""
    return Instructed((Text("Be brief."),)) if isinstance(event, Instructed) else event


def planned(events) -> Ready:
    talk = Planned(Facts(limits(WINDOW, RESERVE), STEADY))
    talk.add(*map(brief, events))
    made = talk.plan()
    assert isinstance(made, Ready)
    return made


def calling(events):
    """A session up to a result that the model has not answered yet, as a server sees it most."""
    last = max(place for place, event in enumerate(events) if isinstance(event, ToolReturned))
    return events[: last + 1]


@pytest.fixture
def clients(model_server):
    """What asks the server, by dialect."""
    with (
        openai.OpenAI(base_url=f"{model_server.url}/v1", api_key="none", max_retries=0) as chats,
        anthropic.Anthropic(base_url=model_server.url, api_key="none", max_retries=0) as other,
    ):
        yield chats.chat.completions.create, other.messages.create


@pytest.mark.real
@pytest.mark.parametrize("source", [*archive.FILES, "parallel"])
def test_the_server_takes_a_recorded_session(clients, shared, source):
    """R-20: a sample of each source, with calls and results, on both of its endpoints."""
    events = PARALLEL if source == "parallel" else archive.sessions(shared, source)[0].events[1:]
    request = planned(calling(events)).request
    assert jury.refused(request) == []
    asked, said = (json.loads(wire.encode_request(request, ONE)) for wire in (chat, messages))
    assert asked["messages"][-1]["role"] == "tool"
    assert said["messages"][-1]["content"][-1]["type"] == "tool_result"
    ask, say = clients
    counted = ask(**asked).usage.prompt_tokens
    used = say(**said).usage
    beside = used.input_tokens + (used.cache_read_input_tokens or 0)
    print(f"\n{source}: {counted} tokens on chat, {beside} on messages, of {WINDOW}")
    assert 0 < counted <= WINDOW - RESERVE
    assert 0 < beside <= WINDOW - RESERVE


@pytest.mark.real
def test_the_server_can_say_no(clients):
    """A check that cannot fail is a defect: calls that nobody answered are refused by both."""
    request = planned(PARALLEL).request
    for ask, wire, refusal in zip(
        clients, (chat, messages), (openai.BadRequestError, anthropic.BadRequestError), strict=True
    ):
        asked = json.loads(wire.encode_request(request, ONE))
        while asked["messages"][-1]["role"] != "assistant":
            asked["messages"].pop()
        with pytest.raises(refusal, match="tool calls"):
            ask(**asked)
