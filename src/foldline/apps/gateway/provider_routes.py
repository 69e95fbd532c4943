"""Which routes of a provider, and which models, clients may use.

By default the routes that ask a model, count its tokens or list models. Files, batches, stored
answers and an organisation's own routes belong to whoever has the provider's key, so they pass only
where the operator names them:

    GET /v1/files/*               one method; `*` stands for one step of the path
    * /v1/batches/**              any method; `**` stands for any further steps, or none
    openai=GET /v1/files/*        only towards that upstream
    *                             everything

A path is compared as the client wrote it, step by step. One that servers may read in different ways
(an escaped slash, an empty step, another case) is compared as it stands, and so is not allowed.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, cast
from urllib.parse import unquote

import msgspec

from foldline.apps.gateway.error_response import Refusal
from foldline.dialects.base import list_vendors
from foldline.dialects.json_slices import find_fields
from foldline.errors import BadInput, WireError

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_PREFIX: Final = r"(?:/(?:v[0-9][a-z0-9]{0,8}|openai|anthropic|api|paas|deployments/[^/]+))*"
"""What may stand before a default route: a version, or the name of an API that is spoken."""
_GOOGLE: Final = (
    r"(?:/projects/[^/]+/locations/[^/]+)?(?:/publishers/[^/]+)?/(?:models|tunedModels|endpoints)/"
)
_DEFAULT: Final = tuple(
    (methods, re.compile(_PREFIX + path))
    for methods, path in (
        (("POST",), "/(?:chat/completions|completions|embeddings|moderations|rerank)"),
        (("POST",), "/responses(?:/compact|/input_tokens)?"),
        (("POST",), "/audio/(?:speech|transcriptions|translations)"),
        (("POST",), "/images/(?:generations|edits)"),
        (("POST",), "/messages(?:/count_tokens)?|/complete"),
        (("POST",), "/interactions"),
        (
            ("POST",),
            _GOOGLE + "[^/:]+:(?:generateContent|streamGenerateContent|rawPredict|streamRawPredict"
            "|countTokens|embedContent|batchEmbedContents|predict)",
        ),
        (("POST",), "/model/[^/]+/(?:invoke|invoke-with-response-stream|converse|converse-stream)"),
        # Google's operations of a model hold the answers of whoever began them.
        (("GET", "HEAD"), "/models(?:/(?!operations(?:/|$))[^/]+){0,3}"),
    )
)  # fmt: skip
_SAFE: Final = re.compile(r"[A-Za-z0-9._:@~+=,$!()*'-]+")  # a step that all servers read alike
_OVERRIDES: Final = frozenset(
    (
        b"x-http-method-override", b"x-http-method", b"x-method-override", b"x-original-url",
        b"x-rewrite-url",
    )
)  # fmt: skip
"""Headers by which some servers serve another route than the one that was asked for."""
_ALL: Final = "*"
_IN_PATH: Final = re.compile(
    r"/(?:models|tunedModels|endpoints)/([^/:]+):|/model/([^/]+)(?=/)|/deployments/([^/]+)(?=/)"
)


class AllowedRoute(NamedTuple):
    """A route that the operator names."""

    vendor: str
    """The upstream's, or "" for all."""
    method: str
    """Or `*` for all."""
    steps: tuple[str, ...]

    def matches(self, vendor: str, method: str, steps: Sequence[str]) -> bool:
        """Whether a request is to this route."""
        if self.vendor not in ("", vendor) or self.method not in (_ALL, method):
            return False
        rest = self.steps
        if rest[-1:] == ("**",):
            rest, steps = rest[:-1], steps[: len(rest) - 1]
        if len(rest) != len(steps):
            return False
        return all(own in (_ALL, given) for own, given in zip(rest, steps, strict=True))


EVERY_ROUTE: Final = AllowedRoute("", _ALL, ("**",))


