"""Spans of calls, by OpenTelemetry's GenAI conventions; and none where nobody traces."""

import http.client
import subprocess
import sys

import pytest
from counted import CountingUpstream, make_request
from gateway_thread import Served
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as conventions
from raw_upstream import Upstream, head

from foldline.session import metrics

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


def post(port, request):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    given = {"content-type": "application/json", "traceparent": PARENT}
    client.request("POST", request.path, request.body, given)
    client.getresponse().read()
    client.close()


@pytest.mark.parametrize("store", [":memory:", None])
def test_each_call_of_a_model_is_a_span_below_its_clients(spans, store):
    with CountingUpstream(4) as upstream, Served(upstream.url, store=store) as gateway:
        post(gateway.port, make_request("anthropic", "claude-opus-4-6", ["x"]))
        post(gateway.port, make_request("gemini", "gemini-2.5-pro", ["x"]))
    one, two = spans.get_finished_spans()
    (usage, _) = upstream.given
    assert (one.name, two.name) == ("chat claude-opus-4-6", "generate_content gemini-2.5-pro")
    assert one.kind is trace.SpanKind.CLIENT
    assert f"{one.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{one.parent.span_id:016x}" == PARENT.split("-")[2]
    found = one.attributes
    assert found["gen_ai.provider.name"] == "anthropic"
    assert two.attributes["gen_ai.provider.name"] == "gcp.gemini"
    assert found["gen_ai.usage.input_tokens"] == usage.input
    assert found["gen_ai.usage.output_tokens"] == usage.output
    assert found["gen_ai.usage.cache_read.input_tokens"] == usage.cache_read
    assert found["foldline.dollars"] > 0
    assert ("gen_ai.conversation.id" in found) == (store is not None)
    assert one.status.is_ok


def test_a_call_that_fails_is_an_error(spans):
    with Upstream(lambda _: [head(529, length=2) + b"{}"]) as upstream, Served(upstream.url, store=":memory:") as gateway:  # fmt: skip
        post(gateway.port, make_request("openai-chat", "m", ["x"]))
    (span,) = spans.get_finished_spans()
    assert span.attributes["error.type"] == "overloaded"
    assert not span.status.is_ok


def test_names_are_those_of_the_conventions():
    known = {value for name, value in vars(conventions).items() if name.startswith("GEN_AI_")}
    ours = {value for value in vars(metrics).values() if str(value).startswith("gen_ai.")}
    assert ours <= known, ours - known


def test_off_imports_nothing():
    code = (
        "import sys\n"
        "from foldline.apps.gateway import asgi\n"
        "from foldline.apps.gateway.call_spans import find_spans\n"
        "assert find_spans() is None\n"
        "assert not [one for one in sys.modules if one.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
