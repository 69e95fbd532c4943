"""Faults: upstreams that break off anywhere, clients that hang up anywhere, an end under load."""

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import apsw
import pytest
from gateway_thread import Served
from multidict import CIMultiDict
from raw_upstream import CUT, HANG, Upstream, chunk, head
from waiting import within
from yarl import URL

from foldline.apps.gateway.settings import GatewayLimits, GatewaySettings, parse_upstreams
from foldline.apps.gateway.upstream import Links
from foldline.core.log import Asked, ModelSaid, UsageReported, UserSaid
from foldline.core.spine import Range
from foldline.stores import event_log
from foldline.stores.base import Name
from foldline.stores.open_store import store_at
from foldline.testing.provider import written

PROGRAM = Path(sys.executable).with_name("foldline")
BOTH = pytest.mark.parametrize("store", [None, ":memory:"], ids=["plain", "sessions"])
DIALECTS = pytest.mark.parametrize("dialect", ["openai", "anthropic"])


def asking(dialect="openai", *, stream=True, words="Say it."):
    """A request, and where it goes."""
    body = {"model": "m", "max_tokens": 9, "stream": stream, "messages": [{"role": "user", "content": words}]}  # fmt: skip
    path = "/v1/messages" if dialect == "anthropic" else "/v1/chat/completions"
    return path, json.dumps(body).encode()


def streamed(dialect):
    """A whole streamed answer, as chunks of HTTP."""
    _, events = written(dialect, {"model": "m"}, {"content": "It is said, in words."}, 9)
    return [one.encode() for one in events]


def idle(gateway, upstream):
    """Nothing is under way, on neither side."""
    return upstream.closed() and within(lambda: len(gateway.gateway.calls) == 0)


@BOTH
@DIALECTS
def test_a_stream_cut_at_every_byte(dialect, store):
    """The client has exactly the bytes up to there and a broken connection, never a clean end."""
    events = streamed(dialect)
    body = b"".join(events)
    wire = b"".join(map(chunk, events)) + chunk(b"")
    top = head()
    path, asked = asking(dialect)
    at = 0

    def cut(_):
        return [top + wire[:at], CUT] if at % 2 else [top, wire[:at], CUT]

    def inside(size):
        """The bytes of the body among some of the wire's."""
        got, place = b"", 0
        for event in events:
            start = place + len(b"%x\r\n" % len(event))
            got += event[: max(min(size - start, len(event)), 0)]
            place = start + len(event) + 2
        return got

    # Every offset where a byte of the body was cut, and the bytes of HTTP around the last of them.
    step = 1 if store is None and dialect == "openai" else 7
    with Upstream(cut) as upstream, Served(upstream.url, store=store) as gateway:
        for at in [*range(0, len(wire) - 40, step), *range(len(wire) - 40, len(wire))]:
            client = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
            client.request("POST", path, asked)
            answer = client.getresponse()
            got = b""
            try:
                while piece := answer.read1(65_536):
                    got += piece
                whole = True
            except http.client.IncompleteRead as fault:
                got, whole = got + fault.partial, False
            assert not whole, at
            assert got == inside(at), at
            client.close()
        at = len(wire)
        client = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
        client.request("POST", path, asked)
        assert client.getresponse().read() == body
        client.close()
        assert idle(gateway, upstream)


def test_what_came_before_a_cut_is_read_however_late():
    """A slow client has all of it: what lay in buffers when the upstream broke off is kept."""

    async def late(url):
        links = Links(GatewayLimits())
        await links.open()
        answer = await links.send_request(
            "GET", URL(url), headers=CIMultiDict(), body=b"", patient=False
        )
        await asyncio.sleep(0.3)
        got = [await answer.read_chunk(), await answer.read_chunk()]
        answer.close()
        await links.close()
        return got, answer.cut

    with Upstream(lambda _: [head(), chunk(b"x" * 9_000) + b"5\r\nab", CUT]) as upstream:
        assert asyncio.run(late(upstream.url)) == ([b"x" * 9_000 + b"ab", b""], True)


