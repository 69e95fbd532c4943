"""`foldline serve --workers N`: one port, several processes, and what becomes of them."""

import json
import os
import re
import signal
import socket
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import pytest
from raw_upstream import HANG, Upstream, chunk, head
from serving import a_schema, address_of, connected
from test_tenants import post, serving, settings_say, wait_for

from foldline.apps.cli.serve_workers import build_worker_command
from foldline.apps.gateway.api_keys import create_key
from foldline.testing import Provider
from foldline.testing.provider import written

ASK = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def children_of(process):
    """The processes that it has started, and that live."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return {int(one) for one in found}


def get(port, path, key):
    """A page."""
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"authorization": f"Bearer {key}"})  # fmt: skip
    with urllib.request.urlopen(asked, timeout=20) as answer:  # noqa: S310
        return answer.read().decode()


def is_alive(process):
    """Whether a process runs, and is no zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def is_serving(process):
    """Whether a process has its handler of SIGHUP: it is through its start."""
    caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{process}/status").read_text())[1]
    return bool(int(caught, 16) & 1 << (signal.SIGHUP - 1))


def read_sums(port, key):
    """What was relayed, counted and limited, by the metrics of whichever process answers."""
    text = get(port, "/metrics", key)

    def read(series):
        return [*map(float, re.findall(rf"^{series} (\S+)$", text, re.MULTILINE))]

    return (
        sum(read(r"foldline_gateway_requests_total\{.*chat.*\}")),
        sum(read(r'foldline_usage_calls_total\{.*tenant="acme".*\}')),
        len(read(r'foldline_limit_used_ratio\{.*tenant="acme"\}')),
    )


def test_processes_share_a_port_and_a_dead_one_is_started_again(tmp_path):
    settings_say(tmp_path, '[[gateway.limits]]\ntenant = "acme"\nrequests_per_minute = 600\n')
    key = create_key(tmp_path / "keys", "ci", tenant="acme")
    ops = create_key(tmp_path / "keys", "ops", tenant="acme", role="operator")
    with (
        Provider() as provider,
        serving(tmp_path, provider.url, "--keys", "keys", "--workers", "3") as (
            parent,
            port,
            heard,
        ),
        ThreadPoolExecutor(8) as pool,
    ):
        wait_for(lambda: len(children_of(parent.pid)) == 3)
        before = children_of(parent.pid)
        ask = lambda _: post(port, "/v1/chat/completions", ASK, key)[0]  # noqa: E731
        assert set(pool.map(ask, range(30))) == {200}
        # Whichever process is asked, it counts for all.
        wait_for(lambda: {read_sums(port, ops) for _ in range(12)} == {(30.0, 30.0, 1)})

        killed = min(before)
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: len(children_of(parent.pid) - {killed}) == 3)
        assert f"process {killed} ended with -9" in "".join(heard)
        assert set(pool.map(ask, range(30))) == {200}

        wait_for(lambda: all(map(is_serving, children_of(parent.pid))))
        parent.send_signal(signal.SIGHUP)
        # The third may still be starting: then it has read them, and is not ended by the signal.
        wait_for(lambda: sum("SIGHUP: settings are read again" in line for line in heard) >= 2)
        assert "ended with -1;" not in "".join(heard)
        after = children_of(parent.pid)
    assert not any(map(is_alive, after))


def test_sigterm_lets_answers_end_in_every_process(tmp_path):
    settings_say(tmp_path, "")
    begun = threading.Semaphore(0)

    def answer(_):
        begun.release()
        return [head(), chunk(b"one "), 2.0, chunk(b"two"), chunk(b"")]

    with Upstream(answer) as upstream, ThreadPoolExecutor(6) as pool:
        with serving(tmp_path, upstream.url, "--plain", "--workers", "2") as (_, port, _):

            def ask(_):
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{port}/v1/models", timeout=30
                ) as one:
                    return one.read()

            asked = [pool.submit(ask, one) for one in range(6)]
            for _ in asked:
                assert begun.acquire(timeout=20)
        assert {one.result() for one in asked} == {b"one two"}


def test_processes_end_with_the_one_that_holds_the_port(tmp_path):
    """Also if that is killed: nobody would start them again."""
    settings_say(tmp_path, "")
    with (
        Provider() as provider,
        suppress(AssertionError),  # it did not end well
        serving(tmp_path, provider.url, "--workers", "2") as (parent, _, _),
    ):
        wait_for(lambda: len(children_of(parent.pid)) == 2)
        children = children_of(parent.pid)
        parent.kill()
        parent.wait()
    wait_for(lambda: not any(map(is_alive, children)), 30)


