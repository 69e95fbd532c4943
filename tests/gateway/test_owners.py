"""Whose a session is: every route, every kind of key, and that a foreign session is as one that is not there.

The matrix is made from the table of routes: a new route is in it, or the test says what it lacks.
"""

import asyncio
import http.client
import json
import typing
from contextlib import nullcontext
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import msgspec
import pytest
from gateway_thread import Served
from serving import address_of, an_empty_schema

from foldline.apps.gateway.api.api_call import EVENTS, JSON, NotFound
from foldline.apps.gateway.api.pool import Pool, PoolPlace
from foldline.apps.gateway.api.routes import ROUTES
from foldline.apps.gateway.api.schemas import SessionName
from foldline.apps.gateway.api_keys import Keys, create_key, digest_of
from foldline.apps.gateway.settings import GatewaySettings, parse_upstreams
from foldline.errors import FormatError
from foldline.stores.base import Draft, Name, Row
from foldline.stores.open_store import store_at
from foldline.testing import Provider
from foldline.testing.lasting import rows

CANARIES = ("canaryalice", "canarybob", "canarynobody")
GIVEN = {"model": "m", "place": 1, "places": [1], "handle": "log:1", "words": "canaryalice", "text": "Go on."}  # fmt: skip
"""What is sent for a field that must be there; a new one is named here."""
MAY_BE_LEFT_OUT = {"/{name}/messages": ["text"], "/{name}/events": ["text"]}
MISSING = "never-was"
ONE = [route for route in ROUTES if "{name}" in route.path]
IDS = [f"{route.method} {route.path}" for route in ONE]


@dataclass
class Rig:
    """A gateway with keys, and clients of it by their names."""

    gateway: Served
    keys: dict[str, str]

    def ask(self, who, method, path, body=None, **headers):
        """Status and body, as text."""
        line = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=30)
        given = {"authorization": f"Bearer {self.keys[who]}", **headers}
        sent = None if body is None else json.dumps(body).encode()
        if sent is not None:
            given["content-type"] = "application/json"
        line.request(method, quote(path, safe="/?=&{}:%"), sent, given)
        answer = line.getresponse()
        got = answer.status, answer.read().decode()
        self.headers = {name.lower(): value for name, value in answer.getheaders()}
        line.close()
        return got

    def ok(self, *args, **headers):
        """The document of a call that was answered."""
        status, body = self.ask(*args, **headers)
        assert status < 300, (args, status, body)
        return json.loads(body) if self.headers["content-type"] == JSON else body

    def make(self, who, name, words):
        """A session in which something was said, folded and undone."""
        self.ok(who, "POST", "/sessions", {"name": name, "model": "m", "system": f"{words} rules."})
        for at in range(3):
            self.ok(who, "POST", f"/sessions/{name}/events", {"text": f"{words} {at}"})
        return name

    def say(self, who, *words, **headers):
        """One call of a client that keeps its own history; the session that it became."""
        said = [{"role": ("user", "assistant")[at % 2], "content": one} for at, one in enumerate(words)]  # fmt: skip
        self.ok(who, "POST", "/v1/chat/completions", {"model": "m", "messages": said}, **headers)
        return self.headers["x-foldline-session"]

    def in_store(self, work):
        """Something done beside the API, as the command line does."""
        store = self.gateway.conversations.store
        return asyncio.run_coroutine_threadsafe(work(store), self.gateway._loop).result(30)

    def listed(self, who, limit=1000):
        """All that a key lists, page by page, and whose each is said to be."""
        found, after = {}, ""
        while after is not None:
            page = self.ok(who, "GET", f"/sessions?limit={limit}&after={after}")
            found |= {one["name"]: one["owner"] for one in page["sessions"]}
            after = page["after"]
        return found


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.real)])
def rig(request, tmp_path_factory):
    """Sessions of alice, of bob and of nobody; and keys: theirs, an admin's, another tenant's."""
    folder = tmp_path_factory.mktemp("owners")
    path = folder / "keys"
    keys = {who: create_key(path, who, tenant="acme") for who in ("alice", "bob")}
    keys["admin"] = create_key(path, "ops", tenant="acme", role="admin")
    keys |= {"stranger": "fl-stranger", "their admin": "fl-their-admin"}  # of the same names
    with path.open("a") as file:
        file.write(f"{digest_of(keys['stranger'])}  other  alice\n")
        file.write(f"{digest_of(keys['their admin'])}  other  ops  admin\n")
    on = an_empty_schema() if request.param == "postgres" else nullcontext()
    with on as schema, Provider() as provider:
        settings = GatewaySettings(upstreams=parse_upstreams([provider.url], {}), keys=Keys(path))
        store = address_of(schema) if schema else str(folder / "talks.db")
        with Served(settings, store=store) as gateway:
            rig = Rig(gateway, keys)
            rig.make("alice", "alices", "canaryalice")
            rig.make("bob", "bobs", "canarybob")
            rig.ok("alice", "POST", "/sessions/alices/fork", {"to": "alices-fork"})
            rig.in_store(lambda store: store.append(Name("acme", "nobodys"), rows("canarynobody")))
            rig.in_store(lambda store: store.claim(Name("acme", "alices-empty"), "alice"))
            rig.proxied = rig.say("alice", "canaryalice asks")
            yield rig


