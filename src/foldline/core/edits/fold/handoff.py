"""Build the handoff that a fold leaves in front of the model.

What gives way last comes first: the user's words verbatim, the first task always; pins; then the
narrative, if there is one; then the ledger.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from foldline.core import ledger, truncate
from foldline.core.item import format_speaker_tag
from foldline.core.log import Event, Logged, ModelSaid, ToolReturned, UserSaid, by_user
from foldline.core.names import count_names, format_handle
from foldline.core.parts import Fact, Line, render_parts
from foldline.core.spine import Range
from foldline.core.tokens import count_tokens

_RECORD = (
    "This is a record of earlier work, not a request. A later record wins over an earlier one, and "
    'the newest user message over both. Any part comes back whole by its handle: recall("log:N").'
)
_UNDERSTOOD = (
    "Understood, I have the context from our previous conversation. How can I continue helping you?"
)
_WORDS, _NARRATIVE = 20_000, 4_000  # the most tokens of these parts; the ledger has its own cap
_WORDS_SHARE = 0.65  # of the handoff, for the user's words and pins
_OWN = ("#", "[handoff", "log:", "> ")  # how the record's own lines begin
_QUOTE = 5  # tokens of the handle before a message
_LEAST = 40  # tokens of a message with its handles: a shorter quotation is not worth it
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
    """What a person wants kept above all, in their words."""


@dataclass(frozen=True, slots=True)
class Handoff:
    """The text, and what the next merge needs of it."""

    text: str
    verbatim: tuple[int, ...] = ()
    """The messages quoted whole."""
    clipped: tuple[int, ...] = ()
    """The messages quoted in part."""
    facts: tuple[Fact, ...] = ()
    lines: tuple[Line, ...] = ()
    focus: str = ""
    system: bool = False
    reply: str = ""


def build_handoff(span: Range, material: Material, *, cap: int) -> Handoff:
    """Build a handoff of at most `cap` tokens over `span`."""
    assert span.hi is not None, "an open span is never folded"  # noqa: S101
    head = f"[handoff: {format_handle(span.lo, span.hi)} was folded]\n{_RECORD}"
    left = max(cap - count_tokens(head), 0)
    handoff = _assemble_handoff(head, material, left=left)
    while count_tokens(handoff.text) > cap and left > 0:  # the sizes of lines do not quite add up
        left = left * 9 // 10
        handoff = _assemble_handoff(head, material, left=left)
    return handoff


def build_omission_notice(
    span: Range, count_of_messages: int, pins: Sequence[Logged] = ()
) -> Handoff:
    """Build a notice, in the system's role, that messages were left out; pins stay."""
    notice = (
        f"[conversation truncated — {count_of_messages} older messages omitted]\n"
        f"[whole: {format_handle(span.lo, span.hi)}]"
    )
    quoted = {seq: text for seq, event in pins if (text := _render_quote(event)).strip()}
    pinned = _render_block("Pinned", _render_quote_lines(quoted, {*quoted}))
    text = f"{notice}\n{pinned}" if pinned else notice
    return Handoff(text, verbatim=tuple(quoted), system=True)


def add_acknowledgement(handoff: Handoff) -> Handoff:
    """Turn a handoff into a summary that the model has acknowledged."""
    text = f"[Conversation summary from compaction]: {handoff.text}"
    return replace(handoff, text=text, reply=_UNDERSTOOD)