def test_all_processes_know_the_token_of_a_gateway_without_keys(tmp_path):
    settings_say(tmp_path, "")
    token = "fl-a-token-of-twenty-signs"  # noqa: S105 - of this test
    os.environ["FOLDLINE_TOKEN"] = token
    try:
        with Provider() as provider, serving(tmp_path, provider.url, "--workers", "2") as (_, port, _):  # fmt: skip
            answers = {get(port, "/sessions", token) for _ in range(16)}
            assert len(answers) == 1
            assert json.loads(answers.pop())["sessions"] == []
    finally:
        del os.environ["FOLDLINE_TOKEN"]


def test_one_that_cannot_start_ends_all_with_its_code():
    from foldline.apps.cli.serve_workers import Supervisor  # noqa: PLC0415 - only here
    from foldline.apps.gateway.server import open_socket  # noqa: PLC0415

    with open_socket("127.0.0.1", 0) as listening:
        command = build_worker_command(["--no-such-option"])
        assert Supervisor(command, listening, count=2, drain=1.0).run() == 2


def test_the_number_of_processes_is_left_out_of_their_command_line():
    given = ["serve", "--workers", "4", "--plain", "--workers=3", "--port", "0"]
    assert build_worker_command(given)[3:] == ["serve", "--plain", "--port", "0"]


def ask_raw(port, key, line, body=None):
    """A request on a connection of its own; whoever asks reads the answer, or never does."""
    wire = socket.create_connection(("127.0.0.1", port), 20)
    sent = json.dumps(body).encode() if body is not None else b""
    head = f"{line} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {key}\r\nContent-Length: {len(sent)}\r\n"
    kind = "Content-Type: application/json\r\n" if sent else ""
    wire.sendall(f"{head}{kind}\r\n".encode() + sent)
    return wire


def read_end(wire):
    """The status of what came until the connection was closed."""
    got = b""
    with wire, suppress(ConnectionResetError):
        while piece := wire.recv(65_536):
            got += piece
    return int(got.split(b" ")[1]) if got else 0


@pytest.mark.real
@pytest.mark.parametrize("workers", [1, 2])
def test_one_deadline_ends_streams_turns_searches_and_followers(tmp_path, timed, workers):
    """And from the linger on nobody can connect, also while all of these are under way."""
    linger, drain = 1.0, 3.0
    begins = next(iter(written("openai", {"model": "m"}, {"content": "so"}, 9)[1])).encode()
    settings_say(tmp_path, "")
    key = create_key(tmp_path / "keys", "ops", tenant="acme", role="admin")
    with (
        a_schema() as schema,
        Upstream(lambda _: [head(), chunk(begins), HANG]) as upstream,
        serving(
            tmp_path, upstream.url, "--keys", "keys", "--workers", str(workers),
            "--store", address_of(schema), "--linger", str(linger), "--drain", str(drain),
        ) as (process, port, heard),
        connected() as holding, connected() as looking,
    ):  # fmt: skip
        if workers > 1:
            wait_for(lambda: len(children_of(process.pid)) == workers, 60)
            wait_for(lambda: all(map(is_serving, children_of(process.pid))), 60)
        assert post(port, "/sessions", {"name": "one", "model": "m"}, key)[0] == 201
        assert post(port, "/sessions/one/events", {"text": "a canary"}, key)[0] < 300
        chat, turn = {**ASK, "stream": True}, {"text": "hello", "stream": True}
        wires = [
            *(ask_raw(port, key, "POST /v1/chat/completions", chat) for _ in range(2)),
            ask_raw(port, key, "POST /sessions/one/messages", turn),
            ask_raw(port, key, "GET /sessions/one/events?follow=600"),
        ]
        wait_for(lambda: upstream.open == 3, 60)
        get(port, "/sessions/one/search?words=canary", key)  # indexed: the next ones only read
        holding.execute(f"begin; lock table {schema}.postings in access exclusive mode")
        asked = "GET /sessions/one/search?words=canary"
        wires += [ask_raw(port, key, asked) for _ in range(4)]
        waits = "select from pg_stat_activity where wait_event_type = 'Lock' and query like %s"
        wait_for(lambda: looking.execute(waits, (f"%{schema}%",)).rowcount == 4, 60)

        begun = monotonic()
        process.send_signal(signal.SIGTERM)
        refused = None
        while refused is None:
            with suppress(TimeoutError, ConnectionResetError):
                try:
                    ask_raw(port, key, "GET /readyz").close()
                except ConnectionRefusedError:
                    refused = monotonic() - begun
            sleep(0.02)
        with ThreadPoolExecutor(len(wires)) as pool:
            ends = [*pool.map(read_end, wires)]
        assert process.wait(60) == 0
        took = monotonic() - begun
        holding.rollback()
    assert ends == [200, 200, 200, 200, 503, 503, 503, 503]
    assert refused >= linger - 0.1
    assert refused < linger + timed(1.0)
    assert took >= linger + drain - 0.1
    assert took < linger + drain + timed(2.0)
    assert not [line for line in heard if "Traceback" in line]
