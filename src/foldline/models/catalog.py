"""Windows and prices by a model's name, from the catalogue and the user's file.

Does no network IO. The user's file wins over the catalogue; if it cannot be read, the error says
what to write instead.

    # $FOLDLINE_MODELS, else $XDG_CONFIG_HOME/foldline/models.toml
    ["my-model"]
    window = 32_768      # also: max_input, max_output, input, read, write, output, step,
    # above and above_output: the prices of input and output above the step; input = 0: it is free
"""

import os
import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foldline.core.budget import Source
from foldline.core.prices import FREE, UNKNOWN, Prices, make_prices
from foldline.dialects.model_names import strip_google_prefix
from foldline.errors import BadInput

# Fallback windows for names outside the catalogue, the most specific first; matched on the part
# after the last slash, because "ollama/mistral" is not a llama. A family wins over a shorter name
# of the catalogue: "deepseek-chat-v3" is no deepseek-chat.
_WHOLE = (
    ("gemini-1.5-pro", 2_000_000),
    ("llama3.2:1b", 8_000),
    ("llama-2", 4_000),
    ("llama2", 4_000),
)
_FAMILIES = (
    ("claude", 200_000),
    ("gpt-6", 922_000),
    ("gpt-5", 400_000),
    ("gpt-4.1", 1_000_000),
    ("gpt-4", 128_000),
    ("gemini", 1_000_000),
    ("grok-4", 2_000_000),
    ("grok", 131_072),
    ("deepseek-chat-v3", 163_840),
    ("deepseek-v3", 163_840),
    ("deepseek-v4", 1_000_000),
    ("deepseek", 128_000),
    ("muse-spark", 1_048_576),
    ("nova-2", 1_000_000),
    ("qwen3.8", 991_808),
    ("qwen-3.8", 991_808),
    ("qwen3", 131_072),
    ("qwen", 128_000),
    ("llama-4", 327_680),
    ("llama", 128_000),
    ("mistral-large", 262_144),
    ("mistral", 128_000),
    ("mixtral", 128_000),
)
_OLLAMA = (("mistral", 32_000),)
_HOST = re.compile(r"^([a-z-]+\.)?anthropic\.")  # how Bedrock calls Claude
_DATE = re.compile(r"[-@](\d{8}|\d{4}-\d{2}-\d{2}|latest)$")


class ModelEntry(msgspec.Struct, frozen=True):
    """What is known of one model; None is unknown."""

    name: str
    window: int | None
    """Tokens of input and output together."""
    source: Source
    """Where the window is from: the catalogue, the user's file, or unknown (default)."""
    max_input: int | None
    max_output: int | None
    prices: Prices
    ends: str | None = None
    """The day from which its maker no longer serves it; "ended" if only that is known."""


class _Entry(msgspec.Struct, frozen=True):
    id: str
    maker: str
    input: float
    output: float
    window: int | None = None
    max_input: int | None = None
    max_output: int | None = None
    read: float | None = None
    write: float | None = None
    step: int | None = None
    above: float | None = None
    above_output: float | None = None
    ends: str | None = None


class _File(msgspec.Struct, frozen=True):
    source: str
    date: str
    models: list[_Entry]


class Edition(NamedTuple):
    """The catalogue's source, date and number of models."""

    source: str
    date: str
    models: int


@cache
def _load_catalog() -> _File:
    from importlib.resources import files  # noqa: PLC0415 - slow to import, needed once

    body = (files("foldline.models") / "catalog.json").read_bytes()
    return msgspec.json.decode(body, type=_File)


@cache
def _load_entries() -> dict[str, _Entry]:
    # Reversed, so that the first entry of a name wins: makers come before resellers.
    return {normalise_model_name(entry.id): entry for entry in reversed(_load_catalog().models)}


@cache
def _load_ids() -> dict[str, _Entry]:
    return {entry.id.lower(): entry for entry in reversed(_load_catalog().models)}


def read_edition() -> Edition:
    """Return the catalogue's source, date and number of models."""
    return Edition(_load_catalog().source, _load_catalog().date, len(_load_entries()))


def list_model_names() -> list[str]:
    """List every name in the catalogue."""
    return sorted(entry.id for entry in _load_entries().values())


def explain_match(name: str) -> str:
    """Explain to people how a name was matched."""
    entry = _find_entry(name)
    if entry is not None:
        exact = normalise_model_name(_last_part(name)) == normalise_model_name(entry.id)
        return f"{'is' if exact else 'begins with'} {entry.id} of the catalogue"
    if _find_family(name):
        return "not in the catalogue; the usual window of its family"
    return "not in the catalogue, and of no known family"


def find(name: str) -> ModelEntry:
    """Look up a model in the catalogue by the name that a client would send."""
    entry = _find_entry(name)
    _, guess = _find_family(name) or ("", None)
    if entry is None:
        source: Source = "catalogue" if guess else "default"
        prices = FREE if _is_of_ollama(name) else UNKNOWN
        return ModelEntry(name, guess, source, None, None, prices)
    return ModelEntry(
        name=name,
        window=guess if guess and _is_of_ollama(name) else entry.window or guess,
        source="catalogue",
        max_input=entry.max_input,
        max_output=entry.max_output,
        prices=make_prices(
            input=entry.input,
            read=entry.read,
            write=entry.write,
            output=entry.output,
            step=entry.step,
            above=entry.above,
            above_output=entry.above_output,
        ),
        ends=entry.ends,
    )


