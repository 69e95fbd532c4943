"""What each role may do beyond its own sessions: figures, shares, tenants, models, and nothing more."""

import asyncio
import http.client
import http.server
import json
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from gateway_thread import Served
from raw_upstream import Upstream

from foldline.apps.cli.app import run_command
from foldline.apps.cli.run_worker import SummarizerClients
from foldline.apps.gateway.api_keys import Keys, check_words, create_key, digest_of
from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.key_store import KeyRecord, KeyTable
from foldline.apps.gateway.provider_routes import RouteFilter
from foldline.apps.gateway.settings import GatewaySettings, parse_upstreams
from foldline.errors import BadInput
from foldline.session.session_settings import make_preparation
from foldline.settings.layers import load_settings
from foldline.stores.base import Name
from foldline.stores.open_store import store_at
from foldline.testing import Provider
from foldline.testing.lasting import rows

OPERATORS = "sk-operator-0123456789abcdef0123456789abcdef"
WHO = {
    "alice": ("acme", "client"), "bob": ("acme", "client"), "reader": ("acme", "reader"),
    "admin": ("acme", "admin"), "operator": ("ops", "operator"), "stranger": ("ac", "client"),
}  # fmt: skip
WORDS = ("events", "export", "history", "instructions", "recall?handle=log:1", "search?words=canary", "context")  # fmt: skip


class Asking:
    """Clients of a gateway by their names."""

    def __init__(self, gateway, keys):
        self.gateway, self.keys = gateway, keys

    def ask(self, who, method, path, body=None, *more):
        """Status, headers and body."""
        line = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=30)
        sent = None if body is None else json.dumps(body).encode()
        line.putrequest(method, path)
        for name, value in [("X-Foldline-Key", self.keys[who]), ("Content-Type", "application/json"), *more]:  # fmt: skip
            line.putheader(name, value)
        line.putheader("Content-Length", str(len(sent or b"")))
        line.endheaders(sent)
        answer = line.getresponse()
        got = answer.status, dict(answer.getheaders()), answer.read().decode()
        line.close()
        return got

    def status(self, *args):
        """The status alone."""
        return self.ask(*args)[0]

    def make(self, who, name):
        """A session in which something was said."""
        assert self.status(who, "POST", "/sessions", {"name": name, "model": "m", "system": "canary rules"}) == 201  # fmt: skip
        assert self.status(who, "POST", f"/sessions/{name}/events", {"text": "canary"}) == 200


@contextmanager
def asked(folder, upstream=Provider, **more):
    """A gateway with a key of each kind in front of a provider."""
    path = folder / "keys"
    keys = {who: create_key(path, who, tenant=tenant, role=role) for who, (tenant, role) in WHO.items()}  # fmt: skip
    with upstream() as provider:
        settings = GatewaySettings(
            upstreams=parse_upstreams([provider.url], {"FOLDLINE_UPSTREAM_KEY": OPERATORS}),
            keys=Keys(path), **more,
        )  # fmt: skip
        with Served(settings, store=":memory:") as gateway:
            found = Asking(gateway, keys)
            found.provider = provider
            yield found


def test_a_reader_reads_figures_without_words(tmp_path):
    """G-1: of its whole tenant, and nothing else; it changes nothing."""
    with asked(tmp_path) as rig:
        rig.make("alice", "a")
        for path in ("/sessions", "/sessions/a", "/sessions/a/tokens", "/sessions/a/cost"):
            status, _, body = rig.ask("reader", "GET", path)
            assert status == 200, path
            assert "canary" not in body
        for end in WORDS:
            told = {name: rig.ask("reader", "GET", f"/sessions/{name}/{end}") for name in ("a", "never-was")}  # fmt: skip
            assert told["a"][0] == 403
            assert told["a"][2] == told["never-was"][2]
        for method, path, body in (
            ("DELETE", "/sessions/a", None), ("POST", "/sessions", {"model": "m"}),
            ("POST", "/sessions/a/messages", {"text": "x"}), ("POST", "/sessions/a/fork", {}),
            ("PUT", "/sessions/a/shares/reader", None), ("GET", "/sessions/a/shares", None),
        ):  # fmt: skip
            assert rig.status("reader", method, path, body) == 403, (method, path)


