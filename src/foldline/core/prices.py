"""What tokens cost, and when an edit pays for itself.

An edit breaks the provider's cache from its place on: what stands behind it is written anew. It
pays back after n calls, because every later call reads less. And the cheapest size at which to fold
is not a share of the window but H = F + √(2·g·C/r): F tokens left after the fold, g growth per
call, C the cost of the fold, r the price of a cached read, all relative to a fresh input token.
"""

from dataclasses import dataclass, replace
from math import inf, sqrt

PICO = 10**12
"""Picodollars of a dollar: whole numbers of these add up exactly."""
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
"""Of a provider whose prices nobody has stated: what is weighed against what needs ratios alone."""
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


def format_dollars(amount: float) -> str:
    """Format dollars: with cents from a dollar on, smaller amounts with four decimals."""
    sign, size = "-" * (amount < 0), abs(amount)
    return f"{sign}${size:,.2f}" if size >= 1 else f"{sign}${size:.4f}" if size else "$0"


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
