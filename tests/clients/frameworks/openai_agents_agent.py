"""openai-agents with its chat model, or its default: `openai_agents_agent.py [responses] [stream]`."""

import sys

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from job import CLIENT, GPT, SYSTEM, run_bash, take_turns, wrap_client
from openai import AsyncOpenAI

set_tracing_disabled(disabled=True)
client = wrap_client(AsyncOpenAI(**CLIENT))
make = OpenAIResponsesModel if "responses" in sys.argv else OpenAIChatCompletionsModel
model = make(model=GPT, openai_client=client)
bash = function_tool(run_bash, name_override="bash")
agent = Agent(name="coder", instructions=SYSTEM, model=model, tools=[bash])
session = SQLiteSession("ledger")


async def take_turn(prompt: str) -> str:
    """Run the agent; the session keeps the conversation."""
    done = await Runner.run(agent, prompt, session=session, max_turns=40)
    return done.final_output


async def stream_turn(prompt: str) -> str:
    """The same by pieces."""
    run = Runner.run_streamed(agent, prompt, session=session, max_turns=40)
    async for _ in run.stream_events():
        pass
    return run.final_output


take_turns(stream_turn if "stream" in sys.argv else take_turn)
