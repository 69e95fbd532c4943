"""What the model sees now, as one value: every part of the request, and the rest of the window.

    build_picture(view, facts)  →  draw_picture_terminal(picture), draw_picture_svg(picture)

All sizes are in the tokens of the report and sum to its total; the sizes that events store of clips
and folds are estimates, and are scaled to match.

`count_kept_items` says how much of the request the provider's cache may hold. Where a fold has put
the last request out of sight it says less rather than more: the bill may then be smaller than the
one drawn, never larger.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, TypeAlias

import msgspec

from foldline.core.budget import Budget, Source, measure_budget
from foldline.core.edits.fold import Cache
from foldline.core.fold_selection import Facts
from foldline.core.item import Item, State
from foldline.core.log import (
    Asked,
    Edit,
    Folded,
    Instructed,
    ModelSwitched,
    Opened,
    ToolReturned,
    Undone,
    UserSaid,
)
from foldline.core.parts import Media
from foldline.core.plan import compute_tiers, pressure_of
from foldline.core.prices import PICO, Prices, price_tokens
from foldline.core.request import NAMES, Kind, Pressure, Report, build_report
from foldline.core.spine import Range, ends_of
from foldline.core.tokens import count_parts
from foldline.core.view import View


def count_kept_items(view: View) -> int | None:
    """Count the items, from the first on, that the last request showed as they are now.

    None if even the beginning of the request has changed, or no request is in sight.
    """
    asked = view.held.get(view.asked)
    if not isinstance(asked, Asked):
        return None
    at = asked.at
    since = [event for seq, event in sorted(view.held.items()) if seq > at]
    edits = [event for event in since if isinstance(event, Edit)]
    if any(isinstance(event, ModelSwitched) for event in since) or _tools_changed(view, at):
        return None
    moving = [edit for edit in edits if isinstance(edit, Folded | Undone)]  # masks leave the base
    if moving and not _same_base(view, moving[0].change.base):
        return None
    changed = min((edit.change.span.lo for edit in edits), default=view.head + 1)
    for place, item in enumerate(view.items):
        if item.seq > at or _find_place(view, item) >= changed:
            return _before_media(view.items, place)
    return len(view.items)


def _before_media(items: Sequence[Item], place: int) -> int:
    """Move back before results with images: some dialects send those after all results."""
    first = place
    while first and items[place].role == "result" and items[first - 1].role == "result":
        first -= 1
    shown = (at for at in range(first, place) if any(isinstance(p, Media) for p in items[at].parts))
    return next(shown, place)


def _tools_changed(view: View, at: int) -> bool:
    """Whether the tools have changed since the request at `at`."""
    earlier = (event.tools for seq, event in view.iterate_newest(Instructed) if seq <= at)
    then = next(earlier, ())
    return then != view.newest.tools


def _same_base(view: View, before: int | None) -> bool:
    """Whether the instructions that open the request are the same as before an edit."""
    now = view.spine.base
    if before is not None or now is None:
        return before == now
    # The first fold names the instructions that open every request. They opened it before, too, if
    # they stand at the start of the log; nothing else is known of what the fold covers.
    return now == 0 or (now == 1 and isinstance(view.held.get(0), Opened))


def _find_place(view: View, item: Item) -> int:
    """Return an item's seq; for a handoff, the first seq that it covers."""
    return view.fold_at(item.seq).change.span.lo if item.state == "folded" else item.seq


Space: TypeAlias = Literal["free", "margin", "closed", "reserve"]
Fill: TypeAlias = Kind | Space
"""What a cell of the window holds: a part of the request, or why it is empty."""
KINDS: tuple[Kind, ...] = ("system", "tools", "handoffs", "user", "model", "results")
SPACES: tuple[Space, ...] = ("free", "margin", "closed", "reserve")
Level: TypeAlias = Literal["green", "yellow", "red"]
_YELLOW, _RED = 70, 90


