"""Two workers and one session on PostgreSQL: who works holds a lease, messages come in once.

Start it:   pip install 'foldline[openai,pg]'
            FOLDLINE_STORE=postgresql://user@host/database OPENAI_API_KEY=… \
                python examples/postgres_workers.py

MODEL and OPENAI_BASE_URL choose the model and the server.
"""

import asyncio
import os

from openai import AsyncOpenAI

import foldline
from foldline.errors import Busy

ADDRESS = os.environ["FOLDLINE_STORE"]
SESSION = os.environ.get("SESSION", "order-4711")
MODEL = os.environ.get("MODEL", "gpt-6-luna")


async def deliver(words: str, key: str) -> None:
    """A message from outside: it needs no lease, and its key says that it may come twice."""
    async with foldline.aopen(ADDRESS, model=MODEL, session=SESSION) as s:
        await s.add(words, once=key)


async def work(name: str) -> bool:
    """Answer what stands unanswered, if nobody else is at it."""
    try:
        async with (
            foldline.aopen(ADDRESS, model=MODEL, session=SESSION, exclusive=30) as s,
            AsyncOpenAI() as client,
        ):
            print(f"{name}: holds {SESSION}")
            await deliver("And gift wrap, please.", "shop/18")  # while we work
            await s.create(client)
            turns = await s.history.turns()
            print(f"{name}: answered; {len(turns)} messages of the user are in the log")
            return True
    except Busy as busy:
        print(f"{name}: {busy}")
        return False


async def main() -> None:
    """The same message delivered twice, and two workers that want to answer it."""
    await deliver("Where is my order?", "shop/17")
    await deliver("Where is my order?", "shop/17")
    done = await asyncio.gather(work("worker 1"), work("worker 2"))
    print(f"{sum(done)} of {len(done)} workers worked at a time")


asyncio.run(main())