def test_an_answer_of_a_length_cut_at_every_byte():
    """The same where the length was stated."""
    body = json.dumps(written("openai", {"model": "m"}, {"content": "ok"}, 9)[0]).encode()
    path, asked = asking(stream=False)
    at = 0
    with Upstream(lambda _: [head(length=len(body)) + body[:at], CUT]) as upstream, Served(upstream.url, store=":memory:") as gateway:  # fmt: skip
        for at in range(0, len(body), 5):
            client = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
            client.request("POST", path, asked)
            answer = client.getresponse()
            with pytest.raises(http.client.IncompleteRead) as fault:
                answer.read()
            assert fault.value.partial == body[:at]
            client.close()
        assert idle(gateway, upstream)


@BOTH
@pytest.mark.parametrize(
    "answer",
    [
        [head(429, length=20, more=b"retry-after: 30\r\n") + b'{"error": "too many"}'[:20]],
        [head(500, length=18) + b'{"error": "fault"}'],
        [head() + chunk(b"\x00\xff\xfe garbage, no events \x80" * 50) + chunk(b"")],
        [head() + chunk(b'data: {"error": {"message": "overloaded"}}\n\n') + chunk(b"")],
        [head() + chunk(b": ping\n\n"), 0.1, chunk(b"data: [DONE]\n\n") + chunk(b"")],
    ],
    ids=["429", "500", "garbage", "error after 200", "comments"],
)
def test_what_goes_wrong_upstream_passes_as_it_came(answer, store):
    """Status and body, byte for byte; nothing is left open."""
    path, asked = asking()
    with Upstream(lambda _: answer) as upstream, Served(upstream.url, store=store) as gateway:
        client = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
        client.request("POST", path, asked)
        got = client.getresponse()
        top, _, rest = b"".join(one for one in answer if isinstance(one, bytes)).partition(
            b"\r\n\r\n"
        )
        chunks = re.findall(rb"[0-9a-f]+\r\n(.*?)\r\n", rest, re.DOTALL)
        assert got.status == int(top.split(b" ")[1])
        assert got.read() == (b"".join(chunks) if b"chunked" in top else rest)
        client.close()
        assert len(upstream.asked) == 1
        assert idle(gateway, upstream)


