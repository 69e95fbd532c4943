"""Measure how much of the window a conversation may fill, and how much it does.

    room = window - system - tools - reserve - margin

A model has three limits: its window, the most input it takes, and the most output it gives.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias

from foldline.core import rules
from foldline.core.parts import Native, Part
from foldline.core.tokens import MESSAGE, count_parts, count_tokens, count_tools
from foldline.core.view import View

Source: TypeAlias = Literal["user", "provider", "learned", "catalogue", "default"]
UNKNOWN_WINDOW = 128_000
_LEAST_CLIP = 64  # a marker with its handle, and a few words
_LEAST_HANDOFF = 160  # a handoff that says little more than what it covers
_LARGE_TOOLS = 0.20  # of the window: larger tools are worth a warning


@dataclass(frozen=True, slots=True)
class Limits:
    """A model's limits in tokens, and who stated the window."""

    window: int
    """Input and answer together."""
    source: Source
    """Who stated the window: user, provider, learned, catalogue or default."""
    reserve: int
    """Kept free for the answer."""
    max_input: int | None = None
    """The most input, if that is less than window minus reserve."""
    step: int | None = None
    """The input size above which every token costs more."""
    max_output: int | None = None
    """The most output, if known."""
    clamped: bool = False
    """Whether the requested reserve was too large to keep."""

    @property
    def messages(self) -> int:
        """The number of messages above which a fold is forced, to bound memory and time."""
        if self.source == "default":
            return 1_000
        most = self.max_input or self.window - self.reserve
        return min(max(most // 10, 200), 4_000)


@dataclass(frozen=True, slots=True)
class Budget:
    """The window, part by part, in tokens as the model counts them, as far as known."""

    limits: Limits
    system: int
    tools: int
    margin: int
    used: int
    ratio: float
    """The model's tokens for each estimated token, once something is edited."""

    @property
    def room(self) -> int:
        """The tokens left for the conversation itself; never below 0."""
        most = self.limits.window - self.limits.reserve
        if self.limits.max_input is not None:
            most = min(most, self.limits.max_input)
        return max(most - self.system - self.tools - self.margin, 0)

    def compute_tier(
        self,
        share: float,
        *,
        of: Literal["room", "window"] = "room",
        tokens: int | None = None,
    ) -> int:
        """Compute a trigger: the least of a share, a number and, for shares of room, the step.

        A share of the window counts all that is sent. If reserve and margin leave less than that,
        shares keep their order below room, so that the user is warned before it is full.
        """
        limit = self.room * share
        if of == "window":
            whole = self.limits.window * share - self.system - self.tools
            limit = min(whole, self.room * (0.7 + 0.3 * share))
        if tokens is not None and tokens > 0:
            limit = min(limit, tokens)
        if of == "room" and self.limits.step is not None:
            before_step = self.limits.step - self.system - self.tools - self.margin
            # If the fixed parts alone exceed the step, no fold can get below it: no trigger.
            limit = min(limit, before_step) if before_step > 0 else limit
        return int(limit)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know and may change."""
        notes: list[str] = []
        window = self.limits.window
        if self.limits.source == "default":
            notes.append(f"the model's window is not known: {window:,} is assumed; give window=")
        if self.limits.clamped:
            notes.append(f"the output reserve was clamped to {self.limits.reserve:,}")
        if self.tools > _LARGE_TOOLS * window:
            notes.append(f"tools take {self.tools:,} of {window:,} tokens before anything is said")
        return tuple(notes)

    @property
    def request(self) -> int:
        """The tokens that would be sent now."""
        return self.system + self.tools + self.used

    def convert_to_estimate(self, tokens: float) -> int:
        """Convert the model's tokens to estimated tokens, in which items are sized."""
        return int(tokens / self.ratio)


def limits(  # noqa: PLR0913 - whatever is known of a model
    window: int | None,
    reserve: int | None,
    *,
    source: Source = "user",
    max_input: int | None = None,
    step: int | None = None,
    max_output: int | None = None,
) -> Limits:
    """Make limits from what is known; unset, 0 or negative values never disable the check."""
    known = window is not None and window > 0
    size = window if known and window is not None else UNKNOWN_WINDOW
    wanted = reserve if reserve is not None and reserve > 0 else size // 10
    kept = min(wanted, size // 2)
    return Limits(
        window=size,
        source=source if known else "default",
        reserve=kept,
        max_input=max_input if max_input and max_input < size - kept else None,
        step=step if step and step > 0 else None,
        max_output=max_output,
        clamped=kept < wanted,
    )


def replace_reserve(known: Limits, reserve: int) -> Limits:
    """Return the limits with another reserve, clamped to what can be kept free."""
    return limits(
        known.window,
        reserve,
        source=known.source,
        max_input=known.max_input,
        step=known.step,
        max_output=known.max_output,
    )


def apply_learned_window(limits: Limits, window: int | None) -> Limits:
    """Return the limits with the window that a provider stated, if that is smaller."""
    if window is None or window <= 0 or window >= limits.window:
        return limits
    reserve = min(limits.reserve, window // 2)
    most = limits.max_input
    kept = most if most is not None and most < window - reserve else None
    return replace(limits, window=window, source="learned", reserve=reserve, max_input=kept)


def measure_budget(view: View, limits: Limits) -> Budget:
    """Measure the budget of a view as it stands."""
    limits = apply_learned_window(limits, view.windows.get(view.model))
    # The larger ratio is the safe one: it allows fewer estimated tokens.
    ratio = max(view.learned.reset_after_edit().ratio, view.learned.ratio)
    system, tools = (round(size * ratio) for size in _count_fixed_tokens(view))
    return Budget(
        limits=limits,
        system=system,
        tools=tools,
        margin=int(limits.window * view.learned.margin),
        used=max(view.learned.estimate_tokens(estimate_request(view)) - system - tools, 0),
        ratio=ratio,
    )


def estimate_request(view: View) -> int:
    """Estimate the size of a view's request, before the correction by reports."""
    waiting = sum(item.tokens for item in view.waiting)
    return sum(_count_fixed_tokens(view)) + view.tokens + waiting


def measure_result_room(view: View, budget: Budget, *, hard: float, handoff: float) -> int:
    """Measure the most estimated tokens of the next result, beside what no fold could remove."""
    fixed = sum(
        item.tokens for item in (*view.items[rules.find_protected_start(view) :], *view.waiting)
    )
    free = budget.convert_to_estimate(budget.room * (hard - handoff / 2)) - fixed
    return max(free // max(len(view.open), 1), _LEAST_CLIP)  # open calls share what is left


def measure_message_room(budget: Budget) -> int:
    """Measure the most estimated tokens of one message: room minus the smallest handoff."""
    return max(budget.convert_to_estimate(budget.room) - _LEAST_HANDOFF, _LEAST_CLIP)


def _count_fixed_tokens(view: View) -> tuple[int, int]:
    """Count what opens every request: the system prompt, the tools."""
    fixed = view.instructions
    return _count_system_tokens(fixed.parts, fixed.native), _count_tool_tokens(view.newest.tools)


@lru_cache(maxsize=256)  # needed before every call, and the same for a whole conversation
def _count_system_tokens(parts: tuple[Part, ...], native: tuple[Native, ...]) -> int:
    words = count_parts(parts) + MESSAGE if parts else 0
    return max(words, sum(count_tokens(one.body) + MESSAGE for one in native))


_count_tool_tokens = lru_cache(maxsize=256)(count_tools)
