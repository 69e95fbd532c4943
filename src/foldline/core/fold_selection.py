"""Select a fold: the one that is forced, the one that the policy asks for, or the one that pays.

`plan` decides which of these to try.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from foldline.core import rules
from foldline.core.budget import Budget, Limits, measure_budget, measure_result_cap
from foldline.core.edits import fold
from foldline.core.log import Event, Folded
from foldline.core.parts import calls_of
from foldline.core.policy import Policy
from foldline.core.prices import UNKNOWN, Prices
from foldline.core.request import Pressure
from foldline.core.spine import Range
from foldline.core.tokens import clamp_ratio
from foldline.core.view import View

_LEAST_GAIN = 0.05  # of room: the least gain of a fold that is not needed to fit
_HYSTERESIS = 0.85  # of the size at which a fold is forced: it must not be forced again at once
_BELOW_HARD = 0.92  # of that size: what a fold must come down to, if any can
_UNKNOWN_MESSAGES = 1_000  # that a model of unknown window may be sent
_NEWEST = 0.5  # of room: the most for a handoff in which the user's newest messages stay whole
_MOST_FILLED = 0.9  # of its share: a handoff below that leaves room for a longer tail


@dataclass(frozen=True, slots=True)
class Facts:
    """What a decision rests on besides the view."""

    limits: Limits
    """The model's window and reserve."""
    policy: Policy
    """When and how to edit."""
    prices: Prices = UNKNOWN
    """What tokens cost, which decides when a fold pays."""
    cache: fold.Cache = "unknown"
    """Whether the provider still caches the last request's prefix, as far as the caller knows."""
    lifetime: float | None = None
    """How many seconds the provider keeps a prompt; None if it does not say."""
    now: bool = False
    """Whether a person asked for a fold now."""
    focus: str = ""
    """What that person wants kept above all, in their words."""
    prepared: fold.Prepared | None = None
    """A verified narrative."""
    stable: int | None = None
    """The last event that a fold may cover unless it is forced; None: any. A client may still
    change or drop what it just said for the first time."""
    fold_from: int = 0
    """Requests below this many tokens are not edited if they fit as they are."""
    recall: bool = False
    """Whether the caller offers a tool that gives back what was cut, from the first edit on."""
    binds_thinking: bool = False
    """Whether the model binds its signed thinking to the words before it: then an edit before a
    thought leaves that out."""
    fetched: Mapping[int, Event] = field(default_factory=dict[int, Event])
    """Events that a plan asked for with `Need`, by their places."""


@dataclass(frozen=True, slots=True)
class Need:
    """Events that a decision needs and the view does not hold."""

    ranges: tuple[Range, ...]
    """Both ends included."""


@dataclass(frozen=True, slots=True)
class FoldDraft:
    """A span with its gathered material, from which folds of several sizes can be built."""

    view: View
    span: fold.Span
    material: fold.Material
    why: fold.Why
    budget: Budget
    facts: Facts

    def choose_cap(self, most: int) -> int:
        """Choose the most tokens of the handoff: no less than newest messages need that stay."""
        newest = self.budget.convert_to_estimate(self.facts.policy.newest)
        if not newest:
            return most
        needed = fold.count_newest_words(self.material, newest)
        return max(most, min(needed, self.budget.convert_to_estimate(self.budget.room * _NEWEST)))

    def build_fold(self, cap: int) -> Folded:
        """Build the fold with a handoff of at most `cap` tokens."""
        form, span, narrative = self.facts.policy.form, self.span, self.facts.prepared
        lines = narrative.select_lines(self.view.spine, span.range) if narrative else ()
        material = replace(
            self.material,
            lines=(*self.material.lines, *lines),
            focus=self.facts.focus or self.material.focus,
            newest=self.budget.convert_to_estimate(self.facts.policy.newest),
        )
        by, used = (narrative.by, narrative.used) if narrative and lines else ("", None)
        if form == "omitted" and self.why == "due":
            left_out = fold.count_span_messages(self.view, span)
            handoff = fold.build_omission_notice(
                span.range, left_out, material.pins, recall=bool(material.recall)
            )
        else:
            handoff = fold.build_handoff(span.range, material, cap=cap)
        behind = self.view.items[self.view.items.index(span.items[-1]) + 1 :]
        # Not before a call: the provider would take both answers for one, that begins with words.
        if form == "acknowledged" and not (behind and any(calls_of(behind[0].parts))):
            handoff = fold.add_acknowledgement(handoff)
        ratio, prices = clamp_ratio(self.budget.ratio), self.facts.prices
        return fold.fold_span(
            self.view, span, handoff, ratio=ratio, why=self.why, prices=prices, by=by, used=used
        )


