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

import re
from functools import cache
from typing import Any, TypeAlias
from urllib.parse import unquote

import msgspec

from foldline.apps.gateway.api.api_call import (
    EVENTS,
    JSON,
    OPENAPI,
    STATUSES,
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
from foldline.apps.gateway.api.pool import Pool, PoolPlace
from foldline.apps.gateway.api.routes import ROUTES, Route
from foldline.apps.gateway.api.schemas import LONGEST_NAME, NothingSchema, RefusalSchema, Shape
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


Json: TypeAlias = dict[str, Any]
_REF = "#/components/schemas/{name}"
_NAMES: Json = {
    "name": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME},
    "owner": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME, "pattern": r"^\S+$"},
    "at": {"type": "integer", "minimum": 0, "maximum": 2**40},
}
_TOLD = {
    "name": "The session.",
    "owner": "An owner of keys of this tenant: one word.",
    "at": "Where the request was recorded.",
    "Idempotency-Key": "A message sent twice under one key is added once, and answered once.",
    "Last-Event-ID": "Continue after this event.",
}
_EVENT: Json = {
    "type": "object",
    "description": "One server-sent event; `id` is a place in the log, where it has one.",
    "required": ["event", "data"],
    "properties": {
        "id": {"type": "string", "pattern": "^[0-9]+$"},
        "event": {"type": "string", "pattern": "^[a-z_]+$"},
        "data": {"type": "string", "contentMediaType": JSON},
    },
}
_ABOUT = (
    "Conversations that stay inside their model's window. Foldline keeps the history: post only "
    "what is new. Every error is {error: {kind, message, way_out}}. A client's key reaches the "
    "sessions of its owner, and reads those that are shared with that owner; a reader's reads "
    "figures without words; an admin's reaches all of its tenant, an operator's all tenants."
)
_KEY = (
    "A key of the gateway (fl-…). A gateway without keys, on loopback, asks for the token that "
    "`foldline serve` prints at its start (fl-local-…)."
)
_WAYS_IN: Json = {
    "bearer": {"type": "http", "scheme": "bearer", "description": _KEY},
    "header": {"type": "apiKey", "in": "header", "name": "X-Foldline-Key", "description": _KEY},
}
_KEPT_OUT: Json = {
    "401": {"description": "No key, or no token, that this gateway knows."},
    "403": {
        "description": "The role of the key does not allow this, or its models do not; without "
        "keys: a host or an origin that is not this machine's."
    },
}
"""What the gateway answers before the app sees a request; in the form of the client's dialect."""


@cache
def build_openapi_document() -> bytes:
    """Build the document as JSON."""
    types = {kind for route in ROUTES for kind in (route.body, route.gives) if kind is not None}
    ordered = sorted((*types, RefusalSchema), key=lambda kind: kind.__name__)
    _, schemas = msgspec.json.schema_components(ordered, ref_template=_REF)
    paths: Json = {}
    for route in ROUTES:
        operations = paths.setdefault(f"/sessions{route.path}", {})
        operations[route.method.lower()] = _build_operation(route)
    document: Json = {
        "openapi": "3.1.0",
        "info": {"title": "Foldline sessions", "version": "1", "description": _ABOUT},
        "paths": paths,
        "security": [{name: []} for name in _WAYS_IN],
        "components": {"schemas": schemas, "securitySchemes": _WAYS_IN},
    }
    # In the document a schema has its plain name: `Turn`, where the code says `TurnSchema`.
    text = re.sub(rb'(?<=\w)Schema(?=")', b"", msgspec.json.encode(document))
    return msgspec.json.format(text, indent=1)


def _build_operation(route: Route) -> Json:
    verb = route.does.__name__
    operation: Json = {
        "operationId": f"{verb}_past" if route.path.endswith("/{at}") else verb,
        "summary": route.summary,
        "parameters": [*_in_path(route), *_in_query(route.query), *_in_headers(route)],
        "responses": {
            **{str(status): _make_response(route) for status in (route.status, *route.also)},
            **{str(status): _make_error_response(status) for status in STATUSES},
            **_KEPT_OUT,
        },
    }
    if route.body is not None:
        shape = {"$ref": _REF.format(name=route.body.__name__)}
        needed = any(field.required for field in msgspec.structs.fields(route.body))
        operation["requestBody"] = {"required": needed, "content": {JSON: {"schema": shape}}}
    return operation


def _in_path(route: Route) -> list[Json]:
    names = [part.strip("{}") for part in route.parts if part.startswith("{")]
    return [_make_parameter(name, "path", _NAMES[name], needed=True) for name in names]


def _in_query(shape: type[Shape]) -> list[Json]:
    _, components = msgspec.json.schema_components((shape,), ref_template=_REF)
    whole = components[shape.__name__]
    needed = whole.get("required", ())
    return [
        _make_parameter(name, "query", _strip_null(schema), needed=name in needed)
        for name, schema in whole["properties"].items()
    ]


def _strip_null(schema: Json) -> Json:
    """Drop the null alternative: nothing in a query string is null."""
    others = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    kept = {key: one for key, one in schema.items() if key != "anyOf" and one is not None}
    return {**kept, **others[0]} if others else kept


def _in_headers(route: Route) -> list[Json]:
    schema = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"}
    digits = {"type": "string", "pattern": "^[0-9]{1,15}$"}
    return [
        _make_parameter(name, "header", digits if name == "Last-Event-ID" else schema, needed=False)
        for name in route.headers
    ]


def _make_parameter(name: str, where: str, schema: Json, *, needed: bool) -> Json:
    about = {"description": _TOLD[name]} if name in _TOLD else {}
    return {"name": name, "in": where, "required": needed, **about, "schema": schema}


def _make_response(route: Route) -> Json:
    ours = {} if route.gives is None else {"$ref": _REF.format(name=route.gives.__name__)}
    schemas = {JSON: ours, EVENTS: _EVENT}
    content: Json = {
        media: {"schema": schemas.get(media, {"type": "string"})} for media in route.media
    }
    about = "What was asked for."
    if route.gives is not None:
        about = (route.gives.__doc__ or "").partition("\n")[0]
    return {"description": about, "content": content}


def _make_error_response(status: int) -> Json:
    about = "A fault of the gateway itself." if status == 500 else "Refused, and why."  # noqa: PLR2004
    schema = {"$ref": _REF.format(name="Refusal")}
    return {"description": about, "content": {JSON: {"schema": schema}}}
