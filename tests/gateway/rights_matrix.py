"""Every cell of role, route, session and tenant, as a real request to a real gateway process.

The routes come from the gateway's own OpenAPI document, its table of pages and the registry of
dialects; what is expected comes from `rights_table`. Each session holds a canary of its own, which
must be in no answer that its cell forbids, nor in what an upstream is sent.
"""

import asyncio
import http.client
import json
import re
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, urlencode

import rights_table as table
from program import served
from rights_table import ABSENT, ELSEWHERE, FORBIDDEN, OK, OWN, SHARED, TENANT, UNKNOWN

from foldline.apps.gateway.key_store import KeyRecord, KeyTable
from foldline.apps.pages.pages_app import CHANGE, COMPUTE, READ
from foldline.dialects.base import DIALECTS
from foldline.stores.open_store import store_at
from foldline.testing import Provider

KEYS = {
    "alice": ("acme", "client"), "bob": ("acme", "client"), "carol": ("acme", "client"),
    "reader": ("acme", "reader"), "dora": ("acme", "reader"), "admin": ("acme", "admin"),
    "operator": ("ops", "operator"),
    "their alice": ("acm", "client"), "their reader": ("acm", "reader"), "their admin": ("acm", "admin"),
}  # fmt: skip
"""By who shows it: the tenant and the role of a key; its owner is the last word."""
NOBODY = ("without a key", "revoked", "expired")
SESSIONS = ("kept", "lent", "nobodys", "talk")
"""Of acme: alice's own; hers, shared with carol and dora; nobody's; and one that alice relayed. The
other tenant's alice has a session `kept`, too."""
MISSING = "none"
GIVEN = {"model": "m", "place": 2, "places": [2], "handle": "log:2", "words": "canary", "at": 4, "owner": "zoe"}  # fmt: skip
BODIES = {
    "/sessions/{name}/messages": {"text": "Go on."},
    "/sessions/{name}/events": {"text": "Go on."},
}
_EDIT = 5  # where the edit is that `_make` makes
_CANARY = re.compile(r"canary-[a-z]+-[a-z]+")


class WrongCell(Exception):  # noqa: N818
    """The first cell that is wrong."""


class FirstFault(list):
    """Ends at the first fault."""

    def append(self, fault):
        """Raise it."""
        raise WrongCell(fault)