def test_a_share_lets_an_owner_read(tmp_path):
    """By its owner or an admin, until it is ended; it goes with the session, and not with a fork."""
    with asked(tmp_path) as rig:
        rig.make("alice", "a")
        for who in ("bob", "stranger"):
            assert rig.status(who, "PUT", f"/sessions/a/shares/{who}") == 404
        assert rig.status("alice", "PUT", "/sessions/a/shares/alice") == 400  # she has it
        for name in ("a%20b", "%00", "", "%23a", "x" * 201):
            assert rig.status("alice", "PUT", f"/sessions/a/shares/{name}") in (400, 404), name
        assert json.loads(rig.ask("alice", "PUT", "/sessions/a/shares/bob")[2])["shared"] == ["bob"]
        assert json.loads(rig.ask("admin", "PUT", "/sessions/a/shares/reader")[2])["shared"] == ["bob", "reader"]  # fmt: skip
        for who in ("bob", "reader"):
            listed = json.loads(rig.ask(who, "GET", "/sessions")[2])
            assert listed["shared"] == ["a"]
            for end in WORDS:
                assert rig.status(who, "GET", f"/sessions/a/{end}") == 200, (who, end)
            assert "canary" in rig.ask(who, "GET", "/sessions/a/search?words=canary")[2]
            refused = 404 if who == "bob" else 403
            for method, path, body in (
                ("DELETE", "/sessions/a", None), ("POST", "/sessions/a/events", {"text": "x"}),
                ("POST", "/sessions/a/fork", {}), ("GET", "/sessions/a/shares", None),
                ("PUT", "/sessions/a/shares/stranger", None), ("POST", "/sessions/a/fold", {"preview": True}),
            ):  # fmt: skip
                assert rig.status(who, method, path, body) == refused, (who, method, path)
        assert rig.status("bob", "POST", "/sessions", {"model": "m", "carry": "a"}) == 400
        assert rig.status("alice", "POST", "/sessions/a/fork", {"to": "a2"}) == 201
        assert rig.status("bob", "GET", "/sessions/a2") == 404
        # `everywhere` is one's own sessions: not the shared one's tenant, nor its owner.
        assert '"found":[]' in rig.ask("bob", "GET", "/sessions/a/search?words=canary&everywhere=true")[2]  # fmt: skip
        for who in ("bob", "reader"):
            assert rig.status("alice", "DELETE", f"/sessions/a/shares/{who}") == 200
            assert rig.status(who, "GET", "/sessions/a/events") == (404 if who == "bob" else 403)
            assert json.loads(rig.ask(who, "GET", "/sessions")[2])["shared"] == []
        assert rig.status("alice", "PUT", "/sessions/a/shares/bob") == 200
        assert rig.status("alice", "DELETE", "/sessions/a") == 200
        assert rig.status("bob", "GET", "/sessions/a") == 404
        assert json.loads(rig.ask("bob", "GET", "/sessions")[2])["shared"] == []


def test_an_operator_names_the_tenant(tmp_path):
    """Nobody else does; and what it makes there is nobody's, also if an owner is called as it is."""
    with asked(tmp_path) as rig:
        rig.make("alice", "a")
        there = ("X-Foldline-Tenant", "acme")
        assert rig.status("operator", "GET", "/sessions/a") == 404
        assert "canary" in rig.ask("operator", "GET", "/sessions/a/events", None, there)[2]
        assert rig.status("operator", "POST", "/sessions", {"name": "o", "model": "m"}, there) == 201  # fmt: skip
        assert '"owner":""' in rig.ask("admin", "GET", "/sessions?after=b")[2]
        for who in ("stranger", "alice", "admin", "reader"):
            for tenant in ("ops", "acme2", "ac", "", "ACME"):
                if tenant != WHO[who][0]:
                    told = rig.ask(who, "GET", "/sessions/a/events", None, ("X-Foldline-Tenant", tenant))  # fmt: skip
                    assert told[0] in (400, 403), (who, tenant)
                    assert "canary" not in told[2]
        assert rig.status("alice", "GET", "/sessions/a/events", None, there) == 200  # its own
        assert rig.status("operator", "GET", "/sessions", None, there, there) == 400
        for bad in ("a b", "#x", "foldline gateway keys", "acme ", "x" * 300):
            assert rig.status("operator", "GET", "/sessions", None, ("X-Foldline-Tenant", bad)) == 400  # fmt: skip


