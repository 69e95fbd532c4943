"""Find names in a text: paths, identifiers and codes, whose exact spelling an agent needs again.

Also formats counts and handles: `log:12` for a place in the session's own log, `log:12-40` for a
span of it. `recall` parses handles.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

_WORD = re.compile(r"[\w./-]{4,80}")  # linear on any text: this runs on whatever a tool prints
_JOINT = re.compile(r"[./]")
_DIGITS = frozenset("0123456789")
_MEASURE = re.compile(r"[\d.]+[a-zA-Z]{1,3}")  # 40ms, 1.5GB: a number with its unit is no name
_LONGEST = 80  # characters of the longest piece that is cached


def count_names(text: str) -> Counter[str]:
    """Count the names in a text."""
    counted: Counter[str] = Counter()
    # The pattern is slow and texts repeat themselves: each distinct piece is searched once.
    for piece, times in Counter(text.split()).items():
        for name in _known(piece) if len(piece) <= _LONGEST else _list_names(piece):
            counted[name] += times
    return counted


def _list_names(piece: str) -> tuple[str, ...]:
    names: list[str] = []
    for word in _WORD.findall(piece):
        # An absolute path keeps its slash, and the dot of a hidden folder behind it.
        name = word.rstrip("./-") if word.startswith("/") else word.strip("./-")
        if len(name) > 2 and code_like(name):  # noqa: PLR2004 - shorter ones occur anywhere
            names.append(name)
    return tuple(names)


_known = lru_cache(maxsize=4_096)(_list_names)


def expand_names(found: Iterable[str]) -> set[str]:
    """Return the names, and every name inside one of them: `b.c` in `a.b.c`."""
    return {piece for name in found for piece in _expand_name(name)}


@lru_cache(maxsize=16_384)
def _expand_name(name: str) -> tuple[str, ...]:
    ends = [0, *(at.end() for at in _JOINT.finditer(name)), len(name) + 1]
    every = (name[lo : hi - 1] for at, lo in enumerate(ends) for hi in ends[at + 1 :])
    return (name, *(piece for piece in every if len(piece) > 2))  # noqa: PLR2004 - as above


def code_like(name: str) -> bool:
    """Whether it is a path, dotted, underscored, capitalised inside, or letters with digits."""
    if name.isalpha() and name[1:].islower():
        return False  # a plain word: the most common case, so checked first
    if name[:1] in _DIGITS and _MEASURE.fullmatch(name):
        return False
    if name.isascii() and not _DIGITS.isdisjoint(name):
        return name.lower() != name.upper()  # as below, without a loop: ids and numbers
    if not any(c.isalpha() for c in name):
        return False  # a mere number
    if any(c.isdigit() for c in name):
        return True
    marked = any(mark in name for mark in "/_.") or any(c.isupper() for c in name[1:])
    return marked and any(c.islower() for c in name)


def format_count(count: int, name: str) -> str:
    """Format a number of things: `1 turn`, `2,000 turns`."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def format_handle(lo: int, hi: int | None = None) -> str:
    """Format the handle of an event or a span."""
    return f"log:{lo}" if hi is None or hi == lo else f"log:{lo}-{hi}"


def format_way_back(
    lo: int, hi: int | None = None, *, recall: bool, outcome: str = "", again: str = ""
) -> str:
    """Format the line that says where the whole of a cut text is.

    Without a tool that takes the handle, only people can use it: the text says to look `again`,
    which it can where a tool's result (one with an `outcome`) is cut.
    """
    words = ("" if recall else again) if outcome else ""
    said = "; ".join(filter(None, (format_handle(lo, hi), outcome, words)))
    return f"[whole: {said}]" if recall else f"[{said}]"
