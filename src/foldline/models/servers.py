"""Asks a server for the window, largest answer and prices of its models.

Never raises: a missing or nonsensical answer counts as none.

| server | where | window in force, else the most it could be |
|---|---|---|
| vLLM, SGLang | `/v1/models` | `max_model_len` |
| OpenRouter, Together | `/v1/models` | `context_length` (and prices) |
| llama.cpp | `/props`, `/v1/models` | `….n_ctx`, else `meta.n_ctx_train` |
| LM Studio | `/api/v0/models` | `loaded_context_length`, else `max_context_length` |
| Ollama | `/api/ps`, `/api/show` | `context_length`, else `num_ctx`, else `….context_length` |
"""

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from foldline.core.prices import FREE, Prices, make_prices
from foldline.dialects.json_slices import dict_of, list_of
from foldline.dialects.model_names import write_model_name

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

_LEAST, _MOST = 256, 100_000_000  # tokens: no model's window is outside
_BYTES = 20_000_000  # of a response: the longest lists of models have two million
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)
_MILLION = 1_000_000
_BY_ONE = (  # our name of a price, and the name in lists that state it per token
    ("input", "prompt"),
    ("output", "completion"),
    ("read", "input_cache_read"),
    ("write", "input_cache_write"),
)
_BY_MILLION = (("input", "input"), ("output", "output"), ("read", "cached_input"))


@dataclass(frozen=True, slots=True)
class Reported:
    """What a server reports about one model; None is not reported."""

    window: int | None
    max_output: int | None
    prices: Prices | None
    source: str
    """The path and the field that the window is from."""


async def ask(url: str, model: str, *, key: str = "", seconds: float = 3.0) -> Reported | None:
    """Ask the server at a base address about a model; `seconds` limits each request."""
    import asyncio  # noqa: PLC0415 - sessions import this module, and few of them ask

    return await asyncio.to_thread(fetch_report, url, model, key=key, seconds=seconds)


def fetch_report(url: str, model: str, *, key: str = "", seconds: float = 3.0) -> Reported | None:
    """Do the same as `ask`, blocking."""
    site = _Site(url.rstrip("/").removesuffix("/v1"), key, seconds)
    if not site.root.lower().startswith(("http://", "https://")):
        return None
    entry = _find_entry(site.fetch_json("/v1/models"), model)
    found = _parse_entry(entry)
    if found.window is None or found.source.endswith("n_ctx_train"):
        window, source = _find_window(site, model)
        if window is not None:
            found = Reported(window, found.max_output, found.prices, source)
    if not (found.window or found.max_output or found.prices):
        return None
    return replace(found, prices=FREE) if not found.prices and is_own_address(url) else found


def is_own_address(url: str) -> bool:
    """Whether an address is on this machine or in a private network: its answers cost nothing."""
    from ipaddress import ip_address  # noqa: PLC0415 - as above
    from urllib.parse import urlsplit  # noqa: PLC0415

    host = (urlsplit(url).hostname or "").rstrip(".")
    try:
        return ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".localhost", ".local", ".lan"))


def fetch_model_names(
    address: str, *, key: str = "", vendor: str = "openai", seconds: float = 5.0
) -> list[str]:
    """List the models that a server has, by the names it knows them by; empty if it does not say.

    `vendor` is how it takes the key: "anthropic", "google", or "openai" for all others.
    """
    site = _Site(address.rstrip("/").removesuffix("/v1"), "", seconds)
    if not site.root.lower().startswith(("http://", "https://")):
        return []
    heads = {
        "anthropic": {"x-api-key": key, "anthropic-version": "2023-06-01"},
        "google": {"x-goog-api-key": key},
    }.get(vendor, {"authorization": f"Bearer {key}"})
    path = "/v1beta/models?pageSize=1000" if vendor == "google" else "/v1/models?limit=1000"
    body = dict_of(
        site.fetch_json(path if key else path.partition("?")[0], heads=heads if key else {})
    )
    entries = map(dict_of, list_of(body.get("data", body.get("models"))))
    names = (str(one.get("id") or one.get("name") or "") for one in entries)
    return sorted({name.removeprefix("models/") for name in names if name})


