"""The handoff: what a fold leaves in front of the model.

Knows what must survive and in which order it gives way: the user's words verbatim, the first task
always; pins; then facts, newest first. Refuses to know which span is folded, and every model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from foldline.core import cut
from foldline.core.item import tag
from foldline.core.log import (
    Event,
    Fact,
    Logged,
    Media,
    ModelSaid,
    ToolReturned,
    UserSaid,
    text_of,
)
from foldline.core.recall import handle
from foldline.core.spine import Range
from foldline.core.tokens import count

_RECORD = (
    "This is a record of earlier work, not a request. The newest user message wins over anything "
    'here. Any part comes back whole by its handle: recall("log:N").'
)
_UNDERSTOOD = (
    "Understood, I have the context from our previous conversation. How can I continue helping you?"
)
_WORDS_SHARE = 0.65  # of the handoff, for the user's words and pins; facts have the rest


@dataclass(frozen=True, slots=True)
class Handoff:
    """The text, and what the next merge needs of it."""

    text: str
    verbatim: tuple[int, ...] = ()
    facts: tuple[Fact, ...] = ()
    system: bool = False
    reply: str = ""


def write(
    span: Range, *, words: Sequence[Logged], pins: Sequence[Logged], facts: Sequence[Fact], cap: int
) -> Handoff:
    """A handoff of at most `cap` tokens over `span`, from the user's messages in log order."""
    assert span.hi is not None, "an open span is never folded"  # noqa: S101
    head = f"[handoff: {handle(span.lo, span.hi)} was folded]\n{_RECORD}"
    left = max(cap - count(head), 0)
    handoff = _draft(head, words=words, pins=pins, facts=facts, left=left)
    while count(handoff.text) > cap and left > 0:  # sizes of lines do not quite add up
        left = left * 9 // 10
        handoff = _draft(head, words=words, pins=pins, facts=facts, left=left)
    return handoff


def omitted(span: Range, count_of_messages: int) -> Handoff:
    """Only that something was left out, in the system's role: A-21."""
    return Handoff(
        f"[conversation truncated — {count_of_messages} older messages omitted]\n"
        f"[whole: {handle(span.lo, span.hi)}]",
        system=True,
    )


def acknowledged(handoff: Handoff) -> Handoff:
    """As a summary that the model has acknowledged: A-33."""
    text = f"[Conversation summary from compaction]: {handoff.text}"
    return Handoff(text, handoff.verbatim, handoff.facts, reply=_UNDERSTOOD)


def _draft(
    head: str, *, words: Sequence[Logged], pins: Sequence[Logged], facts: Sequence[Fact], left: int
) -> Handoff:
    # All words whole where they fit; only where they do not, each gives way to the others.
    whole = sum(count(_words(event)) + 8 for _, event in (*words, *pins))
    share = left if whole <= left * 9 // 10 else int(left * _WORDS_SHARE)
    quoted, used = _quote(words, pins, cap=share, bounded=share < left)
    kept_facts = _newest(facts, cap=left - used)
    pinned = {seq for seq, _ in pins}
    others = {seq for seq, event in words if not _human(event)}
    sections = (
        ("The user said", _lines(quoted, {*quoted} - pinned - others)),
        ("Said by others", _lines(quoted, others - pinned)),
        ("Pinned", _lines(quoted, pinned)),
        ("What happened", [f"{handle(fact.seq)}: {fact.text}" for fact in kept_facts]),
    )
    blocks = ["\n".join((f"# {title}", *lines)) for title, lines in sections if lines]
    return Handoff("\n".join((head, *blocks)), tuple(quoted), tuple(kept_facts))


def _quote(
    words: Sequence[Logged], pins: Sequence[Logged], *, cap: int, bounded: bool
) -> tuple[dict[int, str], int]:
    """Which messages are quoted, in log order: the first, pins, then newest first."""
    first = next((one for one in words if _human(one.event)), None)
    order = [*((first,) if first else ()), *reversed(pins), *reversed(words)]
    quoted: dict[int, str] = {}
    used = 0
    for seq, event in order:
        text = _words(event)
        if seq in quoted or not text.strip():
            continue
        free = cap - used
        # One message takes at most a third, the first task two: pasted bulk must not crowd out
        # what else was said.
        most = min(free, cap * 2 // 3 if first and seq == first.seq else cap // 3)
        most = most if bounded else free
        size = count(text) + 5
        if size > most:
            note = f"\n[cut; whole: {handle(seq)}]"
            text = cut.head(text, most - count(note) - 5)
            if not text.strip():
                break
            text += note
            size = count(text) + 5
        quoted[seq] = text
        used += size
    return dict(sorted(quoted.items())), used


def _human(event: Event) -> bool:
    return isinstance(event, UserSaid) and event.speaker == "human"


def _words(event: Event) -> str:
    """What an event said, and who, where that is not simply the user; a picture is named."""
    if not isinstance(event, UserSaid | ModelSaid | ToolReturned):
        return ""
    words = "\n".join(f"[{p.form}]" if isinstance(p, Media) else text_of((p,)) for p in event.parts)
    speaker = tag(event, words) if isinstance(event, UserSaid) else ""
    return f"{speaker} {words}" if speaker else words


def _lines(quoted: dict[int, str], seqs: set[int]) -> list[str]:
    return [f"{handle(seq)}: {text}" for seq, text in quoted.items() if seq in seqs]


def _newest(facts: Sequence[Fact], *, cap: int) -> list[Fact]:
    kept: list[Fact] = []
    for fact in reversed(facts):
        cap -= count(fact.text) + 6
        if cap < 0:
            break
        kept.append(fact)
    return kept[::-1]
