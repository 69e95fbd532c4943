"""Caps on tokens and money: a call that would pass one is not made.

Start it:   pip install 'foldline[openai]'
            OPENAI_API_KEY=… python examples/caps.py

What a call may take is reserved before it is made, in the store, so that several processes share a
cap. MODEL and OPENAI_BASE_URL choose the model and the server.
"""

import asyncio
import os

import foldline
from foldline.errors import Spent
from foldline.models.clients import client
from foldline.session.spending import Cap, Caps
from foldline.session.turn import reply

NAME = os.environ.get("MODEL", "gpt-6-luna")
CAPS = Caps(call=Cap(tokens=3_000), session=Cap(dollars=0.005), day=Cap(dollars=1.0))


async def main() -> None:
    """Ask until a cap says no."""
    model = client(NAME)
    async with foldline.aopen(":memory:", model=NAME, reserve=1_000, caps=CAPS) as s:
        calls = 0
        while calls < 50:
            await s.add(f"Name a river, other than those before. ({calls})")
            try:
                await reply(s, model, max_completion_tokens=1_000)
            except Spent as refused:
                print(f"call {calls + 1} was not made:", refused)
                break
            calls += 1
        if s.live.spending is not None:
            spent = (await s.live.spending.read_spent()).session
            print(f"{calls} calls took {spent.tokens:,} tokens, ${spent.dollars:.4f}")
    await model.close()


asyncio.run(main())