def filled(shape, route):
    """What must be in a body or an address, and what the route cannot do without."""
    fields = msgspec.structs.fields(shape)
    wanted = [one.name for one in fields if one.required]
    wanted += [one for one in MAY_BE_LEFT_OUT.get(route.path, ()) if one in {f.name for f in fields}]  # fmt: skip
    assert {*wanted} <= {*GIVEN}, f"{route.path}: write into GIVEN what is sent for {wanted}"
    return {name: GIVEN[name] for name in wanted}


def address(route, name):
    """The path of a route for a session, with what must stand in its address."""
    parts = [name if part == "{name}" else "1" if part.startswith("{") else part for part in route.parts]  # fmt: skip
    query = {} if route.method != "GET" else filled(route.query, route)
    return "/".join(["/sessions", *parts]) + (f"?{urlencode(query)}" if query else "")


def asked(rig, who, route, name, more=()):
    """What a key is answered on a route, in each form that it has."""
    body = None if route.body is None else {**filled(route.body, route), **dict(more)}
    return [
        rig.ask(who, route.method, address(route, name), body, accept=media)
        for media in (JSON, EVENTS)
        if media in route.media or media == JSON
    ]


def named(route):
    """The fields of a route's body or address that name a session."""
    for shape in (route.body, route.query):
        hints = typing.get_type_hints(shape, include_extras=True) if shape else {}
        yield from (n for n, one in hints.items() if SessionName in (one, *typing.get_args(one)))


def without_name(answers, name):
    return [(status, body.replace(name, "NAME")) for status, body in answers]


FOREIGN = [
    *((who, name) for who in ("bob", "stranger", "their admin") for name in ("alices", "alices-fork", "proxied", "nobodys")),
    ("alice", "bobs"), ("alice", "nobodys"),
]  # fmt: skip


@pytest.mark.parametrize("route", ONE, ids=IDS)
def test_a_foreign_session_is_answered_as_one_that_is_not_there(rig, route):
    """Every route, every foreign key: the same status and words, no canary, and nothing is changed."""
    before = {name: rig.ok("admin", "GET", f"/sessions/{name}/export") for name in ("alices", "bobs", "nobodys", rig.proxied)}  # fmt: skip
    for who, name in FOREIGN:
        name = rig.proxied if name == "proxied" else name  # noqa: PLW2901
        found = asked(rig, who, route, name)
        missing = asked(rig, who, route, MISSING)
        assert without_name(found, name) == without_name(missing, MISSING), (who, name)
        assert {status for status, _ in found} == {404}, (who, name, found)
        assert not [one for one in CANARIES if one in str(found)], (who, name)
    for name, export in before.items():
        assert rig.ok("admin", "GET", f"/sessions/{name}/export") == export, name


