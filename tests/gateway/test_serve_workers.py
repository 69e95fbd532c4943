"""`foldline serve --workers N`: one port, several processes, and what becomes of them."""

import json
import os
import re
import signal
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from test_tenants import post, serving, settings_say, wait_for

from foldline.apps.cli.serve_workers import build_worker_command
from foldline.apps.gateway.api_keys import create_key
from foldline.testing import Provider
from foldline.testing.upstream import Upstream, chunk, head

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