class Matrix:
    """A gateway process with keys and sessions, and what was found wrong in it."""

    def __init__(self, port, keys, provider, *, whole=True):
        self.port, self.keys, self.provider = port, keys, provider
        self.faults = [] if whole else FirstFault()
        self.cells = Counter()
        self._lines, self.cookies, self.words, self.made = {}, {}, {}, 0
        self.shown = set()

    # Requests.

    def ask(self, who, method, path, body=None, **headers):
        """Status, headers and text."""
        given = {**self._headers(who), **headers}
        sent = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()  # fmt: skip
        if sent is not None:
            given.setdefault("content-type", "application/json")
        for last in (False, True):
            line = self._lines.setdefault(who, http.client.HTTPConnection("127.0.0.1", self.port, timeout=60))  # fmt: skip
            try:
                line.request(method, path, sent, given)
                answer = line.getresponse()
                text = answer.read().decode("utf-8", "replace")
            except (http.client.HTTPException, ConnectionError):
                line.close()
                del self._lines[who]
                if last:
                    raise
            else:
                break
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, text

    def close(self):
        """Close all connections."""
        for line in self._lines.values():
            line.close()

    def ok(self, *args, **headers):
        """A request that has to be answered."""
        status, told, text = self.ask(*args, **headers)
        assert status < 400, (args, status, text)
        return told, text

    def _headers(self, who):
        if who == "without a key":
            return {}
        there = {"x-foldline-tenant": "acme"} if who == "operator" else {}
        return {"authorization": f"Bearer {self.keys[who.removesuffix(' at home')]}", **there}

    def page(self, who, method, path, form=None):
        """A page, asked for by the browser that this client is signed in with."""
        given = {"cookie": self.cookies.get(who, "x=y")}
        origin = f"http://127.0.0.1:{self.port}"
        if method == "POST":
            given |= {"origin": origin, "content-type": "application/x-www-form-urlencoded"}
        return self._plain(method, f"/ui{path}", None if form is None else urlencode(form), **given)

    def _plain(self, *args, **headers):
        return self.ask("without a key", *args, **headers)

    def sign_in(self, who, tenant=""):
        """Sign a browser in; return whether that was allowed."""
        tenant = tenant or ("acme" if who == "operator" else "")
        key = self.keys.get(who.removesuffix(" at home"), "fl-none")
        form = {"key": key, "tenant": tenant}
        origin = f"http://127.0.0.1:{self.port}"
        status, told, _ = self._plain(
            "POST", "/ui/sign-in", urlencode(form), origin=origin,
            **{"content-type": "application/x-www-form-urlencoded"},
        )  # fmt: skip
        if status == 200:
            self.cookies[who] = told["set-cookie"].partition(";")[0]
            self.words[who] = re.search(r'name="word" value="(\w+)"', self.page(who, "GET", "/fleet" if "reader" in who or who == "dora" else "/")[2])[1]  # fmt: skip
        return status == 200

    # Sessions.

    def make(self, who, name, tenant="acme"):
        """A session with a canary, a recorded request and an edit."""
        canary = f"canary-{tenant}-{name.partition('+')[0]}"
        self.ok(who, "POST", "/sessions", {"name": name, "model": "m", "system": f"{canary} rules."})  # fmt: skip
        for at in range(2):
            self.ok(who, "POST", f"/sessions/{name}/events", {"text": f"{canary} {at}"})
        self.ok(who, "POST", f"/sessions/{name}/request", {})
        edit = json.loads(self.ok(who, "POST", f"/sessions/{name}/exclude", {"places": [3]})[1])
        assert edit["edit"] == _EDIT, edit
        return name

    def relation(self, who, name):
        """Whose a session is for a client."""
        if who in NOBODY:
            return ELSEWHERE
        tenant, _ = KEYS.get(who, ("ops", ""))
        if name == MISSING or (tenant == "acm" and name != "kept"):
            return ELSEWHERE
        if who == "operator at home":
            return ELSEWHERE
        if tenant == "acm":
            return OWN if who == "their alice" else TENANT
        if who == "alice" and name != "nobodys":
            return OWN
        return SHARED if name == "lent" and who in ("carol", "dora") else TENANT

    def role(self, who):
        """The role of a client; an operator is an admin of the tenant that it names."""
        role = KEYS[who.removesuffix(" at home")][1]
        return "admin" if role == "operator" else role

    def may_read(self, who, canary):
        """Whether a client may see a canary."""
        _, tenant, name = canary.split("-")
        if who in NOBODY or who == "operator at home":
            return False
        own = "acm" if who.startswith("their") else "acme"
        if tenant != own:
            return False
        return self.relation(who, name) in table.ANSWERED["words"][self.role(who)]

    def expect(self, who, kind, name=""):
        """What a cell has to be."""
        if who in NOBODY:
            return UNKNOWN
        role = self.role(who)
        if kind in table.GENERAL:
            return table.GENERAL[kind][role]
        if self.relation(who, name) in table.ANSWERED[kind][role]:
            return OK
        return table.REFUSED[kind][role]

    # Cells.

    def check(self, who, what, name, expected, got, missing=None):  # noqa: PLR0913, PLR0917 - a cell
        """Compare a cell's answer with what is expected of it."""
        self.cells[what.partition(" ")[2].split("/")[1]] += 1
        status, headers, text = got
        if expected == OK:
            is_right = status not in (401, 403) and (missing is None or _without(got, name) != _without(missing, MISSING))  # fmt: skip
        elif expected == ABSENT:
            is_right = _without(got, name) == _without(missing, MISSING) and status == 404
        else:
            is_right = status == int(expected)
        if not is_right:
            self.faults.append(f"{who}: {what} of {name}: {expected}, not {status} {text[:200]}")
        found = {*_CANARY.findall(f"{headers} {text}")}
        if expected != OK and found:
            self.faults.append(f"{who}: {what} of {name} is refused and shows {found}")
        for canary in found:
            if not self.may_read(who, canary):
                self.faults.append(f"{who}: {what} of {name} shows {canary}")
        if found and who == "alice" and name == "kept":
            self.shown.add(what)


def _without(got, name):
    status, _, text = got
    return status, re.sub(rf"\b{re.escape(name)}\b", "NAME", text) if name else text


