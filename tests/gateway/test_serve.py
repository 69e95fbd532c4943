"""The command `foldline serve` as a process: what it reads from settings is in force."""

import json
import socket
import subprocess
import urllib.error
import urllib.request
from time import monotonic, sleep

import pytest
from program import PROGRAM, served
from raw_upstream import Upstream, chunk, head

from foldline.testing import Provider
from foldline.testing.provider import written

GIVEN = ["--port", "0", "--store", "talks.db", "--upstream"]


def post(port, path, body, **headers):
    """Status and answer."""
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"content-type": "application/json", **headers})  # fmt: skip
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:  # noqa: S310
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


@pytest.mark.parametrize(
    ("settings", "status", "calls"),
    [({"FOLDLINE_CAPS__CALL__TOKENS": "1"}, 402, 0), ({}, 200, 1)],
    ids=["capped", "not"],
)
def test_r49_caps_hold_for_the_session_api(tmp_path, settings, status, calls):
    """The call is not made; what clients send to be relayed is their own."""
    with (
        Provider() as provider,
        served([*GIVEN, provider.url], tmp_path, **settings) as begun,
    ):
        port, own = begun.port, {"authorization": f"Bearer {begun.token}"}
        assert post(port, "/sessions", {"name": "t", "model": "m"}, **own)[0] == 201
        got, told = post(port, "/sessions/t/messages", {"text": "Hello"}, **own)
        assert got == status, told
        assert len(provider.bodies) == calls
        said = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
        assert post(port, "/v1/chat/completions", said)[0] == 200


@pytest.mark.parametrize(
    ("options", "left"), [([], 0), (["--on-disconnect", "pause"], 1)], ids=["set", "by a flag"]
)
def test_a08_what_nobody_waits_for_is_as_the_setting_says(tmp_path, options, left):
    """It is read to its end; a flag goes before the setting."""
    events = [one.encode() for one in written("openai", {"model": "m"}, {"content": "so"}, 9)[1]]
    script = [head(), chunk(events[0]), 0.4, *map(chunk, events[1:]), chunk(b"")]
    asked = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "Say it."}]}).encode()  # fmt: skip
    top = f"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Length: {len(asked)}\r\n\r\n"
    with Upstream(lambda _: script) as upstream:
        setting = {"FOLDLINE_SESSION__ON_DISCONNECT": "continue"}
        with served([*GIVEN, upstream.url, *options], tmp_path, **setting) as (port, _):
            with socket.create_connection(("127.0.0.1", port), 20) as wire:
                wire.sendall(top.encode() + asked)
                assert wire.recv(10)
            assert upstream.closed()
            assert upstream.left == left


def test_retention_is_applied_at_the_start_if_it_is_set(tmp_path):
    """M-13, P1-50: by rule, and nobody has to run a command."""

    def sessions(port, token):
        asked = urllib.request.Request(
            f"http://127.0.0.1:{port}/sessions", headers={"authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(asked, timeout=20) as answer:  # noqa: S310
            return [one["name"] for one in json.load(answer)["sessions"]]

    with Provider() as provider:
        with served([*GIVEN, provider.url], tmp_path) as begun:
            own = {"authorization": f"Bearer {begun.token}"}
            for name in ("a", "b", "c"):
                assert post(begun.port, "/sessions", {"name": name, "model": "m"}, **own)[0] == 201
        with served([*GIVEN, provider.url], tmp_path) as begun:
            assert sorted(sessions(begun.port, begun.token)) == ["a", "b", "c"]
        rule = {"FOLDLINE_RETENTION__SESSIONS": "1"}
        with served([*GIVEN, provider.url], tmp_path, **rule) as begun:
            until = monotonic() + 20
            while len(found := sessions(begun.port, begun.token)) > 1:
                assert monotonic() < until, found
                sleep(0.05)
        assert found == ["c"]


def test_the_session_api_follows_the_settings_unless_its_client_says_otherwise(tmp_path):
    """G-10: policy, window and what a turn does without its client."""
    settings = {
        "FOLDLINE_POLICY": "sliding",
        "FOLDLINE_MODEL__MAX_INPUT_TOKENS": "9000",
        "FOLDLINE_SESSION__ON_DISCONNECT": "continue",
    }
    fields = ("policy", "window", "on_disconnect")
    with Provider() as provider, served([*GIVEN, provider.url], tmp_path, **settings) as begun:
        own = {"authorization": f"Bearer {begun.token}"}
        _, made = post(begun.port, "/sessions", {"name": "a", "model": "m"}, **own)
        assert [made[one] for one in fields] == ["sliding", 9_000, "continue"]
        said = {"policy": "window", "window": 5_000, "on_disconnect": "pause"}
        _, made = post(begun.port, "/sessions", {"name": "b", "model": "m", **said}, **own)
        assert [made[one] for one in fields] == ["window", 5_000, "pause"]
        wrong = {"name": "c", "model": "m", "policy": "windw"}
        refused, told = post(begun.port, "/sessions", wrong, **own)
        assert (refused, told["error"]["kind"]) == (400, "bad_input")
        assert "windw" in told["error"]["message"]
        assert post(begun.port, "/sessions/c/messages", {"text": "x"}, **own)[0] == 404


LIMITS = '[[gateway.limits]]\nowner = "*"\nrequests_per_minute = 5\n'
CAPS = "[caps.day]\ndollars = 2\n"
TENANT = "[gateway.tenants.small]\nmodel.max_input_tokens = 4000\n"


@pytest.mark.parametrize("written", [LIMITS, CAPS, TENANT], ids=["limits", "caps", "tenants"])
@pytest.mark.parametrize("more", [[], ["--plain"], ["--workers", "2"]], ids=["", "plain", "many"])
def test_limits_that_nobody_has_trusted_stop_the_start(tmp_path, written, more):
    """Before, they were left out, and one line on standard error said so."""
    (tmp_path / "foldline.toml").write_text(written)
    ended = subprocess.run(
        [PROGRAM, "serve", *GIVEN, "http://127.0.0.1:9", *more],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert f"--config {tmp_path / 'foldline.toml'}" in " ".join(ended.stderr.split())


def test_the_start_says_which_limits_are_in_force(tmp_path):
    (tmp_path / "foldline.toml").write_text(LIMITS + CAPS)
    with served([*GIVEN, "http://127.0.0.1:9", "--config", "foldline.toml"], tmp_path) as begun:
        assert post(begun.port, "/sessions", {})[0] == 401  # it serves, so it ends well
        (line,) = [one for one in begun.shown.splitlines() if one.startswith("limits ")]
    assert "gateway.limits" in line
    assert "caps.day.dollars" in line
    assert line.count("foldline.toml:") == 2


def test_settings_that_limit_nothing_stop_no_start(tmp_path):
    (tmp_path / "foldline.toml").write_text("[retention]\ndays = 3\n")
    with served([*GIVEN, "http://127.0.0.1:9"], tmp_path) as begun:
        assert post(begun.port, "/sessions", {})[0] == 401
        assert "not in force" in begun.shown
        assert any(one.split() == ["limits", "none"] for one in begun.shown.splitlines())
