"""`/metrics` of the gateway counts folds: of planned requests, and of sessions over HTTP."""

import json
import re
from http.client import HTTPConnection

from counted import CountingUpstream, make_request
from gateway_thread import Served
from program import served

from foldline.apps.gateway.audit import Figures
from foldline.session import metrics
from foldline.session.usage_records import UsageSums
from foldline.testing.provider import Provider

PROSE = "Most of the tests pass when the file is read in one piece, and nobody complained. "


def ask(port, method, path, body=None, headers=None):
    client = HTTPConnection("127.0.0.1", port, timeout=60)
    sent = None if body is None else json.dumps(body)
    client.request(method, path, sent, {"content-type": "application/json", **(headers or {})})
    answer = client.getresponse()
    got = answer.read().decode()
    client.close()
    assert answer.status < 300, got
    return got


def count(port, name):
    """The sum of a metric, over all its labels."""
    text = ask(port, "GET", "/metrics")
    found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
    return sum(map(float, found))


def chat(port, turns):
    said = []
    for turn in range(turns):
        said.append({"role": "user", "content": f"Turn {turn}. {PROSE * 9}"})
        ask(port, "POST", "/v1/chat/completions", {"model": "m", "messages": said})
        said.append({"role": "assistant", "content": "ok"})


def test_folds_of_planned_requests():
    with Provider() as provider, Served(provider.url, store=":memory:", window=4_000) as gateway:
        chat(gateway.port, 3)
        assert count(gateway.port, f"{metrics.FOLDS}_total") == 0
        chat(gateway.port, 30)
        folds = sum(len(one.view.list_folds()) for one in gateway.conversations.list_held())
        assert folds >= 1
        text = ask(gateway.port, "GET", "/metrics")
        assert f'{metrics.FOLDS}_total{{outcome="applied",trigger="forced"}}' in text
        assert count(gateway.port, f"{metrics.FOLDS}_total") >= folds
        assert count(gateway.port, f"{metrics.FOLDED_TOKENS}_total") > 1_000
        assert count(gateway.port, f"{metrics.FOLD_SECONDS}_count") >= folds
        assert count(gateway.port, f"{metrics.REQUESTS}_total") == 33


def test_folds_of_sessions_over_http():
    """M-5."""
    with Provider() as provider, Served(provider.url, store=":memory:") as gateway:

        def call(path, body):
            return ask(gateway.port, "POST", path, body, gateway.headers)

        call("/sessions", {"name": "mine", "model": "m", "window": 4_000})
        for turn in range(3):
            call("/sessions/mine/messages", {"text": f"Turn {turn}. {PROSE * 9}"})
        assert count(gateway.port, f"{metrics.FOLDS}_total") == 0
        call("/sessions/mine/fold", {})
        assert count(gateway.port, f"{metrics.FOLDS}_total") == 1
        assert count(gateway.port, f"{metrics.FOLDED_TOKENS}_total") > 0


def test_a_gateway_that_has_ended_counts_no_more():
    with Provider() as provider:
        with Served(provider.url, store=":memory:", window=4_000) as ended:
            pass
        with Served(provider.url, store=":memory:", window=4_000) as gateway:
            chat(gateway.port, 30)
            assert count(gateway.port, f"{metrics.FOLDS}_total") >= 1
        shown = ended.gateway._figures.render_metrics().decode()
    assert f"{metrics.FOLDS}_total{{" not in shown


def test_folds_of_the_program(tmp_path):
    with Provider() as provider:
        options = ["--upstream", provider.url, "--port", "0", "--window", "4000"]
        with served([*options, "--store", tmp_path / "s.db"], tmp_path) as begun:
            chat(begun.port, 30)
            assert count(begun.port, f"{metrics.FOLDS}_total") >= 1


def test_what_calls_take_by_tenant_and_model():
    """G-5: as the provider counted it; no series names an owner, a key or a session."""
    with CountingUpstream(2) as upstream, Served(upstream.url, store=":memory:") as gateway:
        for model in ("gpt-5.1", "claude-opus-4-6", "gpt-5.1"):
            dialect = "anthropic" if "claude" in model else "openai-chat"
            request = make_request(dialect, model, [f"{model} {len(upstream.given)}"])
            ask(gateway.port, "POST", request.path, json.loads(request.body))
        text = ask(gateway.port, "GET", "/metrics")
        assert 'foldline_usage_calls_total{model="gpt-5.1",tenant="local"} 2.0' in text
        assert count(gateway.port, "foldline_usage_calls_total") == upstream.counted["calls"]
        tokens = {
            kind: sum(map(float, re.findall(rf'tokens_total{{kind="{kind}"[^}}]*}} (\S+)', text)))
            for kind in ("fresh", "cache_read", "cache_write", "output")
        }
        counted = upstream.counted
        assert tokens.pop("output") == counted["output"]
        assert sum(tokens.values()) == counted["input"]
        assert tokens["cache_read"] == counted["cache_read"]
        dollars = count(gateway.port, "foldline_usage_dollars_total")
        assert count(gateway.port, "foldline_usage_whole_dollars_total") == dollars > 0
    labels = set(re.findall(r'[{,](\w+)="', text))
    assert labels <= {"tenant", "model", "kind", "route", "status", "reason", "way", "le", "trigger", "outcome", "form", "what"}  # fmt: skip


def test_series_are_bounded():
    figures = Figures()
    for number in range(1_500):
        figures.usage.add("acme", f"m{number}", UsageSums(calls=1))
    text = figures.render_metrics().decode()
    calls = re.findall(r"^foldline_usage_calls_total\{.*\} (\S+)$", text, re.MULTILINE)
    assert len(calls) == 1_001
    assert sum(map(float, calls)) == 1_500
    assert "_created" not in text  # it would double every scrape
