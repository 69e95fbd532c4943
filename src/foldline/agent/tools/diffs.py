"""Diffs: what becomes of a text, as people read it.

Knows the unified form. Refuses to take long: of large texts that differ much it shows what goes and
what comes as two blocks, since finding the smallest difference takes the square of their length.
"""

import re
from collections.abc import Iterable
from difflib import unified_diff

_LINES = 2_000  # to be compared line by line
_AROUND = 3
_START = re.compile(r"([-+])(\d+)")


def diff(before: str, after: str, name: str) -> str:
    """The difference of two texts of one file."""
    old, new = before.splitlines(), after.splitlines()
    first = _same(zip(old, new, strict=False))
    left = min(len(old), len(new)) - first
    last = min(_same(zip(reversed(old), reversed(new), strict=False)), left)
    gone, come = old[first : len(old) - last], new[first : len(new) - last]
    head = [f"--- a/{name.lstrip('/')}", f"+++ b/{name.lstrip('/')}"]
    if max(len(gone), len(come)) > _LINES:
        where = f"@@ -{first + 1},{len(gone)} +{first + 1},{len(come)} @@"
        return "\n".join([*head, where, *(f"-{one}" for one in gone), *(f"+{one}" for one in come)])
    lo, hi = max(first - _AROUND, 0), max(last - _AROUND, 0)
    lines = unified_diff(old[lo : len(old) - hi], new[lo : len(new) - hi], lineterm="", n=_AROUND)
    hunks = [_moved(one, lo) for one in lines][2:]
    return "\n".join([*head, *(hunks or ["[only the ends of lines differ]"])])


def _same(pairs: Iterable[tuple[str, str]]) -> int:
    """How many pairs are alike before the first that is not."""
    number = 0
    for one, other in pairs:
        if one != other:
            break
        number += 1
    return number


def _moved(line: str, by: int) -> str:
    """The head of a hunk as it is in the whole file; any other line as it is."""
    if not line.startswith("@@"):
        return line
    return _START.sub(lambda found: f"{found[1]}{int(found[2]) + by}", line)
