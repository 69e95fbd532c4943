"""The relay: official SDKs through a real port, against an upstream that records every byte."""

import asyncio
import gzip
import http.client
import itertools
import json
import socket
import time
import zlib
from threading import Event

import anthropic
import httpx2
import openai
import pydantic
import pytest
from gateway_thread import Served
from hypothesis import given
from hypothesis import strategies as st
from raw_upstream import CUT, HANG, Upstream, chunk, head
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from waiting import within

from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.limits import Copy, Room, Share, checked_path, decode_body
from foldline.apps.gateway.settings import GatewayLimits, GatewaySettings, parse_upstreams
from foldline.testing.provider import written

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
CALL = {"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1.50}'}}]}  # fmt: skip
BOTH = pytest.mark.parametrize("store", [None, ":memory:"], ids=["plain", "sessions"])


def speaking(asked):
    """An upstream that speaks both dialects, streamed or not, and knows some other routes."""
    path = asked.target.split(b"?")[0].decode()
    body = gzip.decompress(asked.body) if asked.body[:2] == b"\x1f\x8b" else asked.body
    given = json.loads(body) if body else {}
    if path.endswith(("/chat/completions", "/messages")):
        said = CALL if given.get("tools") else {"content": '{"city": "Bern"}'}
        dialect = "anthropic" if path.endswith("/messages") else "openai"
        whole, events = written(dialect, given, said, 9)
        if given.get("stream"):
            kind = b"content-type: text/event-stream\r\n"
            lines = [chunk(one.encode()) for one in events]
            return [head().replace(b"content-type: application/json\r\n", kind), *lines, chunk(b"")]
    elif path.endswith("/count_tokens"):
        whole = {"input_tokens": 7}
    elif path.endswith("/embeddings"):
        whole = {"object": "list", "model": "e", "usage": {"prompt_tokens": 1, "total_tokens": 1}, "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}]}  # fmt: skip
    elif "anthropic-version" in {name.decode().lower() for name, _ in asked.headers}:
        whole = {"data": [{"id": "m", "type": "model", "display_name": "M", "created_at": "2026-01-01T00:00:00Z"}], "has_more": False, "first_id": "m", "last_id": "m"}  # fmt: skip
    else:
        whole = {"object": "list", "data": [{"id": "m", "object": "model", "created": 0, "owned_by": "o"}]}  # fmt: skip
    body = json.dumps(whole).encode()
    return [head(length=len(body)) + body]


def recorded(sent):
    """An HTTP client for an SDK that notes what it sends."""
    return httpx2.Client(event_hooks={"request": [sent.append]})


class City(pydantic.BaseModel):
    """What is asked for in structured output."""

    city: str


def with_openai(client):
    """Every ordinary call of the openai SDK."""
    said = [{"role": "user", "content": "Where?"}]
    create = client.chat.completions.create
    assert create(model="m", messages=said).choices[0].message.content == '{"city": "Bern"}'
    call = create(model="m", messages=said, tools=TOOLS).choices[0].message
    assert call.tool_calls[0].function.arguments == '{"at": 1.50}'
    answered = [*said, call, {"role": "tool", "tool_call_id": "c1", "content": "ok"}]
    assert create(model="m", messages=answered).choices[0].finish_reason == "stop"
    pieces = list(create(model="m", messages=said, stream=True, stream_options={"include_usage": True}))  # fmt: skip
    assert (
        "".join(p.choices[0].delta.content or "" for p in pieces if p.choices) == '{"city": "Bern"}'
    )
    assert pieces[-1].usage.total_tokens == 10
    image = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": PIXEL}}]  # fmt: skip
    assert create(model="m", messages=[{"role": "user", "content": image}]).id == "c"
    parsed = client.chat.completions.parse(model="m", messages=said, response_format=City)
    assert parsed.choices[0].message.parsed == City(city="Bern")
    assert client.embeddings.create(model="e", input="x", encoding_format="float").data[0].embedding == [0.5, 0.25]  # fmt: skip
    assert client.models.list().data[0].id == "m"
    return 8


def with_anthropic(client):
    """Every ordinary call of the anthropic SDK."""
    said = [{"role": "user", "content": "Where?"}]
    asked = {"model": "m", "max_tokens": 50, "messages": said}
    assert client.messages.create(**asked).content[0].text == '{"city": "Bern"}'
    tool = {"name": "look", "input_schema": {"type": "object"}}
    assert client.messages.create(**asked, tools=[tool]).content[0].input == {"at": 1.5}
    with client.messages.stream(**asked) as stream:
        assert "".join(stream.text_stream) == '{"city": "Bern"}'
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL.partition(",")[2]}}  # fmt: skip
    assert client.messages.create(**{**asked, "messages": [{"role": "user", "content": [image]}]}).id == "m"  # fmt: skip
    assert client.messages.count_tokens(model="m", messages=said).input_tokens == 7
    assert client.models.list().data[0].id == "m"
    return 6


