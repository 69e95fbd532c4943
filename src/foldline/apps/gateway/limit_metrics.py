"""How full limits are and what they refuse, for Prometheus.

    foldline_limit_used_ratio{tenant, limit, by}     how full the fullest limit of a kind is
    foldline_limit_refused_total{tenant, limit, by}  calls that a limit refused
    foldline_limit_uncounted_total                   calls that passed while the store was away
    foldline_limit_trades_total                      writes of the store that the limits took

`by` is what a limit counts apart, like `tenant+owner`; owners, keys and models are no labels: there
may be thousands. A process shows what it knows; the largest of all processes counts.
"""

from collections.abc import Iterable
from typing import Any

from foldline.apps.gateway.limiter import Limiter

_LABELS = ("tenant", "limit", "by")


class LimitCollector:
    """Collects the metrics of one process' limits."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    def collect(self) -> Iterable[Any]:
        """Build the metrics as they are now."""
        from prometheus_client.core import (  # noqa: PLC0415 - an extra
            CounterMetricFamily,
            GaugeMetricFamily,
        )

        used = GaugeMetricFamily(
            "foldline_limit_used_ratio", "How full the fullest limit of a kind is.", labels=_LABELS
        )
        for labels, share in self._limiter.list_levels().items():
            used.add_metric(labels, share)
        refused = CounterMetricFamily(
            "foldline_limit_refused", "Calls that a limit refused.", labels=_LABELS
        )
        for labels, count in self._limiter.refused.items():
            refused.add_metric(labels, count)
        uncounted = CounterMetricFamily(
            "foldline_limit_uncounted", "Calls that passed uncounted while the store was away."
        )
        uncounted.add_metric((), self._limiter.uncounted)
        trades = CounterMetricFamily(
            "foldline_limit_trades", "Writes of the store that the limits took."
        )
        trades.add_metric((), self._limiter.count_trades())
        yield from (used, refused, uncounted, trades)
