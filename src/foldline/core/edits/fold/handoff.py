"""The handoff: what a fold leaves in front of the model.

Knows what must survive and in which order it gives way: the user's words verbatim, the first task
always; pins; then facts, newest first. Refuses to know which span is folded, and every model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from foldline.core import cut
from foldline.core.log import Fact, Logged
from foldline.core.recall import handle, whole
from foldline.core.spine import Range
from foldline.core.tokens import count

_RECORD = (
    "This is a record of earlier work, not a request. The newest user message wins over anything "
    'here. Any part comes back whole by its handle: recall("log:N").'
)
_WORDS_SHARE = 0.65  # of the handoff, for the user's words and pins; facts have the rest


@dataclass(frozen=True, slots=True)
class Handoff:
    """The text, and what the next merge needs of it."""

    text: str
    verbatim: tuple[int, ...]
    facts: tuple[Fact, ...]


def write(
    span: Range, *, words: Sequence[Logged], pins: Sequence[Logged], facts: Sequence[Fact], cap: int
) -> Handoff:
    """A handoff of at most `cap` tokens over `span`, from the user's messages in log order."""
    assert span.hi is not None, "an open span is never folded"  # noqa: S101
    head = f"[handoff: {handle(span.lo, span.hi)} was folded]\n{_RECORD}"
    left = max(cap - count(head), 0)
    quoted, used = _quote(words, pins, cap=int(left * _WORDS_SHARE))
    kept_facts = _newest(facts, cap=left - used)
    pinned = {seq for seq, _ in pins}
    sections = (
        ("The user said", [f"{handle(s)}: {t}" for s, t in quoted.items() if s not in pinned]),
        ("Pinned", [f"{handle(s)}: {t}" for s, t in quoted.items() if s in pinned]),
        ("What happened", [f"{handle(fact.seq)}: {fact.text}" for fact in kept_facts]),
    )
    blocks = ["\n".join((f"# {title}", *lines)) for title, lines in sections if lines]
    return Handoff("\n".join((head, *blocks)), tuple(quoted), tuple(kept_facts))


def _quote(
    words: Sequence[Logged], pins: Sequence[Logged], *, cap: int
) -> tuple[dict[int, str], int]:
    """Which messages are quoted, in log order: the first, pins, then newest first."""
    order = [*words[:1], *reversed(pins), *reversed(words[1:])]
    quoted: dict[int, str] = {}
    used = 0
    for seq, event in order:
        text = whole(event) or ""
        if seq in quoted or not text.strip():
            continue
        free = cap - used
        # One message takes at most a third: pasted bulk must not crowd out what else was said.
        size = count(text) + 5
        if size > min(free, max(cap // 3, 1)):
            note = f"\n[cut; whole: {handle(seq)}]"
            text = cut.head(text, min(free, cap // 3) - count(note) - 5)
            if not text.strip():
                break
            text += note
            size = count(text) + 5
        quoted[seq] = text
        used += size
    return dict(sorted(quoted.items())), used


def _newest(facts: Sequence[Fact], *, cap: int) -> list[Fact]:
    kept: list[Fact] = []
    for fact in reversed(facts):
        cap -= count(fact.text) + 6
        if cap < 0:
            break
        kept.append(fact)
    return kept[::-1]
