"""The one entry: what to send now, and what to do so that it fits.

    plan(view, facts)  →  Ready(request, events, report)   append the events, send the request
                       |  Need(ranges)                     fetch these events, plan again
                       |  Blocked(parts, limit)            nothing that may be done makes it fit

Knows the order of decisions. Refuses to know stores, dialects and clocks: whatever a decision rests
on is in `facts`, and every decision is an event.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from foldline.core import rules
from foldline.core.budget import Budget, Limits, admission, largest, measure
from foldline.core.edits import fold, mask
from foldline.core.edits.clip import clip
from foldline.core.edits.undo import undo
from foldline.core.item import Item
from foldline.core.log import (
    Edit,
    Event,
    Folded,
    Masked,
    ServerTruncated,
    ToolReturned,
    Undone,
    UsageReported,
    UserSaid,
)
from foldline.core.policy import Policy
from foldline.core.prices import UNKNOWN, Prices
from foldline.core.request import Pressure, Report, Request, render, report
from foldline.core.spine import Range, overlap
from foldline.core.view import View

_MOST_IDLE = 3  # folds without a person's word, an answer or a result between them
_LEAST_GAIN = 0.05  # of room: what a fold must gain that is not needed to fit


@dataclass(frozen=True, slots=True)
class Facts:
    """What a decision rests on besides the view."""

    limits: Limits
    policy: Policy
    prices: Prices = UNKNOWN
    cache: fold.Cache = "unknown"
    """Whether the provider still holds the last request's prefix, as far as the shell can tell."""
    now: bool = False
    """Whether a person asked for a fold now."""
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
    policy = facts.policy
    events: list[Event] = [*rules.closing(view)]
    work = _after(view, events)
    if masked := _mask(work, policy):
        events.append(masked)
        work = _after(work, [masked])
    budget = measure(work, facts.limits)
    pressure = _pressure(budget, policy)
    due = _is_due(work, budget, policy, pressure)
    if work.idle_folds >= _MOST_IDLE and not facts.now:
        edit = None  # folding again would lead to nothing again
    elif pressure == "hard" or len(work.items) > budget.limits.messages:
        edit = _fold(work, budget, facts)
    elif facts.now or (due and (policy.start == "auto" or policy.fill is not None)):
        edit = _due(work, budget, facts)
    else:
        edit = _pays(work, budget, facts)
    match edit:
        case Need():
            return edit
        case Folded():
            events.append(edit)
            work = _after(work, [edit])
            rules.check(work)
            budget = measure(work, facts.limits)
            pressure, due = _pressure(budget, policy), False
        case None:
            pass
    if budget.used > budget.room:
        return _blocked(work, budget)
    edits = tuple(view.head + 1 + n for n, event in enumerate(events) if isinstance(event, Edit))
    seen = report(work, budget, edits=edits, pressure=pressure, due=due and policy.start == "ask")
    return Ready(render(work), tuple(events), seen)


def _pressure(budget: Budget, policy: Policy) -> Pressure:
    if budget.used > budget.tier(policy.hard, of=policy.of):
        return "hard"
    if policy.soft is not None:
        of = policy.soft_of or policy.of
        soft = budget.tier(policy.soft, of=of, tokens=policy.soft_tokens)
        if budget.used > soft:
            return "soft"
    return "warn" if budget.used > budget.tier(policy.warn, of=policy.of) else "calm"


def _is_due(view: View, budget: Budget, policy: Policy, pressure: Pressure) -> bool:
    """Whether a preset's own rule asks for a fold at a turn's end: by turns, number or share."""
    if not policy.folds or not rules.turn_end(view):
        return False
    return (
        (policy.turns is not None and rules.turns(view) >= policy.turns)
        or (policy.fill is not None and budget.used > policy.fill)
        or pressure == "soft"
    )


def _mask(view: View, policy: Policy) -> Masked | None:
    if policy.mask is None:
        return None
    found = mask.results(view, turn_only=True)
    old = mask.between(found, first=policy.mask.first, last=policy.mask.last)
    kept = view.spine.unfolded  # what a person took back is left alone
    free = [i for i in old if not any(overlap(span, Range(i.seq, i.seq)) for span in kept)]
    return mask.mask(view, free)


