"""Keys: who comes in, what goes on to the upstream, and that no key is shown."""

import asyncio
import http.client
import json
import logging
import os
import pickle
import time

import pytest
from gateway_thread import Served
from raw_upstream import Upstream, head

from foldline.apps.cli.app import run_command
from foldline.apps.gateway.api.routes import ROUTES as ROUTES_OF_SESSIONS
from foldline.apps.gateway.api_keys import (
    ROLES,
    Keys,
    Secret,
    create_key,
    digest_of,
    resolve_client,
)
from foldline.apps.gateway.settings import GatewaySettings, must_be_closed, parse_upstreams
from foldline.dialects import base
from foldline.errors import BadInput, StoreFailed
from foldline.models.redact import Redacting
from foldline.testing.provider import written

OPERATORS = "sk-operator-0123456789abcdef0123456789abcdef"
ROUTES = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/v1/embeddings"),
    ("GET", "/v1/models"),
    ("GET", "/sessions"),
    ("GET", "/sessions/x"),
    ("GET", "/metrics"),
    ("GET", "/"),
    ("GET", "/unknown"),
    ("DELETE", "/v1/files/f"),
    ("OPTIONS", "/v1/models"),
]


@pytest.fixture
def keyed(tmp_path):
    """An upstream behind a gateway with keys of its own; the key, and both servers."""
    path = tmp_path / "keys"
    key = create_key(path, "ci", tenant="acme")
    with Upstream() as upstream:
        settings = GatewaySettings(
            upstreams=parse_upstreams([upstream.url], {"FOLDLINE_UPSTREAM_KEY": OPERATORS}),
            keys=Keys(path),
        )
        with Served(settings, store=":memory:") as gateway:
            yield key, upstream, gateway


def ask(gateway, method, path, headers=(), body=b"{}"):
    client = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    client.putrequest(method, path)
    for name, value in headers:
        client.putheader(name, value)
    client.putheader("Content-Length", str(len(body)))
    client.endheaders(body)
    answer = client.getresponse()
    got = answer.status, dict(answer.getheaders()), answer.read()
    client.close()
    return got


def bad(key):
    """Every kind of bad credential."""
    other = key[:-1] + ("A" if key[-1] != "A" else "B")
    return {
        "none": [],
        "empty": [("Authorization", "")],
        "bearer of nothing": [("Authorization", "Bearer ")],
        "basic": [("Authorization", "Basic Zm9vOmJhcg==")],
        "a provider's": [("Authorization", "Bearer sk-abc")],
        "unknown": [("Authorization", f"Bearer {other}")],
        "cut": [("Authorization", f"Bearer {key[:-1]}")],
        "longer": [("X-Api-Key", f"{key}x")],
        "prefix only": [("X-Api-Key", "fl-")],
        "the digest itself": [("X-Api-Key", f"fl-{digest_of(key)}")],
        "two": [("Authorization", f"Bearer {key}"), ("X-Api-Key", other)],
        "two of one header": [
            ("Authorization", f"Bearer {key}"),
            ("Authorization", f"Bearer {other}"),
        ],
        "own header, a provider's": [("X-Foldline-Key", "sk-abc"), ("X-Api-Key", key)],
        "in the query": [],
        "not UTF-8": [("X-Api-Key", b"fl-\xff\xfe")],
        "in another case": [("Authorization", f"Bearer {key.swapcase()}")],
    }


def test_every_route_refuses_every_bad_credential(keyed):
    """Point 4: 401 in the shape of the client's dialect, and the upstream hears nothing."""
    key, upstream, gateway = keyed
    for method, path in ROUTES:
        for kind, headers in bad(key).items():
            place = f"{path}?key={key}" if kind == "in the query" else path
            status, told, body = ask(gateway, method, place, headers)
            assert status == 401, (method, path, kind)
            assert told["x-foldline-error"] == "bad_key"
            error = json.loads(body)["error"]
            if path.startswith("/v1/messages"):
                assert error["type"] == "authentication_error"
            else:
                assert error["code"] == "invalid_api_key"
            assert key.encode() not in body
    assert not upstream.asked
    for path in ("/healthz", "/readyz"):
        assert ask(gateway, "GET", path)[0] == 200


