"""A thing that was looked at, and how it is told.

Knows the three levels and their lines. Refuses to know what is looked at.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from foldline.apps.cli.output import paint, wrapped

Level: TypeAlias = Literal["ok", "warn", "bad"]
_COLOURS: dict[Level, Literal["green", "yellow", "red"]] = {
    "ok": "green",
    "warn": "yellow",
    "bad": "red",
}
_NAMED = 4  # things of a kind that are named; of more, how many


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    level: Level
    what: str
    told: str
    todo: str = ""


def lines(check: Check) -> list[str]:
    """A check for a person."""
    first, *rest = wrapped(check.told, title=f"     {check.what:10} ")
    todo = wrapped(check.todo, title=f"{'':14}→ ") if check.todo else []
    return [paint(f"{check.level:4}", _COLOURS[check.level]) + first[4:], *rest, *todo]


def summed(checks: Sequence[Check]) -> str:
    """How many of each level, in one line."""
    counts = Counter(check.level for check in checks)
    told = [f"{counts[level]} {level}" for level in _COLOURS if counts[level]]
    return paint(", ".join(told), "dim")


def some(names: Sequence[str]) -> str:
    """The first of many names."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