@BOTH
@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_the_sdks_ordinary_calls_pass(sdk, store):
    """Point 1: each call gets its answer, and the upstream saw what the SDK sent."""
    sent = []
    with Upstream(speaking) as upstream, Served(upstream.url, store=store) as gateway, recorded(sent) as http:  # fmt: skip
        if sdk == "openai":
            calls = with_openai(openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="sk-x", http_client=http))  # fmt: skip
        else:
            calls = with_anthropic(anthropic.Anthropic(base_url=gateway.url, api_key="sk-x", http_client=http))  # fmt: skip
        assert len(upstream.asked) == len(sent) == calls
        for mine, theirs in zip(sent, upstream.asked, strict=True):
            assert theirs.target == mine.url.raw_path
            assert theirs.body == mine.content


def raw(gateway, request, *, read=True):
    """A request in raw bytes, and all that comes back until the connection ends."""
    with socket.create_connection(("127.0.0.1", gateway.port), 20) as wire:
        wire.sendall(request)
        got = b""
        while read and (piece := wire.recv(65_536)):
            got += piece
        return got


def post(body, path="/v1/chat/completions", headers=""):
    return f"POST {path} HTTP/1.1\r\nHost: gw\r\nConnection: close\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body  # fmt: skip


def test_what_is_not_ours_passes_as_it_came():
    """Headers in their order, duplicates too; unknown routes, queries, bodies that are no JSON."""
    answer = b"HTTP/1.1 418 Any\r\nX-One: 1\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nX-One: 2\r\nServer: s\r\nDate: d\r\nKeep-Alive: timeout=5\r\nConnection: X-Hop\r\nX-Hop: 1\r\ncontent-length: 4\r\n\r\n\x00\xffno"
    with (
        Upstream(lambda _: [answer]) as upstream,
        Served(upstream.url, store=":memory:") as gateway,
    ):
        body = b"\x00\x01 not JSON \xff"
        extra = "X-A: 1\r\nx-b: \xc3\xa9\r\nX-A: 2\r\nX-Foldline-Session: s\r\nTE: trailers\r\nX-Forwarded-Host: evil\r\nCookie: c=d\r\n"
        got = raw(gateway, post(body, "/v1/any%2Fthing/%C3%A9?a=1&a=%20&b", extra))
        asked = upstream.asked[-1]
        assert asked.line == b"POST /v1/any%2Fthing/%C3%A9?a=1&a=%20&b HTTP/1.1"
        assert asked.body == body
        assert [(n.lower(), v) for n, v in asked.headers if n.lower() != b"host"] == [
            (b"content-length", str(len(body)).encode()),
            (b"x-a", b"1"),
            (b"x-b", "\xc3\xa9".encode()),
            (b"x-a", b"2"),
            (b"cookie", b"c=d"),
        ]
        top, _, rest = got.partition(b"\r\n\r\n")
        assert rest == b"\x00\xffno"
        lines = top.split(b"\r\n")
        assert lines[0].startswith(b"HTTP/1.1 418")
        assert lines[1:] == [b"x-one: 1", b"set-cookie: a=1", b"set-cookie: b=2", b"x-one: 2", b"server: s", b"date: d", b"content-length: 4", b"connection: close"]  # fmt: skip
        for path in (
            "/v1/chat/completions",
            "/v1/messages",
        ):  # what no decoder reads is judged there
            assert b" 418 " in raw(gateway, post(body, path))
            assert upstream.asked[-1].body == body
        deep = b'{"model":"m","messages":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
        assert b" 418 " in raw(gateway, post(deep))
        assert upstream.asked[-1].body == deep


