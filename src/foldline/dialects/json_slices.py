"""Reads foreign JSON safely, and locates and splices values in its bytes.

Errors name the path of the fault. A splice leaves every other byte as it is.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from foldline.core.parts import replace_surrogates
from foldline.errors import WireError

Json = dict[str, Any]
T = TypeVar("T")
_PATH = re.compile(r" - at `(\$[^`]*)`$")
_MOST_TOKENS = 2**53  # a larger number is the server's mistake
DEEPEST = 200  # levels: no client nests deeper, and it stays below Python's recursion limit


def dict_of(value: Any) -> Json:
    """Return the value if it is an object, else an empty one."""
    return cast("Json", value) if isinstance(value, dict) else {}


def str_of(value: Any) -> str:
    """Return the value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def list_of(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def parse_count(body: Json, name: str) -> int | None:
    """Return a number of tokens among an object's fields; None if it is absent or none."""
    found: Any = body.get(name)
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    return found if type(found) is int and 0 <= found <= _MOST_TOKENS else None


def parse_object(body: bytes | str) -> Json:
    """Decode a JSON object; raises `WireError` for anything else."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise WireError(f"not JSON: {fault}") from fault
    except UnicodeEncodeError as fault:
        raise WireError(f"not UTF-8: {fault}") from fault
    if not isinstance(found, dict):
        raise WireError(f"a JSON object was expected, this is a {type(found).__name__}")
    return convert_to_json(cast("Json", found))


def check_readable(body: bytes) -> None:
    """Raise `WireError` unless all of the bytes are JSON that can be read again."""
    try:
        body.decode()
        msgspec.json.decode(body)
    except UnicodeDecodeError as fault:
        raise WireError(f"not UTF-8: {fault}") from fault
    except (msgspec.DecodeError, RecursionError) as fault:
        raise WireError(f"not JSON: {fault}") from fault
    _check_depth(body)


def convert_to_json(given: Mapping[str, Any]) -> Json:
    """Convert Python values to plain JSON values that can be encoded."""
    return shaped_bytes(encode_json(given), Json, "an object")


def encode_json(given: Any) -> bytes:
    """Encode the values of an SDK, which are read from these bytes as a client's own are."""
    try:
        try:
            encoded = msgspec.json.encode(given)
        except UnicodeEncodeError:
            encoded = msgspec.json.encode(_repair_strings(given))
    except (TypeError, ValueError, RecursionError) as fault:
        raise WireError(f"the values are not JSON: {fault}") from fault
    _check_depth(encoded)
    return encoded


def object_of(text: str) -> dict[str, msgspec.Raw] | None:
    """Decode a text's fields; None if it is not an object."""
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def decode_object(text: str) -> Json | None:
    """Decode a text that is an object, or empty; None if it is anything else."""
    try:
        found = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    return cast("Json", found) if isinstance(found, dict) else None


def convert_to_shape(given: Json, shape: type[T], what: str, *, path: str = "$") -> T:
    """Convert JSON values to a type; the error names the path that does not fit."""
    try:
        return msgspec.convert(given, shape)
    except msgspec.ValidationError as fault:
        raise _make_shape_error(fault, what, path) from fault


def shaped_bytes(body: bytes | msgspec.Raw, shape: type[T], what: str, *, path: str = "$") -> T:
    """Decode bytes to a type; fields of type `Raw` stay as they came."""
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.ValidationError as fault:
        raise _make_shape_error(fault, what, path) from fault
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise WireError(f"not JSON: {fault} at {path}", path=path) from fault


def _make_shape_error(fault: msgspec.ValidationError, what: str, path: str) -> WireError:
    found = _PATH.search(str(fault))
    where = path + found[1][1:] if found else path
    said = _PATH.sub("", str(fault))
    return WireError(f"not {what}: {said} at {where}", path=where)


def has_more_values(body: bytes, most: int) -> bool:
    """Return whether a JSON text has more than `most` values; they are counted, not read."""
    pieces = (body[at : at + _PIECE] for at in range(0, len(body), _PIECE))
    # Seldom are there so many signs even with those of texts.
    return _has_more_signs(pieces, most) and _has_more_signs(_iterate_structure(body), most)


def _has_more_signs(pieces: Iterable[bytes], most: int) -> bool:
    counted = 1
    return any((counted := counted + sum(map(piece.count, _COUNTED))) > most for piece in pieces)


def _check_depth(body: bytes) -> None:
    """Raise if a JSON text is nested too deeply; linear, whatever the text is."""
    if body.count(b"[") + body.count(b"{") <= DEEPEST:
        return
    depth = 0
    for structure in _iterate_structure(body):
        steps = map(_STEPS.__getitem__, structure.translate(None, _NO_BRACKETS))
        depths = [*accumulate(steps, initial=depth)]
        if max(depths) > DEEPEST:
            raise WireError(f"nested more than {DEEPEST} levels deep")
        depth = depths[-1]


def _iterate_structure(body: bytes) -> Iterator[bytes]:
    """Yield a JSON text without its strings, in pieces: no call takes long."""
    at, is_inside = 0, False
    while at < len(body):
        end = at + _PIECE
        if body[end - 1 : end] == b"\\":  # no escape is cut in two
            end = _BACKSLASHES.match(body, end).end() + 1  # type: ignore[union-attr]
        parts = body[at:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b"".join(parts[is_inside::2])
        is_inside ^= len(parts) % 2 == 0
        at = end


def _repair_strings(given: Any) -> Any:
    if isinstance(given, str):
        return replace_surrogates(given)
    if isinstance(given, Mapping):
        pairs = cast("Mapping[str, Any]", given).items()
        return {replace_surrogates(str(key)): _repair_strings(value) for key, value in pairs}
    if isinstance(given, list | tuple):
        return [_repair_strings(value) for value in cast("Sequence[Any]", given)]
    return given


_PIECE = 262_144  # bytes
_COUNTED = (b",", b"[", b"{")  # each begins a value
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes({*range(256)} - _STEPS.keys())
_BACKSLASHES = re.compile(rb"\\*")
_KEY = rb'"(?:[^"\\]|\\.)*"'
_FIELD = re.compile(rb"[{,]\s*(" + _KEY + rb")\s*:\s*")
_NEXT = re.compile(rb"\s*[\[,]\s*")
_BETWEEN, _SPACE = b"[,", 32
_CLOSE = re.compile(rb"\s*")
_fields: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_values: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])


