"""The port to a model: a request goes in as a provider's JSON, its answer comes out as one.

Knows what whoever answers must have. Refuses to know sessions, prices and what is asked for: a
request is what `session.request()` gives, an answer what `session.add()` takes. Real ones are in
`clients`; a scripted one is `foldline.testing.ScriptedModel`.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

Json: TypeAlias = dict[str, Any]
Heard: TypeAlias = Callable[[str], None]
"""Told each piece of an answer's text as it comes."""


class Model(Protocol):
    """Whoever answers requests in one dialect."""

    @property
    def name(self) -> str:
        """As the catalogue knows it."""
        ...

    async def say(self, request: Json, *, heard: Heard | None = None) -> Json:
        """The whole answer to a request; streamed, where somebody listens.

        Raises `ModelFailed` where there is none. Cancelled, it ends the call at once.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
