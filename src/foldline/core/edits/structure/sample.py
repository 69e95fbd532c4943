"""A printed text as lines, and the few lines by which its kind is recognised."""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

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
