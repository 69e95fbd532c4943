"""pydantic-ai's agent with Foldline's capability, for the checks of adapters."""

import sys

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent, BinaryContent, Tool, UsageLimits
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from foldline.adapters.pydantic_ai import FoldlineCapability
from foldline.testing.adapter_checks import HELPER, SYSTEM, AdapterHost, choose_host, main, read_log

NO_LIMIT = UsageLimits(request_limit=None)


class PydanticHost(AdapterHost):
    """An agent whose history the program keeps, as JSON between two runs."""

    model = OpenAIChatModel

    def __init__(self, url, options, kept=None):
        super().__init__(url, options)
        self.kept = kept or {}
        self.capability = FoldlineCapability(**options)
        self.instruct(SYSTEM)

    def instruct(self, words):
        """Make the same agent with other instructions."""
        self.agent = self.make_agent(words)

    def make_agent(self, words, *tools):
        """Make an agent with the capability."""
        return Agent(
            self.make_model(),
            instructions=words,
            tools=[Tool(read_log), *tools],
            capabilities=[self.capability],
        )

    def make_model(self):
        """Make the model that is asked."""
        client = AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)
        return self.model("gpt-5", provider=OpenAIProvider(openai_client=client))

    async def ask(self, thread, words, *, streams=False, picture=b""):
        """Run the agent on the thread's history."""
        before = ModelMessagesTypeAdapter.validate_json(self.kept.get(thread, b"[]"))
        asked = [words, BinaryContent(picture, media_type="image/png")] if picture else words
        how = {"message_history": before, "conversation_id": thread, "usage_limits": NO_LIMIT}
        if streams:
            async with self.agent.iter(asked, **how) as run:
                async for node in run:
                    if Agent.is_model_request_node(node):
                        async with node.stream(run.ctx) as stream:
                            async for _ in stream:
                                pass
            done = run.result
        else:
            done = await self.agent.run(asked, **how)
        self.kept[thread] = done.all_messages_json()
        return done.output

    async def delegate(self, thread, words):
        """Ask an agent that runs another one in a tool."""
        helper = self.make_agent(HELPER)

        async def ask_helper(words: str) -> str:
            """Ask the helper."""
            return (await helper.run(words, usage_limits=NO_LIMIT)).output

        own, self.agent = self.agent, self.make_agent(SYSTEM, Tool(ask_helper))
        try:
            return await self.ask(thread, words)
        finally:
            self.agent = own

    async def read_history(self, thread):
        """All messages that the program keeps."""
        return self.kept[thread].decode()

    async def restart(self):
        """Another agent on the same histories."""
        await self.close()
        return type(self)(self.url, self.options, self.kept)

    async def close(self):
        """Close the store."""
        await self.capability.follower.close()


class ResponsesHost(PydanticHost):
    """The same over the Responses API, pydantic-ai's default."""

    model = OpenAIResponsesModel


class AnthropicHost(PydanticHost):
    """The same with Claude, whose thoughts are signed."""

    def make_model(self):
        """Make the model that is asked."""
        client = AsyncAnthropic(base_url=self.url, api_key="none", max_retries=0)
        return AnthropicModel(
            "claude-sonnet-4-5", provider=AnthropicProvider(anthropic_client=client)
        )


if __name__ == "__main__":
    sys.exit(
        main(
            choose_host({"": PydanticHost, "responses": ResponsesHost, "anthropic": AnthropicHost})
        )
    )