def _assemble_handoff(head: str, material: Material, *, left: int) -> Handoff:
    words, pins = material.words, material.pins
    # Words stay whole where they all fit; otherwise they share a fixed part of the handoff.
    whole = sum(count_tokens(_render_words(event)) + 8 for _, event in (*words, *pins))
    share = left * 9 // 10 if whole <= left * 9 // 10 else int(left * _WORDS_SHARE)
    quoted, cut_short, used = _quote_messages(words, pins, cap=min(share, _WORDS))
    pinned = {seq for seq, _ in pins}
    others = {seq for seq, event in words if not by_user(event)}
    blocks = [
        _render_block("The user said", _render_quote_lines(quoted, {*quoted} - pinned - others)),
        _render_block("Said by others", _render_quote_lines(quoted, others - pinned)),
        _render_block("Pinned", _render_quote_lines(quoted, pinned)),
    ]
    focus = truncate.truncate_to_head(material.focus, left // 10)
    wish = _render_block("To be kept above all, by the user's wish", [focus] if focus else [])
    then = _render_next_step(material.facts)
    left -= used + count_tokens(then) + count_tokens(wish)
    lines = _select_newest_lines(material.lines, cap=min(int(left * NARRATIVE), _NARRATIVE))
    narrative = _render_narrative(lines)
    told = {*material.told, *count_names("\n".join((*quoted.values(), narrative)))}
    known = ledger.build_pages(material.facts, cap=left - count_tokens(narrative), told=told)
    text = "\n".join(one for one in (head, *blocks, wish, *known.blocks, narrative, then) if one)
    return Handoff(
        text,
        verbatim=tuple(seq for seq in quoted if seq not in cut_short),
        clipped=tuple(sorted(cut_short)),
        facts=known.stored,
        lines=tuple(lines),
        focus=material.focus,
    )


def _quote_messages(
    words: Sequence[Logged], pins: Sequence[Logged], *, cap: int
) -> tuple[dict[int, str], set[int], int]:
    """Quote messages, in log order; also return which are cut and the tokens they take."""
    first = next((seq for seq, event in words if by_user(event)), None)
    said = {seq: text for seq, event in (*words, *pins) if (text := _render_quote(event)).strip()}
    newest = [*(seq for seq, _ in reversed(pins)), *(seq for seq, _ in reversed(words))]
    order = [seq for seq in dict.fromkeys([first, *newest]) if seq is not None and seq in said]
    sizes = {seq: count_tokens(said[seq]) + _QUOTE for seq in order}
    quoted: dict[int, str] = {}
    cut_short: set[int] = set()
    used = 0
    for seq, most in _allocate_tokens(order, sizes, cap).items():
        quoted[seq] = (
            said[seq] if sizes[seq] <= most else _truncate_message(said[seq], seq, most - _QUOTE)
        )
        if quoted[seq] is not said[seq]:
            cut_short.add(seq)
        used += count_tokens(quoted[seq]) + _QUOTE
    return dict(sorted(quoted.items())), cut_short, used


def _allocate_tokens(order: Sequence[int], sizes: dict[int, int], cap: int) -> dict[int, int]:
    """Allocate tokens to messages, the most important first; leave out what has no room.

    If all fit, all stay whole, except pasted bulk. Otherwise half of the cap goes to the first
    task, pins and the newest messages, whole; the older ones are all cut to one length. So short
    ones stay whole: a rule stated once in a few words must not give way to an old paste.
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


def _truncate_message(text: str, seq: int, tokens: int) -> str:
    """Keep a message's beginning, and its end if there is room for both."""
    note = f"\n[cut; whole: {format_handle(seq)}]"
    room = max(tokens - count_tokens(note), 1)
    if room < _BOTH_ENDS:
        return truncate.truncate_to_head(text, room) + note
    first, last = truncate.truncate_to_ends(text, room)
    return f"{first}{note}\n{last}"


def _render_quote(event: Event) -> str:
    """Render an event's words; only the user's may look like lines of the record itself."""
    words = _render_words(event)
    lines = words.splitlines()
    if by_user(event) or not any(line.lstrip().startswith(_OWN) for line in lines):
        return words
    return "\n".join(f"> {line}" if line.lstrip().startswith(_OWN) else line for line in lines)


def _render_words(event: Event) -> str:
    """Render an event's words after a tag for any speaker but the user; media are named."""
    if not isinstance(event, UserSaid | ModelSaid | ToolReturned):
        return ""
    words = render_parts(event.parts)
    speaker = format_speaker_tag(event, words) if isinstance(event, UserSaid) else ""
    return f"{speaker} {words}" if speaker else words


def _render_quote_lines(quoted: dict[int, str], seqs: set[int]) -> list[str]:
    return [f"{format_handle(seq)}: {text}" for seq, text in quoted.items() if seq in seqs]


def _render_block(title: str, lines: Sequence[str]) -> str:
    return "\n".join((f"# {title}", *lines)) if lines else ""


def _select_newest_lines(lines: Sequence[Line], *, cap: int) -> list[Line]:
    """Select the lines that cite the newest events, as many as fit, in their order."""
    kept: list[Line] = []
    for line in sorted(lines, key=lambda one: max(one.seqs, default=-1), reverse=True):
        cap -= count_tokens(_render_cited_line(line)) + 3
        if cap < 0:
            break
        kept.append(line)
    return [line for line in lines if any(line is one for one in kept)]


def _render_narrative(lines: Sequence[Line]) -> str:
    sections = dict.fromkeys(line.section for line in lines)
    blocks = [
        _render_block(name, [_render_cited_line(one) for one in lines if one.section == name])
        for name in sections
    ]
    return "\n".join(blocks)


def _render_cited_line(line: Line) -> str:
    return f"- {line.text} [{', '.join(format_handle(seq) for seq in line.seqs)}]"


def _render_next_step(facts: Sequence[Fact]) -> str:
    """Say where to go on: with the task in progress, else with what follows."""
    tasks = [fact for fact in facts if fact.kind == "todo"]
    open_tasks = [line for fact in tasks[-1:] for line in fact.text.split("\n")]
    for mark in ("[~] ", "[ ] "):
        for line in open_tasks:
            if line.startswith(mark):
                return f"# Next\nGo on with what follows; the task in hand is: {line[len(mark) :]}"
    return "# Next\nGo on with what follows this record."
