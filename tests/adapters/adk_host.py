"""An app of Google's ADK with Foldline's plugin, for the checks of adapters."""

import sys

from google import genai
from google.adk.agents import Agent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.apps import App
from google.adk.models import Gemini
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from foldline.adapters.adk import FoldlinePlugin
from foldline.testing.adapter_checks import SYSTEM, AdapterHost, main, read_log

WHO = {"app_name": "builds", "user_id": "me"}


class AdkHost(AdapterHost):
    """An agent with ADK's own sessions."""

    heals = False

    def __init__(self, url, options, sessions=None):
        super().__init__(url, options)
        self.sessions = sessions or InMemorySessionService()
        self.plugin = FoldlinePlugin(**options)
        self.instruct(SYSTEM)

    def instruct(self, words):
        """Make the same agent with another instruction."""
        client = genai.Client(api_key="none", http_options={"base_url": self.url})
        model = Gemini(model="gemini-3-pro-preview", client=client)
        agent = Agent(name="watcher", instruction=words, model=model, tools=[read_log])
        app = App(name="builds", root_agent=agent, plugins=[self.plugin])
        self.runner = Runner(app=app, session_service=self.sessions, auto_create_session=True)

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
        return "".join(part.text or "" for part in ends[-1].content.parts)

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
