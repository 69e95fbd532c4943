"""A log and its view, kept in step: the base of sessions, wrapped clients and gateways.

An event is written before it is shown. `planning` plans requests on top of this.
"""

import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial, wraps
from time import time
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
)

from msgspec.structs import astuple

from foldline.core import log
from foldline.core.log import (
    Event,
    Folded,
    Instructed,
    Logged,
    ModelSwitched,
    Opened,
    Setting,
    SettingsChanged,
)
from foldline.core.names import format_handle
from foldline.core.plan import Facts, admit
from foldline.core.request import Report
from foldline.core.spine import Range, Spine, places_of
from foldline.core.view import View
from foldline.errors import Busy, Conflict, Erased, FoldlineError, StoreFailed
from foldline.session.log_lines import log_events
from foldline.stores import event_log
from foldline.stores.base import Draft, Lease, Name, Store

if TYPE_CHECKING:
    from asyncio import Lock

    from foldline.core.edits.fold import Prepared
    from foldline.session.spending import Spending
    from foldline.session.summaries import Narrator

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound="_HasLive")
Settings: TypeAlias = dict[str, Setting]
_LARGE = 100_000  # bytes of events: more are appended in a thread
_EACH = 6_000  # bytes that take as long as an event without its texts
_ITEM = 100  # bytes that take as long as an item of a view


