"""The user's own file of windows and prices, and what is believed of a model with it.

Knows where the file lies, what may stand in it, and that it wins over the catalogue. Refuses to
guess: a file that cannot be read is an error that says what to write instead.

    # $FOLDLINE_MODELS, else $XDG_CONFIG_HOME/foldline/models.toml
    ["my-model"]
    window = 32_768      # also: max_input, max_output, input, read, write, output, step, above
"""

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from foldline.core.prices import UNKNOWN, known
from foldline.errors import BadInput
from foldline.models.catalog import Model, find, plain

_COUNTS = ("window", "max_input", "max_output", "step")
_PRICES = ("input", "read", "write", "output", "above")


def place() -> Path:
    """Where the file is looked for; it need not be there."""
    if named := os.environ.get("FOLDLINE_MODELS"):
        return Path(named)
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "foldline" / "models.toml"


def overrides() -> dict[str, dict[str, Any]]:
    """What the file says, by a model's name as names are compared; read again when it changes."""
    path = place()
    try:
        state = path.stat()
    except OSError as fault:
        if os.environ.get("FOLDLINE_MODELS"):
            raise BadInput(
                f"FOLDLINE_MODELS names {path}, which cannot be read ({fault.strerror}); "
                "unset it, or write the file"
            ) from fault
        return {}
    return _read(path, state.st_mtime_ns, state.st_size)


def believed(name: str) -> Model:
    """What is believed of a model: the user's file over the catalogue, field by field."""
    found, said = find(name), overrides()
    mine = said.get(plain(name)) or said.get(plain(name.rpartition("/")[2]))
    if mine is None:
        return found
    prices = found.prices
    if set(mine) & {*_PRICES, "step"}:
        base = None if prices == UNKNOWN else prices
        now: dict[str, Any] = {} if base is None else {"input": base.input, "output": base.output}
        if base is not None and not base.assumed:
            now |= {"read": base.read, "write": base.write}
        if base is not None and base.step and base.above != 1.0:
            now |= {"step": base.step, "above": base.above * base.input}
        told = {key: value for key, value in mine.items() if key in (*_PRICES, "step")}
        prices = known(**{"input": None, **now, **told})
    return msgspec.structs.replace(
        found,
        window=mine.get("window", found.window),
        source="user" if "window" in mine else found.source,
        max_input=mine.get("max_input", None if "window" in mine else found.max_input),
        max_output=mine.get("max_output", found.max_output),
        prices=prices,
    )


def said_of(name: str) -> tuple[str, ...]:
    """Which fields of a model the user's file says."""
    said = overrides()
    return tuple(said.get(plain(name)) or said.get(plain(name.rpartition("/")[2])) or ())


@lru_cache(maxsize=4)
def _read(path: Path, _changed: int, _size: int) -> dict[str, dict[str, Any]]:
    import tomllib  # noqa: PLC0415 - few have such a file

    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        raise BadInput(
            f'{path} is no TOML: {fault}; write ["a-model"] and below it window = 32768'
        ) from fault
    return {plain(name): _checked(path, name, entry) for name, entry in body.items()}


def _checked(path: Path, name: str, entry: Any) -> dict[str, Any]:
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
