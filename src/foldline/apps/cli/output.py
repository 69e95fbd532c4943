"""What a terminal is given: tables, wrapped lines, sizes and times, words of strangers made safe.

Knows columns, colours and whether somebody looks. Refuses to know what is told.
"""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, Literal, TypeAlias

import msgspec

from foldline.draw.text import clean, fit, width

PLAIN = 80  # columns where nobody looks
Style: TypeAlias = Literal["strong", "dim", "green", "yellow", "red"]
_CODES: dict[Style, str] = {
    "strong": "1",
    "dim": "2",
    "green": "32",
    "yellow": "33",
    "red": "31",
}
_GAP = " "
_STEP, _TEN = 1_000, 10
_AGES = (("y", 31_536_000), ("d", 86_400), ("h", 3_600), ("m", 60))


def columns() -> int:
    """How wide the terminal is; 80 where there is none."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return PLAIN
    return max(shutil.get_terminal_size((PLAIN, 24)).columns, 20)


def coloured() -> bool:
    """Whether colours are wanted: a terminal that has them, and nobody who said no."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return wanted and sys.stdout.isatty()


def paint(text: str, style: Style | None) -> str:
    """A text in a style, where colours are wanted."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and text and coloured() else text


def say(*lines: str) -> None:
    """Lines for whoever looks."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def remark(text: str) -> None:
    """A line beside the answer, never inside it."""
    sys.stderr.write(f"foldline: {clean(text)}\n")


def document(body: Any) -> None:
    """The one JSON document of `--json`."""
    encoded = msgspec.json.format(msgspec.json.encode(body), indent=2)
    sys.stdout.write(f"{encoded.decode()}\n")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, at `most` so wide where room is short; None takes what is left."""

    title: str
    most: int | None = None
    right: bool = False
    whole: bool = False
    """Whether it is never cut: what a person must type. Where it is wider than `most`, the others
    have less room in a terminal, and a program gets longer lines."""


def table(heads: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows in columns that never exceed the terminal but by what is whole; a cut ends in dots."""
    cells = [[clean(cell) for cell in row] for row in rows]
    wide = [
        max([len(head.title), *(width(row[at]) for row in cells)]) for at, head in enumerate(heads)
    ]
    kept = [(need, head.most or 0) for need, head in zip(wide, heads, strict=True) if head.whole]
    line = max([columns(), *(need for need, _ in kept)])
    if not sys.stdout.isatty():
        line = max(line, columns() + sum(max(need - most, 0) for need, most in kept))
    room = line - len(_GAP) * (len(heads) - 1)
    if sum(wide) > room:
        wide = [
            need if head.whole or head.most is None else min(need, max(head.most, len(head.title)))
            for need, head in zip(wide, heads, strict=True)
        ]
        free = [at for at, head in enumerate(heads) if head.most is None]
        rest = room - sum(need for at, need in enumerate(wide) if at not in free)
        for at in free:
            wide[at] = min(wide[at], max(rest // len(free), 1))
    titles = [head.title for head in heads]
    first, *lines = [fit(_row(row, heads, wide), line) for row in (titles, *cells)]
    return [paint(first, "dim"), *lines]


def _row(cells: Sequence[str], heads: Sequence[Column], wide: Sequence[int]) -> str:
    found: list[str] = []
    for cell, head, room in zip(cells, heads, wide, strict=True):
        shown = fit(cell, room)
        blank = " " * (room - width(shown))
        found.append(blank + shown if head.right else shown + blank)
    return _GAP.join(found).rstrip()


def wrapped(text: str, *, title: str = "") -> list[str]:
    """Words on lines that fit, behind a title that stands alone in its columns."""
    lines = wrap(
        clean(text),
        columns(),
        initial_indent=title,
        subsequent_indent=" " * len(title),
        break_long_words=False,  # a path in two pieces cannot be copied
        break_on_hyphens=False,
    )
    return lines or [title]


def short(ours: str, theirs: str = "") -> str:
    """One line that fits, cut with dots; what others wrote is made safe."""
    return fit(f"{ours}{clean(theirs)}", columns())


def visible(text: str) -> str:
    """A text of many lines, whole, in which nothing steers the terminal."""
    if not sys.stdout.isatty():
        return text  # for a program: as it was
    return "".join(map(_letter, text))


def _letter(letter: str) -> str:
    code = ord(letter)
    if letter in "\n\t":
        return letter
    if code < 0x20:  # noqa: PLR2004 - the control characters, each by its picture
        return chr(0x2400 + code)
    hidden = code in (0x7F, *range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    return "\ufffd" if hidden else letter


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if count < _STEP:
            return f"{count:.0f} {unit}" if count >= _TEN or unit == "B" else f"{count:.1f} {unit}"
        count /= _STEP
    return f"{count:,.1f} GB"


def age(then: float) -> str:
    """How long ago, in one unit."""
    seconds = max(time.time() - then, 0)
    for unit, length in _AGES:
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return "now"


def moment(then: float) -> str:
    """A time of the clock, here."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(then))
