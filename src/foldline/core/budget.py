"""How much of the window a conversation may fill, and how much it does.

Knows the one formula, room = window - system - tools - reserve - margin, and the three limits of
a model: its window, the most it takes, the most it gives. Refuses to know what is done about it.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias

from foldline.core import rules
from foldline.core.parts import Native, Part, Tool
from foldline.core.tokens import MESSAGE, count, count_parts, count_tools
from foldline.core.view import View

Source: TypeAlias = Literal["user", "provider", "learned", "catalogue", "default"]
UNKNOWN_WINDOW = 128_000
_LEAST_CLIP = 64  # a marker with its handle, and a few words
_LEAST_HANDOFF = 160  # a handoff that says little more than what it covers
_LARGE_TOOLS = 0.20  # of the window: tools above that are worth a word


@dataclass(frozen=True, slots=True)
class Limits:
    """What a model takes and gives, and where the window's number is from."""

    window: int
    """What it takes in all: input and answer."""
    source: Source
    """Who says so: user, provider, learned, catalogue or default."""
    reserve: int
    """Kept free for the answer."""
    max_input: int | None = None
    """The most that may be sent, where that is less than window less reserve."""
    step: int | None = None
    """Above this many tokens sent, every one of them costs more."""
    max_output: int | None = None
    """The most that it gives, where that is known."""
    clamped: bool = False
    """Whether the reserve that was asked for was too large to keep."""

    @property
    def messages(self) -> int:
        """How many live messages call for an edit, whatever their size: a bound for memory."""
        if self.source == "default":
            return 1_000
        most = self.max_input or self.window - self.reserve
        return min(max(2 * (most // 200), 100), 2_000)


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
        most = self.limits.window - self.limits.reserve
        if self.limits.max_input is not None:
            most = min(most, self.limits.max_input)
        return max(most - self.system - self.tools - self.margin, 0)

    def tier(
        self,
        share: float,
        *,
        of: Literal["room", "window"] = "room",
        tokens: int | None = None,
    ) -> int:
        """A trigger: the smallest of a share, an absolute number and, for shares of room, the step.

        A share of the window counts all that is sent. Where reserve and margin leave less than
        that, shares keep their order below room, so that a person is warned before it is full.
        """
        limit = self.room * share
        if of == "window":
            whole = self.limits.window * share - self.system - self.tools
            limit = min(whole, self.room * (0.7 + 0.3 * share))
        if tokens is not None and tokens > 0:
            limit = min(limit, tokens)
        if of == "room" and self.limits.step is not None:
            before_step = self.limits.step - self.system - self.tools - self.margin
            # A step that the fixed parts alone pass cannot be kept below: it is no trigger then.
            limit = min(limit, before_step) if before_step > 0 else limit
        return int(limit)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know and may change."""
        found: list[str] = []
        window = self.limits.window
        if self.limits.source == "default":
            found.append(f"the model's window is not known: {window:,} is assumed; give window=")
        if self.limits.clamped:
            found.append(f"the output reserve was clamped to {self.limits.reserve:,}")
        if self.tools > _LARGE_TOOLS * window:
            found.append(f"tools take {self.tools:,} of {window:,} tokens before anything is said")
        return tuple(found)

    @property
    def request(self) -> int:
        """What would be sent now."""
        return self.system + self.tools + self.used

    def estimated(self, tokens: float) -> int:
        """So many tokens in the measure of the estimate, in which items are sized."""
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
    """Sane limits from what is known: unset, 0 or negative never switches the gate off."""
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


def keeping(known: Limits, reserve: int) -> Limits:
    """The same for an answer that may take so much, as far as that can be kept free."""
    return limits(
        known.window,
        reserve,
        source=known.source,
        max_input=known.max_input,
        step=known.step,
        max_output=known.max_output,
    )


def learned(limits: Limits, window: int | None) -> Limits:
    """The same, unless a provider has stated a smaller window: then that one, for good."""
    if window is None or window <= 0 or window >= limits.window:
        return limits
    reserve = min(limits.reserve, window // 2)
    most = limits.max_input
    kept = most if most is not None and most < window - reserve else None
    return replace(limits, window=window, source="learned", reserve=reserve, max_input=kept)


def measure(view: View, limits: Limits) -> Budget:
    """The budget of a view as it stands."""
    limits = learned(limits, view.windows.get(view.model))
    # What may be estimated at most is the less the more tokens an estimate turns out to be.
    ratio = max(view.learned.edited().ratio, view.learned.ratio)
    system, tools = (round(size * ratio) for size in _fixed(view))
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
    return sum(_fixed(view)) + view.tokens + waiting


def admission(view: View, budget: Budget, *, hard: float, handoff: float) -> int:
    """The most that the next result may be estimated at, beside what no fold could remove."""
    fixed = sum(item.tokens for item in (*view.items[rules.newest(view) :], *view.waiting))
    free = budget.estimated(budget.room * (hard - handoff / 2)) - fixed
    return max(free // max(len(view.open), 1), _LEAST_CLIP)  # a step's results share what is left


def largest(budget: Budget) -> int:
    """The most that one message may be estimated at: all of room, but for the smallest handoff."""
    return max(budget.estimated(budget.room) - _LEAST_HANDOFF, _LEAST_CLIP)


def _fixed(view: View) -> tuple[int, int]:
    """The sizes of what opens every request: the system's words, the tools."""
    return _system(view.instructions.parts, view.instructions.native), _tools(view.newest.tools)


@lru_cache(maxsize=256)  # asked before every call, and the same for a whole conversation
def _system(parts: tuple[Part, ...], native: tuple[Native, ...]) -> int:
    words = count_parts(parts) + MESSAGE if parts else 0
    return max(words, sum(count(one.body) + MESSAGE for one in native))


@lru_cache(maxsize=256)
def _tools(tools: tuple[Tool, ...]) -> int:
    return count_tools(tools)