class Slice(NamedTuple):
    """A value's place in a text; `end` is exclusive."""

    start: int
    end: int


class Splice(NamedTuple):
    """A replacement of some bytes by others."""

    start: int
    end: int
    put: bytes


def find_fields(text: bytes, within: Slice | None = None) -> dict[str, Slice]:
    """Locate each field's value; raises `WireError` for a non-object or a repeated key."""
    start, end = within or (0, len(text))
    found: dict[str, Slice] = {}
    view = memoryview(text)
    try:
        values = _fields.decode(view[start:end])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise WireError(f"not an object: {fault}") from fault
    at = _CLOSE.match(text, start, end).end()  # type: ignore[union-attr]
    while (key := _FIELD.match(text, at, end)) is not None:
        name = cast("str", msgspec.json.decode(key[1]))
        raw = memoryview(cast("bytes", values[name]))
        place = Slice(key.end(), key.end() + raw.nbytes)
        if name in found or not text.startswith(raw, place.start):
            raise WireError(f"the field {name!r} stands twice")
        found[name] = place
        at = _CLOSE.match(text, place.end, end).end()  # type: ignore[union-attr]
    return found


def remove_field(text: bytes, name: str) -> bytes:
    """Remove a field of an object, with one comma; the text itself if it has none of this name."""
    every: list[Slice] = []
    gone: list[Slice] = []
    at = _CLOSE.match(text, 0).end()  # type: ignore[union-attr]
    for field, place in find_fields(text).items():
        key = _FIELD.match(text, at)
        assert key is not None  # noqa: S101 - find_fields has found it
        every.append(Slice(key.start(1), place.end))
        gone += every[-1:] if field == name else []
        at = _CLOSE.match(text, place.end).end()  # type: ignore[union-attr]
    return apply_splices(text, cut_out(gone, every)) if gone else text


