"""When a fold pays although nothing forces it.

Knows prices, and how large a conversation is and grows. Refuses to know what the handoff says.

The cheapest size at which to fold is H = F + √(2·g·C/r), with C times a policy's patience. It is
asked anew before every call with the tail, the user's words and the prices of that moment, so a
cheap moment is taken by itself.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from foldline.core import ledger, rules
from foldline.core.edits.fold.span import Span, before, beginning, keeping, taken_back, up_to
from foldline.core.policy import Priced
from foldline.core.prices import Prices, cheapest_size, fold_cost
from foldline.core.view import View

Cache: TypeAlias = Literal["warm", "cold", "unknown"]
_SOON = 0.8  # of the size at which it pays
_LEAST_FACTS = 600
_KEPT, _KEPT_LONGEST = 300, 3_600  # seconds that providers keep a prefix: at least, at most
_FRAME = 120  # tokens of a handoff besides words and facts


@dataclass(frozen=True, slots=True)
class Moment:
    """A fold that would pay now: its span, the most its handoff may take, and why."""

    span: Span
    cap: int
    why: Literal["pays", "cold"]
    ripe: bool = True
    """Whether it pays now; else only soon, which is when a narrative is worth asking for."""


def worthwhile(  # noqa: PLR0913 - everything that the decision rests on
    view: View,
    rule: Priced,
    *,
    prices: Prices,
    cache: Cache,
    request: int,
    most: int,
    told: float,
    stable: int | None = None,
) -> Moment | None:
    """The fold that pays now or soon, if any.

    `request` is all that would be sent, estimated; `told` what its narrative cost, in fresh input
    tokens: it is paid, but so will be the next one's.
    """
    if request < rule.floor * _SOON:
        return None
    span = _span(view, rule, most=most, stable=stable)
    if span is None or taken_back(view, span):
        return None
    words = sum(item.tokens for item in span.items if item.role in ("user", "handoff"))
    facts = min(max(int(span.tokens * rule.ledger), _LEAST_FACTS), ledger.CEILING)
    cap = min(most, words + facts + _FRAME)
    gain = span.tokens - cap
    if gain < max(rule.gain, rule.gain_share * request):
        return None
    left = request - gain
    ended = rules.turn_end(view)
    if cache == "cold" and ended and request >= rule.floor:
        return Moment(span, cap, "cold") if request >= rule.when_cold * left else None
    tail = view.tokens - span.tokens - before(view, span)
    cost = fold_cost(prices, rewritten=cap + tail, summary=told)
    size = cheapest_size(prices, left=left, growth=growth(view), cost=rule.alpha * cost)
    if cache == "cold" and request >= rule.floor:
        # Inside a turn what was read is being worked on: no sooner than it pays.
        return Moment(span, cap, "cold") if request >= size else None
    size = max(size * (1.0 if ended else rule.inside_turn), rule.floor)
    if request < size * _SOON:
        return None
    return Moment(span, cap, "pays", ripe=request >= size)


def cached(seconds: float, prices: Prices) -> Cache:
    """Whether a provider still holds the last request's prefix, so long after it was sent."""
    if seconds < _KEPT:
        return "warm"
    briefly = prices.w > 1 and not prices.assumed  # who is paid for writing says for how long
    return "cold" if seconds > _KEPT_LONGEST or briefly else "unknown"


def growth(view: View) -> float:
    """What a call adds, on average, over what is live."""
    return (view.tokens - view.sizes["handoff"]) / max(view.answers, 1)


def _span(view: View, rule: Priced, *, most: int, stable: int | None) -> Span | None:
    """Everything before the tail, with the standing folds that it merges with."""
    cut = keeping(view, rule.tail, stable=stable)
    if cut is None:
        return None
    return next(up_to(view, cut, lo=beginning(view, "rank", most=most // 2)), None)
