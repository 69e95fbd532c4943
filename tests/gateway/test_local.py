"""Sessions of a gateway without keys: for programs of this machine, for no web page, and with the token."""

import http.client
import json
import re
import subprocess

import pytest
from gateway_thread import Served
from program import PROGRAM, served
from raw_upstream import Upstream

from foldline.apps.gateway.api.routes import ROUTES
from foldline.apps.gateway.asgi import Gateway
from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.local_access import check_request, make_token
from foldline.apps.gateway.settings import GatewaySettings, parse_upstreams
from foldline.errors import BadInput
from foldline.stores.open_store import store_at
from foldline.testing import Provider

TOKEN = make_token({})
SHOWN = [("authorization", f"Bearer {TOKEN.reveal()}")]
HOSTS = ["localhost", "LocalHost", "127.0.0.1", "[::1]", "localhost:{port}", "127.0.0.1:{port}", "[::1]:{port}", "localhost:9999"]  # fmt: skip
FOREIGN_HOSTS = ["evil.example", "evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example", "localhost.", "127.0.0.2", "0.0.0.0", "[::]", "::1", "[::1", "[::1]x", "[::1].evil.example", "localhost:x", "localhost:", "localhost:1:2", "user@localhost", "localhost/x", "localhost, evil.example", "", " "]  # noqa: S104  # fmt: skip
ORIGINS = ["http://localhost:{port}", "http://127.0.0.1:{port}", "http://[::1]:{port}", "HTTP://LOCALHOST:{port}"]  # fmt: skip
FOREIGN_ORIGINS = ["http://evil.example", "http://evil.example:{port}", "null", "", "http://localhost", "http://localhost:1", "https://localhost:{port}", "http://localhost.evil.example:{port}", "http://x@localhost:{port}", "http://localhost:{port}/x", "http://localhost:{port} http://evil.example", "file://", "chrome-extension://abc", "http://localhost:x", "http://[::1", "localhost:{port}"]  # fmt: skip


