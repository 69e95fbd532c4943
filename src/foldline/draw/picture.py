"""What the model sees now, as one value: every part of the request, and what is left of the window.

Knows sizes, states, tiers, and what of the request the provider has seen before. Refuses to know
how it is drawn, and decides nothing: a view is pictured as it stands.

    picture(view, facts)  →  terminal(picture)   text
                          →  svg(picture)        a drawing

All sizes are in the tokens of the report, and sum to its total; what an event stores of a clip or a
fold is in the measure of the estimate and is brought to the same one.
"""

from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, TypeAlias

import msgspec

from foldline.core.budget import Budget, Source, measure
from foldline.core.edits.fold import Cache
from foldline.core.fold_selection import Facts
from foldline.core.item import Item, State
from foldline.core.log import ToolReturned, UserSaid
from foldline.core.plan import pressure_of, tiers
from foldline.core.prices import UNKNOWN, Prices
from foldline.core.request import NAMES, Kind, Pressure, Report, report
from foldline.core.spine import Range, ends
from foldline.core.tokens import count_parts
from foldline.core.view import View
from foldline.draw.prefix import kept

Space: TypeAlias = Literal["free", "margin", "closed", "reserve"]
Fill: TypeAlias = Kind | Space
"""What a cell of the window holds: a part of the request, or a reason why it is empty."""
KINDS: tuple[Kind, ...] = ("system", "tools", "handoffs", "user", "model", "results")
SPACES: tuple[Space, ...] = ("free", "margin", "closed", "reserve")
_YELLOW, _RED = 70, 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Neighbours in the request that are of one kind and in one state."""

    kind: Kind
    state: State = "whole"
    tokens: int
    items: int
    span: Range | None = None
    """The first and the last of the events that it shows; None for what opens every request."""


@dataclass(frozen=True, slots=True)
class Short:
    """Items of one kind that are shown in part, or by a stub: how many, and how much of them."""

    kind: Kind
    state: Literal["clipped", "masked"]
    items: int
    shown: int
    whole: int


@dataclass(frozen=True, slots=True)
class Fold:
    """One fold that stands: the events it covers, and what they took and take."""

    at: int
    span: Range
    messages: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Prefix:
    """How much of the request is as the provider saw it last, from its first token on."""

    kept: int
    new: int
    sent: bool
    """Whether any request is known to have been sent."""
    cache: Cache
    """Whether the provider still holds it."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What the input of the next call costs, in dollars."""

    dollars: float
    uncached: float
    """The same, if nothing were cached and nothing were written to a cache."""
    assumed: bool
    """Whether the price of a cached read is a guess."""
    step: int | None = None
    """The size above which all costs more, where this request is above it: it costs more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What the model sees now, and where its window goes."""

    model: str
    policy: str
    window: int
    source: Source
    """Where the window's number is from."""
    reserve: int
    margin: int
    room: int
    most: int
    """The largest request that the model takes, with the reserve kept free."""
    counted: Literal["reported", "estimated"]
    """Whether the total rests on a provider's count of the request before."""
    pressure: Pressure
    runs: tuple[Run, ...]
    """In the order they are sent."""
    shorts: tuple[Short, ...]
    folds: tuple[Fold, ...]
    tiers: tuple[tuple[Pressure, int], ...]
    """The sizes of a request above which pressure is so, smallest first."""
    prefix: Prefix
    cost: Cost | None
    """None where the model has no known price."""
    warnings: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """The size of the request."""
        return sum(run.tokens for run in self.runs)

    @property
    def percent(self) -> float:
        """Of the window, as it is printed: a colour never contradicts the number beside it."""
        return round(100 * self.total / self.window, 1)

    @property
    def level(self) -> Literal["green", "yellow", "red"]:
        """A-42: green below 70 %, yellow below 90 %, else red."""
        return "green" if self.percent < _YELLOW else "yellow" if self.percent < _RED else "red"

    @property
    def over(self) -> int:
        """By how much the request exceeds what may be sent."""
        return max(self.total - max(self.most - self.margin, 0), 0)

    def of(self, kind: Kind) -> tuple[Run, ...]:
        """The runs of one kind."""
        return tuple(run for run in self.runs if run.kind == kind)

    def spaces(self) -> dict[Space, int]:
        """What the request leaves of the window; where it is too large it eats them in order."""
        ends = (
            max(self.most - self.margin, 0),
            self.most,
            self.window - self.reserve,
            self.window,
        )
        start, sizes = self.total, list[int]()
        for end in ends:
            sizes.append(max(end - start, 0))
            start = max(start, end)
        return dict(zip(SPACES, sizes, strict=True))


def picture(view: View, facts: Facts) -> Picture:
    """The picture of a view as it stands: what would be sent if nothing were edited."""
    budget = measure(view, facts.limits)
    pressure = pressure_of(budget, facts.policy)
    seen = report(view, budget, pressure=pressure)
    limits, fixed = budget.limits, budget.system + budget.tools
    items = (*view.items, *view.waiting)
    sizes = _sizes(items, seen)
    raw = sum(item.tokens for item in items)
    scale = sum(sizes) / raw if raw else 1.0
    steps: list[tuple[Pressure, int]] = [
        (name, fixed + limit) for name, limit in tiers(budget, facts.policy).items()
    ]
    prefix = _prefix(view, sizes, budget=budget, cache=facts.cache)
    return Picture(
        model=view.model,
        policy=facts.policy.name,
        window=seen.window,
        source=limits.source,
        reserve=seen.reserve,
        margin=seen.margin,
        room=seen.room,
        most=min(limits.window - limits.reserve, limits.max_input or limits.window),
        counted=seen.source,
        pressure=pressure,
        runs=(*_fixed(view, budget), *_runs(view, items, sizes)),
        shorts=_shorts(view, items, scale),
        folds=_folds(view, scale),
        tiers=tuple(sorted(steps, key=lambda step: step[1])),
        prefix=prefix,
        cost=_cost(prefix, facts.prices),
        warnings=seen.warnings,
    )


