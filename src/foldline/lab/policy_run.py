"""One of our policies as a contender of a replay.

Knows how a request of ours becomes blocks that a cache sees, and words that a probe reads. Refuses
to ask a model: folds are made without one, or with a narrative by a scripted teller. What was
recorded as counted is replaced by what the same provider would count of the new request.
"""

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from foldline.core.edits import fold
from foldline.core.log import (
    Event,
    Folded,
    ModelSaid,
    ModelSwitched,
    Opened,
    ToolReturned,
    UserSaid,
)
from foldline.core.plan import Facts, Ready
from foldline.core.request import Request
from foldline.core.tokens import count_parts, count_tools
from foldline.lab.bill.cache import Aside
from foldline.lab.fake_summarizer import Teller
from foldline.lab.planned import Planned
from foldline.lab.recorded import Recorded, Scale
from foldline.lab.replay import Offer, ReplayPiece
from foldline.lab.words import words_of


class Ours(Planned):
    """A session under one of our policies."""

    def __init__(self, recorded: Recorded, facts: Facts, *, teller: Teller | None = None) -> None:
        first = recorded.events[0] if recorded.events else None
        opened = first if isinstance(first, Opened) else Opened(recorded.model)
        super().__init__(facts, opened=opened)
        self._scale = recorded.scale
        self._teller = teller
        self._asides: list[Aside] = []

    @property
    def name(self) -> str:
        """The policy's."""
        return self.facts.policy.name

    def take(self, event: Event) -> None:
        """As a session takes it in; an answer was shown what this policy shows now."""
        match event:
            case Opened() | ModelSwitched():
                self.append(event)
            case ModelSaid():
                self.add(msgspec.structs.replace(event, saw=None, native=None))
            case UserSaid() | ToolReturned() if event.clip is not None:
                self.add(msgspec.structs.replace(event, clip=None))  # how to cut is decided anew
            case _:
                self.add(event)

    def offer(self, *, seconds: float, missed: bool) -> Offer | None:
        """Plan a request, and count it as the provider would."""
        cache = "cold" if missed else fold.cached(seconds, self.facts.prices)
        made = self.plan(replace(self.facts, cache=cache))
        if not isinstance(made, Ready):
            return None
        pieces = list(_pieces(made.request, self._scale))
        total = sum(piece.tokens for piece in pieces)
        self.ask(made, counted=lambda _: round(total))
        asides, self._asides = tuple(self._asides), []
        folds = tuple(event for event in made.events if isinstance(event, Folded))
        if folds:
            self.facts = replace(self.facts, prepared=None)
        if made.ask and self._teller:
            told = self._teller.tell(made.ask, self.events)
            self.facts = replace(self.facts, prepared=told)
            self._asides.append(self._teller.aside(told, prefix=total))
        folded = sum(item.state == "folded" for item in made.request.items)
        return Offer(pieces, marks=(1 + folded,), folds=folds, asides=asides)  # as our encoder does


def _pieces(request: Request, scale: Scale) -> Iterator[ReplayPiece]:
    """A request as the cache sees it: what is fixed, then item by item."""
    fixed = count_parts(request.system) + count_tools(request.tools)
    front = ("front", request.system, request.tools)
    size = max(scale.fixed, 0) + fixed * scale.ratio
    yield ReplayPiece(front, size, words_of(request.system))
    short = min(scale.fixed, 0)  # a record that holds more than was sent: taken off its beginning
    for item in request.items:
        key = (item.seq, item.state, item.role, item.tokens)
        yield ReplayPiece(key, max(item.tokens * scale.ratio + short, 0), words_of(item.parts))
        short = 0
