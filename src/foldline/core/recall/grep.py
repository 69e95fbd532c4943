"""Grep: the lines of events that match a pattern, numbered, with lines around them.

Knows patterns of RE2, which take time in proportion to the text whatever they are: models write
them. Refuses to match across lines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, cast

from foldline.core.recall.pages import bound_of, largest
from foldline.core.recall.query import Grep, Query, call
from foldline.core.recall.words import RecalledEvent
from foldline.errors import BadHandle

_WIDTH = 400  # characters of one line that are shown where an answer is bounded
_COUNTED = 10_000  # matches ahead that are counted: each takes microseconds
_REFUSED = {
    b"invalid perl operator": "groups that look ahead or behind, keep or name in Perl's way, are "
    "not supported; write what matches itself, or (?i)error, (?:a|b), (?P<name>x)",
    b"invalid escape sequence": r"references back to a group, \Z and \K are not supported; "
    r"write the words themselves, $ or \z",
    b"invalid repetition size": "repeats count to 1,000; write * or +",
    b"bad repetition operator": "a repeat cannot be repeated; write one of * + ? {2,9}",
    b"pattern too large": "write a shorter pattern with smaller repeats",
}
_OTHERWISE = r"write a backslash before ( ) [ ] { } * + ? . | that stand for themselves"


@dataclass(frozen=True, slots=True)
class _Hit:
    """A line that matches: of which text, its number from 1, and from which character on."""

    entry: int
    line: int
    at: int


class _Pattern(Protocol):
    def search(self, text: bytes, pos: int) -> "_Match | None": ...


class _Match(Protocol):
    def start(self) -> int: ...


def matching(entries: Sequence[RecalledEvent], asked: Query, way: Grep, *, most: int | None) -> str:
    """The matching lines behind the first `skip` ones, as many as fit `most` tokens."""
    pattern = _compiled(asked, way)
    said = [one for one in entries if one.words is not None]
    texts = [(one.words or "").encode("utf-8", "surrogatepass") for one in said]
    every = (hit for index, body in enumerate(texts) for hit in _hits(index, body, pattern))
    hits = list(every if most is None else islice(every, way.skip + _COUNTED))
    total, left = len(hits), hits[way.skip :]
    more = " or more" if most is not None and len(left) == _COUNTED else ""
    if not left:
        lines = sum(body.count(b"\n") + (not body.endswith(b"\n")) for body in texts if body)
        after = f" after the first {way.skip:,}" if total else ""
        return f"[no match{after} in {lines:,} lines; (?i) before a pattern ignores case]"
    shown = _Shown([one.title for one in said], [(one.words or "").split("\n") for one in said])

    def answer(number: int, *, around: int, width: int | None) -> str:
        upto = way.skip + number
        rest = Query(asked.span, Grep(way.pattern, way.around, upto)) if upto < total else None
        which = f"{way.skip + 1:,}-{upto:,}" if number > 1 else f"{upto:,}"
        note = f"[match{'es' if number > 1 else ''} {which} of {total:,}{more}"
        note += f"; go on: {call(rest)}]" if rest else "]"
        return f"{note}\n{shown.lines(left[:number], around=around, width=width)}"

    fits = bound_of(most)
    width = None if most is None else _WIDTH
    if number := largest(len(left), lambda n: fits(answer(n, around=way.around, width=width))):
        return answer(number, around=way.around, width=width)
    if width := largest(_WIDTH, lambda n: fits(answer(1, around=0, width=n))):
        return answer(1, around=0, width=width)
    raise BadHandle(f"{call(asked)} leaves no room for an answer; write a shorter pattern")


@dataclass(frozen=True, slots=True)
class _Shown:
    """The titles and lines of all texts."""

    titles: list[str]
    texts: list[list[str]]

    def lines(self, hits: Sequence[_Hit], *, around: int, width: int | None) -> str:
        """Matches as `12: line`, lines around them as `11- line`, -- where some are left out."""
        wanted: dict[tuple[int, int], int | None] = {}
        for hit in hits:
            last = len(self.texts[hit.entry])
            for line in range(max(hit.line - around, 1), min(hit.line + around, last) + 1):
                wanted.setdefault((hit.entry, line), None)
            wanted[hit.entry, hit.line] = hit.at
        found: list[str] = []
        before = (-1, 0)
        for (entry, line), at in sorted(wanted.items(), key=lambda one: one[0]):
            if entry != before[0] and len(self.texts) > 1:
                found.append(self.titles[entry])
            elif found and before != (entry, line - 1):
                found.append("--")
            words = _cut(self.texts[entry][line - 1], at or 0, width)
            found.append(f"{line}{'-' if at is None else ':'} {words}")
            before = entry, line
        return "\n".join(found)


def _cut(line: str, at: int, width: int | None) -> str:
    """A line, or of one that is too long the characters around a place, and which they are."""
    if width is None or len(line) <= width:
        return line
    start = max(min(at - width // 4, len(line) - width), 0)
    return (
        f"[characters {start + 1:,}-{start + width:,} of {len(line):,}] "
        + (line[start : start + width])
    )


def _hits(entry: int, body: bytes, pattern: _Pattern) -> Iterator[_Hit]:
    """One hit for each line that matches; no line is looked at twice."""
    at, line, counted = 0, 1, 0
    while at < len(body) and (found := pattern.search(body, at)) is not None:
        start = found.start()
        begin = body.rfind(b"\n", 0, start) + 1
        if begin >= len(body):
            return  # behind the last line end there is no line
        line += body.count(b"\n", counted, begin)
        counted = begin
        yield _Hit(entry, line, len(body[begin:start].decode("utf-8", "replace")))
        end = body.find(b"\n", start)
        if end < 0:
            return
        at = end + 1


def _compiled(asked: Query, way: Grep) -> _Pattern:
    import re2  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] - only who greps waits

    engine = cast("Any", re2)
    options = engine.Options()
    options.log_errors = False
    options.never_nl = True
    try:
        return engine.compile(b"(?m)" + way.pattern.encode("utf-8", "replace"), options)
    except engine.error as fault:
        said = fault.args[0] if fault.args else b""
        reason = said if isinstance(said, bytes) else str(said).encode()
        advice = next((words for sign, words in _REFUSED.items() if sign in reason), _OTHERWISE)
        raise BadHandle(f"{call(asked)}: {reason.decode('utf-8', 'replace')}; {advice}") from fault