def _find_entry(name: str) -> _Entry | None:
    """Find the entry of this name, or of the longest name that it begins with."""
    last, entries = _last_part(name), _load_entries()
    if last in _load_ids():  # a dated name may have an entry of its own
        return _load_ids()[last]
    wanted = normalise_model_name(last)
    if wanted in entries:
        return entries[wanted]
    found = [one for one in entries if wanted.startswith((f"{one}-", f"{one}:", f"{one}@"))]
    longest = max(found, key=len, default="")
    family, _ = _find_family(name) or ("", None)
    return entries[longest] if len(longest) >= max(len(family), 1) else None


def _last_part(name: str) -> str:
    """Return a name without its prefixes before slashes; "gemini/2.5-flash" is gemini-2.5-flash."""
    return strip_google_prefix(name.lower()).rpartition("/")[2]


def normalise_model_name(name: str) -> str:
    """Normalise a name: lower case, without host and date, dots as hyphens."""
    return _DATE.sub("", _HOST.sub("", name.lower())).replace(".", "-")


def _find_family(name: str) -> tuple[str, int] | None:
    """Find the family of a name, and its usual window."""
    last = _last_part(name)
    tables = (_OLLAMA, _WHOLE, _FAMILIES) if _is_of_ollama(name) else (_WHOLE, _FAMILIES)
    known = (row for table in tables for row in table)
    return next((row for row in known if row[0] in last), None)


def _is_of_ollama(name: str) -> bool:
    return name.lower().startswith(("ollama/", "ollama_chat/"))


_COUNTS = ("window", "max_input", "max_output", "step")
_PRICES = ("input", "read", "write", "output", "above", "above_output")


def resolve_overrides_path() -> Path:
    """Return the path of the user's file; it need not exist."""
    if named := os.environ.get("FOLDLINE_MODELS"):
        return Path(named)
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "foldline" / "models.toml"


def load_overrides() -> dict[str, dict[str, Any]]:
    """Load the user's file, by normalised model name; reads it again when it changes."""
    path = resolve_overrides_path()
    try:
        state = path.stat()
    except OSError as fault:
        if os.environ.get("FOLDLINE_MODELS"):
            raise BadInput(
                f"FOLDLINE_MODELS names {path}, which cannot be read ({fault.strerror}); "
                "unset it, or write the file"
            ) from fault
        return {}
    return _read_overrides(path, state.st_mtime_ns, state.st_size)


def resolve_model(name: str) -> ModelEntry:
    """Look up a model: the user's file over the catalogue, field by field."""
    found, own = find(name), _find_overrides(name)
    if not own:
        return found
    return msgspec.structs.replace(
        found,
        window=own.get("window", found.window),
        source="user" if "window" in own else found.source,
        max_input=own.get("max_input", None if "window" in own else found.max_input),
        max_output=own.get("max_output", found.max_output),
        prices=_override_prices(found.prices, own),
    )


def said_of(name: str) -> tuple[str, ...]:
    """List the fields of a model that the user's file sets."""
    return tuple(_find_overrides(name))


def _find_overrides(name: str) -> dict[str, Any]:
    overrides = load_overrides()
    names = (normalise_model_name(name), normalise_model_name(_last_part(name)))
    return overrides.get(names[0]) or overrides.get(names[1]) or {}


def _override_prices(prices: Prices, own: dict[str, Any]) -> Prices:
    changed = {key: value for key, value in own.items() if key in (*_PRICES, "step")}
    if not changed:
        return prices
    base: dict[str, Any] = {"input": None}
    if prices.is_known:
        base = {"input": prices.input, "output": prices.output}
        if not prices.assumed:
            base |= {"read": prices.read, "write": prices.write}
        if prices.step and prices.above != 1.0:
            base |= {
                "step": prices.step,
                "above": prices.above * prices.input,
                "above_output": prices.above_output * prices.output,
            }
    return make_prices(**{**base, **changed})


@lru_cache(maxsize=4)
def _read_overrides(path: Path, _changed: int, _size: int) -> dict[str, dict[str, Any]]:
    import tomllib  # noqa: PLC0415 - few users have such a file

    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        raise BadInput(
            f'{path} is no TOML: {fault}; write ["a-model"] and below it window = 32768'
        ) from fault
    return {
        normalise_model_name(name): _check_entry(path, name, entry) for name, entry in body.items()
    }


def _check_entry(path: Path, name: str, entry: Any) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise BadInput(f'{path}: {name} is {entry!r}; write ["{name}"] and below it window = 32768')
    fields: dict[str, Any] = entry  # pyright: ignore[reportUnknownVariableType]
    for field, value in fields.items():
        if field not in (*_COUNTS, *_PRICES):
            nested = ", and names with dots in quotes" if isinstance(value, dict) else ""
            raise BadInput(
                f"{path}: {name} has {field!r}; write {', '.join((*_COUNTS, *_PRICES))}{nested}"
            )
        whole = isinstance(value, int) and not isinstance(value, bool)
        if field in _COUNTS and not (whole and value > 0):
            raise BadInput(
                f"{path}: {field} of {name} is {value!r}; write tokens, as in {field} = 32768"
            )
        if field in _PRICES and not ((whole or isinstance(value, float)) and value >= 0):
            raise BadInput(
                f"{path}: {field} of {name} is {value!r}; write dollars for a million tokens, "
                f"as in {field} = 0.25"
            )
    return fields
