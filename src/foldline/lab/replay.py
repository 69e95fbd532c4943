"""Replay a recorded session call by call, with a contender deciding what is sent.

The contender gets every event, and offers a request before each recorded answer; the answer is then
the recorded one, whatever was offered. No model is called.
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
from foldline.lab.bill.cache import Aside, CacheBlock, CacheCall, Cause
from foldline.lab.recorded import Recorded


class ReplayPiece(NamedTuple):
    """One message of an offered request; equal keys are equal bytes."""

    key: Hashable
    tokens: float
    """As the record's provider would count it."""
    text: str


@dataclass(frozen=True, slots=True)
class Offer:
    """A request that would be sent now, in order."""

    pieces: Sequence[ReplayPiece]
    front: int = 1
    """How many of the pieces are the system prompt and the tools."""
    marks: tuple[int, ...] = ()
    """After how many pieces there is a cache mark, besides front and end."""
    folds: tuple[Folded, ...] = ()
    """The folds made for this request."""
    asides: tuple[Aside, ...] = ()
    """Calls made beside the conversation before this request, such as summaries."""
    changed: Cause = ""
    """What else changed since the request before, so that its cache is lost."""


class Contender(Protocol):
    """Decides what is sent: one of our policies, the record itself, or a peer."""

    @property
    def name(self) -> str:
        """Its name in tables."""
        ...

    def take(self, event: Event) -> None:
        """Receive an event: a message, a result, an answer, instructions, another model."""
        ...

    def offer(self, *, seconds: float, missed: bool) -> Offer | None:
        """Return the next request, `seconds` after the last call; None if nothing fits.

        `missed`: the record says that the provider's cache was gone.
        """
        ...


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """One call of a replay."""

    sent: CacheCall
    texts: tuple[str, ...]
    """The text of each of its blocks."""
    answer: ModelSaid
    folds: tuple[Folded, ...] = ()


@dataclass(frozen=True, slots=True)
class Replayed:
    """A session under a contender."""

    recorded: Recorded
    policy: str
    steps: list[ReplayStep]
    blocked: int
    """Calls that could not be made to fit."""

    @property
    def folds(self) -> int:
        """How many folds were made."""
        return sum(len(step.folds) for step in self.steps)


def replay_session(recorded: Recorded, contender: Contender) -> Replayed:
    """Replay a session under a contender."""
    counted = {call.at: call for call in recorded.calls}
    steps: list[ReplayStep] = []
    blocked, last = 0, 0.0
    model, asked = recorded.model, ""  # the current model, and the one that was called last
    for at, event in enumerate(recorded.events):
        if isinstance(event, Opened | ModelSwitched):
            model = event.model
        match event:
            case Opened() | ModelSwitched() if at:  # the first one opened the contender's own log
                contender.take(event)
            case ModelSaid():
                call = counted[at]
                # Without a count it was cancelled before it was billed.
                if call.input or (call.is_call and not recorded.counts):
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
                            changed="model" if asked and asked != model else offer.changed,
                        )
                        asked = model
                        texts = tuple(piece.text for piece in offer.pieces)
                        steps.append(ReplayStep(sent, texts, event, offer.folds))
                contender.take(event)
            case UserSaid() | ToolReturned() | Instructed():
                contender.take(event)
            case _:
                pass  # the record's own edits, counts and requests are not this contender's
    return Replayed(recorded, contender.name, steps, blocked)
