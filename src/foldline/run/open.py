"""Opening a session, new or where it was left.

Knows which store an address means and how settings become facts. Refuses to know what happens then.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec

from foldline.core.budget import limits
from foldline.core.plan import Facts
from foldline.core.policy import named
from foldline.models.catalog import find
from foldline.run.live import Live
from foldline.run.session import AsyncSession, Session
from foldline.run.sync import wait
from foldline.store.base import Name
from foldline.store.sqlite import SqliteStore

P = ParamSpec("P")


async def _start(  # noqa: PLR0913 - one keyword for each thing that a session has
    address: str,
    *,
    model: str,
    system: str | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
    window: int | None = None,
    reserve: int | None = None,
    policy: str = "steady",
    session: str = "main",
    tenant: str = "local",
) -> AsyncSession:
    """Open a session at `":memory:"` or a file's path.

    `window` and `reserve` are in tokens: what the model takes in all, and what its answer may take.
    Without them the catalogue is asked; where it does not know, 128,000 and a tenth are assumed.
    """
    facts = known(model, window=window, reserve=reserve, policy=policy)
    live = await Live.open(SqliteStore(address), Name(tenant, session), facts=facts)
    await live.begin(model)
    opened = AsyncSession(live)
    await opened.instruct(system=system, tools=tools or None)
    return opened


def known(model: str, *, window: int | None, reserve: int | None, policy: str) -> Facts:
    """What decisions rest on: the preset, and what the user or the catalogue says of the model."""
    preset, found = named(policy), find(model)
    given = window is not None and window > 0
    limit = limits(
        window if given else found.window,
        reserve or preset.reserve,
        source="user" if given else found.source,
        max_input=None if given else found.max_input,
        step=found.prices.step,
    )
    return Facts(limit, preset, found.prices)


def _sync(start: Callable[P, Coroutine[Any, Any, AsyncSession]]) -> Callable[P, Session]:
    @wraps(start)
    def opening(*args: P.args, **kwargs: P.kwargs) -> Session:
        return Session(wait(start(*args, **kwargs)))

    return opening


def _managed(
    start: Callable[P, Coroutine[Any, Any, AsyncSession]],
) -> Callable[P, AbstractAsyncContextManager[AsyncSession]]:
    @asynccontextmanager
    @wraps(start)
    async def opening(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[AsyncSession]:
        session = await start(*args, **kwargs)
        try:
            yield session
        finally:
            await session.close()

    return opening


open = _sync(_start)  # noqa: A001 - it is foldline.open
aopen = _managed(_start)
