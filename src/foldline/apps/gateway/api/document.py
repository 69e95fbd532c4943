"""The OpenAPI document, made from the table of routes and the structs: it cannot drift from them.

Knows OpenAPI 3.1. Refuses to know anything that the table does not say.
"""

from functools import cache
from typing import Any, TypeAlias

import msgspec

from foldline.apps.gateway.api.calls import EVENTS, JSON
from foldline.apps.gateway.api.errors import STATUSES
from foldline.apps.gateway.api.routes import ROUTES, Route
from foldline.apps.gateway.api.schemas import LONGEST_NAME, Refusal, Shape

Json: TypeAlias = dict[str, Any]
_REF = "#/components/schemas/{name}"
_NAMES: Json = {
    "name": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME},
    "at": {"type": "integer", "minimum": 0, "maximum": 2**40},
}
_TOLD = {
    "name": "The session.",
    "at": "Where the request was recorded.",
    "Idempotency-Key": "What is sent twice under one key is there once, and answered once.",
    "Last-Event-ID": "Go on behind this event.",
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
    "what is new. Every error is {error: {kind, message, way_out}}. A key reaches the sessions "
    "that were made under its name; an admin key reaches all of its tenant."
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
    "403": {"description": "Without keys: a name or a site that is not this machine's."},
}
"""What the gateway answers before it looks at a request; in the form of the client's dialect."""


@cache
def document() -> bytes:
    """The document, as JSON."""
    types = {kind for route in ROUTES for kind in (route.body, route.gives) if kind is not None}
    ordered = sorted((*types, Refusal), key=lambda one: one.__name__)
    _, schemas = msgspec.json.schema_components(ordered, ref_template=_REF)
    paths: Json = {}
    for route in ROUTES:
        paths.setdefault(f"/sessions{route.path}", {})[route.method.lower()] = _operation(route)
    whole: Json = {
        "openapi": "3.1.0",
        "info": {"title": "Foldline sessions", "version": "1", "description": _ABOUT},
        "paths": paths,
        "security": [{name: []} for name in _WAYS_IN],
        "components": {"schemas": schemas, "securitySchemes": _WAYS_IN},
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=1)


def _operation(route: Route) -> Json:
    verb = route.does.__name__
    found: Json = {
        "operationId": f"{verb}_past" if route.path.endswith("/{at}") else verb,
        "summary": route.summary,
        "parameters": [*_in_path(route), *_in_query(route.query), *_in_headers(route)],
        "responses": {
            **{str(status): _given(route) for status in (route.status, *route.also)},
            **{str(status): _refused(status) for status in STATUSES},
            **_KEPT_OUT,
        },
    }
    if route.body is not None:
        shape = {"$ref": _REF.format(name=route.body.__name__)}
        needed = any(one.required for one in msgspec.structs.fields(route.body))
        found["requestBody"] = {"required": needed, "content": {JSON: {"schema": shape}}}
    return found


def _in_path(route: Route) -> list[Json]:
    names = [part.strip("{}") for part in route.parts if part.startswith("{")]
    return [_parameter(one, "path", _NAMES[one], needed=True) for one in names]


def _in_query(shape: type[Shape]) -> list[Json]:
    _, components = msgspec.json.schema_components((shape,), ref_template=_REF)
    whole = components[shape.__name__]
    needed = whole.get("required", ())
    return [
        _parameter(name, "query", _plain(schema), needed=name in needed)
        for name, schema in whole["properties"].items()
    ]


def _plain(schema: Json) -> Json:
    """What may stand in an address: nothing there is null."""
    some = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    kept = {key: one for key, one in schema.items() if key != "anyOf" and one is not None}
    return {**kept, **some[0]} if some else kept


def _in_headers(route: Route) -> list[Json]:
    schema = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"}
    digits = {"type": "string", "pattern": "^[0-9]{1,15}$"}
    return [
        _parameter(one, "header", digits if one == "Last-Event-ID" else schema, needed=False)
        for one in route.headers
    ]


def _parameter(name: str, where: str, schema: Json, *, needed: bool) -> Json:
    told = {"description": _TOLD[name]} if name in _TOLD else {}
    return {"name": name, "in": where, "required": needed, **told, "schema": schema}


def _given(route: Route) -> Json:
    ours = {} if route.gives is None else {"$ref": _REF.format(name=route.gives.__name__)}
    schemas = {JSON: ours, EVENTS: _EVENT}
    content: Json = {
        media: {"schema": schemas.get(media, {"type": "string"})} for media in route.media
    }
    told = "What was asked for." if route.gives is None else _doc(route.gives)
    return {"description": told, "content": content}


def _doc(shape: type[Any]) -> str:
    return (shape.__doc__ or "").partition("\n")[0]


def _refused(status: int) -> Json:
    told = "A fault of the gateway itself." if status == 500 else "Refused, and why."  # noqa: PLR2004
    return {
        "description": told,
        "content": {JSON: {"schema": {"$ref": _REF.format(name="Refusal")}}},
    }
