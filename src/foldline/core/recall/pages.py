"""Render a page of a text, or the lines that match a pattern, with the call that continues.

A line ends at a line feed and nowhere else, and keeps it. Patterns are RE2's, because models write
them: whatever the pattern, matching takes time linear in the text. None matches across lines.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol, cast

from foldline.core.recall.query import (
    Grep,
    HeadLines,
    LineRange,
    Query,
    RecalledEvent,
    TailLines,
    Whole,
    render_call,
)
from foldline.core.spine import Range
from foldline.core.token_bounds import count_cautiously
from foldline.core.tokens import count_tokens
from foldline.errors import BadHandle

_WIDTH = 400  # characters of a line that a bounded answer shows
_COUNTED = 10_000  # matches that are counted ahead: each takes microseconds
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
    """A line that matches: the text's index, the line's number from 1, the match's character."""

    entry: int
    line: int
    at: int


class _Pattern(Protocol):
    def search(self, text: bytes, pos: int) -> "_Match | None": ...


class _Match(Protocol):
    def start(self) -> int: ...


def render_grep_matches(
    entries: Sequence[RecalledEvent], asked: Query, way: Grep, *, most: int | None
) -> str:
    """Render the matching lines after the first `skip`, as many as fit in `most` tokens.

    Handoffs repeat what other events said, so they are searched only if nothing else is asked for.
    """
    spoken = [entry for entry in entries if entry.words is not None]
    said = [entry for entry in spoken if entry.kind != _FOLDED] or spoken
    texts = [(entry.words or "").encode("utf-8", "surrogatepass") for entry in said]
    pattern = _build_pattern(asked, way)
    every = (hit for index, body in enumerate(texts) for hit in _iterate_hits(index, body, pattern))
    hits = list(every if most is None else islice(every, way.skip + _COUNTED))
    if len(hits) <= way.skip:
        lines = sum(body.count(b"\n") + (not body.endswith(b"\n")) for body in texts if body)
        after = f" after the first {way.skip:,}" if hits else ""
        return f"[no match{after} in {lines:,} lines; (?i) before a pattern ignores case]"
    stopped = most is not None and len(hits) == way.skip + _COUNTED
    answer = _GrepAnswer(
        asked.span,
        way,
        hits,
        f"{len(hits):,}{' or more' if stopped else ''}",
        titles=[entry.title for entry in said],
        texts=[(entry.words or "").split("\n") for entry in said],
    )
    return answer.render_within(bound_of(most), width=None if most is None else _WIDTH)


@dataclass(frozen=True, slots=True)
class _GrepAnswer:
    """All matches, from which an answer of any size can be rendered."""

    span: Range
    way: Grep
    hits: Sequence[_Hit]
    total: str
    titles: Sequence[str]
    texts: Sequence[Sequence[str]]

    def render_within(self, fits: Callable[[str], bool], *, width: int | None) -> str:
        """Render as many matches as fit; if not even one does, as much of the first as fits."""
        around, left = self.way.around, len(self.hits) - self.way.skip
        if number := find_largest_fit(left, lambda n: fits(self.render(n, around, width))):
            return self.render(number, around, width)
        if width := find_largest_fit(_WIDTH, lambda n: fits(self.render(1, 0, n))):
            return self.render(1, 0, width)
        call = render_call(Query(self.span, self.way))
        raise BadHandle(f"{call} leaves no room for an answer; write a shorter pattern")

    def render(self, number: int, around: int, width: int | None) -> str:
        """Render so many matches under a note that counts them and says how to go on."""
        first, end = self.way.skip, self.way.skip + number
        which = f"es {first + 1:,}-{end:,}" if number > 1 else f" {end:,}"
        rest = Query(self.span, replace(self.way, skip=end))
        more = f"; go on: {render_call(rest)}" if end < len(self.hits) else ""
        lines = self._render_lines(self.hits[first:end], around, width)
        return "\n".join((f"[match{which} of {self.total}{more}]", *lines))

    def _render_lines(self, hits: Sequence[_Hit], around: int, width: int | None) -> Iterator[str]:
        """Yield matches as `12: line`, lines around them as `11- line`, `--` for a gap."""
        wanted: dict[tuple[int, int], int | None] = {}  # (text, line) → where it matches
        for hit in hits:
            last = len(self.texts[hit.entry])
            for line in range(max(hit.line - around, 1), min(hit.line + around, last) + 1):
                wanted.setdefault((hit.entry, line), None)
            wanted[hit.entry, hit.line] = hit.at
        before: tuple[int, int] | None = None
        for entry, line in sorted(wanted):
            if len(self.texts) > 1 and (before is None or entry != before[0]):
                yield self.titles[entry]
            elif before is not None and before != (entry, line - 1):
                yield "--"
            at = wanted[entry, line]
            words = _truncate_line(self.texts[entry][line - 1], at or 0, width)
            yield f"{line}{'-' if at is None else ':'} {words}"
            before = entry, line


