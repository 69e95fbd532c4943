"""Attacks from outside on a gateway process: heads, paths, names, cookies, and histories of others.

They are drawn at random from parts; one seed each, which a failure names.
"""

import asyncio
import http.client
import json
import os
import random
import re
import socket
import time
from contextlib import closing
from urllib.parse import quote, urlencode

import pytest
from program import served

from foldline.apps.gateway.key_store import KeyRecord, KeyTable
from foldline.stores.open_store import store_at
from foldline.testing import Provider

SEED = int(os.environ.get("FOLDLINE_SEED", "0")) or random.randrange(10**9)
CANARY = "canary-of-alice"
OWNERS = ("alice", "bob", "ALICE", "alice\u0301", "álice", "a", "%", "_", "alic_", "*", "..", "alice/bob", "alice'--", '"alice"', "alice\\", "alice%00", "folds", "owner=alice", "日本")  # fmt: skip
TENANTS = ("acme", "acm", "acmee", "ACME", "acme/", "acme%00", "a", "local")
pytestmark = pytest.mark.real
TRIES = int(os.environ.get("FOLDLINE_TRIES", "300"))


class Attacked:
    """A gateway, its keys by (tenant, owner), and what its provider is sent."""

    def __init__(self, port, keys, provider):
        self.port, self.keys, self.provider = port, keys, provider
        self.alice, self.bob = keys["acme", "alice"], keys["acme", "bob"]

    def ask(self, key, method, path, body=None, **headers):
        """A decent request: status, headers, text."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        given = {} if key is None else {"authorization": f"Bearer {key}"}
        sent = None if body is None else json.dumps(body).encode()
        with closing(line):
            line.request(method, path, sent, {**given, "content-type": "application/json", **headers})  # fmt: skip
            answer = line.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode("utf-8", "replace")  # fmt: skip

    def send(self, raw, seconds=5.0):
        """Bytes as they are; all that comes back until the gateway closes, or is silent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as line:
            line.sendall(raw)
            found = b""
            try:
                while piece := line.recv(65_536):
                    found += piece
            except OSError:
                pass
            return found


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """Keys of odd owners and tenants, and a session of alice's."""
    folder = tmp_path_factory.mktemp("attacks")
    address = str(folder / "s.db")

    async def make():
        store, keys = store_at(address), {}
        for tenant in TENANTS:
            for owner in OWNERS if tenant == "acme" else ("alice",):
                given = KeyRecord(digest="", tenant=tenant, name=owner, owner=owner)
                keys[tenant, owner] = await KeyTable(store).add_key(given)
        await store.close()
        return keys

    keys = asyncio.run(make())
    with Provider() as provider:
        options = ["--port", "0", "--upstream", provider.url, "--keys", "store", "--store", address, "--own-history"]  # fmt: skip
        with served(options, folder, FOLDLINE_UPSTREAM_KEY="sk-up", HOME=str(folder)) as begun:
            found = Attacked(begun.port, keys, provider)
            assert found.ask(found.alice, "POST", "/sessions", {"name": "kept", "model": "m", "system": CANARY})[0] == 201  # fmt: skip
            assert (
                found.ask(found.alice, "POST", "/sessions/kept/events", {"text": CANARY})[0] == 200
            )
            yield found