@pytest.mark.parametrize("route", ONE, ids=IDS)
def test_the_owner_and_an_admin_reach_a_session(rig, route):
    """The control: on the same route the owner's and the admin's key are not told 404."""
    for at, who in enumerate(("alice", "admin")):
        name = rig.make("alice", f"own-{IDS.index(f'{route.method} {route.path}')}-{at}", "canaryalice")  # fmt: skip
        found = asked(rig, who, route, name)
        missing = asked(rig, who, route, MISSING)
        assert without_name(found, name) != without_name(missing, MISSING), (who, found)
        assert "there is no session" not in str(found[0]), (who, found)
        assert found[0][0] in (200, 201, 202, 400, 404, 409), (who, found)


@pytest.mark.parametrize("route", ROUTES, ids=[f"{one.method} {one.path}" for one in ROUTES])
def test_a_foreign_name_in_a_body_tells_nothing(rig, route):
    """It is as one that is not there; or, where a name has to be free, as one of one's own."""
    known = {("POST", ""): {"name", "carry"}, ("POST", "/{name}/fork"): {"to"}}
    assert {*named(route)} >= known.get((route.method, route.path), set())  # the control
    rig.ok("bob", "POST", "/sessions", {"name": f"free-{ROUTES.index(route)}", "model": "m"})
    for field in named(route):
        for foreign in ("alices", "alices-empty", "nobodys", rig.proxied):
            found = asked(rig, "bob", route, "bobs", {field: foreign})
            taken = asked(rig, "bob", route, "bobs", {field: f"free-{ROUTES.index(route)}"})
            if found[0][0] == 409:
                assert without_name(found, foreign) == without_name(taken, f"free-{ROUTES.index(route)}")  # fmt: skip
            else:
                missing = asked(rig, "bob", route, "bobs", {field: MISSING})
                assert without_name(found, foreign) == without_name(missing, MISSING)
                assert {status for status, _ in found} == {400}
            assert not [one for one in CANARIES if one in str(found) and one != "canarybob"]
            assert rig.ask("bob", "GET", f"/sessions/{foreign}")[0] == 404  # nor was it taken


def test_a_list_has_ones_own_sessions(rig):
    """Also by pages of one; an admin sees all of the tenant, and whose each is."""
    every = rig.listed("admin")
    assert {"alices", "alices-fork", "bobs", "nobodys", rig.proxied} <= {*every}
    assert (every["alices-fork"], every["nobodys"], every[rig.proxied]) == ("alice", "", "alice")
    for who in ("alice", "bob"):
        own = rig.listed(who)
        assert {*own.values()} == {who}
        assert own == {name: owner for name, owner in every.items() if owner == who}
        if who == "bob":
            assert rig.listed(who, limit=1) == own
    assert rig.listed("stranger") == rig.listed("their admin") == {}
    for after in ("a", "alices", "zzz"):
        page = rig.ok("bob", "GET", f"/sessions?after={after}&limit=1000")["sessions"]
        assert {one["owner"] for one in page} <= {"bob"}


def test_a_search_everywhere_is_one_of_ones_own_sessions(rig):
    """A canary in each: of the owner's sessions, or for an admin of all."""
    for canary in CANARIES:
        for who, session, sees in (("bob", "bobs", "canarybob"), ("alice", "alices", "canaryalice"), ("admin", "bobs", canary)):  # fmt: skip
            found = rig.ok(who, "GET", f"/sessions/{session}/search?words={canary}&everywhere=true")["found"]  # fmt: skip
            assert bool(found) == (canary == sees), (who, canary)
            owners = {rig.listed("admin")[one["session"]] for one in found}
            assert who == "admin" or owners <= {who}


def test_a_fork_is_its_origins_owners(rig):
    """Recall reaches its ancestor; an admin's fork of alice's session is hers."""
    text = rig.ok("alice", "GET", "/sessions/alices-fork/recall?handle=log:2")["text"]
    assert "canaryalice" in text
    rig.ok("admin", "POST", "/sessions/alices/fork", {"to": "by-an-admin"})
    assert rig.listed("admin")["by-an-admin"] == "alice"
    assert rig.ask("bob", "GET", "/sessions/by-an-admin")[0] == 404
    assert rig.ask("alice", "GET", "/sessions/by-an-admin")[0] == 200