def list_api_cells(document):
    """List (method, path, a function of a name that returns address and body) of a document."""
    schemas = document["components"]["schemas"]
    found = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            needed = [one["name"] for one in operation["parameters"] if one["in"] == "query" and one["required"]]  # fmt: skip
            query = urlencode({one: GIVEN[one] for one in needed})
            body = None
            if "requestBody" in operation:
                shape = operation["requestBody"]["content"]["application/json"]["schema"]
                shape = schemas[shape["$ref"].rpartition("/")[2]]
                body = {one: GIVEN[one] for one in shape.get("required", ())}
                body |= BODIES.get(path, {})

            def fill(name, path=path, query=query):
                target = re.sub(r"\{(\w+)\}", lambda found: str(GIVEN.get(found[1], name)) if found[1] != "name" else quote(name, safe=""), path)  # fmt: skip
                return f"{target}?{query}" if query else target

            found.append((method.upper(), path, fill, body))
    return found


def list_page_cells():
    """List (method, path, needed parameters)."""
    more = {"/original": {"at": 2}, "/edit": {"at": _EDIT}, "/change.svg": {"at": _EDIT}, "/undo": {"at": _EDIT}, "/pin": {"at": 2, "on": 1}}  # fmt: skip
    return [
        *(("GET", path, more.get(path, {})) for path in READ),
        *(("POST", path, more.get(path, {})) for path in (*CHANGE, *COMPUTE)),
    ]


def list_relay_cells():
    """List (method, path, body, kind) of every dialect's routes and of those that never pass."""
    endings = {one for row in DIALECTS.values() for one in (*row.paths, *row.compact_paths, *row.count_paths)}  # fmt: skip
    lacking = endings ^ {*table.DIALECT_PATHS}
    assert not lacking, f"write into rights_table.DIALECT_PATHS what is posted to {lacking}"
    return [
        *(("POST", path, body, "relay") for path, body in table.DIALECT_PATHS.values()),
        *((method, path, body, "relay") for method, path, body in table.OPEN),
        *((method, path, None, "relay") for method, path in table.READ_OPEN),
        *((method, path, {} if method != "GET" else None, "closed") for method, path in table.CLOSED),
    ]  # fmt: skip


def fill_matrix(matrix):
    """Ask every cell; `matrix.faults` has what is wrong."""
    document = json.loads(matrix.ok("alice", "GET", "/sessions/openapi.json")[1])
    api = list_api_cells(document)
    lacking = {(method, path) for method, path, *_ in api} ^ {*table.API}
    assert not lacking, f"write into rights_table.API what is expected of {lacking}"
    pages = list_page_cells()
    lacking = {(method, path) for method, path, _ in pages} ^ {*table.PAGES}
    assert not lacking, f"write into rights_table.PAGES what is expected of {lacking}"
    everybody = (*KEYS, "operator at home", *NOBODY)
    before = _export_all(matrix)
    for who in everybody:
        is_known = who not in NOBODY
        _ask_api(matrix, who, api, SESSIONS if is_known else ("kept",))
        _ask_pages(matrix, who, pages, SESSIONS if is_known else ("kept",))
        _ask_rest(matrix, who)
        _ask_relay(matrix, who)
    after = _export_all(matrix)
    for name in before:
        if before[name] != after[name]:
            matrix.faults.append(f"{name} was changed by a cell that is refused")
    _change_all(matrix, api, pages)
    for who in KEYS:
        _ask_relay_by_name(matrix, who)
    for one in table.SHOWN - matrix.shown:
        matrix.faults.append(f"the control: alice saw nothing in {one}")


def _export_all(matrix):
    exports = {name: matrix.ok("admin", "GET", f"/sessions/{name}/export")[1] for name in SESSIONS}
    return exports | {"their": matrix.ok("their admin", "GET", "/sessions/kept/export")[1]}


def _is_change(method, kind):
    return kind == "owner" and method != "GET"


def _ask_api(matrix, who, api, sessions):
    """All routes; a change that is allowed is left for `_change_all`."""
    for method, path, fill, body in api:
        kind = table.API[method, path]
        what = f"{method} {path}"
        if "{name}" not in path:
            if method == "POST":
                matrix.made += 1
                given = {**body, "name": f"made-{matrix.made}"}
            else:
                given = body
            got = matrix.ask(who, method, path, given)
            matrix.check(who, what, "", matrix.expect(who, kind), got)
            continue
        missing = matrix.ask(who, method, fill(MISSING), body)
        for name in sessions:
            expected = matrix.expect(who, kind, name)
            if not (expected == OK and _is_change(method, kind)):
                got = matrix.ask(who, method, fill(name), body)
                matrix.check(who, what, name, expected, got, missing)
                if path.endswith("/events") and method == "GET":
                    got = matrix.ask(who, method, fill(name), accept="text/event-stream")
                    matrix.check(who, what, name, OK if expected == OK else expected, got, missing)