def test_heads_with_several_keys(gateway):
    """Alice's session is shown to requests that show her key, and no other of ours; never by luck."""
    rng = random.Random(SEED)
    names = ["Authorization", "authorization", "X-Api-Key", "x-api-key", "Api-Key", "X-Goog-Api-Key", "X-Foldline-Key", "X_Foldline_Key", "X-Foldline-Key ", "X-Foldline-K\u00ebY", "Proxy-Authorization", "Cookie", "X-Forwarded-User", "Authorization\t"]  # fmt: skip
    forms = ["{}", "Bearer {}", "bearer {}", "Bearer  {}", "Basic {}", "Token {}", "Bearer\t{}", "{} ", "{},{}", "Bearer {}\0", '"{}"', "{}\u00a0"]  # fmt: skip
    keys = [*[gateway.alice] * 5, gateway.bob, gateway.bob, gateway.alice.upper(), gateway.alice[:-1], gateway.alice + "x", "fl-", "sk-x", ""]  # fmt: skip
    shown = 0
    for _ in range(TRIES):
        given = [(rng.choice(names), rng.choice(forms).replace("{}", rng.choice(keys))) for _ in range(rng.randint(1, 3))]  # fmt: skip
        head = "".join(f"{name}: {value}\r\n" for name, value in given).encode("utf-8")
        got = gateway.send(b"GET /sessions/kept/export HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + head + b"\r\n")  # fmt: skip
        assert b" 500 " not in got[:20], (SEED, given)
        if CANARY.encode() in got:
            shown += 1
            values = [value for name, value in given if name.strip().lower() != "cookie"]
            assert any(gateway.alice in value for value in values), (SEED, given)
            named = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "x-foldline-key")
            assert not any(gateway.bob in value and name.lower() in named for name, value in given), (SEED, given)  # fmt: skip
    assert shown > 5, SEED  # the control: some are right


def test_paths_that_mean_the_session_otherwise(gateway):
    """With bob's key, or none: no spelling of an address shows it, and no odd one is relayed."""
    rng = random.Random(SEED)
    before = len(gateway.provider.bodies)
    pieces = ["sessions", "kept", "export", "events", "..", ".", "", "%2e%2e", "%2E", "%252e", "SESSIONS", "sessions;x=1", "%73essions", "sessions%2fkept", "sessions%2Fkept%2Fexport", "kept%00", "kept%20", "ui", "v1", "%5c..", "kept;", "kept.json", "*", "~", "kept?x", "kept#x", "%c0%ae", "%ff", "shares", "alice"]  # fmt: skip
    fixed = ["//sessions/kept/export", "/sessions//kept/export", "/sessions/kept/export/", "/./sessions/kept/export", "/v1/../sessions/kept/export", "/ui/../sessions/kept/export", "/ui/%2e%2e/sessions/kept/export", "http://127.0.0.1/sessions/kept/export", "*", "/ui//session?name=kept", "/ui/session/?name=kept", "/metrics/", "/Metrics", "/metrics;x", "/healthz/../metrics"]  # fmt: skip
    drawn = ["/" + "/".join(rng.choice(pieces) for _ in range(rng.randint(1, 5))) for _ in range(TRIES)]  # fmt: skip
    for path in fixed + drawn:
        for key in (gateway.bob, None):
            method = rng.choice(["GET", "GET", "POST", "DELETE", "HEAD", "PUT", "get", "PROPFIND"])
            shown = f"Authorization: Bearer {key}\r\n" if key else ""
            got = gateway.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n{shown}\r\n".encode())  # fmt: skip
            assert CANARY.encode() not in got, (SEED, method, path, key)
            assert b" 500 " not in got[:20], (SEED, method, path, got[:300])
            assert b"# HELP" not in got, (SEED, path)
    assert len(gateway.provider.bodies) == before, SEED
    assert gateway.ask(gateway.alice, "GET", "/sessions/kept")[0] == 200  # nor was it erased


def test_a_second_request_is_not_smuggled_in(gateway):
    """Lengths that disagree: nothing of a body is taken for a request."""
    inner = f"GET /sessions/kept/export HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.alice}\r\n\r\n"  # fmt: skip
    # What is behind a request on a connection is a request of its own: without a key of its own, it is refused.
    bare = "GET /sessions/kept/export HTTP/1.1\r\nHost: x\r\n\r\n"
    for lengths in (
        "Content-Length: 0\r\nContent-Length: {n}", "Content-Length: {n}\r\nContent-Length: 0", "Content-Length: {n}\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: {n}", "Transfer-Encoding: xchunked\r\nContent-Length: {n}", "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding : chunked\r\nContent-Length: {n}", "Content-Length: +{n}", "Content-Length: {n}, {n}", "Content-Length: -1", "Content-Length: 0x10",
        "Upgrade: websocket\r\nConnection: upgrade\r\nContent-Length: {n}", "Expect: 100-continue\r\nContent-Length: {n}",
    ):  # fmt: skip
        for body in (bare, "0\r\n\r\n" + bare):
            head = f"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.bob}\r\nContent-Type: application/json\r\n{lengths.format(n=len(body))}\r\n\r\n"  # fmt: skip
            got = gateway.send((head + body).encode(), seconds=0.15)
            assert CANARY.encode() not in got, lengths
    assert CANARY.encode() in gateway.send(inner.encode(), seconds=2.0)  # the control


