"""What a talk works with: the agent, and what else was found for this person and this project.

Knows the names of these things. Refuses to make them: `cli/seating.py` does, from what was written
on the command line and in settings.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from foldline.agent.approval import Approvals
from foldline.agent.instructions import Instructions
from foldline.agent.loop import Agent
from foldline.models.port import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSeat:
    """Where a person sits down to talk."""

    agent: Agent
    models: Callable[[str], Model]
    """The client of another model, for `/model`."""
    instructions: Instructions | None = None
    approvals: Approvals | None = None
    notes: Sequence[str] = ()
    """What is to be said before the first line: what a server did not tell, what was left out."""


class ChatFace(Protocol):
    """Where a person writes and reads: `InputLine` in a terminal, `Plain` where there is less."""

    bar: Callable[[int], list[tuple[str, str]]]
    words: "Callable[[str], Iterable[tuple[str, str]]] | None"
    stop: Callable[[], object] | None

    async def said(self) -> str | None:
        """What the person enters next, or None where they leave."""
        ...

    async def ask(self, question: str) -> str | None:
        """The answer to a question, or None."""
        ...

    def above(self, text: str) -> None:
        """Write what is finished."""
        ...

    def live(self, text: "str | Callable[[], str]") -> None:
        """Show what is not finished yet."""
        ...

    def refresh(self) -> None:
        """Draw again what has changed by itself."""
        ...

    def leave(self) -> None:
        """End as if the person had left."""
        ...

    @property
    def columns(self) -> int:
        """How wide it is."""
        ...

    @property
    def rows(self) -> int:
        """How high it is."""
        ...
