"""Decide what to send now, and which edits make it fit.

    plan(view, facts)  →  Ready(request, events, report, ask)   append the events, send the request
                       |  Need(ranges)                          fetch these events, plan again
                       |  Blocked(parts, limit)                 nothing makes it fit

Does no IO: whatever a decision rests on is in `facts`, and every decision is an event.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

import msgspec

from foldline.core import fold_selection, rules
from foldline.core.budget import (
    Budget,
    measure_budget,
    measure_message_room,
    measure_result_cap,
    measure_result_room,
)
from foldline.core.edits import fold, mask
from foldline.core.edits.clip import clip_event, clip_unanswered
from foldline.core.edits.fold.ask import find_recall_tool, is_recall_name
from foldline.core.edits.undo import undo_edit
from foldline.core.fold_selection import Facts, Need, compute_tiers, is_enough
from foldline.core.item import Item
from foldline.core.log import (
    Edit,
    Event,
    Folded,
    Masked,
    ModelSaid,
    ServerTruncated,
    ToolReturned,
    Undone,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Call, Part, Text, Thought, text_of
from foldline.core.policy import Policy
from foldline.core.request import Pressure, Report, Request, build_report, render
from foldline.core.spine import Range, has_overlap
from foldline.core.tokens import count_parts
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
    "build_blocked",
    "compute_tiers",
    "is_fold_waiting",
    "lost",
    "measure_recall_room",
    "offers_recall",
    "plan",
    "pressure_of",
    "take_back",
]
RECALL = "recall"  # the tool by which a model gets back what was cut
_CARES = (1.0, 0.75, 0.5)  # shares of room, where what stays is more in doubt than what goes
_MORES = (1.4, 2.0, 3.0)  # where no fold leaves so little
_CUTS = (False, True, True)
"""First fair shares; then what is still missing, before the fold that helps only so, and behind."""
_MOST_IDLE = 3  # folds without a user message, an answer or a result between them


@dataclass(frozen=True, slots=True)
class Ready:
    """A request that fits, and the events to append before it is sent."""

    request: Request
    """Independent of any provider: a dialect of `foldline.dialects` encodes it."""
    events: tuple[Event, ...]
    """What was decided: closed calls, masks, a fold."""
    report: Report
    """Where the window goes."""
    ask: fold.Ask | None = None
    """A narrative worth asking a model for while this request is answered."""

    @property
    def folded(self) -> Folded | None:
        """The fold among the events, if there is one."""
        return next((event for event in self.events if isinstance(event, Folded)), None)


@dataclass(frozen=True, slots=True)
class Blocked:
    """Nothing makes the request fit; sessions raise `Overflow`."""

    parts: dict[str, int]
    """The parts that together exceed the limit: tokens by name."""
    limit: int
    """The most tokens that all of them may take."""


Plan: TypeAlias = Ready | Need | Blocked


def plan(view: View, facts: Facts) -> Plan:
    """Decide what to send: select an edit, apply it, finish. The view itself stays unchanged.

    `Ready`: append its events, record the request, send it. `Need`: fetch the events of its ranges
    into `facts.fetched`, and plan again. `Blocked`: nothing makes it fit.
    """
    events: list[Event] = [*rules.make_closing_events(view)]
    work = after(view, events)
    early = not facts.now and measure_budget(work, facts.limits).request < facts.fold_from
    if not early and (masked := _mask_old_results(work, facts)):
        events.append(masked)
        work = after(work, [masked])
    edit: Folded | Need | None = None
    soon: fold.Moment | None = None
    budget = measure_budget(work, facts.limits)
    for again in _CUTS:
        over = max(budget.used - budget.room, 0) if again else 0
        recall = offers_recall(work, facts)
        if facts.policy.folds and (
            clipped := clip_unanswered(work, budget, recall=recall, over=over)
        ):
            events.append(clipped)
            work = after(work, [clipped])
            budget = measure_budget(work, facts.limits)
        if edit is None:
            edit, soon = _select_fold(work, budget, facts, early=early)
            fits = budget.used <= budget.room
            if fits and isinstance(edit, Folded) and not is_enough(work, edit, facts.limits):
                edit = fold_selection.find_forced_fold(work, budget, facts)
            if isinstance(edit, Need):
                return edit
            if edit is not None:
                events.append(edit)
                work = after(work, [edit])
                rules.check_view(work)
                budget = measure_budget(work, facts.limits)
        if budget.used <= budget.room:
            break
    return _finish_plan(work, budget, facts, events=events, soon=soon)


def _select_fold(
    view: View, budget: Budget, facts: Facts, *, early: bool
) -> tuple[Folded | Need | None, fold.Moment | None]:
    """Select the fold to make now; if there is none, the one that will soon pay."""
    policy = facts.policy
    pressure = pressure_of(budget, policy)
    if view.idle_folds >= _MOST_IDLE and not facts.now:
        return None, None  # another fold would lead to no answer either
    by_itself = policy.start == "auto"
    most = fold_selection.count_most_messages(budget.limits, policy)
    is_crowded = by_itself and len(view.items) > most
    is_full = pressure == "hard" or is_crowded
    if not budget.fits and by_itself:
        edit = _find_safe_fold(view, budget, facts)
        if edit is not None or not is_full:
            return edit, None
    if is_full:
        edit = fold_selection.find_forced_fold(view, budget, facts)
        if edit is None and (is_crowded or budget.used > budget.room):
            if not budget.fits and by_itself:
                edit = _find_safe_fold(view, budget, facts, unanswered=True)
            edit = edit or fold_selection.find_forced_fold(view, budget, facts, unanswered=True)
        return edit, None
    if facts.now or (by_itself and not early and _is_due(view, budget, policy)):
        return fold_selection.find_due_fold(view, budget, facts), None
    if policy.delays and pressure != "soft":
        return None, None
    return fold_selection.find_paying_fold(view, budget, facts)


def _find_safe_fold(
    view: View, budget: Budget, facts: Facts, *, unanswered: bool = False
) -> Folded | Need | None:
    """Find a fold behind which the request fits even if all that is in doubt is large.

    Where no fold does that, return the smallest that was tried.
    """

    def find(care: float) -> Folded | Need | None:
        by = budget.shrink(care)
        return fold_selection.find_forced_fold(view, by, facts, unanswered=unanswered)

    smallest: Folded | None = None
    for care in _CARES:
        edit = find(care)
        if edit is None:
            break
        if isinstance(edit, Need) or measure_budget(after(view, [edit]), facts.limits).fits:
            return edit
        smallest = edit
    return smallest or next((edit for edit in map(find, _MORES) if edit), None)


def _finish_plan(
    view: View,
    budget: Budget,
    facts: Facts,
    *,
    events: Sequence[Event],
    soon: fold.Moment | None,
) -> Ready | Blocked:
    """Build the request and its report, if it fits; the view already ends with the events."""
    if budget.used > budget.room:
        return build_blocked(view, budget)
    policy, pressure = facts.policy, pressure_of(budget, facts.policy)
    numbered = enumerate(events, view.head + 1 - len(events))
    folded = any(isinstance(event, Folded) for event in events)
    report = build_report(
        view,
        budget,
        edits=tuple(seq for seq, event in numbered if isinstance(event, Edit)),
        pressure=pressure,
        due=policy.start == "ask" and not folded and _is_due(view, budget, policy),
    )
    budget = budget.shrink()
    is_near = budget.used > compute_tiers(budget, policy)["warn"] and pressure != "hard"
    near = soon or is_near or _is_nearly_due(view, policy)
    ask = fold_selection.plan_narrative(view, soon, budget=budget, facts=facts) if near else None
    return Ready(render(view), tuple(events), report, ask)


def lost(view: View, ready: Ready) -> fold.Loss | None:
    """Measure what the fold of a plan takes out of the model's sight; None without a fold."""
    folded = ready.folded
    if folded is None:
        return None
    return fold.measure_loss(after(view, ready.events[: ready.events.index(folded)]), folded)


