"""A question to recall: a handle, and one way to look at what it names.

A handle is a place in the session's own log, `log:12`, or a span of it, `log:12-40`. Knows how
both are written, and reads what models make of that: handles, calls, and every marker that
Foldline leaves. Refuses to know events.
"""

import re
from dataclasses import dataclass
from typing import TypeAlias

from foldline.core.handles import handle
from foldline.core.spine import Range
from foldline.errors import BadHandle

_LONGEST = 4_000  # characters of a question: a stub or a call is far shorter
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
    """From one line to another, counted from 1, both included; `start` is a character."""

    first: int
    last: int
    start: int = 1


@dataclass(frozen=True, slots=True)
class Grep:
    """The lines that match, behind the first `skip` of them, each with some lines around it."""

    pattern: str
    around: int = 0
    skip: int = 0


Way: TypeAlias = Whole | HeadLines | TailLines | LineRange | Grep


@dataclass(frozen=True, slots=True)
class Query:
    """The places that are asked for, and how they are looked at."""

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
                raise BadHandle(f"{call(self)} asks for no line; write {_WAYS}")
            case Grep(pattern, around, skip) if not pattern or around < 0 or skip < 0:
                raise BadHandle(f"{call(self)} asks for nothing that could match; write {_WAYS}")
            case LineRange(first, last, start) if not 1 <= first <= last or start < 1:
                raise BadHandle(
                    f"{call(self)}: lines count from 1, the first before the last, and start "
                    "is a character of the first, from 1; write lines=(1, 20)"
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


def call(asked: Query) -> str:
    """The literal call that asks this: `parse` reads it back."""
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
            way = f", grep={_quoted(pattern)}" + (f", around={around}" if around else "")
            way += f", skip={skip}" if skip else ""
    return f'recall("{handle(asked.lo, asked.hi)}"{way})'


def look(  # noqa: PLR0913 - the arguments of the call that models write
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
    """A query from a call's arguments, of which one says how to look."""
    span = _span(place)
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


def parse(text: str) -> Query:
    """The query in what a model wrote: a handle, a call, or a marker that Foldline left."""
    text = str(text)  # a number is no handle, and is told so
    if len(text) <= _LONGEST:
        lines = [line for one in text.split("\n") if (line := one.strip())]
        if len(lines) == 1 and _PLACE.fullmatch(bare := lines[0].strip("[] \t`\"'")):
            return look(bare)
        for line in lines:
            if "recall(" in line:
                return _call(line[line.index("recall(") + len("recall(") :])
            if (place := _marked(line)) is not None:
                return look(place)
    raise BadHandle(
        f"{_short(text)} is not a handle; write log:12 for an event, log:12-40 for a span, or "
        f'recall("log:12", ...) with {_WAYS}'
    )


def place(given: int | str) -> int:
    """The one place that a number or a handle names."""
    if isinstance(given, int):
        return given
    found = parse(given)
    if found.lo != found.hi:
        raise BadHandle(
            f"{_short(given)} is a span; name one message of it, such as log:{found.lo}"
        )
    return found.lo


def _marked(line: str) -> str | None:
    """The one place that a marker in brackets names, or that a line of a handoff begins with."""
    if line.startswith("[") and line.endswith("]"):
        found = {handle(int(lo), int(hi or lo)) for lo, hi in _NAMED.findall(line)}
        return found.pop() if len(found) == 1 else None
    begun = _NAMED.match(line)
    return begun[0] if begun and line.startswith(":", begun.end()) else None


def _call(text: str) -> Query:
    """The query of a call, from behind its opening bracket."""
    first = _FIRST.match(text)
    at = first.end() if first else 0
    place = first["place"].strip() if first else ""
    given: dict[str, int | str | tuple[int, int]] = {}
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
        given[name], at = value, read.end()
    if not text.startswith(")", at):
        raise BadHandle(
            f"{_short('recall(' + text)} breaks off at {_short(text[at:])}; "
            f'write recall("log:12") or recall("log:12", ...) with {_WAYS}'
        )
    return _checked(place, given)


def _checked(place: str, given: dict[str, int | str | tuple[int, int]]) -> Query:
    numbers: dict[str, int] = {}
    lines: tuple[int, int] | None = None
    pattern: str | None = None
    for name, value in given.items():
        match name, value:
            case "lines", (first, last):
                lines = first, last
            case "grep", str():
                pattern = value
            case (("head" | "tail" | "start" | "around" | "skip"), int()):
                numbers[name] = value
            case _:
                raise BadHandle(f"recall of {place}: {name}={value!r} is no way; write {_WAYS}")
    return look(
        place,
        head=numbers.get("head"),
        tail=numbers.get("tail"),
        lines=lines,
        start=numbers.get("start"),
        grep=pattern,
        around=numbers.get("around"),
        skip=numbers.get("skip"),
    )


def _span(place: str) -> Range:
    found = _PLACE.fullmatch(place.strip())
    if found is None:
        raise BadHandle(
            f"{_short(place)} is not a handle; write log:12 for an event or log:12-40 for a span, "
            "with the numbers that stand where something was cut"
        )
    return Range(int(found[1]), int(found[2] or found[1]))


def _quoted(pattern: str) -> str:
    """A pattern between quotes, on one line; a mark that is escaped already stays as it is."""
    pattern = pattern.replace("\n", "\\n")
    if '"' in pattern and "'" not in pattern:
        return f"'{pattern}'"
    return '"' + _BARE_QUOTE.sub(lambda found: found[1] or '\\"', pattern) + '"'


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")  # noqa: PLR2004
