"""What is relayed without being planned says so: to the client, in the log, the audit, the metrics."""

import gzip
import http.client
import json
import logging

import pytest
from gateway_thread import Served
from raw_upstream import Upstream, head

from foldline.apps.gateway.api_keys import Client, Keys, create_key
from foldline.apps.gateway.plan_request import Warnings, find_reason, find_route
from foldline.apps.gateway.settings import GatewaySettings, parse_upstreams
from foldline.dialects import base
from foldline.errors import FormatError, Sealed, StoreFailed
from foldline.proxy.conversations import Conversations
from foldline.testing.provider import Provider

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
PLAIN = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}'
SIGNATURE = "AWS4-HMAC-SHA256 Credential=AK/20260101/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=0f"
UNPLANNED = [
    "/v1beta/models/gemini-3-pro%3AstreamGenerateContent",
    "/v1/projects/p/locations/l/publishers/anthropic/models/claude:streamRawPredict",
    "/model/anthropic.claude-x/invoke",
    "/model/anthropic.claude-x/converse-stream",
]
UNREADABLE = {
    "NaN": PLAIN.replace(b'"max_tokens":9', b'"max_tokens":9,"temperature":NaN'),
    "half a surrogate pair": PLAIN.replace(b"hi", b"hi \\ud83d"),
    "one in UTF-8": PLAIN.replace(b"hi", b"hi \xed\xa0\xbd"),
    "a field twice": PLAIN.replace(b'"model":"m"', b'"model":"m","model":"n"'),
    "a field twice, once escaped": PLAIN.replace(b'"model":"m"', b'"model":"m","mod\\u0065l":"n"'),
    "two histories": PLAIN[:-1] + b',"messages":[]}',
    "no JSON": b"hello",
    "no object": b"[]",
}


def ask(gateway, path, body=PLAIN, method="POST", **headers):
    """Status, and the gateway's own headers."""
    client = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    client.request(method, path, body, {"content-type": "application/json", **headers})
    answer = client.getresponse()
    answer.read()
    client.close()
    told = {n.lower(): v for n, v in answer.getheaders() if n.lower().startswith("x-foldline-")}
    return answer.status, told


def warnings(caplog):
    """What the gateway warns of; that a model's window is assumed, sessions say."""
    found = [one for one in caplog.records if one.levelno >= logging.WARNING]
    return [one.getMessage() for one in found if one.name != "foldline.session"]


@pytest.mark.parametrize("path", UNPLANNED)
def test_a_conversation_that_is_not_planned_says_so(path, tmp_path, caplog):
    audit = tmp_path / "audit.jsonl"
    body = b'{"model":"m","input":"hi"}'
    with Upstream() as upstream, Served(upstream.url, store=":memory:", audit=audit) as gateway:
        for _ in range(3):
            assert ask(gateway, path, body) == (200, {"x-foldline-unplanned": "dialect"})
        assert {one.body for one in upstream.asked} == {body}
        figures = gateway.gateway._figures.render_metrics().decode()
    assert 'foldline_gateway_unplanned_total{reason="dialect"} 3.0' in figures
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [one["unplanned"] for one in lines] == ["dialect"] * 3
    told = f"a client: requests to …{find_route(path)} are relayed as they come (dialect): conversations of this API are not planned; this is said once"
    assert warnings(caplog) == [told]


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
def test_a_body_that_cannot_be_read_says_so(path, body, caplog):
    with Upstream() as upstream, Served(upstream.url, store=":memory:") as gateway:
        for _ in range(2):
            assert ask(gateway, path, body) == (200, {"x-foldline-unplanned": "unreadable"})
            assert upstream.asked[-1].body == body
        packed = gzip.compress(body)
        told = ask(gateway, path, packed, **{"content-encoding": "gzip"})[1]
        assert told == {"x-foldline-unplanned": "unreadable"}
        assert upstream.asked[-1].body == packed
        figures = gateway.gateway._figures.render_metrics().decode()
    assert 'foldline_gateway_unplanned_total{reason="unreadable"} 3.0' in figures
    assert len(warnings(caplog)) == 1
    assert "(unreadable): the body cannot be read" in warnings(caplog)[0]


