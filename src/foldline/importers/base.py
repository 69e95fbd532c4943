"""What an import gives, and what each source of one promises.

Knows the shapes that all sources share. Refuses to know any of them.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, cast

from foldline.core.log import Event
from foldline.dialects.json_reader import Json

LARGEST = 2**53  # what JSON can count to: a larger count is a broken one


class Mark(NamedTuple):
    """What a file says of how requests were made, and no event carries."""

    at: int
    """The place of the first event that came after it."""
    kind: Literal["thinking", "restart", "life"]
    told: str
    """The level of thinking, what shows the restart, or the seconds that the cache lives."""


@dataclass(frozen=True, slots=True)
class Imported:
    """One session of another agent: its events, what they could not carry, who answered last."""

    name: str
    model: str
    """Who answered last."""
    events: list[Event]
    notes: list[str]
    """What the file held and no event can, a line a kind."""
    times: list[float] = field(default_factory=list[float], compare=False)
    """When each event happened, in seconds since 1970; 0 where the file does not say."""
    marks: list[Mark] = field(default_factory=list[Mark], compare=False)
    """What it says of how requests were made."""


class Record(NamedTuple):
    """One record of a file, and its place there for people."""

    place: str
    body: Json


class Notes:
    """What could not be carried, counted by kind, with the first place of each."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def take(self, what: str, place: str = "", *, times: int = 1) -> None:
        """Count one more, or several at once."""
        if times:
            what = brief(what)
            self._counts[what] += times
            self._first.setdefault(what, place)

    def told(self) -> list[str]:
        """One line a kind."""
        return [
            f"{what}: {count}" + (f" (first: {self._first[what]})" if self._first[what] else "")
            for what, count in self._counts.items()
        ]


class Source(Protocol):
    """A kind of session file; each module of this room is one."""

    @property
    def KIND(self) -> str:  # noqa: N802 - a constant of the module
        """Its name, as it stands in a session's origin."""
        ...

    def claims(self, body: Json) -> bool:
        """Whether a record looks like one of this source's."""
        ...

    def read(self, records: Sequence[Record], name: str, notes: Notes) -> list[Imported]:
        """The sessions that some records tell."""
        ...


# Foreign values, looked at without trust.


def table(value: Any) -> Json:
    """The object that a value is, or an empty one."""
    return cast("Json", value) if isinstance(value, dict) else {}


def rows(value: Any) -> list[Any]:
    """The list that a value is, or an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def words(value: Any) -> str:
    """The text that a value is, or an empty one."""
    return value if isinstance(value, str) else ""


def count(value: Any) -> int | None:
    """A number of tokens, or None where it is none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < LARGEST else None


def total(*counts: int | None) -> int | None:
    """The sum of what was counted; None where nothing was."""
    known = [one for one in counts if one is not None]
    return sum(known) if known else None


_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d(?:\.\d{1,9})?)(?:Z|([+-])(\d\d):?(\d\d))?"
)


def seconds(value: Any) -> float:
    """A moment in seconds since 1970, from its ISO form; 0 where it is none."""
    found = _TIME.fullmatch(words(value).strip())
    if found is None:
        return 0.0
    year, month, day, hour, minute = (int(found[at]) for at in range(1, 6))
    # Days since 1970 by the calendar that begins in March, so that February is last.
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)  # noqa: PLR2004
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 1
    away = (int(found[8]) * 60 + int(found[9])) * (-1 if found[7] == "-" else 1) if found[7] else 0
    return (days - 719_468) * 86_400.0 + hour * 3_600 + (minute - away) * 60 + float(found[6])


def brief(text: str) -> str:
    """A foreign name, short and on one line."""
    return " ".join(text.split())[:60]


def stem(name: str) -> str:
    """A file's name without its folders and endings."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    for end in (".gz", ".jsonl", ".json", ".traj"):
        last = last.removesuffix(end)
    return last
