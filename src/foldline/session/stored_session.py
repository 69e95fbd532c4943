"""Sessions in a store that stays open: opened, held while changed, and listed.

A log names its own model and settings. Listing reads rows and loads no views.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from time import monotonic

from foldline.core import log
from foldline.core.log import Checkpointed, ModelSwitched, Opened, Setting, SettingsChanged
from foldline.core.own_words import read_own_words
from foldline.core.parts import render_parts
from foldline.errors import Busy, FoldlineError, FormatError
from foldline.session.arguments import select_metadata
from foldline.session.log_handle import Live
from foldline.session.model_facts import FactsOf, of_session
from foldline.session.session import AsyncSession
from foldline.stores import event_log
from foldline.stores.base import Listed, Name, Store

_PAGE = 100  # sessions listed at a time
_TELLING = ("opened", "settings_changed", "model_switched", "user_said", "checkpointed")


@dataclass(frozen=True, slots=True)
class Summary:
    """One session: its entry in the store's list, and what its log says."""

    listed: Listed
    model: str = ""
    turns: int = 0
    words: str = ""
    """The first words of a person."""
    metadata: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    """The names and values that its maker gave it."""
    fault: str = ""
    """Why its log could not be read, or ""."""
    title: str = ""
    """What the agent called it, in an imported session."""
    happened: float = 0.0
    """When its last event happened; of an imported session, not when it was imported."""

    @property
    def name(self) -> str:
        """The session's name."""
        return self.listed.session


async def iterate_sessions(store: Store, tenant: str) -> AsyncGenerator[Listed]:
    """Yield every session of a tenant, by name."""
    after = ""
    while page := await store.sessions(tenant, after=after, limit=_PAGE):
        for one in page:
            yield one
        after = page[-1].session


async def iterate_summaries(store: Store, tenant: str) -> AsyncGenerator[Summary]:
    """Yield the summary of every session of a tenant, by name."""
    async for one in iterate_sessions(store, tenant):
        yield await read_summary(store, Name(tenant, one.session), one)


async def read_summary(store: Store, name: Name, known: Listed) -> Summary:
    """Read a session's current model, its number of turns and its first words."""
    model, turns, words, any_words, title, happened = "", 0, "", "", "", 0.0
    settings: Mapping[str, Setting] = {}
    try:
        async for row in event_log.iterate_rows(store, name, known.head):
            happened = max(happened, row.time)
            if row.kind not in _TELLING:
                continue
            event = log.decode_event(row.body)
            if isinstance(event, Opened | SettingsChanged):
                settings = event.settings
            if isinstance(event, Opened | ModelSwitched):
                model = event.model
            elif isinstance(event, Checkpointed):
                title = event.body if event.label == "title" else title
            elif log.begins_turn(event):
                turns += 1
                if log.by_user(event):
                    words = words or read_own_words(event.parts)
                    any_words = any_words or " ".join(render_parts(event.parts).split())
    except FormatError as fault:
        words = words or any_words
        return Summary(known, model, turns, words, fault=str(fault), happened=known.changed)
    about, words = select_metadata(settings), words or any_words
    last = happened or known.changed
    return Summary(known, model, turns, words, about, title=" ".join(title.split()), happened=last)


SECONDS = 30.0
"""The longest that a change may take."""
_CANCEL_AGAIN = 1.0  # seconds until a task that goes on is cancelled again
_LOOK = 0.25  # seconds between two tries to hold a session that another process holds


async def open_stored_session(
    store: Store, name: Name, *, facts_of: FactsOf = of_session
) -> AsyncSession:
    """Open a stored session with the facts that its log names; empty if there is none."""
    live = await Live.open(store, name, facts=of_session("", {}))
    live.facts, live.shared = facts_of(live.view.model, live.view.settings), True
    return AsyncSession(live)


@asynccontextmanager
async def hold_stored_session(
    seen: AsyncSession, *, seconds: float = SECONDS
) -> AsyncGenerator[AsyncSession]:
    """Hold a session while we change it; raises `Busy` if another process holds it."""
    await seen.live.hold_lease(seconds)
    try:
        yield seen
    finally:
        await seen.live.let_go()


@asynccontextmanager
async def wait_and_hold_session(
    seen: AsyncSession, *, seconds: float, until: float = inf
) -> AsyncGenerator[AsyncSession]:
    """Wait for a session, then hold it for as long as it takes.

    Raises `Busy` if another process still holds it at `until`, by the clock `monotonic`.
    """
    async with AsyncExitStack() as stack:
        while True:
            try:
                # Under the lock: this reads what others wrote, one reader at a time.
                async with seen.live.lock:
                    await stack.enter_async_context(hold_stored_session(seen, seconds=seconds))
                break
            except Busy:
                if monotonic() >= until:
                    raise
            await asyncio.sleep(min(_LOOK, seconds / 4))
        async with run_repeatedly(seconds / 3, lambda: _renew_lease(seen.live)):
            yield seen


@asynccontextmanager
async def run_repeatedly(every: float, work: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
    """Run work every `every` seconds in the background; after a failure, try again."""
    over = asyncio.Event()

    async def run_loop() -> None:
        while not over.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(every):
                    await over.wait()
                    return
            with suppress(FoldlineError):  # the next append will fail and say so
                await work()

    beating = asyncio.create_task(run_loop())
    try:
        yield
    finally:
        # Signalled, not cancelled: before Python 3.12 a driver can lose a cancellation, and
        # waiting for its task would then never end.
        over.set()
        await beating


async def _renew_lease(live: Live) -> None:
    """Renew the lease: a model may take longer to answer than a lease lasts."""
    # Under the lock: a lease renewed too late has a new fence, and an append under way would be
    # refused for having the old one.
    async with live.lock:
        await live.renew()


async def cancel_tasks(*tasks: "asyncio.Task[object]") -> None:
    """Cancel tasks until all are over: before Python 3.12 a driver can lose a cancellation."""
    rest = {*tasks}
    while rest:
        for task in rest:
            task.cancel()
        _, rest = await asyncio.wait(rest, timeout=_CANCEL_AGAIN)
