"""Parse and render recall queries, and render the words of the events they name.

A query is a handle and one way to look at what it names. A handle is a place in the session's own
log, `log:12`, or a span of it, `log:12-40`. Parsing accepts what models write: handles, calls, and
every marker that Foldline leaves.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from foldline.core.log import (
    Event,
    Folded,
    Instructed,
    Logged,
    ModelSaid,
    ToolReturned,
    UserSaid,
    event_kind_of,
)
from foldline.core.names import format_handle
from foldline.core.parts import Call, Gap, Media, Part, Text, Thought
from foldline.core.spine import Range
from foldline.errors import BadHandle


@dataclass(frozen=True, slots=True)
class RecalledEvent:
    """One event: its place, its kind, and its words, or None."""

    seq: int
    kind: str
    words: str | None

    @property
    def title(self) -> str:
        """The line above the words."""
        return f"[{format_handle(self.seq)} {self.kind}]"


def list_recalled_events(events: Iterable[Logged], *, bulk: bool) -> list[RecalledEvent]:
    """List what events said; `bulk` spells out the data of media, else they are named."""
    return [
        RecalledEvent(seq, event_kind_of(event), render_whole_event(event, bulk=bulk))
        for seq, event in events
    ]


def render_recalled_text(found: Sequence[RecalledEvent], absent: Iterable[Range] = ()) -> str:
    """Render one text: a single event's words as they were, several each under its handle."""
    said = [(one.seq, f"{one.title}\n{one.words}") for one in found if one.words is not None]
    lost = [
        (span.lo, f"[{format_handle(span.lo, span.hi)}: not in this session's log]")
        for span in absent
    ]
    if not said:
        lost += [(one.seq, f"[{format_handle(one.seq)} {one.kind}: no words]") for one in found]
    elif len(said) == 1 and not lost:
        return next(one.words for one in found if one.words is not None)
    return "\n".join(line for _, line in sorted(said + lost))


def render_whole_event(event: Event, *, bulk: bool = True) -> str | None:
    """Render what an event said, unshortened; None for events that say nothing to a model."""
    match event:
        case UserSaid(parts) | ModelSaid(parts) | Instructed(parts):
            return _render_parts(parts, bulk=bulk)
        case ToolReturned(_, parts):
            return _render_parts(parts, bulk=bulk)
        case Folded():
            return event.text
        case _:
            return None


def list_missing_ranges(span: Range, events: Iterable[Logged]) -> tuple[Range, ...]:
    """List the places of a span that are not among the events."""
    assert span.hi is not None, "an open span misses nothing"  # noqa: S101
    missing: list[Range] = []
    at = span.lo
    for seq in sorted({one.seq for one in events if span.lo <= one.seq <= span.hi}):
        if seq > at:
            missing.append(Range(at, seq - 1))
        at = seq + 1
    if at <= span.hi:
        missing.append(Range(at, span.hi))
    return tuple(missing)


def make_missing_error(span: Range, *, end: int | None = None) -> BadHandle:
    """Make the error for a span that is not there; `end` is the log's last place, if known."""
    place = format_handle(span.lo, span.hi)
    if end is None:
        return BadHandle(f"{place} is not in this session's log; use a handle that stands in it")
    if end < 0:
        return BadHandle(f"{place} is beyond this session's log, which is empty")
    if span.lo > end:
        return BadHandle(
            f"{place} is beyond this session's log, which ends at {end}; "
            f"write {format_handle(0, end)} or a part of it"
        )
    return BadHandle(
        f"{place} is no longer in this session's log, which ends at {end}: it was erased"
    )


def _render_parts(parts: tuple[Part, ...], *, bulk: bool) -> str:
    lines: list[str] = []
    for part in parts:
        match part:
            case Text(text) | Gap(text) | Thought(text):
                lines.append(text)
            case Call(_, name, arguments):
                lines.append(f"{name} {arguments}")
            case Media():
                lines.append(_render_media(part, bulk=bulk))
    return "\n".join(lines)


def _render_media(part: Media, *, bulk: bool) -> str:
    """Render media by its data, or by its name, kind and size."""
    if bulk:
        data = part.url or f"data:{part.mime};base64,{part.base64}"
        return f"[{part.form} {part.name} {data}]"
    size = len(part.base64.rstrip("=")) * 3 // 4
    where = part.url if part.url and not part.base64 else f"{size:,} bytes"
    return f"[{' '.join(word for word in (part.form, part.name, part.mime, where) if word)}]"