@pytest.mark.parametrize(
    "header",
    [("authorization", SIGNATURE), ("x-amz-content-sha256", "0" * 64), ("content-digest", "sha-256=:X:")],
)  # fmt: skip
@pytest.mark.parametrize("path", [CHAT, MESSAGES, "/model/anthropic.claude-x/invoke"])
def test_what_is_signed_is_not_touched(path, header, caplog):
    """Byte for byte, headers too, far past the window; the same unsigned is planned."""
    messages = [{"role": role, "content": f"{turn} " + "word " * 300} for turn in range(20) for role in ("user", "assistant")]  # fmt: skip
    body = json.dumps({"model": "m", "max_tokens": 50, "messages": [*messages, {"role": "user", "content": "so?"}]}).encode()  # fmt: skip
    with Upstream() as upstream, Served(upstream.url, store=":memory:", window=4_000) as gateway:
        signed = {header[0]: header[1], "accept-encoding": "br, gzip"}
        for _ in range(2):
            assert ask(gateway, path, body, **signed) == (200, {"x-foldline-unplanned": "signed"})
            assert upstream.asked[-1].body == body
            for name, value in signed.items():
                assert upstream.asked[-1].header(name) == value.encode()
        if path in (CHAT, MESSAGES):
            assert "x-foldline-session" in ask(gateway, path, body)[1]
            assert len(upstream.asked[-1].body) < len(body)
    assert [("(signed): a body that was changed" in one) for one in warnings(caplog)] == [True]


def test_what_is_planned_or_no_conversation_says_nothing(caplog):
    with Upstream() as upstream, Served(upstream.url, store=":memory:") as gateway:
        for path in (CHAT, MESSAGES):
            assert "x-foldline-unplanned" not in ask(gateway, path)[1]
        for path in ("/v1/embeddings", "/v1/responses/resp_1/cancel", "/v1/messages/count_tokens"):
            assert ask(gateway, path) == (200, {})
        assert ask(gateway, "/v1/responses", b"", method="GET") == (200, {})
        assert ask(gateway, "/v1/files", b"x", **{"content-md5": "Q2g="}) == (200, {})
    with Upstream() as upstream, Served(upstream.url) as gateway:  # --plain: nothing ever is
        assert ask(gateway, "/v1/responses") == (200, {})
    assert warnings(caplog) == []


def test_each_key_is_warned_of_once(tmp_path, caplog):
    """By the name of the key, and for each route."""
    keys = [create_key(tmp_path / "keys", name, tenant="acme") for name in ("ci", "ops")]
    settings = GatewaySettings(upstreams=parse_upstreams(["http://127.0.0.1:1"], {}), keys=Keys(tmp_path / "keys"))  # fmt: skip
    with Served(settings, store=":memory:") as gateway:
        for key in keys * 2:
            for path in ("/v1/projects/p/locations/l/publishers/anthropic/models/m:rawPredict", "/v1/models/a:generateContent", "/v1/models/b:generateContent"):  # fmt: skip
                ask(gateway, path, authorization=f"Bearer {key}")
    said = [one.partition(" are relayed")[0] for one in warnings(caplog)]
    assert said == [f"key {name}: requests to …{route}" for name in ("ci", "ops") for route in (":rawPredict", ":generateContent")]  # fmt: skip


def test_warnings_that_are_remembered_are_bounded(monkeypatch, caplog):
    """Whoever invents keys makes the process forget, not grow."""
    monkeypatch.setattr("foldline.apps.gateway.plan_request._REMEMBERED", 10)
    given = Warnings()
    for number in range(100):
        given.warn_once(Client("t", f"digest {number}"), "/v1/responses", "dialect")
    assert len(given._said) <= 10
    assert "digest" not in caplog.text
    given.warn_once(Client("t", "d"), CHAT, "overflow")  # planning says that itself
    assert "overflow" not in caplog.text


