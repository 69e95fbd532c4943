"""A run of OpenAI's agents SDK with Foldline's filter and hooks, for the checks of adapters."""

import base64
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import ClassVar

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

import foldline
from foldline.adapters.openai_agents import FoldlineHooks
from foldline.testing.adapter_checks import HELPER, SYSTEM, AdapterHost, choose_host, main, read_log

set_tracing_disabled(disabled=True)


class OpenAIAgentsHost(AdapterHost):
    """An agent with the SDK's own SQLite sessions."""

    limits: ClassVar = {"refused call": "raised, since the SDK has no hook for errors"}
    helper_argument = "input"
    model = OpenAIResponsesModel

    def __init__(self, url, options, file=""):
        super().__init__(url, options)
        self.file = file or str(Path(mkdtemp()) / "sessions.db")
        self.hooks = FoldlineHooks(**options)
        self.instruct(SYSTEM)

    def instruct(self, words):
        """Make the same agent with other instructions."""
        self.agent = self.make_agent(words)

    def make_agent(self, words, *tools):
        """Make an agent with the tool for recall."""
        client = AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)
        return Agent(
            name="watcher",
            instructions=words,
            model=self.model(model="gpt-5", openai_client=client),
            tools=[function_tool(read_log), self.hooks.recall_tool, *tools],
            model_settings=ModelSettings(
                include_usage=True
            ),  # streams of chat completions tell it then
        )

    async def ask(self, thread, words, *, streams=False, picture=b""):
        """Run the agent; the session keeps the conversation."""
        asked = words
        if picture:
            url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
            parts = [
                {"type": "input_text", "text": words},
                {"type": "input_image", "image_url": url, "detail": "auto"},
            ]
            asked = [{"role": "user", "content": parts}]
        session = SQLiteSession(thread, self.file)
        how = {"session": session, "hooks": self.hooks, "run_config": self.hooks.run_config}
        with foldline.conversation(thread):
            if not streams:
                return (await Runner.run(self.agent, asked, max_turns=200, **how)).final_output
            run = Runner.run_streamed(self.agent, asked, max_turns=200, **how)
        async for _ in run.stream_events():
            pass
        return run.final_output

    async def delegate(self, thread, words):
        """Ask an agent that has another one as a tool, which takes its filter but not its hooks."""
        helper = self.make_agent(HELPER).as_tool(
            "ask_helper", "Ask the helper.", hooks=self.hooks, max_turns=200
        )
        own, self.agent = self.agent, self.make_agent(SYSTEM, helper)
        try:
            return await self.ask(thread, words)
        finally:
            self.agent = own

    async def read_history(self, thread):
        """All items of the session."""
        items = await SQLiteSession(thread, self.file).get_items()
        return "\n".join(map(str, items))

    async def restart(self):
        """Another agent on the same sessions."""
        await self.close()
        return type(self)(self.url, self.options, self.file)

    async def close(self):
        """Close the store."""
        await self.hooks.follower.close()


class ChatHost(OpenAIAgentsHost):
    """The same over chat completions."""

    lacks: ClassVar = {
        "reasoning": "the SDK sends it back only to DeepSeek, or over the Responses API"
    }
    model = OpenAIChatCompletionsModel


if __name__ == "__main__":
    sys.exit(main(choose_host({"": OpenAIAgentsHost, "chat": ChatHost})))
