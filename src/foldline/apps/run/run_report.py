"""What a run cost and saved: figures of the sessions that it talked in, and one screen of them.

Dollars are the provider's counts at the catalogue's prices. What sending everything would have cost
is the comparison of `foldline history --over-time`.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from textwrap import wrap

from foldline.core.names import format_count
from foldline.core.prices import PICO, Prices, format_dollars, price_tokens
from foldline.draw.course import Course, CourseStep, explain_oversized, format_tokens
from foldline.session.ledger import PricesOf

_LEAST_READ = 0.5  # of what the call before had sent: with less its cache was gone
_LEAST_COLD = 0.005  # dollars: less is not worth a line
_LEAST_SAVED = 0.00005  # dollars: less is written as nothing


@dataclass(frozen=True, slots=True)
class FoldFigures:
    """One fold: what it took out, what writing it anew cost, and when that is paid back."""

    tokens: int
    cost: float
    """Dollars for what the cache no longer held."""
    saving: float
    """Dollars that each later call is cheaper by."""
    calls: int
    """Calls since, up to the next fold."""

    @property
    def pays_after(self) -> float | None:
        """Calls until it is paid back; None if it never is."""
        return self.cost / self.saving if self.saving > 0 else None

    @property
    def is_paid(self) -> bool:
        """Whether enough calls followed."""
        return self.pays_after is not None and self.calls >= self.pays_after


@dataclass(slots=True)
class RunFigures:
    """A run in figures."""

    sessions: dict[str, int] = field(default_factory=dict[str, int])
    """The input of each session that it talked in, in tokens."""
    calls: int = 0
    input: int = 0
    read: int = 0
    """Of the input: tokens that came from the provider's cache."""
    output: int = 0
    everything: int = 0
    """The input if everything had been sent every time, estimated."""
    oversized: int = 0
    """Calls at which everything would have been larger than the window."""
    pico: int = 0
    """Picodollars for the calls."""
    all_pico: int = 0
    """The same if everything had been sent every time, estimated."""
    estimated: int = 0
    """Calls that no provider counted."""
    unpriced: int = 0
    """Calls of models without a known price."""
    folds: list[FoldFigures] = field(default_factory=list[FoldFigures])
    narratives: int = 0
    """Picodollars for the narratives of folds."""
    cold: float = 0.0
    """Of the dollars: what was paid again because the cache had expired."""
    has_edits: bool = False
    """Whether anything was edited in these sessions, in this run or before it."""
    relayed: int = 0
    """Answered requests that no session has: they were only relayed."""
    refused: int = 0
    """Requests that ended with an error, and that nothing could heal."""
    unplanned: Counter[str] = field(default_factory=Counter[str])
    """Requests without a plan of their own, by the reason."""
    fault: str = ""
    """Why, if the gateway said so."""
    quota: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    """The shares of a subscription's windows that were used up, at the first and last answer."""

    @property
    def dollars(self) -> float:
        """What calls and narratives cost."""
        return (self.pico + self.narratives) / PICO

    @property
    def all_dollars(self) -> float:
        """What the calls would have cost if everything had been sent."""
        return self.all_pico / PICO

    @property
    def main_session(self) -> str | None:
        """The session that most was sent in; agents ask for titles and the like in others."""
        return max(self.sessions, key=lambda name: self.sessions[name], default=None)

    def add_session(
        self, name: str, course: Course, calls: Container[int], *, prices_of: PricesOf
    ) -> None:
        """Add those calls of a session that are this run's, by the places of their answers."""
        steps = course.steps
        if not any(step.at in calls for step in steps):
            return
        self.sessions[name] = sum(step.input for step in steps if step.at in calls)
        self.has_edits = self.has_edits or any(step.taken for step in steps)
        for before, step in pairwise((course.before, *steps)):
            if step is None or step.at not in calls:
                continue
            self.calls += 1
            self.estimated += not step.counted
            self.input += step.input
            self.read += step.read
            self.output += step.output
            self.everything += step.everything
            self.oversized += course.is_oversized(step)
            if step.pico is None or step.all_pico is None:
                self.unpriced += 1
                continue
            self.pico += step.pico
            self.all_pico += step.all_pico
            self.cold += measure_cold_call(before, step, prices_of(step.model))
            gone = sum(one.tokens for one in step.taken if one.how == "fold")
            if gone:
                later = _count_until_fold(steps, step.at)
                self.folds.append(_measure_fold(before, step, gone, later, prices_of(step.model)))

    def add_quota(self, used: Mapping[str, float]) -> None:
        """Add what an answer said of a subscription's windows."""
        for window, share in used.items():
            self.quota[window] = self.quota.get(window, (share, share))[0], share


