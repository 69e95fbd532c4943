"""The interface of every tool: files, the shell, an MCP server's, a user's own.

    Tool(name="now", description="The time in UTC.", schema={"type": "object"}, run=now)

The loop calls every tool in the same way; a result is a list of parts.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from foldline.core.parts import Part, Text, replace_surrogates

Arguments: TypeAlias = dict[str, Any]


class Result(NamedTuple):
    """A call's result, however large; the session clips it."""

    parts: tuple[Part, ...]
    """Text and pictures; `said("…")` makes a result of text."""
    ok: bool = True
    """Whether the call succeeded; else the parts say why not."""


class Intent(NamedTuple):
    """What a call is about to change, for the user who is asked."""

    what: str
    """One line: `write src/a.py, 12 lines` or `run pytest -q`."""
    detail: str = ""
    """The whole change: a diff, a script."""
    rules: tuple[str, ...] = ()
    """The rules an answer may be remembered by, the narrowest first: `shell: pytest *`."""

    @property
    def is_diff(self) -> bool:
        """Whether the detail is a unified diff."""
        return self.detail.startswith("--- ")


output_watcher: ContextVar[Callable[[str], object] | None] = ContextVar("watcher", default=None)
"""Whoever watches what the tool of this call prints; the loop sets it."""


def report_output(words: str) -> None:
    """Show the output of a running tool so far to the user; the result is for the model.

    A tool that takes long calls it from within its `run`.
    """
    watcher = output_watcher.get()
    if watcher is not None:
        watcher(words)


def said(words: str, *, ok: bool = True) -> Result:
    """Make a result of text."""
    return Result((Text(replace_surrogates(words)),), ok)


def _make_no_intent(_: Arguments) -> None:
    return None


def _list_no_paths(_: Arguments) -> Sequence[Path]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that a model may call."""

    name: str
    description: str
    """For the model."""
    schema: Mapping[str, Any]
    """The JSON Schema of its arguments."""
    run: Callable[[Arguments], Awaitable[Result]]
    """Runs a call. Cancelled, it ends at once and leaves nothing running."""
    intent: Callable[[Arguments], Intent | None] = _make_no_intent
    """Returns what a call would change; None if no approval is needed. May raise, like `run`."""
    touches: Callable[[Arguments], Sequence[Path]] = _list_no_paths
    """Returns the files and folders that a call reads or changes."""
    beside: bool = False
    """Whether it may run beside other calls, because it only looks."""

    @property
    def offered(self) -> dict[str, Any]:
        """The tool as a request offers it to the model."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": function}
