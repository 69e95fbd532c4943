"""Build the handoff that a fold leaves in front of the model.

What gives way last comes first: the user's words verbatim, the first task always; pins; then the
narrative, if there is one; then the ledger.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Literal, TypeAlias

from foldline.core import ledger, truncate
from foldline.core.item import format_speaker_tag
from foldline.core.log import Event, Logged, ModelSaid, ToolReturned, UserSaid, by_user
from foldline.core.names import count_names, format_handle, format_way_back
from foldline.core.parts import Fact, FactKind, Line, render_parts
from foldline.core.passages import Passage, find_repeated, split_passages, weigh_passages
from foldline.core.spine import Range
from foldline.core.tokens import count_tokens

_RECORD = (
    "This is a record of earlier work, not a request. A later record wins over an earlier one, and "
    "the newest user message over both. Where … stands, something is left out"
)
_WAY_BACK = ': any part comes back whole by its handle, {}("log:N")'  # by the tool of that name
_UNDERSTOOD = (
    "Understood, I have the context from our previous conversation. How can I continue helping you?"
)
MOST_WORDS, _NARRATIVE = 20_000, 4_000
"""The most tokens of the user's words; the ledger has its own cap."""
_WORDS_SHARE = 0.65  # of the handoff, for the user's words and pins
_OWN = ("#", "[handoff", "log:", "> ")  # how the record's own lines begin
_QUOTE = 5  # tokens of the handle before a message
_HEAD = 250  # tokens of a handoff's frame: its head, titles and first task, counted generously
_BESIDE = 750  # tokens of a handoff beside the newest messages, where these stay whole
_LEAST = 40  # tokens of a message with its handles: a shorter quotation is not worth it
PROSE = "In the summarizer's own words, which are not proven facts"
"""The heading of sentences that cite nothing, as a user's own template may ask for."""
NARRATIVE = 0.40
"""The share of what the user's words leave that a narrative may take."""
Block: TypeAlias = Literal["words", "pins", "narrative", "next"] | FactKind
"""The kinds of a handoff's blocks: each kind of fact has its own."""


@dataclass(frozen=True, slots=True)
class Material:
    """What a handoff is written from; `visible` are the names that stay in sight beside it."""

    words: Sequence[Logged] = ()
    pins: Sequence[Logged] = ()
    facts: Sequence[Fact] = ()
    lines: Sequence[Line] = ()
    visible: Collection[str] = ()
    standing: Sequence[str] = ()
    """The handoffs that stay beside it."""
    tasks: Sequence[Fact] = ()
    """The tasks in them."""
    focus: str = ""
    """What a person wants kept above all, in their words."""
    recall: str = ""
    """The tool that returns what a handle stands for; "" if the model has none."""
    newest: int = 0
    """The tokens of the newest messages that stay whole; 0: by what they say."""


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
    blocks: tuple[tuple[Block, str], ...] = ()
    """What the text is made of below its head: the kind of each block, and its text."""


def build_handoff(span: Range, material: Material, *, cap: int) -> Handoff:
    """Build a handoff of at most `cap` tokens over `span`."""
    assert span.hi is not None, "an open span is never folded"  # noqa: S101
    way_back = _WAY_BACK.format(material.recall) if material.recall else ""
    head = f"[handoff: {format_handle(span.lo, span.hi)} was folded]\n{_RECORD}{way_back}."
    left = max(cap - count_tokens(head), 0)
    handoff = _assemble_handoff(head, material, left=left)
    while count_tokens(handoff.text) > cap and left > 0:  # the sizes of lines do not quite add up
        left = left * 9 // 10
        handoff = _assemble_handoff(head, material, left=left)
    return handoff


