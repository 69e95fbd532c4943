"""The record itself as a contender of a replay: what was sent then, its own compactions included.

Knows how recorded messages become blocks that a cache sees. Refuses to decide anything.
"""

from collections.abc import Sequence

from foldline.core.log import (
    Checkpointed,
    Event,
    Folded,
    Instructed,
    ModelSaid,
    ToolReturned,
    UserSaid,
    shown,
)
from foldline.core.spine import Change, Range, Spine
from foldline.lab.bill.cache import CacheCall
from foldline.lab.recorded import Recorded
from foldline.lab.replay import Offer, ReplayPiece, replay
from foldline.lab.words import words_of

RECORDED = "as recorded"


def as_recorded(recorded: Recorded) -> list[CacheCall]:
    """The calls as they were made, from the events alone."""
    return [step.sent for step in replay(recorded, AsRecorded(recorded)).steps]


class AsRecorded:
    """The record itself as a contender: what was sent then, its own compactions included."""

    name = RECORDED

    def __init__(self, recorded: Recorded) -> None:
        self._events = recorded.events
        self._scale = recorded.scale
        billed = (one for one in recorded.calls if one.input or not recorded.counts)
        self._calls = iter(list(billed))
        self._last: tuple[tuple[int, int], ...] = ()
        self._texts: dict[int, str] = {}

    def take(self, event: Event) -> None:
        """It knows already what will come."""

    def offer(self, *, seconds: float, missed: bool) -> Offer:
        """The next request of the record."""
        del seconds, missed
        scale, call = self._scale, next(self._calls)
        short = min(scale.fixed, 0.0)  # a record that holds more than was sent: off its beginning
        pieces = [ReplayPiece("front", max(scale.fixed, 0.0), "")]
        for at, tokens in call.messages:
            pieces.append(ReplayPiece(at, max(tokens * scale.ratio + short, 0.0), self._text(at)))
            short = 0.0
        told = bool(call.messages) and isinstance(self._events[call.messages[0][0]], Instructed)
        folds, self._last = self._compactions(call.messages), call.messages
        return Offer(pieces, front=1 + told, folds=folds)

    def _text(self, at: int) -> str:
        if at not in self._texts:  # each is sent many times
            self._texts[at] = self._words(self._events[at])
        return self._texts[at]

    @staticmethod
    def _words(event: Event) -> str:
        if isinstance(event, UserSaid | ModelSaid | ToolReturned):
            return words_of(shown(event))
        if isinstance(event, Instructed):
            return words_of(event.parts)
        return event.body if isinstance(event, Checkpointed) else ""

    def _compactions(self, now: Sequence[tuple[int, int]]) -> tuple[Folded, ...]:
        """The compaction that this request begins with, where the one before had not got it."""
        before = {at for at, _ in self._last}
        new = [one for one in now if isinstance(self._events[one[0]], Checkpointed)]
        if not self._last or not new or new[0][0] in before:
            return ()
        gone = [one for one in self._last if one[0] not in {at for at, _ in now}]
        if all(isinstance(self._events[at], Checkpointed) for at, _ in gone):
            return ()  # an edit was taken back: nothing left but what it had put there
        told = Folded(
            "",
            Change(Range(0, 0)),
            Spine(),
            before=round(sum(tokens for _, tokens in gone) * self._scale.ratio),
            after=round(new[0][1] * self._scale.ratio),
            messages=len(gone),
        )
        return (told,)
