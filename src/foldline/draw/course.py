"""A session over time, as one value: what each call sent, what edits took, what it cost.

    following = Following(build_picture(view, facts), priced)   # window and tiers as they are now
    following.apply_event(seq, event)                           # each event, oldest first
    following.build_course()                                    # for course_svg, course_terminal

A provider's count is shown as counted, all else as estimated. Each call is compared with sending
everything: the newest instructions and every message whole, in the provider's tokens. What was sent
is billed there as the provider billed it, what edits kept out of sight as read from the cache,
except where the session's own cache was cold. So both bills are the same until the first edit, and
afterwards it is about the least that sending everything would have cost, if any window held it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, floor, log10
from typing import Literal, NamedTuple, TypeAlias

from foldline.core.log import (
    Asked,
    Checkpointed,
    Clipped,
    Event,
    Excluded,
    Folded,
    Hiding,
    Instructed,
    Masked,
    ModelSaid,
    Opened,
    Rewound,
    ToolReturned,
    Undone,
    UsageReported,
    UserSaid,
    begins_turn,
)
from foldline.core.names import format_count
from foldline.core.prices import PICO, PaidTokens, Prices, format_dollars, split_usage
from foldline.core.spine import FoldAt, Range, Spine
from foldline.core.tokens import MESSAGE, count_parts, count_tokens, count_tools
from foldline.draw.picture import Picture
from foldline.draw.wording import clean_line
from foldline.session.ledger import Charge, Ledger, PricesOf

How: TypeAlias = Literal["fold", "mask", "clip"]

NAMES: dict[How, str] = {"fold": "folds", "mask": "masks", "clip": "clips"}
_CENT = 0.01
_THOUSAND, _MILLION = 1_000, 1_000_000


class TokensTaken(NamedTuple):
    """What an edit took out of sight, in estimated tokens."""

    how: How
    at: int
    tokens: int
    items: int
    """Messages of a fold, results of a mask; 1 for a clip."""


@dataclass(frozen=True, slots=True)
class CourseStep:
    """One call of a model."""

    at: int
    """The seq of its answer."""
    turn: int
    """The number of its turn; 0 before the user's first message."""
    model: str
    input: int
    output: int
    everything: int
    """The estimated input if everything had been sent."""
    usage: UsageReported | None = None
    """The provider's count."""
    taken: tuple[TokensTaken, ...] = ()
    """The edits since the call before."""
    pico: int | None = None
    """Its cost in picodollars; None if the model has no known price."""
    all_pico: int | None = None
    """The cost if everything had been sent."""
    narratives: int = 0
    """Picodollars for the narratives of folds since the call before."""
    lowers_budget: bool = False
    """Whether we lowered its thinking budget."""

    def breaks_cache_of(self, before: "CourseStep") -> bool:
        """Whether we made the provider's cache of the call before useless: no fault of its own."""
        is_edited = any(one.how != "clip" for one in self.taken)
        return is_edited or self.lowers_budget != before.lowers_budget

    @property
    def dollars(self) -> float | None:
        """The cost in dollars."""
        return None if self.pico is None else self.pico / PICO

    @property
    def all_dollars(self) -> float | None:
        """The cost if everything had been sent, in dollars."""
        return None if self.all_pico is None else self.all_pico / PICO

    @property
    def counted(self) -> bool:
        """Whether its input is the provider's count, not an estimate."""
        return self.usage is not None and self.usage.input is not None

    @property
    def tokens(self) -> PaidTokens:
        """Its tokens as they were paid for: reported, or estimated."""
        usage = self.usage or UsageReported()
        return split_usage(usage, tokens_in=self.input, tokens_out=self.output)

    @property
    def read(self) -> int:
        """Input tokens that the provider reported as read from the cache."""
        return self.tokens.read


