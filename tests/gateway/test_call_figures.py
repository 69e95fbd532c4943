"""What calls took: read from the answers, in the audit log and in usage, priced, and compared. G-5."""

import asyncio
import http.client
import json
from collections import Counter
from itertools import pairwise
from time import time

import pytest
from counted import REQUESTS, CountingUpstream, Request, draw_usage, make_request, write_answer
from gateway_thread import Served
from hypothesis import given
from hypothesis import strategies as st
from raw_upstream import Upstream, head
from waiting import within

from foldline.apps.cli.run_agent import _read_session
from foldline.apps.gateway.api_keys import Keys, create_key
from foldline.apps.gateway.call_figures import find_model
from foldline.apps.gateway.settings import GatewaySettings, parse_upstreams
from foldline.core.prices import PICO, UNKNOWN
from foldline.dialects.base import get_dialect
from foldline.dialects.usage_reader import UsageReader
from foldline.models.catalog import resolve_model
from foldline.session import usage_records
from foldline.session.ledger import price_usage
from foldline.session.usage_records import group_usage, read_usage
from foldline.stores.base import Name
from foldline.stores.open_store import store_at

COUNTS = ("input", "output", "cache_read", "cache_write")
MODELS = {
    "openai-chat": "gpt-5.1",
    "openai-responses": "gpt-5.1",
    "anthropic": "claude-opus-4-6",
    "gemini": "gemini-2.5-pro",
    "gemini-interactions": "gemini-2.5-pro",
}


@given(
    dialect=st.sampled_from([*REQUESTS]),
    streams=st.booleans(),
    random=st.randoms(use_true_random=False),
    cuts=st.lists(st.integers(0, 3_000)),
    words=st.sampled_from(["ok", 'say "usage": {"input_tokens": 5}\n\ndata: {"usage": 1}', ""]),
)
def test_usage_is_read_however_an_answer_is_cut(dialect, streams, random, cuts, words):
    """As the dialect reads the whole answer, whatever else stands in it."""
    ours, theirs = draw_usage(random, dialect)
    asked = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
    body = write_answer(dialect, asked, theirs, streams=streams, words=words)
    reader = UsageReader(get_dialect(dialect).parse_usage)
    places = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    for begin, end in pairwise(places):
        reader.feed(body[begin:end])
    found = reader.close()
    assert [getattr(found, name) or 0 for name in COUNTS] == [getattr(ours, name) for name in COUNTS]  # fmt: skip


def test_broken_answers_have_no_usage():
    for body in (b"", b"{", b"data: {", b"[1]", b'{"usage": 5}', b'{"usage": {"prompt_tokens": -1}}', b"\xff\xfe", b"data: \xff usage\n"):  # fmt: skip
        reader = UsageReader(get_dialect("openai-chat").parse_usage)
        reader.feed(body)
        assert reader.close() is None, body


def post(port, request, headers=None):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    given = {"content-type": "application/json", "accept-encoding": "gzip", **(headers or {})}
    client.request("POST", request.path, request.body, given)
    answer = client.getresponse()
    answer.read()
    client.close()
    return answer


