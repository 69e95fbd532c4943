"""Names in a text: paths, identifiers, codes; what an agent writes again by its exact spelling.

Knows what looks like a name. Refuses to know which of them matter.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

_WORD = re.compile(r"[\w./-]{4,80}")  # linear on any text: this runs on whatever a tool prints
_JOINT = re.compile(r"[./]")
_DIGITS = frozenset("0123456789")
_LONGEST = 80  # characters of a piece that is remembered


def names(text: str) -> Counter[str]:
    """The names in a text, and how often each occurs."""
    found: Counter[str] = Counter()
    # A pattern is slow and work repeats itself: what stands between blanks is searched once.
    for piece, times in Counter(text.split()).items():
        for name in _known(piece) if len(piece) <= _LONGEST else _within(piece):
            found[name] += times
    return found


def _within(piece: str) -> tuple[str, ...]:
    found: list[str] = []
    for word in _WORD.findall(piece):
        # A path from the root keeps its slash, and the dot of a folder behind it.
        name = word.rstrip("./-") if word.startswith("/") else word.strip("./-")
        if len(name) > 2 and code_like(name):  # noqa: PLR2004 - shorter ones are found anywhere
            found.append(name)
    return tuple(found)


_known = lru_cache(maxsize=4_096)(_within)


def pieces(found: Iterable[str]) -> set[str]:
    """Some names, and every name that stands inside one of them: `b.c` in `a.b.c`."""
    return {piece for name in found for piece in _pieces(name)}


@lru_cache(maxsize=16_384)
def _pieces(name: str) -> tuple[str, ...]:
    ends = [0, *(at.end() for at in _JOINT.finditer(name)), len(name) + 1]
    every = (name[lo : hi - 1] for at, lo in enumerate(ends) for hi in ends[at + 1 :])
    return (name, *(piece for piece in every if len(piece) > 2))  # noqa: PLR2004 - as above


def code_like(name: str) -> bool:
    """A path, a dotted or underscored name, one with a capital inside, or letters with digits."""
    if name.isalpha() and name[1:].islower():
        return False  # a plain word: the most usual, so asked first
    if name.isascii() and not _DIGITS.isdisjoint(name):
        return name.lower() != name.upper()  # as below, without a loop: ids and numbers
    if not any(c.isalpha() for c in name):
        return False  # a mere number
    if any(c.isdigit() for c in name):
        return True
    marked = any(mark in name for mark in "/_.") or any(c.isupper() for c in name[1:])
    return marked and any(c.islower() for c in name)
