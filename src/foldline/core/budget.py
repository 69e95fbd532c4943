"""How much of the window a conversation may fill, and how much it does.

Knows the one formula: room = window - system - tools - reserve - margin. Refuses to know what is
done about pressure.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from foldline.core import rules
from foldline.core.tokens import MESSAGE, count_parts, count_tools
from foldline.core.view import View

Source: TypeAlias = Literal["user", "default"]
UNKNOWN_WINDOW = 128_000
_LEAST_CLIP = 64  # a marker with its handle, and a few words
_LEAST_HANDOFF = 160  # a handoff that says little more than what it covers


@dataclass(frozen=True, slots=True)
class Limits:
    """What a model takes and gives: the window and where its number is from, the output reserve."""

    window: int
    source: Source
    reserve: int


@dataclass(frozen=True, slots=True)
class Budget:
    """The window, part by part, in tokens as the model counts them, as far as that is known."""

    limits: Limits
    system: int
    tools: int
    margin: int
    used: int
    ratio: float
    """Tokens for each token of the estimate, once something is edited."""

    @property
    def room(self) -> int:
        """What is left for the conversation itself; never below 0."""
        fixed = self.system + self.tools + self.limits.reserve + self.margin
        return max(self.limits.window - fixed, 0)

    @property
    def request(self) -> int:
        """What would be sent now."""
        return self.system + self.tools + self.used

    def estimated(self, tokens: float) -> int:
        """So many tokens in the measure of the estimate, in which items are sized."""
        return int(tokens / self.ratio)


def limits(window: int | None, reserve: int | None) -> Limits:
    """Sane limits from what was set: unset, 0 or negative never switches the gate off."""
    known = window is not None and window > 0
    size = window if known and window is not None else UNKNOWN_WINDOW
    wanted = reserve if reserve is not None and reserve > 0 else size // 10
    return Limits(size, "user" if known else "default", min(wanted, size // 2))


def measure(view: View, limits: Limits) -> Budget:
    """The budget of a view as it stands."""
    ratio = view.learned.edited().ratio
    system, tools = round(_system(view) * ratio), round(count_tools(view.newest.tools) * ratio)
    return Budget(
        limits=limits,
        system=system,
        tools=tools,
        margin=int(limits.window * view.learned.margin),
        used=max(view.learned.tokens(estimate(view)) - system - tools, 0),
        ratio=ratio,
    )


def estimate(view: View) -> int:
    """The size of the request that a view stands for, before what reports have taught."""
    waiting = sum(item.tokens for item in view.waiting)
    return _system(view) + count_tools(view.newest.tools) + view.tokens + waiting


def admission(view: View, budget: Budget, *, hard: float, handoff: float) -> int:
    """The most that the next result may be estimated at, beside what no fold could remove."""
    fixed = sum(item.tokens for item in (*view.items[rules.newest(view) :], *view.waiting))
    free = budget.estimated(budget.room * (hard - handoff / 2)) - fixed
    return max(free // max(len(view.open), 1), _LEAST_CLIP)  # a step's results share what is left


def largest(budget: Budget) -> int:
    """The most that one message may be estimated at: all of room, but for the smallest handoff."""
    return max(budget.estimated(budget.room) - _LEAST_HANDOFF, _LEAST_CLIP)


def _system(view: View) -> int:
    parts = view.instructions.parts
    return count_parts(parts) + MESSAGE if parts else 0
