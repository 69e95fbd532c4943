"""The port to a model: takes a request as a provider's JSON, and returns its answer as JSON.

A request is what `session.request()` returns, an answer what `session.add()` takes. `clients` has
the real implementations, `foldline.testing.ScriptedModel` is a scripted one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Json: TypeAlias = dict[str, Any]
Heard: TypeAlias = Callable[[str], None]
"""Called with each piece of an answer's text as it arrives."""


@dataclass(frozen=True, slots=True)
class AnswerListener:
    """A `Heard` that also gets the reasoning, and notes of repeated calls."""

    words: Heard
    thoughts: Callable[[str], object]
    """Called with each piece of the reasoning that the provider shows."""
    retried: Callable[[str, float], object]
    """Called with the reason, and with the seconds until the model is asked again."""

    def __call__(self, piece: str) -> None:
        """Pass on a piece of the text."""
        self.words(piece)


class Model(Protocol):
    """Answers requests in one dialect."""

    @property
    def name(self) -> str:
        """The name in the catalogue."""
        ...

    async def say(self, request: Json, *, heard: Heard | None = None) -> Json:
        """Return the whole answer to a request; streams it to `heard` if given.

        Raises `ModelFailed` if there is no answer. Cancelling ends the call at once.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...
