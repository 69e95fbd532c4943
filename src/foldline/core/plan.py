"""The one entry: what to send now, and what to do so that it fits.

    plan(view, facts)  →  Ready(request, events, report, ask)   append the events, send the request
                       |  Need(ranges)                          fetch these events, plan again
                       |  Blocked(parts, limit)                 nothing makes it fit

Knows the order of decisions. Refuses to know stores, dialects and clocks: whatever a decision rests
on is in `facts`, and every decision is an event.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from foldline.core import fold_selection, rules
from foldline.core.budget import Budget, admission, largest, measure
from foldline.core.edits import fold, mask
from foldline.core.edits.clip import clip
from foldline.core.edits.undo import undo
from foldline.core.fold_selection import Facts, Need
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
from foldline.core.parts import Text
from foldline.core.policy import Policy
from foldline.core.request import Pressure, Report, Request, render, report
from foldline.core.spine import Range, overlap
from foldline.core.view import View

__all__ = [
    "RECALL",
    "Blocked",
    "Facts",
    "Need",
    "Plan",
    "Ready",
    "admit",
    "after",
    "lost",
    "plan",
    "pressure_of",
    "recallable",
    "take_back",
    "tiers",
    "waits",
]
RECALL = "recall"  # the tool by which a model has back what was cut
_MOST_IDLE = 3  # folds without a person's word, an answer or a result between them


@dataclass(frozen=True, slots=True)
class Ready:
    """A request that fits, and the events to append before it is sent."""

    request: Request
    """In no provider's words yet: a dialect of `foldline.dialects` encodes it."""
    events: tuple[Event, ...]
    """What was decided: calls that are closed, masks, a fold."""
    report: Report
    """Where the window goes."""
    ask: fold.Ask | None = None
    """A narrative worth asking a model for while this request is answered."""

    @property
    def folded(self) -> Folded | None:
        """The fold among its events, if it makes one."""
        return next((event for event in self.events if isinstance(event, Folded)), None)


@dataclass(frozen=True, slots=True)
class Blocked:
    """Nothing makes it fit: the parts that together exceed the limit. Sessions raise `Overflow`."""

    parts: dict[str, int]
    """By name, in tokens."""
    limit: int
    """What all of them may take."""


Plan: TypeAlias = Ready | Need | Blocked


def plan(view: View, facts: Facts) -> Plan:
    """Decide what to send; the view given is left as it is.

    `Ready`: append its events, record the request, send it. `Need`: fetch the events of its ranges
    into `facts.fetched`, and plan again. `Blocked`: nothing makes it fit.
    """
    policy = facts.policy
    events: list[Event] = [*rules.closing(view)]
    work = after(view, events)
    early = not facts.now and measure(work, facts.limits).request < facts.fold_from
    if not early and (masked := _mask(work, policy)):
        events.append(masked)
        work = after(work, [masked])
    budget, soon = measure(work, facts.limits), None
    pressure = pressure_of(budget, policy)
    due = _is_due(work, budget, policy, pressure)
    if work.idle_folds >= _MOST_IDLE and not facts.now:
        edit = None  # folding again would lead to nothing again
    elif pressure == "hard" or len(work.items) > budget.limits.messages:
        edit = fold_selection.forced(work, budget, facts)
    elif facts.now or (due and not early and (policy.start == "auto" or policy.fill is not None)):
        edit = fold_selection.due(work, budget, facts)
    else:
        soon = fold_selection.moment(work, budget, facts)
        if soon and soon.ripe:
            made = fold_selection.folding(work, soon.span, soon.why, budget=budget, facts=facts)
            edit = fold_selection.shrinking(made, soon.cap)
        else:
            edit = None
    match edit:
        case Need():
            return edit
        case Folded():
            events.append(edit)
            work = after(work, [edit])
            rules.check(work)
            budget = measure(work, facts.limits)
            pressure, due, soon = pressure_of(budget, policy), False, None
        case None:
            pass
    if budget.used > budget.room:
        return _blocked(work, budget)
    edits = tuple(view.head + 1 + n for n, event in enumerate(events) if isinstance(event, Edit))
    seen = report(work, budget, edits=edits, pressure=pressure, due=due and policy.start == "ask")
    near = soon or pressure in ("warn", "soft") or _is_nearly_due(work, policy)
    ask = fold_selection.ask(work, soon, budget=budget, facts=facts) if near else None
    return Ready(render(work), tuple(events), seen, ask)


def lost(view: View, ready: Ready) -> fold.Loss | None:
    """What the fold of a plan takes out of the model's sight; None if it makes none: R-38."""
    folded = ready.folded
    if folded is None:
        return None
    return fold.loss(after(view, ready.events[: ready.events.index(folded)]), folded)