def test_a_proxied_conversation_is_its_keys(rig):
    """Claimed when it begins, and gone on with; a name that is another's is not taken over."""
    first = rig.say("alice", "canaryalice begins")
    assert rig.say("alice", "canaryalice begins", "ok", "and goes on") == first
    turned = rig.say("alice", "canaryalice begins", "another answer", "and turns off")
    own = rig.say("alice", "canaryalice named", **{"x-foldline-session": "alices-own"})
    assert own == "alices-own"
    every = rig.listed("admin")
    assert {every[first], every[turned], every[own]} == {"alice"}
    for name in (first, turned, own):
        assert rig.ask("alice", "GET", f"/sessions/{name}/export")[0] == 200
        assert rig.ask("bob", "GET", f"/sessions/{name}/export")[0] == 404
    for name in (own, "alices", "nobodys"):
        before = rig.ok("admin", "GET", f"/sessions/{name}/export")
        given = rig.say("bob", "canarybob asks", **{"x-foldline-session": name})
        assert given != name
        assert rig.listed("bob")[given] == "bob"
        assert rig.ask("bob", "GET", f"/sessions/{name}")[0] == 404
        assert rig.ok("admin", "GET", f"/sessions/{name}/export") == before


def test_a_name_that_is_claimed_is_not_written_to(rig):
    """Also before its owner has said anything there; the owner makes it whenever they like."""
    name = rig.in_store(lambda store: store.claim(Name("acme", "alices-next"), "alice"))
    assert name == "alice"
    assert rig.ask("bob", "POST", "/sessions", {"name": "alices-next", "model": "m"})[0] == 409
    assert (
        rig.say("bob", "canarybob asks", **{"x-foldline-session": "alices-next"}) != "alices-next"
    )
    assert rig.ask("bob", "POST", "/sessions/bobs/fork", {"to": "alices-next"})[0] == 409
    assert "alices-next" not in rig.listed("admin")
    rig.make("alice", "alices-next", "canaryalice")
    assert rig.listed("alice")["alices-next"] == "alice"


def test_an_erased_name_tells_nothing(rig):
    """Nobody knows any more whose it was: it is taken. An admin is told when it was erased."""
    rig.make("alice", "erased", "canaryalice")
    rig.ok("alice", "DELETE", "/sessions/erased")
    for path, body in (("/sessions", {"name": "erased", "model": "m"}), ("/sessions/bobs/fork", {"to": "erased"})):  # fmt: skip
        status, told = rig.ask("bob", "POST", path, body)
        assert status == 409
        assert told == rig.ask("bob", "POST", path, {**body, "name" if "name" in body else "to": "bobs"})[1].replace("bobs", "erased")  # fmt: skip
        assert rig.ask("admin", "POST", path, body)[0] == 410
    assert rig.ask("bob", "GET", "/sessions/erased")[0] == 404


def test_a_session_that_nobody_has_is_an_admins(rig):
    """What the command line or an earlier release made."""
    for who in ("alice", "bob", "stranger", "their admin"):
        assert rig.ask(who, "GET", "/sessions/nobodys")[0] == 404
        assert rig.ask(who, "DELETE", "/sessions/nobodys")[0] == 404
    assert "canarynobody" in rig.ok("admin", "GET", "/sessions/nobodys/export")


def test_neither_work_nor_faults_of_a_session_show():
    """A foreign session is not read and not waited for, whoever works on it, whatever is in it."""

    async def looked():
        store = store_at(":memory:")
        for name, draft in (("sound", rows("hello")), ("broken", Draft([Row("user_said", b"junk")]))):  # fmt: skip
            await store.claim(Name("acme", name), "alice")
            await store.append(Name("acme", name), draft)
        pool = Pool(PoolPlace(store=store, model_of=lambda *_: None))

        async def sees(name, owner):
            async with (
                asyncio.timeout(5),
                pool.open_session(Name("acme", name), owner=owner) as kept,
            ):
                return kept

        with pytest.raises(FormatError):
            await sees("broken", "alice")
        kept = await sees("sound", "alice")
        assert await sees("sound", None) is kept
        async with kept.session.live.lock:
            for name in ("sound", "broken", MISSING):
                for owner in ("bob", ""):
                    with pytest.raises(NotFound):
                        await sees(name, owner)
        assert len(pool) == 1
        await store.close()

    asyncio.run(looked())
