"""A session's fold, made beside it: its narrative asked for, and the fold installed where due.

    done = await fold_session(store, name, tellers=tellers, install=True)
    done.outcome     folded, prepared, nothing, left, busy or gone; done.reason says why

Knows the order: look, ask, take the session for a moment, look again, append. Refuses to decide:
all of it follows from the log, so whoever is killed at any point leaves nothing half done, and
whoever comes next finds the fold made, or makes it. Nothing is sent, so nothing is recorded as
sent; and nothing is appended where no fold is due.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from foldline.core import fold_selection
from foldline.core.budget import measure
from foldline.core.edits import fold
from foldline.core.log import Edit, Event
from foldline.core.plan import Facts, Ready, after
from foldline.errors import Busy, Erased, FoldlineError, Overflow
from foldline.models.summarize import Narrative, Tellers
from foldline.session import planning
from foldline.session.host import Host, find_host
from foldline.session.log_handle import Live
from foldline.session.model_facts import of_session
from foldline.session.summaries import prepare, prepared
from foldline.stores.base import Name, Store

Outcome: TypeAlias = Literal["folded", "prepared", "nothing", "left", "busy", "gone", "failed"]
Telling: TypeAlias = Callable[[str, Host | None], Tellers | None]
"""Who tells a session of some model, asked at some host; None: nobody."""
LEASE = 10.0
"""Seconds that a session is held for its fold; so long, too, by a worker that was killed."""
_AWAITED = "an answer is under way; the next request folds by itself"
_OPEN = "calls wait for their results; the next request folds by itself"


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a session."""

    outcome: Outcome
    reason: str = ""
    before: int = 0
    """Tokens of a request before, by our count."""
    after: int = 0
    by: str = ""
    """Whose narrative the fold has; "" for none."""


async def fold_session(
    store: Store,
    name: Name,
    *,
    tellers: Telling | None = None,
    install: bool = False,
    seconds: float = LEASE,
) -> Done:
    """Prepare what a session's next fold wants, and with `install` make the fold that is due.

    Raises what may be otherwise the next time: `StoreFailed`, `Conflict` over the fence.
    """
    try:
        live = await _opened(store, name)
        if live.view.head < 0:
            return Done("gone", "there is no such session")
        ready = await planning.plan(live, live.facts)
        wish = _wish(live, ready)
        told, reason = (None, "") if wish is None else await _told(live, wish, tellers)
        if not install:
            return _prepared(live, wish, told, reason)
        if (why := _in_the_way(live, ready)) is not None:
            return _as_it_is(live, *why)
        return await _installed(live, replace(live.facts, prepared=told), seconds, reason)
    except Erased as fault:
        return Done("gone", str(fault))
    except Busy:
        return Done("busy", "somebody works on the session, and folds it by their next request")
    except Overflow as fault:
        return Done("left", str(fault))


async def _opened(store: Store, name: Name) -> Live:
    """A session under the facts that it names itself."""
    live = await Live.open(store, name, facts=of_session("", {}))
    live.facts = of_session(live.view.model, live.view.settings)
    live.shared = True
    return live


def _wish(live: Live, ready: Ready) -> fold.Ask | None:
    """The narrative that a plan wishes; of a fold that is due by now, of what that fold takes."""
    if ready.folded is None:
        return ready.ask
    view = after(live.view, ready.events[: ready.events.index(ready.folded)])
    return fold_selection.ask(view, None, budget=measure(view, live.facts.limits), facts=live.facts)


async def _told(
    live: Live, wish: fold.Ask, tellers: Telling | None
) -> tuple[fold.Prepared | None, str]:
    """What was prepared, or is now; where there is none, why."""
    found = await prepared(live.store, live.name, wish.base)
    if found is not None:
        return found, ""
    try:
        who = tellers and tellers(live.view.model, await find_host(live))
    except FoldlineError as fault:  # a key, a package, a host that is agreed to: folds go without
        return None, str(fault)
    if not who:
        return None, ""
    made: Narrative = await prepare(live, wish, who)
    return made.prepared, made.reason


def _prepared(live: Live, wish: fold.Ask | None, told: fold.Prepared | None, reason: str) -> Done:
    if wish is None:
        return _as_it_is(live, "nothing", "no narrative is wanted")
    if told is None:
        return _as_it_is(live, "left", reason or "there is nobody to ask")
    return replace(_as_it_is(live, "prepared", ""), by=told.by)


def _in_the_way(live: Live, ready: Ready) -> tuple[Outcome, str] | None:
    """Why no fold is installed now, if none is."""
    if ready.folded is None:
        return "nothing", "no fold is due"
    if live.view.awaited:
        return "left", _AWAITED  # whoever asked would find the log moved on under the answer
    if not all(isinstance(event, Edit) for event in ready.events):
        return "left", _OPEN  # a request would close them; their tools may still be at work
    return None


async def _installed(live: Live, facts: Facts, seconds: float, reason: str) -> Done:
    """Take the session, decide again of what it is now, append, give it back."""
    done = _as_it_is(live, "nothing", "no fold is due")

    async def folding() -> Sequence[Event]:
        nonlocal done
        ready = await planning.plan(live, facts)
        if (why := _in_the_way(live, ready)) is not None:
            done = _as_it_is(live, *why)
            return ()
        before = measure(live.view, facts.limits).request
        by = ready.folded.by if ready.folded else ""
        done = Done("folded", reason, before, ready.report.total, by)
        return ready.events

    try:
        await live.hold(seconds)
        await live.decide(folding)
    finally:
        if live.lease is not None:
            with suppress(FoldlineError):  # it runs out by itself
                await live.store.release(live.lease)
    return done


def _as_it_is(live: Live, outcome: Outcome, reason: str) -> Done:
    size = measure(live.view, live.facts.limits).request
    return Done(outcome, reason, size, size)
