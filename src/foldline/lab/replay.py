"""A recorded session once more, call by call, through a policy.

Knows the order of a session: what arrives is admitted, before each recorded answer a request is
planned, and the answer is the recorded one. Refuses to ask a model: folds are made without one.
What was recorded as counted is replaced by what the same provider would count of the new request.
"""

from dataclasses import dataclass, replace

import msgspec

from foldline.core.edits import fold
from foldline.core.log import (
    Folded,
    Instructed,
    ModelSaid,
    ModelSwitched,
    Opened,
    ToolReturned,
    UserSaid,
)
from foldline.core.plan import Facts, Ready
from foldline.core.request import Request
from foldline.core.tokens import count_parts, count_tools
from foldline.lab.cache import Block, Sent
from foldline.lab.planned import Planned
from foldline.lab.recorded import Recorded, Scale


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
            case Opened() | ModelSwitched() if at:  # the first one opened the run
                run.append(event)
            case ModelSaid():
                call = counted[at]
                if recorded.counts and not call.input:
                    run.answer(event)  # broken off before anything was counted or billed
                else:
                    run.call(event, time=call.time, output=call.output, missed=call.missed)
            case UserSaid() | ToolReturned() | Instructed():
                run.add(event)
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


class _Run(Planned):
    """The session's calls, each planned, billed, and answered as it was recorded."""

    def __init__(self, recorded: Recorded, facts: Facts) -> None:
        first = recorded.events[0] if recorded.events else None
        opened = first if isinstance(first, Opened) else Opened(recorded.model)
        super().__init__(facts, opened=opened)
        self.steps: list[Step] = []
        self.blocked = 0
        self._scale = recorded.scale
        self._asked = 0.0

    def call(self, answer: ModelSaid, *, time: float, output: int, missed: bool) -> None:
        """Plan a request, bill it, and take in the recorded answer."""
        gap = time - self._asked if time and self._asked else 0.0
        cache = "cold" if missed else fold.cached(gap, self.facts.prices)
        made = self.plan(replace(self.facts, cache=cache))
        if isinstance(made, Ready):
            at = self.view.head + len(made.events)
            blocks = _blocks(made.request, self._scale)
            sent = Sent(at, time, blocks, output, front=1, missed=missed)
            folds = tuple(event for event in made.events if isinstance(event, Folded))
            self.steps.append(Step(sent, made.request, answer, folds))
            self.ask(made, counted=lambda _: round(sum(block.tokens for block in blocks)))
        else:
            self.blocked += 1
        self._asked = time or self._asked
        self.answer(answer)

    def answer(self, answer: ModelSaid) -> None:
        """Take in the recorded answer: it was shown what this policy shows now."""
        self.add(msgspec.structs.replace(answer, saw=None, native=None))


def _blocks(request: Request, scale: Scale) -> list[Block]:
    """A request as the cache sees it: what is fixed, then item by item."""
    fixed = count_parts(request.system) + count_tools(request.tools)
    front = Block(
        ("front", request.system, request.tools), max(scale.fixed, 0) + fixed * scale.ratio
    )
    items = (
        Block((item.seq, item.state, item.role, item.tokens), item.tokens * scale.ratio)
        for item in request.items
    )
    return [front, *items]
