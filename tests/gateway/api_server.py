"""The session API on a real port, and a client of a few lines for it."""

import asyncio
import json
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.client import HTTPConnection

import uvicorn

from foldline.apps.gateway.api import PoolPlace, sessions_api
from foldline.apps.gateway.provider_routes import ALL_MODELS
from foldline.stores.open_store import store_at
from foldline.testing import ScriptedModel


async def is_valid():
    return True


class Served:
    """A server in a thread, and what its clients say."""

    def __init__(self, address, model=None, **more):
        self.address, self.more = address, more
        self.model = model or ScriptedModel(lambda _: "ok", name="scripted")
        self.tenant_header = b"x-tenant"
        self.forgotten = None

    def model_of(self, name, tenant):
        """As an operator would name upstreams."""
        return self.model(name, tenant) if callable(self.model) else self.model

    async def __call__(self, scope, receive, send):
        """As a gateway would mount it."""
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                if message["type"] == "lifespan.startup":
                    self.loop = asyncio.get_running_loop()
                    self.store = store_at(self.address)
                    self.api = sessions_api(
                        PoolPlace(store=self.store, model_of=self.model_of, **self.more)
                    )
                    await send({"type": "lifespan.startup.complete"})
                else:
                    await self.api.close()
                    await self.store.close()
                    await send({"type": "lifespan.shutdown.complete"})
                    return
        tenant = dict(scope["headers"]).get(self.tenant_header)
        state = {  # as an authenticating layer would
            "tenant": tenant.decode() if tenant else "local",
            "owner": "", "admin": True, "words": True, "models": ALL_MODELS, "is_valid": is_valid,
        }  # fmt: skip
        state = {name: value for name, value in state.items() if name != self.forgotten}
        await self.api({**scope, "state": state}, receive, send)

    def call(  # noqa: PLR0913 - HTTP
        self, method, path, body=None, *, tenant=None, accept=None, headers=None, raw=None
    ):
        """A status and a document; text where it is no JSON."""
        given = {**(headers or {})}
        if tenant:
            given["x-tenant"] = tenant
        if accept:
            given["accept"] = accept
        sent = raw
        if body is not None:
            sent, given["content-type"] = json.dumps(body).encode(), "application/json"
        asked = urllib.request.Request(  # noqa: S310 - loopback
            self.url + path, data=sent, method=method, headers=given
        )
        try:
            with urllib.request.urlopen(asked, timeout=60) as got:  # noqa: S310
                status, kind, body = got.status, got.headers["content-type"], got.read()
                self.headers = got.headers
        except urllib.error.HTTPError as fault:
            with fault:
                status, kind, body = fault.code, fault.headers["content-type"], fault.read()
                self.headers = fault.headers
        return status, json.loads(body) if kind == "application/json" else body.decode()

    def ok(self, *args, **more):
        """The document of a call that was answered."""
        status, body = self.call(*args, **more)
        assert status < 300, (status, body)
        return body

    def made(self, name, **more):
        """A new session."""
        return self.ok("POST", "/sessions", {"name": name, "model": "scripted", **more})

    def say(self, name, text, **more):
        """How a turn ended."""
        return self.ok("POST", f"/sessions/{name}/messages", {"text": text, **more})

    def events(self, name, **more):
        """The log."""
        return self.ok("GET", f"/sessions/{name}/events?limit=1000", **more)["events"]

    def connection(self):
        """A connection that can be hung up."""
        return HTTPConnection("127.0.0.1", self.port, timeout=60)

    def streamed(self, path, body=None, *, method="POST", headers=None):
        """The server-sent events of a call, as (event, id, data)."""
        line = self.connection()
        given = {"accept": "text/event-stream", **(headers or {})}
        if body is not None:
            given["content-type"] = "application/json"
        line.request(method, path, None if body is None else json.dumps(body), given)
        got = line.getresponse()
        assert got.status == 200, got.read()
        try:
            yield from parsed(got)
        finally:
            got.close()
            line.close()


def parsed(lines):
    kind, at, told = "", None, ""
    for line in lines:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            kind = text[7:]
        elif text.startswith("id: "):
            at = int(text[4:])
        elif text.startswith("data: "):
            told = text[6:]
        elif not text and kind:
            yield kind, at, json.loads(told)
            kind, at, told = "", None, ""


@contextmanager
def serving(address=":memory:", model=None, **more):
    """A server on a free port until the end."""
    served = Served(address, model, **more)
    config = uvicorn.Config(
        served, port=0, log_level="error", lifespan="on", timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        threading.Event().wait(0.01)
    served.port = server.servers[0].sockets[0].getsockname()[1]
    served.url = f"http://127.0.0.1:{served.port}"
    try:
        yield served
    finally:
        server.should_exit = True
        thread.join(15)
        assert not thread.is_alive()
