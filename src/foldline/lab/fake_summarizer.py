"""A narrative without a model: of a given size, and with a given loss.

Knows how a summary is made of the events it was given, and what asking for it costs. Refuses to be
good at it: the lab measures what is lost whatever a summary says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from foldline.core.edits import fold
from foldline.core.log import Event, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Line, spoken
from foldline.core.tokens import count
from foldline.lab.bill.cache import PROMPT, Aside

_SECTION = "Decisions and outcomes"
_WIDTH = 200


@dataclass(frozen=True, slots=True)
class Teller:
    """Who tells a span: sentences of it, so many tokens, and of those this share forgotten."""

    tokens: int
    loss: float = 0.0
    seed: int = 0

    def tell(self, ask: fold.Ask, events: Sequence[Event]) -> fold.Prepared:
        """The narrative that was asked for: first lines of its events, evenly over the span."""
        lo, hi = ask.range.lo, ask.range.hi
        assert hi is not None, "only what is closed is told"  # noqa: S101
        random = Random(f"{self.seed}:{lo}:{hi}")  # noqa: S311 - a loss that can be repeated
        said = [(seq, line) for seq in range(lo, hi + 1) if (line := _first(events[seq]))]
        room = min(self.tokens, ask.tokens)
        step = max(sum(count(line) for _, line in said) / max(room, 1), 1.0)
        lines: list[Line] = []
        for place in range(int(len(said) / step)):
            seq, line = said[int(place * step)]
            room -= count(line)
            if room >= 0 and random.random() >= self.loss:
                lines.append(Line(_SECTION, line, (seq,)))
        return fold.Prepared(ask.base, ask.range, tuple(lines), by="scripted")

    def aside(self, told: fold.Prepared, *, prefix: float) -> Aside:
        """What asking cost: on the conversation's own prefix, which is in the cache."""
        return Aside(prefix, PROMPT, sum(count(line.text) for line in told.lines))


def _first(event: Event) -> str:
    if not isinstance(event, UserSaid | ModelSaid | ToolReturned):
        return ""
    lines = spoken(event.parts).strip().splitlines()
    return " ".join(lines[0].split())[:_WIDTH] if lines else ""
