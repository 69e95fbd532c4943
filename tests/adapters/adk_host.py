"""An app of Google's ADK with Foldline's plugin, for the checks of adapters."""

import sys
from typing import ClassVar

from google import genai
from google.adk.agents import Agent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.apps import App
from google.adk.models import Gemini
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

from foldline.adapters.adk import FoldlinePlugin
from foldline.testing.adapter_checks import HELPER, SYSTEM, AdapterHost, main, read_log

WHO = {"app_name": "builds", "user_id": "me"}


class AdkHost(AdapterHost):
    """An agent with ADK's own sessions."""

    limits: ClassVar = {
        "refused call": "raised, since a plugin cannot ask again; the next call fits"
    }
    helper_argument = "request"

    def __init__(self, url, options, sessions=None):
        super().__init__(url, options)
        self.sessions = sessions or InMemorySessionService()
        self.plugin = FoldlinePlugin(**options)
        self.instruct(SYSTEM)

    def instruct(self, words):
        """Make the same agent with another instruction."""
        self.runner = self.make_runner(self.make_agent("watcher", words))

    def make_agent(self, name, words, *tools):
        """Make an agent."""
        client = genai.Client(api_key="none", http_options={"base_url": self.url})
        model = Gemini(model="gemini-3-pro-preview", client=client)
        return Agent(name=name, instruction=words, model=model, tools=[read_log, *tools])

    def make_runner(self, agent):
        """Make an app with the plugin, and run it."""
        app = App(name="builds", root_agent=agent, plugins=[self.plugin])
        return Runner(app=app, session_service=self.sessions, auto_create_session=True)

    async def ask(self, thread, words, *, streams=False, picture=b""):
        """Run the agent; the session keeps the conversation."""
        parts = [types.Part(text=words)]
        if picture:
            parts.append(types.Part.from_bytes(data=picture, mime_type="image/png"))
        mode = StreamingMode.SSE if streams else StreamingMode.NONE
        run = self.runner.run_async(
            user_id="me",
            session_id=thread,
            new_message=types.UserContent(parts),
            run_config=RunConfig(streaming_mode=mode),
        )
        ends = [event async for event in run if event.is_final_response() and not event.partial]
        if ends[-1].error_code:
            raise RuntimeError(ends[-1].error_message)
        return "".join(part.text or "" for part in ends[-1].content.parts if not part.thought)

    async def delegate(self, thread, words):
        """Ask an agent that has another one as a tool."""
        helper = AgentTool(self.make_agent("ask_helper", HELPER))
        own, self.runner = self.runner, self.make_runner(self.make_agent("watcher", SYSTEM, helper))
        try:
            return await self.ask(thread, words)
        finally:
            self.runner = own

    async def read_history(self, thread):
        """All events of the session."""
        session = await self.sessions.get_session(**WHO, session_id=thread)
        return "\n".join(one.model_dump_json() for one in session.events)

    async def restart(self):
        """Another app on the same sessions."""
        await self.close()
        return type(self)(self.url, self.options, self.sessions)

    async def close(self):
        """Close the store."""
        await self.plugin.close()


if __name__ == "__main__":
    sys.exit(main(AdkHost))
