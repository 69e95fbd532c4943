"""Text that strangers wrote, made fit to be drawn, and measured in columns.

Knows what moves a cursor, hides or turns words, and how wide a character stands in a terminal.
Refuses to know what is drawn, and where.
"""

import re
import unicodedata

# Whole escape sequences go, not only the byte that begins them: their rest would stand as litter.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # colours, cursor moves
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links
    r"|\x1b[ -/]*[0-~]?"
)
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""They change how wide the character before them stands, in some terminals and not in others."""
_MOST_MARKS = 2  # above one letter: more are there to cover the lines around
_DOTS = "…"
_BEFORE, _BEHIND = 24, 200  # letters around a word that was found


def clean(text: str) -> str:
    """One line that only shows characters: no controls, no escapes, nothing that turns words."""
    plain = "".join(map(_shown, _SELECTORS.sub("", _ESCAPES.sub("", text))))
    kept: list[str] = []
    marks = _MOST_MARKS  # a mark with no letter before it would stand on what we write
    for letter in unicodedata.normalize("NFC", " ".join(plain.split())):
        marks = marks + 1 if unicodedata.category(letter) in ("Mn", "Me") else 0
        if marks <= _MOST_MARKS:
            kept.append(letter)
    return "".join(kept)


def _shown(letter: str) -> str:
    if letter.isspace():
        return " "
    return "" if unicodedata.category(letter) in _UNSEEN else letter


def width(text: str) -> int:
    """How many columns a clean text takes."""
    return len(text) if text.isascii() else sum(_columns(letter) for letter in text)


def fit(text: str, columns: int) -> str:
    """A clean text cut to so many columns, with dots where something is missing."""
    if width(text) <= columns:
        return text
    room = columns - width(_DOTS)
    if room < 0:
        return ""
    kept: list[str] = []
    for letter in text:
        room -= _columns(letter)
        if room < 0:
            break
        kept.append(letter)
    return "".join(kept) + _DOTS


def snippet(said: str, asked: str) -> tuple[str, int, int]:
    """The words around the first that was asked for, and where in them it stands."""
    text = clean(said)
    words = sorted({*re.findall(r"\w+", asked)}, key=len, reverse=True)
    hit = re.search("|".join(rf"\b{re.escape(word)}" for word in words), text, re.IGNORECASE)
    if hit is None:
        return text[:_BEHIND], 0, 0
    start = max(hit.start() - _BEFORE, 0)
    dots = "…" if start else ""
    cut = dots + text[start : hit.end() + _BEHIND]
    return cut, hit.start() - start + len(dots), hit.end() - start + len(dots)


def _columns(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1
