"""Google's ADK with its Gemini model: `adk_agent.py [stream]`."""

import sys

from google import genai
from google.adk.agents import Agent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.models import Gemini
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types
from job import BASE, GEMINI, KEY, SYSTEM, run_bash, take_turns, wrap_client


def bash(command: str) -> str:
    """Run a command."""
    return run_bash(command)


client = wrap_client(genai.Client(api_key=KEY, http_options={"base_url": BASE}))
model = Gemini(model=GEMINI, client=client)
agent = Agent(name="coder", instruction=SYSTEM, model=model, tools=[bash])
sessions = InMemorySessionService()
runner = Runner(app_name="ledger", agent=agent, session_service=sessions, auto_create_session=True)
config = RunConfig(streaming_mode=StreamingMode.SSE if "stream" in sys.argv else StreamingMode.NONE)


async def take_turn(prompt: str) -> str:
    """Run the agent; the session keeps the conversation."""
    asked = {"user_id": "me", "session_id": "ledger", "new_message": types.UserContent(prompt)}
    run = runner.run_async(**asked, run_config=config)
    return [event.content.parts[0].text async for event in run if event.is_final_response()][-1]


take_turns(take_turn)
