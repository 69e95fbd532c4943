"""Which fold: the one that is forced, the one that a preset's rule asks for, the one that pays.

Knows spans, caps and what each kind of fold must gain. Refuses to know in which order they are
tried, and to append anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from foldline.core import rules
from foldline.core.budget import Budget, Limits
from foldline.core.edits import fold
from foldline.core.log import Event, Folded
from foldline.core.policy import Policy
from foldline.core.prices import UNKNOWN, Prices
from foldline.core.spine import Range
from foldline.core.view import View

_LEAST_GAIN = 0.05  # of room: what a fold must gain that is not needed to fit


@dataclass(frozen=True, slots=True)
class Facts:
    """What a decision rests on besides the view."""

    limits: Limits
    """What the model takes and gives."""
    policy: Policy
    """When and how to edit."""
    prices: Prices = UNKNOWN
    """What tokens cost: when a fold pays."""
    cache: fold.Cache = "unknown"
    """Whether the provider still holds the last request's prefix, as far as the shell can tell."""
    now: bool = False
    """Whether a person asked for a fold now."""
    focus: str = ""
    """What that person wants to be kept above all, in their words."""
    prepared: fold.Prepared | None = None
    """A narrative that was asked for and is proven."""
    stable: int | None = None
    """The last event that a fold may cover unless it is forced; None: any. A client may still
    change or drop what it said for the first time just now."""
    fold_from: int = 0
    """Below so many tokens sent, nothing is edited that could be sent as it is."""
    fetched: Mapping[int, Event] = field(default_factory=dict[int, Event])
    """Events that a plan has asked for by `Need`, by their places."""


@dataclass(frozen=True, slots=True)
class Need:
    """Events that a decision needs and the view does not hold."""

    ranges: tuple[Range, ...]
    """Which, both ends included."""


@dataclass(frozen=True, slots=True)
class FoldDraft:
    """Folds over one span, made from what is gathered once."""

    view: View
    span: fold.Span
    material: fold.Material
    why: fold.Why
    budget: Budget
    facts: Facts

    def within(self, cap: int) -> Folded:
        """The fold whose handoff takes at most so many tokens."""
        form, span, told = self.facts.policy.form, self.span, self.facts.prepared
        lines = told.of(self.view.spine, span.range) if told else ()
        material = replace(
            self.material,
            lines=(*self.material.lines, *lines),
            focus=self.facts.focus or self.material.focus,
        )
        by = told.by if told and lines else ""
        if form == "omitted" and self.why == "due":
            left_out = fold.messages(self.view, span)
            handoff = fold.omitted(span.range, left_out, material.pins)
        else:
            handoff = fold.write(span.range, material, cap=cap)
        if form == "acknowledged":
            handoff = fold.acknowledged(handoff)
        ratio, prices = self.budget.ratio, self.facts.prices
        return fold.fold(self.view, span, handoff, ratio=ratio, why=self.why, prices=prices, by=by)


def folding(
    view: View, span: fold.Span, why: fold.Why, *, budget: Budget, facts: Facts
) -> FoldDraft | Need:
    """Folds over a span, once all that they are written from is here."""
    if missing := fold.lacking(view, span, facts.fetched):
        return Need(missing)
    return FoldDraft(view, span, fold.gather(view, span, facts.fetched), why, budget, facts)


def shrinking(made: FoldDraft | Need, cap: int) -> Folded | Need | None:
    """The fold, unless it would not shrink anything."""
    if isinstance(made, Need):
        return made
    event = made.within(cap)
    return event if event.after < event.before else None


def forced(view: View, budget: Budget, facts: Facts) -> Folded | Need | None:
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
    for span in fold.proposals(view, tail=rest - share, folds=share // 2, merging=policy.merging):
        made = folding(view, span, "forced", budget=budget, facts=facts)
        if isinstance(made, Need):
            return made
        # From all that a handoff may take down to its mere frame, until the request fits.
        caps = {share, share // 2, share // 4, min(share, span.tokens // 2), 0}
        for cap in sorted(caps, reverse=True):
            event = made.within(cap)
            after = used - event.before + event.after
            if event.before - event.after < least:
                continue
            if after <= limit:
                return event
            if after < best:
                best, deepest = after, event
    return deepest


def due(view: View, budget: Budget, facts: Facts) -> Folded | Need | None:
    """The fold that a preset's own rule asks for, in the form that its paper gives it."""
    policy = facts.policy
    cuts = rules.cut_points(view, stable=facts.stable)
    if not cuts:
        return None
    if policy.fill is not None:
        cut = fold.within(view, cuts, budget.estimated(policy.fill))
    else:
        cut = fold.keeping(view, policy.tail, stable=facts.stable)
    if cut is None:
        return None
    lo = fold.beginning(view, policy.merging)
    span = next(fold.up_to(view, cut, lo=lo, overlap=policy.overlap), None)
    if span is None or (fold.taken_back(view, span) and not facts.now):
        return None
    most = min(budget.room * policy.handoff, policy.words or budget.room)
    return shrinking(folding(view, span, "due", budget=budget, facts=facts), budget.estimated(most))


def record(view: View, budget: Budget, facts: Facts) -> FoldDraft | Need:
    """All of a view as one fold, to be told elsewhere: it is never appended."""
    end = rules.Cut(len(view.items), view.head + 1)
    span = next(fold.up_to(view, end, lo=fold.beginning(view, "all")))
    return folding(view, span, "due", budget=budget, facts=facts)


def moment(view: View, budget: Budget, facts: Facts) -> fold.Moment | None:
    """The fold that nothing forces but that pays now or soon, where the preset looks for one."""
    rule = facts.policy.priced
    if rule is None:
        return None
    request, prices = budget.estimated(budget.request), facts.prices
    # A narrative is told on the conversation's own prefix, which is read once more for it.
    told = prices.r * request + facts.policy.narrative * prices.output / prices.input
    return fold.worthwhile(
        view,
        replace(
            rule,
            floor=budget.estimated(max(rule.floor, facts.fold_from)),
            gain=budget.estimated(rule.gain),
        ),
        prices=prices,
        cache=facts.cache,
        request=request,
        most=budget.estimated(budget.room * facts.policy.handoff),
        told=told if facts.prepared else 0.0,
        stable=facts.stable,
    )


def ask(view: View, soon: fold.Moment | None, *, budget: Budget, facts: Facts) -> fold.Ask | None:
    """A narrative worth having before the fold that is near: of what no fold has told yet."""
    policy = facts.policy
    cut = fold.keeping(view, policy.tail) if soon is None else None
    hi = soon.span.range.hi if soon else cut.seq - 1 if cut else None
    if not policy.narrative or not policy.folds or facts.prepared or hi is None:
        return None
    lo = fold.beginning(view, "sixth")
    if lo > hi:
        return None
    # No more than a handoff would have room for.
    cap = min(budget.room * policy.handoff, policy.words or budget.room)
    most = int(cap * fold.NARRATIVE)
    return fold.Ask(view.spine, Range(lo, hi), min(policy.narrative, most), facts.focus)
