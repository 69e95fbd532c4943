"""Who may talk with the bot, what they are told, and how long things may take.

Knows what an operator decides. Refuses to know where that was written: `cli/bot.py` does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from foldline.agent.approval import Approvals
from foldline.agent.loop import Agent
from foldline.apps.bot.session_names import By
from foldline.models.port import Model

Notices: TypeAlias = Literal["off", "quiet", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for every chat of a bot."""

    allowed: frozenset[int] = frozenset()
    """Numbers of people, and of groups (below zero): everybody in them."""
    admins: tuple[int, ...] = ()
    """People who approve tools and change the model; they are allowed too. The first is asked
    where nobody of them is in the chat."""
    by: By = "chat"
    """Whether a group is one session, or one for each of its people."""
    notices: Notices = "quiet"
    """off: answers alone; quiet: footers, and folds told without a sound; full: also tools."""
    lease: float = 15.0
    """Seconds for which a turn takes its session, renewed while it lasts: after a kill -9 it takes
    as long until the session goes on."""
    again: float = 30.0
    """Seconds after which a model that was overloaded is asked again; doubled each time."""
    asking: float = 900.0
    """Seconds for which somebody may think about a tool."""
    look: float = 10.0
    """Seconds between two looks for what other processes have written."""
    most: int = 128
    """Chats that are held open where nothing happens in them."""

    def lets(self, user: int, chat: int) -> bool:
        """Whether somebody may talk here."""
        return user in self.allowed or user in self.admins or (chat < 0 and chat in self.allowed)


class Seat(Protocol):
    """An agent at work in one session, made by whoever knows settings."""

    @property
    def agent(self) -> Agent:
        """The loop, with its session, its model and its tools."""
        ...

    @property
    def models(self) -> Callable[[str], Model]:
        """The client of another model, for /model."""
        ...

    @property
    def approvals(self) -> Approvals | None:
        """Who is asked before something is changed."""
        ...