def test_headers_that_ask_for_another_route(gateway):
    """On routes of ours they mean nothing; on a provider's they are refused."""
    for name in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Original-URL", "X-Rewrite-URL"):  # fmt: skip
        for value in ("DELETE", "/sessions/kept/export", "/v1/files"):
            for method, path in (("GET", "/sessions"), ("POST", "/sessions/kept/events"), ("POST", "/v1/embeddings"), ("GET", "/v1/models")):  # fmt: skip
                status, _, text = gateway.ask(gateway.bob, method, path, {} if method == "POST" else None, **{name: value})  # fmt: skip
                assert CANARY not in text
                if path.startswith("/v1"):
                    assert status == 403, (name, path)
    assert gateway.ask(gateway.alice, "GET", "/sessions/kept")[0] == 200


def test_owners_and_tenants_that_look_alike(gateway):
    """Each has what it made, and what is shared with it by its very name; nothing of another."""
    made = {}
    for at, (place, key) in enumerate(gateway.keys.items()):
        words = f"canary-{at}-end"
        made[place] = words
        assert gateway.ask(key, "POST", "/sessions", {"name": f"own-{at}", "model": "m", "system": words})[0] == 201  # fmt: skip
        chat = {"model": "m", "messages": [{"role": "user", "content": "the same words of everybody"}]}  # fmt: skip
        told = gateway.ask(key, "POST", "/v1/chat/completions", chat)[1]
        made[place] = (words, told["x-foldline-session"])
    talks = [(tenant, talk) for (tenant, _), (_, talk) in made.items()]
    assert len({*talks}) == len(talks)
    for at, (place, key) in enumerate(gateway.keys.items()):
        listed = json.loads(gateway.ask(key, "GET", "/sessions?limit=1000")[2])
        mine = {"kept"} if place == ("acme", "alice") else set()
        assert {one["name"] for one in listed["sessions"]} == {f"own-{at}", made[place][1], *mine}, place  # fmt: skip
        for other in range(len(made)):
            status, _, text = gateway.ask(key, "GET", f"/sessions/own-{other}/export")
            assert (status == 200) == (other == at), (place, other)
            assert (f"canary-{other}-end" in text) == (other == at)
    for owner in OWNERS[1:]:
        if owner in ("..", "alice\\"):  # no address has it
            continue
        path = f"/sessions/kept/shares/{quote(owner, safe='')}"
        assert gateway.ask(gateway.alice, "PUT", path)[0] == 200, owner
        readers = {place for place, key in gateway.keys.items() if CANARY in gateway.ask(key, "GET", "/sessions/kept/export")[2]}  # fmt: skip
        assert readers == {("acme", "alice"), ("acme", owner)}, owner
        assert gateway.ask(gateway.alice, "DELETE", path)[0] == 200


