"""Opening a session, new or where it was left.

Knows which store an address means and how settings become facts. Refuses to know what happens then.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec

from foldline.core.budget import Limits, limits
from foldline.core.plan import Facts
from foldline.core.policy import named
from foldline.core.view import load
from foldline.models.catalog import find
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
    preset = named(policy)
    facts = Facts(_limits(model, window, reserve or preset.reserve), preset, find(model).prices)
    store = SqliteStore(address)
    name = Name(tenant, session)
    tail = await store.tail(name)
    view = load(tail.spine, dict(tail.events), head=tail.head)
    opened = AsyncSession(store, name, view=view, facts=facts)
    await opened.begin(model=model, system=system, tools=tools)
    return opened


def _limits(model: str, window: int | None, reserve: int | None) -> Limits:
    known = find(model)
    given = window is not None and window > 0
    return limits(
        window if given else known.window,
        reserve,
        source="user" if given else known.source,
        max_input=None if given else known.max_input,
        step=known.prices.step,
    )


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