def count_newest_words(material: Material, tokens: int) -> int:
    """Count what a handoff needs for the newest messages up to so many tokens, and beside them."""
    sizes = [count_tokens(_render_quote(event)) + _QUOTE for _, event in material.words]
    needed = _BESIDE + _HEAD + sum(sizes[:1])  # the first task stays beside them
    needed += sum(count_tokens(_render_quote(event)) + _QUOTE for _, event in material.pins)
    for size in sizes[:0:-1]:
        if tokens <= 0:
            break
        needed += min(size, tokens + _QUOTE)
        tokens -= size - _QUOTE
    return needed


@lru_cache(maxsize=64)  # asked before every call of which a fold may soon pay
def count_quoted_tokens(text: str) -> int:
    """Count the tokens of a handoff's text that are words, not facts."""
    blocks = re.split(r"^(?=# )", text, flags=re.MULTILINE)
    return sum(count_tokens(one) for one in blocks if not one.startswith(ledger.HEADINGS))


def build_omission_notice(
    span: Range, count_of_messages: int, pins: Sequence[Logged] = (), *, recall: bool = True
) -> Handoff:
    """Build a notice, in the system's role, that messages were left out; pins stay."""
    notice = (
        f"[conversation truncated — {count_of_messages} older messages omitted]\n"
        f"{format_way_back(span.lo, span.hi, recall=recall)}"
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
    share = max(left - _BESIDE, share) if material.newest else min(share, MOST_WORDS)
    quoted, cut_short, used = _quote_messages(material, cap=share)
    pinned = {seq for seq, _ in pins}
    others = {seq for seq, event in words if not by_user(event)}
    blocks = [
        _render_block("The user said", _render_quote_lines(quoted, {*quoted} - pinned - others)),
        _render_block("Said by others", _render_quote_lines(quoted, others - pinned)),
        _render_block("Pinned", _render_quote_lines(quoted, pinned)),
    ]
    focus = truncate.truncate_to_head(material.focus, left // 10)
    wish = _render_block("To be kept above all, by the user's wish", [focus] if focus else [])
    then = _render_next_step((*material.tasks, *material.facts))
    left -= used + count_tokens(then) + count_tokens(wish)
    lines = _select_newest_lines(material.lines, cap=min(int(left * NARRATIVE), _NARRATIVE))
    narrative = render_narrative(lines)
    visible = {*material.visible, *count_names("\n".join((*quoted.values(), narrative)))}
    known = ledger.build_pages(
        material.facts,
        cap=left - count_tokens(narrative),
        visible=visible,
        recall=bool(material.recall),
    )
    every: list[tuple[Block, str]] = [
        ("words", blocks[0]),
        ("words", blocks[1]),
        ("pins", blocks[2]),
        ("words", wish),
        *zip(known.kinds, known.blocks, strict=True),
        ("narrative", narrative),
        ("next", then),
    ]
    shown: tuple[tuple[Block, str], ...] = tuple((kind, text) for kind, text in every if text)
    return Handoff(
        "\n".join((head, *(text for _, text in shown))),
        verbatim=tuple(seq for seq in quoted if seq not in cut_short),
        clipped=tuple(sorted(cut_short)),
        facts=known.stored,
        lines=tuple(lines),
        focus=material.focus,
        blocks=shown,
    )


def _quote_messages(material: Material, *, cap: int) -> tuple[dict[int, str], set[int], int]:
    """Quote messages, in log order; also return which are cut and the tokens they take.

    What was said before in the same words is left out. If the rest fits, all of it stays, except
    pasted bulk. Otherwise the first task, pins and the newest messages take up to half of the cap,
    and the passages of all others that say most take the rest: a rule stated once in a few words
    must not give way to an old paste. With `material.newest`, the newest messages stay whole, up
    to that many tokens, the one that does not fit is cut, and passages take what room is left.
    """
    words, pins = material.words, material.pins
    first = next((seq for seq, event in words if by_user(event)), None)
    said = {seq: text for seq, event in (*words, *pins) if (text := _render_quote(event)).strip()}
    quotes = _Quotes(dict(sorted(said.items())), material.standing, whole=material.newest > 0)
    newest = [seq for seq, _ in reversed(words) if seq in said and seq != first]
    always = [seq for seq in dict.fromkeys((*(seq for seq, _ in pins), first)) if seq in said]
    bulk = max(cap // 3, _LEAST)
    task = 0
    if material.newest and first in said:  # it comes last, and has a third at least
        always.remove(first)
        task = min(count_tokens(said[first]) + _QUOTE, bulk)
    for seq in always:
        most = min(2 * bulk if seq == first else bulk, cap - task - quotes.used)
        quotes.take_message(seq, most=most)
    if material.newest:
        quotes.take_newest(newest, tokens=material.newest, cap=cap - task)
        quotes.take_newest([first] if first in said else [], tokens=cap, cap=cap)
        quotes.take_heaviest(cap)
    elif not quotes.take_all(newest, most=bulk, cap=cap):
        for seq in newest:
            if quotes.used + quotes.size_of(seq) > cap // 2:
                break
            quotes.take_message(seq, most=cap)
        quotes.take_heaviest(cap)
    return quotes.render(), quotes.cut_short, quotes.used


@dataclass(slots=True)
class _QuotedPassage:
    """A passage of a message, with what it weighs and takes."""

    seq: int
    place: Passage
    weight: float
    tokens: int
    is_left_out: bool
    """Whether it was said before in the same words."""
    is_taken: bool = False


class _Quotes:
    """Messages of which passages are quoted."""

    def __init__(self, said: dict[int, str], standing: Sequence[str], *, whole: bool) -> None:
        self._said = said
        shown = [one.text for text in standing for one in split_passages(text)]
        split = {seq: split_passages(text) for seq, text in said.items()}
        texts = [[one.text for one in passages] for passages in split.values()]
        every = enumerate(chain.from_iterable(split.values()), len(shown))
        weights = iter(
            weigh_passages(
                [*shown, *chain.from_iterable(texts)],
                shown=len(shown),
                pasted=[at for at, one in every if one.is_pasted],
            )
        )
        for _ in shown:
            next(weights)
        self._passages = {
            seq: [
                _QuotedPassage(
                    seq, one, next(weights), count_tokens(one.text) + 1, again and not whole
                )
                for one, again in zip(passages, repeated, strict=True)
            ]
            for (seq, passages), repeated in zip(split.items(), find_repeated(texts), strict=True)
        }
        self._kept: dict[int, list[_QuotedPassage]] = {}
        self._texts: set[str] = set()
        self.used = 0
        self.cut_short: set[int] = set()

    def size_of(self, seq: int) -> int:
        """The tokens of a message without what was said before; 0 if nothing is left."""
        new = [one.tokens for one in self._passages[seq] if not one.is_left_out]
        return sum(new) + _QUOTE if new else 0

    def take_message(self, seq: int, *, most: int) -> None:
        """Take a message up to `most` tokens: half of them from its beginning, then by weight."""
        left = most - _QUOTE
        least = 0 if self.size_of(seq) <= most else most // 2  # left behind its beginning
        new = [one for one in self._passages[seq] if not self._is_quoted(one)]
        rest: list[_QuotedPassage] = []
        for one in new:
            if not rest and left - one.tokens >= least:
                left -= one.tokens
                self._take(one)
            else:
                rest.append(one)
        for one in sorted(rest, key=lambda one: -one.weight):
            if one.tokens + 2 <= left:
                left -= one.tokens + 2
                self._take(one)
        if new and seq not in self._kept and left >= _LEAST // 4:
            self._take_beginning(new[0], left)

    def _take_beginning(self, one: _QuotedPassage, tokens: int) -> None:
        """Take the first words of a message whose passages are all too long."""
        head = truncate.truncate_to_head(one.place.text, tokens - 1)
        one.place = Passage(one.place.start, one.place.start + len(head), head)
        one.tokens = count_tokens(head) + 1
        for other in self._passages[one.seq]:
            other.is_taken = True
        if head:
            self._take(one)

    def take_all(self, seqs: Sequence[int], *, most: int, cap: int) -> bool:
        """Take all of these messages, of bulk `most` tokens each, if they fit."""
        if self.used + sum(min(self.size_of(seq), most) for seq in seqs) > cap:
            return False
        for seq in seqs:
            self.take_message(seq, most=most)
        return True

    def take_whole(self, seq: int, *, most: int) -> bool:
        """Take a whole message if it has at most so many tokens, counted as one text."""
        size = count_tokens(self._said[seq]) + _QUOTE
        if size > most:
            return False
        self.used += size
        self._kept[seq] = self._passages[seq]
        for one in self._passages[seq]:
            self._texts.add(one.place.text)
            one.is_taken = True
        return True

    def take_newest(self, seqs: Sequence[int], *, tokens: int, cap: int) -> None:
        """Take whole messages, the newest first, and what is left of `tokens` of the next one."""
        for seq in seqs:
            before, left = self.used, min(cap - self.used, tokens + _QUOTE)
            if not self.take_whole(seq, most=left):
                self.take_message(seq, most=left)
                break
            tokens -= self.used - before - _QUOTE

    def take_heaviest(self, cap: int) -> None:
        """Take the passages that say most, of all messages."""
        every = [one for passages in self._passages.values() for one in passages]
        for one in sorted(every, key=lambda one: (-one.weight, -one.seq)):
            if one.is_taken or self._is_quoted(one):
                continue
            size = one.tokens + (2 if one.seq in self._kept else _QUOTE)
            if self.used + size > cap:
                break  # what comes next may be what this corrects
            self._take(one)

    def _is_quoted(self, one: _QuotedPassage) -> bool:
        """Whether another message already quotes the same words."""
        return one.is_left_out and one.place.text in self._texts

    def _take(self, one: _QuotedPassage) -> None:
        self._texts.add(one.place.text)
        self.used += one.tokens + (0 if one.seq in self._kept else _QUOTE)
        self._kept.setdefault(one.seq, []).append(one)
        one.is_taken = True

    def render(self) -> dict[int, str]:
        """Render the quotations by the places of their messages, and note which are cut."""
        quoted: dict[int, str] = {}
        for seq, text in self._said.items():
            if kept := self._kept.get(seq):
                quoted[seq] = _join_passages(text, self._passages[seq], kept)
                if quoted[seq] is not text:
                    self.cut_short.add(seq)
        return quoted


def _join_passages(
    text: str, every: Sequence[_QuotedPassage], kept: Sequence[_QuotedPassage]
) -> str:
    """Join the kept passages of a text as they stood, with `…` where some are left out."""
    taken = {one.place.start for one in kept}
    if len(taken) == len(every) and every[-1].place.end == len(text.rstrip()):
        return text
    pieces: list[str] = []
    begun: int | None = None
    for at, one in enumerate(every):
        if one.place.start not in taken:
            begun = None
            continue
        if begun is None:
            begun = one.place.start
            pieces += ["…"] if at else []
            pieces.append("")
        pieces[-1] = text[begun : one.place.end]
    if every[-1].place.start not in taken or every[-1].place.end < len(text.rstrip()):
        pieces.append("…")
    return " ".join(pieces)


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


def render_narrative(lines: Sequence[Line]) -> str:
    """Render the lines of a narrative under their headings."""
    sections = dict.fromkeys(line.section for line in lines)
    blocks = [
        _render_block(name, [_render_cited_line(one) for one in lines if one.section == name])
        for name in sections
    ]
    return "\n".join(blocks)


def _render_cited_line(line: Line) -> str:
    if line.section == PROSE:  # it rests on the whole span, and cites nothing
        return f"- {line.text}"
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