@BOTH
def test_a_stream_passes_piece_by_piece(store, timed):
    """Nothing waits for what comes later, and keep-alive serves the next call."""
    pieces = [f'data: {{"id":"c","choices":[{{"index":0,"delta":{{"content":"{n}"}}}}]}}\n\n'.encode() for n in range(4)]  # fmt: skip
    steps = [head(), *[one for piece in pieces for one in (chunk(piece), 0.3)], chunk(b"data: [DONE]\n\n") + chunk(b"")]  # fmt: skip
    asked = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}'
    with Upstream(lambda _: steps) as upstream, Served(upstream.url, store=store) as gateway:
        wire = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
        for _ in range(2):
            wire.request("POST", "/v1/chat/completions", asked)
            answer = wire.getresponse()
            came = []
            while piece := answer.read1(65_536):
                came.append((time.monotonic(), piece))
            assert b"".join(piece for _, piece in came) == b"".join(pieces) + b"data: [DONE]\n\n"
            gaps = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(came)]  # fmt: skip
            assert timed.met(len(came) >= 5)
            assert timed.met(min(gaps[:4]) > 0.1)
        wire.close()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
@BOTH
def test_compressed_answers_pass_as_they_are(store, encoding):
    """The client gets the very bytes; what we can read of them is heard."""
    whole, _ = written("openai", {"model": "m"}, {"content": "ok"}, 9)
    said = json.dumps(whole).encode()
    packed = {"gzip": gzip.compress(said), "deflate": zlib.compress(said), "br": b"\x01\x02br"}[
        encoding
    ]
    asked = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
    heads = []
    for body, more in ((said, b""), (packed, b"content-encoding: %s\r\n" % encoding.encode())):
        answer = [head(length=len(body), more=more) + body]
        with Upstream(lambda _, answer=answer: answer) as upstream, Served(upstream.url, store=store) as gateway:  # fmt: skip
            got = raw(gateway, post(asked, headers="Accept-Encoding: br, gzip\r\n"))
            assert got.endswith(body)
            wanted = b"gzip"  # whose usage the gateway can read
            assert upstream.asked[0].header("accept-encoding") == wanted
            heads.append(gateway.conversations.list_held()[-1].view.head if store else 0)
    assert (heads[0] == heads[1]) == (store is None or encoding != "br")


def test_a_compressed_request_is_planned_and_a_bomb_is_refused():
    """Gzip is unfolded up to the limit; what unfolds beyond goes no further."""
    asked = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
    settings = limited(body=100_000)
    with Upstream(speaking) as upstream:  # noqa: SIM117 - the settings need its address
        with Served(settings(upstream), store=":memory:") as gateway:
            gzipped = "Content-Encoding: gzip\r\n"
            assert b" 200 " in raw(gateway, post(gzip.compress(asked), headers=gzipped))
            # Nothing was edited: it goes on as it came, and what it said is in the log.
            assert gzip.decompress(upstream.asked[-1].body) == asked
            assert upstream.asked[-1].header("content-encoding") == b"gzip"
            assert [
                one.parts[0].text for one in gateway.conversations.list_held()[-1].view.items
            ] == [
                "x",
                '{"city": "Bern"}',
            ]
            seen = len(upstream.asked)
            bomb = gzip.compress(b"0" * 50_000_000)
            assert len(bomb) < 100_000
            assert b" 413 " in raw(gateway, post(bomb, headers=gzipped))
            assert len(upstream.asked) == seen
            odd = zlib.compress(asked)[:-9]  # what cannot be unfolded is the upstream's to judge
            raw(gateway, post(odd, "/v1/other", headers=gzipped))
            assert upstream.asked[-1].body == odd
    with Upstream() as upstream, Served(settings(upstream)) as plain:
        assert b" 200 " in raw(plain, post(bomb, headers=gzipped))
        assert upstream.asked[-1].body == bomb  # a relay without sessions unfolds nothing


def limited(**limits):
    return lambda upstream: GatewaySettings(upstreams=parse_upstreams([upstream.url], {}), limits=GatewayLimits(**limits))  # fmt: skip


