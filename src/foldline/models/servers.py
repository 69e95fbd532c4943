"""What a server says of its own models: windows, the largest answer, prices.

Knows the lists and pages of the servers that people run, and which of their numbers is the window
in force. Refuses to fail: who says nothing, or nonsense, has said nothing.

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
from dataclasses import dataclass
from typing import Any, cast

from foldline.core.prices import Prices, known

_LEAST, _MOST = 256, 100_000_000  # tokens: no model's window lies outside
_BYTES = 20_000_000  # of an answer: a list of every model there is has two
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)
_MILLION = 1_000_000
_BY_ONE = (  # our word for a price, and that of who says it for one token
    ("input", "prompt"),
    ("output", "completion"),
    ("read", "input_cache_read"),
    ("write", "input_cache_write"),
)
_BY_MILLION = (("input", "input"), ("output", "output"), ("read", "cached_input"))


@dataclass(frozen=True, slots=True)
class Reported:
    """What a server says of one model; None is unsaid."""

    window: int | None
    max_output: int | None
    prices: Prices | None
    source: str
    """The page and the field that said so."""


async def ask(url: str, model: str, *, key: str = "", seconds: float = 3.0) -> Reported | None:
    """Ask the server at a base address what it says of a model, each page for so long at most."""
    import asyncio  # noqa: PLC0415 - sessions import this room, and few of them ask

    return await asyncio.to_thread(reported, url, model, key=key, seconds=seconds)


def reported(url: str, model: str, *, key: str = "", seconds: float = 3.0) -> Reported | None:
    """The same, in this thread."""
    site = _Site(url.rstrip("/").removesuffix("/v1"), key, seconds)
    if not site.root.lower().startswith(("http://", "https://")):
        return None
    entry = _named(site.get("/v1/models"), model)
    found = _listed(entry)
    if found.window is None or found.source.endswith("n_ctx_train"):
        window, source = _elsewhere(site, model)
        if window is not None:
            found = Reported(window, found.max_output, found.prices, source)
    return found if (found.window or found.max_output or found.prices) else None


@dataclass(frozen=True, slots=True)
class _Site:
    root: str
    key: str
    seconds: float

    def get(self, path: str, body: object = None) -> Any:
        """The page's JSON, or None whatever went wrong."""
        import urllib.request  # noqa: PLC0415 - as above
        from http.client import HTTPException  # noqa: PLC0415

        heads = {"accept": "application/json", "content-type": "application/json"}
        if self.key:
            heads["authorization"] = f"Bearer {self.key}"
        sent = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(self.root + path, sent, heads)  # noqa: S310 - checked
            with urllib.request.urlopen(request, timeout=self.seconds) as answer:  # noqa: S310
                return json.loads(answer.read(_BYTES))
        except (OSError, ValueError, HTTPException, RecursionError):
            return None


def _listed(entry: dict[str, Any]) -> Reported:
    """What an entry of `/v1/models` says, by whichever field its server has."""
    top = _object(entry.get("top_provider"))
    window, field = _first(
        ("max_model_len", entry.get("max_model_len")),
        ("loaded_context_length", entry.get("loaded_context_length")),
        ("top_provider.context_length", top.get("context_length")),
        ("context_length", entry.get("context_length")),
        ("max_context_length", entry.get("max_context_length")),
        ("meta.n_ctx_train", _object(entry.get("meta")).get("n_ctx_train")),
    )
    most = _count(top.get("max_completion_tokens"))
    return Reported(window, most, _prices(_object(entry.get("pricing"))), f"/v1/models {field}")


def _elsewhere(site: _Site, model: str) -> tuple[int | None, str]:
    """The window in force, from the pages that only one kind of server has."""
    props = _object(_object(site.get("/props")).get("default_generation_settings"))
    if window := _count(props.get("n_ctx")):
        return window, "/props default_generation_settings.n_ctx"
    studio = _named(site.get("/api/v0/models"), model)
    window, field = _first(
        ("loaded_context_length", studio.get("loaded_context_length")),
        ("max_context_length", studio.get("max_context_length")),
    )
    if window:
        return window, f"/api/v0/models {field}"
    running = _named(site.get("/api/ps"), model)
    if window := _count(running.get("context_length")):
        return window, "/api/ps context_length"
    shown = _object(site.get("/api/show", {"model": model.removeprefix("ollama/")}))
    chosen = _NUM_CTX.search(str(shown.get("parameters", "")))
    if chosen and (window := _count(int(chosen[1][:12]))):
        return window, "/api/show num_ctx"
    facts = _object(shown.get("model_info"))
    trained = [value for name, value in facts.items() if name.endswith(".context_length")]
    window = next((size for value in trained if (size := _count(value))), None)
    return window, "/api/show model_info context_length"


def _named(body: Any, model: str) -> dict[str, Any]:
    """The entry of a list that has the model's name, or the only one there is."""
    listed: Any = _object(body).get("data", _object(body).get("models"))
    if isinstance(body, list):
        listed = cast("list[Any]", body)
    entries = (
        [_object(one) for one in cast("list[Any]", listed)] if isinstance(listed, list) else []
    )
    for wanted in (model, model.partition("/")[2], model.rpartition("/")[2]):
        for entry in entries:
            called = {entry.get("id"), entry.get("name"), entry.get("model")}
            if wanted and (wanted in called or f"{wanted}:latest" in called):
                return entry
    return entries[0] if len(entries) == 1 else {}


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _first(*fields: tuple[str, Any]) -> tuple[int | None, str]:
    return next(((size, name) for name, value in fields if (size := _count(value))), (None, ""))


def _count(value: Any) -> int | None:
    """A number of tokens that a model might have."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124
        return None
    return int(value) if _LEAST <= value <= _MOST else None


def _prices(said: dict[str, Any]) -> Prices | None:
    """Dollars for a million tokens: some say so, others say them for one token, as text."""
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
    return known(**cast("dict[str, Any]", found)) if found.get("input") else None
