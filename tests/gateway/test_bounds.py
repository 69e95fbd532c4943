"""What one client can send is bounded: in messages, values and memory, by the operator's settings."""

import asyncio
import gzip
import http.client
import json
import threading
import zlib
from pathlib import Path

import pytest
from gateway_thread import Served
from raw_upstream import Upstream, head
from waiting import within

from foldline.apps.gateway import limits
from foldline.apps.gateway.api_keys import Client
from foldline.apps.gateway.calls import Calls, GatewayCall
from foldline.apps.gateway.settings import GatewayLimits, GatewaySettings, parse_upstreams
from foldline.session import message_search
from foldline.settings.tree import GatewayTable
from foldline.testing.provider import written

PATHS = {"/v1/chat/completions": "messages", "/v1/messages": "messages", "/v1/responses": "input"}


def speaking(asked):
    """An upstream that answers in each dialect, whatever the request is packed in."""
    body = gzip.decompress(asked.body) if asked.body[:2] == b"\x1f\x8b" else asked.body
    dialect = {"messages": "anthropic", "responses": "responses"}.get(asked.target.rpartition(b"/")[2].decode(), "openai")  # fmt: skip
    said = json.dumps(written(dialect, json.loads(body), {"content": "fine"}, 9)[0]).encode()
    return [head(length=len(said)) + said]


@pytest.fixture
def served():
    """Makes gateways with sessions and with some bounds."""
    made = []

    def make(**bounds):
        provider = Upstream(speaking)
        made.append(provider)
        provider.__enter__()
        settings = GatewaySettings(
            upstreams=parse_upstreams([provider.url], {}), limits=GatewayLimits(**bounds)
        )
        one = Served(settings, store=":memory:")
        made.append(one)
        one.__enter__()
        one.provider = provider
        return one

    yield make
    for one in reversed(made):
        one.__exit__()


def post(gateway, body, path="/v1/chat/completions", **headers):
    """Status, our word for an error, and the body of an answer."""
    line = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    line.request("POST", path, body, {"content-type": "application/json", **headers})
    answer = line.getresponse()
    found = answer.status, answer.headers.get("x-foldline-error"), answer.read()
    line.close()
    return found


def talk(many, *, text="a", field="messages", **more):
    """A body of so many messages."""
    said = [{"role": ("user", "assistant")[at % 2], "content": text} for at in range(many)]
    return json.dumps({"model": "gpt-5", field: said, "max_tokens": 9, **more}).encode()


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(("path", "field"), PATHS.items())
def test_more_messages_or_values_than_allowed_are_refused_by_name(served, path, field, packed):
    """Before anything is read of them; the bounds themselves pass."""
    gateway = served(messages=21, values=120)
    pack = gzip.compress if packed else bytes
    headers = {"content-encoding": "gzip"} if packed else {}
    assert post(gateway, pack(talk(21, field=field)), path, **headers)[0] == 200
    assert post(gateway, pack(talk(23, field=field)), path, **headers)[:2] == (413, "too_many_messages")  # fmt: skip
    many = talk(3, field=field, metadata={"x": [{}] * 120})
    assert post(gateway, pack(many), path, **headers)[:2] == (413, "too_many_values")
    few = talk(3, field=field, metadata={"x": "[{}]," * 120})
    assert post(gateway, pack(few), path, **headers)[0] == 200
    assert len(gateway.provider.asked) == 2
    assert gateway.gateway.relay.room.refused == {"messages": 1, "values": 1}


def test_metrics_show_each_bound_and_what_is_taken(served):
    """Every bound has its figure, and names that clients give are clean."""
    gateway = served(messages=3)
    assert post(gateway, talk(5))[0] == 413
    assert post(gateway, talk(1).replace(b"gpt-5", b"gpt\\u0000 5"))[0] == 200
    line = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    line.request("GET", "/metrics")
    shown = line.getresponse().read().decode()
    line.close()
    lines = dict(one.rsplit(" ", 1) for one in shown.splitlines() if not one.startswith("#"))
    assert float(lines['foldline_gateway_bound_refused_total{kind="messages"}']) == 1
    assert float(lines['foldline_gateway_memory_bytes{kind="room"}']) == 1e9
    assert float(lines['foldline_gateway_memory_bytes{kind="resident"}']) > 1e7
    assert float(lines["foldline_gateway_conversations"]) == 1
    assert float(lines["foldline_gateway_cpu_seconds_total"]) > 0
    assert "foldline_gateway_loop_lag_seconds" in lines
    assert "\0" not in shown