def test_sessions_ask_allowed_models_alone(tmp_path):
    """What holds for relayed requests holds for sessions, also for one that was switched before."""
    with asked(tmp_path, passage=RouteFilter(models=("gpt-*",))) as rig:
        for method, path, body in (("POST", "/sessions", {"model": "o9"}), ("POST", "/sessions", {"name": "n", "model": "gpt-5"})):  # fmt: skip
            assert rig.status("alice", method, path, body) == (201 if "name" in body else 403)
        assert rig.status("alice", "PUT", "/sessions/n/model", {"model": "o9"}) == 403
        assert rig.status("alice", "POST", "/sessions/n/messages", {"text": "hi"}) == 200
        assert len(rig.provider.bodies) == 1


@pytest.fixture
def elsewhere():
    """A server that notes what it is sent."""
    seen = []

    class Noting(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append(dict(self.headers))
            self.send_response(500)
            self.end_headers()

        def log_message(self, *_):
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Noting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1", seen
    server.shutdown()
    server.server_close()


def test_a_client_names_no_address(tmp_path, elsewhere, monkeypatch):
    """A model's name with an address in it got the session's words, and the environment's key."""
    url, seen = elsewhere
    monkeypatch.setenv("OPENAI_API_KEY", OPERATORS)
    with asked(tmp_path) as rig:
        rig.ask("alice", "POST", "/sessions", {"name": "x", "model": f"gpt@{url}"})
        assert rig.status("alice", "POST", "/sessions/x/messages", {"text": "hi"}) == 400
        assert rig.status("alice", "POST", "/sessions", {"name": "y", "model": "m"}) == 201
        rig.ask("alice", "PUT", "/sessions/y/model", {"model": f"gpt@{url}"})
        rig.ask("alice", "POST", "/sessions/y/messages", {"text": "hi"})
    assert not seen


def test_a_sessions_own_model_summarizes_at_no_address(tmp_path):
    """The same by the way of the summarizer, where the settings say `model`: a client names that."""
    opened, live = [], SimpleNamespace(spending=None)
    settings = load_settings(tmp_path, flags={"summarizer": ["model"]}, env={})
    asyncio.run(make_preparation(settings, opened.append)(live))
    with pytest.raises(BadInput, match="address"):
        live.narrator._tellers_of("gpt@http://127.0.0.1:9")
    assert SummarizerClients(("model",))("gpt@http://127.0.0.1:9").models == ()
    assert not opened


def test_no_key_of_ours_reaches_an_upstream(tmp_path):
    """In the address it is refused; in a header where none belongs, that is left out."""
    with asked(tmp_path, upstream=Upstream) as rig:
        key = rig.keys["alice"]
        body = {"model": "m", "input": "x"}
        for query in (f"key={key}", f"a=1;key={key}", f"x=%66l-{key[3:]}", f"api_key={key}&alt=sse"):  # fmt: skip
            assert rig.status("alice", "POST", f"/v1/embeddings?{query}", body) == 401, query
        assert not rig.provider.asked
        odd = [("X-Token", key), ("Cookie", f"a={key}"), ("Authorization", f"Token {key}"), ("X-Goog-Api-Key", f" Bearer\t{key}"), ("X-Fine", "fl-ight")]  # fmt: skip
        for one in odd:
            rig.ask("alice", "POST", "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "x"}]}, one)  # fmt: skip
        sent = b"".join(name + value for one in rig.provider.asked for name, value in one.headers)
        assert key.encode() not in sent
        assert b"fl-ight" in sent


def test_the_command_share(tmp_path, capsys, monkeypatch):
    """The same as over HTTP, for whoever has the store."""
    monkeypatch.setenv("FOLDLINE_STORE", str(tmp_path / "s.db"))

    async def make():
        store = store_at(tmp_path / "s.db")
        await store.claim(Name("acme", "talk-1"), "alice")
        await store.append(Name("acme", "talk-1"), rows("hello"))
        await store.close()

    asyncio.run(make())
    told = []
    for words in (
        ["talk"],
        ["talk", "bob"],
        ["talk-1"],
        ["talk", "bob", "--stop"],
        ["talk", "bob", "--json"],
    ):
        assert run_command(["share", *words, "--tenant", "acme"]) == 0
        told.append(capsys.readouterr().out.strip())
    assert told[:4] == ["shared with nobody", "bob", "bob", "shared with nobody"]
    assert json.loads(told[4]) == {"session": "talk-1", "shared": ["bob"]}
    for wrong in (["talk", "--stop"], ["talk", "a b"], ["talk", "alice"]):
        assert run_command(["share", *wrong, "--tenant", "acme"]) == 2


def test_keys_that_are_imported_again(tmp_path):
    """One that was revoked or rotated away stays so; two owners, or two names of one key, are refused."""
    file = tmp_path / "keys"
    first = create_key(file, "ci", tenant="acme")
    other = f"{digest_of('fl-other')}  acme  ci\n"  # as an editor replaces a key
    file.write_text(file.read_text() + other)

    async def work():
        store = store_at(tmp_path / "s.db")
        table = KeyTable(store)

        async def imported():
            given = [KeyRecord(one.digest, one.tenant, one.name, one.owner or one.name, one.role) for one in Keys(file).list_entries()]  # fmt: skip
            return tuple(await table.import_records(given))

        assert await imported() == (2, 0, 0)
        assert await imported() == (0, 2, 0)
        assert {one.digest for one in await table.find_keys("acme", "ci")} == {digest_of(first), digest_of("fl-other")}  # fmt: skip
        await table.revoke_keys("acme", "ci", beginning=digest_of(first))
        assert await imported() == (0, 1, 1)
        await table.rotate_key("acme", "ci", grace=0)
        await table.rotate_key("acme", "ci", grace=0)
        assert await imported() == (0, 0, 2)
        for line in (
            f"{digest_of('fl-3')}  acme  ci  owner=eve\n",
            f"{digest_of(first)}  evil  x\n",
        ):
            file.write_text(f"{digest_of(first)}  acme  y\n{line}")
            with pytest.raises(BadInput, match=r"owner|one key"):
                await imported()
        await store.close()

    asyncio.run(work())


LIMITS = RouteFilter(models=("mini*",)).limit_models("acme", ())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1beta/models/pro:generateContent", '{"model":"mini"}'), ("/v1beta/models/pro%3AgenerateContent", '{"model":"mini"}'),
        ("/v1beta/models/p%72o%3astreamGenerateContent", '{"model":"mini"}'), ("/deployments/mini/model/pro/converse", '{"model":"mini"}'),
        ("/openai/deployments/pro/chat/completions", '{"model":"mini"}'), ("/v1/x", '{"model":"pro"}'), ("/v1/x", '{"model":"mini","model":"pro"}'),
        ("/v1/x", '{"model":"pro","model":"mini"}'), ("/v1/x", '{"model":"mini","Model":"pro"}'), ("/v1/x", '{"model":"mini","\\u006dodel":"pro"}'),
        ("/v1/x", '{"model":"mini","models":["pro"]}'), ("/v1/x", '{"model":"mini","model\\u0000":"pro"}'), ("/v1/x", '{"model":"mini"," model ":"pro"}'),
        ("/v1/x", '{"model":["mini","pro"]}'), ("/v1/x", '{"model":null}'), ("/v1/x", '{"x":{"model":"mini"}}'), ("/v1/x", "model=mini"), ("/v1/x", '\ufeff{"model":"mini"}'),
    ],
)  # fmt: skip
def test_a_model_that_is_not_allowed_is_not_hidden(path, body):
    """In a path with escapes, behind another field of that name, or in a body that is read otherwise."""
    with pytest.raises(Refusal):
        LIMITS.check_request(path, body.encode())
    LIMITS.check_request("/v1beta/models/mini%3AgenerateContent", b"{}")
    LIMITS.check_request("/v1/x", b'{"model":"mini-2","messages":[{"model":"pro"}]}')


def test_names_that_are_none():
    """Of keys, tenants and owners: whatever a terminal, a store or a header may read otherwise."""
    for bad in ("a\0b", "a\u202eb", "\ufeff", "a\u2028b", "a b", "", "#a", "=a", "a\x1b[0m", "x" * 201, "\ud800"):  # fmt: skip
        with pytest.raises(BadInput):
            check_words(bad)
    for good in ("müller", "日本", "a/b", "a;b", "o'neill", '"q"', "a%2fb", "x" * 200, "-a"):
        check_words(good)
    assert digest_of("fl-a") != digest_of("fl-A")
