"""The sessions that are open in this process, and whose turn it is.

Knows that a log may have grown in another process since, that one turn is made at a time, here by a
lock and everywhere by a lease, that what was erased is let go of, and that another owner's session
is none: `seen` is the one way to a session, and it asks whose it is. Refuses to know HTTP.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeAlias

from foldline.agent.events import Moment
from foldline.agent.loop import Agent
from foldline.agent.tool import Tool
from foldline.apps.gateway.api.errors import NotFound
from foldline.errors import Busy
from foldline.models.port import Model
from foldline.models.retries import PATIENT, Patience
from foldline.session.model_facts import of_session
from foldline.session.session import AsyncSession
from foldline.session.spending import Caps, Spending
from foldline.session.stored_session import left, taken
from foldline.stores.base import Name, Store

ModelOf: TypeAlias = Callable[[str, str], Model]
"""The model of a name, for a tenant: the operator's upstream. `BadInput` where there is none."""
ToolsOf: TypeAlias = Callable[[AsyncSession], Sequence[Tool]]
_LONGEST = 600.0  # seconds that a client waits for its turn
_BRIEFLY = 0.25  # seconds for one that does not wait: a turn may just be let go of


def _no_tools(_: AsyncSession) -> Sequence[Tool]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlace:
    """Where sessions are, and what answers in them: the operator's."""

    store: Store
    """Closed by whoever opened it."""
    model_of: ModelOf
    """Models are kept and closed by whoever makes them."""
    tools_of: ToolsOf = _no_tools
    """Tools that the gateway runs itself."""
    caps: Caps | None = None
    patience: Patience = PATIENT
    rounds: int = 25
    """How often in one turn tools may be run: `session.max_tool_iterations`, A-08."""
    most: int = 256
    """Sessions that are held open where nobody is using them."""
    lease: float = 30.0
    """Seconds for which a turn takes its session, renewed while it lasts."""
    body: int = 32 * 1024 * 1024
    """The largest body, in bytes."""


class OpenSession:
    """A session that is open."""

    def __init__(self, session: AsyncSession) -> None:
        self.session = session
        self.turn = asyncio.Lock()
        self.users = 0
        self.owner: str | None = None
        """Whose it is, once that was read; it does not change."""
        self.agent: Agent | None = None
        self.listener: Callable[[Moment], None] | None = None
        """Who is told what happens in the newest turn."""
        self.known = (session.live.view.model, session.live.view.settings)
        """What its facts were made of."""

    def moment(self, moment: Moment) -> None:
        """A hook: tell whoever listens now."""
        if self.listener is not None:
            self.listener(moment)


class Pool:
    """The sessions of one process, open as long as they are used or there is room."""

    def __init__(self, place: PoolPlace) -> None:
        self.place = place
        self._kept: OrderedDict[Name, OpenSession] = OrderedDict()
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def working(self) -> int:
        """How many turns are under way."""
        return len(self._tasks)

    @asynccontextmanager
    async def seen(self, name: Name, *, owner: str | None) -> AsyncGenerator[OpenSession]:
        """A session as its log is now, if it is this owner's (None: whosever it is).

        It is not let go of inside. Another owner's session is answered as one that is not there.
        """
        kept = self._kept.get(name)
        if owner is not None and (kept is None or kept.owner != owner):
            await self._check_owner(name, owner)
        if kept is None:
            session = await left(self.place.store, name)
            if session.live.view.head < 0:
                raise _none(name)
            kept = self._kept.get(name) or self._opened(name, session)
        with self._using(name, kept):
            await self._fresh(name, kept)
            yield kept

    @asynccontextmanager
    async def changing(
        self, kept: OpenSession, *, wait: bool = False
    ) -> AsyncGenerator[AsyncSession]:
        """A session for ourselves: `Busy` where somebody else has it, or wait for them."""
        if kept.turn.locked() and not wait:
            raise Busy(kept.session.live.name.session)
        until = monotonic() + (_LONGEST if wait else 0.0)
        try:
            async with asyncio.timeout(_LONGEST if wait else _BRIEFLY):
                await kept.turn.acquire()
        except TimeoutError:
            raise Busy(kept.session.live.name.session) from None
        try:
            async with taken(kept.session, seconds=self.place.lease, until=until):
                _known(kept)
                yield kept.session
        finally:
            kept.turn.release()

    def spawn(
        self, work: Coroutine[Any, Any, Any], name: Name, kept: OpenSession
    ) -> "asyncio.Task[Any]":
        """Work that goes on when whoever began it is gone; its session stays open."""
        using = self._using(name, kept)
        using.__enter__()
        task = asyncio.create_task(work)
        self._tasks.add(task)

        def over(_: object) -> None:
            self._tasks.discard(task)
            using.__exit__(None, None, None)
            if not task.cancelled():
                task.exception()  # told by whoever waits for it, if anybody still does

        task.add_done_callback(over)
        return task

    def forget(self, name: Name) -> None:
        """Keep nothing of a session."""
        self._kept.pop(name, None)

    async def close(self, *, seconds: float = 0.0) -> None:
        """Let turns end for so long, then stop them: what happened is in their logs."""
        if self._tasks and seconds:
            await asyncio.wait([*self._tasks], timeout=seconds)
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._kept.clear()

    def _opened(self, name: Name, session: AsyncSession) -> OpenSession:
        live, caps = session.live, self.place.caps
        if caps is not None:
            live.spending = Spending(live.store, name, live.facts.prices, caps)
        kept = self._kept[name] = OpenSession(session)
        idle = [one for one, other in self._kept.items() if not other.users and other is not kept]
        for one in idle[: max(len(self._kept) - self.place.most, 0)]:
            del self._kept[one]
        return kept

    @contextlib.contextmanager
    def _using(self, name: Name, kept: OpenSession) -> Generator[None]:
        kept.users += 1
        if self._kept.get(name) is kept:
            self._kept.move_to_end(name)
        try:
            yield
        finally:
            kept.users -= 1

    async def _check_owner(self, name: Name, owner: str) -> None:
        """Refuse another owner's session: before its log is read or its lock is waited for.

        So neither what is in it shows, nor that somebody works on it, nor that it is open here.
        """
        head = await self.place.store.head(name, at=-1)
        if head.owner != owner:
            raise _none(name)

    async def _fresh(self, name: Name, kept: OpenSession) -> None:
        """Take in what other processes wrote; what they erased is forgotten here too."""
        live = kept.session.live
        async with live.lock:
            head = await live.store.head(name)
            kept.owner = head.owner
            if head.seq < live.view.head:
                self.forget(name)
                raise _none(name)
            if head.seq > live.view.head:
                await live.catch_up()
        _known(kept)


def _known(kept: OpenSession) -> None:
    """The facts that the log names now: another process may have gone on with another model."""
    live = kept.session.live
    now = (live.view.model, live.view.settings)
    if now != kept.known:
        live.facts, kept.known = of_session(*now), now


def _none(name: Name) -> NotFound:
    return NotFound(f"there is no session {name.session!r}; GET /sessions lists them")