@pytest.mark.parametrize("told", [True, False], ids=["told", "asked for"])
@BOTH
@DIALECTS
def test_a_client_that_is_gone_at_any_stage_leaves_nothing_open(
    dialect, store, told, monkeypatch, timed
):
    """Before its body is there, while it waits, in the middle, behind the end; each at once."""
    if not told:  # as under a server that is not ours
        monkeypatch.setattr("foldline.apps.gateway.asgi.WATCHED", "none")
    events = streamed(dialect)
    path, asked = asking(dialect)
    top = f"POST {path} HTTP/1.1\r\nHost: g\r\nContent-Length: {len(asked)}\r\n\r\n".encode()
    with Upstream() as upstream, Served(upstream.url, store=store) as gateway:

        def gone(request, script, *, read=0):
            upstream.script = lambda _: script
            before = len(upstream.asked)
            wire = socket.create_connection(("127.0.0.1", gateway.port), 20)
            wire.sendall(request)
            got = b""
            while len(got) < read:
                got += wire.recv(65_536)
            if not read:
                time.sleep(0.15)
            if request.endswith(asked):
                assert within(lambda: len(upstream.asked) > before, 10), "it is asked upstream"
            wire.close()
            begun = time.monotonic()
            assert idle(gateway, upstream)
            assert time.monotonic() - begun < timed(2)

        for size in (0, 1, len(asked) // 2, len(asked) - 1):
            gone(top + asked[:size], [HANG])
        assert not upstream.asked
        gone(top + asked, [HANG])
        gone(top + asked, [head(), HANG])
        assert (len(upstream.asked), upstream.left) == (2, 2)
        for shown in range(1, len(events), 3):
            gone(top + asked, [head(), *map(chunk, events[:shown]), HANG], read=100)
        assert upstream.left == len(upstream.asked)
        large = b"x" * 1_000_000  # while a server holds back what it reads
        gone(f"POST /v1/x HTTP/1.1\r\nHost: g\r\nContent-Length: {len(large)}\r\n\r\n".encode() + large, [HANG])  # fmt: skip
        assert upstream.left == len(upstream.asked)
        gone(top + asked, [head(), *map(chunk, events), chunk(b"")], read=len(b"".join(events)))


def test_on_disconnect_continue_reads_to_the_end():
    """A-08: the client is gone, the answer is taken in all the same; paused, it is not."""
    events = streamed("openai")
    path, asked = asking()
    script = [head(), chunk(events[0]), 0.4, *map(chunk, events[1:]), chunk(b"")]
    for mode, left in (("continue", 0), ("pause", 1)):
        with (
            Upstream(lambda _: script) as upstream,
            Served(upstream.url, store=":memory:") as gateway,
        ):
            wire = socket.create_connection(("127.0.0.1", gateway.port), 20)
            extra = f"X-Foldline-On-Disconnect: {mode}\r\nContent-Length: {len(asked)}"
            wire.sendall(f"POST {path} HTTP/1.1\r\nHost: g\r\n{extra}\r\n\r\n".encode() + asked)
            assert wire.recv(10)
            wire.close()
            assert idle(gateway, upstream)
            assert upstream.left == left


def test_an_end_lets_answers_finish_and_stops_the_rest():
    """Drain: what ends in time ends well, what does not is broken off, what comes is not taken."""
    quick = [head(), chunk(b"a"), 0.5, chunk(b"b"), chunk(b"")]
    scripts = iter([quick, [head(), chunk(b"a"), HANG], [HANG]])
    with Upstream(lambda _: next(scripts)) as upstream:
        settings = GatewaySettings(
            upstreams=parse_upstreams([upstream.url], {}), limits=GatewayLimits(drain_seconds=1.5)
        )
        with Served(settings) as gateway:
            wires = []
            for number in range(3):
                wire = socket.create_connection(("127.0.0.1", gateway.port), 20)
                wire.sendall(b"POST /v1/x HTTP/1.1\r\nHost: g\r\nContent-Length: 1\r\n\r\nx")
                assert within(lambda number=number: upstream.open == number + 1 or number)
                time.sleep(0.05)
                wires.append(wire)
            gateway.stop()
            got = []
            for wire in wires:
                whole = b""
                while piece := wire.recv(65_536):
                    whole += piece
                got.append(whole)
                wire.close()
        assert got[0].endswith(b"1\r\nb\r\n0\r\n\r\n")
        assert got[1].endswith(b"1\r\na\r\n")
        assert b" 503 " in got[2]
        assert upstream.closed()
        assert upstream.left == 2


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_whole_when_it_is_kept(tmp_path, stream):
    """Acknowledged is kept: while the store cannot write, the client has no whole answer."""
    path, asked = asking(stream=stream)
    whole, events = written("openai", {"model": "m"}, {"content": "ok"}, 9)
    body = json.dumps(whole).encode()
    answer = [head(length=len(body)) + body]
    if stream:  # all of it at once, as a gateway finds it that was held up
        body = b"".join(one.encode() for one in events)
        answer = [head() + chunk(body) + chunk(b"")]
    store = tmp_path / "talks.db"
    freed = []
    with Upstream() as upstream, Served(upstream.url, store=str(store)) as gateway:
        other = apsw.Connection(str(store))

        def locked(_):
            other.set_busy_timeout(10_000)  # the place of the history is written beside the call
            other.execute("begin immediate")
            return [*answer]

        def free():
            freed.append(time.monotonic())
            other.execute("rollback")

        upstream.script = locked
        threading.Timer(0.6, free).start()
        client = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
        client.request("POST", path, asked)
        assert client.getresponse().read(len(body)) == body  # an SDK waits for no end behind it
        assert freed
        client.close()
        other.close()


@pytest.mark.parametrize("leaves", [False, True])
def test_a_client_that_goes_on_from_the_last_words_is_heard_once(tmp_path, leaves):
    """Usage and the end of HTTP may come behind them: each call has its own, in the same session."""
    path, asked = asking()
    said = json.loads(asked) | {"stream_options": {"include_usage": True}}
    ok, yes = (
        [one.encode() for one in written("openai", said, {"content": words}, 30)[1]]
        for words in ("ok", "yes")
    )
    words, behind = b"".join(ok[:-2]), [chunk(one) for one in (*ok[-2:], b"")]
    scripts = iter([[head() + chunk(words), 0.5, *behind],
                    [1.0, head(), *(chunk(one) for one in (*yes, b""))]])  # fmt: skip
    store = str(tmp_path / "talks.db")
    with (
        Upstream(lambda _: next(scripts)) as upstream,
        Served(upstream.url, store=store) as gateway,
    ):
        one, two = (http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20) for _ in "12")
        one.request("POST", path, json.dumps(said))
        answer = one.getresponse()
        assert answer.read(len(words)) == words
        said["messages"] += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "And?"}]  # fmt: skip
        two.request("POST", path, json.dumps(said))
        assert within(lambda: len(upstream.asked) == 2)
        if leaves:
            answer.close()
            one.close()
        assert two.getresponse().read() == b"".join(yes)
        assert idle(gateway, upstream)
        answer.close()
        one.close()
        two.close()

    async def kept():
        there = store_at(store)
        (found,) = await there.sessions("local", limit=9)
        rows = await event_log.read_events(
            there, Name("local", found.session), Range(0, found.head)
        )
        await there.close()
        return [event for _, event in rows]

    events = asyncio.run(kept())
    said = [one.parts[0].text for one in events if isinstance(one, (UserSaid, ModelSaid))]
    assert said == ["Say it.", "ok", "And?", "yes"]
    asks = [seq for seq, event in enumerate(events) if isinstance(event, Asked)]
    assert [one.asked for one in events if isinstance(one, UsageReported)] == asks[leaves:]