def parse_models(given: Iterable[str]) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Parse patterns as an operator writes them: `claude-*`, or for a tenant `acme=claude-*`."""
    every: list[str] = []
    tenants: dict[str, tuple[str, ...]] = {}
    for one in given:
        tenant, is_named, pattern = one.rpartition("=")
        if not pattern or (is_named and not tenant):
            raise BadInput(f"--allow-model {one!r}: write PATTERN, or TENANT=PATTERN")
        if is_named:
            tenants[tenant] = (*tenants.get(tenant, ()), pattern)
        else:
            every.append(pattern)
    return tuple(every), tenants


def parse_allowed(given: Iterable[str]) -> tuple[AllowedRoute, ...]:
    """Parse routes as an operator writes them: `GET /v1/files/*`, `openai=* /v1/batches/**`."""
    return tuple(map(_parse_route, given))


def _parse_route(text: str) -> AllowedRoute:
    if text.strip() == _ALL:
        return EVERY_ROUTE
    vendor, is_named, rest = text.strip().partition("=")
    if not is_named or "/" in vendor:
        vendor, rest = "", text.strip()
    method, _, path = rest.partition(" ")
    path = path.strip()
    steps = tuple(path[1:].split("/"))
    if (
        (vendor and vendor not in list_vendors())
        or method not in (*_METHODS, _ALL)
        or not path.startswith("/")
        or "**" in steps[:-1]
        or not all(_SAFE.fullmatch(one) for one in steps)
        or any("*" in one and one not in (_ALL, "**") for one in steps)
    ):
        raise BadInput(
            f"{text!r} is no route; write METHOD PATH like 'GET /v1/files/*', {_ALL} for any "
            "method or step, ** at the end for any further steps, openai=… for one upstream"
        )
    return AllowedRoute(vendor, method, steps)


@dataclass(frozen=True, slots=True)
class RouteFilter:
    """What may pass: routes, and models."""

    routes: tuple[AllowedRoute, ...] = ()
    """Beside those that are allowed by default."""
    is_open: bool = False
    """Whether all routes pass: clients have their own provider's keys."""
    models: tuple[str, ...] = ()
    """Patterns of models; () for all."""
    tenant_models: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The same by tenant, in addition."""

    def check_route(
        self,
        vendor: str,
        method: str,
        path: str,
        *,
        headers: Iterable[tuple[bytes, bytes]],
        own: Sequence[str] = (),
    ) -> bool:
        """Refuse a route that is not allowed; return whether the operator named this very route.

        `own` are routes that the key alone may use.
        """
        routes = (*self.routes, *parse_allowed(own)) if own else self.routes
        if self.is_open or EVERY_ROUTE in routes:
            return False
        if any(name in _OVERRIDES for name, _ in headers):
            raise Refusal(403, "bad_route", "a header asks for another route than the request does")
        steps = [unquote(step) for step in path[1:].split("/")]
        if all(map(_SAFE.fullmatch, steps)):
            if any(one.matches(vendor, method, steps) for one in routes):
                return True
            plain = "/" + "/".join(steps)
            if any(method in methods and one.fullmatch(plain) for methods, one in _DEFAULT):
                return False
        if method == "HEAD" and path == "/":  # by which clients try whether anybody is there
            return False
        raise Refusal(
            403,
            "bad_route",
            f"this gateway does not pass {method} to this route; its operator may allow it with "
            "--allow-route",
        )

    def limit_models(self, tenant: str, own: Sequence[str]) -> "ModelLimits":
        """Return which models a key may ask; `own` are the key's patterns."""
        sets = (self.models, self.tenant_models.get(tenant, ()), tuple(own))
        return ModelLimits(tuple(one for one in sets if one))


class ModelLimits(NamedTuple):
    """Which models may be asked."""

    sets: tuple[tuple[str, ...], ...] = ()
    """Of each set of patterns a model has to fit one; () allows all models."""
    must_name: bool = True
    """Whether a body has to name a model."""

    def check_names(self, names: Iterable[str]) -> None:
        """Refuse a model that is not allowed."""
        for name in names:
            if any(not any(fnmatchcase(name, one) for one in each) for each in self.sets):
                words = f"the model {name[:80]!r} is not allowed for this key at this gateway"
                raise Refusal(403, "bad_model", words)

    def check_request(self, path: str, body: bytes | None) -> None:
        """Refuse a request for a model that is not allowed; a body of None cannot be read."""
        names = list_path_models(path)
        try:
            found = None if body is None else _list_body_models(body) if body else []
        except WireError:
            found = None
        names_none = found is None or bool(body and not found and not names)
        if names_none and self.must_name:
            words = "this gateway allows some models only, and the body names none to be read"
            raise Refusal(403, "bad_model", words)
        self.check_names([*names, *(found or ())])


ALL_MODELS: Final = ModelLimits()


def list_path_models(path: str) -> list[str]:
    """List the models that a path names."""
    found = [name for one in _IN_PATH.findall(unquote(path)) for name in one if name]
    return [_strip_name(name) for name in found]


def _list_body_models(body: bytes) -> list[str]:
    """List the models that a body names; raises `WireError` if servers may read it otherwise."""
    # Some servers read the names of fields in any case, cut at a NUL, or without blanks.
    named = [
        msgspec.json.decode(body[place.start : place.end])
        for name, place in find_fields(body).items()
        if name.partition("\0")[0].strip().lower() in ("model", "models")
    ]
    found: list[str] = []
    for one in named:
        for name in cast("list[Any]", one) if isinstance(one, list) else [one]:
            if not isinstance(name, str):
                raise WireError("a model's name is no text")
            found.append(_strip_name(name))
    return found


def _strip_name(name: str) -> str:
    """Return a model's name without the collection that Google writes before it."""
    return name.removeprefix("models/")
