"""Windows and prices by a model's name.

Knows the file that ships with us and the families' usual windows. Refuses to ask anybody.
"""

import re
from functools import cache
from typing import NamedTuple

import msgspec

from foldline.core.budget import Source
from foldline.core.prices import Prices, known

# The fallback where a name is in no catalogue, the most specific first; matched on the part after
# the last slash, because "ollama/mistral" is no llama.
_WHOLE = (
    ("gemini-1.5-pro", 2_000_000),
    ("llama3.2:1b", 8_000),
    ("llama-2", 4_000),
    ("llama2", 4_000),
)
_FAMILIES = (
    ("claude", 200_000),
    ("gpt-5", 400_000),
    ("gpt-4.1", 1_000_000),
    ("gpt-4", 128_000),
    ("gemini", 1_000_000),
    ("grok-4", 2_000_000),
    ("grok", 131_072),
    ("deepseek-chat-v3", 163_840),
    ("deepseek-v3", 163_840),
    ("deepseek", 128_000),
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


class Model(msgspec.Struct, frozen=True):
    """What is known of one model; None is unknown."""

    name: str
    window: int | None
    """What it takes in all."""
    source: Source
    """Who says so: the catalogue, or nobody (default)."""
    max_input: int | None
    max_output: int | None
    prices: Prices


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


class _File(msgspec.Struct, frozen=True):
    source: str
    date: str
    models: list[_Entry]


class Edition(NamedTuple):
    """Which catalogue this is."""

    source: str
    date: str
    models: int


@cache
def _file() -> _File:
    from importlib.resources import files  # noqa: PLC0415 - slow to import, needed once

    body = (files("foldline.models") / "catalog.json").read_bytes()
    return msgspec.json.decode(body, type=_File)


@cache
def _entries() -> dict[str, _Entry]:
    found: dict[str, _Entry] = {}
    for entry in _file().models:
        found.setdefault(plain(entry.id), entry)  # a maker's own entry before a reseller's
    return found


def edition() -> Edition:
    """Where the catalogue is from, and of which day."""
    return Edition(_file().source, _file().date, len(_entries()))


def names() -> list[str]:
    """Every name in the catalogue."""
    return sorted(entry.id for entry in _entries().values())


def why(name: str) -> str:
    """What a name was found by, for people."""
    entry = _entry(name)
    if entry is not None:
        exact = plain(name.rpartition("/")[2]) == plain(entry.id)
        return f"{'is' if exact else 'begins with'} {entry.id} of the catalogue"
    if _family(name):
        return "not in the catalogue; the usual window of its family"
    return "not in the catalogue, and of no known family"


def find(name: str) -> Model:
    """What is known of a model, by the name that a client would send."""
    entry = _entry(name)
    guess = _family(name)
    if entry is None:
        return Model(
            name, guess, "catalogue" if guess else "default", None, None, known(input=None)
        )
    return Model(
        name=name,
        window=entry.window or guess,
        source="catalogue",
        max_input=entry.max_input,
        max_output=entry.max_output,
        prices=known(
            input=entry.input,
            read=entry.read,
            write=entry.write,
            output=entry.output,
            step=entry.step,
            above=entry.above,
        ),
    )


def _entry(name: str) -> _Entry | None:
    """The entry of that very name, or of the longest name that it begins with."""
    wanted = plain(name.rpartition("/")[2])
    exact = _entries().get(wanted)
    if exact is not None:
        return exact
    found = [one for one in _entries() if wanted.startswith((f"{one}-", f"{one}:", f"{one}@"))]
    return _entries()[max(found, key=len)] if found else None


def plain(name: str) -> str:
    """A name as names are compared: small, without its host and its date, dots as hyphens."""
    return _DATE.sub("", _HOST.sub("", name.lower())).replace(".", "-")


def _family(name: str) -> int | None:
    lower = name.lower()
    last = lower.rpartition("/")[2]
    tables = (_OLLAMA, _WHOLE, _FAMILIES) if lower.startswith("ollama/") else (_WHOLE, _FAMILIES)
    for table in tables:
        for family, window in table:
            if family in last:
                return window
    return None
