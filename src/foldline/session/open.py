"""Opening a session, new or where it was left.

Knows which store an address means and how settings become facts. Refuses to know what happens then.
"""

import os
from collections.abc import Coroutine, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from foldline.core.log import Event
from foldline.errors import BadInput
from foldline.session import arguments
from foldline.session.arguments import System
from foldline.session.log_handle import Live, Settings
from foldline.session.model_facts import known
from foldline.session.session import AsyncSession, Session
from foldline.session.sync import wait
from foldline.stores.base import Name, Store
from foldline.stores.open import store_at
from foldline.stores.url import POSTGRES

if TYPE_CHECKING:
    from foldline.core.policy import Policy
    from foldline.models.port import Model
    from foldline.models.servers import Reported
    from foldline.models.summarize import Tellers
    from foldline.session.spending import Caps
    from foldline.session.summary_port import Narrator

Summarizer: TypeAlias = "str | Model | Sequence[str | Model] | Tellers | None"


def open(  # noqa: A001, PLR0913 - it is foldline.open; one keyword for each thing that a session has
    address: str | os.PathLike[str],
    *,
    model: str,
    system: System | None = None,
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
) -> Session:
    """Open a session: a new one, or one that goes on where it was left.

    - `address`: ":memory:", a file's path, or a postgresql:// address
    - `model`: who answers; `claude…`, `anthropic/…` and Bedrock's names are
      asked as Anthropic's models are, all others as OpenAI's chat
    - `system`: what the model is told first, a text or text blocks
    - `tools`: as either provider writes them
    - `window`: tokens in all; left out, the catalogue says, else 128,000
    - `reserve`: tokens of these for the answer; left out, a tenth
    - `policy`: a preset's name, or a `Policy`
    - `session`, `tenant`: the session's name, and whose it is
    - `carry`: an earlier session whose record opens a new one
    - `exclusive`: seconds to hold the session, renewed by every append;
      `Busy` where another worker holds it
    - `summarizer`: who adds a narrative to folds, a model's name, a `Model`,
      a list of these, `Tellers`, or "worker"
    - `caps`: the most that may be spent, `foldline.session.spending.Caps`
    - `reported`: what `foldline.models.servers.ask` found out of the model
    - `store`: the address's store where it is open already

    System and tools that are left out stay as they were. Close the session,
    or use it in a `with` block. More: docs/reference/opening.md.
    """
    return Session(
        wait(
            open_session(
                address,
                model=model,
                system=system,
                tools=tools,
                window=window,
                reserve=reserve,
                policy=policy,
                session=session,
                tenant=tenant,
                carry=carry,
                exclusive=exclusive,
                summarizer=summarizer,
                caps=caps,
                reported=reported,
                store=store,
            )
        )
    )


def aopen(  # noqa: PLR0913
    address: str | os.PathLike[str],
    *,
    model: str,
    system: System | None = None,
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
) -> "Opening":
    """Open a session whose verbs are awaited.

    The parameters are those of `foldline.open`.

        s = await foldline.aopen("talks.db", model="gpt-5")
        async with foldline.aopen("talks.db", model="gpt-5") as s: ...

    The first leaves it to you to `await s.close()`; the second does it.
    """
    return Opening(
        open_session(
            address,
            model=model,
            system=system,
            tools=tools,
            window=window,
            reserve=reserve,
            policy=policy,
            session=session,
            tenant=tenant,
            carry=carry,
            exclusive=exclusive,
            summarizer=summarizer,
            caps=caps,
            reported=reported,
            store=store,
        )
    )


class Opening:
    """A session that is about to be opened: `await` it, or use it in `async with`."""

    def __init__(self, work: Coroutine[Any, Any, AsyncSession]) -> None:
        self._work = work
        self._session: AsyncSession | None = None

    def __await__(self) -> Generator[Any, Any, AsyncSession]:
        return self._work.__await__()

    async def __aenter__(self) -> AsyncSession:
        self._session = await self._work
        return self._session

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()


async def open_session(  # noqa: PLR0913
    address: str | os.PathLike[str],
    *,
    model: str,
    system: System | None = None,
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
    """Open a session, with the parameters of `open`."""
    arguments.must_be_names(model=model, session=session, tenant=tenant)
    arguments.must_be_tokens(window=window, reserve=reserve)
    arguments.must_be_seconds(exclusive=exclusive)
    if carry is not None:
        arguments.must_be_names(carry=carry)
    if caps is not None and not hasattr(caps, "call"):
        raise BadInput(f"caps={caps!r} are none; give foldline.session.spending.Caps(…)")
    if summarizer is not None:
        arguments.must_be_summarizer(summarizer)
    arguments.read_system(system or ())
    arguments.read_tools(tools)
    facts = known(model, window=window, reserve=reserve, policy=policy, reported=reported)
    kept = store_at(address) if store is None else store
    try:
        live = await Live.open(kept, Name(tenant, session), facts=facts)
        live.shared = store is not None
        if caps is not None:
            from foldline.session.spending import Spending  # noqa: PLC0415 - few have caps

            live.spending = Spending(kept, live.name, facts.prices, caps)
        if summarizer == "worker":
            live.narrator = _deferring(address)
        elif summarizer is not None:
            from foldline.session.host import find_host  # noqa: PLC0415 - few have one
            from foldline.session.summaries import preparing  # noqa: PLC0415

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
        from foldline.session.carry import carried  # noqa: PLC0415 - few sessions carry on
        from foldline.session.host import host_settings  # noqa: PLC0415

        earlier = live.name._replace(session=carry)
        # Its words go where they went before.
        before = await Live.open(live.store, earlier, facts=live.facts)
        settings = {**settings, **host_settings(before.view.settings)}
        told.append(await carried(live.store, earlier, facts=live.facts))
    await live.begin(model, origin=carry or "", settings=settings)
    await live.take(*told)
    return AsyncSession(live)


def _deferring(address: str | os.PathLike[str]) -> "Narrator":
    """A worker tells this session's folds; a session in a file has nobody but its own process."""
    if not isinstance(address, str) or not address.startswith(POSTGRES):
        raise BadInput(
            f'summarizer="worker" is for sessions on PostgreSQL, and {address!r} is a file; '
            "name a model, which is asked in this process"
        )
    try:
        from foldline.session.fold_queue import Deferring  # noqa: PLC0415 - an extra
    except ImportError as fault:
        raise BadInput(
            'summarizer="worker" needs the extra `worker`: '
            f"pip install 'foldline[worker]' ({fault})"
        ) from fault
    return Deferring(address)
