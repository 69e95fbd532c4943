"""A recorded session once more, call by call, with somebody else deciding what is sent.

Knows the order of a session: what arrives is taken in, before each recorded answer a request is
offered, and the answer is the recorded one. Refuses to ask a model, and to know who decides: one of
our policies, or a peer.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from foldline.core.log import (
    Event,
    Folded,
    Instructed,
    ModelSaid,
    ModelSwitched,
    Opened,
    ToolReturned,
    UserSaid,
)
from foldline.lab.bill.cache import Aside, CacheBlock, CacheCall
from foldline.lab.recorded import Recorded


class ReplayPiece(NamedTuple):
    """One message of an offered request; equal keys are equal bytes."""

    key: Hashable
    tokens: float
    """As the provider of the record would count it."""
    text: str


@dataclass(frozen=True, slots=True)
class Offer:
    """A request: what would be sent now, in order."""

    pieces: Sequence[ReplayPiece]
    front: int = 1
    """How many of the pieces are the system's words and the tools."""
    marks: tuple[int, ...] = ()
    """Behind how many of the pieces a cache is asked to keep the prefix, besides front and end."""
    folds: tuple[Folded, ...] = ()
    """Made for this very request."""
    asides: tuple[Aside, ...] = ()
    """Calls that were made beside the conversation, before this request: summaries."""


class Contender(Protocol):
    """Whoever decides what is sent."""

    @property
    def name(self) -> str:
        """What tables call it."""
        ...

    def take(self, event: Event) -> None:
        """Something happened: a message, a result, an answer, new instructions, another model."""
        ...

    def offer(self, *, seconds: float, missed: bool) -> Offer | None:
        """What is sent so long after the last call; nothing, where nothing can be made to fit.

        `missed`: the record says that the provider's cache was gone.
        """
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a replay."""

    sent: CacheCall
    texts: tuple[str, ...]
    """What each block of it says."""
    answer: ModelSaid
    folds: tuple[Folded, ...] = ()


@dataclass(frozen=True, slots=True)
class Replayed:
    """A session under a contender."""

    recorded: Recorded
    policy: str
    steps: list[Step]
    blocked: int
    """Calls that could not be made to fit."""

    @property
    def folds(self) -> int:
        """How often it folded."""
        return sum(len(step.folds) for step in self.steps)


def replay(recorded: Recorded, contender: Contender) -> Replayed:
    """A session under a contender, from its events alone."""
    counted = {call.at: call for call in recorded.calls}
    steps: list[Step] = []
    blocked, last = 0, 0.0
    model, asked = recorded.model, ""  # the one in force, and the one that was called last
    for at, event in enumerate(recorded.events):
        if isinstance(event, Opened | ModelSwitched):
            model = event.model
        match event:
            case Opened() | ModelSwitched() if at:  # the first one opened the contender's own log
                contender.take(event)
            case ModelSaid():
                call = counted[at]
                if not recorded.counts or call.input:  # else broken off before it was billed
                    gap = call.time - last if call.time and last else 0.0
                    offer = contender.offer(seconds=gap, missed=call.missed)
                    blocked += offer is None
                    last = call.time or last
                    if offer is not None:
                        blocks = [CacheBlock(piece.key, piece.tokens) for piece in offer.pieces]
                        sent = CacheCall(
                            at=at,
                            time=call.time,
                            blocks=blocks,
                            output=call.output,
                            front=offer.front,
                            missed=call.missed,
                            asides=offer.asides,
                            marks=offer.marks,
                            changed="model" if asked and asked != model else "",
                        )
                        asked = model
                        texts = tuple(piece.text for piece in offer.pieces)
                        steps.append(Step(sent, texts, event, offer.folds))
                contender.take(event)
            case UserSaid() | ToolReturned() | Instructed():
                contender.take(event)
            case _:
                pass  # edits, counts and requests of that time are not this contender's
    return Replayed(recorded, contender.name, steps, blocked)
