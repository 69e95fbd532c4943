"""What an import gives, and what each source of one promises.

Knows the shapes that all sources share. Refuses to know any of them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

from foldline.core.log import Event
from foldline.wire.reading import Json

LARGEST = 2**53  # what JSON can count to: a larger count is a broken one


@dataclass(frozen=True, slots=True)
class Imported:
    """One session of another agent: its events, what they could not carry, who answered last."""

    name: str
    model: str
    events: list[Event]
    notes: list[str]


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


def brief(text: str) -> str:
    """A foreign name, short and on one line."""
    return " ".join(text.split())[:60]


def stem(name: str) -> str:
    """A file's name without its folders and endings."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    for end in (".gz", ".jsonl", ".json", ".traj"):
        last = last.removesuffix(end)
    return last
