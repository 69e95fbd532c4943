"""The sessions that are open in this process.

`open_session` is the only way to a session: it checks the owner, reads what other processes have
written since, and drops what they have erased. One turn runs at a time: a lock holds off others in
this process, a lease those in other processes.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal, TypeAlias

from foldline.agent.events import Moment
from foldline.agent.loop import Agent
from foldline.agent.tool import Tool
from foldline.apps.gateway.api.api_call import NotFound
from foldline.apps.gateway.api_keys import Client
from foldline.apps.gateway.session_shares import is_shared
from foldline.errors import Busy
from foldline.models.port import Model
from foldline.models.retries import PATIENT, Patience
from foldline.session.log_handle import Live
from foldline.session.model_facts import FactsOf, of_session
from foldline.session.session import AsyncSession
from foldline.session.spending import Caps, Spending
from foldline.session.stored_session import open_stored_session, wait_and_hold_session
from foldline.stores.base import Name, Store

ModelOf: TypeAlias = Callable[[str, str], Model]
"""Opens the model of a name for a tenant; raises `BadInput` if no upstream has it."""
Prepare: TypeAlias = Callable[[Live], Awaitable[None]]
ToolsOf: TypeAlias = Callable[[AsyncSession], Sequence[Tool]]
_LONGEST = 600.0  # seconds that a client waits for its turn
_BRIEFLY = 0.25  # seconds for a client that does not wait: a turn may just be ending


def _no_tools(_: AsyncSession) -> Sequence[Tool]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlace:
    """The operator's store, models, tools and limits."""

    store: Store
    """Closed by whoever opened it."""
    model_of: ModelOf
    """Models are closed by whoever makes them."""
    limit_model: Callable[[Model, Client], Model] = lambda model, _client: model
    """Returns a model whose calls count to a client's limits."""
    tools_of: ToolsOf = _no_tools
    """Tools that the gateway runs itself."""
    facts_of_tenant: Callable[[str], FactsOf] = lambda _: of_session
    """Returns what builds the facts of a tenant's session, under the operator's settings."""
    prepare: Prepare | None = None
    """Gives an opened log its narrator."""
    caps: Caps | None = None
    patience: Patience = PATIENT
    rounds: int = 25
    """How often one turn may run tools."""
    on_disconnect: Literal["pause", "continue"] = "pause"
    """What happens to a turn whose client is gone, if neither it nor its session says."""
    most: int = 256
    """Sessions that are kept open although nobody uses them."""
    lease: float = 30.0
    """Seconds of a turn's lease on its session, renewed while the turn lasts."""
    body: int = 32 * 1024 * 1024
    """The largest body, in bytes."""


class OpenSession:
    """A session that is open."""

    def __init__(self, session: AsyncSession, place: PoolPlace) -> None:
        self.session, self._place = session, place
        self.turn = asyncio.Lock()
        self.users = 0
        self.owner: str | None = None
        """Its owner, once that was read; it does not change."""
        self.agent: Agent | None = None
        self.listener: Callable[[Moment], None] | None = None
        """Hears what happens in the newest turn."""
        self.known = (session.live.view.model, session.live.view.settings)
        """The model and settings that its facts were made from."""

    @property
    def on_disconnect(self) -> Literal["pause", "continue"]:
        """What happens to a turn whose client is gone: as its log says, else as the operator."""
        said = self.session.live.view.settings.get("on_disconnect") or self._place.on_disconnect
        return "continue" if said == "continue" else "pause"

    def notify_listener(self, moment: Moment) -> None:
        """Pass a moment to the current listener; a hook of the agent."""
        if self.listener is not None:
            self.listener(moment)


