"""Make texts of a log safe to show: visible, bounded, and in one direction.

Templates escape markup. What is left to do is what escaping does not touch: control characters,
terminal escapes, letters that turn the direction of what follows, and texts without an end.
"""

import re
from typing import NamedTuple

from markupsafe import escape

from foldline.draw.wording import clean_line

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_DOTS = "…"
_LONGEST_LETTER = 6  # bytes that a letter takes at most when it is escaped: `&amp;`, `&#34;`
_MARKS = re.compile(
    "([\u0300-\u036f\u1ab0-\u1aff\u20d0-\u20ff\ufe20-\ufe2f]{4})[\u0300-\u036f\u1ab0-\u1aff\u20d0-\u20ff\ufe20-\ufe2f]+"
)


class FittedText(NamedTuple):
    """The beginning of a text, and how many of its characters are left out."""

    shown: str
    left: int


def show_controls(text: str) -> str:
    """Replace what cannot be seen by something that can; line ends and tabs stay."""
    text = text.replace("\r\n", "\n")
    return _MARKS.sub(r"\1", _HIDDEN.sub(lambda found: _show_letter(found[0]), text))


def _show_letter(letter: str) -> str:
    return f"⟨{ord(letter):02X}⟩"


def fit_text(text: str, most: int, *, start: int = 0) -> FittedText:
    """Show at most `most` bytes of a text, counted as they are sent, from a character on."""
    taken = show_controls(text[start : start + most])  # a letter takes a byte and more
    if len(str(escape(taken)).encode()) <= most:
        return FittedText(taken, max(len(text) - start - most, 0))
    low, high = most // _LONGEST_LETTER // 2, len(text[start : start + most])
    while high - low > 1:
        middle = (low + high) // 2
        size = len(str(escape(show_controls(text[start : start + middle]))).encode())
        low, high = (middle, high) if size <= most else (low, middle)
    return FittedText(show_controls(text[start : start + low]), max(len(text) - start - low, 0))


def shorten_line(text: str, most: int) -> str:
    """Return one clean line of at most `most` characters."""
    line = clean_line(text[: 4 * most])
    return line if len(line) <= most else line[: most - 1] + _DOTS
