r"""Text of many lines that strangers wrote, made safe for a terminal, also piece by piece.

    flow = Safe()
    flow.feed("\x1b]0;ti"), flow.feed("tle\x07shown")      →  "", "shown"

Knows whole escape sequences, also one that is split over two pieces. Refuses to know what is said:
what comes out has no control character but the end of a line and the tab. One line is for
`draw.text.clean`.
"""

import unicodedata
from typing import Literal, TypeAlias

_State: TypeAlias = Literal["text", "escape", "short", "control", "string"]
_MOST = 4_096  # letters of one sequence: what is longer is none
_MARKS = 2  # above one letter: more are there to cover the lines around
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn")
_ESCAPE, _CONTROL = "\x1b", "\x9b"
_STRINGS = frozenset("]PX^_")
_STRINGS_C1 = frozenset("\x90\x98\x9d\x9e\x9f")


class Safe:
    """A flow of text, cleaned as it comes."""

    def __init__(self) -> None:
        self._state: _State = "text"
        self._length = 0
        self._marks = _MARKS  # a mark with no letter before it would stand on what we write

    def feed(self, piece: str) -> str:
        """What of a piece may be shown; the rest of a sequence is waited for."""
        if self._state == "text" and piece.isascii() and piece.isprintable():
            self._marks = 0 if piece else self._marks
            return piece
        return "".join(map(self._letter, piece))

    def _letter(self, letter: str) -> str:
        state = self._state
        if state != "text":
            self._length += 1
            if letter == "\n" or self._length > _MOST:  # no sequence swallows the next line
                self._state = "text"
                return self._shown(letter)
            if letter == _ESCAPE:
                return self._begin("escape")
        match state:
            case "text":
                return self._text(letter)
            case "escape":
                if letter == "[":
                    self._state = "control"
                elif letter in _STRINGS:
                    self._state = "string"
                elif " " <= letter <= "/":
                    self._state = "short"
                elif "0" <= letter <= "~":
                    self._state = "text"
                else:
                    return self._none(letter)
            case "short":
                if not " " <= letter <= "/":
                    self._state = "text"
            case "control":
                if "@" <= letter <= "~":
                    self._state = "text"
                elif not " " <= letter <= "?":
                    return self._none(letter)
            case "string":
                if letter in "\x07\x9c":
                    self._state = "text"
        return ""

    def _text(self, letter: str) -> str:
        if letter == _ESCAPE:
            return self._begin("escape")
        if letter == _CONTROL:
            return self._begin("control")
        if letter in _STRINGS_C1:
            return self._begin("string")
        return self._shown(letter)

    def _begin(self, state: _State) -> str:
        self._state, self._length = state, 0
        return ""

    def _none(self, letter: str) -> str:
        """It was no sequence after all: what follows is text."""
        self._state = "text"
        return self._text(letter)

    def _shown(self, letter: str) -> str:
        if letter in "\n\t":
            self._marks = _MARKS
            return letter
        if letter in "\u2028\u2029":
            return self._shown("\n")
        category = unicodedata.category(letter)
        if category in ("Mn", "Me"):
            self._marks += 1
            return letter if self._marks <= _MARKS else ""
        if category in _UNSEEN:
            return ""
        self._marks = 0
        return letter


def safe(text: str) -> str:
    """A whole text, in which nothing steers the terminal."""
    return Safe().feed(text)


def seen(text: str) -> str:
    r"""A whole text in which what nobody would see is written out: `\x1b`, `\u202e`.

    For whoever has to agree to it: what `safe` leaves out a shell would run all the same.
    """
    if text.isascii() and text.isprintable():
        return text
    found: list[str] = []
    marks = _MARKS
    for letter in text:
        category = unicodedata.category(letter)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        hidden = category in (*_UNSEEN, "Zl", "Zp") and letter not in "\n\t"
        if hidden or marks > _MARKS or (category == "Zs" and letter != " "):
            letter = letter.encode("unicode_escape").decode()  # noqa: PLW2901 - as it is shown
        found.append(letter)
    return "".join(found)