@dataclass(frozen=True, slots=True)
class _Site:
    root: str
    key: str
    seconds: float

    def fetch_json(
        self, path: str, body: object = None, *, heads: dict[str, str] | None = None
    ) -> Any:
        """Fetch a path's JSON; None on any failure."""
        import urllib.request  # noqa: PLC0415 - as above
        from http.client import HTTPException  # noqa: PLC0415

        heads = {
            "accept": "application/json",
            "content-type": "application/json",
            **(heads or {}),
        }
        if self.key:
            heads["authorization"] = f"Bearer {self.key}"
        sent = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(self.root + path, sent, heads)  # noqa: S310 - checked
            with _build_opener().open(request, timeout=self.seconds) as answer:
                return json.loads(answer.read(_BYTES))
        except (OSError, ValueError, HTTPException, RecursionError):
            return None


@cache
def _build_opener() -> "OpenerDirector":
    """Build what opens addresses and follows no redirect: urllib would send the key along."""
    import urllib.request  # noqa: PLC0415 - as above

    class Staying(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any, **__: Any) -> None:
            """Follow none."""

    return urllib.request.build_opener(Staying)


def _parse_entry(entry: dict[str, Any]) -> Reported:
    """Parse an entry of `/v1/models`, by whichever field its server has."""
    top = dict_of(entry.get("top_provider"))
    window, field = _find_first_count(
        ("max_model_len", entry.get("max_model_len")),
        ("loaded_context_length", entry.get("loaded_context_length")),
        ("top_provider.context_length", top.get("context_length")),
        ("context_length", entry.get("context_length")),
        ("max_context_length", entry.get("max_context_length")),
        ("meta.n_ctx_train", dict_of(entry.get("meta")).get("n_ctx_train")),
    )
    most = _parse_count(top.get("max_completion_tokens"))
    prices = _parse_prices(dict_of(entry.get("pricing")))
    return Reported(window, most, prices, f"/v1/models {field}")


def _find_window(site: _Site, model: str) -> tuple[int | None, str]:
    """Find the window in force on the paths that only one kind of server has."""
    props = dict_of(dict_of(site.fetch_json("/props")).get("default_generation_settings"))
    if window := _parse_count(props.get("n_ctx")):
        return window, "/props default_generation_settings.n_ctx"
    studio = _find_entry(site.fetch_json("/api/v0/models"), model)
    window, field = _find_first_count(
        ("loaded_context_length", studio.get("loaded_context_length")),
        ("max_context_length", studio.get("max_context_length")),
    )
    if window:
        return window, f"/api/v0/models {field}"
    running = _find_entry(site.fetch_json("/api/ps"), model)
    if window := _parse_count(running.get("context_length")):
        return window, "/api/ps context_length"
    shown = dict_of(site.fetch_json("/api/show", {"model": write_model_name(model, site.root)}))
    chosen = _NUM_CTX.search(str(shown.get("parameters", "")))
    if chosen and (window := _parse_count(int(chosen[1][:12]))):
        return window, "/api/show num_ctx"
    facts = dict_of(shown.get("model_info"))
    trained = [value for name, value in facts.items() if name.endswith(".context_length")]
    window = next((size for value in trained if (size := _parse_count(value))), None)
    return window, "/api/show model_info context_length"


def _find_entry(body: Any, model: str) -> dict[str, Any]:
    """Find the entry of a list that has the model's name, or its only entry."""
    listed = dict_of(body).get("data", dict_of(body).get("models"))
    entries = [*map(dict_of, list_of(body) or list_of(listed))]
    for wanted in (model, model.partition("/")[2], model.rpartition("/")[2]):
        for entry in entries:
            called = {entry.get("id"), entry.get("name"), entry.get("model")}
            if wanted and (wanted in called or f"{wanted}:latest" in called):
                return entry
    return entries[0] if len(entries) == 1 else {}


def _find_first_count(*fields: tuple[str, Any]) -> tuple[int | None, str]:
    return next(
        ((size, name) for name, value in fields if (size := _parse_count(value))), (None, "")
    )


def _parse_count(value: Any) -> int | None:
    """Return a plausible number of tokens, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124
        return None
    return int(value) if _LEAST <= value <= _MOST else None


def _parse_prices(said: dict[str, Any]) -> Prices | None:
    """Parse prices into dollars per million tokens; some servers state them per token, as text."""
    by_one = "prompt" in said
    names = _BY_ONE if by_one else _BY_MILLION
    found: dict[str, float | None] = {}
    for ours, theirs in names:
        try:
            price = float(said.get(theirs) or 0)
        except (TypeError, ValueError):
            price = 0.0
        found[ours] = (
            round(price * (_MILLION if by_one else 1), 6) if 0 < price < _MILLION else None
        )
    return make_prices(**cast("dict[str, Any]", found)) if found.get("input") else None