def test_limits_of_size():
    """Body by its stated length and as it comes, head, requests of one key, all bodies at a time."""
    with Upstream(lambda _: [HANG]) as upstream, Served(limited(body=1_000, each=2, held=1_500)(upstream)) as gateway:  # fmt: skip
        got = raw(gateway, post(b"x" * 1_001))
        assert b" 413 " in got
        assert json.loads(got.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_too_large"
        got = raw(gateway, post(b"x" * 1_001, "/v1/messages"))
        assert json.loads(got.partition(b"\r\n\r\n")[2])["error"]["type"] == "request_too_large"
        chunked = b"POST /v1/x HTTP/1.1\r\nHost: g\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert b" 413 " in raw(gateway, chunked + chunk(b"y" * 999) + chunk(b"z" * 2) + chunk(b""))
        assert b" 400 " in raw(gateway, b"GET / HTTP/1.1\r\nX: " + b"y" * 70_000 + b"\r\n\r\n")
        assert b" 400 " in raw(gateway, b"GET /" + b"y" * 70_000 + b" HTTP/1.1\r\n\r\n")
        assert not upstream.asked
        one, two = (socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(2))
        one.sendall(post(b"x" * 1_000))
        assert within(lambda: upstream.open == 1)
        got = raw(gateway, post(b"x" * 600))
        assert b" 503 " in got
        assert b"retry-after" in got
        two.sendall(post(b"x"))
        assert within(lambda: upstream.open == 2)
        assert b" 429 " in raw(gateway, post(b"x"))
        one.close()
        two.close()
        assert upstream.closed()
        assert within(lambda: len(gateway.gateway.calls) == 0)


def test_limits_of_time(timed):
    """A slow head, a slow body, a silent upstream, an answer that stands still."""
    settings = limited(head_seconds=0.8, body_seconds=0.8, first_seconds=0.8, idle_seconds=0.8)
    scripts = iter([[HANG], [head(), chunk(b"half"), HANG]])
    with Upstream(lambda _: next(scripts)) as upstream, Served(settings(upstream)) as gateway:
        begun = time.monotonic()
        assert raw(gateway, b"") == b""
        assert raw(gateway, b"POST /v1/x HTTP/1.1\r\nHo") == b""
        got = raw(gateway, b"POST /v1/x HTTP/1.1\r\nHost: g\r\nContent-Length: 9\r\n\r\nabc")
        assert b" 408 " in got
        assert not upstream.asked
        got = raw(gateway, post(b"x"))
        assert b" 504 " in got
        assert b"x-foldline-error: upstream_timeout" in got
        got = raw(gateway, post(b"x"))
        assert got.endswith(b"4\r\nhalf\r\n")  # and no end of it
        assert upstream.closed()
        assert upstream.left == 2
        assert time.monotonic() - begun < timed(8)


def test_a_prompt_of_10_mb_passes():
    """Large bodies go through whole, also with sessions, and so do large answers."""
    asked = json.dumps({"model": "m", "messages": [{"role": "user", "content": "word " * 2_000_000}]}).encode()  # fmt: skip
    large = b"y" * 10_000_000
    with Upstream(lambda _: [head(length=len(large)) + large]) as upstream:
        for store in (None, ":memory:"):
            with Served(upstream.url, store=store, window=10_000_000) as gateway:
                got = raw(gateway, post(asked))
                assert got.endswith(large)
                assert json.loads(upstream.asked[-1].body)["messages"] == json.loads(asked)["messages"]  # fmt: skip


def test_nothing_is_read_ahead_of_a_client_that_does_not_take_it():
    """Back-pressure: what a client leaves lying stays at the upstream, but for the buffers between."""
    piece = chunk(b"z" * 100_000)
    with Upstream(lambda _: [head(), *[piece] * 400, chunk(b"")]) as upstream, Served(upstream.url) as gateway:  # fmt: skip
        wire = socket.socket()
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        wire.connect(("127.0.0.1", gateway.port))
        wire.sendall(post(b"x"))
        time.sleep(1.0)
        assert upstream.written < 20_000_000  # of 40: sockets' own buffers
        before = upstream.written
        time.sleep(0.5)
        assert upstream.written == before
        size = 0
        while got := wire.recv(1_000_000):
            size += len(got)
        assert size > 40_000_000
        wire.close()


TRICKS = [
    b"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: 169.254.169.254\r\n",
    b"GET //evil.example/x HTTP/1.1\r\nHost: evil.example\r\n",
    b"GET @evil.example/x HTTP/1.1\r\nHost: a\r\n",
    b"GET /../../admin HTTP/1.1\r\nHost: a\r\n",
    b"GET /v1/%2e%2e/%2e%2e/admin HTTP/1.1\r\nHost: a\r\n",
    b"GET /v1/..%2f..%2fadmin HTTP/1.1\r\nHost: a\r\n",
    b"GET /v1/..%5c..%5cadmin HTTP/1.1\r\nHost: a\r\n",
    b"GET /\\evil.example/x HTTP/1.1\r\nHost: a\r\n",
    b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n",
    b"TRACE / HTTP/1.1\r\nHost: a\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: evil.example\r\nForwarded: host=evil.example\r\n",
    b"GET /v1/models?url=http://evil.example/ HTTP/1.1\r\nHost: a\r\nX-Foldline-Upstream: http://evil.example\r\n",
]


@pytest.mark.parametrize("trick", TRICKS, ids=lambda one: one[:24].decode())
def test_a_client_chooses_no_upstream(trick):
    """SSRF: whatever is sent goes to the operator's host, below its path, or nowhere."""
    with Upstream() as upstream, Upstream() as evil:
        settings = GatewaySettings(upstreams=parse_upstreams([f"{upstream.url}/base"], {}))
        with Served(settings) as gateway:
            port = evil.url.rpartition(":")[2].encode()
            got = raw(
                gateway,
                trick.replace(b"evil.example", b"127.0.0.1:" + port) + b"Connection: close\r\n\r\n",
            )
            assert got.startswith((b"HTTP/1.1 200", b"HTTP/1.1 400", b"HTTP/1.1 405"))
            assert not evil.asked
            for asked in upstream.asked:
                assert asked.target.startswith(b"/base/")
                assert b".." not in asked.target
                assert asked.header("host") == upstream.url.removeprefix("http://").encode()
                assert asked.header("x-forwarded-host") is None
            assert bool(upstream.asked) == got.startswith(b"HTTP/1.1 200")


def test_a_redirect_is_the_clients_to_follow():
    with Upstream() as evil, Upstream(lambda _: [head(302, length=0, more=b"location: %s/x\r\n" % evil.url.encode())]) as upstream, Served(upstream.url) as gateway:  # fmt: skip
        got = raw(gateway, b"GET /v1/models HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 302")
        assert evil.url.encode() in got
        assert not evil.asked


def test_paths_that_stay_are_taken_as_they_are():
    assert checked_path("GET", b"/v1/a%2Fb/..c/%20") == "/v1/a%2Fb/..c/%20"
    for bad in (b"", b"x", b"/a/..", b"/%2E%2e", b"/.", b"/a/%2e/b", b"/a\\b", b"/a%5Cb", b"/\xff", b"/a\tb"):  # fmt: skip
        with pytest.raises(Refusal):
            checked_path("GET", bad)


def test_retries_come_before_the_first_byte_and_are_bounded():
    """Connections that fail, and refusals of the busy; never for an SDK that asks again itself."""
    busy = [head(503, length=4, more=b"retry-after: 0\r\n") + b"busy"]
    late = [head(429, length=4, more=b"retry-after: 60\r\n") + b"late"]
    good = [head(length=2) + b"{}"]
    answers = []
    with Upstream(lambda _: answers.pop(0)) as upstream, Served(upstream.url) as gateway:
        for given, headers, status, asked in (
            ([busy, busy, good], "", b"200", 3),
            ([busy, busy, busy], "", b"503", 3),
            ([busy], "x-stainless-retry-count: 0\r\n", b"503", 1),
            ([late], "", b"429", 1),
            ([[CUT], good], "", b"200", 2),  # as a kept connection that was closed looks
            ([[CUT], [CUT]], "", b"502", 2),
            ([[b"garbage\r\n\r\n", CUT]], "", b"502", 1),
            ([[head(500, length=5) + b"fault"]], "", b"500", 1),
        ):
            answers[:] = given
            before = len(upstream.asked)
            got = raw(gateway, post(b"x", headers=headers))
            assert got.split(b" ")[1] == status, given
            assert len(upstream.asked) - before == asked, given
            assert upstream.closed()
    with Served("http://127.0.0.1:1") as nowhere:
        got = raw(nowhere, post(b"x", "/v1/messages"))
        assert b" 502 " in got
        assert json.loads(got.partition(b"\r\n\r\n")[2])["type"] == "error"


@pytest.mark.parametrize(
    ("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304), ("DELETE", 205)]
)
def test_answers_without_a_body(method, status):
    """A length may be stated where no body comes; the connection goes on."""
    answer = head(status, length=0 if status == 205 else 7, more=b"etag: e\r\n")
    with Upstream(lambda _: [answer]) as upstream, Served(upstream.url) as gateway:
        wire = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
        for _ in range(2):
            wire.request(method, "/v1/x")
            got = wire.getresponse()
            assert (got.status, got.read(), got.getheader("etag")) == (status, b"", "e")
        wire.close()
        assert len(upstream.asked) == 2


def test_upstreams_by_dialect():
    with Upstream() as one, Upstream() as two:
        settings = GatewaySettings(
            upstreams=parse_upstreams([f"openai={one.url}/v1/", f"anthropic={two.url}"], {})
        )
        with Served(settings) as gateway:
            raw(gateway, post(b"{}", "/v1/messages/count_tokens"))
            raw(gateway, post(b"{}", "/v1/models", "anthropic-version: 1\r\n"))
            raw(gateway, post(b"{}", "/v1/models"))
            assert [a.target for a in two.asked] == [b"/v1/messages/count_tokens", b"/v1/models"]
            assert [a.target for a in one.asked] == [b"/v1/models"]
        with Served(
            GatewaySettings(upstreams=parse_upstreams([f"openai={one.url}"], {}))
        ) as gateway:
            assert b" 404 " in raw(gateway, post(b"{}", "/v1/messages"))


CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


@pytest.mark.parametrize(
    ("address", "path", "target"),
    [
        ("", CHAT, CHAT),
        ("/v1", CHAT, CHAT),
        ("/openai/v1/", CHAT, "/openai/v1/chat/completions"),
        ("/v1beta/openai", CHAT, "/v1beta/openai/chat/completions"),
        ("/api/paas/v4", CHAT, "/api/paas/v4/chat/completions"),
        ("/api/paas/v4", "/v1/v1/x", "/api/paas/v4/v1/x"),
        ("/v1", "/chat/completions", "/chat/completions"),
        ("/proxy", "/v10/x", "/proxy/v10/x"),
        ("", MESSAGES, MESSAGES),
        ("/v1", MESSAGES, MESSAGES),
        ("/anthropic", MESSAGES, "/anthropic/v1/messages"),
        ("/anthropic/v1", MESSAGES, "/anthropic/v1/messages"),
    ],
)
def test_an_address_is_what_its_sdk_would_be_given(address, path, target):
    """Providers that are compatible keep their own version: a client of ours always says /v1."""
    with Upstream() as upstream:
        settings = GatewaySettings(upstreams=parse_upstreams([f"{upstream.url}{address}"], {}))
        with Served(settings) as gateway:
            assert b" 200 " in raw(gateway, post(b"{}", f"{path}?a=1"))
        (asked,) = upstream.asked
        assert asked.target == f"{target}?a=1".encode()


OFFER = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAE\r\nContent-Length: 18\r\n\r\n"
INSIDE = b"\r\nUpgrade: in body"


@pytest.mark.parametrize("cut", [0, 30, OFFER.index(b"\r\nUpgrade")])
def test_an_offer_of_another_protocol_costs_no_body(cut):
    """Java's client offers h2c with every request; the body passes, and the connection goes on."""
    with Upstream() as upstream, Served(upstream.url) as gateway, socket.create_connection(("127.0.0.1", gateway.port), 60) as wire:  # fmt: skip
        for _ in range(3):
            wire.sendall(OFFER[:cut])
            time.sleep(0.05)
            wire.sendall(OFFER[cut:] + INSIDE)
            assert wire.recv(65_536).startswith(b"HTTP/1.1 200")
            assert upstream.asked[-1].body == INSIDE
            assert upstream.asked[-1].header("upgrade") is None
            assert upstream.asked[-1].header("http2-settings") is None
        assert len(upstream.asked) == 3


def test_an_offer_that_is_not_seen_is_refused(monkeypatch):
    """Cut inside the header's name: told, and no request without its body goes on."""
    was_read, read = Event(), HttpToolsProtocol.data_received

    def read_and_tell(self, data):
        read(self, data)
        was_read.set()

    monkeypatch.setattr(HttpToolsProtocol, "data_received", read_and_tell)
    with Upstream() as upstream, Served(upstream.url) as gateway, socket.create_connection(("127.0.0.1", gateway.port), 60) as wire:  # fmt: skip
        cut = OFFER.index(b"\r\nUpgrade") + 5
        wire.sendall(OFFER[:cut])
        assert was_read.wait(60)  # read together, the header would be seen
        wire.sendall(OFFER[cut:])
        got = wire.recv(65_536)
        assert b" 400 " in got
        assert b"x-foldline-error: upgrade" in got
        assert not upstream.asked


def test_a_copy_ends_where_it_cannot_be_read():
    packed = gzip.compress(b"x" * 1_000)
    copy = Copy(b"gzip", most=1_000)
    assert b"".join(copy.feed(packed[at : at + 1]) for at in range(len(packed))) == b"x" * 1_000
    assert copy.ended
    assert not Copy(b"br", most=9).readable
    broken = Copy(b"gzip", most=9)
    assert broken.feed(b"nonsense") == b""
    assert not broken.readable


def test_pages_of_health(tmp_path):
    """Point 4: alive, ready, figures; the audit log says who and how much, never what."""
    log = tmp_path / "audit"
    with Upstream(speaking) as upstream, Served(upstream.url, store=":memory:", audit=log) as gateway:  # fmt: skip
        asked = json.dumps(
            {"model": "m", "messages": [{"role": "user", "content": "very private"}]}
        )
        raw(gateway, post(asked.encode(), headers="Authorization: Bearer sk-secret\r\n"))
        get = lambda path: raw(gateway, f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())  # fmt: skip  # noqa: E731
        assert b'{"status":"alive"}' in get("/healthz")
        assert b'{"status":"ready"}' in get("/readyz")
        figures = get("/metrics")
        assert b'foldline_gateway_requests_total{route="/v1/chat/completions",status="200"} 1.0' in figures  # fmt: skip
        gateway.gateway.health.draining = True
        assert get("/readyz").startswith(b"HTTP/1.1 503")
        gateway.gateway.health.draining = False
        (line,) = log.read_text().splitlines()
        told = json.loads(line)
        assert told["route"] == "/v1/chat/completions"
        assert told["status"] == 200
        assert told["received"] == len(asked)
        assert told["ended"] == "done"
        assert told["tenant"] == "local"
        assert "private" not in line
        assert "secret" not in line


def test_an_overflow_is_healed_out_of_sight():
    """R-08, R-13: the upstream refuses once, the client sees one good answer."""
    from foldline.testing.provider import Provider  # noqa: PLC0415

    with Provider(window=4_000) as provider, Served(provider.url, store=":memory:") as gateway:
        client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0)
        said = []
        for turn in range(30):
            said.append({"role": "user", "content": f"Turn {turn}. " + "Nothing of note. " * 40})
            for piece in client.chat.completions.create(model="m", messages=said, stream=True):
                assert piece.id == "c"
            said.append({"role": "assistant", "content": "ok"})
        assert provider.statuses.count(400) == 1
        assert provider.statuses.count(200) == 30
        client.close()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("window", [300, 2_000, 60_000])
def test_only_the_upstream_refuses_for_length(path, window):
    """Where no plan fits, the request is relayed byte for byte, and the answer's head says so."""
    told = b'{"error":{"message":"too long, says the upstream"}}'
    with (
        Upstream(lambda _: [head(400, length=len(told)) + told]) as upstream,
        Served(upstream.url, store=":memory:", window=window) as gateway,
    ):
        for bound, words in itertools.product((None, 1, 1_900, 32_000, 10**9), (1, 2_000, 40_000)):
            limit = {} if bound is None else {"max_tokens": bound}
            messages = [{"role": "user", "content": f"{bound} " + "hi " * words}]
            body = json.dumps({"model": "m", **limit, "messages": messages}).encode()
            answer = raw(gateway, post(body, path=path))
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert answer.endswith(told)
            assert b"x-foldline-error" not in answer
            if b"x-foldline-unplanned: overflow" in answer:
                assert upstream.asked[-1].body == body


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_what_no_plan_fits_is_relayed_as_it_came(path):
    """A system prompt that is larger than the window: nothing of it is ours to change."""
    body = long_prompt(path, words=20_000)
    with Upstream() as upstream, Served(upstream.url, store=":memory:", window=60_000) as gateway:
        answer = raw(gateway, post(body, path=path))
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"x-foldline-unplanned: overflow" in answer
        assert upstream.asked[-1].body == body


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_an_answer_limit_that_cannot_fit_is_all_that_is_lowered(path):
    """A large limit beside a long system prompt, as coding agents send it: half of the window each."""
    body = long_prompt(path, words=9_000)
    with Upstream() as upstream, Served(upstream.url, store=":memory:", window=60_000) as gateway:
        answer = raw(gateway, post(body, path=path))
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"x-foldline-unplanned" not in answer
        assert b"x-foldline-patches: limit=1" in answer
        sent = upstream.asked[-1].body
        allowed = json.loads(sent)["max_tokens"]
        assert 20_000 < allowed < 60_000 - 31_000
        assert sent == body.replace(b"32000", str(allowed).encode())


def long_prompt(path, *, words):
    """A first request with a long system prompt, and room asked for a long answer."""
    messages = [{"role": "user", "content": "hi"}]
    system = {"role": "system", "content": "You shall. " * words}
    more = {"system": system["content"]} if path == "/v1/messages" else {}
    fixed = {"model": "m", "max_tokens": 32_000, **more}
    return json.dumps({**fixed, "messages": messages if more else [system, *messages]}).encode()


def test_asyncio_clients_share_a_connection():
    """Many at a time, each with its own answer."""

    def echo(asked):
        return [head(length=len(asked.body)) + asked.body]

    async def many(url):
        async with httpx2.AsyncClient(timeout=60) as client:
            got = await asyncio.gather(*(client.post(f"{url}/v1/x", content=str(n)) for n in range(100)))  # fmt: skip
            return [one.text for one in got]

    with Upstream(echo) as upstream, Served(upstream.url) as gateway:
        assert asyncio.run(many(gateway.url)) == [str(n) for n in range(100)]


def test_a_compressed_body_with_more_behind_it_is_not_read():
    """Another reader goes on behind the first member: what we would log is not what was sent."""
    one, more = gzip.compress(b'{"a":1}'), gzip.compress(b" ")
    assert decode(one, most=99) == b'{"a":1}'
    for behind in (more, b"more"):
        assert decode(one + behind, most=99) is None


def decode(body, *, most, room=10**9):
    """A body, decompressed as the gateway does it."""
    return asyncio.run(decode_body(body, b"gzip", most=most, share=Share(Room(room))))


@given(
    st.binary(max_size=900).map(lambda text: text * 400),
    st.sampled_from([b"", b"x", gzip.compress(b"")]),
    st.integers(0, 3),
)
def test_a_body_is_decompressed_in_pieces_as_in_one(body, behind, cut):
    """Whatever piece its end falls into; what is cut short or goes on is not read."""
    packed = gzip.compress(body)
    packed = packed[: len(packed) - cut] + behind if cut else packed + behind
    whole = None if cut or behind else body
    assert decode(packed, most=len(body)) == whole
    if whole:
        with pytest.raises(Refusal) as refused:
            decode(packed, most=len(body) - 1)
        assert refused.value.code == "too_large"
        with pytest.raises(Refusal) as refused:
            decode(packed, most=len(body), room=len(body) - 1)
        assert refused.value.code == "full"


def test_a_request_without_messages_passes_as_it_came():
    with Upstream() as upstream, Served(upstream.url, store=":memory:") as gateway:
        for body in (b'{"model":"m","messages":[]}', b'{"model":"m","messages":[],"stream":true}'):
            assert b" 200 " in raw(gateway, post(body))
            assert upstream.asked[-1].body == body


def test_clients_that_pipeline_and_hang_up_are_told_apart_from_faults(caplog):
    """Uvicorn knows of the last request of a pipeline only that nobody waits for it."""
    with Upstream(lambda _: [HANG]) as upstream, Served(upstream.url) as gateway:
        wire = socket.create_connection(("127.0.0.1", gateway.port), 20)
        wire.sendall(b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx" * 3)
        while not upstream.asked:
            time.sleep(0.01)
        wire.close()
        assert upstream.closed()
        time.sleep(0.1)
    assert not [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
