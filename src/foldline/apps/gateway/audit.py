"""The audit log, one line of JSON per request, and the same as Prometheus metrics.

A line says who asked, which route, and how it ended; never what was said, and never a key. The
metrics also count folds and narratives.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from logging.handlers import WatchedFileHandler
from pathlib import Path
from time import time
from typing import Any

import msgspec

from foldline.apps.gateway.plan_request import PlanHeaders
from foldline.errors import BadInput
from foldline.session import metrics
from foldline.session.hooks import Watcher

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

    def encode_line(self) -> str:
        """Encode the note as a line of the audit log."""
        plan = self.told or PlanHeaders()
        body: dict[str, Any] = {
            "time": round(time(), 3),
            "tenant": self.tenant,
            "key": self.key,
            "session": plan.session,
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
        }
        return msgspec.json.encode(body).decode()


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
    """The audit log's file; it is opened anew after a rotation moved it away."""

    def __init__(self, path: str | Path) -> None:
        try:
            self._file = WatchedFileHandler(path, encoding="utf-8")
        except OSError as fault:
            raise BadInput(f"--audit {path}: {fault.strerror}") from fault

    def write(self, note: Note) -> None:
        """Write one line."""
        line = logging.LogRecord("audit", logging.INFO, "", 0, note.encode_line(), None, None)
        self._file.handle(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


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
        self.under_way: Any = client.Gauge(metrics.IN_FLIGHT, "Requests under way.", **where)
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

    def render_metrics(self) -> bytes:
        """Render the metrics in Prometheus' text format."""
        return self._text(self.registry)
