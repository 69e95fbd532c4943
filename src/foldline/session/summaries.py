"""Narratives prepared ahead of folds: asked for in the background, kept in the side table.

    prepared     by spine: its narrative, or that there is none
    preparing    by spine: the claim of the process that asks a model now
    piece        finished pieces of a long span's narrative
    narrator     how often it failed in a row, why, and until when no model is asked

A plan takes what is prepared or does without, so a slow model delays no request. `Narrator` is the
port: `Preparing` asks in this process, `fold_queue.Deferring` leaves it to a worker.
"""

import hashlib
from asyncio import Task, create_task, to_thread, wait
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter, time
from typing import Protocol

import msgspec

from foldline.core import fold_selection
from foldline.core.budget import measure_budget
from foldline.core.cold_cache import estimate_cache_state
from foldline.core.edits import fold
from foldline.core.edits.fold import Ask, Prepared
from foldline.core.log import Asked, UsageReported
from foldline.core.request import render
from foldline.core.spine import Spine
from foldline.core.view import View
from foldline.dialects import base
from foldline.errors import Erased, FoldlineError
from foldline.models.catalog import resolve_model
from foldline.models.port import Model
from foldline.models.summarize import (
    Narrative,
    Piece,
    Progress,
    SentPrefix,
    Tellers,
    request_narrative,
)
from foldline.session.host import Host, make_teller
from foldline.session.log_handle import Live
from foldline.session.spending import Reserved, Spending
from foldline.session.turn import turn_of
from foldline.stores import event_log
from foldline.stores.base import Name, Store


class Narrator(Protocol):
    """Provides narratives for folds, in the background or when a person asks for one now."""

    async def find_prepared(self, live: Live) -> Prepared | None:
        """Return what is prepared for the current view."""
        ...

    def schedule_narrative(self, live: Live, ask: Ask) -> None:
        """Ask for a narrative in the background."""
        ...

    async def fetch_narrative(self, live: Live, focus: str) -> Prepared | None:
        """Return a narrative of what a fold made now would replace, or why it has no line."""
        ...

    async def close(self) -> None:
        """Ask no more."""
        ...


_KEPT = 7 * 86_400.0  # seconds: after a week a narrative is asked for again
_PAUSES = (30.0, 120.0, 600.0, 3_600.0)  # seconds without asking after 1, 2, 3, more failures
_STOPPED = b"stopped"
_MARGIN = 30.0  # seconds that a claim outlives its work


class State(msgspec.Struct, frozen=True):
    """Failures in a row, the last one's reason, and until when no model is asked."""

    failures: int = 0
    reason: str = ""
    until: float = 0.0


async def read_prepared(store: Store, name: Name, spine: Spine) -> fold.Prepared | None:
    """Return what was prepared for a view with this spine."""
    entry = await store.get(name, "prepared", _hash_spine(spine))
    return None if entry is None else msgspec.json.decode(entry.value, type=fold.Prepared)


async def read_narrator_state(store: Store, name: Name) -> State:
    """Return whether a session's narratives fail, and why."""
    entry = await store.get(name, "narrator", "state")
    return State() if entry is None else msgspec.json.decode(entry.value, type=State)


async def prepare_narrative(
    live: Live,
    ask: fold.Ask,
    tellers: Tellers,
    *,
    spending: Spending | None = None,
    progress: Progress | None = None,
) -> Narrative:
    """Ask for a narrative and keep it for the fold; one at a time per view."""
    begun = perf_counter()
    model = tellers.models[0].name if tellers.models else ""
    try:
        narrative = await _ask_for_narrative(
            live, ask, tellers, spending=spending, progress=progress
        )
    except Erased:
        raise  # the session is gone, and nothing failed
    except FoldlineError as fault:  # the store's
        failed = Narrative("failed", str(fault), fault=type(fault).__name__)
        live.passes.report_narrative(failed, model, perf_counter() - begun)
        raise
    live.passes.report_narrative(narrative, model, perf_counter() - begun)
    return narrative