def choose_level(percent: float) -> Level:
    """Return the colour of a used share: green below 70 %, yellow below 90 %, else red."""
    return "green" if percent < _YELLOW else "yellow" if percent < _RED else "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Neighbouring items of the request that are of one kind and state."""

    kind: Kind
    state: State = "whole"
    tokens: int
    items: int
    span: Range | None = None
    """The first and the last event shown; None for instructions and tools."""


@dataclass(frozen=True, slots=True)
class Short:
    """Items of one kind that are shown in part, or by a stub; sizes in tokens."""

    kind: Kind
    state: Literal["clipped", "masked"]
    items: int
    shown: int
    whole: int


@dataclass(frozen=True, slots=True)
class Fold:
    """A fold in force: the events it covers, and their tokens before and after."""

    at: int
    span: Range
    messages: int
    before: int
    after: int
    client: str = ""
    """The agent whose own compaction it is; "" if it is ours."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """How many tokens at the start of the request are as last sent, and how many are new."""

    kept: int
    new: int
    sent: bool
    """Whether any request is known to have been sent."""
    cache: Cache
    """Whether the provider's cache still holds it."""


@dataclass(frozen=True, slots=True)
class InputCost:
    """What the input of the next call costs, in dollars."""

    dollars: float
    uncached: float
    """The cost without a cache."""
    assumed: bool
    """Whether the price of a cached read is a guess."""
    step: int | None = None
    """The size above which every token costs more, if this request is above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What the model sees now, and where its window goes."""

    model: str
    policy: str
    window: int
    source: Source
    """Where the window's size is known from."""
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
    """Each pressure and the request size above which it holds, smallest first."""
    prefix: Prefix
    cost: InputCost | None
    """None if the model has no known price."""
    warnings: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """The size of the request."""
        return sum(run.tokens for run in self.runs)

    @property
    def percent(self) -> float:
        """The used share of the window, rounded as printed: the colour must match it."""
        return round(100 * self.total / self.window, 1)

    @property
    def level(self) -> Level:
        """The colour of that share."""
        return choose_level(self.percent)

    @property
    def over(self) -> int:
        """By how much the request exceeds what may be sent."""
        return max(self.total - max(self.most - self.margin, 0), 0)

    def select_runs(self, kind: Kind) -> tuple[Run, ...]:
        """Return the runs of one kind."""
        return tuple(run for run in self.runs if run.kind == kind)

    def measure_spaces(self) -> dict[Space, int]:
        """Measure what the request leaves of the window; one too large eats them in order."""
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


def build_picture(view: View, facts: Facts) -> Picture:
    """Picture a view as it is: the request if nothing were edited."""
    budget = measure_budget(view, facts.limits)
    pressure = pressure_of(budget, facts.policy)
    seen = build_report(view, budget, pressure=pressure)
    limits, fixed = budget.limits, budget.system + budget.tools
    items = (*view.items, *view.waiting)
    sizes = _measure_items(items, seen)
    raw = sum(item.tokens for item in items)
    scale = sum(sizes) / raw if raw else 1.0
    steps: list[tuple[Pressure, int]] = [
        (name, fixed + limit) for name, limit in compute_tiers(budget, facts.policy).items()
    ]
    prefix = _measure_prefix(view, sizes, budget=budget, cache=facts.cache)
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
        runs=(*_build_fixed_runs(view, budget), *_build_runs(view, items, sizes)),
        shorts=_collect_shorts(view, items, scale),
        folds=_collect_folds(view, scale),
        tiers=tuple(sorted(steps, key=lambda step: step[1])),
        prefix=prefix,
        cost=_estimate_cost(prefix, facts.prices),
        warnings=seen.warnings,
    )


