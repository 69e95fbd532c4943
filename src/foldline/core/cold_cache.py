"""Say what the next call costs if the provider's cache has expired, before it is paid.

Providers keep a prompt for minutes after its last use. A call after a longer pause writes all of it
anew: a dozen times the price of reading it. Folding first makes that call smaller.
"""

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from foldline.core.prices import PICO, Prices, format_dollars, price_tokens

Cache: TypeAlias = Literal["warm", "cold", "unknown"]
USUAL_LIFETIME, LONG_LIFETIME = 300.0, 3_600.0
"""Seconds that Anthropic keeps a prompt: as usual, and where its cache marks ask for an hour."""
FOLDED = 20_000
"""The tokens that a fold is assumed to leave, where it cannot be planned."""
_LONGEST_USUAL = 3_600.0  # seconds that providers who promise no time keep a prompt at most
_LEAST_TOKENS, _LEAST_DOLLARS = 10_000, 0.01  # smaller amounts are not worth a remark
_WORTH = 0.9  # of the cold price: a fold that saves less is not named


@dataclass(frozen=True, slots=True)
class ColdCall:
    """A call that finds no cache: what sending it costs, without its answer."""

    tokens: int
    """Tokens that were sent before and are no longer cached."""
    cold: float
    """Dollars for sending it now, as it is."""
    warm: float
    """Dollars for sending it, had the cache not expired."""
    folded: float | None = None
    """Dollars for sending it after a fold; None if no fold makes it much cheaper."""
    is_folded: bool = False
    """Whether the policy folds it by itself: then `folded` is paid, else `cold`."""

    @property
    def cost(self) -> float:
        """Dollars for sending it as it is planned."""
        return self.folded if self.is_folded and self.folded is not None else self.cold

    def list_dollars(self) -> dict[str, float]:
        """List what it costs, and what it would cost otherwise, by name."""
        found = {"cost": self.cost, "warm": self.warm}
        if self.is_folded:
            return {**found, "unfolded": self.cold}
        return found if self.folded is None else {**found, "folded": self.folded}


def estimate_cold_call(  # noqa: PLR0913 - a call, the one before it, and the alternatives
    prices: Prices,
    *,
    tokens: int,
    sent: int,
    seconds: float,
    lifetime: float | None = None,
    folded: int | None = None,
    is_folded: bool = False,
) -> ColdCall | None:
    """Estimate what a call of `tokens` costs, `seconds` after one of `sent` tokens.

    `folded` is its size after a fold, which the policy makes by itself if `is_folded`. `lifetime`
    is how long the provider keeps a prompt, if that is known. Returns None if the cache may still
    be there, or if the difference is too small to matter.
    """
    if not prices.is_known or estimate_cache_state(seconds, prices, lifetime) != "cold":
        return None
    again = min(sent, tokens)
    cold = price_tokens(prices, write=tokens) / PICO
    warm = price_tokens(prices, read=again, write=tokens - again) / PICO
    if again < _LEAST_TOKENS or cold - warm < _LEAST_DOLLARS:
        return None
    if folded is None:
        return ColdCall(again, cold, warm)
    less = price_tokens(prices, write=folded) / PICO
    is_worth = is_folded or less < _WORTH * cold
    return ColdCall(again, cold, warm, less if is_worth else None, is_folded)


def estimate_cache_state(seconds: float, prices: Prices, lifetime: float | None = None) -> Cache:
    """Estimate whether a provider still caches a prefix that was sent so many seconds ago.

    `lifetime` is how long it keeps one, if that is known.
    """
    if lifetime is not None:
        return "cold" if seconds > lifetime else "warm"
    if seconds < USUAL_LIFETIME:
        return "warm"
    briefly = prices.w > 1 and not prices.assumed  # providers that charge for writes state a time
    return "cold" if seconds > _LONGEST_USUAL or briefly else "unknown"


def replace_write_price(prices: Prices) -> Prices:
    """Return the prices of calls whose cache marks ask for an hour."""
    return replace(prices, write=prices.long_write)


def render_cold_call(call: ColdCall, fold: str = "/compact first") -> str:
    """Render it in one or two sentences; `fold` says how to fold."""
    each = (call.cost, call.cold, call.warm, call.folded or 0.0)
    cost, cold, warm, folded = (format_dollars(one, is_rough=True) for one in each)
    if call.is_folded:
        return f"The cache has expired: the next message costs about {cost}; unfolded, {cold}."
    said = f"The cache has expired: sending the next message costs about {cost} instead of {warm}."
    return said if call.folded is None else f"{said} {fold}: {folded}."
