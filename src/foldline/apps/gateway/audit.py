"""The audit log, one line of JSON per request, and the same as Prometheus metrics.

A line says who asked, which route, and how it ended; never what was said, and never a key. The
metrics also count folds and narratives.

Owners and keys have no series: a gateway may have thousands of them, each asking several models.
`foldline usage` has their sums. How full limits are and what they refuse is here too:

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
import logging
import os
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic, process_time, time
from typing import Any, Final, TypeAlias

import msgspec

from foldline.apps.gateway.call_figures import CallFigures, CallMeter, find_error
from foldline.apps.gateway.limiter import Admission, Limiter
from foldline.apps.gateway.limits import Room
from foldline.apps.gateway.plan_request import PlanHeaders
from foldline.errors import BadInput
from foldline.session import metrics
from foldline.session.hooks import Watcher
from foldline.session.metrics import USAGE
from foldline.session.usage_records import UsageSums

_log = logging.getLogger("foldline.gateway")
_LOOK = 1.0  # seconds between looks at whether the audit's file was moved away
_ROUTES = frozenset(
    (
        "/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses",
        "/v1/embeddings", "/v1/models", "/v1/completions",
    )
)  # fmt: skip


@dataclass(slots=True)
class Note:
    """What is noted of one request."""

    route: str
    tenant: str = ""
    key: str = ""
    """What the operator calls the key."""
    owner: str = ""
    """Whose key it is."""
    status: int = 0
    plan: PlanHeaders | None = None
    received: int = 0
    """Bytes of the request."""
    sent: int = 0
    """Bytes of the answer."""
    ended: str = "done"
    """How it ended: done, cut, gone, late, drain, refused, fault."""
    seconds: float = 0.0
    upstream: float = 0.0
    """Seconds until the upstream began to answer."""
    added: float = 0.0
    """Seconds that planning took before the request was sent on."""
    quota: dict[str, float] = field(default_factory=dict[str, float])
    """The share of a subscription that is used up, by its window: see `parse_quota`."""
    parent: str = ""
    """The client's span, as `traceparent` names it; only where spans are written."""
    error: str = ""
    """Why there was no good answer, in a word, if that was our doing."""
    meter: CallMeter | None = None
    """Reads the call's figures, if it asks a model."""
    session: str = ""
    """The session of a request to the session API that asked a model."""
    figures: CallFigures | None = None
    """What it took, if it asked a model; complete when the call is over."""
    asked: bool = False
    """Whether an upstream was asked."""
    admission: Admission | None = None
    """What was reserved for it, if limits hold for it."""

    @property
    def any_session(self) -> str:
        """The session that asked a model, through the session API or relayed."""
        return (self.plan.session if self.plan is not None else "") or self.session

    def end_figures(self) -> CallFigures | None:
        """Sum what the request took, now that it is over; None if it asked no model."""
        if self.meter is None:
            return self.figures
        meter, self.meter = self.meter, None
        error = self.error or (self.ended if self.ended != "done" else find_error(self.status))
        self.figures = meter.end_call(self.route, error=error)
        sums = self.figures.sums
        sums.edits += self.plan.edits if self.plan is not None else 0
        if meter.is_sent:
            sums.count_added(self.added)
        return self.figures

    def encode_line(self) -> bytes:
        """Encode the note as a line of the audit log."""
        plan = self.plan or PlanHeaders()
        body: dict[str, Any] = {
            "time": round(time(), 3),
            "tenant": self.tenant,
            "key": self.key,
            "owner": self.owner,
            "session": self.any_session,
            "route": self.route,
            "status": self.status,
            "ended": self.ended,
            "tokens": plan.tokens,
            "edits": plan.edits,
            "patches": plan.patches,
            "unplanned": plan.unplanned,
            "cold": {name: round(dollars, 4) for name, dollars in plan.cold.list_dollars().items()}
            if plan.cold
            else None,
            "quota": self.quota or None,
            "received": self.received,
            "sent": self.sent,
            "ms": round(self.seconds * 1_000, 1),
            "added_ms": round(self.added * 1_000, 2),
            **_describe_figures(self.figures),
        }
        return msgspec.json.encode(body) + b"\n"


def _describe_figures(figures: CallFigures | None) -> dict[str, Any]:
    """Describe what a call took; nothing for a request that asked no model."""
    if figures is None:
        return {}
    sums = figures.sums
    return {
        "model": figures.model,
        "calls": sums.calls,
        "input": sums.input,
        "output": sums.output,
        "cache_read": sums.cache_read,
        "cache_write": sums.cache_write,
        "dollars": sums.dollars,
        "saved": sums.saved_dollars,
        "folds": sums.folds,
        "healed": sums.healed,
        "stored": sums.stored,
        "estimated": sums.estimated,
        "error": next(iter(sums.errors), ""),
    }


def parse_quota(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, float]:
    """Parse what Anthropic answers to a subscription: `{"5h": 0.31, "7d": 0.12}` is used up."""
    found: dict[str, float] = {}
    for name, value in headers:
        begin, _, rest = name.lower().decode("latin-1").partition("ratelimit-unified-")
        window = rest.removesuffix("-utilization")
        if begin == "anthropic-" and rest != window and "-" not in window:
            with suppress(ValueError):
                found[window] = float(value)
    return found


