r"""Make text of many lines that others wrote safe for a terminal, also piece by piece.

    flow = Safe()
    flow.feed("\x1b]0;ti"), flow.feed("tle\x07shown")      →  "", "shown"

Whole escape sequences go, also those split over two pieces; newline and tab are the only control
characters that stay, and a joiner stays where letters or emoji need it. For a single line use
`draw.wording.clean_line`.
"""

import unicodedata
from typing import Literal, TypeAlias

_State: TypeAlias = Literal["text", "escape", "short", "control", "string"]
_MOST = 4_096  # letters of a sequence: anything longer is none
_JOINERS = "\u200c\u200d"  # join or part their neighbours: emoji, Persian, Hindi
_MARKS = 2  # combining marks on a letter: more would cover the lines around it
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn")
_ESCAPE, _CONTROL = "\x1b", "\x9b"
_STRINGS = frozenset("]PX^_")
_STRINGS_C1 = frozenset("\x90\x98\x9d\x9e\x9f")


class Safe:
    """Cleans a stream of text."""

    def __init__(self) -> None:
        self._state: _State = "text"
        self._length = 0
        self._marks = _MARKS  # a mark without a letter before it would join our own text
        self._joins = False
        """Whether a joiner may follow: after a letter that is no ASCII, and only one."""

    def feed(self, piece: str) -> str:
        """Return the safe part of a piece; an unfinished sequence is held back."""
        if self._state == "text" and piece.isascii() and piece.isprintable():
            if piece:
                self._marks, self._joins = 0, False
            return piece
        return "".join(map(self._process_letter, piece))

    def _process_letter(self, letter: str) -> str:
        state = self._state
        if state != "text":
            self._length += 1
            if letter == "\n" or self._length > _MOST:  # a sequence must not swallow the next line
                self._state = "text"
                return self._filter_letter(letter)
            if letter == _ESCAPE:
                return self._begin_sequence("escape")
        match state:
            case "text":
                return self._process_text(letter)
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
                    return self._cancel_sequence(letter)
            case "short":
                if not " " <= letter <= "/":
                    self._state = "text"
            case "control":
                if "@" <= letter <= "~":
                    self._state = "text"
                elif not " " <= letter <= "?":
                    return self._cancel_sequence(letter)
            case "string":
                if letter in "\x07\x9c":
                    self._state = "text"
        return ""

    def _process_text(self, letter: str) -> str:
        if letter == _ESCAPE:
            return self._begin_sequence("escape")
        if letter == _CONTROL:
            return self._begin_sequence("control")
        if letter in _STRINGS_C1:
            return self._begin_sequence("string")
        return self._filter_letter(letter)

    def _begin_sequence(self, state: _State) -> str:
        self._state, self._length = state, 0
        return ""

    def _cancel_sequence(self, letter: str) -> str:
        """Go on with text: it was no sequence after all."""
        self._state = "text"
        return self._process_text(letter)

    def _filter_letter(self, letter: str) -> str:
        if letter in "\n\t":
            self._marks, self._joins = _MARKS, False
            return letter
        if letter in _JOINERS:
            joins, self._joins = self._joins, False
            return letter if joins else ""
        if letter in "\u2028\u2029":
            return self._filter_letter("\n")
        category = unicodedata.category(letter)
        if category in ("Mn", "Me"):
            self._marks += 1
            return letter if self._marks <= _MARKS else ""
        if category in _UNSEEN:
            return ""
        self._marks, self._joins = 0, not letter.isascii()
        return letter


def clean_text(text: str) -> str:
    """Return a whole text without anything that steers the terminal."""
    return Safe().feed(text)
