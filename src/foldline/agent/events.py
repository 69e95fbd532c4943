"""The moments of a turn, as hooks see them.

def guard(moment):
    if isinstance(moment, Calling) and "secrets" in moment.call.arguments:
        return "nothing under secrets/ is read"          # a reason forbids it
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
    """The model is about to be called; `round` counts from 1 in each turn."""

    round: int


@dataclass(frozen=True, slots=True)
class Speaking:
    """A piece of the answer's text has arrived."""

    words: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """A piece of the model's reasoning has arrived, as far as its provider shows it."""

    words: str


@dataclass(frozen=True, slots=True)
class Retrying:
    """The model gave no answer, and is asked again."""

    why: str
    seconds: float
    """The pause before that."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer is in the log; it may have tool calls."""

    answer: Json
    calls: tuple[Call, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Calling:
    """A tool is about to run, approved if it needed approval."""

    call: Call
    tool: Tool
    arguments: Arguments
    intent: Intent | None


@dataclass(frozen=True, slots=True)
class Printing:
    """A running tool has printed something; all of it is in its result later."""

    call: Call
    words: str


@dataclass(frozen=True, slots=True)
class Called:
    """A call's result is in the log: its output, or why it was not run."""

    call: Call
    result: Result
    seconds: float


@dataclass(frozen=True, slots=True)
class Folding:
    """A fold is about to be written."""

    fold: Folded


@dataclass(frozen=True, slots=True)
class Passed:
    """A fold was made or forbidden, or its narrative was written or failed."""

    one: Pass


Moment: TypeAlias = (
    Asking
    | Thinking
    | Speaking
    | Retrying
    | Answered
    | Calling
    | Printing
    | Called
    | Folding
    | Passed
)
Hook: TypeAlias = Callable[[Moment], "str | Event | None"]
"""Called with every moment. A text returned for `Asking`, `Calling` or `Folding` forbids it; an
event is added before the next call of the model; None changes nothing."""
