"""Measure how much of the window a conversation may fill, and how much it does.

    room = window - system - tools - reserve - margin

A model has three limits: its window, the most input it takes, and the most output it gives.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from typing import Literal, TypeAlias

from foldline.core import rules
from foldline.core.item import Item
from foldline.core.parts import Native, Part
from foldline.core.token_bounds import count_cautiously
from foldline.core.tokens import (
    MESSAGE,
    MOST_MARGIN,
    Estimator,
    count_parts,
    count_tokens,
    count_tools,
    quarter_bytes,
)
from foldline.core.view import View

Source: TypeAlias = Literal["user", "provider", "learned", "catalogue", "default"]
UNKNOWN_WINDOW = 128_000
_EXACT = 1e-6  # tokens
_LEAST_CLIP = 64  # a marker with its handle, and a few words
_LEAST_HANDOFF = 200  # a handoff that says little more than what it covers
_KNOWN_BETTER = 0.06  # of the bound of plain text, for each of the first three reports
_MOST_STRAIN = 3.0
_NEAR = 0.3  # of room: above that an exact count is worth its time
_LARGE_TOOLS = 0.20  # of the window: larger tools are worth a warning
_MOST_KEPT = 8  # a default reserve is at most this part of the window
_ANSWER = 0.5  # of what a threshold leaves of the window: the most for a default reserve
_LEAST_ANSWER, _LEAST_PART = 2_000, 25  # tokens, and part of the window: no smaller reserve
_LAST_CALL = 0.97  # of room: where a threshold above room takes effect


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
    tokenizer: Callable[[str], int] | None = None
    """The model's own, where it can be had: near the limit its count decides what fits."""
    margin: float = MOST_MARGIN
    """The most of the window, as a share, that is kept for the errors of estimates."""
    threshold: float | None = None
    """The share of the window from which a fold is due, if the policy has such a number."""
    estimator: Estimator = "classes"
    """How a request is estimated until a provider has counted it."""

    @property
    def count(self) -> Callable[[str], int]:
        """What decides whether a text fits that no provider has counted."""
        return self.tokenizer or count_cautiously

    @property
    def largest_threshold(self) -> float:
        """The largest share of the window that can be filled: reserve and margin are the rest."""
        most = min(self.window - self.reserve, self.max_input or self.window)
        return max(most - int(self.window * self.margin), 0) / self.window

    def explain_threshold(self) -> str:
        """Explain why the threshold cannot be reached, and which can; "" if it can be."""
        most, kept = self.largest_threshold, int(self.window * self.margin)
        if self.threshold is None or self.threshold <= most:
            return ""
        taken = f"{self.reserve:,} of {self.window:,} tokens are kept for the answer"
        if self.max_input is not None:
            taken = f"the model takes {self.max_input:,} of {self.window:,} tokens"
        return (
            f"{self.threshold:g} of the window cannot be reached: {taken}, and {kept:,} for errors "
            f"of the count; the largest share that works is {int(100 * most) / 100:g}"
        )

    def count_messages(self, *, each: int, least: int, most: int) -> int:
        """Count the messages of `each` tokens that the input holds, two by two, within bounds."""
        return min(max(2 * ((self.max_input or self.window) // (2 * each)), least), most)


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
    doubt: int = 0
    """How far the request may be above its estimate, where no provider has counted it and
    tokenizers disagree."""
    strain: float = 1.0
    """The factor on bounds, where a provider has counted more than was estimated or possible."""

    @property
    def room(self) -> int:
        """The tokens left for the conversation itself; never below 0."""
        most = self.limits.window - self.limits.reserve
        if self.limits.max_input is not None:
            most = min(most, self.limits.max_input)
        return max(most - self.system - self.tools - self.margin, 0)

    @property
    def fits(self) -> bool:
        """Whether the request fits even if all that is in doubt is as large as it may be."""
        return self.safe <= self.room

    @property
    def safe(self) -> int:
        """The conversation's tokens if all that is in doubt is as large as it may be.

        The margin is for the errors of estimates, so doubt may fill half of it.
        """
        return self.used + max(self.doubt - self.margin // 2, 0)

    def grow(self, tokens: float) -> "Budget":
        """Return the budget with so many tokens more, as much in doubt as the others."""
        by = tokens / max(self.used, 1)
        more = {"used": self.used + round(tokens), "doubt": round(self.doubt * (1 + by))}
        return replace(self, **more)

    def shrink(self, by: float = 1.0) -> "Budget":
        """Return the budget in which estimates are safe: its room is smaller by what is in doubt.

        And `by` times as large.
        """
        less = round(self.room * (1 - min(by * self.used / max(self.safe, 1), 1.0)))
        most = self.limits.max_input
        window, most = self.limits.window - less, None if most is None else most - less
        return replace(self, limits=replace(self.limits, window=window, max_input=most))

    def compute_tier(
        self,
        share: float,
        *,
        of: Literal["room", "window"] = "room",
        tokens: int | None = None,
    ) -> int:
        """Compute a trigger: the least of a share, a number and, for shares of room, the step.

        A share of the window counts all that is sent, and is not changed by what reserve and
        margin leave. One that they make impossible takes effect a little below room, so that the
        user is warned before it is full.
        """
        limit = self.room * share
        if of == "window":
            # A share such as 0.7 is no exact number: 0.7 of 90,000 is 62,999.99….
            whole = ceil(self.limits.window * share - _EXACT) - self.system - self.tools
            limit = whole if whole <= self.room else self.room * max(share, _LAST_CALL)
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
        if impossible := self.limits.explain_threshold():
            notes.append(f"a threshold of {impossible}")
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
    tokenizer: Callable[[str], int] | None = None,
    usual: int | None = None,
    margin: float = MOST_MARGIN,
    threshold: float | None = None,
    estimator: Estimator = "classes",
) -> Limits:
    """Make limits from what is known; unset, 0 or negative values never disable the check.

    `usual` is a policy's reserve, for windows that are large enough; `reserve` is what was asked.
    """
    known = window is not None and window > 0
    size = window if known and window is not None else UNKNOWN_WINDOW
    wanted = reserve if reserve and reserve > 0 else 0
    usually = _choose_reserve(size, usual, threshold=threshold, margin=margin)
    wanted = wanted or min(usually, max_output or size)  # no answer is longer than the model's most
    kept = min(wanted, size // 2)
    return Limits(
        window=size,
        source=source if known else "default",
        reserve=kept,
        max_input=max_input if max_input and max_input < size - kept else None,
        step=step if step and step > 0 else None,
        max_output=max_output,
        clamped=kept < wanted,
        tokenizer=tokenizer,
        margin=margin,
        threshold=threshold,
        estimator=estimator,
    )


def _choose_reserve(
    window: int, usual: int | None, *, threshold: float | None, margin: float
) -> int:
    """Choose the default reserve: it leaves a threshold the room that it needs."""
    if usual is not None:
        return min(usual, window // _MOST_KEPT)
    if threshold is None:
        return window // 10
    left = 1 - threshold
    most = int(window * min(left * _ANSWER, left - margin) + _EXACT)
    return min(window // 10, max(most, min(_LEAST_ANSWER, window // _LEAST_PART)))


def replace_reserve(known: Limits, reserve: int) -> Limits:
    """Return the limits with another reserve, clamped to what can be kept free."""
    return limits(
        known.window,
        reserve,
        source=known.source,
        max_input=known.max_input,
        step=known.step,
        max_output=known.max_output,
        tokenizer=known.tokenizer,
        margin=known.margin,
        threshold=known.threshold,
        estimator=known.estimator,
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
    """Measure the budget of a view."""
    limits = apply_learned_window(limits, view.windows.get(view.model))
    # The larger ratio is the safe one: it allows fewer estimated tokens.
    ratio = max(view.learned.reset_after_edit().ratio, view.learned.ratio)
    system, tools = (round(size * ratio) for size in _count_fixed_tokens(view))
    strain = max(ratio, min(view.strains.get(view.model, 1.0), _MOST_STRAIN), 1.0)
    tokens, most = _bound_uncounted(view)
    whole = view.learned.estimate_tokens(estimate_request(view))
    uncounted = tokens * view.learned.ratio
    if limits.estimator == "bytes/4":
        _, quarter = _bound_uncounted(view, quarter_bytes)
        whole, uncounted = whole + round(quarter - uncounted), quarter
    budget = Budget(
        limits=limits,
        system=system,
        tools=tools,
        margin=int(limits.window * min(view.learned.margin, limits.margin)),
        used=max(whole - system - tools, 0),
        ratio=ratio,
        doubt=max(round(most * strain - uncounted), 0),
        strain=strain,
    )
    if limits.tokenizer is None or budget.safe <= _NEAR * budget.room:
        return budget
    _, exact = _bound_uncounted(view, limits.tokenizer)
    used = max(whole - round(uncounted) + exact - system - tools, 0)
    ratio = max(used, 1) / max(estimate_conversation(view), 1)
    return replace(budget, used=used, doubt=0, ratio=ratio, strain=1.0)


def _bound_uncounted(view: View, count: Callable[[str], int] = count_cautiously) -> tuple[int, int]:
    """Sum what no provider has counted: its estimate, and what it may take at most.

    With each report it is better known how a model counts plain text, unless it was far off again.
    """
    tokens, most, plain = view.bound_items(view.counted, count)
    errors = view.learned.errors
    known = _KNOWN_BETTER * min(len(errors), 3) - max(errors[1:][-3:], default=0)
    most -= int(plain * max(known, 0))
    changed = 0 <= view.counted < (view.instructed or 0)
    if changed or not view.learned.errors:  # else a provider has counted system and tools
        tokens += sum(_count_fixed_tokens(view))
        most += sum(_count_fixed_tokens(view, count))
    return tokens, most


def estimate_request(view: View) -> int:
    """Estimate the size of a view's request, before the correction by reports."""
    return sum(_count_fixed_tokens(view)) + estimate_conversation(view)


def estimate_conversation(view: View) -> int:
    """Estimate the items of a view, before the correction by reports."""
    return view.tokens + sum(item.tokens for item in view.waiting)


def measure_result_cap(budget: Budget, most: int) -> int:
    """Measure how large a result may arrive whole: a policy's most, and a quarter of room."""
    return min(most, max(budget.room // 4, 1))


def measure_result_room(view: View, budget: Budget, *, hard: float, handoff: float) -> int:
    """Measure the room for the next result, beside what no fold could remove."""
    kept = (*view.items[rules.find_protected_start(view) :], *view.waiting)
    free = measure_free_room(view, budget, kept, of=budget.room * (hard - handoff / 2))
    return max(free // max(len(view.open), 1), _LEAST_CLIP)  # open calls share what is left


def measure_message_room(view: View, budget: Budget) -> int:
    """Measure the room for a message that arrives, beside what no fold could remove.

    Messages that nobody has answered either are not subtracted: all of them share the room.
    """
    start = rules.find_protected_start(view) if view.open else len(view.items)
    free = measure_free_room(view, budget, view.items[start:], of=budget.room)
    return max(free - measure_least_handoff(view, view.items[:start], budget), _LEAST_CLIP)


def measure_least_handoff(view: View, items: Iterable[Item], budget: Budget) -> int:
    """Measure what is left of items at least: themselves where they are few, else a handoff."""
    # It is built by its estimate, which a tokenizer's count may exceed.
    total, least = 0, _LEAST_HANDOFF * (2 if budget.limits.tokenizer else 1)
    for item in items:
        total += view.bound_item(item, budget.limits.count)
        if total > 2 * least:
            return least
    return total


def measure_free_room(view: View, budget: Budget, kept: Iterable[Item], *, of: float) -> int:
    """Measure what is free of so many tokens beside `kept`, by the count that decides what fits.

    What is in doubt of system and tools may fill half of the margin.
    """
    count = budget.limits.count
    fixed = sum(_count_fixed_tokens(view, count)) * budget.strain
    doubt = max(fixed - budget.system - budget.tools - budget.margin // 2, 0)
    taken = sum(view.bound_item(item, count) for item in kept)
    return int((of - doubt) / budget.strain) - taken


def _count_fixed_tokens(view: View, count: Callable[[str], int] = count_tokens) -> tuple[int, int]:
    """Count what opens every request: the system prompt, the tools."""
    fixed = view.instructions
    return (
        _count_system_tokens(fixed.parts, fixed.native, count),
        _count_tool_tokens(view.newest.tools, count),
    )


@lru_cache(maxsize=256)  # needed before every call, and the same for a whole conversation
def _count_system_tokens(
    parts: tuple[Part, ...], native: tuple[Native, ...], count: Callable[[str], int]
) -> int:
    words = count_parts(parts, count) + MESSAGE if parts else 0
    return max(words, sum(count(one.body) + MESSAGE for one in native))


_count_tool_tokens = lru_cache(maxsize=256)(count_tools)