async def _ask_for_narrative(
    live: Live,
    ask: fold.Ask,
    tellers: Tellers,
    *,
    spending: Spending | None,
    progress: Progress | None,
) -> Narrative:
    store, name, key = live.store, live.name, _hash_spine(ask.base)
    hidden = fold.collect_hidden_events(live.view)
    before = await read_narrator_state(store, name)
    if before.until > time():
        wait = before.until - time()
        return Narrative("skipped", f"it failed {before.failures} times, the last time because "
                         f"{before.reason}; it is asked again in {wait:.0f} s")  # fmt: skip
    lasting = tellers.seconds + _MARGIN
    if not await store.put(name, "preparing", key, b"", version=0, seconds=lasting):
        held = await store.get(name, "preparing", key)
        stopped = held is not None and held.value == _STOPPED
        return Narrative("skipped", "it was interrupted; it is asked again in half a minute"
                         if stopped else "another process is asking for it")  # fmt: skip
    pause: float | None = _MARGIN  # after an interruption no process asks again at once
    try:
        prefix = await _find_sent_prefix(live, ask)
        events = fold.select_source_events(
            dict(await live.read_events(ask.range)), ask.range, hidden
        )
        purse = None if spending is None else SessionPurse(spending, live.view)
        narrative = await request_narrative(
            ask,
            events,
            tellers,
            prefix=prefix,
            kept=Pieces(store, name),
            purse=purse,
            progress=progress,
            stands=lambda: _hash_spine(live.view.spine) == key,
        )
        await _record_outcome(store, name, ask, narrative, before)
        pause = None
    finally:
        with suppress(FoldlineError):
            value = None if pause is None else _STOPPED
            await store.put(name, "preparing", key, value, seconds=pause)
    return narrative


async def _record_outcome(
    store: Store, name: Name, ask: fold.Ask, narrative: Narrative, before: State
) -> None:
    """Keep the outcome; an empty one too, so that it is not asked for again."""
    outcome = narrative.outcome
    if outcome == "failed":
        failures = before.failures + 1
        pause = _PAUSES[min(failures, len(_PAUSES)) - 1]
        now = State(failures, narrative.reason, time() + pause)
        await store.put(name, "narrator", "state", msgspec.json.encode(now), seconds=_KEPT)
        return
    if outcome in ("told", "rejected") or (narrative.asked and outcome == "skipped"):
        kept = narrative.prepared or _make_missing(ask, narrative)
        await store.put(
            name, "prepared", _hash_spine(ask.base), msgspec.json.encode(kept), seconds=_KEPT
        )
    if before.failures and outcome == "told":
        await store.put(name, "narrator", "state", None)


async def _find_sent_prefix(live: Live, ask: fold.Ask) -> SentPrefix | None:
    """Return the last request up to the end of the span, which the provider has cached.

    None if that request is not what the view shows now.
    """
    asked = live.view.held.get(live.view.asked)
    if not isinstance(asked, Asked):
        return None
    then = await event_log.read_tail(live.store, live.name, at=asked.at)
    if _hash_spine(then.spine) != _hash_spine(ask.base):
        return None
    return await to_thread(_build_sent_prefix, live, ask, asked, then)


def _build_sent_prefix(
    live: Live, ask: fold.Ask, asked: Asked, then: event_log.LogTail
) -> SentPrefix | None:
    # Called in a thread: a large view takes a while to encode.
    model, view = live.view.model, then.build_view()
    if view.model != model or asked.dialect != _find_usual_dialect(view).name:
        return None  # the summarizer's client would not understand it
    last = view.head if ask.range.hi is None else ask.range.hi
    behind = [item for item in view.items if item.state != "folded" and item.seq > last]
    whole = render(view)
    shown = replace(whole, items=whole.items[: len(view.items) - len(behind)])
    parameters = msgspec.json.decode(asked.parameters, type=dict[str, msgspec.Raw])
    body = base.resolve_named_dialect(asked.dialect).encode_request(shown, parameters)
    ratio = asked.tokens / max(asked.estimate, 1)
    tokens = asked.tokens - int(ratio * sum(item.tokens for item in behind))
    facts, seconds = live.facts, time() - live.touched
    warm = estimate_cache_state(seconds, facts.prices, facts.lifetime) == "warm"
    window = facts.limits.window
    return SentPrefix(msgspec.json.decode(body), model, tokens, window, facts.prices, warm)


def _find_usual_dialect(view: View) -> base.Dialect:
    """Return the dialect in which a summarizer at the session's host is asked."""
    address = view.settings.get("base_url")
    return base.choose_dialect(
        view.model, None, address=address if isinstance(address, str) else None
    )


class Pieces:
    """Finished pieces of narratives in the side table."""

    def __init__(self, store: Store, name: Name) -> None:
        self._store, self._name = store, name

    async def get(self, key: str) -> Piece | None:
        """Return a piece that was finished before."""
        entry = await self._store.get(self._name, "piece", key)
        return None if entry is None else msgspec.json.decode(entry.value, type=Piece)

    async def put(self, key: str, piece: Piece) -> None:
        """Keep a piece."""
        body = msgspec.json.encode(piece)
        await self._store.put(self._name, "piece", key, body, seconds=_KEPT)