def _due(view: View, budget: Budget, facts: Facts) -> Folded | Need | None:
    """The fold that a preset's own rule asks for, in the form that its paper gives it."""
    policy = facts.policy
    cuts = rules.cut_points(view)
    if not cuts:
        return None
    if policy.fill is not None:
        cut = fold.within(view, cuts, budget.estimated(policy.fill))
    else:
        cut = fold.keeping(view, policy.tail)
    merge = policy.turns is None or len(view.folds()) >= fold.MOST_FOLDS
    span = None if cut is None else next(fold.up_to(view, cut, merge=merge), None)
    if span is None or (fold.taken_back(view, span) and not facts.now):
        return None
    missing = fold.lacking(view, span, facts.fetched)
    if missing:
        return Need(missing)
    most = min(budget.room * policy.handoff, policy.words or budget.room)
    if policy.form == "omitted":
        handoff = fold.omitted(span.range, fold.messages(view, span))
    else:
        handoff = fold.draft(view, span, facts.fetched, cap=budget.estimated(most))
    if policy.form == "acknowledged":
        handoff = fold.acknowledged(handoff)
    event = fold.fold(view, span, handoff, ratio=budget.ratio, why="due", prices=facts.prices)
    return event if event.after < event.before else None


def admit(view: View, event: Event, facts: Facts) -> list[Event]:
    """What enters the log when `event` arrives: clipped where it is too large, repairs noted."""
    notes: list[Event] = [*rules.repairs(view, event), *_truncated(view, event)]
    policy, budget = facts.policy, measure(view, facts.limits)
    match event:
        case UserSaid():
            event = clip(event, cap=largest(budget), how="both")  # only what alone is too large
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
        if budget.used + more > budget.tier(facts.policy.hard, of=facts.policy.of):
            return Blocked({"conversation": budget.used, "what comes back": more}, budget.room)
    return undone


def _truncated(view: View, event: Event) -> list[ServerTruncated]:
    """A report far below what was sent: the server has cut the prompt and did not say so."""
    if not isinstance(event, UsageReported) or event.input is None:
        return []
    asked = view.counted(event)
    if asked is None or not view.learned.truncated(asked.estimate, event.input):
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
    limit = budget.estimated(budget.tier(policy.hard, of=policy.of))
    share = budget.estimated(budget.room * policy.handoff)
    rest = min(budget.estimated(budget.room * policy.rest), limit // 2)
    used = view.tokens + sum(item.tokens for item in view.waiting)
    # Below hard if that can be had; else the deepest that is within room and shrinks anything.
    best, deepest = min(used, budget.estimated(budget.room) + 1), None
    # What gains next to nothing is not worth a rewritten prefix while all of it still fits.
    crowded = len(view.items) > budget.limits.messages
    spare = budget.used <= budget.room and not crowded
    least = budget.estimated(budget.room * _LEAST_GAIN) if spare else 1
    for span in fold.proposals(view, tail=rest - share, folds=share // 2):
        missing = fold.lacking(view, span, facts.fetched)
        if missing:
            return Need(missing)
        # From all that a handoff may take down to its mere frame, until the request fits.
        caps = {share, share // 2, share // 4, min(share, span.tokens // 2), 0}
        for cap in sorted(caps, reverse=True):
            handoff = fold.draft(view, span, facts.fetched, cap=cap)
            if policy.form == "acknowledged":
                handoff = fold.acknowledged(handoff)
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
        replace(rule, floor=budget.estimated(rule.floor), gain=budget.estimated(rule.gain)),
        prices=facts.prices,
        cache=facts.cache,
        request=budget.estimated(budget.request),
        most=share,
    )
    if moment is None:
        return None
    missing = fold.lacking(view, moment.span, facts.fetched)
    if missing:
        return Need(missing)
    handoff = fold.draft(view, moment.span, facts.fetched, cap=moment.cap)
    event = fold.fold(
        view, moment.span, handoff, ratio=budget.ratio, why=moment.why, prices=facts.prices
    )
    return event if event.after < event.before else None


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
            **({"folds that led to no answer": idle} if (idle := view.idle_folds) else {}),
        },
        budget.limits.window,
    )


def _tokens(items: Sequence[Item], budget: Budget) -> int:
    return round(sum(item.tokens for item in items) * budget.ratio)