def waits(view: View, facts: Facts) -> bool:
    """Whether a fold waits for a person who is asked: as if they had said something more (A-36)."""
    policy = facts.policy
    if policy.start != "ask" or not policy.folds:
        return False
    if pressure_of(measure(view, facts.limits), policy) in ("soft", "hard"):
        return True
    made = plan(after(view, [UserSaid((Text("?"),))]), facts)
    return isinstance(made, Ready) and made.report.due


def tiers(budget: Budget, policy: Policy) -> dict[Pressure, int]:
    """The tokens of conversation above which pressure is so, hardest first."""
    found: dict[Pressure, int] = {"hard": budget.tier(policy.hard, of=policy.of)}
    if policy.soft is not None:
        of = policy.soft_of or policy.of
        found["soft"] = budget.tier(policy.soft, of=of, tokens=policy.soft_tokens)
    found["warn"] = budget.tier(policy.warn, of=policy.of)
    return found


def pressure_of(budget: Budget, policy: Policy) -> Pressure:
    """How near the conversation is to what must not be exceeded."""
    for name, limit in tiers(budget, policy).items():
        if budget.used > limit:
            return name
    return "calm"


def _is_due(view: View, budget: Budget, policy: Policy, pressure: Pressure) -> bool:
    """Whether a preset's own rule asks for a fold at a turn's end: by turns, number or share."""
    if not policy.folds or not rules.turn_end(view):
        return False
    return (
        (policy.turns is not None and rules.turns(view) >= policy.turns)
        or (policy.fill is not None and budget.used > policy.fill)
        or pressure == "soft"
    )


def _is_nearly_due(view: View, policy: Policy) -> bool:
    """Whether the next turn's end is the one at which a preset folds."""
    return policy.turns is not None and rules.turns(view) >= policy.turns - 1


def _mask(view: View, policy: Policy) -> Masked | None:
    if policy.mask is None:
        return None
    found = mask.results(view, turn_only=True)
    old = mask.between(found, first=policy.mask.first, last=policy.mask.last)
    kept = view.spine.unfolded  # what a person took back is left alone
    free = [i for i in old if not any(overlap(span, Range(i.seq, i.seq)) for span in kept)]
    return mask.mask(view, free)


def admit(view: View, event: Event, facts: Facts) -> list[Event]:
    """What enters the log when `event` arrives: clipped where it is too large, repairs noted."""
    notes: list[Event] = [*rules.repairs(view, event), *_truncated(view, event)]
    policy, budget = facts.policy, measure(view, facts.limits)
    match event:
        case UserSaid():
            event = clip(event, cap=largest(budget), how="both")  # only what alone is too large
        case ToolReturned(call_id):
            tool = view.tool_of(call_id)
            wanted = policy.clipping(tool)
            most = budget.estimated(min(wanted.tokens, max(budget.room // 4, 1)))
            free = admission(view, budget, hard=policy.hard, handoff=policy.handoff)
            if budget.request < facts.fold_from:
                most = free
            # What recall gave back is bounded already: clipped again, it could never be read.
            event = clip(event, cap=free if tool == RECALL else min(free, most), how=wanted.how)
        case _:
            pass
    return [event, *notes]


def recallable(view: View, facts: Facts) -> int:
    """The most tokens that the answer to a recall may take now, so that nothing clips it again."""
    budget = measure(view, facts.limits)
    free = admission(view, budget, hard=facts.policy.hard, handoff=facts.policy.handoff)
    return min(free, budget.estimated(budget.room // 4))


def take_back(view: View, seq: int, edit: Edit, facts: Facts) -> Undone | Blocked:
    """The event that undoes an edit, unless what it gives back would not fit."""
    undone = undo(view, seq, edit)
    budget = measure(view, facts.limits)
    if view.holds(undone.spine):
        used = measure(after(view, [undone]), facts.limits).used
    elif isinstance(edit, Folded):
        used = budget.used + round((edit.before - edit.after) * budget.ratio)
    else:
        used = budget.used
    if used > max(budget.tier(facts.policy.hard, of=facts.policy.of), budget.used):
        more = used - budget.used
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


def after(view: View, events: Sequence[Event]) -> View:
    """The view as it would be behind some events."""
    if not events:
        return view
    work = view.copy()
    for event in events:
        work.append(work.head + 1, event)
    return work


def _blocked(view: View, budget: Budget) -> Blocked:
    start, most = rules.newest(view), budget.limits.max_input
    return Blocked(
        {
            "system": budget.system,
            "tools": budget.tools,
            **({"output reserve": budget.limits.reserve} if most is None else {}),
            "margin": budget.margin,
            "earlier items": _tokens(view.items[:start], budget),
            "newest items": _tokens((*view.items[start:], *view.waiting), budget),
            **({"folds that led to no answer": idle} if (idle := view.idle_folds) else {}),
        },
        budget.limits.window if most is None else most,
    )


def _tokens(items: Sequence[Item], budget: Budget) -> int:
    return round(sum(item.tokens for item in items) * budget.ratio)