class Pool:
    """The open sessions of one process: those in use, and idle ones while there is room."""

    def __init__(self, place: PoolPlace) -> None:
        self.place = place
        self._kept: OrderedDict[Name, OpenSession] = OrderedDict()
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._kept)

    @asynccontextmanager
    async def open_session(
        self, name: Name, *, owner: str | None, only_reads: bool = False
    ) -> AsyncGenerator[OpenSession]:
        """Open a session as its log is now, and keep it open inside the block.

        Another owner's session raises `NotFound`, as if it did not exist, unless it is shared and
        `only_reads`; `owner=None` opens any.
        """
        kept = self._kept.get(name)
        if owner is not None and (kept is None or kept.owner != owner):
            await self._check_owner(name, owner, only_reads=only_reads)
        if kept is None:
            place = self.place
            session = await open_stored_session(
                place.store, name, facts_of=place.facts_of_tenant(name.tenant)
            )
            if session.live.view.head < 0:
                raise _make_not_found(name)
            if place.prepare is not None:
                await place.prepare(session.live)
            kept = self._kept.get(name) or self._add_session(name, session)
        with self._hold_session(name, kept):
            await self._update_session(name, kept)
            yield kept

    @asynccontextmanager
    async def lock_session(
        self, kept: OpenSession, *, wait: bool = False
    ) -> AsyncGenerator[AsyncSession]:
        """Lock a session; if somebody else has it, raise `Busy` or wait for them."""
        if kept.turn.locked() and not wait:
            raise Busy(kept.session.live.name.session)
        until = monotonic() + (_LONGEST if wait else 0.0)
        try:
            async with asyncio.timeout(_LONGEST if wait else _BRIEFLY):
                await kept.turn.acquire()
        except TimeoutError:
            raise Busy(kept.session.live.name.session) from None
        try:
            async with wait_and_hold_session(kept.session, seconds=self.place.lease, until=until):
                self._update_facts(kept)
                yield kept.session
        finally:
            kept.turn.release()

    def start_task(
        self, work: Coroutine[Any, Any, Any], name: Name, kept: OpenSession
    ) -> "asyncio.Task[Any]":
        """Start work that outlives its request; the session stays open meanwhile."""
        using = self._hold_session(name, kept)
        using.__enter__()
        task = asyncio.create_task(work)
        self._tasks.add(task)

        def finish_task(_: object) -> None:
            self._tasks.discard(task)
            using.__exit__(None, None, None)
            if not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not warn if nobody waits for it

        task.add_done_callback(finish_task)
        return task

    def drop_session(self, name: Name) -> None:
        """Forget a session."""
        self._kept.pop(name, None)

    def stop_turns(self) -> None:
        """Stop all turns: what happened is in their logs."""
        for task in [*self._tasks]:
            task.cancel()

    async def close(self, *, seconds: float = 0.0) -> None:
        """Let turns end for `seconds`, then stop them: what happened is in their logs."""
        if self._tasks and seconds:
            await asyncio.wait([*self._tasks], timeout=seconds)
        self.stop_turns()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for kept in self._kept.values():
            if kept.session.live.narrator is not None:
                await kept.session.live.narrator.close()
        self._kept.clear()

    def _add_session(self, name: Name, session: AsyncSession) -> OpenSession:
        live, caps = session.live, self.place.caps
        if caps is not None:
            live.spending = Spending(live.store, name, live.facts.prices, caps)
        kept = self._kept[name] = OpenSession(session, self.place)
        idle = [key for key, other in self._kept.items() if not other.users and other is not kept]
        for key in idle[: max(len(self._kept) - self.place.most, 0)]:
            del self._kept[key]
        return kept

    @contextlib.contextmanager
    def _hold_session(self, name: Name, kept: OpenSession) -> Generator[None]:
        kept.users += 1
        if self._kept.get(name) is kept:
            self._kept.move_to_end(name)
        try:
            yield
        finally:
            kept.users -= 1

    async def _check_owner(self, name: Name, owner: str, *, only_reads: bool) -> None:
        """Refuse another owner's session before its log is read or its lock is waited for.

        So it does not show what is in the session, that somebody works on it, or that it is open.
        """
        head = await self.place.store.head(name, at=-1)
        if head.owner == owner or (only_reads and await is_shared(self.place.store, name, owner)):
            return
        raise _make_not_found(name)

    async def _update_session(self, name: Name, kept: OpenSession) -> None:
        """Read what other processes wrote; forget a session that they erased."""
        live = kept.session.live
        async with live.lock:
            head = await live.store.head(name)
            kept.owner = head.owner
            if head.seq < live.view.head:
                self.drop_session(name)
                raise _make_not_found(name)
            if head.seq > live.view.head:
                await live.catch_up()
        self._update_facts(kept)

    def _update_facts(self, kept: OpenSession) -> None:
        """Update the facts from the log: another process may have switched the model."""
        live = kept.session.live
        now = (live.view.model, live.view.settings)
        if now != kept.known:
            facts_of = self.place.facts_of_tenant(live.name.tenant)
            live.facts, kept.known = facts_of(*now), now


def _make_not_found(name: Name) -> NotFound:
    return NotFound(f"there is no session {name.session!r}; GET /sessions lists them")