@pytest.mark.parametrize(
    ("shown", "passed"),
    [
        (lambda key: [("Authorization", f"Bearer {key}")], {"authorization": f"Bearer {OPERATORS}"}),
        (lambda key: [("x-api-key", key)], {"x-api-key": OPERATORS}),
        (lambda key: [("X-Foldline-Key", key)], {"authorization": f"Bearer {OPERATORS}"}),
        (lambda key: [("X-Foldline-Key", key), ("x-api-key", "sk-mine")], {"x-api-key": "sk-mine"}),
        (lambda key: [("Authorization", f"Bearer {key}"), ("x-api-key", key)], {"authorization": f"Bearer {OPERATORS}", "x-api-key": OPERATORS}),
    ],
    ids=["bearer", "x-api-key", "beside", "beside a provider's", "twice the same"],
)  # fmt: skip
def test_a_key_of_ours_is_never_passed_on(keyed, shown, passed):
    """The operator's key stands where ours did; a provider's key of the client's own stays."""
    key, upstream, gateway = keyed
    status, told, _ = ask(gateway, "POST", "/v1/embeddings", shown(key))
    assert status == 200
    (asked,) = upstream.asked
    credentials = {n.decode().lower(): v.decode() for n, v in asked.headers if n.lower() in (b"authorization", b"x-api-key")}  # fmt: skip
    assert credentials == passed
    assert key.encode() not in b"".join(name + value for name, value in asked.headers)
    assert OPERATORS not in str(told)


def test_without_keys_a_providers_key_passes_and_ours_is_refused():
    with Upstream() as upstream:
        settings = GatewaySettings(
            upstreams=parse_upstreams([upstream.url], {"FOLDLINE_UPSTREAM_KEY": OPERATORS})
        )
        with Served(settings) as gateway:
            assert (
                ask(gateway, "GET", "/v1/models", [("Authorization", "Bearer sk-mine")])[0] == 200
            )
            assert upstream.asked[-1].header("authorization") == b"Bearer sk-mine"
            assert ask(gateway, "GET", "/v1/models")[0] == 200
            assert upstream.asked[-1].header("authorization") is None  # never the operator's
            assert ask(gateway, "GET", "/v1/models", [("x-api-key", "fl-any")])[0] == 401
            assert len(upstream.asked) == 2


def identify(keys, key):
    return asyncio.run(keys.identify(digest_of(key)))


def test_a_key_that_is_taken_away_is_refused_soon(tmp_path, monkeypatch):
    monkeypatch.setattr("foldline.apps.gateway.api_keys._LOOK", 0.0)
    path = tmp_path / "keys"
    one, two = create_key(path, "one", tenant="a"), create_key(path, "two", tenant="b")
    keys = Keys(path)
    assert identify(keys, one).tenant == "a"
    found = identify(keys, two)
    assert (found.tenant, found.name, found.owner, found.role) == ("b", "two", "two", "client")
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if "two" in line))  # fmt: skip
    os.utime(path, (time.time() + 5, time.time() + 5))
    assert identify(keys, one) is None
    assert identify(keys, two).tenant == "b"
    path.write_text(path.read_text() + "half a li")  # somebody edits it: nobody is shut out
    os.utime(path, (time.time() + 9, time.time() + 9))
    assert identify(keys, two).tenant == "b"
    path.unlink()
    assert identify(keys, two) is None


