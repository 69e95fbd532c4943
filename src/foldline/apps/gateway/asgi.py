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
from functools import partial
from importlib.util import find_spec
from time import monotonic
from typing import Any, Protocol, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from foldline.apps.gateway import api_keys, local_access
from foldline.apps.gateway.api import PoolPlace, sessions_api
from foldline.apps.gateway.api.pool import Pool
from foldline.apps.gateway.api_keys import Client, KeySource
from foldline.apps.gateway.audit import OTHER, Audit, Figures, LimitMetrics, Note
from foldline.apps.gateway.call_figures import CallFigures, CallPrices, TurnMeter
from foldline.apps.gateway.call_limits import CallLimits
from foldline.apps.gateway.call_spans import find_spans
from foldline.apps.gateway.calls import WATCHED, Calls, GatewayCall
from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.limiter import Limiter
from foldline.apps.gateway.limits import Message, Receive, checked_path
from foldline.apps.gateway.models import Models
from foldline.apps.gateway.relay import ENDING, Relay, RelayRequest, Reply, Send
from foldline.apps.gateway.settings import GatewaySettings
from foldline.apps.gateway.upstream import Links
from foldline.dialects import base
from foldline.dialects.base import Vendor
from foldline.errors import BadInput, FoldlineError, StoreFailed
from foldline.proxy.conversations import Conversations
from foldline.proxy.identity import is_name
from foldline.session.hooks import Pass, watch
from foldline.session.retention import run_retention
from foldline.session.stored_session import cancel_tasks
from foldline.session.usage_records import UsageGroup, UsageRecorder, UsageSums
from foldline.stores.base import Name, Store
from foldline.stores.open_store import store_at