def test_reasons():
    """A dialect that is planned one day has no reason left."""
    assert find_reason("/v1/responses", [], None) == "dialect"
    assert find_reason("/v1/responses", [], base.get_dialect("openai-chat")) == ""
    assert find_reason(CHAT, [], base.get_dialect("openai-chat")) == ""
    assert find_reason("/v1/files", [(b"x-amz-content-sha256", b"0")], None) == ""
    assert find_route("/v1/responses/") == "/responses"
    assert find_route("/v1/responses/resp_1") == ""


@pytest.mark.parametrize(
    ("fault", "reason", "status"),
    [
        (StoreFailed("gone"), "store-away", 503),
        (FormatError("damaged"), "log-unreadable", 501),
        (Sealed("another key"), "log-unreadable", 501),
        (ZeroDivisionError(), "fault", 200),
    ],
)
def test_a_fault_may_relay_a_request_instead_of_refusing_it(fault, reason, status, monkeypatch):
    """As `foldline run` wants it: its agent goes on, whatever becomes of the store or of us."""

    async def fail(*_, **__):
        raise fault

    monkeypatch.setattr(Conversations, "start_exchange", fail)
    with Upstream() as upstream:
        for relays in (True, False):
            to = parse_upstreams([upstream.url], {})
            settings = GatewaySettings(upstreams=to, relays_faults=relays)
            with Served(settings, store=":memory:") as gateway:
                got, told = ask(gateway, CHAT)
                if relays or reason == "fault":
                    assert (got, told) == (200, {"x-foldline-unplanned": reason})
                else:
                    assert got == status
        assert [one.body for one in upstream.asked] == [PLAIN] * (2 if reason == "fault" else 1)


def test_a_fault_in_every_patch_relays_the_request_as_it_came(monkeypatch, caplog):
    """Also where the edits in force cannot be applied: a conversation would be at its end."""

    def fail(*_, **__):
        raise IndexError

    with Upstream() as upstream, Served(upstream.url, store=":memory:") as gateway:
        assert "x-foldline-unplanned" not in ask(gateway, CHAT)[1]
        monkeypatch.setattr("foldline.proxy.conversation.patch_request", fail)
        assert ask(gateway, CHAT) == (200, {"x-foldline-unplanned": "fault"})
        monkeypatch.undo()
        assert "x-foldline-unplanned" not in ask(gateway, CHAT)[1]
    assert [one.body for one in upstream.asked] == [PLAIN] * 3
    assert "IndexError" in caplog.text


def test_without_its_store_a_gateway_sends_the_folds_in_force(monkeypatch):
    """The agent of a run goes on in its window, and the headers say how."""
    history = []
    with Provider() as provider:
        to = parse_upstreams([provider.url], {})
        settings = GatewaySettings(upstreams=to, relays_faults=True)
        with Served(settings, store=":memory:", window=8_000) as gateway:
            for turn in range(16):
                history.append({"role": "user", "content": f"{turn}: " + "It is all as it was. " * 150})  # fmt: skip
                body = json.dumps({"model": "m", "max_tokens": 50, "messages": history}).encode()
                if turn == 15:

                    async def fail(*_, **__):
                        raise StoreFailed("gone")

                    monkeypatch.setattr(type(gateway.conversations.store), "append", fail)
                got, told = ask(gateway, MESSAGES, body)
                assert got == 200
                history.append({"role": "assistant", "content": "ok"})
    assert told["x-foldline-unplanned"] == "store-away"
    assert "fold" in told["x-foldline-patches"]
    assert len(provider.bodies[-1]) < 0.5 * len(body)


def test_the_quota_of_a_subscription_is_in_the_audit(tmp_path):
    said = b"".join(
        b"anthropic-ratelimit-unified-" + line + b"\r\n"
        for line in (
            b"status: allowed",
            b"5h-utilization: 0.31",
            b"5h-reset: 1",
            b"7d-utilization: x",
        )
    )
    audit = tmp_path / "audit.jsonl"
    answers = iter([said, b""])
    with (
        Upstream(lambda _: [head(length=2, more=next(answers)) + b"{}"]) as upstream,
        Served(upstream.url, audit=audit) as gateway,
    ):
        for _ in range(2):
            assert ask(gateway, MESSAGES)[0] == 200
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [one["quota"] for one in lines] == [{"5h": 0.31}, None]