def run_locked(
    method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[T, P], Coroutine[Any, Any, R]]:
    """Run one method of a session at a time: the view it decides on stays until it has written."""

    @wraps(method)
    async def lock_and_call(one: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
        async with one.live.lock:
            return await method(one, *args, **kwargs)

    return lock_and_call


class _HasLive(Protocol):
    @property
    def live(self) -> "Live": ...


class Admitted(NamedTuple):
    """Events that are checked, and the view after them: the next append may take it."""

    events: Sequence[Event]
    base: View
    head: int
    """Of `base` then."""
    view: View


class Live:
    """One session's log, open."""

    def __init__(self, store: Store, name: Name, *, view: View, facts: Facts) -> None:
        self.store = store
        self.name = name
        self.view = view
        self.facts = facts
        self.report: Report | None = None
        """The newest request's report, until something else happens."""
        self.touched = 0.0
        """When the provider was last called, as far as we know."""
        self.lease: Lease | None = None
        """While it is held, only senders of messages write beside us."""
        self.owner = ""
        """The owner who claims a new session with its first event."""
        self.shared = False
        """True if the store is not closed with this log."""
        self.narrator: Narrator | None = None
        self.spending: Spending | None = None
        """The caps on calls and folds, if any."""
        from foldline.session.hooks import Passes  # noqa: PLC0415 - not needed to import foldline

        self.passes = Passes(name)
        """Watchers of folds, and vetoes on them."""
        self.prepared: Prepared | None = None
        """A narrative for the coming fold, once one is found."""
        self._admitted: Admitted | None = None
        self._written = 0
        self._holder, self._seconds = os.urandom(8).hex(), 0.0
        self._lock: Lock | None = None
        self._unknown = False  # whether an append ended without a known outcome

    @classmethod
    async def open(cls, store: Store, name: Name, *, facts: Facts) -> "Live":
        """Open a log, stored or new."""
        tail = await event_log.read_tail(store, name)
        live = cls(store, name, view=await tail.load_view(), facts=facts)
        live.touched = tail.changed
        return live

    @property
    def lock(self) -> "Lock":
        """Taken to decide and append."""
        if self._lock is None:
            from asyncio import Lock  # noqa: PLC0415 - half of the time of an import

            self._lock = Lock()
        return self._lock

    async def hold_lease(self, seconds: float) -> None:
        """Take the session's lease; every append renews it."""
        self._seconds = seconds
        await self.renew()
        await self.catch_up()

    async def let_go(self) -> None:
        """Release the session's lease, if we hold it."""
        lease, self.lease = self.lease, None
        if lease is not None:
            await self.store.release(lease)

    async def renew(self) -> None:
        """Renew the lease: a call without an append may be long too."""
        lease = await self.store.lease(self.name, self._holder, seconds=self._seconds)
        if lease is None:  # self.lease stays: its old fence makes our appends fail
            raise Busy(self.name.session)
        self.lease = lease

    async def close(self) -> None:
        """Release the lease and close the store; the log stays."""
        if self.narrator is not None:
            await self.narrator.close()
        await self.let_go()
        if not self.shared:
            await self.store.close()

    async def record_opening(
        self,
        model: str,
        *,
        origin: str = "",
        carried: tuple[str, ...] = (),
        settings: Settings | None = None,
    ) -> None:
        """Record what is new at this opening: the session, its model, its settings."""
        await self.record_events(
            *self.make_opening_events(model, origin=origin, carried=carried, settings=settings)
        )
        if settings is not None and self.view.settings != settings:
            await self.record_events(SettingsChanged(settings))

    def make_opening_events(
        self,
        model: str,
        *,
        origin: str = "",
        carried: tuple[str, ...] = (),
        settings: Settings | None = None,
    ) -> list[Event]:
        """Make the events of an opening: that the session begins, or another model."""
        if self.view.head < 0:
            return [
                Opened(model, settings or {}, origin=origin, format=log.FORMAT, carried=carried)
            ]
        return [ModelSwitched(model)] if self.view.model != model else []

    async def record_instructions(self, instructions: Instructed) -> None:
        """Record instructions if they differ from the current ones."""
        if instructions != self.view.newest:
            await self.record_events(instructions)

    async def record_events(self, *events: Event) -> None:
        """Append events as they are, whatever others appended before them."""

        async def return_events() -> Sequence[Event]:
            return events

        await self.append_decision(return_events)

    async def receive_events(self, *events: Event, once: str | None = None) -> int:
        """Admit events, clipped if too large, and append them; return the last message's place.

        Without a message among them, it is the place of the last event.

        With `once` they came from outside, perhaps a second time: they are written without the
        session's lease, and only if that key was never written before.
        """
        if once is not None:
            entering, _ = self.admit_events(events)
            self._unknown = True
            draft = event_log.build_draft(entering)
            end = await self.store.append(self.name, draft, once=once)
            self._unknown = False
            self._written += draft.size
            await self.catch_up()
        else:

            async def decide_admission() -> Sequence[Event]:
                return self.admit_events(events)[0]

            await self.append_decision(decide_admission)
            end = self.view.head
        has_message = any(isinstance(one, event_log.Said) for one in events)
        return await self._find_last_message(end) if has_message else end

    async def _find_last_message(self, end: int) -> int:
        """Find the newest message up to `end`: usage and notes stand behind what they are about."""
        for seq in range(end, -1, -1):
            event = self.view.held.get(seq)
            if event is None:  # delivered before, and folded since
                event = next((one.event for one in await self.read_events(Range(seq, seq))), None)
            if event is None or isinstance(event, event_log.Said):
                return seq
        return end

    def admit_events(self, events: Sequence[Event]) -> tuple[list[Event], View]:
        """Return the events to append when some arrive, and the view after them."""
        admitted: list[Event] = []
        view = self.view.copy() if events else self.view
        _check_events(events)
        for event in events:
            for one in admit(view, event, self.facts):
                admitted.append(one)
                view.append(view.head + 1, one)
        if not any(isinstance(one, log.Edit) for one in admitted):
            self._admitted = Admitted(admitted, self.view, self.view.head, view)
        return admitted, view

    async def append_decision(self, what: Callable[[], Awaitable[Sequence[Event]]]) -> None:
        """Append what `what` decides on the current view; decide again if messages came in."""
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
        admitted, self._admitted = self._admitted, None
        if admitted is not None and admitted.events is not events:
            admitted = None
        build = _build_draft if admitted is None else event_log.build_draft
        after = self.view.head  # the decision holds for this view and no later one
        await self._look_up()
        draft = await _run_beside(partial(build, events), size=_weigh_events(events))
        if self.lease is not None and self.lease.until - time() < self._seconds / 2:
            await self.renew()
        fence = self.lease.fence if self.lease else None
        if self.owner and after < 0:  # not earlier: an unused session leaves nothing behind
            await self.store.claim(self.name, self.owner)
        self._unknown = True
        try:
            await self.store.append(self.name, draft, after=after, fence=fence)
        except FoldlineError as fault:
            self._unknown = isinstance(fault, StoreFailed)  # any other: nothing was written
            folds = [one for one in events if isinstance(one, Folded)]
            if self._unknown and folds:
                self.passes.report_failed_fold(fault, self.view.model, folds[-1].why)
            raise
        self._written += draft.size
        if admitted is not None and admitted.base is self.view and after == admitted.head:
            self.view, self.report = admitted.view, None
        else:
            await self._apply_events(events)
        self._unknown = False
        log_events(self.name, events)
        self.passes.report_folds(events, self.view.model)

    def take_written(self) -> int:
        """Return how many bytes were written here since this was last asked."""
        written, self._written = self._written, 0
        return written

    async def _look_up(self) -> None:
        """Reload the view if the outcome of an append is unknown."""
        if self._unknown:
            await self._reload_view()

    async def catch_up(self) -> None:
        """Read what others have written since."""
        head = await self.store.head(self.name)
        if head.seq > self.view.head:
            new = await self.read_events(Range(self.view.head + 1, head.seq))
            await self._apply_events([event for _, event in new])

    async def _apply_events(self, events: Sequence[Event]) -> None:
        self.report = None
        # A view that is built beside the loop is another one: this one is read meanwhile.
        size = _weigh_events(events)
        if any(isinstance(event, log.Edit) for event in events):  # the view is built anew
            size += len(self.view.items) * _ITEM
        view = self.view if size < _LARGE else self.view.copy()
        if not await _run_beside(partial(_append_events, view, events), size=size):
            self._unknown = True  # until the view is reloaded
            return await self._reload_view()
        self.view = view
        return None

    async def _reload_view(self) -> None:
        tail = await event_log.read_tail(self.store, self.name)
        self.view = await tail.load_view()
        self._unknown = False

    async def must_hold(self, spine: Spine) -> None:
        """Raise `Erased` if retention has erased what a spine needs."""
        if self.view.has_events_for(spine):
            return
        spans = event_log.list_live_spans(spine, self.view.head)
        wanted = {seq for one in spans for seq in places_of(one)}
        found = {seq for seq, _ in await self.read_events(*spans)}
        if missing := wanted - found - {self.view.head + 1}:
            head = await self.store.head(self.name)
            raise Erased(format_handle(min(missing), max(missing)), head.trimmed or 0.0)

    async def read_events(self, *spans: Range) -> list[Logged]:
        """Read stretches of the log, whatever the view shows of them."""
        return await event_log.read_events(self.store, self.name, *spans)


def _append_events(view: View, events: Sequence[Event]) -> bool:
    """Append events to a view; False at an edit that needs events which it does not hold."""
    for event in events:
        if isinstance(event, log.Edit) and not view.has_events_for(event.spine):
            return False
        view.append(view.head + 1, event)
    return True


async def _run_beside(work: Callable[[], R], *, size: int) -> R:
    """Run work on events, in a thread if they are large."""
    if size < _LARGE:
        return work()
    from foldline.stores.beside import run_beside  # noqa: PLC0415 - seldom needed

    return await run_beside(work, size=size)


def _weigh_events(events: Sequence[Event]) -> int:
    """Say how many bytes take as long as some events."""
    if len(events) * _EACH >= _LARGE:
        return len(events) * _EACH
    parts = (part for event in events for part in getattr(event, "parts", ()))
    texts = (one for part in parts for one in astuple(part) if isinstance(one, str))
    natives = (event.native for event in events if isinstance(event, event_log.Said))
    own = sum(len(native.body) for native in natives if native is not None)
    return len(events) * _EACH + own + sum(map(len, texts))


def _build_draft(events: Sequence[Event]) -> Draft:
    _check_events(events)
    return event_log.build_draft(events)


def _check_events(events: Sequence[Event]) -> None:
    for event in events:
        log.check_event(event)
