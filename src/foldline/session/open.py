"""Opens a session, new or stored."""

import os
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from foldline.core.log import Setting
from foldline.dialects import base
from foldline.errors import BadInput
from foldline.session import arguments
from foldline.session.arguments import System
from foldline.session.log_handle import Live, Settings
from foldline.session.model_facts import build_facts
from foldline.session.session import AsyncSession, Session
from foldline.session.sync import run_coroutine
from foldline.stores.base import POSTGRES, Name, Store
from foldline.stores.open_store import store_at

if TYPE_CHECKING:
    from foldline.core.policy import Policy
    from foldline.models.port import Model
    from foldline.models.servers import Reported
    from foldline.models.summarize import Tellers
    from foldline.models.tokenizers import Tokenizer
    from foldline.session.carry import Carried
    from foldline.session.spending import Caps
    from foldline.session.summaries import Narrator

P = ParamSpec("P")
R = TypeVar("R")
Summarizer: TypeAlias = "str | Model | Sequence[str | Model] | Tellers | None"


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


async def open_session(  # noqa: PLR0913 - one keyword per property of a session
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
    dialect: str | None = None,
    carry: str | None = None,
    parts: Sequence[str] | None = None,
    metadata: Mapping[str, Setting] | None = None,
    exclusive: float | None = None,
    summarizer: Summarizer = None,
    caps: "Caps | None" = None,
    reported: "Reported | None" = None,
    tokenizer: "Tokenizer | None" = None,
    store: Store | None = None,
) -> AsyncSession:
    """Open a session, with the parameters of `open`."""
    arguments.must_be_names(model=model, session=session, tenant=tenant)
    arguments.must_be_tokens(window=window, reserve=reserve)
    arguments.must_be_seconds(exclusive=exclusive)
    if dialect is not None:
        base.must_be_dialect(dialect)
    if carry is not None:
        arguments.must_be_names(carry=carry)
    chosen = _read_parts(carry, parts)
    own = arguments.read_metadata(metadata or {})
    if caps is not None:
        arguments.must_be_caps(caps)
    if summarizer is not None:
        arguments.must_be_summarizer(summarizer)
    arguments.read_system(system or ())
    arguments.read_tools(tools)
    count = None
    if tokenizer is not None:
        from foldline.models.tokenizers import load_tokenizer  # noqa: PLC0415 - few have one

        count = load_tokenizer(tokenizer)
    facts = build_facts(
        model, window=window, reserve=reserve, policy=policy, reported=reported, tokenizer=count
    )
    kept = store_at(address) if store is None else store
    try:
        live = await Live.open(kept, Name(tenant, session), facts=facts)
        live.shared = store is not None
        if caps is not None:
            from foldline.session.spending import Spending  # noqa: PLC0415 - few have caps

            live.spending = Spending(kept, live.name, facts.prices, caps)
        if summarizer == "worker":
            live.narrator = _make_worker_narrator(address)
        elif summarizer is not None:
            from foldline.session.host import find_host  # noqa: PLC0415 - few have one
            from foldline.session.summaries import make_narrator  # noqa: PLC0415

            live.narrator = await make_narrator(
                summarizer, spending=live.spending, host=lambda: find_host(live)
            )
        if exclusive:
            await live.hold_lease(exclusive)
        recorded: Settings = {"policy": facts.policy.name, "window": window, "reserve": reserve}
        if dialect is not None:
            recorded["dialect"] = dialect
        recorded |= own
        settings: Settings = {**live.view.settings, **recorded}  # the host's settings stay
        opened = await start_session(live, model, settings=settings, carry=carry, parts=chosen)
        await opened.instruct(system=system, tools=tools or None)
    except BaseException:
        if store is None:
            await kept.close()
        raise
    return opened


def _share_parameters(
    opener: Callable[P, Coroutine[Any, Any, AsyncSession]],
) -> Callable[[Callable[[Coroutine[Any, Any, AsyncSession]], R]], Callable[P, R]]:
    """Give a function that gets a session's opening the parameters of `opener`."""

    def decorate(wait: Callable[[Coroutine[Any, Any, AsyncSession]], R]) -> Callable[P, R]:
        @wraps(wait)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return wait(opener(*args, **kwargs))

        returned = signature(wait).return_annotation
        shared = signature(opener).replace(return_annotation=returned)
        vars(call).update(__signature__=shared, parameters_of=opener)  # for help() and the docs
        return call

    return decorate


