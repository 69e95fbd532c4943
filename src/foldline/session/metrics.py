"""Prometheus metrics and OpenTelemetry spans of folds and narratives.

    foldline.watch(metrics.prometheus())      # extra `metrics`
    foldline.watch(metrics.spans())           # extra `otel`

All names of metrics and attributes are defined here, the gateway's too.
"""

from functools import partial
from time import time_ns
from typing import Any

from foldline.errors import BadInput
from foldline.session.hooks import Pass, Watcher

FOLDS = "foldline_folds"
FOLD_SECONDS = "foldline_fold_seconds"
FOLD_RATIO = "foldline_fold_ratio"
FOLDED_TOKENS = "foldline_folded_tokens"
NARRATIVES = "foldline_narratives"
NARRATIVE_SECONDS = "foldline_narrative_seconds"
NARRATIVE_TOKENS = "foldline_narrative_tokens"
REQUESTS = "foldline_gateway_requests"
IN_FLIGHT = "foldline_gateway_in_flight"
UPSTREAM_SECONDS = "foldline_gateway_upstream_seconds"
ADDED_SECONDS = "foldline_gateway_added_seconds"
ADDED_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)
SENT_TOKENS = "foldline_gateway_tokens"
EDITS = "foldline_gateway_edits"
UNPLANNED = "foldline_gateway_unplanned"
BYTES = "foldline_gateway_bytes"
USAGE = "foldline_usage_"
"""The beginning of series by tenant and model; owners have `foldline usage`: they are too many."""
SPAN = "foldline.pass"
# The gen_ai convention is not stable yet; attributes that it lacks begin with `foldline`.
MODEL, CONVERSATION = "gen_ai.request.model", "gen_ai.conversation.id"
INPUT, OUTPUT = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
OPERATION, PROVIDER = "gen_ai.operation.name", "gen_ai.provider.name"
CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE = "gen_ai.usage.cache_creation.input_tokens"
DOLLARS, SAVED = "foldline.dollars", "foldline.saved_dollars"
EDITED, FOLDED = "foldline.edits", "foldline.folds"
KIND, TRIGGER = "foldline.kind", "foldline.trigger"
OUTCOME, REASON = "foldline.outcome", "foldline.reason"
TENANT, BEFORE, AFTER = "foldline.tenant", "foldline.tokens.before", "foldline.tokens.after"
CACHED = "foldline.tokens.cached"
_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 120.0)
_RATIOS = (1.25, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0)


def prometheus(registry: Any = None) -> Watcher:
    """Return a watcher that counts passes in a Prometheus registry, by default the process's."""
    try:
        from prometheus_client import REGISTRY, Counter, Histogram  # noqa: PLC0415 - an extra
    except ImportError as fault:
        raise BadInput(
            f"counting needs the extra `metrics`: pip install 'foldline[metrics]' ({fault})"
        ) from fault
    where = REGISTRY if registry is None else registry
    counter, histogram = partial(Counter, registry=where), partial(Histogram, registry=where)
    folds = counter(FOLDS, "Folds, by trigger and outcome.", ["trigger", "outcome"])
    fold_seconds = histogram(
        FOLD_SECONDS, "Time to plan and write a fold.", ["trigger"], buckets=_SECONDS
    )
    fold_ratio = histogram(
        FOLD_RATIO, "Tokens before a fold ÷ after.", ["trigger"], buckets=_RATIOS
    )
    folded = counter(FOLDED_TOKENS, "Tokens that folds took out of sight.", ["trigger"])
    narratives = counter(
        NARRATIVES, "Narratives asked for, by form and outcome.", ["form", "outcome"]
    )
    narrative_seconds = histogram(
        NARRATIVE_SECONDS, "Time to have a narrative written.", ["form"], buckets=_SECONDS
    )
    narrative_tokens = counter(
        NARRATIVE_TOKENS, "Tokens of narratives: read fresh, cached, written.", ["what"]
    )

    def count_pass(one: Pass) -> None:
        if one.kind == "narrative":
            narratives.labels(one.trigger, one.outcome).inc()
            narrative_seconds.labels(one.trigger).observe(one.seconds)
            narrative_tokens.labels("input").inc(one.before - one.cached)
            narrative_tokens.labels("cached").inc(one.cached)
            narrative_tokens.labels("output").inc(one.after)
            return
        folds.labels(one.trigger, one.outcome).inc()
        if one.outcome == "applied":
            fold_seconds.labels(one.trigger).observe(one.seconds)
            fold_ratio.labels(one.trigger).observe(one.ratio)
            folded.labels(one.trigger).inc(max(one.before - one.after, 0))

    return count_pass


def spans(tracer: Any = None) -> Watcher:
    """Return a watcher that records each pass as an OpenTelemetry span."""
    try:
        from opentelemetry import trace  # noqa: PLC0415 - an extra
    except ImportError as fault:
        raise BadInput(
            f"tracing needs the extra `otel`: pip install 'foldline[otel]' ({fault})"
        ) from fault
    tracer = trace.get_tracer("foldline") if tracer is None else tracer

    def trace_pass(one: Pass) -> None:
        end = time_ns()
        begun = end - int(one.seconds * 1e9)
        attributes = {
            KIND: one.kind, TENANT: one.name.tenant, CONVERSATION: one.name.session,
            MODEL: one.model,
            TRIGGER: one.trigger, OUTCOME: one.outcome, BEFORE: one.before, AFTER: one.after,
        }  # fmt: skip
        if one.reason:
            attributes[REASON] = one.reason
        if one.kind == "narrative":
            attributes |= {INPUT: one.before, OUTPUT: one.after, CACHED: one.cached}
        tracer.start_span(SPAN, start_time=begun, attributes=attributes).end(end)

    return trace_pass
