"""When a fold pays although nothing forces it.

Knows prices, and how large a conversation is and grows. Refuses to know what the handoff says.

The cheapest size at which to fold is H = F + √(2·g·C/r), with C times a policy's patience. It is
asked anew before every call with the tail, the user's words and the prices of that moment, so a
cheap moment is taken by itself.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from foldline.core import rules
from foldline.core.edits.fold.span import MOST_FOLDS, Span, keeping, taken_back, up_to
from foldline.core.policy import Priced
from foldline.core.prices import Prices, cheapest_size, fold_cost
from foldline.core.view import View

Cache: TypeAlias = Literal["warm", "cold", "unknown"]
_FRAME = 120  # tokens of a handoff besides words and facts


@dataclass(frozen=True, slots=True)
class Moment:
    """A fold that would pay now: its span, the most its handoff may take, and why."""

    span: Span
    cap: int
    why: Literal["pays", "cold"]


def worthwhile(  # noqa: PLR0913 - everything that the decision rests on
    view: View, rule: Priced, *, prices: Prices, cache: Cache, request: int, most: int
) -> Moment | None:
    """The fold that pays now, if any; sizes as estimated, `request` all that would be sent."""
    if cache != "cold" and request < rule.floor:
        return None
    span = _span(view, rule)
    if span is None or taken_back(view, span):
        return None
    words = sum(item.tokens for item in span.items if item.role in ("user", "handoff"))
    cap = min(most, words + int(span.tokens * rule.ledger) + _FRAME)
    gain = span.tokens - cap
    if gain < max(rule.gain, rule.gain_share * request):
        return None
    left = request - gain
    if cache == "cold":
        return Moment(span, cap, "cold") if request >= rule.when_cold * left else None
    tail = view.tokens - span.tokens - _kept(view, span)
    cost = fold_cost(prices, rewritten=cap + tail)
    size = cheapest_size(prices, left=left, growth=growth(view), cost=rule.alpha * cost)
    if not rules.turn_end(view):
        size *= rule.inside_turn
    return Moment(span, cap, "pays") if request >= size else None


def growth(view: View) -> float:
    """What a call adds, on average, over what is live."""
    live = [item for item in view.items if item.role != "handoff"]
    calls = sum(item.role == "model" for item in live)
    return sum(item.tokens for item in live) / max(calls, 1)


def _span(view: View, rule: Priced) -> Span | None:
    """Everything before the tail; merged with the standing folds only where they are too many."""
    cut = keeping(view, rule.tail)
    merge = sum(item.role == "handoff" for item in view.items) >= MOST_FOLDS
    return None if cut is None else next(up_to(view, cut, merge=merge), None)


def _kept(view: View, span: Span) -> int:
    """What stands before the span and is not written anew."""
    inside = {item.seq for item in span.items}
    return sum(i.tokens for i in view.items if i.role == "handoff" and i.seq not in inside)
