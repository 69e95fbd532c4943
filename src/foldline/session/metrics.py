"""Passes counted for Prometheus and traced for OpenTelemetry: A-46, R-76.

    live.passes.watchers.append(metrics.prometheus())      # extra `metrics`
    live.passes.watchers.append(metrics.spans())           # extra `otel`

Knows every name under which anything is counted or traced: they stand here and nowhere else.
Refuses to know sessions, and what is done with the figures.
"""

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
SPAN = "foldline.pass"
# The convention for what asks a model is still in the making; names of ours begin with our own.
MODEL, INPUT, OUTPUT = (
    "gen_ai.request.model",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
)
CONVERSATION = "gen_ai.conversation.id"
KIND, TRIGGER, OUTCOME, REASON = (
    "foldline." + one for one in ("kind", "trigger", "outcome", "reason")
)
TENANT, BEFORE, AFTER = "foldline.tenant", "foldline.tokens.before", "foldline.tokens.after"
CACHED = "foldline.tokens.cached"
_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 120.0)
_RATIOS = (1.25, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0)


def prometheus(registry: Any = None) -> Watcher:
    """Counts passes in a registry of `prometheus_client`; the process's own, if none is given."""
    try:
        from prometheus_client import REGISTRY, Counter, Histogram  # noqa: PLC0415 - an extra
    except ImportError as fault:
        raise BadInput(
            f"counting needs the extra `metrics`: pip install 'foldline[metrics]' ({fault})"
        ) from fault
    where = REGISTRY if registry is None else registry
    folds = Counter(FOLDS, "Folds, by trigger and outcome.", ["trigger", "outcome"], registry=where)
    lasted = Histogram(
        FOLD_SECONDS,
        "Time to plan and write a fold.",
        ["trigger"],
        buckets=_SECONDS,
        registry=where,
    )
    ratio = Histogram(
        FOLD_RATIO, "Tokens before a fold ÷ after.", ["trigger"], buckets=_RATIOS, registry=where
    )
    tokens = Counter(
        FOLDED_TOKENS, "Tokens that folds took out of sight.", ["trigger"], registry=where
    )
    told = Counter(
        NARRATIVES,
        "Narratives asked for, by form and outcome.",
        ["form", "outcome"],
        registry=where,
    )
    waited = Histogram(
        NARRATIVE_SECONDS,
        "Time to have a narrative told.",
        ["form"],
        buckets=_SECONDS,
        registry=where,
    )
    spent = Counter(
        NARRATIVE_TOKENS,
        "Tokens of narratives: read fresh, cached, written.",
        ["what"],
        registry=where,
    )

    def watch(one: Pass) -> None:
        if one.kind == "narrative":
            told.labels(one.trigger, one.outcome).inc()
            waited.labels(one.trigger).observe(one.seconds)
            spent.labels("input").inc(one.before - one.cached)
            spent.labels("cached").inc(one.cached)
            spent.labels("output").inc(one.after)
            return
        folds.labels(one.trigger, one.outcome).inc()
        if one.outcome == "applied":
            lasted.labels(one.trigger).observe(one.seconds)
            ratio.labels(one.trigger).observe(one.ratio)
            tokens.labels(one.trigger).inc(max(one.before - one.after, 0))

    return watch


def spans(tracer: Any = None) -> Watcher:
    """Gives a span for each pass, as long as the pass was, to a tracer of OpenTelemetry."""
    try:
        from opentelemetry import trace  # noqa: PLC0415 - an extra
    except ImportError as fault:
        raise BadInput(
            f"tracing needs the extra `otel`: pip install 'foldline[otel]' ({fault})"
        ) from fault
    tracer = trace.get_tracer("foldline") if tracer is None else tracer

    def watch(one: Pass) -> None:
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

    return watch
