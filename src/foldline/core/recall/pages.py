"""A page: as many lines of a text as fit, and the call that goes on.

Knows lines and characters: a line ends at a line feed and nowhere else, and keeps it. Refuses to
know where the text came from.
"""

from collections.abc import Callable
from dataclasses import dataclass

from foldline.core.recall.query import HeadLines, LineRange, Query, TailLines, Whole, call
from foldline.core.tokens import count
from foldline.errors import BadHandle

LEAST = 100
"""The tokens below which an answer has no room beside the line that says what it is."""
_NOTES = ("[line ", "[lines ", "[no line", "[match", "[no match", "[go on:", "[before:")


def page(
    text: str, asked: Query, way: Whole | HeadLines | TailLines | LineRange, *, most: int | None
) -> str:
    """What was asked for of a text, at most `most` tokens long.

    All of it is the text alone; otherwise a note stands on the first line, and the text's own
    characters behind it. A text that begins like a note gets one, so that no text can pose as one.
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
            return _Pages(lines, asked, wanted).last(bound)
        case LineRange(first, last, start):
            if first > total:
                raise BadHandle(f"{call(asked)}: there are {total:,} lines; write tail=20")
            if start > len(lines[first - 1]):
                size = len(lines[first - 1])
                raise BadHandle(f"{call(asked)}: line {first} has {size:,} characters")
            wanted = LineRange(first, min(last, total), start)
    return _Pages(lines, asked, wanted).first(bound)


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that was found to fit, 0 for none, in few tries."""
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
    """The lines of a text, and which of them are wanted."""

    lines: list[str]
    asked: Query
    wanted: LineRange

    def first(self, bound: Callable[[str], bool]) -> str:
        """As many wanted lines as fit; of a line that does not, as many characters."""
        first, last, start = self.wanted.first, self.wanted.last, self.wanted.start
        begun = self.lines[first - 1][start - 1 :]
        total = len(self.lines)

        def whole(number: int) -> str:
            end = first - 1 + number
            rest = LineRange(end + 1, last if end < last else total) if end < total else None
            about = self._about(first, end) + (f", from character {start:,}" if start > 1 else "")
            body = begun + "".join(self.lines[first:end])
            return self._answer(about, "go on", rest, body)

        def piece(number: int, *, brief: bool = False) -> str:
            end = start - 1 + number
            about = "" if brief else self._characters(first, start, end)
            return self._answer(about, "go on", LineRange(first, last, end + 1), begun[:number])

        if number := largest(last - first + 1, lambda n: bound(whole(n))):
            return whole(number)
        if number := largest(len(begun) - 1, lambda n: bound(piece(n))):
            return piece(number)
        # Numbers so long that they leave no room: the call alone.
        number = largest(len(begun) - 1, lambda n: bound(piece(n, brief=True)))
        return piece(max(number, 1), brief=True)

    def last(self, bound: Callable[[str], bool]) -> str:
        """The same from the end."""
        first, total = self.wanted.first, len(self.lines)
        final = self.lines[-1]

        def whole(number: int) -> str:
            begin = total - number + 1
            # All of the tail is there: before it lies as much again.
            least = first if begin > first else max(first - number, 1)
            rest = LineRange(least, begin - 1) if begin > 1 else None
            body = "".join(self.lines[begin - 1 :])
            return self._answer(self._about(begin, total), "before", rest, body)

        def piece(number: int, *, brief: bool = False) -> str:
            start = len(final) - number + 1
            about = "" if brief else self._characters(total, start, len(final))
            return self._answer(about, "before", LineRange(first, total), final[start - 1 :])

        if number := largest(total - first + 1, lambda n: bound(whole(n))):
            return whole(number)
        if number := largest(len(final) - 1, lambda n: bound(piece(n))):
            return piece(number)
        number = largest(len(final) - 1, lambda n: bound(piece(n, brief=True)))
        return piece(max(number, 1), brief=True)

    def _about(self, first: int, last: int) -> str:
        which = f"line {first:,}" if first == last else f"lines {first:,}-{last:,}"
        return f"{which} of {len(self.lines):,}"

    def _characters(self, line: int, first: int, last: int) -> str:
        size = len(self.lines[line - 1])
        return f"{self._about(line, line)}, characters {first:,}-{last:,} of {size:,}"

    def _answer(self, about: str, word: str, rest: LineRange | None, body: str) -> str:
        hint = f"{word}: {call(Query(self.asked.span, rest))}" if rest else ""
        return f"[{'; '.join(part for part in (about, hint) if part)}]\n{body}"


def bound_of(most: int | None) -> Callable[[str], bool]:
    """Whether an answer is small enough."""
    if most is None:
        return lambda _: True
    if most < LEAST:
        raise BadHandle(f"recall within {most} tokens has no room for an answer; give {LEAST}")
    return lambda answer: count(answer) <= most
