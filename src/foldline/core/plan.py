"""The one entry: what to send now, and what to do so that it fits.

    plan(view, facts)  →  Ready(request, events, report)   append the events, send the request
                       |  Need(ranges)                     fetch these events, plan again
                       |  Blocked(parts, limit)            nothing that may be done makes it fit

Knows the order of decisions. Refuses to know stores, dialects and clocks: whatever a decision rests
on is in `facts`, and every decision is an event.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from foldline.core import ledger, rules
from foldline.core.budget import Budget, Limits, admission, largest, measure
from foldline.core.edits import fold
from foldline.core.edits.clip import clip
from foldline.core.edits.undo import undo
from foldline.core.item import Item
from foldline.core.log import (
    Asked,
    Edit,
    Event,
    Fact,
    Folded,
    Logged,
    ServerTruncated,
    ToolReturned,
    Undone,
    UsageReported,
    UserSaid,
)
from foldline.core.policy import Policy
from foldline.core.prices import UNKNOWN, Prices
from foldline.core.request import Report, Request, render, report
from foldline.core.spine import Range
from foldline.core.view import View

_LEAST_GAIN = 0.05  # of room: what a fold must gain that is not needed to fit


@dataclass(frozen=True, slots=True)
class Facts:
    """What a decision rests on besides the view."""

    limits: Limits
    policy: Policy
    prices: Prices = UNKNOWN
    cache: fold.Cache = "unknown"
    """Whether the provider still holds the last request's prefix, as far as the shell can tell."""
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
    forced = budget.used > budget.tier(facts.policy.hard)
    edit = _fold(work, budget, facts) if forced else _pays(work, budget, facts)
    match edit:
        case Need():
            return edit
        case Folded():
            work = _after(work, [edit])
            rules.check(work)
            budget = measure(work, facts.limits)
            return Ready(render(work), (*events, edit), report(work, budget, edits=(work.head,)))
        case None if budget.used > budget.room:
            return _blocked(work, budget)
        case None:
            return Ready(render(work), tuple(events), report(work, budget))


def admit(view: View, event: Event, facts: Facts) -> list[Event]:
    """What enters the log when `event` arrives: clipped where it is too large, repairs noted."""
    notes: list[Event] = [*rules.repairs(view, event), *_truncated(view, event)]
    policy, budget = facts.policy, measure(view, facts.limits)
    match event:
        case UserSaid():
            event = clip(event, cap=largest(budget), how=policy.clip.how)
        case ToolReturned(call_id):
            wanted = policy.clipping(view.tool_of(call_id))
            most = budget.estimated(min(wanted.tokens, max(budget.room // 4, 1)))
            free = admission(view, budget, hard=policy.hard, handoff=policy.handoff)
            event = clip(event, cap=min(free, most), how=wanted.how)
        case _:
            pass
    return [event, *notes]


def take_back(view: View, seq: int, edit: Edit, facts: Facts) -> Undone | Blocked:
    """The event that undoes an edit, unless what it gives back would not fit."""
    undone = undo(view, seq, edit)
    if isinstance(edit, Folded):
        budget = measure(view, facts.limits)
        more = round((edit.before - edit.after) * budget.ratio)
        if budget.used + more > budget.tier(facts.policy.hard):
            return Blocked({"conversation": budget.used, "what comes back": more}, budget.room)
    return undone


def _truncated(view: View, event: Event) -> list[ServerTruncated]:
    """A report far below what was sent: the server has cut the prompt and did not say so."""
    if not isinstance(event, UsageReported) or event.input is None:
        return []
    asked = view.held.get(view.asked if event.asked is None else event.asked)
    if not isinstance(asked, Asked) or not view.learned.truncated(asked.estimate, event.input):
        return []
    return [ServerTruncated(asked.tokens, event.input)]


def _after(view: View, events: list[Event]) -> View:
    if not events:
        return view
    work = view.copy()
    for event in events:
        work.append(work.head + 1, event)
    return work


def _fold(view: View, budget: Budget, facts: Facts) -> Folded | Need | None:
    """The gentlest fold that brings the view below hard, or the deepest that fits, or None."""
    policy = facts.policy
    if not policy.folds:
        return None
    limit = budget.estimated(budget.tier(policy.hard))
    share = budget.estimated(budget.room * policy.handoff)
    rest = min(budget.estimated(budget.room * policy.rest), limit // 2)
    used = view.tokens + sum(item.tokens for item in view.waiting)
    # Below hard if that can be had; else the deepest that is within room and shrinks anything.
    best, deepest = min(used, budget.estimated(budget.room) + 1), None
    # What gains next to nothing is not worth a rewritten prefix while all of it still fits.
    least = budget.estimated(budget.room * _LEAST_GAIN) if budget.used <= budget.room else 1
    for span in fold.proposals(view, tail=rest - share, folds=share // 2):
        missing = _missing(view, span, facts)
        if missing:
            return Need(missing)
        # From all that a handoff may take down to its mere frame, until the request fits.
        caps = {share, share // 2, share // 4, min(share, span.tokens // 2), 0}
        for cap in sorted(caps, reverse=True):
            handoff = _write(view, span, facts, cap=cap)
            event = fold.fold(view, span, handoff, ratio=budget.ratio, prices=facts.prices)
            after = used - event.before + event.after
            if event.before - event.after < least:
                continue
            if after <= limit:
                return event
            if after < best:
                best, deepest = after, event
    return deepest


def _pays(view: View, budget: Budget, facts: Facts) -> Folded | Need | None:
    """A fold that nothing forces but that pays, for the presets that look for one."""
    rule = facts.policy.priced
    if rule is None:
        return None
    share = budget.estimated(budget.room * facts.policy.handoff)
    moment = fold.worthwhile(
        view,
        rule,
        prices=facts.prices,
        cache=facts.cache,
        request=budget.estimated(budget.request),
        most=share,
    )
    if moment is None:
        return None
    missing = _missing(view, moment.span, facts)
    if missing:
        return Need(missing)
    handoff = _write(view, moment.span, facts, cap=moment.cap)
    return fold.fold(
        view, moment.span, handoff, ratio=budget.ratio, why=moment.why, prices=facts.prices
    )


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
            "earlier items": _tokens(view.items[:start], budget),
            "newest items": _tokens((*view.items[start:], *view.waiting), budget),
        },
        budget.limits.window,
    )


def _tokens(items: Sequence[Item], budget: Budget) -> int:
    return round(sum(item.tokens for item in items) * budget.ratio)