def _measure_fold(
    before: CourseStep | None, step: CourseStep, gone: int, later: int, prices: Prices
) -> FoldFigures:
    """Measure a fold by the call that follows it: its tokens written anew that are not new."""
    new = step.everything - (before.everything if before else 0)
    again = max(step.input - step.read - max(new, 0), 0)
    saving = price_tokens(prices.at(step.input), read=gone) / PICO
    return FoldFigures(gone, _price_again(step, again, prices), saving, later)


def measure_cold_call(before: CourseStep | None, step: CourseStep, prices: Prices) -> float:
    """Measure how many dollars more a call cost because the cache of the one before was gone.

    0 where an edit or a lowered thinking budget explains it: that is our cost; and where nothing
    had been cached.
    """
    used, last = step.usage, before.usage if before else None
    if before is None or last is None or used is None or step.model != before.model:
        return 0.0
    known = min(before.input, step.input)
    had_cache = before.read or last.cache_write or used.cache_write
    if not had_cache or step.breaks_cache_of(before) or step.read >= _LEAST_READ * known:
        return 0.0
    return _price_again(step, known - step.read, prices)


def _price_again(step: CourseStep, tokens: int, prices: Prices) -> float:
    """Price tokens that a call paid anew, in dollars beyond reading them from the cache."""
    at, paid = prices.at(step.input), step.tokens
    way = "long" if paid.long else "write" if paid.write else "fresh"
    more = price_tokens(at, **{way: tokens}) - price_tokens(at, read=tokens)
    return max(more, 0) / PICO


def _count_until_fold(steps: Sequence[CourseStep], at: int) -> int:
    """Count the calls after a fold, up to the next one."""
    count = 0
    for step in steps:
        if step.at <= at:
            continue
        if any(one.how == "fold" for one in step.taken):
            break
        count += 1
    return count


def render_report(found: RunFigures, *, is_subscription: bool) -> list[str]:
    """Render what a run cost and saved, in a few lines."""
    if not found.calls:
        if not found.relayed:
            seen = "answered" if found.refused else "seen"
            return [f"foldline: no call of a model was {seen}", *_render_failures(found)]
        verb = "was" if found.relayed == 1 else "were"
        return [
            f"foldline: {format_count(found.relayed, 'call')} {verb} relayed, not counted",
            *_wrap_line("because", found.fault),
            *_render_failures(found),
        ]
    share = 100 * found.read / found.input if found.input else 0
    calls = format_count(found.calls, "call")
    sent, out = format_tokens(found.input), format_tokens(found.output)
    lines = [f"foldline: {calls}, {sent} tokens in ({share:.0f}% from the cache), {out} out"]
    has_prices = not is_subscription and found.unpriced < found.calls
    if has_prices:
        lines.append(f"  paid      {format_dollars(found.dollars)}{_note_gaps(found)}")
    if has_prices and found.cold >= _LEAST_COLD:
        cold = format_dollars(found.cold)
        lines.append(f"  cold      {cold} of it was paid again: the cache was lost")
    for window, (first, last) in found.quota.items():
        lines.append(f"  quota     {window}: from {first:.0%} to {last:.0%} used")
    if found.has_edits:
        lines.append(_render_saved(found, has_prices=has_prices))
        lines += _wrap_line("", explain_oversized(found.oversized))
    lines += _render_folds(found, has_prices=has_prices) if found.folds else ()
    if found.relayed:
        lines.append(f"  relayed   {format_count(found.relayed, 'request')}, not in these figures")
        lines += _wrap_line("because", found.fault)
    return [*lines, *_render_failures(found)]