def test_histories_and_answers_of_others_are_not_continued(gateway):
    """The same history, the id of an answer, a compaction: another owner's request gets no word of it."""
    first = {"model": "m", "input": f"{CANARY} asks"}
    told = json.loads(gateway.ask(gateway.alice, "POST", "/v1/responses", first)[2])
    posted = {"model": "m", "input": [{"role": "user", "content": f"{CANARY} {'and more ' * 50}"}] * 3}  # fmt: skip
    compacted = json.loads(gateway.ask(gateway.alice, "POST", "/v1/responses/compact", posted)[2])
    items = [one for one in compacted.get("output", []) if "compaction" in one.get("type", "")]
    assert items, compacted
    attacks = [{"model": "m", "input": "go on", "previous_response_id": told["id"]}, {"model": "m", "input": [*items, {"role": "user", "content": "what was said?"}]}]  # fmt: skip
    for body in attacks:
        for key in (gateway.bob, gateway.keys["acm", "alice"], gateway.keys["acme", "ALICE"]):
            before = len(gateway.provider.bodies)
            _, headers, text = gateway.ask(key, "POST", "/v1/responses", body)
            sent = b"".join(gateway.provider.bodies[before:]).decode()
            assert CANARY not in sent + text + str(headers), body
    before = len(gateway.provider.bodies)  # the control: alice's are written out
    for body in attacks:
        gateway.ask(gateway.alice, "POST", "/v1/responses", body)
    assert b"".join(gateway.provider.bodies[before:]).decode().count(CANARY) >= 2


def test_cookies_of_others(gateway):
    """Made up, mixed of two, of another port's name, of a key that is none: nobody is signed in."""
    rng = random.Random(SEED)
    origin = f"http://127.0.0.1:{gateway.port}"
    form = {"origin": origin, "content-type": "application/x-www-form-urlencoded"}

    def page(cookie, method="GET", path="/ui/session?name=kept", body=None, **headers):
        line = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
        with closing(line):
            line.request(method, path, body, {"cookie": cookie, **headers})
            answer = line.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()

    def sign_in(key):
        got = page("", "POST", "/ui/sign-in", urlencode({"key": key}), **form)
        return got[1]["set-cookie"].partition(";")[0]

    alice, bob = sign_in(gateway.alice), sign_in(gateway.bob)
    assert CANARY in page(alice)[2]
    name, _, value = alice.partition("=")
    place, _, word = value.partition(".")
    _, _, bobs = bob.partition("=")
    bad = [f"{name}={place}.{bobs.partition('.')[2]}", f"{name}={bobs.partition('.')[0]}.{word}", f"{name}={place}.", f"{name}={word}", f"foldline-1={value}", f"{name.upper()}={value}", f"{name} ={value[:-1]}", f"{name}={value}x", f"{name}={quote(value[::-1])}", bob, f"{bob}; {bob}"]  # fmt: skip
    bad += ["; ".join(rng.sample(bad, 3)) for _ in range(20)]
    for cookie in bad:
        status, _, text = page(cookie)
        assert CANARY not in text, cookie
        assert status in (401, 404), cookie
    found = re.search(r'name="word" value="(\w+)"', page(bob, path="/ui/")[2])[1]
    for forged in (
        {"origin": "http://evil.example"}, {"origin": "null"}, {}, {"origin": origin, "sec-fetch-site": "cross-site"},
        {"origin": f"http://evil.example@127.0.0.1:{gateway.port}"}, {"origin": origin.replace("127.0.0.1", "localhost")},
    ):  # fmt: skip
        given = {"content-type": form["content-type"], **forged}
        assert page(alice, "POST", "/ui/pin", urlencode({"name": "kept", "at": 1, "on": 1, "word": found}), **given)[0] == 403, forged  # fmt: skip
    assert page(alice, "POST", "/ui/pin", urlencode({"name": "kept", "at": 1, "on": 1, "word": found}), **form)[0] == 403  # bob's word  # fmt: skip


def test_how_long_a_refusal_takes_says_nothing(gateway):
    """An unknown key, one that begins as a known one does, a session that is there and one that is not."""

    def median(key, path):
        taken = []
        for _ in range(40):
            begun = time.perf_counter()
            gateway.ask(key, "GET", path)
            taken.append(time.perf_counter() - begun)
        return sorted(taken)[20]

    there, missing = (median(gateway.bob, f"/sessions/{one}/cost") for one in ("kept", "none"))
    assert there < 5 * missing + 0.05
    assert missing < 5 * there + 0.05
