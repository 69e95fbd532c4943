"""The request, independent of any provider, and a report of every token in it."""

from collections import Counter
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, TypeAlias

from foldline.core.budget import Budget, estimate_request
from foldline.core.item import Item, Role
from foldline.core.log import UserSaid
from foldline.core.names import format_handle
from foldline.core.parts import Native, Part, Tool, text_of
from foldline.core.tokens import count_tokens_roughly
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
"""The part of a report in which items of each role are counted."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent; a dialect encodes it as bytes."""

    model: str
    system: tuple[Part, ...]
    tools: tuple[Tool, ...]
    items: tuple[Item, ...]
    native: tuple[Native, ...] = ()
    """The client's own system messages, where they are sent back unchanged."""


@dataclass(frozen=True, slots=True)
class Report:
    """Where the window goes, in tokens; the parts sum to `total`."""

    window: int
    """The model's window."""
    window_source: str
    """Who stated the window: user, provider, learned, catalogue or default."""
    reserve: int
    """Kept free for the answer."""
    margin: int
    """Kept free for the error of the estimate."""
    room: int
    """What is left for the conversation: the window less system, tools, reserve and margin."""
    parts: dict[str, int]
    """By kind: system, tools, handoffs, user, model, results."""
    edits: tuple[int, ...]
    """The edits made for this request."""
    estimate: int
    """The total before the correction by reports."""
    source: Literal["reported", "estimated"]
    """Whether the total rests on a provider's count of the request before."""
    doubt: int = 0
    """How far the total may be above its estimate."""
    pressure: Pressure = "calm"
    """How near the conversation is to its limit: calm, warn, soft or hard."""
    due: bool = False
    """Whether a fold is due and waits for a person to start it."""
    warnings: tuple[str, ...] = ()
    """Such as a reserve that is too large, or tools that take a fifth of the window."""
    clipped: tuple[int, ...] = ()
    """The messages that nobody has answered and that are sent cut, as the window holds no more."""
    rule: str = ""
    """From where on old messages are folded, why, and what changes that; sessions say it."""

    @property
    def total(self) -> int:
        """The size of the request."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} {size:,}" for name, size in self.parts.items() if size)
        share = 100 * self.total / self.window
        cut = f"; cut: {', '.join(map(format_handle, self.clipped))}" if self.clipped else ""
        return (
            f"{self.total:,} of {self.window:,} tokens ({share:.1f}%, {self.source}): {sizes}{cut}"
        )


def render(view: View) -> Request:
    """Render the request of a view."""
    fixed = view.instructions
    shown = (*view.items, *view.waiting)
    return Request(view.model, fixed.parts, view.newest.tools, shown, fixed.native)


def build_report(
    view: View,
    budget: Budget,
    *,
    edits: tuple[int, ...] = (),
    pressure: Pressure = "calm",
    due: bool = False,
) -> Report:
    """Report every token of a request, by part."""
    by_role = view.sizes.copy()
    for item in view.waiting:
        by_role[item.role] += item.tokens
    sizes = Counter[str]()
    for role, tokens in by_role.items():
        if tokens:
            sizes[NAMES[role]] += tokens
    clipped = _list_cut_messages(view)
    return Report(
        window=budget.limits.window,
        window_source=budget.limits.source,
        reserve=budget.limits.reserve,
        margin=budget.margin,
        room=budget.room,
        parts={
            "system": budget.system,
            "tools": budget.tools,
            **_fit_sizes_to_total(sizes, budget.used),
        },
        edits=edits,
        estimate=estimate_request(view),
        source="reported" if view.learned.reported else "estimated",
        doubt=budget.doubt,
        pressure=pressure,
        due=due,
        warnings=(*budget.warnings, *(_describe_cut(view, item) for item in clipped)),
        clipped=tuple(item.seq for item in clipped),
    )


def _list_cut_messages(view: View) -> list[Item]:
    """List the messages behind the newest answer that are not shown whole."""
    behind = takewhile(lambda item: item.role != "model", reversed((*view.items, *view.waiting)))
    return [item for item in behind if item.role == "user" and item.state == "clipped"][::-1]


def _describe_cut(view: View, item: Item) -> str:
    said = view.held[item.seq]
    words = text_of(said.parts) if isinstance(said, UserSaid) else ""
    whole = count_tokens_roughly(words, above=item.tokens)
    return (
        f"{format_handle(item.seq)} is cut to {item.tokens:,} of {whole:,} tokens: the window "
        "holds no more of it"
    )


def _fit_sizes_to_total(sizes: dict[str, int], total: int) -> dict[str, int]:
    """Scale sizes so that they sum to `total` exactly; the last takes what rounding leaves."""
    whole, allotted, past = sum(sizes.values()), 0, 0
    scaled: dict[str, int] = {}
    for name, size in sizes.items():
        past += size
        upto = total * past // whole
        scaled[name], allotted = upto - allotted, upto
    return scaled
