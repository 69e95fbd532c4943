"""The loop: rounds, results, hooks, approval, and what is left when it is stopped."""

import json

import pytest

import foldline
from foldline.agent.loop import Agent
from foldline.agent.tool import Tool, said
from foldline.core.log import ToolReturned
from foldline.core.parts import text_of
from foldline.testing import ScriptedModel

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


def calls(*named):
    """A model's message that calls tools, given as (name, arguments)."""
    return {
        "content": None,
        "tool_calls": [
            {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for at, (name, given) in enumerate(named)
        ],
    }  # fmt: skip


def tool(name, run, **more):
    return Tool(name=name, description=name, schema={"type": "object"}, run=run, **more)


def opened(**more):
    return foldline.aopen(":memory:", **{"model": "scripted", "window": 128_000, **more})


async def results(session):
    events = await session.history.events()
    return {e.call_id: (text_of(e.parts), e.ok) for _, e in events if isinstance(e, ToolReturned)}


async def test_r03_a_turn_of_200_calls_of_5000_tokens_finishes_within_its_window():
    """R-03, A-01: the request is planned before every call of the model, also between calls."""
    done = 0
    page = "The pages of the log are long and say that nothing was found in them. " * 340

    async def read(arguments):
        return said(f"{arguments['page']}: {page}")

    def script(_):
        nonlocal done
        done += 1
        return calls(("read", {"page": done})) if done <= 200 else "done"

    async with opened() as session:
        model = ScriptedModel(script)
        agent = Agent(session, model, tools=[tool("read", read)], rounds=250)
        ended = await agent.turn("Read all 200 pages.")
        assert ended.how == "answered"
        assert len(await results(session)) == 1  # every call is "c0"
        events = await session.history.events()
        assert sum(isinstance(e, ToolReturned) for _, e in events) == 200
        sent = [len(json.dumps(one)) for one in model.requests]
        assert len(sent) == 201
        assert session.edits