def test_a_body_is_decompressed_once(served, monkeypatch):
    """For the models that are allowed, for the plan, for the limits: all read the same."""
    counted = []

    class Counted(limits.Copy):
        def __init__(self, encoding, *, most):
            counted.append(encoding)
            super().__init__(encoding, most=most)

    monkeypatch.setattr(limits, "Copy", Counted)
    gateway = served()
    assert post(gateway, gzip.compress(talk(1)), **{"content-encoding": "gzip"})[0] == 200
    assert counted == [b"gzip"]


def test_compressed_bodies_take_room_as_they_unfold(served):
    """A body of a few kilobytes that unfolds to more than there is room for is turned away."""
    gateway = served(held=3_000_000)
    bomb = gzip.compress(talk(1, text="a" * 4_000_000))
    assert len(bomb) < 10_000
    assert post(gateway, bomb, **{"content-encoding": "gzip"})[:2] == (503, "full")
    assert post(gateway, zlib.compress(talk(1, text="a" * 4_000_000)), **{"content-encoding": "deflate"})[:2] == (503, "full")  # fmt: skip
    assert gateway.gateway.relay.room.taken == 0
    assert post(gateway, talk(1))[0] == 200


def test_idle_conversations_are_dropped_by_their_bytes(served):
    """The oldest first; one that is dropped goes on where it was, from the store."""
    gateway = served(held=4_000_000)
    room, first = gateway.gateway.relay.room, talk(1, text="first " + "a" * 100_000)
    sessions = []
    for number in range(30):
        status, _, answer = post(gateway, first if not number else talk(1, text=f"{number} " + "a" * 100_000))  # fmt: skip
        assert status == 200
        assert within(lambda: room.taken == 0)
        assert room.held <= room.most
        sessions.append(json.loads(answer)["choices"][0]["message"])
    held = gateway.conversations.list_held()
    assert 3 <= len(held) < 10
    assert room.held == sum(gateway.conversations._sizes.values()) > 0
    body = json.loads(first)
    body["messages"] += [sessions[0], {"role": "user", "content": "and on"}]
    assert post(gateway, json.dumps(body).encode())[0] == 200
    assert len(gateway.conversations.list_held()[-1].view.items) == 4


def test_a_conversation_that_is_asked_is_not_dropped(served):
    """Room for others comes from idle ones alone."""
    gateway = served(held=2_000_000)
    assert post(gateway, talk(1, text="a" * 100_000))[0] == 200
    (conversation,) = gateway.conversations._held.values()

    async def drop():
        conversation.busy = True
        gateway.conversations.drop_idle(10**9)
        assert gateway.conversations.held_bytes > 0
        conversation.busy = False
        gateway.conversations.drop_idle(10**9)
        assert gateway.conversations.held_bytes == 0

    asyncio.run(drop())


def test_a_search_ends_when_its_client_leaves(served, monkeypatch):
    """Nobody waits for it any more, so nothing of it goes on; others are answered."""
    gateway = served(each=2)
    began, ended = threading.Event(), threading.Event()

    async def search_for_ever(*_, **__):
        began.set()
        try:
            await asyncio.sleep(3_600)
        finally:
            ended.set()

    monkeypatch.setattr(message_search, "search_tenant_messages", search_for_ever)
    status, _, _ = post(gateway, talk(1), **{"x-foldline-session": "mine"})
    assert status == 200
    line = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    line.request("GET", "/sessions/mine/search?words=hello", headers=gateway.headers)
    assert began.wait(20)
    assert len(gateway.gateway.calls) == 1
    line.close()
    assert ended.wait(20)


def test_every_bound_has_its_setting_default_metric_and_alert(served):
    """A new one without them fails here."""
    line = http.client.HTTPConnection("127.0.0.1", served().port, timeout=30)
    line.request("GET", "/metrics")
    shown = line.getresponse().read().decode()
    line.close()
    root = Path(__file__).parents[2]
    documented = (root / "docs/reference/settings.md").read_text()
    refused = "foldline_gateway_bound_refused_total"
    bounds = [name for name in GatewayTable.__struct_fields__ if name.startswith("max_")]
    assert len(bounds) >= 3
    for setting in bounds:
        kind = setting.removeprefix("max_")
        field = {"memory": "held"}.get(kind, kind)
        assert getattr(GatewayLimits(), field) == getattr(GatewayTable(), setting)
        assert f"| `gateway.{setting}`" in documented
        assert f'{refused}{{kind="{kind}"}} 0.0' in shown, kind
    rules = (root / "examples/gateway/monitoring/rules.yml").read_text()
    assert f"increase({refused}[" in rules  # of every kind: no label is chosen
    assert 'memory_bytes{kind="resident"}' in rules


def test_nothing_is_late_where_no_call_is_left():
    async def run():
        calls = Calls(each=1)
        assert await calls.wait_for_end(0.0)
        calls.add_call(GatewayCall(0.0), Client("t", scope="k"))
        assert not await calls.wait_for_end(0.0)

    asyncio.run(run())
