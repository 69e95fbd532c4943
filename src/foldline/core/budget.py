"""How much of the window a conversation may fill, and how much it does.

Knows the one formula: room = window - system - tools - reserve - margin. Refuses to know what is
done about pressure.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from foldline.core import rules
from foldline.core.log import Instructed, Tool
from foldline.core.tokens import MESSAGE, count, count_parts
from foldline.core.view import View

Source: TypeAlias = Literal["user", "default"]
UNKNOWN_WINDOW = 128_000
_MARGIN = 0.10
_LEAST_CLIP = 48  # a marker with its handle, and a few words


@dataclass(frozen=True, slots=True)
class Limits:
    """What a model takes and gives: the window and where its number is from, the output reserve."""

    window: int
    source: Source
    reserve: int


@dataclass(frozen=True, slots=True)
class Budget:
    """The window, part by part, in estimated tokens."""

    limits: Limits
    system: int
    tools: int
    margin: int
    used: int

    @property
    def room(self) -> int:
        """What is left for the conversation itself; never below 0."""
        fixed = self.system + self.tools + self.limits.reserve + self.margin
        return max(self.limits.window - fixed, 0)

    @property
    def request(self) -> int:
        """What would be sent now."""
        return self.system + self.tools + self.used


def limits(window: int | None, reserve: int | None) -> Limits:
    """Sane limits from what was set: unset, 0 or negative never switches the gate off."""
    known = window is not None and window > 0
    size = window if known and window is not None else UNKNOWN_WINDOW
    wanted = reserve if reserve is not None and reserve > 0 else size // 10
    return Limits(size, "user" if known else "default", min(wanted, size // 2))


def measure(view: View, limits: Limits) -> Budget:
    """The budget of a view as it stands."""
    return Budget(
        limits=limits,
        system=_system(view.instructions),
        tools=_tools(view.newest.tools),
        margin=int(limits.window * _MARGIN),
        used=view.tokens + sum(item.tokens for item in view.waiting),
    )


def admission(view: View, budget: Budget, *, hard: float, handoff: float) -> int:
    """The most that the next message may take, beside what no fold could remove."""
    fixed = sum(item.tokens for item in (*view.items[rules.newest(view) :], *view.waiting))
    free = int(budget.room * hard) - int(budget.room * handoff / 2) - fixed
    return max(free, _LEAST_CLIP)


def _system(instructions: Instructed) -> int:
    return count_parts(instructions.parts) + MESSAGE if instructions.parts else 0


def _tools(tools: tuple[Tool, ...]) -> int:
    return sum(
        count(tool.name) + count(tool.description) + count(tool.schema) + 2 * MESSAGE
        for tool in tools
    )
