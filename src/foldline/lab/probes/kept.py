"""What the model still had in front when it needed it: exact text, no judgement.

Knows what an answer wrote that had been seen before: names that look like code, and whole lines.
Refuses to judge quality: a name that is there may still be overlooked, one that is not may be
recalled.

For every call of a replay: what the recorded answer then wrote, and had occurred earlier in the
session, is looked for in the request that this policy would have sent.
"""

from dataclasses import dataclass, field

from foldline.core.log import Event, ModelSaid, ToolReturned, UserSaid, by_user
from foldline.core.names import names
from foldline.lab.replay import Replayed
from foldline.lab.words import lines_of, words_of


@dataclass(slots=True)
class KeptShare:
    """How much of what was used again was still in front."""

    used: int = 0
    there: int = 0

    def take(self, *, there: bool) -> None:
        """One thing that was used again."""
        self.used += 1
        self.there += there

    def __add__(self, other: "KeptShare") -> "KeptShare":
        return KeptShare(self.used + other.used, self.there + other.there)

    @property
    def percent(self) -> float:
        """Of what was used again; all of nothing is all."""
        return 100 * self.there / self.used if self.used else 100.0


@dataclass(slots=True)
class RetentionProbe:
    """What a policy kept in front of the model, where the agent used it later."""

    names: KeptShare = field(default_factory=KeptShare)
    from_results: KeptShare = field(default_factory=KeptShare)
    """Names that until then had been seen only in results."""
    lines: KeptShare = field(default_factory=KeptShare)
    turn_lines: KeptShare = field(default_factory=KeptShare)
    """Lines that had occurred in the same turn of the user."""


def retention(replayed: Replayed) -> RetentionProbe:
    """What was still there, call by call."""
    found, past = RetentionProbe(), _Past()
    steps = {id(step.answer): step for step in replayed.steps}
    for event in replayed.recorded.events:
        if isinstance(event, ModelSaid) and (step := steps.get(id(event))) is not None:
            _look(found, past, event, "\n".join(step.texts))
        past.take(event)
    return found


class _Past:
    """What has occurred so far, and where."""

    def __init__(self) -> None:
        self.names: dict[str, bool] = {}
        """Every name, and whether only results have shown it."""
        self.lines: dict[str, int] = {}
        """Every long line, and the turn it occurred in last."""
        self.turn = 0

    def take(self, event: Event) -> None:
        """What an event adds."""
        if not isinstance(event, UserSaid | ModelSaid | ToolReturned):
            return
        self.turn += by_user(event)
        words = words_of(event.parts)
        only = isinstance(event, ToolReturned)
        for name in names(words):
            self.names[name] = only and self.names.get(name, True)
        for line in lines_of(words):
            self.lines[line] = self.turn


def _look(found: RetentionProbe, past: _Past, answer: ModelSaid, shown: str) -> None:
    words = words_of(answer.parts)
    for name in names(words):
        if name in past.names:
            there = name in shown
            found.names.take(there=there)
            if past.names[name]:
                found.from_results.take(there=there)
    for line in lines_of(words):
        if line in past.lines:
            there = line in shown
            found.lines.take(there=there)
            if past.lines[line] == past.turn:
                found.turn_lines.take(there=there)