def is_fold_waiting(view: View, facts: Facts) -> bool:
    """Whether a fold is due and waits for the user's consent, as if their next message had come."""
    policy = facts.policy
    if policy.start != "ask" or not policy.folds:
        return False
    budget = measure_budget(view, facts.limits)
    if pressure_of(budget, policy) in ("soft", "hard"):
        return True
    return _is_due(after(view, [UserSaid((Text("?"),))]), budget, policy)


def pressure_of(budget: Budget, policy: Policy) -> Pressure:
    """How near the conversation is to its limit."""
    for name, limit in compute_tiers(budget, policy).items():
        if budget.used > limit or (budget.used == limit and name != "hard"):
            return name
    return "calm"


def _is_due(view: View, budget: Budget, policy: Policy) -> bool:
    """Whether the policy's own rule asks for a fold at this turn's end."""
    if not policy.folds or not rules.turn_end(view):
        return False
    return (
        (policy.turns is not None and rules.count_turns(view) >= policy.turns)
        or (policy.fill is not None and budget.used > policy.fill)
        or pressure_of(budget, policy) == "soft"
    )


def _is_nearly_due(view: View, policy: Policy) -> bool:
    return policy.turns is not None and rules.count_turns(view) >= policy.turns - 1


def _mask_old_results(view: View, facts: Facts) -> Masked | None:
    policy = facts.policy
    if policy.mask is None:
        return None
    results = mask.list_results(view, turn_only=True)
    old = mask.select_middle_results(results, first=policy.mask.first, last=policy.mask.last)
    kept = view.spine.unfolded  # what a person unfolded is left alone
    free = [i for i in old if not any(has_overlap(span, Range(i.seq, i.seq)) for span in kept)]
    return mask.mask_results(view, free, recall=offers_recall(view, facts))


