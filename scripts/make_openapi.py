"""The page docs/reference/openapi.md: routes, bodies and answers, from the OpenAPI document."""

import json
from collections.abc import Iterator
from typing import Any

import from_source as source
from from_source import cell, code, plain, table

from foldline.apps.gateway.api import schemas as shapes
from foldline.apps.gateway.api.routes import ROUTES, Route
from foldline.apps.gateway.api.sessions_api import build_openapi_document

WORDS = """What `/sessions/openapi.json` says, on one page. What a turn is, how streams and keys
work, who sees which session and what each status means is told in [Sessions over HTTP](http.md).
Every route may also answer with a [`Refusal`](#refusal). A body with a field that nobody reads is
refused."""
MEANINGS = {
    "Page.after": "Behind this name.",
    "Page.limit": "At most so many.",
    "Stretch.after": "Behind this place.",
    "Stretch.limit": "At most so many.",
    "Stretch.follow": "Seconds to wait for more.",
    "Handle.handle": "`log:12`, `log:12-40`, or a whole `recall(…)` call.",
    "Handle.most": "Tokens of a page; the whole if not said.",
    "Words.words": "Messages that hold all of them.",
    "Words.everywhere": "In all sessions that the client may see.",
    "Words.limit": "At most so many.",
    "Exporting.format": "`jsonl` is the log itself.",
    "Exporting.sight": "As the model sees it now, edits and all; of `openai` and `anthropic`.",
    "Waiting.wait": "Whether to wait for a turn that is under way.",
}
"""What is asked for in the address, which the document does not describe."""
_REF = "#/components/schemas/"


def page() -> str:
    """The whole page."""
    whole = json.loads(build_openapi_document())
    schemas: dict[str, Any] = whole["components"]["schemas"]
    made = [
        "# Routes and bodies",
        "<!-- made by scripts/make_reference.py from src/foldline/gateway/api: change that -->",
        WORDS,
        "## Routes",
    ]
    for path, methods in whole["paths"].items():
        for method, told in methods.items():
            route = next(one for one in ROUTES if _is(one, method, path))
            made += [
                f"### `{method.upper()} {path}`",
                *_route(told, route.query.__name__.removesuffix("Schema")),
            ]
    made.append("## Bodies and answers")
    for name in sorted(schemas, key=_short):
        made += [f"### {_short(name)}", *_shape(name, schemas[name])]
    return "\n\n".join(made) + "\n"


def _is(route: Route, method: str, path: str) -> bool:
    return (route.method.lower(), f"/sessions{route.path}") == (method, path)


def _route(told: dict[str, Any], query: str) -> Iterator[str]:
    yield plain(told["summary"])
    rows = [
        (
            f"`{one['name']}`",
            one["in"] + ("" if one["required"] else ", optional"),
            _type(one["schema"]),
            cell(one.get("description") or MEANINGS[f"{query}.{one['name']}"]),
        )
        for one in told["parameters"]
        if one["in"] != "path"
    ]
    if rows:
        yield table(("parameter", "where", "type", "meaning"), rows)
    lines: list[str] = []
    if body := told.get("requestBody"):
        schema = body["content"]["application/json"]["schema"]
        lines.append(f"Body: {_type(schema)}" + ("" if body["required"] else ", or none") + ".")
    for status, one in told["responses"].items():
        if status.startswith("2"):
            forms = ", ".join(_form(media, how["schema"]) for media, how in one["content"].items())
            lines.append(f"Answer {status}: {forms}.")
    yield "  \n".join(lines)


def _form(media: str, schema: dict[str, Any]) -> str:
    return _type(schema) if "$ref" in schema else f"`{media}`"


def _shape(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield plain(schema.get("description", ""))
    needed, meanings = schema.get("required", ()), _meanings(name)
    rows = [
        (
            f"`{field}`",
            _type(one),
            "needed" if field in needed else code(json.dumps(one["default"], ensure_ascii=False)),
            cell(meanings.get(field) or _described(one)),
        )
        for field, one in schema.get("properties", {}).items()
    ]
    if rows:
        yield table(("field", "type", "default", "meaning"), rows)
    elif schema["type"] == "array":
        yield f"A {_type(schema)}."


def _meanings(name: str) -> dict[str, str]:
    """What the source says below the fields of a shape, those that it has from others included."""
    kind = getattr(shapes, f"{name}Schema", None)
    mine = [one for one in getattr(kind, "__mro__", ()) if one.__module__ == shapes.__name__]
    return {one.name: one.told for kind in reversed(mine) for one in source.fields(kind)}


def _described(schema: dict[str, Any]) -> str:
    some = [schema, *schema.get("anyOf", ())]
    return next((one["description"] for one in some if "description" in one), "")


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if ref := schema.get("$ref"):
        name = _short(ref.removeprefix(_REF))
        return f"[`{name}`](#{name.lower()})"
    if some := schema.get("anyOf"):
        return " or ".join(_type(one) for one in some)
    if choices := schema.get("enum"):
        return " or ".join(f'`"{one}"`' for one in choices)
    match schema.get("type"):
        case None:
            return "anything"
        case "array" if some := schema.get("prefixItems"):
            return f"list of {', '.join(map(_type, some))}"
        case "array":
            return f"list of {_type(schema.get('items', {}))}"
        case "object" if "additionalProperties" in schema and "properties" not in schema:
            return f"object of {_type(schema['additionalProperties'])}"
        case kind:
            return f"{kind}{_bounds(schema)}"


def _bounds(schema: dict[str, Any]) -> str:
    lo, hi = schema.get("minimum"), schema.get("maximum")
    if hi is not None and hi >= 2**40:
        hi = None
    longest = schema.get("maxLength")
    if longest is not None:
        return f", at most {longest} characters"
    match lo, hi:
        case None, None:
            return ""
        case lo, None:
            return f" from {lo}"
        case lo, hi:
            return f", {lo or 0} to {hi}"


def _short(name: str) -> str:
    """A name without its module; two of one name are told apart by their room."""
    *rooms, last = name.split(".")
    return last if not rooms or rooms[-1] == "schemas" else f"{rooms[-1].title()}{last}"