_LONGEST = 4_000  # characters of a query: a stub or a call is far shorter
# All linear: each is tried at one place, and no two neighbours can match the same character.
_PLACE = re.compile(r"(?:log:)?(\d{1,18})(?:\s*-\s*(?:log:)?(\d{1,18}))?(?!\d)")
_NAMED = re.compile(r"\blog:(\d{1,18})(?:-(?:log:)?(\d{1,18}))?(?!\d)")
_FIRST = re.compile(r"\s*(?:handle\s*=\s*)?[\"']?\[?(?P<place>[^\"',()\[\]]*)\]?[\"']?\s*")
_NEXT = re.compile(r",\s*(?P<name>[a-z]{1,20})\s*=\s*")
_NUMBER = re.compile(r"(\d{1,18})\s*")
_PAIR = re.compile(r"[\[(\"']\s*(\d{1,18})\s*[,-]\s*(\d{1,18})\s*[\])\"']\s*")
_STRING = re.compile(r"r?(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)')\s*")
_BARE_QUOTE = re.compile(r'(\\.)|"')
_WAYS = 'head=20, tail=20, lines=(1, 20) or grep="error"'


@dataclass(frozen=True, slots=True)
class Whole:
    """All of it."""


@dataclass(frozen=True, slots=True)
class HeadLines:
    """The first lines."""

    lines: int


@dataclass(frozen=True, slots=True)
class TailLines:
    """The last lines."""

    lines: int


@dataclass(frozen=True, slots=True)
class LineRange:
    """Lines `first` to `last`, from 1, both included; `start` is a character of the first."""

    first: int
    last: int
    start: int = 1


@dataclass(frozen=True, slots=True)
class Grep:
    """The matching lines after the first `skip`, each with `around` lines on both sides."""

    pattern: str
    around: int = 0
    skip: int = 0


Way: TypeAlias = Whole | HeadLines | TailLines | LineRange | Grep


@dataclass(frozen=True, slots=True)
class Query:
    """The places to recall, and how to look at them."""

    span: Range
    way: Way = Whole()

    def __post_init__(self) -> None:
        if self.span.hi is None:
            raise BadHandle(f"log:{self.lo} to an open end; a handle names its end: log:12-40")
        if self.hi < self.lo:
            raise BadHandle(
                f"log:{self.lo}-{self.hi} ends before it begins; write log:{self.hi}-{self.lo}"
            )
        match self.way:
            case HeadLines(lines) | TailLines(lines) if lines < 1:
                raise BadHandle(f"{render_call(self)} asks for no line; write {_WAYS}")
            case Grep(pattern, around, skip) if not pattern or around < 0 or skip < 0:
                raise BadHandle(
                    f"{render_call(self)} asks for nothing that could match; write {_WAYS}"
                )
            case LineRange(first, last, start) if not 1 <= first <= last or start < 1:
                raise BadHandle(
                    f"{render_call(self)}: lines count from 1, the first before the last, and "
                    "start is a character of the first, from 1; write lines=(1, 20)"
                )
            case _:
                pass

    @property
    def lo(self) -> int:
        """The first place."""
        return self.span.lo

    @property
    def hi(self) -> int:
        """The last place."""
        return self.span.lo if self.span.hi is None else self.span.hi


def render_call(asked: Query) -> str:
    """Render the literal call for a query: `parse_query` reads it back."""
    match asked.way:
        case Whole():
            way = ""
        case HeadLines(lines):
            way = f", head={lines}"
        case TailLines(lines):
            way = f", tail={lines}"
        case LineRange(first, last, start):
            way = f", lines=({first}, {last})" + (f", start={start}" if start != 1 else "")
        case Grep(pattern, around, skip):
            way = f", grep={_quote_pattern(pattern)}" + (f", around={around}" if around else "")
            way += f", skip={skip}" if skip else ""
    return f'recall("{format_handle(asked.lo, asked.hi)}"{way})'


def build_query(  # noqa: PLR0913 - the arguments of the call that models write
    place: str,
    *,
    head: int | None = None,
    tail: int | None = None,
    lines: tuple[int, int] | None = None,
    start: int | None = None,
    grep: str | None = None,
    around: int | None = None,
    skip: int | None = None,
) -> Query:
    """Build a query from a call's arguments, of which at most one says how to look."""
    span = _parse_span(place)
    ways: list[Way] = []
    if head is not None:
        ways.append(HeadLines(head))
    if tail is not None:
        ways.append(TailLines(tail))
    if lines is not None:
        ways.append(LineRange(*lines, start=1 if start is None else start))
    if grep is not None:
        ways.append(Grep(grep, around or 0, skip or 0))
    if len(ways) > 1:
        raise BadHandle(f"recall of {place} looks in one way at a time; write {_WAYS}")
    if start is not None and lines is None:
        raise BadHandle(f"recall of {place}: start= goes with lines=; write lines=(1, 20), start=1")
    if (around is not None or skip is not None) and grep is None:
        raise BadHandle(
            f'recall of {place}: around= and skip= go with grep=; write grep="error", around=2'
        )
    return Query(span, *ways)


