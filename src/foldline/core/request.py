"""The request in no provider's words, and a report of every token in it.

Knows what a view would send. Refuses to know how a dialect writes it.
"""

from dataclasses import dataclass

from foldline.core.budget import Budget
from foldline.core.item import Item
from foldline.core.log import Part, Tool
from foldline.core.view import View


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent: in a dialect's encoder this becomes bytes."""

    model: str
    system: tuple[Part, ...]
    tools: tuple[Tool, ...]
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Where the window goes, in estimated tokens; the parts sum to `total`."""

    window: int
    window_source: str
    reserve: int
    margin: int
    room: int
    parts: dict[str, int]
    edits: tuple[int, ...]
    """The edits made for this very request."""

    @property
    def total(self) -> int:
        """The size of the request."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} {size:,}" for name, size in self.parts.items() if size)
        share = 100 * self.total / self.window
        return f"{self.total:,} of {self.window:,} tokens ({share:.1f}%, estimated): {sizes}"


def render(view: View) -> Request:
    """The request that a view stands for."""
    return Request(
        view.model, view.instructions.parts, view.newest.tools, (*view.items, *view.waiting)
    )


def report(view: View, budget: Budget, *, edits: tuple[int, ...] = ()) -> Report:
    """Every token of a request, by part."""
    parts = {"system": budget.system, "tools": budget.tools}
    for item in (*view.items, *view.waiting):
        name = {"handoff": "handoffs", "model": "model", "result": "results"}.get(item.role, "user")
        parts[name] = parts.get(name, 0) + item.tokens
    return Report(
        window=budget.limits.window,
        window_source=budget.limits.source,
        reserve=budget.limits.reserve,
        margin=budget.margin,
        room=budget.room,
        parts=parts,
        edits=edits,
    )
