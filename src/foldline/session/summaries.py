"""Narratives prepared ahead: asked for in the background, kept beside the log, taken by a fold.

    prepared     by the spine it was told for: a narrative, or that there is none
    preparing    by the same: who asks a model for it now
    piece        what is told of a long span already (R-51)
    narrator     how often it failed in a row, why, and until when nobody is asked

Knows these four spaces of the side table. Refuses to fold and to wait: a plan takes what is
prepared or goes without, so a slow teller is in nobody's way (R-50).
"""

import hashlib
from asyncio import Task, create_task, to_thread, wait
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter, time

import msgspec

from foldline.core import fold_selection
from foldline.core.budget import measure
from foldline.core.edits import fold
from foldline.core.log import Asked, UsageReported
from foldline.core.request import render
from foldline.core.spine import Spine
from foldline.core.view import View
from foldline.dialects import base
from foldline.errors import Erased, FoldlineError
from foldline.models.overrides import believed
from foldline.models.port import Model
from foldline.models.summarize import Narrative, Piece, Progress, SentPrefix, Tellers, tell
from foldline.session.host import Host, make_teller
from foldline.session.log_handle import Live
from foldline.session.spending import Reserved, Spending
from foldline.session.turn import turn_of
from foldline.stores import event_log
from foldline.stores.base import Name, Store

_KEPT = 7 * 86_400.0  # seconds: whoever comes back after a week asks anew
_PAUSES = (30.0, 120.0, 600.0, 3_600.0)  # after so many failures in a row nobody is asked
_MARGIN = 30.0  # seconds that a claim outlives its work


class State(msgspec.Struct, frozen=True):
    """Failures in a row."""

    failures: int = 0
    reason: str = ""
    until: float = 0.0


async def prepared(store: Store, name: Name, spine: Spine) -> fold.Prepared | None:
    """What was prepared for a view with this spine."""
    entry = await store.get(name, "prepared", _key(spine))
    return None if entry is None else msgspec.json.decode(entry.value, type=fold.Prepared)


async def state(store: Store, name: Name) -> State:
    """Whether a session's narratives fail, and why."""
    entry = await store.get(name, "narrator", "state")
    return State() if entry is None else msgspec.json.decode(entry.value, type=State)


async def prepare(
    live: Live,
    ask: fold.Ask,
    tellers: Tellers,
    *,
    spending: Spending | None = None,
    progress: Progress | None = None,
) -> Narrative:
    """Ask for a narrative, and keep it for the fold; one at a time for one view (R-63)."""
    begun = perf_counter()
    told = await _prepared(live, ask, tellers, spending=spending, progress=progress)
    teller = tellers.models[0].name if tellers.models else ""
    live.passes.told(told, teller, perf_counter() - begun)
    return told


async def _prepared(
    live: Live,
    ask: fold.Ask,
    tellers: Tellers,
    *,
    spending: Spending | None,
    progress: Progress | None,
) -> Narrative:
    store, name, key = live.store, live.name, _key(ask.base)
    hidden = fold.hidden(live.view)
    before = await state(store, name)
    if before.until > time():
        wait = before.until - time()
        return Narrative("skipped", f"it failed {before.failures} times, the last time because "
                         f"{before.reason}; it is asked again in {wait:.0f} s")  # fmt: skip
    lasting = tellers.seconds + _MARGIN
    if not await store.put(name, "preparing", key, b"", version=0, seconds=lasting):
        return Narrative("skipped", "another process is asking for it")
    pause: float | None = _MARGIN  # whoever is cut short is not followed at once by the next
    try:
        prefix = await _prefix(live, ask)
        events = fold.sources(dict(await live.events(ask.range)), ask.range, hidden)
        purse = None if spending is None else SessionPurse(spending, live.view)
        told = await tell(ask, events, tellers, prefix=prefix, kept=Pieces(store, name),
                          purse=purse, progress=progress,
                          stands=lambda: _key(live.view.spine) == key)  # fmt: skip
        await _note(store, name, ask, told, before)
        pause = None
    finally:
        with suppress(FoldlineError):
            value = None if pause is None else b""
            await store.put(name, "preparing", key, value, seconds=pause)
    return told


async def _note(store: Store, name: Name, ask: fold.Ask, told: Narrative, before: State) -> None:
    """Keep what came of it: also that nothing did, so that nobody asks for it again."""
    if told.outcome == "failed":
        failures = before.failures + 1
        pause = _PAUSES[min(failures, len(_PAUSES)) - 1]
        now = State(failures, told.reason, time() + pause)
        await store.put(name, "narrator", "state", msgspec.json.encode(now), seconds=_KEPT)
        return
    if told.outcome in ("told", "rejected") or (told.asked and told.outcome == "skipped"):
        kept = told.prepared or fold.Prepared(ask.base, ask.range, ())
        await store.put(name, "prepared", _key(ask.base), msgspec.json.encode(kept), seconds=_KEPT)
    if before.failures and told.outcome == "told":
        await store.put(name, "narrator", "state", None)


async def _prefix(live: Live, ask: fold.Ask) -> SentPrefix | None:
    """The request that was sent last, up to the end of what is to be told: all of it is cached.

    None, where that request is not what is shown now.
    """
    asked = live.view.held.get(live.view.asked)
    if not isinstance(asked, Asked):
        return None
    then = await event_log.tail(live.store, live.name, at=asked.at)
    if _key(then.spine) != _key(ask.base):
        return None
    return await to_thread(_shown, live, ask, asked, then)