class SessionPurse:
    """Counts folds against the caps of their session."""

    def __init__(self, spending: Spending, view: View) -> None:
        self._spending = spending
        self._turn = turn_of(view)

    async def before(self, model: str, tokens_in: int, tokens_out: int) -> Reserved:
        """Reserve the most that a call may cost."""
        return await self._spending.reserve_call(
            tokens_in, tokens_out, turn=self._turn, kind="fold", prices=resolve_model(model).prices
        )

    async def after(self, held: Reserved, used: UsageReported | None) -> None:
        """Count what the call really took."""
        await self._spending.settle_call(held, used)

    async def release(self, held: Reserved) -> None:
        """Release the reservation of a refused call."""
        await self._spending.release(held)


@dataclass(slots=True)
class Preparing:
    """Asks for narratives in this process: one background task at a time."""

    tellers: Tellers
    spending: Spending | None = None
    progress: Progress | None = None
    own: tuple[Model, ...] = ()
    """The models to close with the session."""
    last: Narrative | None = None
    """The newest narrative and its outcome."""
    _task: "Task[None] | None" = field(default=None, init=False)

    async def find_prepared(self, live: Live) -> fold.Prepared | None:
        """Return what is prepared for the current view."""
        return await read_prepared(live.store, live.name, live.view.spine)

    def schedule_narrative(self, live: Live, ask: fold.Ask) -> None:
        """Ask in the background, unless that is under way."""
        if self._task is None or self._task.done():
            self._task = create_task(
                self._prepare_in_background(live, ask), name=f"fold of {live.name.session}"
            )

    async def fetch_narrative(self, live: Live, focus: str) -> fold.Prepared | None:
        """Ask for a narrative of what a fold made now would replace, and wait for it."""
        await self._stop_task()
        if not focus and (found := await self.find_prepared(live)):
            return found
        facts = replace(live.facts, now=True, focus=focus, prepared=None)
        budget = measure_budget(live.view, facts.limits)
        ask = fold_selection.plan_narrative(live.view, None, budget=budget, facts=facts)
        return None if ask is None else await self._prepare_and_keep(live, ask)

    async def _prepare_and_keep(self, live: Live, ask: fold.Ask) -> fold.Prepared:
        self.last = await prepare_narrative(
            live, ask, self.tellers, spending=self.spending, progress=self.progress
        )
        return self.last.prepared or _make_missing(ask, self.last)

    async def close(self) -> None:
        """Stop asking; finished pieces stay. Close the models that we made."""
        await self._stop_task()
        for model in self.own:
            await model.close()

    async def _stop_task(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await wait([self._task])  # unlike `await`, it raises only our own cancellation

    async def _prepare_in_background(self, live: Live, ask: fold.Ask) -> None:
        try:
            await self._prepare_and_keep(live, ask)
        except Erased:
            self.last = Narrative("skipped", "the session was erased")
        except FoldlineError as fault:  # the store's: no caller waits for this
            self.last = Narrative("failed", str(fault))


def _make_missing(ask: fold.Ask, narrative: Narrative) -> fold.Prepared:
    """Make the result of a narrative that was not written: no line, and the reason."""
    how = "asking for it failed" if narrative.outcome == "failed" else f"it was {narrative.outcome}"
    return fold.Prepared(ask.base, ask.range, (), reason=f"{how}: {narrative.reason}")


def _hash_spine(spine: Spine) -> str:
    """Hash a view's shape: an edit changes it, an appended message does not."""
    body = msgspec.json.encode((spine.segments, spine.masks))
    return hashlib.sha256(body).hexdigest()[:32]


async def make_narrator(
    summarizer: str | Model | Sequence[str | Model] | Tellers,
    *,
    spending: Spending | None = None,
    host: Callable[[], Awaitable[Host | None]] | None = None,
) -> Preparing:
    """Make the narrator that a session's `summarizer` names.

    `host` finds the session's server: models summarizer by name are asked there.
    """
    if isinstance(summarizer, Tellers):
        return Preparing(summarizer, spending)
    many = (
        [summarizer]
        if isinstance(summarizer, str) or not isinstance(summarizer, Sequence)
        else summarizer
    )
    there = await host() if host is not None and any(isinstance(one, str) for one in many) else None
    # In a thread: an SDK takes a second to import.
    models = [
        await to_thread(make_teller, one, there) if isinstance(one, str) else one for one in many
    ]
    made = tuple(new for one, new in zip(many, models, strict=True) if isinstance(one, str))
    return Preparing(Tellers(tuple(models)), spending, own=made)