def make_field_splice(text: bytes, fields: Mapping[str, Slice], name: str, value: bytes) -> Splice:
    """Set one of an object's fields; a new one is put behind the others."""
    place = fields.get(name)
    if place is not None:
        return Splice(*place, value)
    end = text.rindex(b"}")
    return Splice(end, end, b',"' + name.encode() + b'":' + value)


def find_values(text: bytes, within: Slice) -> list[Slice]:
    """Locate each value of a list; raises `WireError` if it is not a list."""
    start = _CLOSE.match(text, within.start, within.end).end()  # type: ignore[union-attr]
    return _find_values(text, memoryview(text)[within.start : within.end], start)


def find_rest(text: bytes, within: Slice, at: int) -> list[Slice]:
    """Locate the values of a list after `at`, where one of them ends."""
    start = _CLOSE.match(text, at, within.end).end()  # type: ignore[union-attr]
    if text[start : start + 1] == b"]":
        return []
    if text[start : start + 1] != b",":
        raise WireError("not a list: a value goes on where it should end")
    return _find_values(text, b"[" + text[start + 1 : within.end], start)


def _find_values(text: bytes, values: bytes | memoryview, at: int) -> list[Slice]:
    """Locate values in a text; `at` is the bracket or comma before the first."""
    try:
        decoded = _values.decode(values)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise WireError(f"not a list: {fault}") from fault
    found: list[Slice] = []
    for value in decoded:
        start = at + 1
        if text[start] == _SPACE:  # most clients write nothing or one space
            start += 1
        if text[at] not in _BETWEEN or text[start] <= _SPACE:
            start = _NEXT.match(text, at).end()  # type: ignore[union-attr]
        at = start + len(cast("bytes", value))
        found.append(Slice(start, at))
    return found


def apply_splices(text: bytes, splices: Iterable[Splice]) -> bytes:
    """Apply splices to a text; they must not overlap."""
    pieces: list[bytes] = []
    at = 0
    for one in sorted(splices):
        pieces += (text[at : one.start], one.put)
        at = one.end
    return b"".join((*pieces, text[at:])) if pieces else text


def cut_out(places: Iterable[Slice], among: Iterable[Slice]) -> Iterator[Splice]:
    """Remove values of a list or an object, each with one comma; `among` are all of them.

    For an object, the places begin at the keys.
    """
    gone, every = {*places}, [*among]
    if every and gone.issuperset(every):
        yield Splice(every[0].start, every[-1].end, b"")
        return
    is_first = True  # no value before this one is kept
    for at, one in enumerate(every):
        if one not in gone:
            is_first = False
        elif is_first:
            yield Splice(one.start, every[at + 1].start, b"")
        else:
            yield Splice(every[at - 1].end, one.end, b"")


def encode_normalised(value: Any) -> bytes:
    """Encode a JSON value with sorted keys, and with whole floats as integers."""
    encoded = msgspec.json.encode(value, order="sorted")
    if not _has_floats(encoded):
        return encoded
    return msgspec.json.encode(_whole_numbers.decode(encoded), order="sorted")


def _parse_float(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() else number


def _has_floats(encoded: bytes) -> bool:
    """Return whether JSON of ours has a number with a fraction or an exponent."""
    last = b""
    for structure in _iterate_structure(encoded):
        if _FLOAT.search(last + structure) is not None:
            return True
        last = structure[-1:]
    return False


_FLOAT = re.compile(rb"[0-9][.e]")
_whole_numbers: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=_parse_float)