def build_fold_draft(
    view: View, span: fold.Span, why: fold.Why, *, budget: Budget, facts: Facts
) -> FoldDraft | Need:
    """Gather a span's material; `Need` where events of it are still to be fetched."""
    if missing := fold.list_events_to_fetch(view, span, facts.fetched):
        return Need(missing)
    material = fold.gather_material(view, span, facts.fetched)
    return FoldDraft(view, span, material, why, budget, facts)


def build_shrinking_fold(made: FoldDraft | Need, cap: int) -> Folded | Need | None:
    """Build the fold; None if it would not shrink anything."""
    if isinstance(made, Need):
        return made
    event = made.build_fold(cap)
    return event if event.after < event.before else None


def compute_tiers(budget: Budget, policy: Policy) -> dict[Pressure, int]:
    """Compute the conversation tokens at which each pressure begins, hardest first.

    Warn and soft begin at their numbers, hard above it. Where a person starts folds, hard is what
    cannot be sent; so it is where a user's threshold lies above the policy's own number.
    """
    hard = budget.compute_tier(policy.hard, of=policy.of)
    tiers: dict[Pressure, int] = {"hard": hard if policy.start == "auto" else budget.room}
    if policy.soft is not None:
        of = policy.soft_of or policy.of
        tiers["soft"] = budget.compute_tier(policy.soft, of=of, tokens=policy.soft_tokens)
        if policy.delays and tiers["soft"] >= tiers["hard"]:
            tiers["hard"] = budget.room
    tiers["warn"] = budget.compute_tier(policy.warn, of=policy.of)
    return tiers


def count_most_messages(limits: Limits, policy: Policy) -> int:
    """Count the messages above which a fold is forced, to bound memory and time."""
    if limits.source == "default":
        return _UNKNOWN_MESSAGES
    crowd = policy.crowd
    return limits.count_messages(each=crowd.tokens, least=crowd.least, most=crowd.most)


def find_forced_fold(
    view: View, budget: Budget, facts: Facts, *, unanswered: bool = False
) -> Folded | Need | None:
    """Find the gentlest fold that brings the view well below `hard`, else the deepest that fits.

    None where no fold shrinks the view enough to fit in room. What nobody has answered is folded
    only if `unanswered` is set, all but the newest message.
    """
    if not facts.policy.folds:
        return None
    limit = budget.convert_to_estimate(compute_tiers(budget, facts.policy)["hard"])
    used = view.tokens + sum(item.tokens for item in view.waiting)
    most = count_most_messages(budget.limits, facts.policy)
    fits = budget.used <= budget.room and len(view.items) <= most
    # While everything still fits, a tiny gain is not worth a rewritten prefix.
    least_gain = budget.convert_to_estimate(budget.room * _LEAST_GAIN) if fits else 1
    smallest, deepest = min(used, budget.convert_to_estimate(budget.room) + 1), None
    for event in _iterate_forced_folds(view, budget, facts, limit=limit, unanswered=unanswered):
        if isinstance(event, Need):
            return event
        gain = event.before - event.after
        if gain < least_gain:
            continue
        if used - gain <= limit * _BELOW_HARD and is_enough(view, event, facts.limits):
            return event
        if used - gain < smallest:
            smallest, deepest = used - gain, event
    return deepest


def is_enough(view: View, event: Folded, limits: Limits) -> bool:
    """Whether a fold makes the request fit by the count that decides, not by the estimate."""
    work = view.copy()
    work.append(work.head + 1, event)
    budget = measure_budget(work, limits)
    return budget.used <= budget.room


