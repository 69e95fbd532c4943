"""The port that every tool stands behind: files, the shell, an MCP server's, a user's own.

    Tool(name="now", description="The time in UTC.", schema={"type": "object"}, run=now)

Knows what the loop must know of a tool: what it is called with, what it means to do, what it
touches. Refuses to know sessions: a result is parts, and there is one way in for all of them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from foldline.core.parts import Part, Text, sound

Arguments: TypeAlias = dict[str, Any]


class Result(NamedTuple):
    """What a call came to: as it is, however large; the session clips it."""

    parts: tuple[Part, ...]
    """Words and pictures: `said("…")` makes one of words."""
    ok: bool = True
    """Whether it did what was asked; else the parts say why not."""


class Intent(NamedTuple):
    """What a call is about to change, for the person who is asked."""

    what: str
    """One line: `write src/a.py, 12 lines` or `run pytest -q`."""
    detail: str = ""
    """All of it: a diff, a script."""
    rules: tuple[str, ...] = ()
    """What an answer may be remembered for, the narrowest first: `shell: pytest *`."""


def said(words: str, *, ok: bool = True) -> Result:
    """A result of words."""
    return Result((Text(sound(words)),), ok)


def _nothing(_: Arguments) -> None:
    return None


def _nowhere(_: Arguments) -> Sequence[Path]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Something that a model may have done for it."""

    name: str
    description: str
    """What the model reads of it."""
    schema: Mapping[str, Any]
    """The JSON Schema of its arguments."""
    run: Callable[[Arguments], Awaitable[Result]]
    """Does it. Cancelled, it ends at once and leaves nothing running."""
    intent: Callable[[Arguments], Intent | None] = _nothing
    """What it would change; None where nobody need be asked. May raise as `run` may."""
    touches: Callable[[Arguments], Sequence[Path]] = _nowhere
    """The files and folders that it looks at or changes."""
    beside: bool = False
    """Whether it may run beside other calls: it only looks."""

    @property
    def offered(self) -> dict[str, Any]:
        """As a model is told of it."""
        told = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": told}
