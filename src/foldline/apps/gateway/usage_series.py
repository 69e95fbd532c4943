"""What calls took, as Prometheus series by tenant and model.

Owners and keys have no series: a gateway may have thousands of them, each asking several models.
`foldline usage` has their sums.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from foldline.session.metrics import USAGE
from foldline.session.usage_records import UsageSums

_Read: TypeAlias = Callable[[UsageSums], float]
OTHER: Final = "(other)"
"""The tenant and model of calls for which there is no series left, and no row."""
_MOST: Final = 1_000  # pairs of tenant and model that have series of their own
_TOKENS: Final[dict[str, _Read]] = {
    "fresh": lambda sums: max(sums.input - sums.cache_read - sums.cache_write, 0),
    "cache_read": lambda sums: sums.cache_read,
    "cache_write": lambda sums: sums.cache_write,
    "output": lambda sums: sums.output,
}
_SERIES: Final[tuple[tuple[str, str, _Read], ...]] = (
    ("calls", "Calls of models.", lambda sums: sums.calls),
    ("dollars", "What they cost at list prices.", lambda sums: sums.dollars),
    (
        "whole_dollars",
        "What they would have cost, had everything been sent every time, estimated.",
        lambda sums: sums.whole_dollars,
    ),
    ("edits", "Edits made in their requests.", lambda sums: sums.edits),
    ("folds", "Folds among these.", lambda sums: sums.folds),
    ("healed", "Refusals for length that clients never saw.", lambda sums: sums.healed),
    ("stored_bytes", "Bytes written to logs.", lambda sums: sums.stored),
    ("estimated", "Answers that no provider counted.", lambda sums: sums.estimated),
    ("unpriced", "Answers of models without a known price.", lambda sums: sums.unpriced),
)  # fmt: skip


class UsageSeries:
    """Counts calls in a Prometheus registry."""

    def __init__(self, registry: Any) -> None:
        from prometheus_client import Counter  # noqa: PLC0415 - an extra

        def make_counter(name: str, words: str, *labels: str) -> Any:
            return Counter(f"{USAGE}{name}", words, ("tenant", "model", *labels), registry=registry)

        self._counters = [(make_counter(name, words), read) for name, words, read in _SERIES]
        self._tokens = make_counter("tokens", "Tokens, by kind.", "kind")
        self._errors = make_counter("errors", "Calls without a good answer, by kind.", "kind")
        self._series: dict[tuple[str, str], list[tuple[Any, _Read]]] = {}
        """What counts the calls of a tenant and a model: `labels` costs more than `inc`."""

    def add(self, tenant: str, model: str, sums: UsageSums) -> None:
        """Add a call."""
        key = (tenant, model)
        if key not in self._series:
            if len(self._series) >= _MOST:
                key = (OTHER, OTHER)
            if key not in self._series:
                self._series[key] = self._make_series(key)
        for counter, read in self._series[key]:
            if (value := read(sums)) > 0:
                counter.inc(value)
        for kind, count in sums.errors.items():
            self._errors.labels(*key, kind).inc(count)

    def _make_series(self, key: tuple[str, str]) -> list[tuple[Any, _Read]]:
        return [
            *((counter.labels(*key), read) for counter, read in self._counters),
            *((self._tokens.labels(*key, kind), read) for kind, read in _TOKENS.items()),
        ]
