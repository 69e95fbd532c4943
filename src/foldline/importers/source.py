"""The types that all importers share, and helpers to read foreign values."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from foldline.core.log import Event
from foldline.dialects.json_slices import Json

LARGEST = 2**53  # what JSON can count to: a larger count is broken


class Mark(NamedTuple):
    """A fact about how requests were made that no event carries."""

    at: int
    """The index of the first event after it."""
    kind: Literal["thinking", "restart", "life"]
    detail: str
    """The thinking level, the sign of a restart, or the cache's lifetime in seconds."""


@dataclass(frozen=True, slots=True)
class Imported:
    """One imported session."""

    name: str
    model: str
    """The model that answered last."""
    events: list[Event]
    notes: list[str]
    """What events cannot carry, one line per kind."""
    times: list[float] = field(default_factory=list[float], compare=False)
    """When each event happened, in seconds since 1970; 0 if the file does not say."""
    marks: list[Mark] = field(default_factory=list[Mark], compare=False)
    """How requests were made."""
    is_log: bool = field(default=False, compare=False)
    """Whether these are all events of a log of ours, as `export` writes it."""


class Record(NamedTuple):
    """One record of a file, and its place there for people."""

    place: str
    body: Json


class Notes:
    """Counts what could not be imported by kind, with the first place of each."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add_note(self, what: str, place: str = "", *, times: int = 1) -> None:
        """Count one, or several at once."""
        if times:
            what = truncate_label(what)
            self._counts[what] += times
            self._first.setdefault(what, place)

    def render_lines(self) -> list[str]:
        """Render one line per kind."""
        return [
            f"{what}: {count}" + (f" (first: {self._first[what]})" if self._first[what] else "")
            for what, count in self._counts.items()
        ]


class Source(Protocol):
    """A kind of session file; the modules that read one have this shape."""

    @property
    def KIND(self) -> str:  # noqa: N802 - a constant of the module
        """Its name in a session's origin."""
        ...

    def can_read(self, body: Json) -> bool:
        """Whether a record looks like one of this source."""
        ...

    def read_sessions(self, records: Sequence[Record], name: str, notes: Notes) -> list[Imported]:
        """Read the sessions in some records."""
        ...


def str_of(value: Any) -> str:
    """Return the value if it is a text, else ""."""
    return value if isinstance(value, str) else ""


def parse_count(value: Any) -> int | None:
    """Return the value if it is a valid number of tokens, else None."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < LARGEST else None


def sum_counts(*counts: int | None) -> int | None:
    """Return the sum of the known counts; None if there are none."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d(?:\.\d{1,9})?)(?:Z|([+-])(\d\d):?(\d\d))?"
)


def parse_timestamp(value: Any) -> float:
    """Parse an ISO timestamp into seconds since 1970; 0 if it is not one."""
    found = _TIME.fullmatch(str_of(value).strip())
    if found is None:
        return 0.0
    year, month, day, hour, minute = (int(found[at]) for at in range(1, 6))
    # Days since 1970 by the calendar that begins in March, so that February is last.
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)  # noqa: PLR2004
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 1
    away = (int(found[8]) * 60 + int(found[9])) * (-1 if found[7] == "-" else 1) if found[7] else 0
    return (days - 719_468) * 86_400.0 + hour * 3_600 + (minute - away) * 60 + float(found[6])


def truncate_label(text: str) -> str:
    """Shorten a foreign name to 60 characters on one line."""
    return " ".join(text.split())[:60]


def stem_of(name: str) -> str:
    """Return a file's name without folders and endings."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    for end in (".gz", ".jsonl", ".json", ".traj"):
        last = last.removesuffix(end)
    return last
