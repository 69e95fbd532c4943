"""Which path is whose: raw ASGI, from a request's head to whoever serves it.

    /healthz, /readyz, /metrics     health
    /sessions/…                     the session API, where there is one; without keys it asks
                                    for the token of this start (`local_access`)
    everything else                 relayed to the operator's upstream

Knows routes and who may take them. Refuses to know how a request is relayed (`relay`).
"""

import asyncio
import logging
from typing import Any, TypeAlias

from foldline.apps.gateway import health, keys, local_access
from foldline.apps.gateway.api import PoolPlace, sessions_api
from foldline.apps.gateway.audit import Audit, Figures, Note
from foldline.apps.gateway.calls import WATCHED, Calls
from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.health import GatewayHealth
from foldline.apps.gateway.keys import Client
from foldline.apps.gateway.limits import Message, Receive, checked_path
from foldline.apps.gateway.models import Models
from foldline.apps.gateway.relay import Relay, RelayRequest, Reply, Send
from foldline.apps.gateway.settings import ANTHROPIC, OPENAI, GatewaySettings
from foldline.apps.gateway.upstream import Links
from foldline.dialects import base
from foldline.errors import BadInput
from foldline.proxy.conversations import Conversations
from foldline.stores.base import Store

Scope: TypeAlias = Message
SESSIONS = "/sessions"
_LONGEST = 200  # letters of a path that are noted
_log = logging.getLogger("foldline.gateway")


class Gateway:
    """The whole gateway as one ASGI application."""

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        store: Store | None = None,
        conversations: Conversations | None = None,
        sessions: bool = False,
        audit: Audit | None = None,
    ) -> None:
        if store is not None and sessions and settings.keys is None and settings.token is None:
            raise BadInput("sessions without keys ask for a token; make one by local.make_token()")
        self.settings = settings
        self._store, self._audit = store, audit
        self._models = Models(settings)
        self._sessions = (
            sessions_api(
                PoolPlace(
                    store=store,
                    model_of=self._models.of,
                    caps=settings.caps,
                    body=settings.limits.body,
                )
            )
            if store is not None and sessions
            else None
        )
        limits = settings.limits
        shortest = min(limits.body_seconds, limits.first_seconds, limits.idle_seconds)
        self.calls = Calls(each=limits.each, every=min(1.0, shortest / 4))
        self._links = Links(limits, settings.network)
        self._relay = Relay(
            settings, links=self._links, calls=self.calls, conversations=conversations
        )
        self._figures = _figures()
        self.health = GatewayHealth(store, self._figures, tenant=settings.tenant)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the life of the process."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        note = Note(scope["path"][:_LONGEST])
        reply = Reply(send, note)
        speaks = _speaks(scope)
        try:
            if scope["path"] in health.PATHS:
                await self._shown(scope, reply)
                return
            path = checked_path(scope["method"], scope["raw_path"])
            _stays(scope)
            if self._sessions is not None and _under(path, SESSIONS):
                client = self._who_of_sessions(scope, note)
                await self._sessions(_mounted(scope, client), receive, _noting(send, note))
                return
            client = self._who(scope, note)
            asked = self._asked(scope, path, client, speaks)
            await self._relay.serve(asked, reply, note=note, receive=receive)
        except Refusal as refusal:
            note.ended = "refused"
            await reply.refuse(refusal, speaks)
        except Exception:  # noqa: BLE001 - a fault of ours ends one request, in words
            _log.exception("a fault of the gateway itself at %s", note.route)
            note.ended = "fault"
            words = "a fault of the gateway itself; its log says more"
            await reply.refuse(Refusal(500, "fault", words), speaks)
        finally:
            self._noted(note)

    def _noted(self, note: Note) -> None:
        if note.route in health.PATHS:
            return
        if self._figures is not None:
            self._figures.under_way.set(len(self.calls))
            self._figures.count(note)
        if self._audit is not None:
            self._audit.write(note)

    def _who(self, scope: Scope, note: Note) -> Client:
        found = keys.who(scope["headers"], self.settings.keys, tenant=self.settings.tenant)
        if not isinstance(found, Client):
            raise Refusal(401, "bad_key", found.why)
        note.tenant, note.key = found.tenant, found.name
        return found

    def _who_of_sessions(self, scope: Scope, note: Note) -> Client:
        """Who asks for sessions: without keys, whoever started the gateway."""
        token = self.settings.token
        if self.settings.keys is not None or token is None:
            return self._who(scope, note)
        local_access.check_request(scope, token)
        note.tenant = self.settings.tenant
        return Client(self.settings.tenant, "", admin=True)

    def _asked(self, scope: Scope, path: str, client: Client, speaks: str) -> RelayRequest:
        if self._store is not None and _under(path, SESSIONS):  # meant for us, so not relayed
            words = "this gateway shows no sessions: start it on loopback, or with --keys"
            raise Refusal(404, "no_sessions", words)
        upstream = self.settings.upstream(speaks)
        if upstream is None:
            raise Refusal(404, "no_upstream", f"this gateway has no upstream that speaks {speaks}")
        return RelayRequest(
            scope["method"],
            path,
            scope["query_string"].decode("latin-1"),
            scope["headers"],
            client,
            speaks,
            base.at(path) if scope["method"] == "POST" else None,
            upstream,
            scope.get(WATCHED),
        )

    async def _shown(self, scope: Scope, reply: Reply) -> None:
        """A page of health; figures are shown to those who may come in."""
        if scope["method"] not in ("GET", "HEAD"):
            raise Refusal(405, "bad_method", f"{scope['path']} is only looked at")
        if scope["path"] == health.FIGURES:
            self._who(scope, Note(""))
        if self._figures is not None:
            self._figures.under_way.set(len(self.calls))
        status, kind, body = await self.health.page(scope["path"])
        length = str(len(body)).encode()
        await reply.begin(status, [(b"content-type", kind), (b"content-length", length)])
        await reply.pass_on(body, last=True)

    def drain(self) -> None:
        """The end is near: be no longer ready, and stop what is not over in time."""
        if not self.health.draining:
            self.health.draining = True
            seconds = self.settings.limits.drain_seconds
            asyncio.get_running_loop().call_later(seconds, self.calls.stop)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await self._links.open()
        self.calls.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.health.draining = True
        self.calls.stop()
        if self._sessions is not None:
            await self._sessions.close(seconds=self.settings.limits.drain_seconds)
            await self._models.close()
        if not await self.calls.over(self.settings.limits.drain_seconds):
            _log.error("%d requests did not end", len(self.calls))
        self.calls.close()
        await self._links.close()
        if self._store is not None:
            await self._store.close()
        if self._audit is not None:
            self._audit.close()
        await send({"type": "lifespan.shutdown.complete"})


