"""A recorded session once more, call by call, through a policy.

Knows the order of a session: what arrives is admitted, before each recorded answer a request is
planned, and the answer is the recorded one. Refuses to ask a model: folds are made without one.
What was recorded as counted is replaced by what the same provider would count of the new request.
"""

from dataclasses import dataclass, replace

import msgspec

from foldline.core.log import (
    Asked,
    Event,
    Folded,
    Instructed,
    ModelSaid,
    ModelSwitched,
    Opened,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.plan import Blocked, Facts, Need, Ready, admit, plan
from foldline.core.request import Request
from foldline.core.spine import Range, Spine
from foldline.core.tokens import count_parts, count_tools
from foldline.core.view import View, load
from foldline.lab.cache import Block, Sent
from foldline.lab.recorded import Recorded, Scale

_KEPT = 300  # seconds after which the session takes the cache for cold


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a replay."""

    sent: Sent
    request: Request
    answer: ModelSaid
    folded: tuple[Folded, ...]


@dataclass(frozen=True, slots=True)
class Replayed:
    """A session under a policy."""

    recorded: Recorded
    policy: str
    steps: list[Step]
    blocked: int
    """Calls that could not be made to fit."""

    @property
    def folds(self) -> int:
        """How often it folded."""
        return sum(len(step.folded) for step in self.steps)


def replay(recorded: Recorded, facts: Facts) -> Replayed:
    """A session under a policy, from its events alone."""
    run = _Run(recorded, facts)
    counted = {call.at: call for call in recorded.calls}
    for at, event in enumerate(recorded.events):
        match event:
            case Opened() | ModelSwitched():
                run.append(event)
            case ModelSaid():
                call = counted[at]
                if recorded.counts and not call.input:
                    run.answer(event)  # broken off before anything was counted or billed
                else:
                    run.ask(event, time=call.time, output=call.output, missed=call.missed)
            case UserSaid() | ToolReturned() | Instructed():
                run.take(event)
            case _:
                pass  # edits, counts and requests of that time are not this policy's
    return Replayed(recorded, facts.policy.name, run.steps, run.blocked)


def as_recorded(recorded: Recorded) -> list[Sent]:
    """The calls as they were made, from the events alone: with the record's own compactions."""
    scale = recorded.scale
    front = Block("front", max(scale.fixed, 0))
    short = min(scale.fixed, 0)  # a record that holds more than was sent: taken off its beginning
    sent: list[Sent] = []
    for call in recorded.calls:
        if recorded.counts and not call.input:
            continue  # broken off before anything was counted or billed
        blocks = [Block(at, tokens * scale.ratio) for at, tokens in call.messages]
        first = blocks[0] if blocks else front
        opening = Block(first.key, max(first.tokens + short, 0)) if blocks else front
        whole = [front, opening, *blocks[1:]]
        sent.append(Sent(call.at, call.time, whole, call.output, front=1, missed=call.missed))
    return sent


class _Run:
    """A log that grows under one policy."""

    def __init__(self, recorded: Recorded, facts: Facts) -> None:
        self.facts = facts
        self.steps: list[Step] = []
        self.blocked = 0
        self._scale = recorded.scale
        self._log: dict[int, Event] = {}
        self._view: View = load(Spine(), {}, head=-1)
        self._asked = 0.0

    def append(self, *events: Event) -> None:
        """Into the log and the view, as they are."""
        for event in events:
            self._log[self._view.head + 1] = event
            self._view.append(self._view.head + 1, event)

    def take(self, event: Event) -> None:
        """As a session takes it in: clipped where it is too large."""
        self.append(*admit(self._view, event, self.facts))

    def ask(self, answer: ModelSaid, *, time: float, output: int, missed: bool) -> None:
        """Plan a request, bill it, and take in the recorded answer."""
        cold = bool(time and self._asked and time - self._asked > _KEPT)
        made = self._plan(replace(self.facts, cache="cold" if cold or missed else "warm"))
        if isinstance(made, Blocked):
            self.blocked += 1
        else:
            self._send(made, answer, time=time, output=output, missed=missed)
        self._asked = time or self._asked
        self.answer(answer)

    def answer(self, answer: ModelSaid) -> None:
        """Take in the recorded answer: it was shown what this policy shows now."""
        self.take(msgspec.structs.replace(answer, saw=None, native=None))

    def _plan(self, facts: Facts) -> Ready | Blocked:
        while True:
            made = plan(self._view, facts)
            if not isinstance(made, Need):
                return made
            needed = {n: self._log[n] for span in made.ranges for n in _places(span)}
            facts = replace(facts, fetched={**facts.fetched, **needed})

    def _send(
        self, made: Ready, answer: ModelSaid, *, time: float, output: int, missed: bool
    ) -> None:
        request, report = made.request, made.report
        at = self._view.head + len(made.events)
        self.append(*made.events)
        asked = Asked(at, "", "", 0, tokens=report.total, estimate=report.estimate)
        self.append(asked)
        blocks, front = _blocks(request, self._scale)
        sent = Sent(at, time, blocks, output, front=front, missed=missed)
        folds = tuple(event for event in made.events if isinstance(event, Folded))
        self.steps.append(Step(sent, request, answer, folds))
        self.append(UsageReported(input=round(sum(block.tokens for block in blocks))))


def _blocks(request: Request, scale: Scale) -> tuple[list[Block], int]:
    """A request as the cache sees it: what is fixed, then item by item."""
    fixed = count_parts(request.system) + count_tools(request.tools)
    front = Block(
        ("front", request.system, request.tools), max(scale.fixed, 0) + fixed * scale.ratio
    )
    items = (
        Block((item.seq, item.state, item.role, item.tokens), item.tokens * scale.ratio)
        for item in request.items
    )
    return [front, *items], 1


def _places(span: Range) -> range:
    return range(span.lo, (span.lo if span.hi is None else span.hi) + 1)
