"""What happens in a turn, told to hooks as it happens: A-48.

    def guard(moment):
        if isinstance(moment, Calling) and "secrets" in moment.call.arguments:
            return "nothing under secrets/ is read"          # a reason forbids it

A hook sees every moment. A text in answer to `Asking`, `Calling` or `Folding` forbids what is about
to happen; an event is taken in before the model is asked next; None lets things go on. Knows what
there is to tell. Refuses to know who listens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from foldline.agent.tool import Arguments, Intent, Result, Tool
from foldline.core.log import Event, Folded
from foldline.core.parts import Call
from foldline.models.port import Json
from foldline.session.hooks import Pass


@dataclass(frozen=True, slots=True)
class Asking:
    """The model is about to be asked, for the first time in this turn or the nth."""

    round: int


@dataclass(frozen=True, slots=True)
class Speaking:
    """A piece of the answer's text."""

    words: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer is in the log; it may call for tools."""

    answer: Json
    calls: tuple[Call, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Calling:
    """A tool is about to run, and whoever had to be asked has agreed."""

    call: Call
    tool: Tool
    arguments: Arguments
    intent: Intent | None


@dataclass(frozen=True, slots=True)
class Called:
    """A call has its result, in the log: what it came to, or why it was not run."""

    call: Call
    result: Result
    seconds: float


@dataclass(frozen=True, slots=True)
class Folding:
    """A fold is about to be made."""

    fold: Folded


@dataclass(frozen=True, slots=True)
class Passed:
    """A fold was made or forbidden, or a narrative was told or not."""

    one: Pass


Moment: TypeAlias = Asking | Speaking | Answered | Calling | Called | Folding | Passed
Hook: TypeAlias = Callable[[Moment], "str | Event | None"]
"""Told every moment. A text in answer to `Asking`, `Calling` or `Folding` forbids it; an event is
taken in before the model is asked next; None lets things go on."""
