"""What tokens cost, and when an edit pays for itself.

`price_tokens` is the price of a call; every amount of money is computed there.

An edit breaks the provider's cache from its place on: all that follows is written anew. It pays
back after n calls, because every later call reads less. And the cheapest size at which to fold is
not a share of the window but H = F + √(2·g·C/r): F tokens left after the fold, g growth per call,
C the cost of the fold, r the price of a cached read, all relative to a fresh input token.
"""

from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import NamedTuple

from foldline.core.log import UsageReported

PICO = 10**12
"""Picodollars of a dollar: whole numbers of these add up exactly."""
_MILLION = 1_000_000
LONG_WRITE = 2.0
"""The price of a write that is kept for an hour, times that of input: only Anthropic has such."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars per million tokens."""

    input: float
    """Sent and not in the cache."""
    read: float
    """Read from the provider's cache."""
    write: float
    """Sent and written to the cache."""
    output: float
    step: int | None = None
    """The input size in tokens above which all input costs more."""
    assumed: bool = False
    """Whether any price is a guess: reads at a tenth of the input price, writes at 1.25 times."""
    above: float = 1.0
    """The factor on the prices of input, reads and writes above the step."""
    above_output: float = 1.0
    """The factor on the price of output above the step."""
    is_known: bool = True
    """False if only their ratios are assumed: then no amount in dollars is known."""
    free: bool = False
    """Whether nothing is paid for: a full window costs no more than an empty one."""

    @property
    def r(self) -> float:
        """A cached read, relative to input."""
        return self.read / self.input

    @property
    def long_write(self) -> float:
        """Written to the cache, and kept for an hour."""
        return LONG_WRITE * self.input

    @property
    def w(self) -> float:
        """A cache write, relative to input."""
        return self.write / self.input

    def at(self, tokens: float) -> "Prices":
        """Return the prices of a call with so many input tokens."""
        if self.step is None or tokens <= self.step:
            return self
        more = self.above
        return replace(
            self,
            input=self.input * more,
            read=self.read * more,
            write=self.write * more,
            output=self.output * self.above_output,
            step=None,
        )


UNKNOWN = Prices(1.0, 0.10, 1.25, 5.0, assumed=True, is_known=False)
"""Of a provider whose prices are unknown: what is weighed against what needs ratios alone."""
FREE = replace(UNKNOWN, free=True)
"""Of a model on one's own machine."""


def make_prices(  # noqa: PLR0913 - what a catalogue may say
    *,
    input: float | None,  # noqa: A002 - as the catalogue says it
    read: float | None = None,
    write: float | None = None,
    output: float | None = None,
    step: int | None = None,
    above: float | None = None,
    above_output: float | None = None,
) -> Prices:
    """Make prices from what a catalogue states; unknown ones are assumed, at no input price all.

    `above` and `above_output` are the prices of input and output above the step.
    """
    if input is None:
        return UNKNOWN
    if input <= 0:
        return FREE
    return Prices(
        input,
        read or 0.10 * input,
        write or input,  # writes without a price of their own cost what input costs
        output or 5 * input,
        step,
        assumed=not read,
        above=above / input if step and above and above > 0 else 1.0,
        above_output=above_output / output if step and output and above_output else 1.0,
    )


def price_tokens(  # noqa: PLR0913 - a token is paid in one of five ways
    prices: Prices,
    *,
    fresh: float = 0,
    read: float = 0,
    write: float = 0,
    long: float = 0,
    output: float = 0,
) -> int:
    """Compute what a call costs, in picodollars, by how its tokens are paid.

    `fresh` tokens are neither read from the cache nor written to it; `long` ones are written and
    kept for an hour. The whole input decides whether it is above the step.
    """
    at = prices.at(fresh + read + write + long)
    each = (
        (fresh, at.input),
        (read, at.read),
        (write, at.write),
        (long, at.long_write),
        (output, at.output),
    )
    return round(sum(tokens * round(price * _MILLION) for tokens, price in each))


class PaidTokens(NamedTuple):
    """The tokens of one call, as `price_tokens` takes them."""

    fresh: int = 0
    read: int = 0
    write: int = 0
    long: int = 0
    output: int = 0

    @property
    def input(self) -> int:
        """All that was sent."""
        return self.fresh + self.read + self.write + self.long

    @property
    def total(self) -> int:
        """Input and output."""
        return self.input + self.output

    def compute_price(self, prices: Prices) -> int:
        """Compute what they cost, in picodollars."""
        return price_tokens(prices, **self._asdict())


def split_usage(usage: UsageReported, *, tokens_in: int = 0, tokens_out: int = 0) -> PaidTokens:
    """Split a reported usage; `tokens_in` and `tokens_out` replace counts that it lacks."""
    whole = tokens_in if usage.input is None else usage.input
    read = min(usage.cache_read or 0, whole)
    written = min(usage.cache_write or 0, whole - read)
    long = min(usage.cache_write_long or 0, written)
    output = tokens_out if usage.output is None else usage.output
    return PaidTokens(whole - read - written, read, written - long, long, output)


def format_dollars(amount: float, *, digits: int | None = None, is_rough: bool = False) -> str:
    """Format dollars: with cents from a dollar on, smaller amounts with four decimals.

    A rough amount has so many digits that rounding changes it by 3 % at most.
    """
    sign, size = "-" * (amount < 0), abs(amount)
    if digits is None and is_rough:
        digits = 2 if size >= 0.2 else 3 if size >= 0.02 else 4  # noqa: PLR2004
    elif digits is None:
        digits = 2 if size >= 1 else 4 if size else 0
    return f"{sign}${size:,.{digits}f}"


def fold_cost(prices: Prices, *, rewritten: int, summary: float = 0.0) -> float:
    """C: the cost of a fold that rewrites so many tokens, in fresh input tokens."""
    return (prices.w - prices.r) * rewritten + summary


def pays_back_after(
    prices: Prices, *, gone: int, left: int, behind: int, summary: float = 0.0
) -> float:
    """The calls after which replacing `gone` tokens by `left` pays, with `behind` after them."""
    saved = prices.r * (gone - left)
    if saved <= 0:
        return inf
    return fold_cost(prices, rewritten=behind + left, summary=summary) / saved


def cheapest_size(prices: Prices, *, left: int, growth: float, cost: float) -> float:
    """H: the size at which folding down to `left` costs least over a long conversation."""
    return left + sqrt(2 * max(growth, 0.0) * max(cost, 0.0) / prices.r)
