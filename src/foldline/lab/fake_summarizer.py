"""A summarizer without a model: narratives of a given size, with a given loss.

It need not be good: the lab measures what is lost whatever a summary says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from foldline.core.edits import fold
from foldline.core.log import Event, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Line, spoken_text_of
from foldline.core.tokens import count_tokens
from foldline.lab.bill.cache import PROMPT, Aside

_SECTION = "Decisions and outcomes"
_WIDTH = 200


@dataclass(frozen=True, slots=True)
class Teller:
    """Summarizes spans in at most `tokens`, and forgets the share `loss` of the lines."""

    tokens: int
    loss: float = 0.0
    seed: int = 0

    def make_narrative(self, ask: fold.Ask, events: Sequence[Event]) -> fold.Prepared:
        """Make a narrative of the events' first lines, evenly over the span."""
        lo, hi = ask.range.lo, ask.range.hi
        assert hi is not None, "only closed spans are summarized"  # noqa: S101
        random = Random(f"{self.seed}:{lo}:{hi}")  # noqa: S311 - reproducible, not secret
        said = [(seq, line) for seq in range(lo, hi + 1) if (line := _find_first_line(events[seq]))]
        room = min(self.tokens, ask.tokens)
        step = max(sum(count_tokens(line) for _, line in said) / max(room, 1), 1.0)
        lines: list[Line] = []
        for place in range(int(len(said) / step)):
            seq, line = said[int(place * step)]
            room -= count_tokens(line)
            if room >= 0 and random.random() >= self.loss:
                lines.append(Line(_SECTION, line, (seq,)))
        return fold.Prepared(ask.base, ask.range, tuple(lines), by="scripted")

    def make_aside(self, prepared: fold.Prepared, *, prefix: float) -> Aside:
        """Make the call's bill: it reads the conversation's own prefix from the cache."""
        return Aside(prefix, PROMPT, sum(count_tokens(line.text) for line in prepared.lines))


def _find_first_line(event: Event) -> str:
    if not isinstance(event, UserSaid | ModelSaid | ToolReturned):
        return ""
    lines = spoken_text_of(event.parts).strip().splitlines()
    return " ".join(lines[0].split())[:_WIDTH] if lines else ""
