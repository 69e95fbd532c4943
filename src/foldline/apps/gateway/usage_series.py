"""What calls took, as Prometheus series by tenant and model.

A call only adds to sums; the series are made when somebody scrapes. Owners and keys have no series:
a gateway may have thousands of them, each asking several models. `foldline usage` has their sums.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from foldline.session.metrics import USAGE
from foldline.session.usage_records import UsageSums

_Read: TypeAlias = Callable[[UsageSums], float]
OTHER: Final = "(other)"
"""The tenant and model of calls for which there is no series left, and no row."""
_MOST: Final = 1_000  # pairs of tenant and model that have series of their own
_DOLLARS: Final = 10**12
_TOKENS: Final[dict[str, _Read]] = {
    "fresh": lambda sums: max(sums.input - sums.cache_read - sums.cache_write, 0),
    "cache_read": lambda sums: sums.cache_read,
    "cache_write": lambda sums: sums.cache_write,
    "output": lambda sums: sums.output,
}
_SERIES: Final[tuple[tuple[str, str, _Read], ...]] = (
    ("calls", "Calls of models.", lambda sums: sums.calls),
    ("dollars", "What they cost at list prices.", lambda sums: sums.pico / _DOLLARS),
    (
        "whole_dollars",
        "What they would have cost, had everything been sent every time, estimated.",
        lambda sums: (sums.pico + sums.saved_pico) / _DOLLARS,
    ),
    ("edits", "Edits made in their requests.", lambda sums: sums.edits),
    ("folds", "Folds among these.", lambda sums: sums.folds),
    ("healed", "Refusals for length that clients never saw.", lambda sums: sums.healed),
    ("stored_bytes", "Bytes written to logs.", lambda sums: sums.stored),
    ("estimated", "Answers that no provider counted.", lambda sums: sums.estimated),
    ("unpriced", "Answers of models without a known price.", lambda sums: sums.unpriced),
)  # fmt: skip


class UsageSeries:
    """Sums since this process began; a collector for a Prometheus registry."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], UsageSums] = {}

    def add(self, tenant: str, model: str, sums: UsageSums) -> None:
        """Add a call."""
        key = (tenant, model)
        if key not in self._sums and len(self._sums) >= _MOST:
            key = (OTHER, OTHER)
        self._sums.setdefault(key, UsageSums()).merge(sums)

    def collect(self) -> Iterator[Any]:
        """Make the series."""
        from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415 - an extra

        labels = ["tenant", "model"]
        for name, words, read in _SERIES:
            family = CounterMetricFamily(f"{USAGE}{name}", words, labels=labels)
            for key, sums in self._sums.items():
                family.add_metric(key, read(sums))
            yield family
        tokens = CounterMetricFamily(f"{USAGE}tokens", "Tokens, by kind.", labels=[*labels, "kind"])
        errors = CounterMetricFamily(
            f"{USAGE}errors", "Calls without a good answer, by kind.", labels=[*labels, "kind"]
        )
        for key, sums in self._sums.items():
            for kind, read in _TOKENS.items():
                tokens.add_metric((*key, kind), read(sums))
            for kind, count in sums.errors.items():
                errors.add_metric((*key, kind), count)
        yield tokens
        yield errors