def test_the_file_keeps_digests_and_only_its_owner_reads_it(tmp_path):
    path = tmp_path / "keys"
    key = create_key(path, "ci", tenant="acme")
    assert key not in path.read_text()
    assert path.read_text() == f"{digest_of(key)}  acme  ci\n"
    assert path.stat().st_mode & 0o777 == 0o600
    for name, tenant in (
        ("ci", "x"),
        ("a b", "x"),
        ("a", "x y"),
        ("", "x"),
        ("a", ""),
        ("#a", "x"),
    ):
        with pytest.raises(BadInput):
            create_key(path, name, tenant=tenant)
    path.write_text("not a key\n")
    with pytest.raises(BadInput, match="line 1"):
        Keys(path)
    for word in ("Admin", "admin admin", "admin2", "owner=x admin", "admin=x"):
        path.write_text(f"{digest_of(key)}  acme  ci  {word}\n")
        with pytest.raises(BadInput, match=r"line 1: .*(admin|ROLE)"):
            Keys(path)
    with pytest.raises(BadInput, match="No such file"):
        Keys(tmp_path / "none")


def test_an_admins_key_is_one_by_the_word_behind_its_name(tmp_path, capsys):
    """Lines of before stay as they were; a name stays one key's, whatever stands behind it."""
    path = tmp_path / "keys"
    path.write_text(f"# people\n{digest_of('fl-old')}  acme  old\n")
    assert (
        run_command(["keys", "add", "ops", "--admin", "--tenant", "acme", "--keys", str(path)]) == 0
    )
    ops = capsys.readouterr().out.strip()
    assert path.read_text().splitlines()[-1] == f"{digest_of(ops)}  acme  ops  admin"
    plain = create_key(path, "plain", tenant="acme")
    keys = Keys(path)
    told = {key: identify(keys, key)[2:5] for key in ("fl-old", ops, plain)}
    assert told == {
        "fl-old": ("old", "old", "client"),
        ops: ("ops", "ops", "admin"),
        plain: ("plain", "plain", "client"),
    }
    with pytest.raises(BadInput, match="already"):
        create_key(path, "ops", tenant="acme")


def test_scopes_tell_keys_apart():
    """Conversations are found under the key that was shown: never under another's."""
    shown = (
        [(b"authorization", b"Bearer sk-1")],
        [(b"authorization", b"Bearer sk-2")],
        [(b"x-api-key", b"sk-1"), (b"authorization", b"Bearer sk-2")],
        [],
    )
    seen = [asyncio.run(resolve_client(one, None, tenant="t")) for one in shown]
    assert len({one.scope for one in seen}) == 4
    assert not any("sk-" in one.scope for one in seen)


def test_a_secret_is_not_shown():
    secret = Secret("sk-very-secret")
    for shown in (repr(secret), str(secret), f"{secret}", f"{[secret]}", "%s" % secret):  # noqa: UP031
        assert "very" not in shown
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert "very" not in repr(
        parse_upstreams(["http://h"], {"FOLDLINE_UPSTREAM_KEY": "sk-very-secret"})
    )


def test_logs_are_cleaned():
    from foldline.apps.gateway import server  # noqa: PLC0415

    server.set_up_logging()
    assert all(any(isinstance(f, Redacting) for f in one.filters) for one in logging.getLogger().handlers)  # fmt: skip


@pytest.mark.parametrize(
    "given",
    ["ftp://h", "h", "http://", "http://u:p@h", "http://h?x", "http://h/#f", "other=http://h", "http://h:x"],
)  # fmt: skip
def test_addresses_that_are_none(given):
    with pytest.raises(BadInput):
        parse_upstreams([given], {})


def test_addresses():
    found = parse_upstreams(["https://a.example/v1/", "anthropic=http://[::1]:9/base"], {"FOLDLINE_UPSTREAM_KEY_ANTHROPIC": "k"})  # fmt: skip
    assert (
        found[""].build_base_url(base.get_dialect("openai-chat").vendor) == "https://a.example/v1"
    )
    assert found[""].build_base_url(base.get_dialect("anthropic").vendor) == "https://a.example"
    assert found[""].key is None
    assert (
        found["anthropic"].build_base_url(base.get_dialect("anthropic").vendor)
        == "http://[::1]:9/base"
    )
    assert found["anthropic"].key.reveal() == "k"
    for bad_ in ([], ["http://a", "http://b"]):
        with pytest.raises(BadInput):
            parse_upstreams(bad_, {})