CANARY = "sk-canary-7f3a9d5e1b2c4d6f8091a2b3c4d5e6f7"


@pytest.mark.parametrize("signalled", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_under_load(tmp_path, signalled):  # noqa: PLR0915 - one story
    """Every answer that a client saw whole is in the store; nothing leaks; no key is anywhere."""
    with Upstream() as upstream:

        def script(asked):
            given = json.loads(asked.body)
            said = "heard " + given["messages"][0]["content"]
            _, events = written("openai", given, {"content": said}, 9)
            return [head(), *[step for one in events for step in (chunk(one.encode()), 0.02)], chunk(b"")]  # fmt: skip

        upstream.script = script
        store, audit = tmp_path / "talks.db", tmp_path / "audit.jsonl"
        errors = (tmp_path / "errors").open("wb")
        process = subprocess.Popen(
            [PROGRAM, "serve", "--port", "0", "--upstream", upstream.url, "--store", store, "--audit", audit, "--drain", "1"],
            stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, "FOLDLINE_UPSTREAM_KEY": CANARY},
        )  # fmt: skip
        try:
            shown = ""
            while "pages" not in (line := process.stdout.readline()):
                assert line, "it did not start"
                shown += line
            assert "OPENAI_BASE_URL=http://127.0.0.1:" in shown
            port = int(re.search(r":(\d+)/v1", shown)[1])
            whole, lock, over = [], threading.Lock(), threading.Event()

            def load(me):
                turn = 0
                while not over.is_set():
                    words = f"word-{me}-{turn}"
                    turn += 1
                    path, asked = asking(words=words)
                    try:
                        client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
                        client.request("POST", path, asked, {"Authorization": f"Bearer {CANARY}"})
                        got = client.getresponse()
                        if got.status == 200 and got.read().endswith(b"[DONE]\n\n"):
                            with lock:
                                whole.append(words)
                    except (OSError, http.client.HTTPException):
                        pass
                    finally:
                        client.close()

            threads = [threading.Thread(target=load, args=(n,)) for n in range(8)]
            for one in threads:
                one.start()
            assert within(lambda: len(whole) > 20, 30)
            process.send_signal(signalled)
            assert process.wait(20) == 0
            over.set()
            for one in threads:
                one.join()
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            errors.close()
        assert upstream.closed()
        everything = b"".join(one.read_bytes() for one in tmp_path.iterdir() if one.name.startswith("talks.db"))  # fmt: skip
        lost = [one for one in whole if f"heard {one}".encode() not in everything]
        assert not lost
        for file in tmp_path.iterdir():
            assert CANARY.encode() not in file.read_bytes(), file
            assert CANARY[:16].encode() not in file.read_bytes(), file
        assert "Traceback" not in (tmp_path / "errors").read_text()
        assert len(audit.read_text().splitlines()) >= len(whole)