def _iterate_forced_folds(
    view: View, budget: Budget, facts: Facts, *, limit: int, unanswered: bool
) -> Iterator[Folded | Need]:
    """Yield folds, gentlest first: span by span, each from a full handoff down to its frame."""
    policy = facts.policy
    share = budget.convert_to_estimate(budget.room * policy.handoff)
    rest = min(budget.convert_to_estimate(budget.room * policy.rest), int(limit * _HYSTERESIS))
    spans = fold.iterate_fold_spans(
        view,
        tail=rest - share,
        folds=share // 2,
        merging=policy.merging,
        unanswered=unanswered,
    )
    why = "forced" if policy.start == "auto" else "full"
    for number, span in enumerate(spans):
        draft = build_fold_draft(view, span, why, budget=budget, facts=facts)
        if isinstance(draft, Need):
            yield draft
            return
        share = draft.choose_cap(share)
        if number == 0:
            most = int(limit * _BELOW_HARD)
            yield from _build_with_longer_tail(draft, rest=rest, share=share, most=most)
        yield draft.build_fold(share)
        caps = {share // 2, share // 4, min(share - 1, span.tokens // 2), 0}
        yield from (draft.build_fold(cap) for cap in sorted(caps, reverse=True))


def _build_with_longer_tail(
    draft: FoldDraft, *, rest: int, share: int, most: int
) -> Iterator[Folded | Need]:
    """Build the fold with the tail that fits beside a handoff that is smaller than its share.

    The span is the same whether a narrative is ready or not: a narrative takes what is left up to
    `most` tokens of the whole request.
    """
    view, facts, old = draft.view, draft.facts, draft.span
    event = replace(draft, facts=replace(facts, prepared=None)).build_fold(share)
    cuts = [cut for cut in rules.cut_points(view) if cut.seq <= (old.range.hi or 0)]
    if event.after >= share * _MOST_FILLED or not cuts:
        return
    beside = event.after + fold.count_tokens_before(view, old)
    cut = fold.choose_cut_within(view, cuts, rest - beside)
    cap = min(share, event.after + most - rest)
    for span in fold.up_to(view, cut, lo=old.range.lo):
        longer = build_fold_draft(view, span, draft.why, budget=draft.budget, facts=facts)
        yield longer if isinstance(longer, Need) else longer.build_fold(cap)


def find_due_fold(view: View, budget: Budget, facts: Facts) -> Folded | Need | None:
    """Find the fold that the policy's own rule asks for."""
    policy = facts.policy
    cuts = rules.cut_points(view, stable=facts.stable)
    if not cuts:
        return None
    if policy.fill is not None:
        cut = fold.choose_cut_within(view, cuts, budget.convert_to_estimate(policy.fill))
    else:
        cut = fold.find_cut_before_tail(view, policy.tail, stable=facts.stable)
    if cut is None:
        return None
    lo = fold.choose_fold_start(view, policy.merging)
    span = next(fold.up_to(view, cut, lo=lo, overlap=policy.overlap), None)
    if span is None or (fold.taken_back(view, span) and not facts.now):
        return None
    draft = build_fold_draft(view, span, "due", budget=budget, facts=facts)
    most = budget.convert_to_estimate(min(budget.room * policy.handoff, policy.words or inf))
    most = draft.choose_cap(most) if isinstance(draft, FoldDraft) else most
    # Who asks for a fold wants room: where a full handoff gains nothing, a smaller one does.
    return build_shrinking_fold(draft, most) or build_shrinking_fold(draft, span.tokens * 2 // 3)


def build_whole_draft(view: View, budget: Budget, facts: Facts) -> FoldDraft | Need:
    """Draft one fold over a whole view, for a handoff elsewhere: it is never appended."""
    end = rules.Cut(len(view.items), view.head + 1)
    span = next(fold.up_to(view, end, lo=fold.choose_fold_start(view, "all")))
    return build_fold_draft(view, span, "due", budget=budget, facts=facts)


def find_paying_fold(
    view: View, budget: Budget, facts: Facts
) -> tuple[Folded | Need | None, fold.Moment | None]:
    """Find the fold that pays now, by the handoff as it is built; else the one that pays soon."""
    soon = _find_fold_moment(view, budget, facts)
    if soon is None or not soon.ripe:
        return None, soon
    draft = build_fold_draft(view, soon.span, soon.why, budget=budget, facts=facts)
    edit = build_shrinking_fold(draft, soon.cap)
    if isinstance(edit, Folded):
        built = _find_fold_moment(view, budget, facts, handoff=edit.after)
        if built is None or not built.ripe:
            return None, replace(soon, ripe=False)
    return edit, soon if edit is None else None


def measure_fold_floor(view: View, limits: Limits, facts: Facts) -> int:
    """Measure the fewest tokens of a request that is folded although it fits."""
    rule = facts.policy.priced
    floor = min(rule.floor, limits.window // 2) if rule else 0
    return max(floor // 2 if view.list_folds() else floor, facts.fold_from)


def explain_folding(view: View, facts: Facts) -> str:
    """Explain from where on `plan` folds what fits, why, and up to where results are whole."""
    policy, limits, budget = facts.policy, facts.limits, measure_budget(view, facts.limits)
    tiers, fixed = compute_tiers(budget, policy), budget.system + budget.tools
    ending = {"auto": "at the end of a turn", "ask": "with your consent"}.get(policy.start)
    starts: dict[str, int] = {}
    if policy.priced and not facts.prices.free:
        why = "when reading them again would cost more than a fold"
        delay = fixed + tiers["soft"] if policy.delays else 0
        starts[why] = max(measure_fold_floor(view, limits, facts), delay)
    if ending and policy.turns is not None:
        starts[f"after {policy.turns} turns"] = facts.fold_from
    if ending and (dues := [one for one in (tiers.get("soft"), policy.fill) if one is not None]):
        starts[ending] = max(fixed + min(dues), facts.fold_from)
    early = {why: at for why, at in starts.items() if at < fixed + tiers["hard"]}
    least = min(early.values(), default=0)
    whys = [why if at == least else f"{why} above {at:,} tokens" for why, at in early.items()]
    folded = f"old messages are folded {' or '.join(whys) or 'when the window is full'}"
    window = f"{'an assumed ' if limits.source == 'default' else ''}{limits.window:,}"
    if least:
        rule = f"Nothing is folded below {least:,} tokens (of {window}); beyond, {folded}."
    else:
        rule = f"In a window of {window} tokens, {folded if policy.folds else 'nothing is folded'}."
    clip, whole = policy.clip, f"{measure_result_cap(budget, policy.clip.tokens):,} tokens"
    most = f"{clip.lines.bytes:,} bytes" if clip.how == "lines" else whole
    return f"{rule} Results are whole up to {most}. `policy` and `window` change this."


def _find_fold_moment(
    view: View, budget: Budget, facts: Facts, *, handoff: int | None = None
) -> fold.Moment | None:
    """Find the fold that pays now or soon, if the policy looks for one."""
    rule = facts.policy.priced
    if rule is None or facts.prices.free:
        return None
    request, prices = budget.convert_to_estimate(budget.request), facts.prices
    # A narrative is written behind the conversation's own prefix, which is read once more for it.
    narrative = prices.r * request + facts.policy.narrative * prices.output / prices.input
    return fold.find_paying_fold(
        view,
        replace(
            rule,
            floor=budget.convert_to_estimate(measure_fold_floor(view, budget.limits, facts)),
            gain=budget.convert_to_estimate(rule.gain),
        ),
        prices=prices,
        cache=facts.cache,
        request=request,
        most=budget.convert_to_estimate(budget.room * rule.handoff),
        narrative=narrative if facts.prepared else 0.0,
        stable=facts.stable,
        handoff=handoff,
    )


def _find_next_cut(view: View, budget: Budget, facts: Facts) -> rules.Cut | None:
    """Find where the next fold that only the window asks for will end, or a little before."""
    if facts.policy.priced is None or facts.now:
        return fold.find_cut_before_tail(view, facts.policy.tail)
    cuts = rules.cut_points(view)
    tail = budget.room * (facts.policy.rest - facts.policy.handoff / 2)
    return fold.choose_cut_within(view, cuts, budget.convert_to_estimate(tail)) if cuts else None


def plan_narrative(
    view: View, soon: fold.Moment | None, *, budget: Budget, facts: Facts
) -> fold.Ask | None:
    """Plan the narrative for the next fold, of what no fold has summarised yet."""
    policy = facts.policy
    cut = _find_next_cut(view, budget, facts) if soon is None else None
    hi = soon.span.range.hi if soon else cut.seq - 1 if cut else None
    if not policy.narrative or not policy.folds or facts.prepared or hi is None:
        return None
    lo = fold.choose_fold_start(view, "sixth")
    if lo > hi:
        return None
    handoff = min(budget.room * policy.handoff, policy.words or budget.room)
    tokens = min(policy.narrative, int(handoff * fold.NARRATIVE))
    return fold.Ask(view.spine, Range(lo, hi), tokens, facts.focus)
