"""A span for each call of a model, named as OpenTelemetry's GenAI conventions want.

Spans are made where the process has a tracer, as `opentelemetry-instrument foldline serve` gives it
one; else nothing of OpenTelemetry is imported or asked. A span is written when its call is over,
below the client's own span if the client sends `traceparent`. It has no words.
"""

import sys
from time import time_ns
from typing import Any, Final

from foldline.apps.gateway.audit import Note
from foldline.session import metrics

_PROVIDERS: Final = {"google": "gcp.gemini"}  # by vendor, where the convention has another name
_EMBEDDING: Final = ("/embeddings", ":embedContent")
_TEXT: Final = ("/v1/completions", "/complete")


class CallSpans:
    """Writes the spans of a gateway."""

    def __init__(self, provider: Any) -> None:
        self._tracer = provider.get_tracer("foldline")

    def record_note(self, note: Note) -> None:
        """Write the span of a call, if the request asked a model."""
        figures = note.figures
        if figures is None:
            return
        from opentelemetry import trace  # noqa: PLC0415 - an extra
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
            TraceContextTextMapPropagator,
        )

        end, sums = time_ns(), figures.sums
        operation = find_operation(note.route, figures.provider)
        attributes: dict[str, Any] = {
            metrics.OPERATION: operation,
            metrics.PROVIDER: _PROVIDERS.get(figures.provider, figures.provider),
            metrics.MODEL: figures.model,
            metrics.INPUT: sums.input,
            metrics.OUTPUT: sums.output,
            metrics.CACHE_READ: sums.cache_read,
            metrics.CACHE_WRITE: sums.cache_write,
            metrics.TENANT: note.tenant,
            metrics.DOLLARS: sums.dollars,
            metrics.SAVED: sums.saved_dollars,
            metrics.EDITED: sums.edits,
            metrics.FOLDED: sums.folds,
        }
        if note.any_session:
            attributes[metrics.CONVERSATION] = note.any_session
        if figures.upstream:
            attributes["server.address"] = figures.upstream
        if sums.errors:
            attributes["error.type"] = next(iter(sums.errors))
        parent = None
        if note.parent:
            parent = TraceContextTextMapPropagator().extract({"traceparent": note.parent})
        span = self._tracer.start_span(
            f"{operation} {figures.model}".strip(),
            context=parent,
            kind=trace.SpanKind.CLIENT,
            start_time=end - int(note.seconds * 1e9),
            attributes=attributes,
        )
        if sums.errors:
            span.set_status(trace.StatusCode.ERROR)
        span.end(end)


def find_spans() -> CallSpans | None:
    """Return what writes spans, if this process has a tracer; else None."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    is_none = isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)
    return None if is_none else CallSpans(provider)


def find_operation(route: str, provider: str) -> str:
    """Return the convention's name of what a request asks for."""
    if route.endswith(_EMBEDDING):
        return "embeddings"
    if route.endswith(_TEXT):
        return "text_completion"
    return "generate_content" if provider == "google" else "chat"
