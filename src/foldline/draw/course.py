"""A session over time, as one value: what each call sent, what edits took, what it cost.

Knows every call of a log, and what it would have been had everything been sent. Refuses to know how
it is drawn, and decides nothing. What a provider counted is told as counted; all else is told as
estimated.

    following = Following(picture(view, facts), priced)   the window and its tiers, as they are now
    following.take(seq, event)                            every event of the log, oldest first
    following.course()  →  course_svg, course_terminal

Sending everything is estimated: the newest instructions and every message whole, in the tokens that
the provider counts. Its bill has the luck of the session's own calls: all that the call before had
sent is read from the cache, but where the session's own cache was cold. So it is the least that
sending everything would have cost, could any window hold it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

from foldline.core.log import (
    Asked,
    Clipped,
    Event,
    Excluded,
    Folded,
    Hiding,
    Instructed,
    Masked,
    ModelSaid,
    ModelSwitched,
    Opened,
    ToolReturned,
    Undone,
    UsageReported,
    UserSaid,
    by_user,
)
from foldline.core.prices import UNKNOWN, Prices
from foldline.core.tokens import MESSAGE, count, count_parts, count_tools
from foldline.draw.picture import Picture

How: TypeAlias = Literal["fold", "mask", "clip"]
HOWS: tuple[How, ...] = ("fold", "mask", "clip")
Priced: TypeAlias = Callable[[str], Prices]
_COLD = 0.5  # of what the call before had sent: less was read though nothing was edited


class TokensTaken(NamedTuple):
    """What an edit took out of sight, in tokens of the estimate."""

    how: How
    at: int
    tokens: int
    items: int
    """Messages of a fold, results of a mask; a clip has one."""


@dataclass(frozen=True, slots=True)
class CourseStep:
    """One call of a model."""

    at: int
    """The place of its answer."""
    turn: int
    """The number of the turn that it belongs to; 0 before anybody spoke."""
    model: str
    input: int
    output: int
    everything: int
    """What its input would have been had everything been sent: estimated."""
    usage: UsageReported | None = None
    """What the provider counted of it."""
    taken: tuple[TokensTaken, ...] = ()
    """What was edited since the call before."""
    dollars: float | None = None
    """None where the model has no known price."""
    all_dollars: float | None = None
    """The same, had everything been sent."""

    @property
    def counted(self) -> bool:
        """Whether its input is the provider's count; else it was believed to be so much."""
        return self.usage is not None and self.usage.input is not None

    @property
    def read(self) -> int:
        """How much of the input was in the cache, as far as that was told."""
        return min((self.usage.cache_read or 0) if self.usage else 0, self.input)


@dataclass(frozen=True, slots=True)
class Course:
    """A session from its first call to its last."""

    now: Picture
    """Where it stands: the model, the window and the tiers that are drawn."""
    steps: tuple[CourseStep, ...]
    turns: int
    later: tuple[TokensTaken, ...] = ()
    """What was edited since the last call: drawn at the end."""
    told: int = 0
    """Folds that a model told: the calls that it was asked by are not in the log."""
    step: int | None = None
    """The input above which every token costs more, where a call, or everything, was above it."""

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
        """The first call that could not have been made with everything."""
        return next((one for one in self.steps if one.everything > self.now.most), None)

    @property
    def counted(self) -> bool:
        """Whether every call's input is the provider's count."""
        return all(step.counted for step in self.steps)

    @property
    def caches(self) -> bool:
        """Whether the provider ever said how much its cache held."""
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
        """What all calls cost, and would have cost with everything; None where a price lacks."""
        paid, whole = 0.0, 0.0
        for step in self.steps:
            if step.dollars is None or step.all_dollars is None:
                return None
            paid, whole = paid + step.dollars, whole + step.all_dollars
        return (paid, whole) if self.steps else None

    def sums(self) -> dict[How, tuple[int, int]]:
        """How many edits of each kind there were, and the tokens that they took."""
        return {
            how: (len(some), sum(one.tokens for one in some))
            for how in HOWS
            for some in [[one for one in self.taken if one.how == how]]
        }