@dataclass(frozen=True, slots=True)
class Course:
    """A session from its first call to its last."""

    now: Picture
    """The present model, window and tiers."""
    steps: tuple[CourseStep, ...]
    turns: int
    before: CourseStep | None = None
    """The last call before a fork, which another session paid."""
    later: tuple[TokensTaken, ...] = ()
    """The edits since the last call, drawn at the end."""
    later_narratives: int = 0
    """Picodollars for the narratives of folds since the last call."""
    undone: int = 0
    """Edits that were undone later, and not made again."""
    uncounted: int = 0
    """Folds with a model's narrative that was not counted."""
    step: int | None = None
    """The input above which every token costs more, if a call or everything was above it."""

    @property
    def taken(self) -> tuple[TokensTaken, ...]:
        """Every edit, in order."""
        return (*(one for step in self.steps for one in step.taken), *self.later)

    @property
    def peak(self) -> int:
        """The largest request."""
        return max((step.input for step in self.steps), default=0)

    @property
    def outgrown(self) -> CourseStep | None:
        """The first call at which everything would no longer have fitted."""
        return next(filter(self.is_oversized, self.steps), None)

    def is_oversized(self, step: CourseStep) -> bool:
        """Whether everything would have been larger at a call than the window takes."""
        return step.everything > self.now.most

    @property
    def counted(self) -> bool:
        """Whether every call's input is the provider's count."""
        return all(step.counted for step in self.steps)

    @property
    def caches(self) -> bool:
        """Whether the provider ever reported cached reads."""
        return any(step.usage and step.usage.cache_read is not None for step in self.steps)

    @property
    def read(self) -> int:
        """All tokens that were read from the cache."""
        return sum(step.read for step in self.steps)

    @property
    def input(self) -> int:
        """All tokens that were sent."""
        return sum(step.input for step in self.steps)

    @property
    def dollars(self) -> tuple[float, float] | None:
        """What the priced calls cost, and would have cost with everything; None without any."""
        if self.unpriced == len(self.steps):
            return None
        paid = sum((one.pico or 0) + one.narratives for one in self.steps) + self.later_narratives
        return paid / PICO, sum(one.all_pico or 0 for one in self.steps) / PICO

    @property
    def unpriced(self) -> int:
        """Calls of models without a known price."""
        return sum(step.pico is None for step in self.steps)

    def sum_edits(self) -> dict[How, tuple[int, int]]:
        """Return the number of edits of each kind, and the tokens that they took."""
        return {
            how: (len(some), sum(one.tokens for one in some))
            for how in HOWS
            for some in [[one for one in self.taken if one.how == how]]
        }


def describe_course(drawn: Course) -> str:
    """Describe the course in one sentence."""
    if not drawn.steps:
        return "no call of a model yet"
    folds = drawn.sum_edits()["fold"][0]
    fold_count = format_count(folds, "fold") if folds else "no fold"
    window, peak = drawn.now.window, drawn.peak
    bound = "never above" if peak <= window else "up to"
    return (
        f"{format_count(drawn.turns, 'turn')}, {fold_count}: {bound} "
        f"{format_token_ceiling(peak)} of {format_tokens(window)} tokens"
    )


def describe_course_cost(drawn: Course) -> str:
    """Say what it cost, and what sending everything would have cost."""
    if not drawn.steps:
        return ""
    if drawn.dollars is None:
        return "cost not known: a model of this session has no price in the catalogue"
    paid, whole = map(format_dollars, drawn.dollars)
    without = f", without {format_count(drawn.unpriced, 'call')} of unknown price"
    gap = without if drawn.unpriced else ""
    if drawn.dollars[1] - drawn.dollars[0] >= _CENT:
        return f"{paid} instead of about {whole} for sending everything every time{gap}"
    return f"{paid}; sending everything would have cost about {whole}{gap}"


def render_course_subtitle(drawn: Course) -> str:
    """Return the line below the title: model, policy, calls, source of the counts."""
    calls = len(drawn.steps)
    counted = sum(step.counted for step in drawn.steps)
    source = "reported by the provider"
    if counted < calls:
        known = f"reported for {format_count(counted, 'call')}, else estimated"
        source = known if counted else "estimated"
    name = clean_line(drawn.now.model) or "no model yet"
    policy = clean_line(drawn.now.policy)
    return f"{name} · policy {policy} · {format_count(calls, 'call')} · tokens {source}"