def _ask_pages(matrix, who, pages, sessions):
    for method, path, more in pages:
        kind = table.PAGES[method, path]
        what = f"{method} /ui{path}"
        if kind in table.GENERAL:
            got = matrix.page(who, method, f"{path}?q=canary" if path == "/search" else path)
            matrix.check(who, what, "", matrix.expect(who, kind), got)
            if path == "/search":
                kind = "words"
            else:
                continue

        def asked(name, method=method, path=path, more=more):
            fields = {**more, "name": name}
            if method == "GET":
                fields |= {"q": "canary"} if path == "/search" else {}
                return matrix.page(who, method, f"{path}?{urlencode(fields)}")
            return matrix.page(who, method, path, {**fields, "word": matrix.words.get(who, "")})

        missing = asked(MISSING)
        for name in sessions:
            expected = matrix.expect(who, kind, name)
            if not (expected == OK and _is_change(method, kind)):
                matrix.check(who, what, name, expected, asked(name), missing)


def _ask_relay(matrix, who):
    for method, path, body, kind in list_relay_cells():
        expected = matrix.expect(who, kind)
        before = len(matrix.provider.bodies)
        got = matrix.ask(who, method, path, body)
        matrix.check(who, f"{method} {path}", "", expected, got)
        if expected != OK and len(matrix.provider.bodies) != before:
            matrix.faults.append(f"{who}: {method} {path} reached the upstream")


def _ask_relay_by_name(matrix, who):
    """Conversations that name a session of somebody else's; last, as they make some of that name."""
    for name in SESSIONS:
        expected = matrix.expect(who, "relay")
        before = len(matrix.provider.bodies)
        got = matrix.ask(who, "POST", "/v1/chat/completions", table.CHAT, **{"x-foldline-session": name})  # fmt: skip
        matrix.check(who, "POST /v1/chat/completions", name, expected, got)
        in_acme = KEYS[who][0] == "acme"
        if got[1].get("x-foldline-session") == name and (in_acme or (who, name) == ("their admin", "kept")):  # fmt: skip
            matrix.faults.append(f"{who}: a relayed request went on in {name}")
        sent = b"".join(matrix.provider.bodies[before:]).decode()
        if _CANARY.search(sent):
            matrix.faults.append(f"{who}: a relayed request that names {name} sent its words")


def _ask_rest(matrix, who):
    """Health, metrics, the document, and the tenants that others name."""
    for path in ("/healthz", "/readyz"):
        matrix.check(who, f"GET {path}", "", OK, matrix.ask(who, "GET", path))
    got = matrix.ask(who, "GET", "/metrics")
    matrix.check(who, "GET /metrics", "", matrix.expect(who, "monitor"), got)
    if who in ("reader", "dora", "admin") and re.search(r'tenant="(?!acme")', got[2]):
        matrix.faults.append(f"{who} reads metrics of another tenant")
    document = matrix.ask(who, "GET", "/sessions/openapi.json")
    matrix.check(who, "GET /sessions/openapi.json", "", matrix.expect(who, "anybody"), document)
    if who not in NOBODY:
        _ask_across_sessions(matrix, who)
    for tenant in ("acme", "acm", "ops", "acmee"):
        if who.startswith("operator") or who in NOBODY or tenant == KEYS[who][0]:
            continue
        if matrix.sign_in(who, tenant):
            matrix.faults.append(f"{who} signed in to the pages of {tenant}")
        for path in ("/sessions", "/sessions/kept/export", "/sessions/lent/cost"):
            got = matrix.ask(who, "GET", path, **{"x-foldline-tenant": tenant})
            matrix.check(who, f"GET {path}", "", FORBIDDEN, got)