def test_a_port_for_strangers_needs_keys(tmp_path, capsys):
    """Another host than loopback without keys is refused, unless --open says so."""
    with pytest.raises(BadInput, match="--open"):
        must_be_closed("0.0.0.0", has_keys=False, is_open=False)  # noqa: S104
    must_be_closed("0.0.0.0", has_keys=False, is_open=True)  # noqa: S104
    must_be_closed("127.0.0.1", has_keys=False, is_open=False)
    everywhere = ["serve", "--host", "0.0.0.0", "--upstream", "http://127.0.0.1:1", "--plain"]  # noqa: S104
    assert run_command(everywhere) == 2
    assert "--open" in capsys.readouterr().err
    path = tmp_path / "keys"
    assert run_command(["keys", "add", "ci", "--tenant", "acme", "--keys", str(path)]) == 0
    key = capsys.readouterr().out.strip()
    assert identify(Keys(path), key).tenant == "acme"
    must_be_closed("0.0.0.0", has_keys=True, is_open=False)  # noqa: S104
    for wrong in (["--on-disconnect", "x"], ["--policy", "none"], ["--keys", "none"]):
        assert run_command(["serve", "--upstream", "http://127.0.0.1:1", "--plain", *wrong]) == 2


def test_a_setting_that_is_wrong_is_refused(monkeypatch):
    monkeypatch.setenv("FOLDLINE_SESSION__ON_DISCONNECT", "never")
    assert run_command(["serve", "--upstream", "http://127.0.0.1:1", "--plain"]) == 2


def said(*words):
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": one} for one in words]}).encode()  # fmt: skip


def test_the_session_api_shows_a_key_its_tenants_sessions_only(tmp_path):
    """Point 5: another tenant's session is not there, whatever is asked of it, as one that never was."""
    path, log = tmp_path / "keys", tmp_path / "audit"
    ours, other = create_key(path, "ours", tenant="acme"), create_key(path, "other", tenant="evil")
    answer = json.dumps(written("openai", {"model": "m"}, {"content": "ok"}, 9)[0]).encode()
    with Upstream(lambda _: [head(length=len(answer)) + answer]) as upstream:
        settings = GatewaySettings(upstreams=parse_upstreams([upstream.url], {}), keys=Keys(path))
        with Served(settings, store=":memory:", audit=log) as gateway:
            bearer = {key: [("Authorization", f"Bearer {key}"), ("Content-Type", "application/json")] for key in (ours, other)}  # fmt: skip
            _, told, _ = ask(gateway, "POST", "/v1/chat/completions", bearer[ours], said("canary"))
            name = told["x-foldline-session"]
            assert name.encode() in ask(gateway, "GET", "/sessions", bearer[ours], b"")[2]
            assert ask(gateway, "GET", f"/sessions/{name}", bearer[ours], b"")[0] == 200
            for route in ROUTES_OF_SESSIONS:
                for which in (name, "never-was"):
                    inner = [which if part == "{name}" else "1" if part[0] == "{" else part for part in route.parts]  # fmt: skip
                    target = "/".join(["/sessions", *inner])
                    status, _, body = ask(gateway, route.method, target, bearer[other], b"{}" if route.body else b"")  # fmt: skip
                    assert b"canary" not in body, target
                    assert status != 500, target
                    if route.method == "GET" and "{name}" in route.path:
                        assert status in (400, 404), target
            listed = ask(gateway, "GET", "/sessions?limit=1000", bearer[other], b"")[2]
            assert b"talk-" not in listed
            _, told, _ = ask(gateway, "POST", "/v1/chat/completions", [*bearer[other], ("X-Foldline-Session", name)], said("canary", "more"))  # fmt: skip
            events = ask(gateway, "GET", f"/sessions/{name}/events", bearer[ours], b"")[2]
            assert b"canary" in events
            assert b"more" not in events
            statuses = {json.loads(line)["status"] for line in log.read_text().splitlines() if "/sessions" in line}  # fmt: skip
            assert {200, 404} <= statuses