@dataclass(frozen=True, slots=True)
class CourseColumn:
    """Neighbouring calls that are drawn as one."""

    steps: tuple[CourseStep, ...]

    @property
    def largest(self) -> CourseStep:
        """The one that is drawn: a peak is never hidden."""
        return max(self.steps, key=lambda step: step.input)

    @property
    def everything(self) -> int:
        """The most that everything would have taken."""
        return max(step.everything for step in self.steps)

    @property
    def dollars(self) -> float:
        """What they cost together, as far as it is known."""
        return sum(step.dollars or 0.0 for step in self.steps)

    @property
    def all_dollars(self) -> float:
        """The same, had everything been sent."""
        return sum(step.all_dollars or 0.0 for step in self.steps)

    def of(self, how: How) -> tuple[TokensTaken, ...]:
        """What was edited before them, of one kind."""
        return tuple(one for step in self.steps for one in step.taken if one.how == how)


def columns(drawn: Course, most: int) -> tuple[CourseColumn, ...]:
    """All calls in at most so many columns, a call for each where there is room."""
    calls = len(drawn.steps)
    number = min(calls, max(most, 1))
    places = [at * calls // number for at in range(number + 1)] if calls else []
    return tuple(CourseColumn(drawn.steps[lo:hi]) for lo, hi in pairwise(places))


class Following:
    """A log read event by event, however long: only its calls are kept."""

    def __init__(self, now: Picture, priced: Priced) -> None:
        self._now, self._priced = now, priced
        self._steps: list[CourseStep] = []
        self._turns, self._told, self._model = 0, 0, ""
        self._front, self._said = 0, 0  # estimates: what opens every request, all messages whole
        self._sizes: dict[int, int] = {}  # of results in sight: what a mask takes
        self._fixed: int | None = None  # of another agent's requests: what its log does not have
        self._sums = 0, 0  # of our own requests: what was counted, what was estimated
        self._asked: Asked | None = None
        self._open: tuple[int, int] | None = None
        """Estimates of the newest call, while it is not counted: of everything, of the request."""
        self._taken: list[TokensTaken] = []

    def take(self, seq: int, event: Event) -> None:
        """The next event."""
        match event:
            case Opened(model=model) | ModelSwitched(model=model):
                self._model = model
            case Instructed() if not event.aside:
                self._front = count_parts(event.parts) + count_tools(event.tools) + MESSAGE
            case UserSaid() | ToolReturned():
                self._hear(seq, event)
            case Asked():
                self._asked, self._open = event, None
            case ModelSaid():
                self._answer(seq, count_parts(event.parts))
                self._said += count_parts(event.parts) + MESSAGE
            case UsageReported():
                self._report(seq, event)
            case Masked() | Clipped() | Excluded():
                self._mask(seq, event)
            case Folded():
                gone = max(event.before - event.after, 0)
                self._taken.append(TokensTaken("fold", seq, gone, event.messages))
                self._told += bool(event.by)
                self._sizes.clear()
            case Undone():
                self._sizes.clear()
            case _:
                pass

    def course(self) -> Course:
        """What was taken in so far."""
        steps = _paid(self._steps, self._priced)
        largest: dict[str, int] = {}
        for one in steps:
            largest[one.model] = max(largest.get(one.model, 0), one.everything)
        above = [(self._priced(model).step, size) for model, size in largest.items()]
        passed = [step for step, size in above if step is not None and size > step]
        return Course(
            now=self._now,
            steps=steps,
            turns=self._turns,
            later=tuple(self._taken),
            told=self._told,
            step=min(passed, default=None),
        )

    def _hear(self, seq: int, event: UserSaid | ToolReturned) -> None:
        self._turns += by_user(event)
        size = event.clip.whole if event.clip else count_parts(event.parts)
        shown = event.clip.shown if event.clip else size
        if event.clip:
            self._taken.append(TokensTaken("clip", seq, max(size - shown, 0), 1))
        self._said += size + MESSAGE
        self._sizes[seq] = shown

    def _mask(self, seq: int, event: Hiding) -> None:
        gone = sum(max(self._sizes.pop(stub.seq, 0) - count(stub.text), 0) for stub in event.stubs)
        self._taken.append(TokensTaken("mask", seq, gone, len(event.stubs)))

    def _answer(self, seq: int, output: int) -> None:
        """A call came to an answer: what is believed of it until it is counted."""
        asked = self._asked
        whole, estimate = self._front + self._said, asked.estimate if asked else 0
        believed = (asked.tokens or estimate) if asked else 0
        sent = believed or whole + (self._fixed or 0)
        self._steps.append(
            CourseStep(
                at=seq,
                turn=self._turns,
                model=self._model,
                input=sent,
                output=output,
                everything=self._everything(sent, estimate, whole),
                taken=tuple(self._taken),
            )
        )
        self._open, self._asked = (whole, estimate), None
        self._taken.clear()

    def _report(self, seq: int, usage: UsageReported) -> None:
        """A count is of the newest call, unless that one has been counted."""
        if self._open is None:
            self._answer(seq, 0)
        last = self._steps[-1]
        whole, estimate = self._open or (0, 0)
        self._open = None
        if usage.input == 0 and not (usage.output or usage.cache_read or usage.cache_write):
            self._taken[:0] = self._steps.pop().taken  # it broke off before it was a call
            return
        sent = last.input if usage.input is None else usage.input
        if sent and not estimate and self._fixed is None:
            self._fixed = max(sent - whole, 0)
        if estimate and usage.input:
            self._sums = self._sums[0] + usage.input, self._sums[1] + estimate
        self._steps[-1] = replace(
            last,
            usage=usage,
            input=sent,
            output=last.output if usage.output is None else usage.output,
            everything=self._everything(sent, estimate, whole),
        )

    def _everything(self, sent: int, estimate: int, whole: int) -> int:
        """All that was said, in the measure of all counts so far: one count alone would waver."""
        if not estimate:
            return max(sent, whole + (self._fixed or 0))
        counted, estimated = self._sums if self._sums[1] else (sent, estimate)
        return max(sent, round(whole * counted / estimated))


def _paid(steps: Iterable[CourseStep], priced: Priced) -> tuple[CourseStep, ...]:
    """The same calls with what each cost, and would have cost with everything."""
    found, before = list[CourseStep](), None
    known = [*steps]
    cached = any(one.usage and one.usage.cache_read for one in known)
    writes = any(one.usage and one.usage.cache_write for one in known)
    for step in known:
        prices = priced(step.model)
        if prices == UNKNOWN:
            found.append(step)
            before = step
            continue
        wrote = min((step.usage.cache_write or 0) if step.usage else 0, step.input - step.read)
        held = min(before.everything, step.everything) if before and cached else 0
        if before and _cold(step, before):
            held = 0
        rest = step.everything - held if writes else 0
        found.append(
            replace(
                step,
                dollars=_dollars(prices, step.input, step.output, read=step.read, wrote=wrote),
                all_dollars=_dollars(prices, step.everything, step.output, read=held, wrote=rest),
            )
        )
        before = step
    return tuple(found)


def _cold(step: CourseStep, before: CourseStep) -> bool:
    """Whether the cache did not hold what the call before had sent, though it was sent again."""
    edited = any(one.how != "clip" for one in step.taken)
    return step.model != before.model or (
        not edited and step.read < _COLD * min(before.input, step.input)
    )


def _dollars(prices: Prices, sent: int, output: int, *, read: int, wrote: int) -> float:
    at = prices.at(sent)
    fresh = sent - read - wrote
    paid = read * at.read + wrote * at.write + fresh * at.input + output * at.output
    return paid / 1e6