def _ask_across_sessions(matrix, who):
    """Where a request for one session reaches into others: lists, searches, what is carried on."""
    for name in SESSIONS:
        path = f"/sessions/{name}/search?words=canary&everywhere=true"
        missing = matrix.ask(who, "GET", path.replace(name, MISSING, 1))
        expected = matrix.expect(who, "words", name)
        matrix.check(who, "GET /sessions/search", name, expected, matrix.ask(who, "GET", path), missing)  # fmt: skip
        matrix.made += 1
        body = {"model": "m", "name": f"made-{matrix.made}", "carry": name}
        got = matrix.ask(who, "POST", "/sessions", body)
        may = matrix.expect(who, "owner", name)
        right = {OK: 201, ABSENT: 400, FORBIDDEN: 403}[may]
        matrix.check(who, "POST /sessions", name, str(right) if may != OK else OK, got)
    listed = json.loads(matrix.ask(who, "GET", "/sessions?limit=1000")[2])
    for name in [one["name"] for one in listed["sessions"]] + listed["shared"]:
        if name in SESSIONS and matrix.expect(who, "figures", name) != OK:
            matrix.faults.append(f"{who}: the list names {name}")


def _change_all(matrix, api, pages):
    """Every change that is allowed, each of a session of its own."""
    for who in KEYS:
        for name in SESSIONS:
            if name == "talk" or matrix.expect(who, "owner", name) != OK:
                continue
            for method, path, fill, body in api:
                if _is_change(method, table.API[method, path]):
                    fresh = _make_fresh(matrix, who, name)
                    missing = matrix.ask(who, method, fill(MISSING), body)
                    got = matrix.ask(who, method, fill(fresh), body)
                    matrix.check(who, f"{method} {path}", fresh, OK, got, missing)
            for method, path, more in pages:
                if _is_change(method, table.PAGES[method, path]):
                    form = {**more, "word": matrix.words[who]}
                    missing = matrix.page(who, method, path, {**form, "name": MISSING})
                    got = matrix.page(who, method, path, {**form, "name": _make_fresh(matrix, who, name)})  # fmt: skip
                    matrix.check(who, f"{method} /ui{path}", "", OK, got, missing)


def _make_fresh(matrix, who, name):
    """A session of the same owner, and shared as that one is."""
    matrix.made += 1
    fresh = f"{name}+{matrix.made}"
    if who.startswith("their"):
        return matrix.make("their alice", fresh, "acm")
    return matrix.make("operator" if name == "nobodys" else "alice", fresh)


def run_matrix(address: str, folder: Path, *, whole=True, **env):
    """Start a gateway over a store, and fill its matrix; else `whole`, up to the first fault."""
    keys = asyncio.run(_make_keys(address))
    with Provider() as provider:
        options = ["--port", "0", "--upstream", provider.url, "--keys", "store", "--store", address]
        env = {"FOLDLINE_UPSTREAM_KEY": "sk-operators", "HOME": str(folder), **env}
        with served(options, folder, **env) as begun:
            matrix = Matrix(begun.port, keys, provider, whole=whole)
            with closing(matrix):
                matrix.make("alice", "kept")
                matrix.make("alice", "lent")
                matrix.make("operator", "nobodys")
                matrix.make("their alice", "kept", "acm")
                for owner in ("carol", "dora"):
                    matrix.ok("alice", "PUT", f"/sessions/lent/shares/{owner}")
                said = {**table.CHAT, "messages": [{"role": "user", "content": "canary-acme-talk"}]}
                told, _ = matrix.ok("alice", "POST", "/v1/chat/completions", said, **{"x-foldline-session": "talk"})  # fmt: skip
                assert told["x-foldline-session"] == "talk"
                for who in (*KEYS, "operator at home", "revoked"):
                    assert matrix.sign_in(who), who
                assert not matrix.sign_in("expired"), "a key that has ended signs in"
                asyncio.run(_revoke(address))
                begun_at = time.monotonic()
                while matrix.ask("revoked", "GET", "/sessions")[0] != 401:
                    assert time.monotonic() - begun_at < 2.0, (
                        "a revoked key is taken for two seconds"
                    )
                    time.sleep(0.02)
                fill_matrix(matrix)
    return matrix


async def _make_keys(address):
    store = store_at(address)
    keys = {}
    for who, (tenant, role) in {**KEYS, "revoked": ("acme", "admin"), "expired": ("acme", "admin")}.items():  # fmt: skip
        name = who.rpartition(" ")[2]
        ends = time.time() - 1 if who == "expired" else None
        given = KeyRecord(digest="", tenant=tenant, name=name, owner=name, role=role, expires=ends)
        keys[who] = await KeyTable(store).add_key(given)
    await store.close()
    return keys


async def _revoke(address):
    store = store_at(address)
    await KeyTable(store).revoke_keys("acme", "revoked")
    await store.close()