def parse_query(text: str) -> Query:
    """Parse what a model wrote: a handle, a call, or a marker that Foldline left."""
    text = str(text)  # models also pass numbers
    if len(text) <= _LONGEST:
        lines = [line for one in text.split("\n") if (line := one.strip())]
        if len(lines) == 1 and _PLACE.fullmatch(bare := lines[0].strip("[] \t`\"'")):
            return build_query(bare)
        for line in lines:
            if "recall(" in line:
                return _parse_call(line[line.index("recall(") + len("recall(") :])
            if (place := _find_marked_place(line)) is not None:
                return build_query(place)
    raise BadHandle(
        f"{_truncate_text(text)} is not a handle; write log:12 for an event, log:12-40 for "
        f'a span, or recall("log:12", ...) with {_WAYS}'
    )


def parse_place(place: int | str) -> int:
    """Return the one place that a number or a handle names."""
    if isinstance(place, int):
        return place
    query = parse_query(place)
    if query.lo != query.hi:
        raise BadHandle(
            f"{_truncate_text(place)} is a span; name one message of it, such as log:{query.lo}"
        )
    return query.lo


def _find_marked_place(line: str) -> str | None:
    """Find the one place that a marker in brackets names, or that a handoff's line begins with."""
    if line.startswith("[") and line.endswith("]"):
        places = {format_handle(int(lo), int(hi or lo)) for lo, hi in _NAMED.findall(line)}
        return places.pop() if len(places) == 1 else None
    begun = _NAMED.match(line)
    return begun[0] if begun and line.startswith(":", begun.end()) else None


def _parse_call(text: str) -> Query:
    """Parse a call from behind its opening parenthesis."""
    first = _FIRST.match(text)
    at = first.end() if first else 0
    place = first["place"].strip() if first else ""
    options: dict[str, int | str | tuple[int, int]] = {}
    while found := _NEXT.match(text, at):
        name, begin = found["name"], found.end()
        value: int | str | tuple[int, int]
        if read := _PAIR.match(text, begin) if name == "lines" else None:
            value = int(read[1]), int(read[2])
        elif read := _NUMBER.match(text, begin):
            value = int(read[1])
        elif read := _STRING.match(text, begin):
            inside, mark = (read[2], "'") if read[1] is None else (read[1], '"')
            value = inside.replace(f"\\{mark}", mark)
        else:
            break
        options[name], at = value, read.end()
    if not text.startswith(")", at):
        raise BadHandle(
            f"{_truncate_text('recall(' + text)} breaks off at {_truncate_text(text[at:])}; "
            f'write recall("log:12") or recall("log:12", ...) with {_WAYS}'
        )
    return _build_call_query(place, options)


def _build_call_query(place: str, options: dict[str, int | str | tuple[int, int]]) -> Query:
    numbers: dict[str, int] = {}
    lines: tuple[int, int] | None = None
    pattern: str | None = None
    for name, value in options.items():
        match name, value:
            case "lines", (first, last):
                lines = first, last
            case "grep", str():
                pattern = value
            case (("head" | "tail" | "start" | "around" | "skip"), int()):
                numbers[name] = value
            case _:
                raise BadHandle(f"recall of {place}: {name}={value!r} is no way; write {_WAYS}")
    return build_query(place, lines=lines, grep=pattern, **numbers)


def _parse_span(place: str) -> Range:
    found = _PLACE.fullmatch(place.strip())
    if found is None:
        raise BadHandle(
            f"{_truncate_text(place)} is not a handle; write log:12 for an event or log:12-40 "
            "for a span, with the numbers that stand where something was cut"
        )
    return Range(int(found[1]), int(found[2] or found[1]))


def _quote_pattern(pattern: str) -> str:
    """Quote a pattern on one line; quotes that are escaped already stay as they are."""
    pattern = pattern.replace("\n", "\\n")
    if '"' in pattern and "'" not in pattern:
        return f"'{pattern}'"
    return '"' + _BARE_QUOTE.sub(lambda found: found[1] or '\\"', pattern) + '"'


def _truncate_text(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")  # noqa: PLR2004
