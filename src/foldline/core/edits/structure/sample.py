"""A printed text as lines, and the few lines by which its kind is recognised."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from foldline.core.tokens import count_tokens

_ENDS = 24  # lines of each end
_BETWEEN = 40  # lines in between
_WIDTH = 400  # characters of a line
_TRIES = 16  # places of one line at which a sign is looked at
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,16}m")


@dataclass(frozen=True, slots=True)
class Sample:
    """Lines of a text without colours: its ends, and some that are spread over all of it."""

    head: tuple[str, ...]
    tail: tuple[str, ...]
    spread: tuple[str, ...]
    """Not blank, in their order."""

    def has_share(self, pattern: re.Pattern[str], share: float) -> bool:
        """Whether a pattern matches at least this share of the spread lines."""
        least = share * len(self.spread)
        return sum(1 for line in self.spread if pattern.match(line)) >= least > 0

    def has_line(self, pattern: re.Pattern[str]) -> bool:
        """Whether a pattern matches a line of the ends."""
        return any(pattern.match(line) for line in (*self.head, *self.tail))


class Printed:
    """A text as lines: as they are, and without the colours of a terminal."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        if not self.lines[-1]:
            self.lines.pop()  # there is no line after the last line end
        self._is_coloured = "\x1b" in text
        self.text = _COLOURS.sub("", text) if self._is_coloured else text

    @cached_property
    def plain(self) -> Sequence[str]:
        """The lines without colours."""
        return self.text.split("\n")[: len(self.lines)] if self._is_coloured else self.lines

    @cached_property
    def _ends(self) -> list[int]:
        return [*accumulate(len(line) + 1 for line in self.plain)]

    def find_lines(self, signs: Mapping[str, re.Pattern[str]]) -> list[int]:
        """Find the places of lines that have one of these signs, where its pattern matches.

        Looking for fixed letters is far faster than looking for a pattern in every line.
        """
        places: set[int] = set()
        for sign, pattern in signs.items():
            at, end, tries = self.text.find(sign), 0, 0
            while at >= 0:
                if at >= end:
                    end, tries = self._find_line_end(at), 0
                tries += 1
                is_found = pattern.match(self.text, at) is not None
                if is_found:
                    places.add(self.place_of(at))
                at = self.text.find(sign, end if is_found or tries >= _TRIES else at + len(sign))
        return sorted(places)

    def place_of(self, at: int) -> int:
        """The place of the line that has this character of the text without colours."""
        return bisect_right(self._ends, at)

    def _find_line_end(self, at: int) -> int:
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end


def take_sample(lines: Sequence[str]) -> Sample:
    """Take a sample of a text's lines."""
    head, tail = lines[:_ENDS], lines[max(len(lines) - _ENDS, _ENDS) :]
    middle = lines[_ENDS : len(lines) - _ENDS]
    step = max(len(middle) // _BETWEEN, 1)
    some = middle[::step][:_BETWEEN]
    cut = [[_COLOURS.sub("", line[:_WIDTH]) for line in part] for part in (head, some, tail)]
    spread = (line for part in cut for line in part if line.strip())
    return Sample(tuple(cut[0]), tuple(cut[2]), tuple(spread))


_LINE = 200  # characters of one error line
_PIECE = 16_384  # characters that are searched at a time
# Linear on any text: this runs on whatever a tool prints.
_FAULT = re.compile(
    r"\b[Ee]rror\b|[a-z]Error\b|Exception\b|\bFAILED\b|\bFATAL\b|\bERROR\b|\bTraceback\b|\bpanic\b"
    r"|\bexit(?:ed)? (?:with |code |status |with code |with status )?\d"
)
_SIGNS = ("rror", "xception", "FAIL", "FATAL", "ERR", "raceback", "panic", "exit")
_ANYWHERE: dict[str, re.Pattern[str]] = dict.fromkeys(_SIGNS, re.compile(""))


def is_fault(line: str) -> bool:
    """Whether a line is about a failure or an exit status."""
    return any(sign in line for sign in _SIGNS) and _FAULT.search(line) is not None


def select_fault_lines(text: str, tokens: int) -> str:
    """Select the last distinct lines about a failure or an exit status, in their order."""
    kept: list[str] = []
    for line in _iterate_fault_lines(text):
        tokens -= count_tokens(line) + 1
        if tokens < 0:
            break
        kept.append(line)
    return "\n".join(reversed(kept))


def _iterate_fault_lines(text: str) -> Iterator[str]:
    """Yield those lines from the end, reading only as many pieces as are needed."""
    seen: set[str] = set()
    end = len(text)
    while end > 0:
        start = text.rfind("\n", 0, max(end - _PIECE, 0)) + 1
        piece = text[start:end]
        end = start
        signs = [sign for sign in _SIGNS if sign in piece]
        for whole in reversed(piece.splitlines() if signs else ()):
            line = whole.strip()[:_LINE]
            if line not in seen and any(sign in line for sign in signs):
                seen.add(line)
                if _FAULT.search(line):
                    yield line


def list_fault_places(printed: Printed, tokens: int) -> list[int]:
    """List the places of those lines, the last first, as far as `tokens` allow."""
    seen: set[str] = set()
    found: list[int] = []
    for place in reversed(printed.find_lines(_ANYWHERE)):
        line = printed.plain[place][:_LINE].strip()
        if line not in seen and is_fault(line):
            seen.add(line)
            tokens -= count_tokens(line) + 1
            if tokens < 0:
                break
            found.append(place)
    return found
