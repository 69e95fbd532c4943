"""The parts of a chat: the agent with what was found for it, and the face that a person sees.

`cli.build_agent` makes the agent.
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
    """What a chat works with."""

    agent: Agent
    models: Callable[[str], Model]
    """Makes the client of another model, for `/model`."""
    instructions: Instructions | None = None
    approvals: Approvals | None = None
    notes: Sequence[str] = ()
    """Remarks to show before the first line."""


class ChatFace(Protocol):
    """Where a person writes and reads: `InputLine` in a capable terminal, else `Plain`."""

    bar: Callable[[int], list[tuple[str, str]]]
    words: "Callable[[str], Iterable[tuple[str, str]]] | None"
    stop: Callable[[], object] | None

    async def said(self) -> str | None:
        """Return what the person enters next, or None if they leave."""
        ...

    async def ask(self, question: str) -> str | None:
        """Return the answer to a question, or None."""
        ...

    def above(self, text: str) -> None:
        """Write finished text."""
        ...

    def live(self, text: "str | Callable[[], str]") -> None:
        """Show unfinished text."""
        ...

    def refresh(self) -> None:
        """Redraw what changes by itself."""
        ...

    def leave(self) -> None:
        """End as if the person had left."""
        ...

    @property
    def columns(self) -> int:
        """The width."""
        ...

    @property
    def rows(self) -> int:
        """The height."""
        ...
