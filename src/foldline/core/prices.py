"""What tokens cost, and when an edit pays for itself.

Knows prices relative to a fresh input token. Refuses to know which model has which price.

An edit breaks the provider's cache from its place on: what stands behind it is written anew. It
pays back after n calls, because every later call reads less. And the cheapest size at which to fold
is not a share of the window but H = F + √(2·g·C/r): F tokens left after the fold, g growth a call,
C what the fold costs, r the price of a cached read.
"""

from dataclasses import dataclass, replace
from math import inf, sqrt


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars for a million tokens."""

    input: float
    """Sent and not in the cache."""
    read: float
    """Read from the provider's cache."""
    write: float
    """Sent and written to the cache."""
    output: float
    step: int | None = None
    """The input size above which all of it costs more."""
    assumed: bool = False
    """Whether any of it is a guess: reads at a tenth of the input price, writes at 1.25 times."""
    above: float = 1.0
    """What input, reads and writes cost above the step, times what they cost below it."""

    @property
    def r(self) -> float:
        """A cached read, relative to input."""
        return self.read / self.input

    @property
    def w(self) -> float:
        """A cache write, relative to input."""
        return self.write / self.input

    def at(self, tokens: float) -> "Prices":
        """The prices of a call with so much input: above the step all of it costs more."""
        if self.step is None or tokens <= self.step:
            return self
        more = self.above
        return replace(
            self,
            input=self.input * more,
            read=self.read * more,
            write=self.write * more,
            step=None,
        )


UNKNOWN = Prices(1.0, 0.10, 1.25, 5.0, assumed=True)


def known(  # noqa: PLR0913 - what a catalogue may say
    *,
    input: float | None,  # noqa: A002 - as the catalogue says it
    read: float | None = None,
    write: float | None = None,
    output: float | None = None,
    step: int | None = None,
    above: float | None = None,
) -> Prices:
    """Prices from what is known of a model; zero and unknown ones are assumed.

    `above` is the price of input above the step; what output costs there is in no catalogue.
    """
    if not input or input < 0:
        return UNKNOWN
    return Prices(
        input,
        read or 0.10 * input,
        write or input,  # where writes are not priced apart they cost what input costs
        output or 5 * input,
        step,
        assumed=not read,
        above=above / input if step and above and above > 0 else 1.0,
    )


def fold_cost(prices: Prices, *, rewritten: int, summary: float = 0.0) -> float:
    """C: what a fold costs, in fresh input tokens, if it writes so much anew."""
    return (prices.w - prices.r) * rewritten + summary


def pays_back_after(
    prices: Prices, *, gone: int, left: int, behind: int, summary: float = 0.0
) -> float:
    """After how many calls it pays to replace `gone` tokens by `left` with `behind` after them."""
    saved = prices.r * (gone - left)
    if saved <= 0:
        return inf
    return fold_cost(prices, rewritten=behind + left, summary=summary) / saved


def cheapest_size(prices: Prices, *, left: int, growth: float, cost: float) -> float:
    """H: the size at which folding down to `left` costs least over a long conversation."""
    return left + sqrt(2 * max(growth, 0.0) * max(cost, 0.0) / prices.r)
