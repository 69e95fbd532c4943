"""The gateway as a raw ASGI application: it routes each request to whoever serves it.

/healthz, /readyz, /metrics     health pages; they ask the store but no upstream, so that one
                                that is away takes no gateway out of a balancer
/sessions/…                     the session API, if there is one; without keys it asks for the
                                token of this start (`local_access`)
/ui/…                           the pages, where there are sessions: they sign browsers in
everything else                 relayed to the operator's upstream (`relay`)
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from time import monotonic
from typing import Any, Protocol, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from foldline.apps.gateway import api_keys, local_access
from foldline.apps.gateway.api import PoolPlace, sessions_api
from foldline.apps.gateway.api.pool import Pool
from foldline.apps.gateway.api_keys import Client
from foldline.apps.gateway.audit import Audit, Figures, Note
from foldline.apps.gateway.calls import WATCHED, Calls
from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.limits import Message, Receive, checked_path
from foldline.apps.gateway.models import Models
from foldline.apps.gateway.relay import Relay, RelayRequest, Reply, Send
from foldline.apps.gateway.settings import GatewaySettings
from foldline.apps.gateway.upstream import Links
from foldline.dialects import base
from foldline.dialects.base import Vendor
from foldline.errors import BadInput, FoldlineError
from foldline.proxy.conversations import Conversations
from foldline.session.hooks import watch
from foldline.session.retention import run_retention
from foldline.session.session_settings import make_facts_of, make_preparation
from foldline.stores.base import Store

ALIVE, READY, FIGURES = "/healthz", "/readyz", "/metrics"
PATHS = frozenset((ALIVE, READY, FIGURES))
SESSIONS, PAGES = "/sessions", "/ui"
Scope: TypeAlias = Message
_SECONDS = 2.0  # for the store to answer
_LASTS = 1.0  # seconds that the store's answer is reused, so that frequent probes cost it nothing
_LONGEST = 200  # letters of a path that are noted
_log = logging.getLogger("foldline.gateway")


class MountedPages(Protocol):
    """The pages as an application, made by whoever starts the gateway."""

    def __call__(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        """Answer one request."""
        ...

    async def close(self) -> None:
        """Stop what runs in the background."""
        ...


class GatewayHealth:
    """Builds the health pages."""

    def __init__(self, store: Store | None, figures: Figures | None, *, tenant: str) -> None:
        self._store, self._figures, self._tenant = store, figures, tenant
        self._asked, self._answered = -_LASTS, True
        self.draining = False
        """Whether the gateway is about to end: balancers should look elsewhere."""

    async def build_page(self, path: str) -> tuple[int, bytes, bytes]:
        """Return status, content type and body of a page."""
        if path == FIGURES:
            if self._figures is None:
                return 404, b"text/plain", b"no figures: pip install 'foldline[metrics]'\n"
            return 200, b"text/plain; version=0.0.4; charset=utf-8", self._figures.render_metrics()
        if path == ALIVE:
            return 200, b"application/json", b'{"status":"alive"}'
        if self.draining:
            status = "draining"
        else:
            status = "ready" if await self._can_reach_store() else "store away"
        body = msgspec.json.encode({"status": status})
        return 200 if status == "ready" else 503, b"application/json", body

    async def _can_reach_store(self) -> bool:
        if self._store is None:
            return True
        if monotonic() - self._asked >= _LASTS:
            self._asked = monotonic()
            try:
                async with asyncio.timeout(_SECONDS):
                    await self._store.sessions(self._tenant, limit=1)
            except (FoldlineError, OSError, TimeoutError):
                self._answered = False
            else:
                self._answered = True
        return self._answered


class Gateway:
    """The whole gateway as one ASGI application."""

    def __init__(  # noqa: PLR0913 - the parts that a gateway is made of
        self,
        settings: GatewaySettings,
        *,
        store: Store | None = None,
        conversations: Conversations | None = None,
        sessions: bool = False,
        audit: Audit | None = None,
        models: Models | None = None,
        pages: Callable[[Pool], MountedPages] | None = None,
    ) -> None:
        if store is not None and sessions and settings.keys is None and settings.token is None:
            raise BadInput(
                "sessions without keys ask for a token; make one with local_access.make_token()"
            )
        self.settings = settings
        self._store, self._audit = store, audit
        self._models = models or Models(settings)
        self._conversations = conversations
        limits = settings.limits
        self._sessions = None
        if store is not None and sessions:
            self._sessions = sessions_api(self._build_pool_place(store))
        self._pages = pages(self._sessions.pool) if pages and self._sessions else None
        shortest = min(limits.body_seconds, limits.first_seconds, limits.idle_seconds)
        self.calls = Calls(each=limits.each, every=min(1.0, shortest / 4))
        self._links = Links(limits, settings.network)
        self._relay = Relay(
            settings, links=self._links, calls=self.calls, conversations=conversations
        )
        self._figures = Figures() if find_spec("prometheus_client") else None
        self.health = GatewayHealth(store, self._figures, tenant=settings.tenant)

    @asynccontextmanager
    async def _run_retention(self) -> AsyncGenerator[None]:
        """Erase old sessions of this gateway's tenants from time to time, if that is set."""
        said, keys = self.settings.sessions, self.settings.keys
        if said is None or self._store is None:
            yield
            return

        def list_tenants() -> set[str]:
            return {self.settings.tenant, *(keys.tenants if keys is not None else ())}

        async with run_retention(self._store, list_tenants, said.retention, told=_log.warning):
            yield

    def _build_pool_place(self, store: Store) -> PoolPlace:
        """Build the session API's place, under the same settings as the terminal's sessions."""
        place = PoolPlace(
            store=store,
            model_of=self._models.open_model,
            caps=self.settings.caps,
            body=self.settings.limits.body,
            on_disconnect=self.settings.on_disconnect,
        )
        said = self.settings.sessions
        if said is None:
            return place
        return replace(
            place,
            facts_of=make_facts_of(said),
            prepare=make_preparation(said, self._models.open_model),
            rounds=said.max_tool_iterations,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan of the process."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
            return
        note = Note(scope["path"][:_LONGEST])
        reply = Reply(send, note)
        vendor = base.find_request_vendor(scope["path"], (name for name, _ in scope["headers"]))
        try:
            if scope["path"] in PATHS:
                await self._send_health_page(scope, reply)
                return
            path = checked_path(scope["method"], scope["raw_path"])
            _check_no_upgrade(scope)
            if self._sessions is not None and _is_below(path, SESSIONS):
                mounted = _build_mounted_scope(scope, self._who_of_sessions(scope, note))
                await self._sessions(mounted, receive, _wrap_send(send, note))
                return
            if self._pages is not None and _is_below(path, PAGES):
                await self._serve_page(self._pages, scope, receive, _wrap_send(send, note))
                return
            client = self._resolve_client(scope, note)
            request = self._build_relay_request(scope, path, client, vendor)
            await self._relay.serve_request(request, reply, note=note, receive=receive)
        except Refusal as refusal:
            note.ended = "refused"
            await reply.send_refusal(refusal, vendor)
        except Exception:  # noqa: BLE001 - a fault of ours ends one request, in words
            _log.exception("a fault of the gateway itself at %s", note.route)
            note.ended = "fault"
            words = "a fault of the gateway itself; its log says more"
            await reply.send_refusal(Refusal(500, "fault", words), vendor)
        finally:
            self._record_note(note)

    def _record_note(self, note: Note) -> None:
        if note.route in PATHS:
            return
        if self._figures is not None:
            self._figures.under_way.set(len(self.calls))
            self._figures.record_note(note)
        if self._audit is not None:
            self._audit.write(note)

    def _resolve_client(self, scope: Scope, note: Note) -> Client:
        # Google's clients may show their key in the query: it tells them apart, as a header does.
        # A key of ours is not taken there: what is in a query is passed on, and written to logs.
        shown = parse_qsl(scope["query_string"]) if self.settings.keys is None else []
        keys = [(b"x-goog-api-key", key) for name, key in shown if name == b"key"]
        client = api_keys.resolve_client(
            [*scope["headers"], *keys], self.settings.keys, tenant=self.settings.tenant
        )
        if not isinstance(client, Client):
            raise Refusal(401, "bad_key", client.why)
        note.tenant, note.key = client.tenant, client.name
        return client

    def _who_of_sessions(self, scope: Scope, note: Note) -> Client:
        """Resolve the client of the session API; without keys, it is the gateway's operator."""
        token = self.settings.token
        if self.settings.keys is not None or token is None:
            return self._resolve_client(scope, note)
        local_access.check_request(scope, token)
        note.tenant = self.settings.tenant
        return Client(self.settings.tenant, "", admin=True)

    async def _serve_page(
        self, pages: MountedPages, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve a page; without keys, only under this machine's name, as the session API."""
        if self.settings.keys is None:
            local_access.check_site(scope)
        mounted = {**scope, "root_path": scope.get("root_path", "") + PAGES}
        await pages(mounted, receive, send)

    def _build_relay_request(
        self, scope: Scope, path: str, client: Client, vendor: Vendor
    ) -> RelayRequest:
        if self._store is not None and _is_below(path, SESSIONS):  # meant for us, so not relayed
            words = "this gateway shows no sessions: start it on loopback, or with --keys"
            raise Refusal(404, "no_sessions", words)
        upstream = self.settings.find_upstream(vendor)
        if upstream is None:
            words = f"this gateway has no upstream that speaks {vendor.name}"
            raise Refusal(404, "no_upstream", words)
        is_posted = scope["method"] == "POST"
        compacting = base.find_compact_dialect(path) if is_posted else None
        return RelayRequest(
            scope["method"],
            path,
            scope["query_string"].decode("latin-1"),
            scope["headers"],
            client,
            vendor,
            compacting or (base.find_path_dialect(path) if is_posted else None),
            upstream,
            compacting is not None,
            scope.get(WATCHED),
        )

    async def _send_health_page(self, scope: Scope, reply: Reply) -> None:
        """Send a health page; only clients with a key, if there are keys, see metrics."""
        if scope["method"] not in ("GET", "HEAD"):
            raise Refusal(405, "bad_method", f"{scope['path']} is only looked at")
        if scope["path"] == FIGURES:
            self._resolve_client(scope, Note(""))
        if self._figures is not None:
            self._figures.under_way.set(len(self.calls))
        status, kind, body = await self.health.build_page(scope["path"])
        length = str(len(body)).encode()
        await reply.send_head(status, [(b"content-type", kind), (b"content-length", length)])
        await reply.pass_on(body, last=True)

    def drain(self) -> None:
        """Become unready, and stop requests that are not over in `drain_seconds`."""
        if not self.health.draining:
            self.health.draining = True
            seconds = self.settings.limits.drain_seconds
            asyncio.get_running_loop().call_later(seconds, self.calls.stop_all)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await self._links.open()
        self.calls.start()
        end_watch = None if self._figures is None else watch(self._figures.count_pass)
        await send({"type": "lifespan.startup.complete"})
        async with self._run_retention():
            await receive()
        self.health.draining = True
        self.calls.stop_all()
        if self._pages is not None:
            await self._pages.close()
        if self._sessions is not None:
            await self._sessions.close(seconds=self.settings.limits.drain_seconds)
        if not await self.calls.wait_for_end(self.settings.limits.drain_seconds):
            _log.error("%d requests did not end", len(self.calls))
        self.calls.close()
        for live in self._conversations.list_held() if self._conversations is not None else ():
            if live.narrator is not None:
                await live.narrator.close()
        await self._models.close()
        await self._links.close()
        if self._store is not None:
            await self._store.close()
        if self._audit is not None:
            self._audit.close()
        if end_watch is not None:
            end_watch()
        await send({"type": "lifespan.shutdown.complete"})


def _check_no_upgrade(scope: Scope) -> None:
    """Refuse an offered upgrade that `server` did not hide: the parser has skipped its body.

    Codex begins with a WebSocket, and goes on over HTTP at once when it is told to.
    """
    if any(name == b"sec-websocket-key" for name, _ in scope["headers"]):
        words = "this gateway speaks no WebSocket; send the request over HTTP"
        raise Refusal(426, "websocket", words)
    if any(name == b"upgrade" for name, _ in scope["headers"]):
        words = "another protocol was offered; send the request without `Upgrade`"
        raise Refusal(400, "upgrade", words, close=True)


def _wrap_send(send: Send, note: Note) -> Send:
    async def send_and_record(message: Message) -> None:
        note.status = message.get("status", note.status)
        note.sent += len(message.get("body", b""))
        await send(message)

    return send_and_record


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root + "/")


def _build_mounted_scope(scope: Scope, client: Client) -> Scope:
    """Build the scope for the application mounted at `SESSIONS`; its `state` says who asks."""
    state: dict[str, Any] = {
        **scope.get("state", {}),
        "client": client,
        "tenant": client.tenant,
        "owner": client.owner,
        "admin": client.admin,
    }
    return {**scope, "root_path": scope.get("root_path", "") + SESSIONS, "state": state}
