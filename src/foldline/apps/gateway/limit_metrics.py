"""How full limits are and what they refuse, for Prometheus.

    foldline_limit_used_ratio{tenant, limit, by}     how full the fullest limit of a kind is
    foldline_limit_refused_total{tenant, limit, by}  calls that a limit refused
    foldline_limit_uncounted_total                   calls that passed while the store was away
    foldline_limit_trades_total                      writes of the store that the limits took

and what a process takes, and has refused:

    foldline_gateway_loop_lag_seconds                the longest wait for the event loop lately
    foldline_gateway_memory_bytes{kind}              resident, room, requests, conversations
    foldline_gateway_conversations                   conversations that are held
    foldline_gateway_cpu_seconds_total               of the processor
    foldline_gateway_bound_refused_total{kind}       requests that a bound refused

`by` is what a limit counts apart, like `tenant+owner`; owners, keys and models are no labels: there
may be thousands. A process counts what it knows; the largest of all processes is the true level.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Hashable
from itertools import count
from pathlib import Path
from time import process_time
from typing import Any, Final, TypeAlias

from foldline.apps.gateway.limiter import Limiter
from foldline.apps.gateway.limits import Room

_LABELS: Final = ("tenant", "limit", "by")
_BEAT = 0.25  # seconds between two looks at how long the loop keeps others waiting
_BEATS = 20  # after which another process' scrape sees new figures of this one
_LAGS = 120  # looks of which the longest wait is told
Count: TypeAlias = Callable[[], int]


class LimitMetrics:
    """The metrics of one process' limits, in a Prometheus registry."""

    def __init__(self, registry: Any, limiter: Limiter, room: Room, count_held: Count) -> None:
        import prometheus_client as client  # noqa: PLC0415 - an extra

        self._limiter, self._room, self._count_held = limiter, room, count_held
        self._lag = client.Gauge(
            "foldline_gateway_loop_lag_seconds", "The longest wait for the loop lately.",
            registry=registry, multiprocess_mode="livemax",
        )  # fmt: skip
        self._memory = client.Gauge(
            "foldline_gateway_memory_bytes", "Memory of a process, by what takes it.", ["kind"],
            registry=registry, multiprocess_mode="liveall",
        )  # fmt: skip
        self._held = client.Gauge(
            "foldline_gateway_conversations", "Conversations that a process holds.",
            registry=registry, multiprocess_mode="livesum",
        )  # fmt: skip
        self._processor = client.Counter(
            "foldline_gateway_cpu_seconds", "Seconds of the processor.", registry=registry
        )
        self._bounded = client.Counter(
            "foldline_gateway_bound_refused", "Requests that a bound refused.", ["kind"],
            registry=registry,
        )  # fmt: skip
        self._lags: deque[float] = deque((0.0,), maxlen=_LAGS)
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
        self._counted: dict[Hashable, float] = {}

    def refresh(self) -> None:
        """Set the metrics to what the limits know now."""
        levels = self._limiter.list_levels()
        for labels in self._levels - levels.keys():  # a new minute: nothing is used yet
            self._used.labels(*labels).set(0)
        for labels, share in levels.items():
            self._used.labels(*labels).set(share)
        self._levels |= levels.keys()
        for labels, refused in self._limiter.refused.items():
            self._count_up(self._refused.labels(*labels), labels, refused)
        self._lag.set(max(self._lags))
        room = {"room": self._room.most, "requests": self._room.taken}
        for name, size in {**room, "conversations": self._room.held, **_read_resident()}.items():
            self._memory.labels(name).set(size)
        self._held.set(self._count_held())
        self._count_up(self._processor, "processor", process_time())
        for name in ("messages", "values", "memory"):
            self._count_up(self._bounded.labels(name), name, self._room.refused[name])
        self._count_up(self._uncounted, "uncounted", self._limiter.uncounted)
        self._count_up(self._trades, "trades", self._limiter.count_trades())

    def _count_up(self, counter: Any, name: Hashable, count: float) -> None:
        counter.inc(count - self._counted.get(name, 0))
        self._counted[name] = count

    async def keep_fresh(self) -> None:
        """Refresh the metrics from time to time: a scrape reaches only one of several processes."""
        clock = asyncio.get_running_loop().time
        for beat in count():
            if beat % _BEATS == 0:
                self.refresh()
            due = clock() + _BEAT
            await asyncio.sleep(_BEAT)
            self._lags.append(max(clock() - due, 0.0))


def _read_resident() -> dict[str, int]:
    """Return the resident memory of this process, where the system tells it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError):
        return {}
    return {"resident": pages * os.sysconf("SC_PAGE_SIZE")}