def ask(port, method, path, headers=(), body=b""):
    """Status, the gateway's own word for an error, and the body; `Host` is sent as it is given."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    client.putrequest(method, path, skip_host=any(name == "host" for name, _ in headers))
    for name, value in headers:
        client.putheader(name, value)
    if body:
        client.putheader("content-type", "application/json")
    client.putheader("content-length", str(len(body)))
    client.endheaders(body)
    answer = client.getresponse()
    got = answer.status, answer.getheader("x-foldline-error"), answer.read()
    client.close()
    return got


@pytest.fixture(scope="module")
def gateway():
    """A gateway without keys, with a session that has something to hide."""
    with Provider() as provider:
        settings = GatewaySettings(upstreams=parse_upstreams([provider.url], {}), token=TOKEN)
        with Served(settings, store=":memory:") as gateway:
            made = json.dumps({"name": "mine", "model": "m", "system": "canary"}).encode()
            assert ask(gateway.port, "POST", "/sessions", SHOWN, made)[0] == 201
            yield gateway


def at(gateway, value):
    return value.replace("{port}", str(gateway.port))


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("origin", [None, *ORIGINS])
def test_programs_and_pages_of_this_machine_come_in(gateway, host, origin):
    """With the token, under each name of this machine; a page of the same origin too."""
    given = [("host", at(gateway, host)), *SHOWN]
    given += [] if origin is None else [("origin", at(gateway, origin))]
    status, _, body = ask(gateway.port, "GET", "/sessions/mine/instructions", given)
    assert (status, b"canary" in body) == (200, True)
    beside = [("host", at(gateway, host)), ("X-Foldline-Key", TOKEN.reveal()), ("authorization", "Bearer sk-mine")]  # fmt: skip
    assert ask(gateway.port, "GET", "/sessions", beside)[0] == 200


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_another_name_is_refused(gateway, host):
    """DNS rebinding: the browser believes that it speaks with evil.example."""
    given = [("host", at(gateway, host)), *SHOWN]
    status, word, body = ask(gateway.port, "GET", "/sessions/mine/instructions", given)
    assert (status, word, b"canary" in body) == (403, "bad_host", False)


def test_no_host_and_two_hosts_are_refused():
    """What a parser may let through: of two nobody knows which is meant."""
    for hosts in ([], [b"localhost", b"evil.example"], [b"evil.example", b"localhost"]):
        headers = [(b"host", one) for one in hosts] + [(b"authorization", f"Bearer {TOKEN.reveal()}".encode())]  # fmt: skip
        with pytest.raises(Refusal) as refused:
            check_request({"server": ("127.0.0.1", 80), "headers": headers}, TOKEN)
        assert refused.value.code == "bad_host"


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_a_page_of_another_site_is_refused(gateway, origin):
    """Also a frame without an origin (`null`), and a page of another port of this machine."""
    given = [("origin", at(gateway, origin)), *SHOWN]
    for method, path in (("GET", "/sessions/mine/instructions"), ("DELETE", "/sessions/mine")):
        status, word, body = ask(gateway.port, method, path, given)
        assert (status, word, b"canary" in body) == (403, "bad_origin", False)
    both = [("origin", f"http://localhost:{gateway.port}"), *given]
    assert ask(gateway.port, "GET", "/sessions", both)[1] == "bad_origin"


def test_every_route_asks_for_the_token(gateway):
    """And for the right one; whatever a request is, it is refused before it is looked at."""
    token = TOKEN.reveal()
    wrong = {
        "none": [],
        "a provider's": [("authorization", "Bearer sk-abc")],
        "another": [("authorization", f"Bearer {make_token({}).reveal()}")],
        "cut": [("authorization", f"Bearer {token[:-1]}")],
        "longer": [("x-foldline-key", f"{token}x")],
        "in another case": [("x-foldline-key", token.swapcase())],
        "in a cookie": [("cookie", f"token={token}")],
        "in another header": [("x-api-key", token)],
        "empty": [("authorization", ""), ("x-foldline-key", "")],
        "not ASCII": [("x-foldline-key", b"\xff\xfe")],
    }
    targets = [(route.method, "/sessions" + route.path.replace("{name}", "mine").replace("{at}", "1")) for route in ROUTES]  # fmt: skip
    for method, path in [*targets, ("GET", "/sessions/openapi.json"), ("OPTIONS", "/sessions"), ("GET", "/sessions/"), ("GET", "/sessions/mine?token=" + token)]:  # fmt: skip
        for kind, headers in wrong.items():
            status, word, body = ask(gateway.port, method, path, headers)
            assert (status, word) == (401, "bad_token"), (method, path, kind)
            assert token.encode() not in body
    assert ask(gateway.port, "GET", "/sessions/openapi.json", SHOWN)[0] == 200
    assert b"canary" in ask(gateway.port, "GET", "/sessions/mine/instructions", SHOWN)[2]


def test_what_is_relayed_and_health_are_as_they_were():
    """No token, whatever `Host` and `Origin`; and the token is not passed on to an upstream."""
    with Upstream() as upstream:
        settings = GatewaySettings(upstreams=parse_upstreams([upstream.url], {}), token=TOKEN)
        with Served(settings, store=":memory:") as gateway:
            page = [("host", "evil.example"), ("origin", "http://evil.example")]
            for path in ("/healthz", "/readyz", "/v1/models"):
                assert ask(gateway.port, "GET", path, page)[0] == 200
            assert len(upstream.asked) == 1
            assert ask(gateway.port, "GET", "/v1/models", SHOWN)[:2] == (401, "bad_key")
            assert len(upstream.asked) == 1


def test_sessions_without_keys_and_without_a_token_cannot_be_served():
    """Who puts a gateway together cannot forget it."""
    settings = GatewaySettings(upstreams=parse_upstreams(["http://127.0.0.1:1"], {}))
    with pytest.raises(BadInput, match="make_token"):
        Gateway(settings, store=store_at(":memory:"), sessions=True)


def test_a_token_is_random_or_fixed():
    assert re.fullmatch(r"fl-local-[\w-]{43}", make_token({}).reveal())
    assert make_token({}).reveal() != make_token({}).reveal()
    assert make_token({"FOLDLINE_TOKEN": "fl-" + "x" * 16}).reveal() == "fl-" + "x" * 16
    for wrong in ("", "fl-" + "x" * 15, "x" * 40, "fl-with a blank in it", "fl-with a\ttab in it....", "fl-kein Wort für Kopfzeilen", "fl-ümlaute-ümlaute-ümlaute"):  # fmt: skip
        with pytest.raises(BadInput, match="FOLDLINE_TOKEN"):
            make_token({"FOLDLINE_TOKEN": wrong})


def test_serve_prints_its_token_and_asks_for_it(tmp_path):
    """A new one at every start, or the one of FOLDLINE_TOKEN; none where there are no sessions."""
    given = ["--port", "0", "--upstream", "http://127.0.0.1:1", "--store", "talks.db"]
    seen = set()
    for env in ({}, {}, {"FOLDLINE_TOKEN": "fl-chosen-by-a-script"}):
        with served(given, tmp_path, **env) as begun:
            assert f"token     {begun.token}  for http://127.0.0.1:{begun.port}/sessions" in begun.shown  # fmt: skip
            seen.add(begun.token)
            assert ask(begun.port, "GET", "/sessions")[:2] == (401, "bad_token")
            own = [("authorization", f"Bearer {begun.token}")]
            assert ask(begun.port, "GET", "/sessions", own)[0] == 200
            assert ask(begun.port, "GET", "/sessions", [("host", "evil.example"), *own])[0] == 403
    assert len(seen) == 3
    assert "fl-chosen-by-a-script" in seen
    for more in (["--plain"], ["--open"], ["--open", "--host", "0.0.0.0"]):  # noqa: S104
        with served([*given, *more], tmp_path) as begun:
            assert "token  " not in begun.shown
            status, word, _ = ask(begun.port, "GET", "/sessions", [("authorization", "Bearer sk-x")])  # fmt: skip
            relayed = (502, "upstream_away")  # as any other path, where nothing is kept
            assert (status, word) == (relayed if more == ["--plain"] else (404, "no_sessions"))
    for wrong in ("", "short"):
        ended = subprocess.run([PROGRAM, "serve", *given], cwd=tmp_path, env={"PATH": "/usr/bin", "HOME": str(tmp_path), "FOLDLINE_TOKEN": wrong}, capture_output=True, text=True, timeout=30, check=False)  # fmt: skip
        assert ended.returncode == 2
        assert "at least 16 signs" in ended.stderr


def test_serve_with_keys_has_no_token(tmp_path):
    """A key of the gateway's own is asked for, under any name: a proxy in front has its own."""
    made = subprocess.run([PROGRAM, "keys", "add", "ci", "--keys", "keys"], cwd=tmp_path, capture_output=True, text=True, check=True)  # fmt: skip
    own = [("authorization", f"Bearer {made.stdout.strip()}")]
    given = ["--port", "0", "--upstream", "http://127.0.0.1:1", "--store", "talks.db", "--keys", "keys"]  # fmt: skip
    with served(given, tmp_path) as begun:
        assert "token  " not in begun.shown
        assert ask(begun.port, "GET", "/sessions", [("host", "gateway.example"), *own])[0] == 200
        assert ask(begun.port, "GET", "/sessions", [("x-foldline-key", TOKEN.reveal())])[0] == 401
