"""How sure a mean over sessions is: the bootstrap.

Knows that sessions are drawn again, not calls: what happens within one session hangs together.
Refuses to know what was measured. The same values and seed give the same interval.
"""

from collections.abc import Sequence
from random import Random
from statistics import fmean
from typing import NamedTuple

_DRAWS = 2_000
_SHARE = 0.95


class Interval(NamedTuple):
    """A mean, and where it would lie in 95 of 100 repetitions with other such sessions."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ({self.low:.2f} to {self.high:.2f})"


def bootstrap(values: Sequence[float], seed: int = 0) -> Interval:
    """The mean of one value for each session, with its interval."""
    if not values:
        raise ValueError("no values: give one for each session")
    random = Random(seed)  # noqa: S311 - an interval that can be computed again
    means = sorted(fmean(random.choices(values, k=len(values))) for _ in range(_DRAWS))
    outside = int(_DRAWS * (1 - _SHARE) / 2)
    return Interval(fmean(values), means[outside], means[_DRAWS - 1 - outside])