def admit(view: View, event: Event, facts: Facts) -> list[Event]:
    """List what enters the log when `event` arrives: the event, clipped if too large, and notes."""
    notes: list[Event] = [*rules.list_repairs(view, event), *_detect_truncation(view, event)]
    policy, budget = facts.policy, measure_budget(view, facts.limits)
    count, recall = facts.limits.count, offers_recall(view, facts)
    match event:
        case UserSaid() if not _surely_fits(event, budget, of=budget.room):
            room = measure_message_room(view, budget)
            event = clip_event(event, how="both", most=room, count=count, recall=recall)
        case ToolReturned(call_id):
            call = view.find_answered_call(call_id)
            tool = call.name if call else ""
            wanted = policy.clipping(tool, reads=call is not None and _is_read(event, call, policy))
            cap = budget.convert_to_estimate(measure_result_cap(budget, wanted.tokens))
            free = inf
            if not _surely_fits(event, budget, of=budget.room * (policy.hard - policy.handoff / 2)):
                free = measure_result_room(view, budget, hard=policy.hard, handoff=policy.handoff)
            # What recall returned is bounded already: clipped again, it could never be read.
            if is_recall_name(tool) or budget.request < facts.fold_from:
                cap = inf
            event = clip_event(
                event,
                cap=cap,
                how=wanted.how,
                most=free,
                count=count,
                lines=wanted.lines,
                recall=recall,
            )
        case ModelSaid(parts) if not facts.binds_thinking:
            event = msgspec.structs.replace(event, parts=tuple(map(_free_thought, parts)))
        case _:
            pass
    return [event, *notes]


def _is_read(event: ToolReturned, call: Call, policy: Policy) -> bool:
    """True if a result is larger than others may be, and is files that a shell has shown."""
    if not policy.clips or count_parts(event.parts) <= policy.clip.tokens:
        return False
    from foldline.core.ledger.entries import only_shows_files  # noqa: PLC0415 - few are so large

    return only_shows_files(call)


def _surely_fits(event: UserSaid | ToolReturned, budget: Budget, *, of: float) -> bool:
    """Whether a message fits beside all the others whatever counts it: no token is below a byte."""
    words = text_of(part for part in event.parts if isinstance(part, Text))
    return budget.safe + len(words.encode("utf-8", "replace")) <= of


def _free_thought(part: Part) -> Part:
    """Note that a signed thought stays valid behind an edit of the words before it."""
    if not isinstance(part, Thought) or not part.signature:
        return part
    return msgspec.structs.replace(part, free=True)


def offers_recall(view: View, facts: Facts) -> bool:
    """Whether the model has a tool that gives back what was cut, or gets one with the first cut."""
    return facts.recall or bool(find_recall_tool(view.newest.tools))


def measure_recall_room(view: View, facts: Facts) -> int:
    """Measure how large the answer to a recall may be, by its bound, and never be clipped."""
    budget = measure_budget(view, facts.limits)
    free = measure_result_room(view, budget, hard=facts.policy.hard, handoff=facts.policy.handoff)
    return min(free, budget.convert_to_estimate(budget.room // 4))


def take_back(view: View, seq: int, edit: Edit, facts: Facts) -> Undone | Blocked:
    """Build the event that undoes an edit, or `Blocked` if what comes back would not fit."""
    undone = undo_edit(view, seq, edit)
    budget = measure_budget(view, facts.limits)
    if view.has_events_for(undone.spine):
        used = measure_budget(after(view, [undone]), facts.limits).safe
    elif isinstance(edit, Folded):
        used = budget.grow((edit.before - edit.after) * budget.ratio).safe
    else:
        used = budget.safe
    if used > max(compute_tiers(budget, facts.policy)["hard"], budget.safe):
        more = used - budget.used
        return Blocked({"conversation": budget.used, "what comes back": more}, budget.room)
    return undone


def _detect_truncation(view: View, event: Event) -> list[ServerTruncated]:
    """Detect a token count far below what was sent: the server has cut the prompt silently."""
    if not isinstance(event, UsageReported) or not event.input:  # 0 is no count of a request
        return []
    asked = view.find_reported_request(event)
    if asked is None or not view.learned.is_truncated(asked.estimate, event.input):
        return []
    return [ServerTruncated(asked.tokens, event.input)]


def after(view: View, events: Sequence[Event]) -> View:
    """Return a copy of the view with the events appended; the view itself if there are none."""
    if not events:
        return view
    work = view.copy()
    for event in events:
        work.append(work.head + 1, event)
    return work


def build_blocked(view: View, budget: Budget) -> Blocked:
    """Say which parts of a request exceed the limit."""
    start, most = rules.find_protected_start(view), budget.limits.max_input
    return Blocked(
        {
            "system": budget.system,
            "tools": budget.tools,
            **({"output reserve": budget.limits.reserve} if most is None else {}),
            "margin": budget.margin,
            "earlier items": _sum_tokens(view.items[:start], budget),
            "newest items": _sum_tokens((*view.items[start:], *view.waiting), budget),
            **({"folds that led to no answer": idle} if (idle := view.idle_folds) else {}),
        },
        budget.limits.window if most is None else most,
    )


def _sum_tokens(items: Sequence[Item], budget: Budget) -> int:
    return round(sum(item.tokens for item in items) * budget.ratio)
