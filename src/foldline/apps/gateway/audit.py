"""The audit log, one line of JSON per request, and the same as Prometheus metrics.

A line says who asked, which route, and how it ended; never what was said, and never a key. The
metrics also count folds and narratives.
"""

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time
from typing import Any

import msgspec

from foldline.apps.gateway.call_figures import CallFigures, CallMeter, find_error
from foldline.apps.gateway.limit_metrics import LimitMetrics
from foldline.apps.gateway.limiter import Admission
from foldline.apps.gateway.plan_request import PlanHeaders
from foldline.apps.gateway.usage_series import UsageSeries
from foldline.errors import BadInput
from foldline.session import metrics
from foldline.session.hooks import Watcher

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
    told: PlanHeaders | None = None
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
        return (self.told.session if self.told is not None else "") or self.session

    def end_figures(self) -> CallFigures | None:
        """Sum what the request took, now that it is over; None if it asked no model."""
        if self.meter is None:
            return self.figures
        meter, self.meter = self.meter, None
        error = self.error or (self.ended if self.ended != "done" else find_error(self.status))
        self.figures = meter.end_call(self.route, error=error)
        sums = self.figures.sums
        sums.edits += self.told.edits if self.told is not None else 0
        if meter.is_sent:
            sums.count_added(self.added)
        return self.figures

    def encode_line(self) -> bytes:
        """Encode the note as a line of the audit log."""
        plan = self.told or PlanHeaders()
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
        if note.told is not None:
            self._tokens.inc(note.told.tokens)
            self._edits.inc(note.told.edits)
            if note.told.unplanned:
                self._unplanned.labels(note.told.unplanned).inc()

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