def _shown(live: Live, ask: fold.Ask, asked: Asked, then: event_log.LogTail) -> SentPrefix | None:
    """In a thread: a large view takes a while to be written (R-44)."""
    model, view = live.view.model, then.view()
    if view.model != model:
        return None
    last = view.head if ask.range.hi is None else ask.range.hi
    behind = [item for item in view.items if item.state != "folded" and item.seq > last]
    whole = render(view)
    shown = replace(whole, items=whole.items[: len(view.items) - len(behind)])
    parameters = msgspec.json.decode(asked.parameters, type=dict[str, msgspec.Raw])
    body = base.named(asked.dialect).encode(shown, parameters)
    ratio = asked.tokens / max(asked.estimate, 1)
    tokens = asked.tokens - int(ratio * sum(item.tokens for item in behind))
    limits, prices = live.facts.limits, live.facts.prices
    warm = fold.cached(time() - live.touched, prices) == "warm"
    return SentPrefix(msgspec.json.decode(body), model, tokens, limits.window, prices, warm)


class Pieces:
    """Proven pieces in the side table."""

    def __init__(self, store: Store, name: Name) -> None:
        self._store, self._name = store, name

    async def get(self, key: str) -> Piece | None:
        """A piece that was told before."""
        entry = await self._store.get(self._name, "piece", key)
        return None if entry is None else msgspec.json.decode(entry.value, type=Piece)

    async def put(self, key: str, piece: Piece) -> None:
        """Keep a piece."""
        body = msgspec.json.encode(piece)
        await self._store.put(self._name, "piece", key, body, seconds=_KEPT)


class SessionPurse:
    """Folds are paid from what their session may spend: R-49."""

    def __init__(self, spending: Spending, view: View) -> None:
        self._spending = spending
        self._turn = turn_of(view)

    async def before(self, model: str, tokens_in: int, tokens_out: int) -> Reserved:
        """Set aside what a question may take."""
        return await self._spending.before(
            tokens_in, tokens_out, turn=self._turn, kind="fold", prices=believed(model).prices
        )

    async def after(self, held: Reserved, used: UsageReported | None) -> None:
        """What it really took."""
        await self._spending.after(held, used)

    async def release(self, held: Reserved) -> None:
        """It was refused."""
        await self._spending.release(held)


@dataclass(slots=True)
class Preparing:
    """Narratives in this process: a task beside the session, one at a time."""

    tellers: Tellers
    spending: Spending | None = None
    progress: Progress | None = None
    own: tuple[Model, ...] = ()
    """The models that are closed with the session."""
    last: Narrative | None = None
    """What became of the newest one."""
    _task: "Task[None] | None" = field(default=None, init=False)

    async def find(self, live: Live) -> fold.Prepared | None:
        """What is prepared for the view as it is."""
        return await prepared(live.store, live.name, live.view.spine)

    def wanted(self, live: Live, ask: fold.Ask) -> None:
        """Begin to ask, unless that is under way; nobody waits."""
        if self._task is None or self._task.done():
            self._task = create_task(self._ask(live, ask), name=f"fold of {live.name.session}")

    async def now(self, live: Live, focus: str) -> fold.Prepared | None:
        """Ask for a narrative of what a fold made now would take, and wait for it."""
        await self._stopped()
        if not focus and (found := await self.find(live)):
            return found
        facts = replace(live.facts, now=True, focus=focus, prepared=None)
        budget = measure(live.view, facts.limits)
        ask = fold_selection.ask(live.view, None, budget=budget, facts=facts)
        return None if ask is None else await self._prepare(live, ask)

    async def _prepare(self, live: Live, ask: fold.Ask) -> fold.Prepared | None:
        self.last = await prepare(
            live, ask, self.tellers, spending=self.spending, progress=self.progress
        )
        return self.last.prepared

    async def close(self) -> None:
        """Ask no more; what is told of it is kept (R-51). Models that we made are let go of."""
        await self._stopped()
        for model in self.own:
            await model.close()

    async def _stopped(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await wait([self._task])  # its own end is no matter, ours would be

    async def _ask(self, live: Live, ask: fold.Ask) -> None:
        try:
            await self._prepare(live, ask)
        except Erased:
            self.last = Narrative("skipped", "the session was erased")
        except FoldlineError as fault:  # the store's: nobody waits for this, and nobody is told
            self.last = Narrative("failed", str(fault))


def _key(spine: Spine) -> str:
    """A view's shape: what is appended does not change it, an edit does."""
    body = msgspec.json.encode((spine.segments, spine.masks))
    return hashlib.sha256(body).hexdigest()[:32]


async def preparing(
    given: str | Model | Sequence[str | Model] | Tellers,
    *,
    spending: Spending | None = None,
    host: Callable[[], Awaitable[Host | None]] | None = None,
) -> Preparing:
    """Who tells in this process, by what a session's summarizer says.

    `host` finds where the session is asked: those that are given by name are asked there.
    """
    if isinstance(given, Tellers):
        return Preparing(given, spending)
    many = [given] if isinstance(given, str) or not isinstance(given, Sequence) else given
    there = await host() if host is not None and any(isinstance(one, str) for one in many) else None
    # In a thread: an SDK takes a second to import.
    models = [
        await to_thread(make_teller, one, there) if isinstance(one, str) else one for one in many
    ]
    made = tuple(new for one, new in zip(many, models, strict=True) if isinstance(one, str))
    return Preparing(Tellers(tuple(models)), spending, own=made)
