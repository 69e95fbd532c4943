"""The handoff: what a fold leaves in front of the model.

Knows what must survive and in which order it gives way: the user's words verbatim, the first task
always; pins; then the narrative, if there is one; then the ledger. Refuses to know which span is
folded, and every model.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from foldline.core import ledger, truncate
from foldline.core.handles import handle
from foldline.core.item import tag
from foldline.core.log import Event, Logged, ModelSaid, ToolReturned, UserSaid, by_user
from foldline.core.names import names
from foldline.core.parts import Fact, Line, retold
from foldline.core.spine import Range
from foldline.core.tokens import count

_RECORD = (
    "This is a record of earlier work, not a request. A later record wins over an earlier one, and "
    'the newest user message over both. Any part comes back whole by its handle: recall("log:N").'
)
_UNDERSTOOD = (
    "Understood, I have the context from our previous conversation. How can I continue helping you?"
)
_WORDS, _NARRATIVE = 20_000, 4_000  # tokens that these parts never exceed; the ledger has its own
_WORDS_SHARE = 0.65  # of the handoff, for the user's words and pins; the other parts have the rest
_OWN = ("#", "[handoff", "log:", "> ")  # how the record's own lines begin
_QUOTE = 5  # tokens that the handle before a message takes
_LEAST = 40  # tokens of a message, with its handles: below that it is not worth quoting
_BOTH_ENDS = 200  # tokens from which a cut message keeps its end too
NARRATIVE = 0.40
"""The share of what the user's words leave that a narrative may take."""


@dataclass(frozen=True, slots=True)
class Material:
    """What a handoff is written from; `told` are the names that stay in sight beside it."""

    words: Sequence[Logged] = ()
    pins: Sequence[Logged] = ()
    facts: Sequence[Fact] = ()
    lines: Sequence[Line] = ()
    told: Collection[str] = ()
    focus: str = ""
    """What a person wants to be kept above all, in their words."""


@dataclass(frozen=True, slots=True)
class Handoff:
    """The text, and what the next merge needs of it."""

    text: str
    verbatim: tuple[int, ...] = ()
    """The messages that are quoted whole."""
    clipped: tuple[int, ...] = ()
    """The messages that are quoted in part."""
    facts: tuple[Fact, ...] = ()
    lines: tuple[Line, ...] = ()
    focus: str = ""
    system: bool = False
    reply: str = ""


def write(span: Range, material: Material, *, cap: int) -> Handoff:
    """A handoff of at most `cap` tokens over `span`, from the user's messages in log order."""
    assert span.hi is not None, "an open span is never folded"  # noqa: S101
    head = f"[handoff: {handle(span.lo, span.hi)} was folded]\n{_RECORD}"
    left = max(cap - count(head), 0)
    handoff = _draft(head, material, left=left)
    while count(handoff.text) > cap and left > 0:  # sizes of lines do not quite add up
        left = left * 9 // 10
        handoff = _draft(head, material, left=left)
    return handoff


def omitted(span: Range, count_of_messages: int, pins: Sequence[Logged] = ()) -> Handoff:
    """Only that something was left out, in the system's role: A-21; and pins, which stay."""
    notice = (
        f"[conversation truncated — {count_of_messages} older messages omitted]\n"
        f"[whole: {handle(span.lo, span.hi)}]"
    )
    quoted = {seq: text for seq, event in pins if (text := _quotable(event)).strip()}
    text = "\n".join(one for one in (notice, _block("Pinned", _lines(quoted, {*quoted}))) if one)
    return Handoff(text, verbatim=tuple(quoted), system=True)


def acknowledged(handoff: Handoff) -> Handoff:
    """As a summary that the model has acknowledged: A-33."""
    text = f"[Conversation summary from compaction]: {handoff.text}"
    return replace(handoff, text=text, reply=_UNDERSTOOD)


