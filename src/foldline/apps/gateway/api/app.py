"""The session API as one ASGI app, to be mounted at /sessions.

    api = sessions_api(Place(store=store, model_of=upstream))
    await api.close(seconds=30)         # at the end: turns may end, then they are stopped

Knows which route a path means, and that every error has one form. Refuses to know who asks: that
stands in `scope["state"]`, put there by whoever has proven it.

    tenant    "local" where it is not said
    owner     whose sessions are made and seen; without one, all of the tenant's are seen
    admin     whether all of the tenant's are seen although there is an owner
"""

from typing import Any
from urllib.parse import unquote

from foldline.apps.gateway.api.calls import (
    OPENAPI,
    ApiAnswer,
    ApiCall,
    ClientGoneError,
    Receive,
    Reply,
    Scope,
    Send,
    answer,
    of_body,
    of_query,
    read_body,
)
from foldline.apps.gateway.api.document import document
from foldline.apps.gateway.api.errors import ErrorAnswer, Misfit, NotFound, told
from foldline.apps.gateway.api.pool import Pool, PoolPlace
from foldline.apps.gateway.api.routes import ROUTES, Route
from foldline.apps.gateway.api.schemas import Nothing
from foldline.errors import BadInput

_MOUNT = "/sessions"


def sessions_api(place: PoolPlace) -> "SessionsApi":
    """The session API over a store."""
    return SessionsApi(Pool(place))


class SessionsApi:
    """An ASGI app."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    async def close(self, *, seconds: float = 0.0) -> None:
        """Let turns end for so long, then stop them; the store stays open."""
        await self.pool.close(seconds=seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        call, status = None, 200
        try:
            parts = _parts(scope)
            if parts == (OPENAPI,) and scope["method"] == "GET":
                reply: Reply | ErrorAnswer = ApiAnswer(document())
            else:
                route, path = _route(scope["method"], parts)
                call, status = await self._call(scope, receive, route, path), route.status
                reply = await route.does(call)
        except ClientGoneError:
            return
        except Exception as fault:  # noqa: BLE001 - whatever it is, a client is told in one form
            reply = told(fault)
        await answer(send, call, reply, status=status)

    async def _call(
        self, scope: Scope, receive: Receive, route: Route, path: tuple[str, ...]
    ) -> ApiCall:
        headers = {name.decode("latin-1"): one.decode("latin-1") for name, one in scope["headers"]}
        body = await read_body(receive, most=self.pool.place.body)
        if body and route.body is None:
            raise BadInput("a body that nobody reads; leave it out")
        shape = route.body or Nothing
        state: dict[str, Any] = scope.get("state") or {}
        owner: str = state.get("owner") or ""
        return ApiCall(
            self.pool,
            state.get("tenant") or "local",
            owner,
            state.get("admin", not owner),
            path,
            headers,
            receive,
            of_body(body, shape, headers.get("content-type", "")),
            of_query(scope.get("query_string", b""), route.query),
        )


def _parts(scope: Scope) -> tuple[str, ...]:
    """The path behind the mount, part by part; each may hold what an address writes in percent."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    root: str = scope.get("root_path", "")
    path = raw.partition(b"?")[0].decode("ascii", "replace").removeprefix(root)
    if not root.endswith(_MOUNT):
        if path != _MOUNT and not path.startswith(f"{_MOUNT}/"):
            raise _nothing()
        path = path.removeprefix(_MOUNT)
    try:
        found = [unquote(part, errors="strict") for part in path.removeprefix("/").split("/")]
    except UnicodeDecodeError:
        raise BadInput("the address is no UTF-8") from None
    return tuple(found) if found != [""] else ()


def _route(method: str, parts: tuple[str, ...]) -> tuple[Route, tuple[str, ...]]:
    found = [(one, path) for one in ROUTES if (path := one.matches(parts)) is not None]
    for route, path in found:
        if route.method == method:
            return route, path
    if not found:
        raise _nothing()
    methods = ", ".join(sorted(route.method for route, _ in found))
    raise Misfit(
        405, f"{method[:20]} is not answered here; this address takes {methods}", allow=methods
    )


def _nothing() -> NotFound:
    return NotFound("there is nothing at this address; GET /sessions/openapi.json tells what is")
