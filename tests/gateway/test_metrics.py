"""`/metrics` of the gateway counts folds: of planned requests, and of sessions over HTTP."""

import json
import re
from http.client import HTTPConnection

from program import served

from foldline.session import metrics
from foldline.testing.gateways import Served
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
