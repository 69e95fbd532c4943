"""Opening a session, new or where it was left.

Knows which store an address means and how settings become facts. Refuses to know what happens then.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec

from foldline.core.log import Event
from foldline.run.facts import known
from foldline.run.live import Live, Settings
from foldline.run.session import AsyncSession, Session
from foldline.run.sync import wait
from foldline.store.at import store_at
from foldline.store.base import Name

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
    carry: str | None = None,
    exclusive: float | None = None,
) -> AsyncSession:
    """Open a session at `":memory:"`, a file's path, or a `postgresql://` address.

    `window` and `reserve` are in tokens: what the model takes in all, and what its answer may take.
    Without them the catalogue is asked; where it does not know, 128,000 and a tenth are assumed.
    `carry` names an earlier session whose record opens this one, if this one is new (A-24).
    `exclusive` takes the session for so many seconds, renewed by every append: `Busy` if another
    worker holds it. Messages from outside still come in, by `add(…, once=key)`.
    """
    facts = known(model, window=window, reserve=reserve, policy=policy)
    store = store_at(address)
    try:
        live = await Live.open(store, Name(tenant, session), facts=facts)
        if exclusive:
            await live.hold(exclusive)
        told: list[Event] = []
        if live.view.head < 0 and carry:
            from foldline.run.carry import carried  # noqa: PLC0415 - few sessions carry on

            told.append(await carried(store, Name(tenant, carry), facts=facts))
        settings: Settings = {"policy": policy, "window": window, "reserve": reserve}
        await live.begin(model, origin=carry or "", settings=settings)
        await live.take(*told)
        opened = AsyncSession(live)
        await opened.instruct(system=system, tools=tools or None)
    except BaseException:
        await store.close()
        raise
    return opened


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
