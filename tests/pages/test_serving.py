"""The pages as processes: `foldline ui`, and `foldline serve` that has them below /ui."""

import asyncio
import http.client
import os
import re
import signal
import socket
import subprocess
from contextlib import contextmanager
from urllib.parse import urlencode

import pytest
from logs import conversation, write
from program import PROGRAM, served

from foldline.stores.open_store import store_at
from foldline.testing import Provider


def fill(path):
    async def work():
        store = store_at(str(path))
        await write(store, "mine", conversation(3))
        await store.close()

    asyncio.run(work())


def ask(port, path, *, cookie="", host=None, method="GET"):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {"cookie": cookie} if cookie else {}
    client.request(method, path, headers={**headers, **({"host": host} if host else {})})
    answer = client.getresponse()
    got = answer.status, answer.getheader("set-cookie") or "", answer.read().decode()
    client.close()
    return got


@contextmanager
def looked_at(*options):
    process = subprocess.Popen(
        [PROGRAM, "ui", *options], stdout=subprocess.PIPE, text=True, stderr=subprocess.PIPE
    )
    try:
        line = process.stdout.readline()
        yield (
            re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/enter\?ticket=\S+)\n", line).groups(),
            process,
        )
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)
        process.stdout.close()
        process.stderr.close()
    assert process.returncode == 0


def test_ui_shows_a_store_and_ends_when_it_is_told(tmp_path):
    fill(tmp_path / "s.db")
    before = {path.name: path.stat().st_size for path in tmp_path.iterdir() if path.name == "s.db"}
    with looked_at("--store", tmp_path / "s.db") as ((shown, entrance), process):
        port = int(shown)
        assert ask(port, "/")[0] == 401
        status, cookie, _ = ask(port, entrance)
        assert (status, cookie.startswith(f"foldline-{port}=")) == (200, True)
        cookie = cookie.partition(";")[0]
        assert "mine" in ask(port, "/session?name=mine", cookie=cookie)[2]
        assert ask(port, entrance)[0] == 401
        assert ask(port, "/", cookie=cookie, host="evil.example")[0] == 403
        assert ask(port, "/sessions", cookie=cookie)[0] == 404
        told = process.stdout.readline() + process.stdout.readline() + process.stdout.readline()
        assert "read only" in told
    assert {
        path.name: path.stat().st_size for path in tmp_path.iterdir() if path.name == "s.db"
    } == before


def test_ui_needs_a_store_that_is_there(tmp_path):
    done = subprocess.run(
        [PROGRAM, "ui", "--store", tmp_path / "none.db"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode != 0
    assert "there is no store" in done.stderr
    assert not (tmp_path / "none.db").exists()


def test_a_gateway_has_them_beside_its_sessions(tmp_path):
    """Without keys by the address that is printed; a ticket is not a token."""
    fill(tmp_path / "s.db")
    options = ["--port", "0", "--store", tmp_path / "s.db", "--upstream"]
    with Provider() as provider, served([*options, provider.url], tmp_path) as begun:
        entrance = re.search(
            r"^look +http://\S+?(/ui/enter\?ticket=\S+)", begun.shown, re.MULTILINE
        )[1]
        assert ask(begun.port, "/ui/")[0] == 401
        _, cookie, _ = ask(begun.port, entrance)
        assert "; Path=/ui;" in cookie
        cookie = cookie.partition(";")[0]
        status, _, body = ask(begun.port, "/ui/session?name=mine", cookie=cookie)
        assert (status, 'href="/ui/static/pages.css"' in body) == (200, True)
        assert ask(begun.port, "/ui/static/pages.css")[0] == 200
        assert ask(begun.port, "/ui/", cookie=cookie, host="evil.example")[0] == 403
        assert ask(begun.port, "/sessions", cookie=cookie)[0] == 401


@pytest.mark.parametrize("options", [["--open"], ["--plain"]])
def test_a_gateway_that_shows_no_sessions_has_none(tmp_path, options):
    given = ["--port", "0", "--store", tmp_path / "s.db", *options, "--upstream"]
    with Provider() as provider, served([*given, provider.url], tmp_path) as begun:
        assert "look " not in begun.shown
        assert ask(begun.port, "/ui/")[0] != 200


def test_a_gateway_with_keys_asks_for_one(tmp_path):
    keys = tmp_path / "keys"
    env = {**os.environ, "FOLDLINE_STORE": str(tmp_path / "s.db")}
    fill(tmp_path / "s.db")
    subprocess.run(
        [PROGRAM, "keys", "add", "ops", "--admin", "--keys", keys],
        env=env,
        check=True,
        capture_output=True,
    )
    given = ["--port", "0", "--store", tmp_path / "s.db", "--keys", keys, "--upstream"]
    with Provider() as provider, served([*given, provider.url], tmp_path) as begun:
        assert re.search(r"^look +http://\S+/ui/$", begun.shown, re.MULTILINE)
        status, _, body = ask(begun.port, "/ui/")
        assert (status, 'type="password"' in body) == (401, True)


@pytest.mark.parametrize("how", ["keys", "token"])
def test_a_browser_is_known_to_each_of_several_processes_at_one_port(tmp_path, how):
    fill(tmp_path / "s.db")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = ["--port", port, "--reuse-port", "--store", tmp_path / "s.db"]
    env = {"FOLDLINE_TOKEN": "fl-local-token-of-all-of-them"}
    if how == "keys":
        key = subprocess.run(
            [PROGRAM, "keys", "add", "ops", "--admin", "--keys", tmp_path / "keys"],
            env={**os.environ, "FOLDLINE_STORE": str(tmp_path / "s.db")},
            check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
        given, env = [*given, "--keys", tmp_path / "keys"], {}
    with (
        Provider() as provider,
        served([*map(str, given), "--upstream", provider.url], tmp_path, **env) as begun,
        served([*map(str, given), "--upstream", provider.url], tmp_path, **env),
    ):
        if how == "keys":
            cookie = sign_in(port, key)
        else:
            found = re.search(
                r"^look +http://\S+?(/ui/enter\?ticket=\S+)", begun.shown, re.MULTILINE
            )
            cookie = ask(port, found[1])[1]
            assert {ask(port, found[1])[0] for _ in range(12)} == {401}
        assert cookie
        cookie = cookie.partition(";")[0]
        # Each is a new connection, and goes to one of the two.
        assert {ask(port, "/ui/session?name=mine", cookie=cookie)[0] for _ in range(24)} == {200}
        if how == "keys":
            (tmp_path / "keys").write_text("")
            assert {ask(port, "/ui/", cookie=cookie)[0] for _ in range(24)} == {401}


def sign_in(port, key):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {
        "origin": f"http://127.0.0.1:{port}",
        "content-type": "application/x-www-form-urlencoded",
    }
    client.request("POST", "/ui/sign-in", body=urlencode({"key": key}), headers=headers)
    answer = client.getresponse()
    answer.read()
    client.close()
    return answer.getheader("set-cookie") or ""


def test_several_processes_without_a_common_secret_have_no_pages(tmp_path):
    """And say which one would do."""
    given = ["--port", "0", "--reuse-port", "--store", tmp_path / "s.db", "--upstream"]
    with Provider() as provider, served([*given, provider.url], tmp_path) as begun:
        assert re.search(r"^look +none: .*FOLDLINE_TOKEN", begun.shown, re.MULTILINE)
        assert ask(begun.port, "/ui/")[0] != 200