def _render_failures(found: RunFigures) -> Iterable[str]:
    """Say how many requests failed, and how many had no plan."""
    if found.refused:
        yield f"  refused   {format_count(found.refused, 'request')}"
    if found.unplanned:
        reasons = ", ".join(f"{count} {why}" for why, count in found.unplanned.most_common())
        yield f"  unplanned {format_count(found.unplanned.total(), 'request')}: {reasons}"


def _wrap_line(name: str, text: str) -> list[str]:
    """Wrap a line with a name; there is none without a text."""
    return wrap(text, 79, initial_indent=f"  {name:10}", subsequent_indent=" " * 12)


def _render_saved(found: RunFigures, *, has_prices: bool) -> str:
    """Render what it saved to send less than everything; folds of earlier runs still do."""
    if not has_prices:
        less = _percent(found.everything - found.input, found.everything)
        return f"  saved     {less} of {format_tokens(found.everything)} tokens"
    saved = found.all_dollars - found.dollars
    whole = f"sending everything would have cost about {format_dollars(found.all_dollars)}"
    if abs(saved) < _LEAST_SAVED:
        return f"  saved     nothing yet: {whole}"
    return f"  {'saved' if saved > 0 else 'lost '}     {format_dollars(abs(saved))}: {whole}"


def _render_folds(found: RunFigures, *, has_prices: bool) -> Iterable[str]:
    """Render what the folds of this run took out, what they cost, and when that was paid back."""
    folds = found.folds
    gone = format_tokens(sum(one.tokens for one in folds))
    text = f"{format_count(len(folds), 'fold')} took {gone} tokens out"
    if not has_prices:
        yield f"  folds     {text}"
        return
    cost = sum(one.cost for one in folds) + found.narratives / PICO
    yield f"  folds     {text} and cost {format_dollars(cost)}"
    paid = [one for one in folds if one.is_paid]
    # Folds that are not repaid may never be: an average of all would promise what was not seen.
    after = [one.pays_after for one in paid or folds[:1] if one.pays_after is not None]
    when = f"after {format_count(ceil(sum(after) / len(after)), 'call')}" if after else "never"
    if len(folds) > 1:
        average = f", on average {when}" if paid else ""
        yield f"  repaid    {len(paid)} of {len(folds)} folds{average}"
    else:
        yield f"  repaid    {'yes' if paid else 'not yet'}: {when}"


def render_prediction(
    found: RunFigures, predicted: float, policy: str, *, is_subscription: bool
) -> list[str]:
    """Render what folding would have saved in a run that only recorded."""
    if not found.dollars:
        return []
    saved = found.dollars - predicted
    if is_subscription:
        share = _percent(max(saved, 0), found.dollars)
        return [f"  dry       with {policy} it would have been {share} less, at list prices"]
    spared = f"{format_dollars(abs(saved))} {'less' if saved > 0 else 'more'}"
    spared = spared if abs(saved) >= _LEAST_SAVED else "no less"
    return [f"  dry       with {policy} it would have been {format_dollars(predicted)}: {spared}"]


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "0%"


def _note_gaps(found: RunFigures) -> str:
    """Say which calls the sum lacks, or has by an estimate."""
    gaps: list[str] = []
    if found.estimated:
        gaps.append(f"{found.estimated} of {found.calls} calls estimated: no counts came")
    if found.unpriced:
        gaps.append(f"without {format_count(found.unpriced, 'call')} of unknown price")
    return f" ({'; '.join(gaps)})" if gaps else ""