def _speaks(scope: Scope) -> str:
    """Whose client asks: by the path, or by a header that only one SDK sends."""
    if scope["path"].startswith("/v1/messages"):
        return ANTHROPIC
    has = any(name == b"anthropic-version" for name, _ in scope["headers"])
    return ANTHROPIC if has else OPENAI


def _stays(scope: Scope) -> None:
    """Refuse an offer of another protocol that `server` has not seen: its body was not read."""
    if any(name == b"upgrade" for name, _ in scope["headers"]):
        words = "another protocol was offered; send the request without `Upgrade`"
        raise Refusal(400, "upgrade", words, close=True)


def _noting(send: Send, note: Note) -> Send:
    """The same, and what passes is noted."""

    async def noting(message: Message) -> None:
        note.status = message.get("status", note.status)
        note.sent += len(message.get("body", b""))
        await send(message)

    return noting


def _under(path: str, root: str) -> bool:
    return path == root or path.startswith(root + "/")


def _mounted(scope: Scope, client: Client) -> Scope:
    """The scope that an application below a path gets; its `state` says who asks."""
    state: dict[str, Any] = {
        **scope.get("state", {}),
        "client": client,
        "tenant": client.tenant,
        "owner": client.owner,
        "admin": client.admin,
    }
    return {**scope, "root_path": scope.get("root_path", "") + SESSIONS, "state": state}


def _figures() -> Figures | None:
    from importlib.util import find_spec  # noqa: PLC0415 - once

    return Figures() if find_spec("prometheus_client") else None