class Audit:
    """The audit log's file; it is opened anew within a second after a rotation moved it away."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        try:
            self._open_file()
        except OSError as fault:
            raise BadInput(f"--audit {path}: {fault.strerror}") from fault

    def write(self, note: Note) -> None:
        """Write one line, at once and as a whole."""
        try:
            if monotonic() - self._looked > _LOOK and not self._is_there():
                old = self._file
                self._open_file()  # first: a closed file's number is soon a client's connection
                os.close(old)
            line = note.encode_line()
            if self._ends_in_half_a_line():
                line = b"\n" + line
            if os.write(self._file, line) < len(line):
                _log.warning("an audit line was written in part: %s: the disk is full", self._path)
        except OSError as fault:
            _log.warning("an audit line was not written: %s: %s", self._path, fault.strerror)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _open_file(self) -> None:
        can_read = self._path.is_file() or not self._path.exists()  # no pipe or device
        how = os.O_RDWR if can_read else os.O_WRONLY
        self._file = os.open(self._path, how | os.O_APPEND | os.O_CREAT, 0o666)
        self._looked = monotonic()

    def _ends_in_half_a_line(self) -> bool:
        """Whether its writer met a full disk, or was killed; it may be another process."""
        try:
            size = os.fstat(self._file).st_size
            return size > 0 and os.pread(self._file, 1, size - 1) != b"\n"
        except OSError:  # nothing that can be read
            return False

    def _is_there(self) -> bool:
        self._looked = monotonic()
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            return False


_SHARED = "PROMETHEUS_MULTIPROC_DIR"


class Figures:
    """Requests, folds and narratives counted for Prometheus, in the gateway's own registry."""

    def __init__(self) -> None:
        try:
            import prometheus_client as client  # noqa: PLC0415 - an extra
        except ImportError as fault:
            raise BadInput(
                f"figures need the extra `metrics`: pip install 'foldline[metrics]' ({fault})"
            ) from fault
        self.registry: Any = client.CollectorRegistry()
        self._text = client.generate_latest
        where = {"registry": self.registry}
        self._requests = client.Counter(
            metrics.REQUESTS, "Requests, by route and status.", ["route", "status"], **where
        )
        self.under_way: Any = client.Gauge(
            metrics.IN_FLIGHT, "Requests under way.", multiprocess_mode="livesum", **where
        )
        self._upstream = client.Histogram(
            metrics.UPSTREAM_SECONDS, "Until the upstream began to answer.", **where
        )
        self._added = client.Histogram(
            metrics.ADDED_SECONDS,
            "That requests were here before they were sent on.",
            buckets=metrics.ADDED_BUCKETS,
            **where,
        )
        self._tokens = client.Counter(metrics.SENT_TOKENS, "Tokens of planned requests.", **where)
        self._edits = client.Counter(metrics.EDITS, "Edits made in planned requests.", **where)
        self._unplanned = client.Counter(
            metrics.UNPLANNED,
            "Conversations that were relayed as they came, by reason.",
            ["reason"],
            **where,
        )
        passed = client.Counter(
            metrics.BYTES, "Bytes of requests and of answers.", ["way"], **where
        )
        self._in, self._out = passed.labels("in"), passed.labels("out")
        self._known: dict[tuple[str, int], Any] = {}
        self.count_pass: Watcher = metrics.prometheus(self.registry)
        self.usage = UsageSeries(self.registry)
        self.limits: LimitMetrics | None = None

    def record_note(self, note: Note) -> None:
        """Count one request."""
        kind = (note.route if note.route in _ROUTES else "other", note.status)
        if (counter := self._known.get(kind)) is None:  # `labels` costs more than `inc`
            counter = self._known[kind] = self._requests.labels(*kind)
        counter.inc()
        self._in.inc(note.received)
        self._out.inc(note.sent)
        if note.upstream:
            self._upstream.observe(note.upstream)
            self._added.observe(note.added)
        if note.plan is not None:
            self._tokens.inc(note.plan.tokens)
            self._edits.inc(note.plan.edits)
            if note.plan.unplanned:
                self._unplanned.labels(note.plan.unplanned).inc()

    def render_metrics(self, tenant: str | None = None) -> bytes:
        """Render the metrics in Prometheus' text format; with `tenant` its own series alone."""
        if self.limits is not None:
            self.limits.refresh()
        return self._text(_ShownSeries(self._find_registry(), tenant))

    def _find_registry(self) -> Any:
        """Return the registry to show: of all processes, if they share a folder for it."""
        if _SHARED not in os.environ:
            return self.registry
        from prometheus_client import CollectorRegistry, multiprocess  # noqa: PLC0415 - an extra

        whole = CollectorRegistry()
        multiprocess.MultiProcessCollector(whole)
        return whole


class _ShownSeries:
    """The series of a registry without the times at which they began; of one tenant, if named."""

    def __init__(self, registry: Any, tenant: str | None) -> None:
        self._registry, self._tenant = registry, tenant

    def collect(self) -> Iterable[Any]:
        """Collect the metrics; for a tenant, those of the whole process are left out."""
        for metric in self._registry.collect():
            shown = copy(metric)
            shown.samples = [
                one
                for one in metric.samples
                if not one.name.endswith("_created")
                and self._tenant in (None, one.labels.get("tenant"))
            ]
            if shown.samples or self._tenant is None:
                yield shown


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
        for kind, errors in sums.errors.items():
            self._errors.labels(*key, kind).inc(errors)

    def _make_series(self, key: tuple[str, str]) -> list[tuple[Any, _Read]]:
        return [
            *((counter.labels(*key), read) for counter, read in self._counters),
            *((self._tokens.labels(*key, kind), read) for kind, read in _TOKENS.items()),
        ]


_LABELS: Final = ("tenant", "limit", "by")
_BEAT = 0.25  # seconds between two looks at how long the loop keeps others waiting
_BEATS = 20  # after which another process' scrape sees new figures of this one
_LAGS = 120  # looks of which the longest wait is shown
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
