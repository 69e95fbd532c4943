"""Several sessions at once with `await`, in one file, each with a window of its own.

Start it:   pip install 'foldline[openai]'
            OPENAI_API_KEY=… python examples/async_many.py

MODEL and OPENAI_BASE_URL choose the model and the server.
"""

import asyncio
import os
import tempfile

from openai import AsyncOpenAI

import foldline

MODEL = os.environ.get("MODEL", "gpt-6-luna")
TOPICS = ("rivers", "bridges", "clocks", "bread")


async def talk(client: AsyncOpenAI, address: str, topic: str) -> str:
    """One session: three turns, each answered before the next."""
    async with foldline.aopen(
        address, model=MODEL, session=topic, system="Answer in one short sentence."
    ) as s:
        for turn in range(3):
            await s.add(f"Tell me fact {turn + 1} about {topic}.")
            await s.create(client)
        turns = await s.history.turns()
        return f"{topic}: {len(turns)} turns, {s.report}"


async def main() -> None:
    """All of them side by side."""
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncOpenAI() as client:
            talks = [talk(client, f"{folder}/talks.db", topic) for topic in TOPICS]
            for line in await asyncio.gather(*talks):
                print(line)


asyncio.run(main())
