"""A session as it was left, in a store that stays another's; and held, while it is changed.

Knows that a log names its own model and settings. Refuses to make a session: `run.open` does.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from foldline.run.facts import of_session
from foldline.run.live import Live
from foldline.run.session import AsyncSession
from foldline.store.base import Name, Store

SECONDS = 30.0
"""That a change may take."""


async def left(store: Store, name: Name) -> AsyncSession:
    """A session as it was left, under the facts that it names; empty where there is none."""
    live = await Live.open(store, name, facts=of_session("", {}))
    live.facts, live.shared = of_session(live.view.model, live.view.settings), True
    return AsyncSession(live)


@asynccontextmanager
async def held(seen: AsyncSession, *, seconds: float = SECONDS) -> AsyncGenerator[AsyncSession]:
    """A session for ourselves while we change it: `Busy` where a worker has it (R-63)."""
    await seen.live.hold(seconds)
    try:
        yield seen
    finally:
        await seen.live.let_go()