@_share_parameters(open_session)
def open(opening: Coroutine[Any, Any, AsyncSession]) -> Session:  # noqa: A001 - foldline.open
    """Open a session: a new one, or a stored one that continues where it ended.

    - `address`: ":memory:", a file's path, or a postgresql:// address
    - `model`: the model's name; `claude…`, `anthropic/…` and Bedrock's names
      use Anthropic's API, `gemini-…` Google's, all others OpenAI's chat API
    - `dialect`: the API to write requests for, where the vendor has several:
      "openai-responses", "gemini-interactions"
    - `system`: the system prompt, a text or text blocks
    - `tools`: as any of these APIs writes them
    - `window`: tokens in all; by default the catalogue's, else 128,000
    - `reserve`: tokens of these for the answer; by default a tenth
    - `policy`: a preset's name, or a `Policy`
    - `session`, `tenant`: the session's name, and whose it is
    - `carry`: an earlier session whose record opens a new one; `parts`: what
      of it, some of "summary", "pins", "files", "facts"; by default all
    - `metadata`: names and values of your own, kept in the log, never sent
    - `exclusive`: seconds to hold the session; `Busy` if another worker does
    - `summarizer`: who adds a narrative to folds: a model's name, a `Model`,
      a list of these, `Tellers`, or "worker"
    - `caps`: the most that may be spent, `foldline.session.spending.Caps`
    - `reported`: what its server says, `foldline.models.servers.Reported`
    - `tokenizer`: the model's own: a function of a text, or "o200k_base"
    - `store`: the address's store, if it is open already

    System and tools that are left out stay as they were. Close the session,
    or use it in a `with` block. More: docs/reference/opening.md.
    """
    return Session(run_coroutine(opening))


@_share_parameters(open_session)
def aopen(opening: Coroutine[Any, Any, AsyncSession]) -> "Opening":
    """Open a session whose methods are awaited.

    The parameters are those of `foldline.open`.

        s = await foldline.aopen("talks.db", model="gpt-6.1-sol")
        async with foldline.aopen("talks.db", model="gpt-6.1-sol") as s: ...

    The first leaves it to you to `await s.close()`; the second does it.
    """
    return Opening(opening)


def _read_parts(carry: str | None, parts: Sequence[str] | None) -> tuple[str, ...] | None:
    if parts is None:
        return None
    if carry is None:
        raise BadInput(f"parts={parts!r} goes with carry=SESSION, the session that has them")
    from foldline.session.carry import read_parts  # noqa: PLC0415 - few sessions carry on

    return read_parts(parts)


async def start_session(
    live: Live,
    model: str,
    *,
    settings: Settings,
    carry: str | None = None,
    parts: Sequence[str] | None = None,
) -> AsyncSession:
    """Start a session on an open log; record what is new at this opening.

    `carry` names an earlier session whose record, or `parts` of it, opens a new one.
    """
    carried: Carried | None = None
    if live.view.head < 0 and carry:
        from foldline.session.carry import PARTS, build_carried  # noqa: PLC0415 - few carry on
        from foldline.session.host import host_settings  # noqa: PLC0415

        earlier = live.name._replace(session=carry)
        # The earlier session's words go to the same host as before.
        before = await Live.open(live.store, earlier, facts=live.facts)
        settings = {**settings, **host_settings(before.view.settings)}
        carried = await build_carried(live.store, earlier, facts=live.facts, parts=parts or PARTS)
    await live.record_opening(
        model, origin=carry or "", carried=tuple(parts or ()), settings=settings
    )
    if carried is not None:
        await live.receive_events(carried.message)
    return AsyncSession(live, carried=carried)


def _make_worker_narrator(address: str | os.PathLike[str]) -> "Narrator":
    """Make a narrator that leaves narratives to a worker; only for sessions on PostgreSQL."""
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
