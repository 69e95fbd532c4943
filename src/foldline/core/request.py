"""The request in no provider's words, and a report of every token in it.

Knows what a view would send. Refuses to know how a dialect writes it.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from foldline.core.budget import Budget, estimate
from foldline.core.item import Item, Role
from foldline.core.parts import Native, Part, Tool
from foldline.core.view import View

Pressure: TypeAlias = Literal["calm", "warn", "soft", "hard"]
Kind: TypeAlias = Literal["system", "tools", "handoffs", "user", "model", "results"]
NAMES: dict[Role, Kind] = {
    "system": "user",
    "user": "user",
    "model": "model",
    "result": "results",
    "handoff": "handoffs",
}
"""Under which part of a report an item of each role is counted."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent: in a dialect's encoder this becomes bytes."""

    model: str
    system: tuple[Part, ...]
    tools: tuple[Tool, ...]
    items: tuple[Item, ...]
    native: tuple[Native, ...] = ()
    """What `system` came in, where it is to go back as it came."""


@dataclass(frozen=True, slots=True)
class Report:
    """Where the window goes, in tokens; the parts sum to `total`."""

    window: int
    """What the model takes in all."""
    window_source: str
    """Who says so: user, provider, learned, catalogue or default."""
    reserve: int
    """Kept free for the answer."""
    margin: int
    """Kept free for what the estimate may be off by."""
    room: int
    """What is left for the conversation: the window less system, tools, reserve and margin."""
    parts: dict[str, int]
    """By kind: system, tools, handoffs, user, model, results."""
    edits: tuple[int, ...]
    """The edits made for this very request."""
    estimate: int
    """The same total before what reports have taught."""
    source: Literal["reported", "estimated"]
    """Whether the total rests on a provider's count of the request before."""
    pressure: Pressure = "calm"
    """How near the conversation is to what must not be exceeded: calm, warn, soft or hard."""
    due: bool = False
    """Whether a fold is due and waits for a person to start it."""
    warnings: tuple[str, ...] = ()
    """What is worth a word: a reserve that is too large, tools that take a fifth of the window."""

    @property
    def total(self) -> int:
        """The size of the request."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} {size:,}" for name, size in self.parts.items() if size)
        share = 100 * self.total / self.window
        return f"{self.total:,} of {self.window:,} tokens ({share:.1f}%, {self.source}): {sizes}"


def render(view: View) -> Request:
    """The request that a view stands for."""
    fixed = view.instructions
    shown = (*view.items, *view.waiting)
    return Request(view.model, fixed.parts, view.newest.tools, shown, fixed.native)


def report(
    view: View,
    budget: Budget,
    *,
    edits: tuple[int, ...] = (),
    pressure: Pressure = "calm",
    due: bool = False,
) -> Report:
    """Every token of a request, by part."""
    sizes: dict[str, int] = {}
    by_role = view.sizes.copy()
    for item in view.waiting:
        by_role[item.role] += item.tokens
    for role, tokens in by_role.items():
        if tokens:
            sizes[NAMES[role]] = sizes.get(NAMES[role], 0) + tokens
    return Report(
        window=budget.limits.window,
        window_source=budget.limits.source,
        reserve=budget.limits.reserve,
        margin=budget.margin,
        room=budget.room,
        parts={"system": budget.system, "tools": budget.tools, **_shares(sizes, budget.used)},
        edits=edits,
        estimate=estimate(view),
        source="reported" if view.learned.reported else "estimated",
        pressure=pressure,
        due=due,
        warnings=budget.warnings,
    )


def _shares(sizes: dict[str, int], total: int) -> dict[str, int]:
    """Sizes scaled so that they sum to `total` exactly; the last takes what rounding leaves."""
    whole, given, past = sum(sizes.values()), 0, 0
    scaled: dict[str, int] = {}
    for name, size in sizes.items():
        past += size
        upto = total * past // whole
        scaled[name], given = upto - given, upto
    return scaled
