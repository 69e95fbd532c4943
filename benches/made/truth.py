"""What is true of a made-up session: planted facts, rules, corrections, files and open tasks.

Knows when each thing was said or done, by the first call whose request could hold it. Refuses to
know what any policy did with it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

By: TypeAlias = Literal["user", "result"]
FactKind: TypeAlias = Literal["host", "hash", "code", "version", "number", "owner"]
KINDS: tuple[FactKind, ...] = get_args(FactKind)
State: TypeAlias = Literal["read", "written", "removed"]


@dataclass(frozen=True, slots=True)
class Planted:
    """A fact that was stated once, in a line that holds its key and its value."""

    call: int
    """The first call whose request could hold it: so of everything here."""
    kind: FactKind
    key: str
    value: str
    by: By


@dataclass(frozen=True, slots=True)
class Constraint:
    """A sentence that a user said once, and that holds to the end."""

    call: int
    text: str


@dataclass(frozen=True, slots=True)
class Correction:
    """A value that a user stated and later changed; behind the change nobody states the old one."""

    call: int
    """The first call that could know the new value."""
    key: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class FileTouch:
    """What a call did to a file; a move removes one file and writes another."""

    call: int
    path: str
    state: State


@dataclass(frozen=True, slots=True)
class Obligation:
    """Something open: a task on a list, or a question put to the user."""

    call: int
    kind: Literal["todo", "question"]
    text: str
    until: int | None = None
    """The first call that could know it closed; None: it is open to the end."""

    def open_at(self, call: int) -> bool:
        """Whether it is open for that call."""
        return self.call <= call and (self.until is None or call < self.until)


@dataclass(frozen=True, slots=True)
class Truth:
    """All of it."""

    root: str
    facts: tuple[Planted, ...]
    constraints: tuple[Constraint, ...]
    corrections: tuple[Correction, ...]
    touches: tuple[FileTouch, ...]
    obligations: tuple[Obligation, ...]

    def collect_file_states(self, call: int) -> dict[str, State]:
        """The state of every file that was touched before a call: a read undoes no change."""
        found: dict[str, State] = {}
        for touch in self.touches:
            if touch.call <= call:
                apply_file_touch(found, touch.path, touch.state)
        return found

    def iterate_open_obligations(self, call: int) -> Iterator[Obligation]:
        """What is open at a call."""
        return (one for one in self.obligations if one.open_at(call))


def apply_file_touch(files: dict[str, State], path: str, state: State) -> None:
    """Let one more touch follow: what was written stays written when it is read."""
    if state != "read" or files.get(path) != "written":
        files[path] = state
