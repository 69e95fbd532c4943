"""pydantic-ai over chat, Responses or Anthropic: `pydantic_agent.py chat|responses|anthropic [stream]`."""

import sys
from typing import Any

from job import BASE, CLAUDE, CLIENT, GPT, SYSTEM, run_bash, take_turns, wrap_client
from pydantic_ai import Agent, Tool

if "anthropic" in sys.argv:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    claude = wrap_client(AsyncAnthropic(**{**CLIENT, "base_url": BASE}))
    model = AnthropicModel(CLAUDE, provider=AnthropicProvider(anthropic_client=claude))
else:
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = wrap_client(AsyncOpenAI(**CLIENT))
    make = OpenAIResponsesModel if "responses" in sys.argv else OpenAIChatModel
    model = make(GPT, provider=OpenAIProvider(openai_client=client))

agent = Agent(model, instructions=SYSTEM, tools=[Tool(run_bash, name="bash")])
history: list[Any] = []


async def take_turn(prompt: str) -> str:
    """Run the agent on the conversation so far."""
    done = await agent.run(prompt, message_history=history)
    history[:] = done.all_messages()
    return done.output


async def stream_turn(prompt: str) -> str:
    """The same by pieces."""
    async with agent.iter(prompt, message_history=history) as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as stream:
                    async for _ in stream:
                        pass
    history[:] = run.result.all_messages()
    return run.result.output


take_turns(stream_turn if "stream" in sys.argv else take_turn)
