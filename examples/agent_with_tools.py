"""An agent that reads, searches and writes in a folder, and asks you before it changes anything.

Start it:   pip install 'foldline[openai]'
            OPENAI_API_KEY=… python examples/agent_with_tools.py FOLDER "Write notes.md about it."

A tool of your own stands beside ours. MODEL and OPENAI_BASE_URL choose the model and the server.
"""

import asyncio
import os
import sys
from datetime import UTC, datetime

import foldline
from foldline.agent.events import Called, Moment
from foldline.agent.loop import Agent
from foldline.agent.tool import Intent, Result, Tool, said
from foldline.agent.tools import own
from foldline.models.clients import client

if len(sys.argv) != 3:
    sys.exit(__doc__)
folder, task = sys.argv[1:]
NAME = os.environ.get("MODEL", "gpt-6-luna")


async def today(_: object) -> Result:
    """The tool of our own."""
    return said(f"{datetime.now(UTC):%Y-%m-%d}")


async def approve(_: object, intent: Intent) -> str | None:
    """None agrees; a text is why not, for the model to read."""
    print(f"{intent.what}\n{intent.detail}")
    answer = await asyncio.to_thread(input, "allow? [y/n] ")
    return None if answer == "y" else "the user said no"


def watch(moment: Moment) -> None:
    """A hook: what a tool came to."""
    if isinstance(moment, Called):
        print(f"{moment.call.name}: {'ok' if moment.result.ok else 'failed'}")


async def main() -> None:
    """One turn: as many calls as it takes."""
    calendar = Tool(name="today", description="The date.", schema={"type": "object"}, run=today)
    async with foldline.aopen(":memory:", model=NAME, system="Work in the folder.") as s:
        tools = [*own(s, folder, shell=False), calendar]
        model = client(NAME)
        agent = Agent(s, model, tools=tools, approve=approve, hooks=[watch])
        print((await agent.turn(task)).words)
        await model.close()


asyncio.run(main())