@pytest.mark.parametrize(
    ("where", "answered"), [("plan_exchange", 200), ("make_plan_headers", 500)]
)
def test_a_fault_of_ours_tells_nobody_a_key(where, answered, tmp_path, monkeypatch, caplog):
    """Neither the client, nor the log with its traceback, nor the audit log."""
    canary, log = "sk-canary-0123456789abcdef", tmp_path / "audit"

    def fails(*_, **__):
        raise RuntimeError("as nobody expects")

    monkeypatch.setattr(f"foldline.apps.gateway.relay.{where}", fails)
    with Upstream() as upstream, Served(upstream.url, store=":memory:", audit=log) as gateway:
        status, _, body = ask(gateway, "POST", "/v1/chat/completions", [("Authorization", f"Bearer {canary}"), ("X-Api-Key", canary)], said("hi"))  # fmt: skip
        assert status == answered
        assert len(upstream.asked) == (answered == 200)
    whole = body.decode() + log.read_text() + caplog.text
    assert "Traceback" in whole
    assert canary not in whole


def test_a_refusal_that_cannot_be_healed_passes_as_it_came(monkeypatch):
    """The store fails between the refusal and the second request: the provider's words stand."""

    async def fails(*_, **__):
        raise StoreFailed("away")

    monkeypatch.setattr("foldline.proxy.exchange.refusals.find_smaller", fails)
    told = b'{"error":{"message":"maximum context length is 10 tokens"}}'
    with Upstream(lambda _: [head(400, length=len(told)) + told]) as upstream, Served(upstream.url, store=":memory:") as gateway:  # fmt: skip
        status, _, body = ask(gateway, "POST", "/v1/chat/completions", (), said("hi"))
        assert (status, body) == (400, told)


def test_metrics_are_a_readers_and_an_operators(tmp_path):
    """G-5: no developer's key reads them; a tenant's reader and admin read its series alone."""
    path = tmp_path / "keys"
    keys = {role: create_key(path, role, tenant="acme", role=role) for role in ROLES}
    keys["prometheus"] = create_key(path, "prometheus", tenant="local", role="reader")
    with Upstream() as upstream:
        settings = GatewaySettings(upstreams=parse_upstreams([upstream.url], {}), keys=Keys(path))
        with Served(settings, store=":memory:") as gateway:
            told = {role: ask(gateway, "GET", "/metrics", [("X-Api-Key", key)]) for role, key in keys.items()}  # fmt: skip
            assert {role: one[0] for role, one in told.items()} == {"client": 403, "reader": 200, "admin": 200, "operator": 200, "prometheus": 200}  # fmt: skip
            for role in ("prometheus", "operator"):
                assert b"foldline_gateway_requests" in told[role][2]
            for role in ("admin", "reader"):  # of a tenant: its own series alone
                assert b"foldline_gateway_requests_in_flight" not in told[role][2]
            status, headers, _ = ask(gateway, "POST", "/v1/embeddings", [("X-Api-Key", keys["reader"])])  # fmt: skip
            assert (status, headers["x-foldline-error"]) == (403, "bad_role")
            assert not upstream.asked


def test_an_owner_of_the_line_has_the_sessions(tmp_path):
    """A key's name is its owner's, unless the line says another."""
    path = tmp_path / "keys"
    key = create_key(path, "ci-2", tenant="acme", owner="ci")
    assert path.read_text() == f"{digest_of(key)}  acme  ci-2  owner=ci\n"
    assert identify(Keys(path), key)[:4] == ("acme", digest_of(key), "ci-2", "ci")
