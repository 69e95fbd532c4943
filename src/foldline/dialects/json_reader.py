"""Foreign JSON, made safe to look at.

Knows how reading it can go wrong and says where. Refuses to know any dialect.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from foldline.core.parts import sound
from foldline.errors import WireError

Json = dict[str, Any]
T = TypeVar("T")
_PATH = re.compile(r" - at `(\$[^`]*)`$")
DEEPEST = 200  # levels: no client nests deeper, and reading stays off Python's own limit


def parse(body: bytes | str) -> Json:
    """The object that a body is."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise WireError(f"not JSON: {fault}") from fault
    except UnicodeEncodeError as fault:
        raise WireError(f"not UTF-8: {fault}") from fault
    if not isinstance(found, dict):
        raise WireError(f"a JSON object was expected, this is a {type(found).__name__}")
    return plain(cast("Json", found))


def readable(body: bytes) -> None:
    """Raise where bytes are not JSON that can be read again, also where no shape looks at it."""
    try:
        body.decode()
        found = msgspec.json.decode(body)
    except UnicodeDecodeError as fault:
        raise WireError(f"not UTF-8: {fault}") from fault
    except (msgspec.DecodeError, RecursionError) as fault:
        raise WireError(f"not JSON: {fault}") from fault
    _shallow(found)


def plain(given: Mapping[str, Any]) -> Json:
    """What was given as JSON that can be written down, whatever Python values it was."""
    _shallow(given)
    try:
        return msgspec.json.decode(msgspec.json.encode(given))
    except UnicodeEncodeError:
        return cast("Json", _mended(given))
    except (TypeError, ValueError, RecursionError, msgspec.DecodeError) as fault:
        raise WireError(f"what was given is not JSON: {fault}") from fault


def object_of(text: str) -> dict[str, msgspec.Raw] | None:
    """The fields of the object that a text is; nothing, if it is none."""
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def shaped(given: Json, shape: type[T], what: str, *, path: str = "$") -> T:
    """JSON as a shape; an error names the place where it is another."""
    try:
        return msgspec.convert(given, shape)
    except msgspec.ValidationError as fault:
        raise _misshapen(fault, what, path) from fault


def shaped_bytes(body: bytes | msgspec.Raw, shape: type[T], what: str, *, path: str = "$") -> T:
    """The same of bytes; where the shape says `Raw`, they stay as they came."""
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.ValidationError as fault:
        raise _misshapen(fault, what, path) from fault
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise WireError(f"not JSON: {fault} at {path}", path=path) from fault


def _misshapen(fault: msgspec.ValidationError, what: str, path: str) -> WireError:
    found = _PATH.search(str(fault))
    where = path + found[1][1:] if found else path
    said = _PATH.sub("", str(fault))
    return WireError(f"not {what}: {said} at {where}", path=where)


def _shallow(given: Any) -> None:
    """Raise where something is nested too deeply, without recursing into it."""
    level: list[Any] = [given]
    for _ in range(DEEPEST):
        level = [
            inner
            for one in level
            for inner in (
                cast("Mapping[str, Any]", one).values()
                if isinstance(one, Mapping)
                else cast("Sequence[Any]", one)
                if isinstance(one, list | tuple)
                else ()
            )
            if type(inner) is not str and isinstance(inner, Mapping | list | tuple)
        ]
        if not level:
            return
    raise WireError(f"nested more than {DEEPEST} levels deep")


def _mended(given: Any) -> Any:
    if isinstance(given, str):
        return sound(given)
    if isinstance(given, Mapping):
        pairs = cast("Mapping[str, Any]", given).items()
        return {sound(str(key)): _mended(value) for key, value in pairs}
    if isinstance(given, list | tuple):
        return [_mended(value) for value in cast("Sequence[Any]", given)]
    return given
