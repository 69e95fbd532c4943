"""The session API as one ASGI app, to be mounted at /sessions.

    api = sessions_api(PoolPlace(store=store, model_of=upstream))
    await api.close(seconds=30)         # lets turns end, then stops them

The application that mounts it checks who asks, and says so in `scope["state"]`; a request without
one of these answers 500 and does nothing:

    tenant    whose sessions they are
    owner     whose sessions are made and seen; "" for none in particular
    admin     whether all of the tenant's are seen although there is an owner
    words     whether what was said may be read and changed
    models    `ModelLimits`: the models that may be asked
    is_valid  an async function: whether the client may still listen to a long answer
"""

from typing import Any
from urllib.parse import unquote

from foldline.apps.gateway.api.api_call import (
    OPENAPI,
    ApiAnswer,
    ApiCall,
    ClientGoneError,
    ErrorAnswer,
    Forbidden,
    Misfit,
    NotFound,
    Receive,
    Reply,
    Scope,
    Send,
    build_error_answer,
    of_body,
    of_query,
    read_body,
    send_reply,
    sound_name,
)
from foldline.apps.gateway.api.document import build_openapi_document
from foldline.apps.gateway.api.pool import Pool, PoolPlace
from foldline.apps.gateway.api.routes import ROUTES, Route
from foldline.apps.gateway.api.schemas import NothingSchema
from foldline.apps.gateway.session_shares import is_shared
from foldline.errors import BadInput
from foldline.stores.base import Name

_MOUNT = "/sessions"


def sessions_api(place: PoolPlace) -> "SessionsApi":
    """Make the session API over a store."""
    return SessionsApi(Pool(place))


class SessionsApi:
    """The session API as an ASGI app."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    async def close(self, *, seconds: float = 0.0) -> None:
        """Let turns end for `seconds`, then stop them; the store stays open."""
        await self.pool.close(seconds=seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        call, status = None, 200
        try:
            parts = _split_path(scope)
            if parts == (OPENAPI,) and scope["method"] == "GET":
                reply: Reply | ErrorAnswer = ApiAnswer(build_openapi_document())
            else:
                route, path = _match_route(scope["method"], parts)
                call, status = await self._build_call(scope, receive, route, path), route.status
                reply = await route.does(call)
        except ClientGoneError:
            return
        except Exception as fault:  # noqa: BLE001 - every error has one form for the client
            reply = build_error_answer(fault)
        await send_reply(send, call, reply, status=status)

    async def _build_call(
        self, scope: Scope, receive: Receive, route: Route, path: tuple[str, ...]
    ) -> ApiCall:
        state: dict[str, Any] = scope["state"]
        tenant, owner, words = state["tenant"], state["owner"], state["words"]
        if not words and route.access != "figures":
            await self._check_shared(route, Name(tenant, path[0]) if path else None, owner)
        pairs = scope["headers"]
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in pairs}
        body = await read_body(receive, most=self.pool.place.body)
        if body and route.body is None:
            raise BadInput("a body that nobody reads; leave it out")
        shape = route.body or NothingSchema
        return ApiCall(
            self.pool,
            tenant,
            owner,
            getattr(state.get("client"), "name", ""),
            state["admin"],
            words,
            route.access != "owner",
            state["models"],
            state["is_valid"],
            path,
            headers,
            receive,
            of_body(body, shape, headers.get("content-type", "")),
            of_query(scope.get("query_string", b""), route.query),
            meter=state.get("meter"),
        )

    async def _check_shared(self, route: Route, name: Name | None, owner: str) -> None:
        """Refuse words to a reader; what is shared with its owner it may read."""
        if route.access == "words" and name is not None:
            sound_name(name.session)
            if await is_shared(self.pool.place.store, name, owner):
                return
        raise Forbidden(
            "this key reads figures without words; an owner or an admin may share a session with it"
        )


def _split_path(scope: Scope) -> tuple[str, ...]:
    """Split the path below the mount into its decoded parts."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    root: str = scope.get("root_path", "")
    path = raw.partition(b"?")[0].decode("ascii", "replace").removeprefix(root)
    if not root.endswith(_MOUNT):
        if path != _MOUNT and not path.startswith(f"{_MOUNT}/"):
            raise _make_not_found()
        path = path.removeprefix(_MOUNT)
    try:
        parts = [unquote(part, errors="strict") for part in path.removeprefix("/").split("/")]
    except UnicodeDecodeError:
        raise BadInput("the address is no UTF-8") from None
    return tuple(parts) if parts != [""] else ()


def _match_route(method: str, parts: tuple[str, ...]) -> tuple[Route, tuple[str, ...]]:
    matches = {
        route.method: (route, path)
        for route in ROUTES
        if (path := route.match_path(parts)) is not None
    }
    if method in matches:
        return matches[method]
    if not matches:
        raise _make_not_found()
    methods = ", ".join(sorted(matches))
    raise Misfit(
        405, f"{method[:20]} is not answered here; this address takes {methods}", allow=methods
    )


def _make_not_found() -> NotFound:
    return NotFound("there is nothing at this address; GET /sessions/openapi.json tells what is")
