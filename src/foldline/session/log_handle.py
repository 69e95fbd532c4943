"""A log and its view, kept in step: what sessions, wrapped clients and gateways stand on.

Knows the store, the view and the facts, and that an event is written before it is shown. Refuses to
know who speaks, and what is sent: `planning` plans that on what stands here.
"""

import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import wraps
from time import time
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
)

from foldline.core import log
from foldline.core.handles import handle
from foldline.core.log import (
    Event,
    Instructed,
    Logged,
    ModelSwitched,
    Opened,
    Setting,
    SettingsChanged,
)
from foldline.core.plan import Facts, admit
from foldline.core.request import Report
from foldline.core.spine import Range, Spine, places
from foldline.core.view import View
from foldline.errors import (
    Busy,
    Conflict,
    Erased,
    FoldlineError,
    StoreFailed,
)
from foldline.stores import event_log
from foldline.stores.base import Lease, Name, Store

if TYPE_CHECKING:
    from asyncio import Lock

    from foldline.core.edits.fold import Prepared
    from foldline.session.spending import Spending
    from foldline.session.summary_port import Narrator

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound="_HasLive")
Settings: TypeAlias = dict[str, Setting]


def alone(
    method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[T, P], Coroutine[Any, Any, R]]:
    """One verb of a session at a time: each decides of a view that stays until it has written."""

    @wraps(method)
    async def waiting(one: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
        async with one.live.lock:
            return await method(one, *args, **kwargs)

    return waiting


class _HasLive(Protocol):
    @property
    def live(self) -> "Live": ...


class Live:
    """One session's log, open."""

    def __init__(self, store: Store, name: Name, *, view: View, facts: Facts) -> None:
        self.store = store
        self.name = name
        self.view = view
        self.facts = facts
        self.report: Report | None = None
        """Of the newest request, until something else happens."""
        self.touched = 0.0
        """When the provider was asked last, as far as we know."""
        self.lease: Lease | None = None
        """While it is held, nobody but the senders of messages writes beside us."""
        self.owner = ""
        """For whom a new session is claimed with its first event."""
        self.shared = False
        """Whether the store is another's to close."""
        self.narrator: Narrator | None = None
        self.spending: Spending | None = None
        """What calls and folds are paid from, where there is a cap."""
        from foldline.session.hooks import Passes  # noqa: PLC0415 - not needed to import foldline

        self.passes = Passes(name)
        """Who watches folds, and who may forbid them."""
        self.prepared: Prepared | None = None
        """A narrative for the fold that is near, once one was found."""
        self._holder, self._seconds = os.urandom(8).hex(), 0.0
        self._lock: Lock | None = None
        self._unknown = False  # whether an append was left before its outcome was known

    @classmethod
    async def open(cls, store: Store, name: Name, *, facts: Facts) -> "Live":
        """A log where it was left, or none yet."""
        tail = await event_log.tail(store, name)
        view = tail.view()
        live = cls(store, name, view=view, facts=facts)
        live.touched = tail.changed
        return live

    @property
    def lock(self) -> "Lock":
        """Whoever decides and appends holds it."""
        if self._lock is None:
            from asyncio import Lock  # noqa: PLC0415 - half of the time of an import

            self._lock = Lock()
        return self._lock

    async def hold(self, seconds: float) -> None:
        """Take the session for ourselves; every append renews that."""
        self._seconds = seconds
        await self.renew()
        await self.catch_up()

    async def let_go(self) -> None:
        """Give the session back, if we hold it."""
        lease, self.lease = self.lease, None
        if lease is not None:
            await self.store.release(lease)

    async def renew(self) -> None:
        """Hold the session for as long again: also a call without an append may be long."""
        lease = await self.store.lease(self.name, self._holder, seconds=self._seconds)
        if lease is None:  # what was held stays ours to be refused by: its fence is an old one
            raise Busy(self.name.session)
        self.lease = lease

    async def close(self) -> None:
        """Let go of the lease and the store; the log stays."""
        if self.narrator is not None:
            await self.narrator.close()
        await self.let_go()
        if not self.shared:
            await self.store.close()

    async def begin(
        self, model: str, *, origin: str = "", settings: Settings | None = None
    ) -> None:
        """Record what is new about this opening: the session, its model, its settings."""
        await self.record(*self.beginning(model, origin=origin, settings=settings))
        if settings is not None and self.view.settings != settings:
            await self.record(SettingsChanged(settings))

    def beginning(
        self, model: str, *, origin: str = "", settings: Settings | None = None
    ) -> list[Event]:
        """What is to be recorded where a model is asked: the session, or that it is another's."""
        if self.view.head < 0:
            return [Opened(model, settings or {}, origin=origin, format=log.FORMAT)]
        return [ModelSwitched(model)] if self.view.model != model else []

    async def instruct(self, told: Instructed) -> None:
        """From here on these instructions hold, if they are others."""
        if told != self.view.newest:
            await self.record(told)

    async def record(self, *events: Event) -> None:
        """Append events as they are, whatever came in before them."""

        async def these() -> Sequence[Event]:
            return events

        await self.decide(these)

    async def take(self, *events: Event, once: str | None = None) -> int:
        """Take in what arrived: clipped where it is too large, repairs noted; where it ends.

        With `once` it came from outside, perhaps a second time: it is written whoever holds the
        session, and only if that key was never written before.
        """
        if once is not None:
            entering, _ = self.entered(events)
            _check(entering)
            self._unknown = True
            end = await event_log.append(self.store, self.name, entering, once=once)
            self._unknown = False
            await self.catch_up()
            return end

        async def admitting() -> Sequence[Event]:
            return self.entered(events)[0]

        await self.decide(admitting)
        return self.view.head

    def entered(self, events: Sequence[Event]) -> tuple[list[Event], View]:
        """What enters the log when some events arrive, and the view behind it."""
        found: list[Event] = []
        view = self.view.copy() if events else self.view
        _check(events)
        for event in events:
            for one in admit(view, event, self.facts):
                found.append(one)
                view.append(view.head + 1, one)
        return found, view

    async def decide(self, what: Callable[[], Awaitable[Sequence[Event]]]) -> None:
        """Append what is decided of the view as it is; of a later one, where messages came in."""
        while True:
            await self._look_up()
            try:
                return await self.append(await what())
            except Conflict as conflict:
                if self.lease is None or conflict.of == "fence":
                    raise
                await self.catch_up()

    async def append(self, events: Sequence[Event]) -> None:
        """Write first, then show: a view never holds what the log does not."""
        if not events:
            return
        _check(events)
        await self._look_up()
        after = self.view.head  # what was decided was decided of this view and no later one
        if self.lease is not None and self.lease.until - time() < self._seconds / 2:
            await self.renew()
        fence = self.lease.fence if self.lease else None
        if self.owner and after < 0:  # not before: what is never written leaves nothing behind
            await self.store.claim(self.name, self.owner)
        self._unknown = True
        try:
            await event_log.append(self.store, self.name, events, after=after, fence=fence)
        except FoldlineError as fault:
            self._unknown = isinstance(fault, StoreFailed)  # any other: nothing was written
            raise
        self._unknown = False
        await self._show(events)
        self.passes.made(events, self.view.model)

    async def _look_up(self) -> None:
        """Where an append was left before its outcome was known, see what became of it."""
        if self._unknown:
            await self._reload()

    async def catch_up(self) -> None:
        """Take in what others have written since."""
        head = await self.store.head(self.name)
        if head.seq > self.view.head:
            new = await self.events(Range(self.view.head + 1, head.seq))
            await self._show([event for _, event in new])

    async def _show(self, events: Sequence[Event]) -> None:
        self.report = None
        for event in events:
            if isinstance(event, log.Edit) and not self.view.holds(event.spine):
                self._unknown = True  # until all of it is read
                return await self._reload()
            self.view.append(self.view.head + 1, event)
        return None

    async def _reload(self) -> None:
        tail = await event_log.tail(self.store, self.name)
        self.view = tail.view()
        self._unknown = False

    async def must_hold(self, spine: Spine) -> None:
        """Raise where the log no longer has what a spine needs: retention may have erased it."""
        if self.view.holds(spine):
            return
        spans = event_log.live(spine, self.view.head)
        wanted = {seq for one in spans for seq in places(one)}
        found = {seq for seq, _ in await self.events(*spans)}
        if missing := wanted - found - {self.view.head + 1}:
            head = await self.store.head(self.name)
            raise Erased(handle(min(missing), max(missing)), head.trimmed or 0.0)

    async def events(self, *spans: Range) -> list[Logged]:
        """Stretches of the log, whatever the view shows of them."""
        return await event_log.read(self.store, self.name, *spans)


def _check(events: Sequence[Event]) -> None:
    for event in events:
        log.check(event)
