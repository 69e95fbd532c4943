"""Print to a terminal or a pipe: tables, wrapped lines, colours, sizes and times.

Text that others wrote is made safe: nothing in it can steer the terminal.
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

from foldline.draw.wording import clean_line, measure_width, truncate_to_width

PLAIN = 80  # columns where the output is no terminal
Style: TypeAlias = Literal["strong", "dim", "green", "yellow", "red"]
_CODES: dict[Style, str] = {
    "strong": "1",
    "dim": "2",
    "green": "32",
    "yellow": "33",
    "red": "31",
}
_STEP, _TEN = 1_000, 10
_AGES = (("y", 31_536_000), ("d", 86_400), ("h", 3_600), ("m", 60))


def measure_terminal() -> int:
    """Return the terminal's columns, at least 20; 80 if there is no terminal."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return PLAIN
    return max(shutil.get_terminal_size((PLAIN, 24)).columns, 20)


def has_colours() -> bool:
    """Whether the output is a terminal with colours, and NO_COLOR is not set."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return wanted and sys.stdout.isatty()


def apply_style(text: str, style: Style | None) -> str:
    """Wrap a text in its style's codes, if colours are wanted."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and text and has_colours() else text


def print_lines(*lines: str) -> None:
    """Write lines to stdout."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def print_remark(text: str) -> None:
    """Write a line to stderr: beside the answer, never inside it."""
    sys.stderr.write(f"foldline: {clean_line(text)}\n")


def print_json(body: Any) -> None:
    """Write the one JSON document of `--json`."""
    encoded = msgspec.json.format(msgspec.json.encode(body), indent=2)
    sys.stdout.write(f"{encoded.decode()}\n")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: at most `most` wide where room is short; None shares what is left."""

    title: str
    most: int | None = None
    right: bool = False
    whole: bool = False
    """Whether it is never cut: a person must type it. If it is wider than `most`, the other columns
    have less room in a terminal, and in a pipe lines get longer."""


def render_table(heads: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay rows out in columns; a cut cell ends in dots, and lines fit the terminal.

    Only a `whole` column can make a line longer than that.
    """
    table = [[head.title for head in heads], *([clean_line(cell) for cell in row] for row in rows)]
    needs = [max(map(measure_width, column)) for column in zip(*table, strict=True)]
    length, widths = _fit_columns(heads, needs)
    first, *lines = [
        truncate_to_width(" ".join(map(_pad_cell, row, widths, heads)).rstrip(), length)
        for row in table
    ]
    return [apply_style(first, "dim"), *lines]


def _fit_columns(heads: Sequence[Column], needs: list[int]) -> tuple[int, list[int]]:
    """Choose the length of a line and the width of each column."""
    columns = [*zip(heads, needs, strict=True)]
    whole = [(need, head.most or 0) for head, need in columns if head.whole]
    length = max([measure_terminal(), *(need for need, _ in whole)])
    if not sys.stdout.isatty():
        excess = sum(max(need - most, 0) for need, most in whole)
        length = max(length, measure_terminal() + excess)
    room = length - (len(heads) - 1)
    if sum(needs) <= room:
        return length, needs
    fixed = {
        at: need if head.whole else min(need, max(head.most, len(head.title)))
        for at, (head, need) in enumerate(columns)
        if head.most is not None
    }
    share = max((room - sum(fixed.values())) // max(len(heads) - len(fixed), 1), 1)
    return length, [fixed.get(at, min(need, share)) for at, need in enumerate(needs)]


def _pad_cell(cell: str, width: int, head: Column) -> str:
    text = truncate_to_width(cell, width)
    blank = " " * (width - measure_width(text))
    return blank + text if head.right else text + blank


def wrap_text(text: str, *, title: str = "") -> list[str]:
    """Wrap a text to the terminal, behind a title in columns of its own."""
    lines = wrap(
        clean_line(text),
        measure_terminal(),
        initial_indent=title,
        subsequent_indent=" " * len(title),
        break_long_words=False,  # a path in two pieces cannot be copied
        break_on_hyphens=False,
    )
    return lines or [title]


def truncate_line(ours: str, theirs: str = "") -> str:
    """Cut a line to the terminal, with dots; `theirs` is made safe."""
    return truncate_to_width(f"{ours}{clean_line(theirs)}", measure_terminal())


def escape_controls(text: str) -> str:
    """Make a text of many lines safe for a terminal; a pipe gets it unchanged."""
    if not sys.stdout.isatty():
        return text
    return "".join(map(_escape_letter, text))


def _escape_letter(letter: str) -> str:
    code = ord(letter)
    if letter in "\n\t":
        return letter
    if code < 0x20:  # noqa: PLR2004 - control characters, each by its Unicode picture
        return chr(0x2400 + code)
    hidden = code in (0x7F, *range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    return "\ufffd" if hidden else letter


def format_size(count: float) -> str:
    """Format a number of bytes, as 1.2 MB."""
    for unit in ("B", "kB", "MB"):
        if count < _STEP:
            return f"{count:.0f} {unit}" if count >= _TEN or unit == "B" else f"{count:.1f} {unit}"
        count /= _STEP
    return f"{count:,.1f} GB"


def format_age(then: float) -> str:
    """Format how long ago a time was, in one unit."""
    seconds = max(time.time() - then, 0)
    for unit, length in _AGES:
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return "now"


def format_time(then: float) -> str:
    """Format a time by the local clock."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(then))