def _draft(head: str, material: Material, *, left: int) -> Handoff:
    words, pins = material.words, material.pins
    # All words whole where they fit; only where they do not, each gives way to the others.
    whole = sum(count(_words(event)) + 8 for _, event in (*words, *pins))
    share = left * 9 // 10 if whole <= left * 9 // 10 else int(left * _WORDS_SHARE)
    quoted, cut_short, used = _quote(words, pins, cap=min(share, _WORDS))
    pinned = {seq for seq, _ in pins}
    others = {seq for seq, event in words if not by_user(event)}
    blocks = [
        _block("The user said", _lines(quoted, {*quoted} - pinned - others)),
        _block("Said by others", _lines(quoted, others - pinned)),
        _block("Pinned", _lines(quoted, pinned)),
    ]
    focus = truncate.head(material.focus, left // 10)
    wish = _block("To be kept above all, by the user's wish", [focus] if focus else [])
    then = _next(material.facts)
    left -= used + count(then) + count(wish)
    lines = _newest(material.lines, cap=min(int(left * NARRATIVE), _NARRATIVE))
    narrative = _narrative(lines)
    told = {*material.told, *names("\n".join((*quoted.values(), narrative)))}
    known = ledger.pages(material.facts, cap=left - count(narrative), told=told)
    text = "\n".join(one for one in (head, *blocks, wish, *known.blocks, narrative, then) if one)
    return Handoff(
        text,
        verbatim=tuple(seq for seq in quoted if seq not in cut_short),
        clipped=tuple(sorted(cut_short)),
        facts=known.stored,
        lines=tuple(lines),
        focus=material.focus,
    )


def _quote(
    words: Sequence[Logged], pins: Sequence[Logged], *, cap: int
) -> tuple[dict[int, str], set[int], int]:
    """The messages quoted, in log order; which of them are cut; and what they take."""
    first = next((seq for seq, event in words if by_user(event)), None)
    said = {seq: text for seq, event in (*words, *pins) if (text := _quotable(event)).strip()}
    newest = [*(seq for seq, _ in reversed(pins)), *(seq for seq, _ in reversed(words))]
    order = [seq for seq in dict.fromkeys([first, *newest]) if seq is not None and seq in said]
    sizes = {seq: count(said[seq]) + _QUOTE for seq in order}
    quoted: dict[int, str] = {}
    cut_short: set[int] = set()
    used = 0
    for seq, most in _allowed(order, sizes, cap).items():
        quoted[seq] = said[seq] if sizes[seq] <= most else _cut(said[seq], seq, most - _QUOTE)
        if quoted[seq] is not said[seq]:
            cut_short.add(seq)
        used += count(quoted[seq]) + _QUOTE
    return dict(sorted(quoted.items())), cut_short, used


def _allowed(order: Sequence[int], sizes: dict[int, int], cap: int) -> dict[int, int]:
    """What each message may take, those that matter most first; what has no room is not there.

    All whole where they fit, but for pasted bulk. Else half of the cap goes to the first task, pins
    and the newest, whole; and the older ones are cut to one length, long ones before short ones: a
    rule that was stated once in a few words must not give way to an old paste.
    """
    bulk = max(cap // 3, _LEAST)
    allowed = {seq: min(size, 2 * bulk if seq == order[0] else bulk) for seq, size in sizes.items()}
    if sum(allowed.values()) <= cap:
        return allowed
    allowed = {seq: min(size, bulk) for seq, size in sizes.items()}
    used, kept = 0, 0
    while kept < len(order) and used + allowed[order[kept]] <= max(cap // 2, bulk):
        used += allowed[order[kept]]
        kept += 1
    left, least = cap - used, [*accumulate(min(sizes[seq], _LEAST) for seq in order[kept:])]
    older = order[kept : kept + sum(size <= left for size in least)]
    level, most = _LEAST, bulk
    while level < most:  # the longest length to which all of them can be cut
        middle = (level + most + 1) // 2
        if sum(min(sizes[seq], middle) for seq in older) <= left:
            level = middle
        else:
            most = middle - 1
    return {**{seq: allowed[seq] for seq in order[:kept]}, **dict.fromkeys(older, level)}


def _cut(text: str, seq: int, tokens: int) -> str:
    """A message in part: its beginning, and its end where there is room for both."""
    note = f"\n[cut; whole: {handle(seq)}]"
    room = max(tokens - count(note), 1)
    if room < _BOTH_ENDS:
        return truncate.head(text, room) + note
    first, last = truncate.both(text, room)
    return f"{first}{note}\n{last}"


def _quotable(event: Event) -> str:
    """What an event said; of others than the user, no line can pass for one of the record's own."""
    words = _words(event)
    lines = words.splitlines()
    if by_user(event) or not any(line.lstrip().startswith(_OWN) for line in lines):
        return words
    return "\n".join(f"> {line}" if line.lstrip().startswith(_OWN) else line for line in lines)


def _words(event: Event) -> str:
    """What an event said, and who, where that is not simply the user; a picture is named."""
    if not isinstance(event, UserSaid | ModelSaid | ToolReturned):
        return ""
    words = retold(event.parts)
    speaker = tag(event, words) if isinstance(event, UserSaid) else ""
    return f"{speaker} {words}" if speaker else words


def _lines(quoted: dict[int, str], seqs: set[int]) -> list[str]:
    return [f"{handle(seq)}: {text}" for seq, text in quoted.items() if seq in seqs]


def _block(title: str, lines: Sequence[str]) -> str:
    return "\n".join((f"# {title}", *lines)) if lines else ""


def _newest(lines: Sequence[Line], *, cap: int) -> list[Line]:
    """The lines that rest on the newest events, as many as there is room for, in their order."""
    kept: list[Line] = []
    for line in sorted(lines, key=lambda one: max(one.seqs, default=-1), reverse=True):
        cap -= count(_cited(line)) + 3
        if cap < 0:
            break
        kept.append(line)
    return [line for line in lines if any(line is one for one in kept)]


def _narrative(lines: Sequence[Line]) -> str:
    """What a model told of the span, by section, every line with the events it rests on."""
    sections = dict.fromkeys(line.section for line in lines)
    blocks = [
        _block(name, [_cited(one) for one in lines if one.section == name]) for name in sections
    ]
    return "\n".join(blocks)


def _cited(line: Line) -> str:
    return f"- {line.text} [{', '.join(handle(seq) for seq in line.seqs)}]"


def _next(facts: Sequence[Fact]) -> str:
    """Where to go on: R-18. The task that is in hand, or simply what follows."""
    tasks = [fact for fact in facts if fact.kind == "todo"]
    open_tasks = [line for fact in tasks[-1:] for line in fact.text.split("\n")]
    for mark in ("[~] ", "[ ] "):
        for line in open_tasks:
            if line.startswith(mark):
                return f"# Next\nGo on with what follows; the task in hand is: {line[len(mark) :]}"
    return "# Next\nGo on with what follows this record."
