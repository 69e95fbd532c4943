"""The one entry: what to send now, and what to do so that it fits.

    plan(view, facts)  →  Ready(request, events, report)   append the events, send the request
                       |  Need(ranges)                     fetch these events, plan again
                       |  Blocked(parts, limit)            nothing that may be done makes it fit

Knows the order of decisions. Refuses to know stores, dialects and clocks: whatever a decision rests
on is in `facts`, and every decision is an event.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from foldline.core import ledger, rules
from foldline.core.budget import Budget, Limits, admission, measure
from foldline.core.edits import fold
from foldline.core.edits.clip import clip
from foldline.core.log import Event, Fact, Folded, Logged, Repaired, ToolReturned, UserSaid
from foldline.core.policy import Policy
from foldline.core.request import Report, Request, render, report
from foldline.core.spine import Range
from foldline.core.view import View

_SHRINK = (1.0, 0.5, 0.25)  # of the handoff's share, until the request fits


@dataclass(frozen=True, slots=True)
class Facts:
    """What a decision rests on besides the view."""

    limits: Limits
    policy: Policy
    fetched: Mapping[int, Event] = field(default_factory=dict[int, Event])


@dataclass(frozen=True, slots=True)
class Ready:
    """A request that fits, and the events to append before it is sent."""

    request: Request
    events: tuple[Event, ...]
    report: Report


@dataclass(frozen=True, slots=True)
class Need:
    """Events that a decision needs and the view does not hold."""

    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Blocked:
    """The parts that together exceed the limit."""

    parts: dict[str, int]
    limit: int


Plan: TypeAlias = Ready | Need | Blocked


def plan(view: View, facts: Facts) -> Plan:
    """Decide what to send; the view given is left as it is."""
    events: list[Event] = [*rules.closing(view)]
    work = _after(view, events)
    budget = measure(work, facts.limits)
    limit = int(budget.room * facts.policy.hard)
    edits: tuple[int, ...] = ()
    if budget.used > limit:
        edit = _fold(work, budget, facts)
        match edit:
            case Need():
                return edit
            case None:
                return _blocked(work, budget)
            case _:
                work = _after(work, [edit])
                events.append(edit)
                edits = (work.head,)
                budget = measure(work, facts.limits)
                rules.check(work)
    return Ready(render(work), tuple(events), report(work, budget, edits=edits))


def admit(view: View, event: Event, facts: Facts) -> list[Event]:
    """What enters the log when `event` arrives: clipped where it is too large, repairs noted."""
    notes: list[Repaired] = rules.repairs(view, event)
    if isinstance(event, UserSaid | ToolReturned):
        budget = measure(view, facts.limits)
        policy = facts.policy
        cap = admission(view, budget, hard=policy.hard, handoff=policy.handoff)
        if isinstance(event, ToolReturned):
            cap = min(cap, policy.clip_tokens, max(budget.room // 4, 1))
        event = clip(event, cap=cap, how=policy.clip_how)
    return [event, *notes]


def _after(view: View, events: list[Event]) -> View:
    if not events:
        return view
    work = view.copy()
    for event in events:
        work.append(work.head + 1, event)
    return work


def _fold(view: View, budget: Budget, facts: Facts) -> Folded | Need | None:
    """The gentlest fold that makes the view fit, or None where no fold does."""
    policy = facts.policy
    if not policy.folds:
        return None
    limit, share = int(budget.room * policy.hard), int(budget.room * policy.handoff)
    tail = int(budget.room * policy.rest) - share
    for span in fold.proposals(view, tail=tail, folds=share // 2):
        missing = _missing(view, span, facts)
        if missing:
            return Need(missing)
        for shrink in _SHRINK:
            handoff = _write(view, span, facts, cap=int(share * shrink))
            event = fold.fold(view, span, handoff)
            if event.after < event.before and budget.used - event.before + event.after <= limit:
                return event
    return None


def _words(view: View, span: fold.Span) -> list[int]:
    """The user's messages that may be quoted: those in sight, and those that older folds quoted."""
    older = (seq for at in span.merges for seq in view.fold_at(at).verbatim)
    shown = (item.seq for item in span.items if item.role == "user" and item.state != "masked")
    said = (seq for seq in shown if isinstance(view.held[seq], UserSaid))
    return sorted({*older, *said})


def _pins(view: View, span: fold.Span) -> list[int]:
    hi = span.range.hi
    return [seq for seq in sorted(view.pins) if hi is not None and span.range.lo <= seq <= hi]


def _missing(view: View, span: fold.Span, facts: Facts) -> tuple[Range, ...]:
    wanted = {*_words(view, span), *_pins(view, span)}
    return tuple(
        Range(seq, seq)
        for seq in sorted(wanted)
        if seq not in view.held and seq not in facts.fetched
    )


def _write(view: View, span: fold.Span, facts: Facts, *, cap: int) -> fold.Handoff:
    def logged(seqs: list[int]) -> list[Logged]:
        return [Logged(seq, view.held.get(seq) or facts.fetched[seq]) for seq in seqs]

    pins = _pins(view, span)
    words = [seq for seq in _words(view, span) if seq not in pins]
    older: list[Fact] = [fact for at in span.merges for fact in view.fold_at(at).facts]
    facts_now = [*older, *ledger.facts(span.items)]
    return fold.write(span.range, words=logged(words), pins=logged(pins), facts=facts_now, cap=cap)


def _blocked(view: View, budget: Budget) -> Blocked:
    start = rules.newest(view)
    return Blocked(
        {
            "system": budget.system,
            "tools": budget.tools,
            "output reserve": budget.limits.reserve,
            "margin": budget.margin,
            "earlier items": sum(item.tokens for item in view.items[:start]),
            "newest items": sum(item.tokens for item in (*view.items[start:], *view.waiting)),
        },
        budget.limits.window,
    )
