"""How full limits are and what they refuse, for Prometheus.

    foldline_limit_used_ratio{tenant, limit, by}     how full the fullest limit of a kind is
    foldline_limit_refused_total{tenant, limit, by}  calls that a limit refused
    foldline_limit_uncounted_total                   calls that passed while the store was away
    foldline_limit_trades_total                      writes of the store that the limits took

`by` is what a limit counts apart, like `tenant+owner`; owners, keys and models are no labels: there
may be thousands. A process counts what it knows; the largest of all processes is the true level.
"""

import asyncio
from collections import Counter
from collections.abc import Hashable
from typing import Any, Final

from foldline.apps.gateway.limiter import Limiter

_LABELS: Final = ("tenant", "limit", "by")
_PAUSE = 5.0  # seconds after which another process' scrape sees new figures of this one


class LimitMetrics:
    """The metrics of one process' limits, in a Prometheus registry."""

    def __init__(self, registry: Any, limiter: Limiter) -> None:
        import prometheus_client as client  # noqa: PLC0415 - an extra

        self._limiter = limiter
        self._used = client.Gauge(
            "foldline_limit_used_ratio", "How full the fullest limit of a kind is.", _LABELS,
            registry=registry, multiprocess_mode="livemax",
        )  # fmt: skip
        self._refused = client.Counter(
            "foldline_limit_refused", "Calls that a limit refused.", _LABELS, registry=registry
        )
        self._uncounted = client.Counter(
            "foldline_limit_uncounted", "Calls that passed uncounted while the store was away.",
            registry=registry,
        )  # fmt: skip
        self._trades = client.Counter(
            "foldline_limit_trades", "Writes of the store that the limits took.", registry=registry
        )
        self._levels: set[tuple[str, str, str]] = set()
        self._counted: Counter[Hashable] = Counter()

    def refresh(self) -> None:
        """Set the metrics to what the limits know now."""
        levels = self._limiter.list_levels()
        for labels in self._levels - levels.keys():  # a new minute: nothing is used yet
            self._used.labels(*labels).set(0)
        for labels, share in levels.items():
            self._used.labels(*labels).set(share)
        self._levels |= levels.keys()
        for labels, count in self._limiter.refused.items():
            self._count_up(self._refused.labels(*labels), labels, count)
        self._count_up(self._uncounted, "uncounted", self._limiter.uncounted)
        self._count_up(self._trades, "trades", self._limiter.count_trades())

    def _count_up(self, counter: Any, name: Hashable, count: int) -> None:
        counter.inc(count - self._counted[name])
        self._counted[name] = count

    async def keep_fresh(self) -> None:
        """Refresh the metrics from time to time: a scrape reaches only one of several processes."""
        while True:
            self.refresh()
            await asyncio.sleep(_PAUSE)