def _truncate_line(line: str, at: int, width: int | None) -> str:
    """Cut a line that is too long to the characters around `at`, and say which they are."""
    if width is None or len(line) <= width:
        return line
    start = max(min(at - width // 4, len(line) - width), 0)
    end = start + width
    return f"[characters {start + 1:,}-{end:,} of {len(line):,}] {line[start:end]}"


def _iterate_hits(entry: int, body: bytes, pattern: _Pattern) -> Iterator[_Hit]:
    """Yield one hit for each line that matches; no line is searched twice."""
    at, line, counted = 0, 1, 0
    while at < len(body) and (found := pattern.search(body, at)) is not None:
        start = found.start()
        begin = body.rfind(b"\n", 0, start) + 1
        if begin >= len(body):
            return  # there is no line behind the last line end
        line += body.count(b"\n", counted, begin)
        counted = begin
        yield _Hit(entry, line, len(body[begin:start].decode("utf-8", "replace")))
        end = body.find(b"\n", start)
        if end < 0:
            return
        at = end + 1


def _build_pattern(asked: Query, way: Grep) -> _Pattern:
    import re2  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] - slow, for grep only

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
        raise BadHandle(
            f"{render_call(asked)}: {reason.decode('utf-8', 'replace')}; {advice}"
        ) from fault


_FOLDED = "folded"
LEAST = 100
"""The fewest tokens in which an answer has room beside its note."""
_NOTES = ("[line ", "[lines ", "[no line", "[match", "[no match", "[go on:", "[before:")


def render_page(
    text: str, asked: Query, way: Whole | HeadLines | TailLines | LineRange, *, most: int | None
) -> str:
    """Render the part of a text that a query asks for, in at most `most` tokens.

    A whole text stands alone; otherwise a note is the first line, and the text's own characters
    follow. A text that begins like a note gets one, so that no text can pose as one.
    """
    bound = bound_of(most)
    if isinstance(way, Whole) and (most is None or (bound(text) and not text.startswith(_NOTES))):
        return text
    lines = text.split("\n")
    lines = [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    total = len(lines)
    if not total:
        return "[no lines]"
    match way:
        case Whole():
            wanted = LineRange(1, total)
        case HeadLines(number):
            wanted = LineRange(1, min(number, total))
        case TailLines(number):
            wanted = LineRange(max(total - number, 0) + 1, total)
            return _Pages(lines, asked, wanted).render_tail(bound)
        case LineRange(first, last, start):
            if first > total:
                raise BadHandle(f"{render_call(asked)}: there are {total:,} lines; write tail=20")
            if start > len(lines[first - 1]):
                size = len(lines[first - 1])
                raise BadHandle(f"{render_call(asked)}: line {first} has {size:,} characters")
            wanted = LineRange(first, min(last, total), start)
    return _Pages(lines, asked, wanted).render_head(bound)


def find_largest_fit(most: int, fits: Callable[[int], bool]) -> int:
    """Find a large number up to `most` that fits, by doubling and halving; 0 if none does."""
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True, slots=True)
class _Pages:
    """The lines of a text, and the range that is wanted."""

    lines: list[str]
    asked: Query
    wanted: LineRange

    def render_head(self, bound: Callable[[str], bool]) -> str:
        """Render as many wanted lines as fit, or as much of the first as fits."""
        first, last, start = self.wanted.first, self.wanted.last, self.wanted.start
        begun = self.lines[first - 1][start - 1 :]
        total = len(self.lines)

        def render_head_lines(number: int) -> str:
            end = first - 1 + number
            rest = LineRange(end + 1, last if end < last else total) if end < total else None
            about = self._describe_lines(first, end)
            about += f", from character {start:,}" if start > 1 else ""
            body = begun + "".join(self.lines[first:end])
            return self._render_answer(about, "go on", rest, body)

        def render_head_characters(number: int, *, brief: bool = False) -> str:
            end = start - 1 + number
            about = "" if brief else self._describe_characters(first, start, end)
            rest = LineRange(first, last, end + 1)
            return self._render_answer(about, "go on", rest, begun[:number])

        if number := find_largest_fit(last - first + 1, lambda n: bound(render_head_lines(n))):
            return render_head_lines(number)
        if number := find_largest_fit(len(begun) - 1, lambda n: bound(render_head_characters(n))):
            return render_head_characters(number)
        # The numbers are so long that they leave no room: the note names the call alone.
        number = find_largest_fit(
            len(begun) - 1, lambda n: bound(render_head_characters(n, brief=True))
        )
        return render_head_characters(max(number, 1), brief=True)

    def render_tail(self, bound: Callable[[str], bool]) -> str:
        """Render as many lines from the end as fit, or as much of the last as fits."""
        first, total = self.wanted.first, len(self.lines)
        final = self.lines[-1]

        def render_tail_lines(number: int) -> str:
            begin = total - number + 1
            # If all of the tail is shown, the next call asks for as much again before it.
            least = first if begin > first else max(first - number, 1)
            rest = LineRange(least, begin - 1) if begin > 1 else None
            body = "".join(self.lines[begin - 1 :])
            return self._render_answer(self._describe_lines(begin, total), "before", rest, body)

        def render_tail_characters(number: int, *, brief: bool = False) -> str:
            start = len(final) - number + 1
            about = "" if brief else self._describe_characters(total, start, len(final))
            return self._render_answer(about, "before", LineRange(first, total), final[start - 1 :])

        if number := find_largest_fit(total - first + 1, lambda n: bound(render_tail_lines(n))):
            return render_tail_lines(number)
        if number := find_largest_fit(len(final) - 1, lambda n: bound(render_tail_characters(n))):
            return render_tail_characters(number)
        number = find_largest_fit(
            len(final) - 1, lambda n: bound(render_tail_characters(n, brief=True))
        )
        return render_tail_characters(max(number, 1), brief=True)

    def _describe_lines(self, first: int, last: int) -> str:
        which = f"line {first:,}" if first == last else f"lines {first:,}-{last:,}"
        return f"{which} of {len(self.lines):,}"

    def _describe_characters(self, line: int, first: int, last: int) -> str:
        size = len(self.lines[line - 1])
        return f"{self._describe_lines(line, line)}, characters {first:,}-{last:,} of {size:,}"

    def _render_answer(self, about: str, word: str, rest: LineRange | None, body: str) -> str:
        hint = f"{word}: {render_call(Query(self.asked.span, rest))}" if rest else ""
        return f"[{'; '.join(part for part in (about, hint) if part)}]\n{body}"


def bound_of(most: int | None) -> Callable[[str], bool]:
    """Return a check that an answer takes at most `most` tokens; None allows any size."""
    if most is None:
        return lambda _: True
    if most < LEAST:
        raise BadHandle(f"recall within {most} tokens has no room for an answer; give {LEAST}")
    return lambda answer: max(count_tokens(answer), count_cautiously(answer)) <= most