def describe_cached_share(drawn: Course) -> str:
    """Say how much was read from the cache."""
    if not drawn.caches:
        return "cache not reported"
    share = 100 * drawn.read / drawn.input if drawn.input else 0.0
    return f"read from the cache, {share:.0f}% of all"


def describe_outgrown_window(drawn: Course) -> str:
    """Say when everything outgrew the window; "" if it still fits."""
    step = drawn.outgrown
    if step is None:
        return ""
    end = drawn.steps[-1].everything
    times = end / drawn.now.window
    return f"full at turn {step.turn:,}; {format_tokens(end)} at the end: {times:.1f} windows"


def explain_oversized(calls: int) -> str:
    """Say that everything could not have been sent at some calls; "" if it always could."""
    if not calls:
        return ""
    count = format_count(calls, "call")
    return f"At {count} everything would not have fitted the window: that sum is a comparison."


def explain_estimates(drawn: Course) -> tuple[str, ...]:
    """Explain the numbers that no provider counted."""
    bill = (
        "What was sent is billed there as it was paid; what edits took out, as read from the "
        "cache, or as new where this session's cache was cold."
    )
    found = ["Everything is estimated: the newest instructions and every message whole."]
    if drawn.dollars is not None:
        found.append(bill)
        found += filter(None, [explain_oversized(sum(map(drawn.is_oversized, drawn.steps)))])
    found.append("Window and tiers are as they are now; what edits took is estimated.")
    if drawn.undone:
        were = "was" if drawn.undone == 1 else "were"
        found.append(f"{format_count(drawn.undone, 'edit')} {were} undone later.")
    if drawn.step is not None:
        found.append(f"Above {drawn.step:,} tokens of input every token of a call costs more.")
    if drawn.now.cost is not None and drawn.now.cost.assumed:
        found.append("The price of cached reads is assumed.")
    if drawn.uncounted:
        folds = format_count(drawn.uncounted, "fold")
        found.append(f"{folds} with a narrative of a model that did not say what asking it took.")
    return tuple(found)


def describe_edits(drawn: Course, how: How) -> str:
    """Say how many edits of one kind there were, and what they took."""
    number, gone = drawn.sum_edits()[how]
    return f"{number:,} took {format_tokens(gone)}" if number else "none"


def format_tokens(number: float) -> str:
    """Format a number of tokens, short: 12k, 1.3M."""
    for unit, size in (("M", _MILLION), ("k", _THOUSAND)):
        if number >= size * (1 if unit == "k" else 0.9995):
            short = f"{number / size:.{1 if unit == 'M' else 0}f}"
            return f"{short}{unit}"
    return f"{number:,.0f}"


def format_token_ceiling(number: int) -> str:
    """Format a number of tokens, rounded up: for "never above"."""
    return (
        format_tokens(ceil(number / _THOUSAND) * _THOUSAND)
        if number >= _THOUSAND
        else f"{number:,}"
    )


def choose_ticks(top: float, most: int) -> list[float]:
    """Choose round numbers from 0 to `top`, at most `most` above 0."""
    if top <= 0 or most < 1:
        return [0.0]
    least = top / most
    size = 10 ** floor(log10(least))
    step = next((size * n for n in (1, 2, 5) if size * n >= least), size * 10)
    return [step * at for at in range(floor(top / step) + 1)]


def money_ticks(top: float, most: int) -> list[tuple[float, str]]:
    """Choose ticks for money, all with the same number of digits."""
    found = choose_ticks(top, most)
    step = found[1] if len(found) > 1 else 1.0
    digits = 0 if step >= 1 else max(2, -floor(log10(step)))
    return [(one, format_dollars(one, digits=digits if one else 0)) for one in found]


HOWS: tuple[How, ...] = ("fold", "mask", "clip")
_COLD = 0.5  # share of the call before: if less was read and nothing edited, the cache was cold


