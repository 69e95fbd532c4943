"""Microsoft's agent-framework with its default client, which chains responses: `agent_framework_agent.py [stream]`."""

import sys

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient
from job import CLIENT, GPT, SYSTEM, run_bash, take_turns, wrap_client
from openai import AsyncOpenAI


def bash(command: str) -> str:
    """Run a command."""
    return run_bash(command)


client = OpenAIChatClient(GPT, async_client=wrap_client(AsyncOpenAI(**CLIENT), own_history=True))
agent = Agent(client, SYSTEM, tools=[bash])
session = agent.create_session()


async def take_turn(prompt: str) -> str:
    """Run the agent; the session holds the id of the newest response, and the provider the conversation."""
    return (await agent.run(prompt, session=session)).text


async def stream_turn(prompt: str) -> str:
    """The same by pieces."""
    pieces = [piece.text async for piece in agent.run(prompt, session=session, stream=True)]
    return "".join(pieces)


take_turns(stream_turn if "stream" in sys.argv else take_turn)