ALIVE, READY, FIGURES = "/healthz", "/readyz", "/metrics"
PATHS = frozenset((ALIVE, READY, FIGURES))
SESSIONS, PAGES = "/sessions", "/ui"
TENANT_HEADER = b"x-foldline-tenant"
Scope: TypeAlias = Message
_READING = ("GET", "HEAD")
_SECONDS = 2.0  # for the store to answer
_LASTS = 1.0  # seconds that the store's answer is reused, so that frequent probes cost it nothing
_LONGEST = 200  # letters of a path that are noted
_MODELS = 200  # of a tenant that have usage of their own
_SESSIONS = 10_000
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

    def __init__(
        self,
        store: Store | None,
        figures: Figures | None,
        *,
        tenant: str,
        keys: KeySource | None = None,
    ) -> None:
        self._store, self._figures, self._tenant, self._keys = store, figures, tenant, keys
        self._asked, self._answered = -_LASTS, True
        self.draining = False
        """Whether the gateway is about to end: balancers should look elsewhere."""

    async def build_page(self, path: str, *, tenant: str | None) -> tuple[int, bytes, bytes]:
        """Return status, content type and body of a page; `tenant` sees its own metrics alone."""
        if path == FIGURES:
            if self._figures is None:
                return 404, b"text/plain", b"no figures: pip install 'foldline[metrics]'\n"
            return (
                200,
                b"text/plain; version=0.0.4; charset=utf-8",
                self._figures.render_metrics(tenant),
            )
        if path == ALIVE:
            return 200, b"application/json", b'{"status":"alive"}'
        trouble = self._keys.trouble if self._keys is not None else ""
        if self.draining:
            status = "draining"
        elif not await self.can_reach_store():
            status = "store away"
        else:
            status = "keys away" if trouble else "ready"
        states = {"status": status}
        if trouble:
            states["keys"] = trouble
        body = msgspec.json.encode(states)
        return 200 if status == "ready" else 503, b"application/json", body

    async def can_reach_store(self) -> bool:
        """Whether the store answers, or has just done so."""
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
        self._passage = settings.get_passage()
        # Without a store a process counts its own calls alone.
        counted = store or store_at(":memory:")
        self._own_counts = counted if store is None else None
        limiter = Limiter(
            counted,
            settings.current.settings.gateway.limits if settings.current is not None else (),
            passes_faults=settings.relays_without_store,
        )
        self.call_limits = CallLimits(limiter, CallPrices())
        self._models.limits, self._models.record = self.call_limits, self._add_narrative
        limits = settings.limits
        self._sessions = None
        if store is not None and sessions:
            self._sessions = sessions_api(self._build_pool_place(store))
        self._pages = pages(self._sessions.pool) if pages and self._sessions else None
        shortest = min(limits.body_seconds, limits.first_seconds, limits.idle_seconds)
        self.calls = Calls(each=limits.each, every=min(1.0, shortest / 4))
        self._links = Links(limits, settings.network)
        self._figures = Figures() if find_spec("prometheus_client") else None
        self._recorder = UsageRecorder(store) if store is not None else None
        self._spans = find_spans()
        self._ends_at = 0.0
        """When what is under way is stopped, once the gateway drains."""
        self._folds: dict[Name, int] = {}
        """Folds that no call's figures have yet."""
        self._models_seen: dict[str, set[str]] = {}
        self.health = GatewayHealth(
            store, self._figures, tenant=settings.tenant, keys=settings.keys
        )
        self.relay = Relay(
            settings,
            links=self._links,
            calls=self.calls,
            conversations=conversations,
            can_reach_store=self.health.can_reach_store,
            call_limits=self.call_limits,
        )
        if settings.current is not None:
            settings.current.add_listener(self._use_limits)
        if self._figures is not None:
            self._figures.limits = LimitMetrics(
                self._figures.registry, limiter, self.relay.room, self._count_held
            )

    @asynccontextmanager
    async def _run_retention(self) -> AsyncGenerator[None]:
        """Erase old sessions of this gateway's tenants from time to time, where that is set."""
        current, keys = self.settings.current, self.settings.keys
        if current is None or self._store is None:
            yield
            return

        def list_tenants() -> set[str]:
            known = keys.tenants if keys is not None else ()
            return {self.settings.tenant, *current.settings.tenants, *known}

        async with run_retention(
            self._store, list_tenants, current.get_retention, notify=_log.warning
        ):
            yield

    def _build_pool_place(self, store: Store) -> PoolPlace:
        """Build the session API's place, under the same settings as the terminal's sessions."""
        place = PoolPlace(
            store=store,
            model_of=self._models.open_model,
            caps=self.settings.caps,
            limit_model=self.call_limits.limit_model,
            body=self.settings.limits.body,
            on_disconnect=self.settings.on_disconnect,
        )
        current = self.settings.current
        if current is None:
            return place
        return replace(
            place,
            facts_of_tenant=current.find_facts_of,
            prepare=partial(current.give_narrator, client_of=self._models.open_narrator),
            rounds=current.settings.session.max_tool_iterations,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan of the process."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
            return
        note = Note(scope["path"][:_LONGEST])
        if self._spans is not None:
            found = (value for name, value in scope["headers"] if name == b"traceparent")
            note.parent = next(found, b"").decode("latin-1")
        reply = Reply(send, note)
        vendor = base.find_request_vendor(scope["path"], (name for name, _ in scope["headers"]))
        try:
            if scope["path"] in PATHS:
                await self._send_health_page(scope, reply)
                return
            path = checked_path(scope["method"], scope["raw_path"])
            _check_no_upgrade(scope)
            if self._sessions is not None and _is_below(path, SESSIONS):
                await self._serve_session_api(scope, receive, send, note)
                return
            if self._pages is not None and _is_below(path, PAGES):
                await self._serve_page(self._pages, scope, receive, _wrap_send(send, note))
                return
            client = await self._resolve_client(scope, note)
            request = self._build_relay_request(scope, path, client, vendor)
            await self.relay.serve_request(request, reply, note=note, receive=receive)
        except Refusal as refusal:
            note.ended = "refused"
            await reply.send_refusal(refusal, vendor)
        except asyncio.CancelledError:
            if not self.health.draining:
                raise
            note.ended, note.error = "drain", ENDING.code
            if not note.status:
                await reply.send_refusal(ENDING, vendor)
        except Exception:  # noqa: BLE001 - a fault of ours ends one request, in words
            _log.exception("a fault of the gateway itself at %s", note.route)
            note.ended = "fault"
            words = "a fault of the gateway itself; its log says more"
            await reply.send_refusal(Refusal(500, "fault", words), vendor)
        finally:
            self._record_note(note)

    async def _serve_session_api(
        self, scope: Scope, receive: Receive, send: Send, note: Note
    ) -> None:
        sessions = self._sessions
        assert sessions is not None, "asked for only where there is one"  # noqa: S101
        client = await self._who_of_sessions(scope, note)
        mounted = self._build_mounted_scope(scope, client)
        meter = self._build_turn_meter(note)
        mounted["state"]["meter"] = meter
        try:
            answer = partial(sessions, mounted, receive, _wrap_send(send, note))
            if scope["method"] in _READING:
                await self._run_read(answer, scope, client, note)
            else:
                await answer()
        finally:
            note.figures, note.session = meter.end_request(), meter.session

    async def _run_read(
        self, answer: Callable[[], Awaitable[None]], scope: Scope, client: Client, note: Note
    ) -> None:
        """Run a read of the session API as one of its client's calls; it ends when that leaves."""
        call = GatewayCall(float("inf"))
        self.calls.add_call(call, client)
        watch_client = scope.get(WATCHED)
        unwatch = watch_client(call.handle_disconnect) if watch_client is not None else None
        try:
            await answer()
        except asyncio.CancelledError:
            why = call.take_stop_reason()
            if why is None or self.health.draining:
                raise
            note.ended = why
        finally:
            call.ended = True
            if unwatch is not None:
                unwatch()
            self.calls.remove_call(call, client)

    def _build_turn_meter(self, note: Note) -> TurnMeter:
        def record_late(meter: TurnMeter) -> None:
            late = Note(note.route, note.tenant, note.key, note.owner)
            late.figures, late.session = meter.end_request(), meter.session
            self._record_note(late)

        return TurnMeter(self.call_limits.prices_of, self.settings.name_upstream, record_late)

    def _record_note(self, note: Note) -> None:
        if note.route in PATHS:
            return
        try:
            self._add_usage(note)
        except Exception:  # noqa: BLE001 - the call itself went well
            _log.exception("the figures of a call were lost at %s", note.route)
        self._settle_limits(note)
        if self._figures is not None:
            self._figures.under_way.set(len(self.calls))
            self._figures.record_note(note)
        if self._audit is not None:
            self._audit.write(note)
        if self._spans is not None:
            self._spans.record_note(note)

    def _add_usage(self, note: Note) -> None:
        """Add what a call took to the usage of whoever asked."""
        figures = note.end_figures()
        if figures is None or not note.tenant:
            return
        if note.any_session:
            name = Name(note.tenant, note.any_session)
            figures.sums.folds += self._folds.pop(name, 0)
        figures.model = self._bound_model(note.tenant, figures.model)
        if self._figures is not None:
            self._figures.usage.add(note.tenant, figures.model, figures.sums)
        if self._recorder is not None:
            group = UsageGroup(note.owner, note.key, figures.model, figures.upstream)
            self._recorder.add(note.tenant, group, figures.sums)

    def _add_narrative(self, tenant: str, upstream: str, figures: CallFigures) -> None:
        """Add what a narrator's call took to the usage of its tenant: no key asked for it."""
        figures.upstream = upstream
        self._add_usage(Note("", tenant, figures=figures))

    def _settle_limits(self, note: Note) -> None:
        """Count what a call took of its limits; one that nobody heard took what was sent."""
        if note.admission is None:
            return
        sums = note.figures.sums if note.figures is not None else UsageSums()
        self.call_limits.settle_request(
            note.admission,
            tokens=sums.input + sums.output,
            pico=sums.pico,
            was_lost=note.ended in ("gone", "late", "drain") and note.asked,
        )

    def _use_limits(self) -> None:
        if self.settings.current is not None:
            self.call_limits.limiter.set_rules(self.settings.current.settings.gateway.limits)

    def _count_held(self) -> int:
        return len(self._conversations.list_held()) if self._conversations is not None else 0

    def _bound_model(self, tenant: str, model: str) -> str:
        """Return a model's name, or one for all others: clients must not make rows without end."""
        if model and not is_name(model):
            return OTHER
        known = self._models_seen.setdefault(tenant, set())
        if model in known or len(known) < _MODELS:
            known.add(model)
            return model
        return OTHER

    def _count_fold(self, one: Pass) -> None:
        if one.kind == "fold" and one.outcome == "applied":
            if len(self._folds) >= _SESSIONS:
                self._folds.clear()
            self._folds[one.name] = self._folds.get(one.name, 0) + 1

    async def _resolve_client(self, scope: Scope, note: Note) -> Client:
        # Google's clients may show their key in the query: it tells them apart, as a header does.
        # A key of ours is not taken there: what is in a query is passed on, and written to logs.
        if self.settings.keys is not None:
            api_keys.must_hide_keys(scope["query_string"])
        shown = parse_qsl(scope["query_string"]) if self.settings.keys is None else []
        keys = [(b"x-goog-api-key", key) for name, key in shown if name == b"key"]
        try:
            client = await api_keys.resolve_client(
                [*scope["headers"], *keys], self.settings.keys, tenant=self.settings.tenant
            )
        except StoreFailed as fault:
            raise Refusal(503, "keys_away", str(fault), retry=1) from fault
        if not isinstance(client, Client):
            raise Refusal(401, "bad_key", client.why)
        note.tenant, note.key, note.owner = client.tenant, client.name, client.owner
        return client

    async def _who_of_sessions(self, scope: Scope, note: Note) -> Client:
        """Resolve the client of the session API; without keys, it is the gateway's operator."""
        token = self.settings.token
        if self.settings.keys is not None or token is None:
            client = _choose_tenant(await self._resolve_client(scope, note), scope)
            note.tenant = client.tenant
            return client
        local_access.check_request(scope, token)
        note.tenant = self.settings.tenant
        return Client(self.settings.tenant, "", role="admin")

    def _build_mounted_scope(self, scope: Scope, client: Client) -> Scope:
        """Build the scope for the application mounted at `SESSIONS`; its `state` says who asks."""
        state: dict[str, Any] = {
            **scope.get("state", {}),
            "client": client,
            "tenant": client.tenant,
            "owner": client.owner,
            "admin": client.sees is None,
            "words": client.rights.words,
            "models": self._passage.limit_models(client.tenant, client.models),
            "is_valid": partial(self._is_valid, client),
        }
        return {**scope, "root_path": scope.get("root_path", "") + SESSIONS, "state": state}

    async def _is_valid(self, client: Client) -> bool:
        """Whether a client's key is valid still; if nobody can tell, it is what it was."""
        if self.settings.keys is None:
            return True
        try:
            return await self.settings.keys.identify(client.scope, anew=True) is not None
        except StoreFailed:
            return True

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
        if not client.rights.relays:
            words = f"a key of the role {client.role!r} relays no requests"
            raise Refusal(403, "bad_role", words)
        upstream = self.settings.find_upstream(vendor)
        if upstream is None:
            words = f"this gateway has no upstream that speaks {vendor.name}"
            raise Refusal(404, "no_upstream", words)
        is_named = self._passage.check_route(
            vendor.name, scope["method"], path, headers=scope["headers"], own=client.routes
        )
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
            self._passage.limit_models(client.tenant, client.models)._replace(
                must_name=not is_named
            ),
        )

    async def _send_health_page(self, scope: Scope, reply: Reply) -> None:
        """Send a health page; of clients with keys only some roles see metrics."""
        if scope["method"] not in ("GET", "HEAD"):
            raise Refusal(405, "bad_method", f"{scope['path']} is only looked at")
        tenant = None
        if scope["path"] == FIGURES and self.settings.keys is not None:
            client = await self._resolve_client(scope, Note(""))
            if client.rights.metrics == "none":
                words = f"a key of the role {client.role!r} reads no metrics; a reader's does"
                raise Refusal(403, "bad_role", words)
            is_ours = client.tenant == self.settings.tenant and client.role == "reader"
            reads_all = client.rights.metrics == "all" or is_ours
            tenant = None if reads_all else client.tenant
        if self._figures is not None:
            self._figures.under_way.set(len(self.calls))
        status, kind, body = await self.health.build_page(scope["path"], tenant=tenant)
        length = str(len(body)).encode()
        await reply.send_head(status, [(b"content-type", kind), (b"content-length", length)])
        await reply.pass_on(body, last=True)

    def reload(self) -> None:
        """Read the settings again; keys are looked at all the time."""
        if self.settings.current is not None:
            self.settings.current.reload("SIGHUP")

    def drain(self, *, linger: float = 0.0) -> float:
        """Become unready; return when what is under way is to be stopped, by the loop's clock."""
        if not self.health.draining:
            self.health.draining = True
            seconds = linger + self.settings.limits.drain_seconds
            self._ends_at = asyncio.get_running_loop().time() + seconds
        return self._ends_at

    def stop_all(self) -> None:
        """Stop all requests and turns: the gateway ends now."""
        self._ends_at = 0.0
        self.calls.stop_all()
        if self._sessions is not None:
            self._sessions.pool.stop_turns()

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await self._links.open()
        self.calls.start()
        if self.settings.keys is not None:
            await self.settings.keys.start()
        self.call_limits.limiter.start_trading()
        end_watches = [watch(self._count_fold)]
        if self._figures is not None:
            end_watches.append(watch(self._figures.count_pass))
        recording = asyncio.create_task(self._recorder.run()) if self._recorder else None
        metrics = self._figures.limits if self._figures is not None else None
        refreshing = asyncio.create_task(metrics.keep_fresh()) if metrics is not None else None
        if self.settings.current is not None:
            self.settings.current.start()
        await send({"type": "lifespan.startup.complete"})
        async with self._run_retention():
            await receive()
        # No request is left, only turns that go on without their clients.
        left = max(0.0, self.drain() - asyncio.get_running_loop().time())
        if self.settings.current is not None:
            await self.settings.current.close()
        self.calls.stop_all()
        if self._pages is not None:
            await self._pages.close()
        if self._sessions is not None:
            await self._sessions.close(seconds=left)
        if not await self.calls.wait_for_end(left):
            _log.error("%d requests did not end", len(self.calls))
        self.calls.close()
        for live in self._conversations.list_held() if self._conversations is not None else ():
            if live.narrator is not None:
                await live.narrator.close()
        await self._models.close()
        await self._links.close()
        if self.settings.keys is not None:
            await self.settings.keys.close()
        if recording is not None and self._recorder is not None:
            await cancel_tasks(recording)
            await self._recorder.flush()
        if refreshing is not None:
            await cancel_tasks(refreshing)
        await self.call_limits.limiter.end_trading()
        if self._own_counts is not None:
            await self._own_counts.close()
        if self._store is not None:
            await self._store.close()
        if self._audit is not None:
            self._audit.close()
        for end_watch in end_watches:
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


def _choose_tenant(client: Client, scope: Scope) -> Client:
    """Let an operator name the tenant whose sessions are meant; it owns none of another's."""
    given = [value for name, value in scope["headers"] if name == TENANT_HEADER]
    if not given:
        return client
    tenant = given[0].decode("utf-8", "replace")
    if len(given) > 1 or tenant != tenant.strip():
        raise Refusal(400, "bad_tenant", "X-Foldline-Tenant names one tenant, once")
    if tenant == client.tenant:
        return client
    if client.rights.reaches != "all":
        words = f"a key of the role {client.role!r} reaches its own tenant alone"
        raise Refusal(403, "bad_role", words)
    try:
        api_keys.check_words(tenant)
    except BadInput as fault:
        raise Refusal(400, "bad_tenant", str(fault)) from fault
    return client._replace(tenant=tenant, owner="")