@dataclass(frozen=True, slots=True)
class CourseColumn:
    """Neighbouring calls that are drawn as one column."""

    steps: tuple[CourseStep, ...]

    @property
    def largest(self) -> CourseStep:
        """The call that is drawn: the largest, so that no peak is hidden."""
        return max(self.steps, key=lambda step: step.input)

    @property
    def everything(self) -> int:
        """The largest estimate of everything."""
        return max(step.everything for step in self.steps)

    @property
    def dollars(self) -> float:
        """What they cost together, as far as known."""
        return sum((step.pico or 0) + step.narratives for step in self.steps) / PICO

    @property
    def all_dollars(self) -> float:
        """What they would have cost with everything."""
        return sum(step.all_pico or 0 for step in self.steps) / PICO

    def select_edits(self, how: How) -> tuple[TokensTaken, ...]:
        """Return the edits of one kind before these calls."""
        return tuple(one for step in self.steps for one in step.taken if one.how == how)


def build_course_columns(drawn: Course, most: int) -> tuple[CourseColumn, ...]:
    """Group all calls into at most `most` columns, one call each if there is room."""
    calls = len(drawn.steps)
    number = min(calls, max(most, 1))
    places = [at * calls // number for at in range(number + 1)] if calls else []
    return tuple(CourseColumn(drawn.steps[lo:hi]) for lo, hi in pairwise(places))


class Following:
    """Reads a log event by event; only its calls are kept in memory."""

    def __init__(self, now: Picture, prices_of: PricesOf) -> None:
        self._now, self._prices_of, self._ledger = now, prices_of, Ledger(prices_of)
        self._steps: list[CourseStep] = []
        self._first = 0  # of the steps, the first after a fork
        self._turns, self._uncounted, self._narratives = 0, 0, 0
        self._front, self._said = 0, 0  # estimates: instructions and tools, all messages whole
        self._whole: dict[int, int] = {}  # estimates: every message, also those rewound
        self._kept: set[int] = set()  # the places of those that no client has rewound
        self._folded: dict[int, set[int]] = {}  # and of those that each fold covers
        self._is_edited = False
        self._undone: dict[int, int] = {}  # the edits that are undone, by the place of the undo
        self._sizes: dict[int, int] = {}  # of results in sight: what a mask would take
        self._fixed: int | None = None  # tokens of another agent's requests that its log lacks
        self._grown = 0, 0  # between our own requests: counted tokens, estimated tokens
        self._last: tuple[int, int] | None = None  # the newest request: counted, estimated
        self._asked: Asked | None = None
        self._open: tuple[int, int] | None = None
        """Estimates of the newest call until it is counted: of everything, of the request."""
        self._taken: list[TokensTaken] = []

    def apply_event(self, seq: int, event: Event) -> Charge | None:
        """Add the next event; return what it adds to the bill."""
        charge = self._ledger.apply_event(seq, event)
        match event:
            case Opened():
                self._first, self._uncounted, self._narratives = len(self._steps), 0, 0
                self._taken.clear()
            case Instructed() if not event.aside:
                self._front = count_parts(event.parts) + count_tools(event.tools) + MESSAGE
            case Instructed():
                self._add_message(seq, count_parts(event.parts))
            case UserSaid() | ToolReturned():
                self._record_message(seq, event)
            case Asked():
                self._asked, self._open = event, None
            case ModelSaid():
                self._open = None
                if charge is not None:
                    self._record_call(seq, count_parts(event.parts))
                self._add_message(seq, count_parts(event.parts))
            case UsageReported():
                self._record_usage(seq, event)
            case Masked() | Clipped() | Excluded():
                self._record_mask(seq, event)
            case Folded():
                gone = max(event.before - event.after, 0)
                self._taken.append(TokensTaken("fold", seq, gone, event.messages))
                self._uncounted += bool(event.by) and charge is None
                self._narratives += (charge.amount or 0) if charge else 0
                self._sizes.clear()
                self._folded[seq] = _select_places(self._kept, event.change.span)
                self._is_edited = True
            case Undone(edit=edit):
                self._sizes.clear()
                if self._undone.pop(edit, None) is None:  # else it makes the edit again
                    self._undone[seq] = edit
            case Rewound():
                self._rewind(event.spine)
            case Checkpointed(label="compaction"):
                self._is_edited = True  # by the agent whose log this was
            case _:
                pass
        return charge

    def build_course(self) -> Course:
        """Build the course of the events so far."""
        every = _price_steps(self._steps, self._prices_of)
        steps = every[self._first :]
        largest: dict[str, int] = {}
        for one in steps:
            largest[one.model] = max(largest.get(one.model, 0), one.everything)
        above = [(self._prices_of(model).step, size) for model, size in largest.items()]
        passed = [step for step, size in above if step is not None and size > step]
        return Course(
            now=self._now,
            steps=steps,
            turns=self._turns,
            before=every[self._first - 1] if self._first else None,
            later=tuple(self._taken),
            later_narratives=self._narratives,
            undone=len(self._undone),
            uncounted=self._uncounted,
            step=min(passed, default=None),
        )

    def _record_message(self, seq: int, event: UserSaid | ToolReturned) -> None:
        self._turns += begins_turn(event)
        size = event.clip.whole if event.clip else count_parts(event.parts)
        shown = event.clip.shown if event.clip else size
        if event.clip:
            self._taken.append(TokensTaken("clip", seq, max(size - shown, 0), 1))
            self._is_edited = True
        self._add_message(seq, size)
        self._sizes[seq] = shown

    def _add_message(self, seq: int, size: int) -> None:
        self._whole[seq] = size + MESSAGE
        self._kept.add(seq)
        self._said += size + MESSAGE

    def _rewind(self, spine: Spine) -> None:
        """Keep what a client's history still shows: the rest is not sent by any policy."""
        self._kept = set[int]()
        for segment in spine.segments:
            if isinstance(segment, FoldAt):
                self._kept |= self._folded.get(segment.edit, set())
            else:
                self._kept |= _select_places(self._whole, segment)
        self._said = sum(self._whole[at] for at in self._kept)

    def _record_mask(self, seq: int, event: Hiding) -> None:
        gone = sum(
            max(self._sizes.pop(stub.seq, 0) - count_tokens(stub.text), 0) for stub in event.stubs
        )
        self._taken.append(TokensTaken("mask", seq, gone, len(event.stubs)))
        self._is_edited = True

    def _record_call(self, seq: int, output: int) -> None:
        """Add an answered call, with estimates until it is counted."""
        asked = self._asked
        whole, estimate = self._front + self._said, asked.estimate if asked else 0
        believed = (asked.tokens or estimate) if asked else 0
        sent = believed or whole + (self._fixed or 0)
        self._steps.append(
            CourseStep(
                at=seq,
                turn=self._turns,
                model=self._ledger.model,
                input=sent,
                output=output,
                everything=self._estimate_everything(sent, estimate, whole),
                taken=tuple(self._taken),
                narratives=self._narratives,
                lowers_budget=bool(asked and asked.proxied and asked.proxied.lowers_budget),
            )
        )
        self._open, self._asked, self._narratives = (whole, estimate), None, 0
        self._taken.clear()

    def _record_usage(self, seq: int, usage: UsageReported) -> None:
        """Count the newest call; if that one is counted already, it is a call without words."""
        if self._open is None:
            self._record_call(seq, 0)
        last = self._steps[-1]
        whole, estimate = self._open or (0, 0)
        self._open = None
        if usage.input == 0 and not (usage.output or usage.cache_read or usage.cache_write):
            gone = self._steps.pop()  # it broke off before anything was sent
            self._taken[:0], self._narratives = gone.taken, gone.narratives
            return
        sent = last.input if usage.input is None else usage.input
        if sent and not estimate and self._fixed is None:
            self._fixed = max(sent - whole, 0)
        if estimate and usage.input:
            self._record_growth(usage.input, estimate, edited=bool(last.taken))
        self._steps[-1] = replace(
            last,
            usage=usage,
            input=sent,
            output=last.output if usage.output is None else usage.output,
            everything=self._estimate_everything(sent, estimate, whole),
        )

    def _record_growth(self, counted: int, estimate: int, *, edited: bool) -> None:
        """Learn how many tokens the provider counts for what is added, where nothing was edited."""
        if self._last is not None and not edited and estimate > self._last[1]:
            before, guess = self._last
            more = max(counted - before, 0), estimate - guess
            self._grown = self._grown[0] + more[0], self._grown[1] + more[1]
        self._last = counted, estimate

    def _estimate_everything(self, sent: int, estimate: int, whole: int) -> int:
        if not self._is_edited:
            return sent
        if not estimate:
            return max(sent, whole + (self._fixed or 0))
        counted, estimated = self._grown if self._grown[1] else (sent, estimate)
        return estimate_everything(sent, whole - estimate, ratio=counted / estimated)


def estimate_everything(sent: int, gone: int, *, ratio: float) -> int:
    """Add to what was sent what edits took: its estimate, in tokens as the provider counts.

    `ratio` is how many tokens the provider counts for an estimated one.
    """
    return sent + round(max(gone, 0) * ratio)


def _select_places(places: Iterable[int], span: Range) -> set[int]:
    return {at for at in places if span.lo <= at and (span.hi is None or at <= span.hi)}


def _price_steps(steps: Iterable[CourseStep], prices_of: PricesOf) -> tuple[CourseStep, ...]:
    """Add to each call what it cost, and would have cost with everything."""
    found, before = list[CourseStep](), None
    steps = [*steps]
    cached = any(one.usage and one.usage.cache_read for one in steps)
    writes = any(one.usage and one.usage.cache_write for one in steps)
    for step in steps:
        prices = prices_of(step.model)
        found.append(price_step(step, before, prices, cached=cached, writes=writes))
        before = step
    return tuple(found)


def price_step(
    step: CourseStep, before: CourseStep | None, prices: Prices, *, cached: bool, writes: bool
) -> CourseStep:
    """Add to a call what it cost, and would have cost with everything, after the call `before`.

    `cached` and `writes` say whether the provider reports reads from its cache, and writes.
    """
    if not prices.is_known:
        return step
    whole = _estimate_whole(step, before, cached=cached, writes=writes)
    paid = step.tokens.compute_price(prices)
    return replace(step, pico=paid, all_pico=whole.compute_price(prices))


def _estimate_whole(
    step: CourseStep, before: CourseStep | None, *, cached: bool, writes: bool
) -> PaidTokens:
    """Estimate the tokens of a call that sends everything.

    Whatever the call itself found in the cache is found here too, also what an earlier session had
    left there. A fold breaks the call's own cache, and not that of everything.
    """
    paid, hidden = step.tokens, step.everything - step.input
    is_broken = before is not None and step.breaks_cache_of(before)
    if not (hidden or step.taken or is_broken):
        return paid  # to the token: nothing is out of sight

    def add_tokens(base: PaidTokens, rest: int, read: int) -> PaidTokens:
        """Add tokens that no cache has, in the way the call itself paid, and others from it."""
        way = ("long" if paid.long else "write") if writes else "fresh"
        added = base._replace(read=base.read + read)
        return added._replace(**{way: getattr(base, way) + rest})

    if before is None or step.model != before.model:
        return add_tokens(paid, hidden, 0)
    known = max(before.everything - before.input, 0)
    cached_before = min(before.everything, step.everything) if cached else 0
    whole = add_tokens(
        PaidTokens(output=paid.output), step.everything - cached_before, cached_before
    )
    if is_broken:
        return whole
    warm = cached and not _is_cold(step, before)
    also = min(hidden, known if step.taken else hidden) if warm else 0  # a clip took what is new
    if warm and cached_before > paid.read + also:
        return whole
    return add_tokens(paid, hidden - also, also)


def _is_cold(step: CourseStep, before: CourseStep) -> bool:
    """Whether the cache did not hold what the call before had sent, though it was sent again."""
    return step.model != before.model or (
        not step.breaks_cache_of(before) and step.read < _COLD * min(before.input, step.input)
    )
