"""A session as it was left, in a store that stays another's; and held, while it is changed.

Knows that a log names its own model and settings. Refuses to make a session: `open` does.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from math import inf
from time import monotonic

from foldline.errors import Busy, FoldlineError
from foldline.session.log_handle import Live
from foldline.session.model_facts import of_session
from foldline.session.session import AsyncSession
from foldline.stores.base import Name, Store

SECONDS = 30.0
"""That a change may take."""
_LOOK = 0.25  # seconds between two tries to take a session that another process has


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


@asynccontextmanager
async def taken(
    seen: AsyncSession, *, seconds: float, until: float = inf
) -> AsyncGenerator[AsyncSession]:
    """A session for ourselves for as long as it takes: waited for, and renewed meanwhile.

    `Busy` where another process has it still when the clock `monotonic` says `until`.
    """
    async with AsyncExitStack() as stack:
        while True:
            try:
                # Under the session's lock: what others wrote is taken in, and nobody else does so.
                async with seen.live.lock:
                    await stack.enter_async_context(held(seen, seconds=seconds))
                break
            except Busy:
                if monotonic() >= until:
                    raise
            await asyncio.sleep(min(_LOOK, seconds / 4))
        async with repeated(seconds / 3, lambda: _renewed(seen.live)):
            yield seen


@asynccontextmanager
async def repeated(every: float, work: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
    """Some work again and again meanwhile, so many seconds apart; a failed one is tried again."""
    over = asyncio.Event()

    async def beat() -> None:
        while not over.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(every):
                    await over.wait()
                    return
            with suppress(FoldlineError):  # the next append finds out
                await work()

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        # Told, not cancelled: before Python 3.12 a driver can lose a cancellation, and whoever
        # waits for its task then waits for ever.
        over.set()
        await beating


async def _renewed(live: Live) -> None:
    """Held for as long again: a model may take longer to answer than a lease lasts."""
    # Under the lock: renewed too late a lease has a new fence, and what is being written just
    # now would be refused for having the old one.
    async with live.lock:
        await live.renew()