def cells(drawn: Picture, count: int) -> tuple[Fill, ...]:
    """The window in so many equal cells, each by what lies in its middle, in the order sent.

    By the middle and not by the largest: so a kind that is always the smaller one of two has as
    many cells as it has tokens.
    """
    stretches: list[tuple[Fill, int]] = [(run.kind, run.tokens) for run in drawn.runs]
    stretches += drawn.spaces().items()
    found: list[Fill] = []
    end, fill = 0, SPACES[-1]
    coming = iter(stretches)
    for cell in range(count):
        middle = (2 * cell + 1) * drawn.window // (2 * count)
        while end <= middle:
            fill, tokens = next(coming)
            end += tokens
        found.append(fill)
    if drawn.total and found and found[0] in SPACES:  # too small for a cell, but not nothing
        found[0] = max(drawn.runs, key=lambda run: run.tokens).kind
    return tuple(found)


def _fixed(view: View, budget: Budget) -> tuple[Run, ...]:
    """What opens every request."""
    words = 1 if budget.system else 0
    found = (
        Run(kind="system", tokens=budget.system, items=words),
        Run(kind="tools", tokens=budget.tools, items=len(view.newest.tools)),
    )
    return tuple(run for run in found if run.items or run.tokens)


def _sizes(items: tuple[Item, ...], seen: Report) -> list[int]:
    """Each item's tokens, so that those of one kind sum to what the report says of it."""
    whole: dict[Kind, int] = {}
    for item in items:
        kind = NAMES[item.role]
        whole[kind] = whole.get(kind, 0) + item.tokens
    past, sizes = dict.fromkeys(whole, 0), list[int]()
    for item in items:
        kind = NAMES[item.role]
        before = seen.parts[kind] * past[kind] // whole[kind]
        past[kind] += item.tokens
        sizes.append(seen.parts[kind] * past[kind] // whole[kind] - before)
    return sizes


def _runs(view: View, items: tuple[Item, ...], sizes: list[int]) -> tuple[Run, ...]:
    found: list[Run] = []
    pairs = zip(items, sizes, strict=True)
    for (role, state), group in groupby(pairs, key=lambda pair: (pair[0].role, pair[0].state)):
        members = list(group)
        spans = [_span(view, item) for item, _ in members]
        run = Run(
            kind=NAMES[role],
            state=state,
            tokens=sum(size for _, size in members),
            items=len(members),
            span=Range(min(lo for lo, _ in spans), max(hi for _, hi in spans)),
        )
        found.append(run)
    return tuple(found)


def _span(view: View, item: Item) -> tuple[int, int]:
    if item.state != "folded":
        return item.seq, item.seq
    return ends(view.fold_at(item.seq).change.span)


def _shorts(view: View, items: tuple[Item, ...], scale: float) -> tuple[Short, ...]:
    sums: dict[tuple[Kind, Literal["clipped", "masked"]], tuple[int, int, int]] = {}
    for item in items:
        event = view.held.get(item.seq)
        if item.state not in ("clipped", "masked") or not isinstance(
            event, UserSaid | ToolReturned
        ):
            continue
        clip = event.clip
        shown = clip.shown if clip and item.state == "clipped" else item.tokens
        whole = clip.whole if clip else count_parts(event.parts)
        key = NAMES[item.role], item.state
        before = sums.get(key, (0, 0, 0))
        sums[key] = before[0] + 1, before[1] + shown, before[2] + whole
    return tuple(
        Short(kind, state, count, round(shown * scale), round(whole * scale))
        for (kind, state), (count, shown, whole) in sums.items()
    )


def _folds(view: View, scale: float) -> tuple[Fold, ...]:
    return tuple(
        Fold(
            at,
            Range(*ends(fold.change.span)),
            fold.messages,
            round(fold.before * scale),
            round(fold.after * scale),
        )
        for at, fold in view.folds().items()
    )


def _prefix(view: View, sizes: list[int], *, budget: Budget, cache: Cache) -> Prefix:
    count = kept(view)
    total = budget.system + budget.tools + sum(sizes)
    same = 0 if count is None else budget.system + budget.tools + sum(sizes[:count])
    return Prefix(same, total - same, sent=view.asked >= 0, cache=cache)


def _cost(prefix: Prefix, prices: Prices) -> Cost | None:
    if prices == UNKNOWN:
        return None
    total = prefix.kept + prefix.new
    read = 0 if prefix.cache == "cold" else prefix.kept
    dollars = (prices.read * read + prices.write * (total - read)) / 1_000_000
    step = prices.step if prices.step is not None and total > prices.step else None
    return Cost(dollars, prices.input * total / 1_000_000, prices.assumed, step)


def pictured(drawn: Picture) -> dict[str, Any]:
    """A picture as the document that scripts read."""
    body: dict[str, Any] = msgspec.to_builtins(drawn)
    return {
        **body,
        "total": drawn.total,
        "percent": drawn.percent,
        "level": drawn.level,
        "over": drawn.over,
        "spaces": drawn.spaces(),
        "parts": {run.kind: sum(one.tokens for one in drawn.of(run.kind)) for run in drawn.runs},
    }
