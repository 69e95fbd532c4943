"""Opening a session, new or where it was left.

Knows which store an address means and how settings become facts. Refuses to know what happens then.
"""

import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias

from foldline.core.log import Event
from foldline.errors import BadInput
from foldline.run.facts import known
from foldline.run.live import Live, Settings
from foldline.run.session import AsyncSession, Session
from foldline.run.sync import wait
from foldline.store.addresses import POSTGRES
from foldline.store.at import store_at
from foldline.store.base import Name, Store

if TYPE_CHECKING:
    from foldline.core.policy import Policy
    from foldline.models.port import Model
    from foldline.models.servers import Reported
    from foldline.models.summarize import Tellers
    from foldline.run.narrator import Narrator
    from foldline.run.spend import Caps

P = ParamSpec("P")
Summarizer: TypeAlias = "str | Model | Sequence[str | Model] | Tellers | None"


async def open_session(  # noqa: PLR0913 - one keyword for each thing that a session has
    address: str | os.PathLike[str],
    *,
    model: str,
    system: str | Sequence[str] | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
    window: int | None = None,
    reserve: int | None = None,
    policy: "str | Policy" = "steady",
    session: str = "main",
    tenant: str = "local",
    carry: str | None = None,
    exclusive: float | None = None,
    summarizer: Summarizer = None,
    caps: "Caps | None" = None,
    reported: "Reported | None" = None,
    store: Store | None = None,
) -> AsyncSession:
    """Open a session at `":memory:"`, a file's path, or a `postgresql://` address.

    A session that is there goes on where it was left; one that is not is begun.

    - `model`: who answers, as its provider or the catalogue names it. `anthropic/…` and `claude…`
      are asked in Anthropic's dialect, all others in OpenAI's chat.
    - `system`, `tools`: what the model is told before all else, the tools in either provider's
      form; left out, they stay as they were.
    - `window`, `reserve`: in tokens, what the model takes in all, and what its answer may take.
      Left out, the catalogue is asked; where it does not know, 128,000 and a tenth are assumed.
    - `policy`: a preset's name, or one of `foldline.core.policy` changed to taste.
    - `session`, `tenant`: what the session is called, and whose it is.
    - `carry`: an earlier session whose record opens this one, if this one is new (A-24).
    - `exclusive`: take the session for so many seconds, renewed by every append; `Busy` if another
      worker holds it. Messages from outside still come in, by `add(…, once=key)`.
    - `summarizer`: add a model's narrative to folds, asked for in the background: a model's name, a
      `Model` of `foldline.models`, several of them in order of preference, or `Tellers`; "worker"
      leaves it to `foldline worker`, on PostgreSQL. A name is asked where the session is, if its
      log says where; "NAME@URL" names another address.
    - `caps`: the most that `reply()` and folds may spend, `foldline.run.spend.Caps`.
    - `reported`: what the server says of the model, `foldline.models.servers.ask`.
    - `store`: the address's own where it is open already, one pool of connections for many
      sessions; it is left open.
    """
    _must_be_names(model=model, session=session, tenant=tenant)
    facts = known(model, window=window, reserve=reserve, policy=policy, reported=reported)
    kept = store_at(address) if store is None else store
    try:
        live = await Live.open(kept, Name(tenant, session), facts=facts)
        live.shared = store is not None
        if caps is not None:
            from foldline.run.spend import Spending  # noqa: PLC0415 - few have caps

            live.spending = Spending(kept, live.name, facts.prices, caps)
        if summarizer == "worker":
            live.narrator = _deferring(address)
        elif summarizer is not None:
            from foldline.run.host import find_host  # noqa: PLC0415 - few have one
            from foldline.run.preparing import preparing  # noqa: PLC0415

            live.narrator = await preparing(
                summarizer, spending=live.spending, host=lambda: find_host(live)
            )
        if exclusive:
            await live.hold(exclusive)
        said: Settings = {"policy": facts.policy.name, "window": window, "reserve": reserve}
        settings: Settings = {**live.view.settings, **said}  # the rest stays: where it is asked
        opened = await begun(live, model, settings=settings, carry=carry)
        await opened.instruct(system=system, tools=tools or None)
    except BaseException:
        if store is None:
            await kept.close()
        raise
    return opened


async def begun(
    live: Live, model: str, *, settings: Settings, carry: str | None = None
) -> AsyncSession:
    """A session on an open log: what is new about this opening is recorded."""
    told: list[Event] = []
    if live.view.head < 0 and carry:
        from foldline.run.carry import carried  # noqa: PLC0415 - few sessions carry on
        from foldline.run.host import host_settings  # noqa: PLC0415

        earlier = live.name._replace(session=carry)
        # Its words go where they went before.
        before = await Live.open(live.store, earlier, facts=live.facts)
        settings = {**settings, **host_settings(before.view.settings)}
        told.append(await carried(live.store, earlier, facts=live.facts))
    await live.begin(model, origin=carry or "", settings=settings)
    await live.take(*told)
    return AsyncSession(live)


def _must_be_names(**given: object) -> None:
    for what, said in given.items():
        if not isinstance(said, str) or not said:
            raise BadInput(f"{what}={said!r} is no name; give it as text")


def _deferring(address: str | os.PathLike[str]) -> "Narrator":
    """A worker tells this session's folds; a session in a file has nobody but its own process."""
    if not isinstance(address, str) or not address.startswith(POSTGRES):
        raise BadInput(
            f'summarizer="worker" is for sessions on PostgreSQL, and {address!r} is a file; '
            "name a model, which is asked in this process"
        )
    try:
        from foldline.run.deferring import Deferring  # noqa: PLC0415 - an extra
    except ImportError as fault:
        raise BadInput(
            'summarizer="worker" needs the extra `worker`: '
            f"pip install 'foldline[worker]' ({fault})"
        ) from fault
    return Deferring(address)


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


open = _sync(open_session)  # noqa: A001 - it is foldline.open
aopen = _managed(open_session)