def fill_cells(drawn: Picture, count: int) -> tuple[Fill, ...]:
    """Divide the window into `count` equal cells, each filled by what lies in its middle.

    By the middle and not by the largest, so that small parts get their share of the cells.
    """
    stretches: list[tuple[Fill, int]] = [(run.kind, run.tokens) for run in drawn.runs]
    stretches += drawn.measure_spaces().items()
    found: list[Fill] = []
    end, fill = 0, SPACES[-1]
    coming = iter(stretches)
    for cell in range(count):
        middle = (2 * cell + 1) * drawn.window // (2 * count)
        while end <= middle:
            fill, tokens = next(coming)
            end += tokens
        found.append(fill)
    if drawn.total and found and found[0] in SPACES:  # even a tiny request shows one cell
        found[0] = max(drawn.runs, key=lambda run: run.tokens).kind
    return tuple(found)


def _build_fixed_runs(view: View, budget: Budget) -> tuple[Run, ...]:
    """Build the runs of instructions and tools, which open every request."""
    found = (
        Run(kind="system", tokens=budget.system, items=1 if budget.system else 0),
        Run(kind="tools", tokens=budget.tools, items=len(view.newest.tools)),
    )
    return tuple(run for run in found if run.items or run.tokens)


def _measure_items(items: tuple[Item, ...], seen: Report) -> list[int]:
    """Scale the items' tokens so that those of a kind sum to the report's number."""
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


def _build_runs(view: View, items: tuple[Item, ...], sizes: list[int]) -> tuple[Run, ...]:
    found: list[Run] = []
    pairs = zip(items, sizes, strict=True)
    for (role, state), group in groupby(pairs, key=lambda pair: (pair[0].role, pair[0].state)):
        members = list(group)
        spans = [_find_span(view, item) for item, _ in members]
        run = Run(
            kind=NAMES[role],
            state=state,
            tokens=sum(size for _, size in members),
            items=len(members),
            span=Range(min(lo for lo, _ in spans), max(hi for _, hi in spans)),
        )
        found.append(run)
    return tuple(found)


def _find_span(view: View, item: Item) -> tuple[int, int]:
    if item.state != "folded":
        return item.seq, item.seq
    return ends_of(view.fold_at(item.seq).change.span)


def _collect_shorts(view: View, items: tuple[Item, ...], scale: float) -> tuple[Short, ...]:
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


def _collect_folds(view: View, scale: float) -> tuple[Fold, ...]:
    return tuple(
        Fold(
            at,
            Range(*ends_of(fold.change.span)),
            fold.messages,
            round(fold.before * scale),
            round(fold.after * scale),
            fold.client,
        )
        for at, fold in view.list_folds().items()
    )


def _measure_prefix(view: View, sizes: list[int], *, budget: Budget, cache: Cache) -> Prefix:
    count = count_kept_items(view)
    total = budget.system + budget.tools + sum(sizes)
    same = 0 if count is None else budget.system + budget.tools + sum(sizes[:count])
    return Prefix(same, total - same, sent=view.asked >= 0, cache=cache)


def _estimate_cost(prefix: Prefix, prices: Prices) -> InputCost | None:
    if not prices.is_known:
        return None
    total = prefix.kept + prefix.new
    read = 0 if prefix.cache == "cold" else prefix.kept
    dollars = price_tokens(prices, read=read, write=total - read) / PICO
    step = prices.step if prices.step is not None and total > prices.step else None
    return InputCost(dollars, price_tokens(prices, fresh=total) / PICO, prices.assumed, step)


def encode_picture(drawn: Picture) -> dict[str, Any]:
    """Encode a picture as the JSON document that scripts read."""
    body: dict[str, Any] = msgspec.to_builtins(drawn)
    return {
        **body,
        "total": drawn.total,
        "percent": drawn.percent,
        "level": drawn.level,
        "over": drawn.over,
        "spaces": drawn.measure_spaces(),
        "parts": {
            run.kind: sum(one.tokens for one in drawn.select_runs(run.kind)) for run in drawn.runs
        },
    }