def read_audit(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("store", ["s.db", None])
def test_every_call_is_in_the_audit_with_what_its_provider_counted(store, tmp_path):
    """Planned or relayed as it came, streamed or not, packed or not: G-5."""
    audit = tmp_path / "audit"
    address = str(tmp_path / store) if store else None
    with (
        CountingUpstream(3) as upstream,
        Served(upstream.url, store=address, audit=audit) as gateway,
    ):
        prices, said = [], ["hello"]
        for dialect, model in MODELS.items():
            for streams in (False, True):
                said.append(f"once more, {len(said)}")
                post(gateway.port, make_request(dialect, model, said, streams=streams))
                prices.append(resolve_model(model).prices)
    lines = read_audit(audit)
    assert len(lines) == len(upstream.given) == 2 * len(MODELS)
    for line, usage, price in zip(lines, upstream.given, prices, strict=True):
        assert {name: line[name] for name in COUNTS} == {name: getattr(usage, name) for name in COUNTS}  # fmt: skip
        assert line["dollars"] == price_usage(price, usage) / PICO > 0
        assert line["estimated"] == 0
        assert line["error"] == ""
        assert bool(line["session"]) == bool(store)
    assert [line["model"] for line in lines] == [one for one in MODELS.values() for _ in range(2)]


def test_what_no_provider_counts_is_estimated(tmp_path):
    """A stream of chat completions without `include_usage` says nothing."""
    audit = tmp_path / "audit"
    request = make_request("openai-chat", "gpt-5.1", ["word " * 400], streams=True)
    body = json.loads(request.body)
    del body["stream_options"]
    request = request._replace(body=json.dumps(body).encode())
    sums = []
    for store in (str(tmp_path / "s.db"), None):
        with CountingUpstream() as upstream, Served(upstream.url, store=store, audit=audit) as gate:
            post(gate.port, request)
        sums.append(read_audit(audit)[-1])
    for line in sums:
        assert line["estimated"] == 1
        assert 300 < line["input"] < 900, line
        assert 0 < line["output"] < 20
        assert line["dollars"] > 0


@pytest.mark.parametrize("answer", [[head(529, length=2) + b"{}"], [head(400, length=2) + b"{}"], [b"no HTTP"]])  # fmt: skip
def test_errors_are_counted_by_kind_and_take_nothing(answer, tmp_path):
    audit = tmp_path / "audit"
    with Upstream(lambda _: answer) as upstream, Served(upstream.url, store=str(tmp_path / "s.db"), audit=audit) as gateway:  # fmt: skip
        post(gateway.port, make_request("openai-chat", "m", ["x"]), {"x-stainless-retry-count": "0"})  # fmt: skip
    (line,) = read_audit(audit)
    kinds = {529: "overloaded", 400: "request", 502: "upstream_garbled"}
    assert line["error"] == kinds[line["status"]]
    assert (line["calls"], line["input"], line["dollars"]) == (1, 0, 0)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/messages/count_tokens"])
def test_what_asks_no_model_has_no_figures(path, tmp_path):
    audit = tmp_path / "audit"
    with Upstream() as upstream, Served(upstream.url, store=":memory:", audit=audit) as gateway:
        post(gateway.port, make_request("anthropic", "m", ["x"])._replace(path=path))
    (line,) = read_audit(audit)
    assert "input" not in line


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(usage_records, "EVERY", 0.05)


async def sum_usage(address, tenant, by=()):
    store = store_at(address)
    try:
        return group_usage(await read_usage(store, tenant, since=time() - 7_200), by)
    finally:
        await store.close()


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.mark.anyio
async def test_usage_has_every_call_by_owner_key_and_model(tmp_path):
    """From several gateways on one store; unknown models have no price, and many have one name."""
    path, address, audit = tmp_path / "keys", str(tmp_path / "s.db"), tmp_path / "audit"
    keys = {name: create_key(path, name, tenant="acme") for name in ("alice", "bob")}
    with CountingUpstream(5) as upstream:
        settings = GatewaySettings(
            upstreams=parse_upstreams([upstream.url], {"FOLDLINE_UPSTREAM_KEY": "sk-up"}),
            keys=Keys(path),
        )
        for name, model in (("alice", "gpt-5.1"), ("bob", "nobody-knows"), ("alice", "gpt-5.1")):
            with Served(settings, store=address, audit=audit) as gateway:
                head = {"authorization": f"Bearer {keys[name]}"}
                for number in range(3):
                    request = make_request("openai-chat", model, [f"{name} {number}"])
                    assert post(gateway.port, request, head).status == 200
    lines = read_audit(audit)
    rows = await sum_usage(address, "acme", ("owner", "key", "model", "upstream"))
    host = upstream.url.partition("://")[2]
    assert [row.values for row in rows] == [
        ("alice", "alice", "gpt-5.1", host),
        ("bob", "bob", "nobody-knows", host),
    ]
    assert rows[1].sums.unpriced == 3
    assert rows[1].sums.pico == 0
    for row in rows:
        own = [line for line in lines if line["owner"] == row.values[0]]
        for name in ("calls", *COUNTS, "stored"):
            assert getattr(row.sums, name) == sum(line[name] for line in own), name
        assert row.sums.dollars == pytest.approx(sum(line["dollars"] for line in own), abs=1e-9)
        assert row.sums.stored > 100
        assert sum(row.sums.added_counts) == row.sums.calls
    (total,) = await sum_usage(address, "acme")
    assert total.sums.calls == upstream.counted["calls"] == 9
    assert Counter({name: getattr(total.sums, name) for name in COUNTS}) == Counter({name: upstream.counted[name] for name in COUNTS})  # fmt: skip


@pytest.mark.anyio
async def test_clients_cannot_make_rows_without_end(tmp_path, monkeypatch):
    from foldline.apps.gateway import asgi  # noqa: PLC0415 - patched here alone

    monkeypatch.setattr(asgi, "_MODELS", 5)
    address = str(tmp_path / "s.db")
    with CountingUpstream() as upstream, Served(upstream.url, store=address) as gateway:
        for number in range(12):
            post(gateway.port, make_request("openai-chat", f"m{number}", [f"{number}"]))
    rows = await sum_usage(address, "local", ("model",))
    assert {row.values[0] for row in rows} == {asgi.OTHER, *(f"m{n}" for n in range(5))}
    assert next(row.sums.calls for row in rows if row.values == (asgi.OTHER,)) == 7


@pytest.mark.usefixtures("quick")
def test_a_gateway_writes_while_it_runs(tmp_path):

    address = str(tmp_path / "s.db")
    with CountingUpstream() as upstream, Served(upstream.url, store=address) as gateway:
        post(gateway.port, make_request("openai-chat", "m", ["x"]))
        found = within(lambda: asyncio.run(sum_usage(address, "local")))
        assert found[0].sums.calls == 1


def test_prices_are_unknown_only_for_unknown_models():
    assert all(resolve_model(model).prices != UNKNOWN for model in MODELS.values())


def test_turns_of_the_session_api_are_counted(tmp_path):
    """As the provider counted them: answered, failed, and those that outlive their request."""
    audit, address = tmp_path / "audit", str(tmp_path / "s.db")
    with CountingUpstream(7) as upstream, Served(upstream.url, store=address, audit=audit) as gate:

        def ask(path, body):
            return post(gate.port, Request(path, json.dumps(body).encode()), gate.headers)

        ask("/sessions", {"name": "mine", "model": "gpt-5.1"})
        for turn in range(3):
            assert ask("/sessions/mine/messages", {"text": f"{turn}"}).status == 200
        upstream.script = lambda _: [head(400, length=2) + b"{}"]
        assert ask("/sessions/mine/messages", {"text": "fails"}).status == 502
    lines = [line for line in read_audit(audit) if "input" in line]
    assert [line["calls"] for line in lines] == [1, 1, 1, 1]
    assert {line["session"] for line in lines} == {"mine"}
    assert {line["model"] for line in lines} == {"gpt-5.1"}
    assert lines[-1]["error"]
    (total,) = asyncio.run(sum_usage(address, "local"))
    for name in COUNTS:
        assert sum(line[name] for line in lines) == upstream.counted[name] == getattr(total.sums, name)  # fmt: skip
    assert total.sums.calls == 4
    assert sum(total.sums.errors.values()) == 1
    assert total.sums.dollars > 0


def test_what_edits_save_is_what_the_report_of_a_run_says(tmp_path):
    """One comparison with sending everything: summed by call here, and over the whole log there."""
    audit, address = tmp_path / "audit", str(tmp_path / "s.db")
    prose = "Most of the tests pass when the file is read in one piece, and nobody complained. "
    said = []
    with (
        CachingUpstream(1) as upstream,
        Served(upstream.url, store=address, audit=audit, window=8_000) as gateway,
    ):
        for turn in range(60):
            said.append(f"Turn {turn}. {prose * 9}")
            post(gateway.port, make_request("anthropic", "claude-opus-4-6", said))
    lines = read_audit(audit)
    assert sum(line["folds"] for line in lines) >= 2
    first = next(at for at, line in enumerate(lines) if line["folds"])
    assert not any(line["saved"] for line in lines[:first])
    (name,) = {line["session"] for line in lines}

    async def read_steps():
        store = store_at(address)
        try:
            return (await _read_session(store, Name("local", name), 0.0)).course.steps
        finally:
            await store.close()

    steps = asyncio.run(read_steps())
    dollars = sum(step.dollars for step in steps)
    whole = sum(step.all_dollars for step in steps)
    assert sum(line["dollars"] for line in lines) == pytest.approx(dollars)
    assert abs(whole - dollars) > 0.1 * dollars, "there is something to compare"
    assert sum(line["saved"] for line in lines) == pytest.approx(whole - dollars, rel=0.1)


class CachingUpstream(CountingUpstream):
    """Counts four bytes as a token; what a request repeats of the one before comes from the cache."""

    before = b""

    def answer(self, asked):
        """Answer a request."""
        body = asked.body
        pairs = enumerate(zip(body, self.before, strict=False))
        same = next((at for at, (one, two) in pairs if one != two), len(self.before)) // 4
        self.before = body
        tokens = len(body) // 4
        read = same if same > 1_000 else 0
        usage = {"input_tokens": 3, "cache_read_input_tokens": read}
        usage |= {"cache_creation_input_tokens": tokens - read, "output_tokens": 4}
        said = write_answer("anthropic", json.loads(body), usage, streams=False)
        return [head(200, length=len(said)) + said]


@pytest.mark.parametrize(
    ("body", "model"),
    [
        ('{"model": "a", "messages": []}', "a"),
        ('{"messages": [], "model":"a"}', "a"),
        ('{"messages": [], "model": "a", "stream": true}', "a"),
        ('{"messages": ["\\"model\\":\\"b\\"}"], "model": "a", "x": {"model": "b"}}', "a"),
        ('{"x": [{"y": 1, "model": "b"}], "model": "a"}', "a"),
        ('{"x": {"y": 1, "model": "b"}}', ""),
        ('{"model": "\\u0061", "x": 1}', "a"),
        ('{"model": 5}', ""),
        ("no JSON", ""),
    ],
)
def test_a_model_is_found_wherever_it_stands(body, model):
    for padded in (body, body.replace('"x"', f'"long": "{"z" * 900}", "x"')):
        assert find_model(padded.encode(), "/v1/chat/completions") == model
