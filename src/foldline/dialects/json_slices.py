"""Where the parts of a JSON text are, by their bytes.

Knows objects and lists, and where their values begin and end. Refuses to know what is in them. What
is changed is spliced in; every other byte stays.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

import msgspec

from foldline.errors import WireError

_KEY = rb'"(?:[^"\\]|\\.)*"'
_FIELD = re.compile(rb"[{,]\s*(" + _KEY + rb")\s*:\s*")
_NEXT = re.compile(rb"\s*[\[,]\s*")
_BETWEEN, _SPACE = b"[,", 32
_CLOSE = re.compile(rb"\s*")
_fields: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_values: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])


class Slice(NamedTuple):
    """A value's place in a text: from its first byte up to before `end`."""

    start: int
    end: int


class Splice(NamedTuple):
    """Other bytes in the place of some."""

    start: int
    end: int
    put: bytes


def find_fields(text: bytes, within: Slice | None = None) -> dict[str, Slice]:
    """Where each field's value is; `WireError` where it is no object, or a key stands twice."""
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


def find_values(text: bytes, within: Slice) -> list[Slice]:
    """Where each value of a list is; `WireError` where it is no list."""
    start = _CLOSE.match(text, within.start, within.end).end()  # type: ignore[union-attr]
    return _find_values(text, memoryview(text)[within.start : within.end], start)


def find_rest(text: bytes, within: Slice, at: int) -> list[Slice]:
    """Where the values of a list are behind a place at which one of them ends."""
    start = _CLOSE.match(text, at, within.end).end()  # type: ignore[union-attr]
    if text[start : start + 1] == b"]":
        return []
    if text[start : start + 1] != b",":
        raise WireError("not a list: a value goes on where it should end")
    return _find_values(text, b"[" + text[start + 1 : within.end], start)


def _find_values(text: bytes, values: bytes | memoryview, at: int) -> list[Slice]:
    """Where values are in a text: `at` is the sign before the first of them."""
    try:
        decoded = _values.decode(values)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise WireError(f"not a list: {fault}") from fault
    found: list[Slice] = []
    for value in decoded:
        start = at + 1
        if text[start] == _SPACE:  # most write nothing or one blank
            start += 1
        if text[at] not in _BETWEEN or text[start] <= _SPACE:
            start = _NEXT.match(text, at).end()  # type: ignore[union-attr]
        at = start + len(cast("bytes", value))
        found.append(Slice(start, at))
    return found


def splice(text: bytes, splices: Iterable[Splice]) -> bytes:
    """The text with other bytes in some places; the places must not overlap."""
    pieces: list[bytes] = []
    at = 0
    for one in sorted(splices):
        pieces += (text[at : one.start], one.put)
        at = one.end
    return b"".join((*pieces, text[at:])) if pieces else text


def cut_out(places: Iterable[Slice], among: Iterable[Slice]) -> Iterator[Splice]:
    """Leave values of a list or an object out, each with one comma; `among` are all of them.

    Of an object the places begin at the keys.
    """
    gone, every = {*places}, [*among]
    if every and gone.issuperset(every):
        yield Splice(every[0].start, every[-1].end, b"")
        return
    is_first = True  # of those that are left
    for at, one in enumerate(every):
        if one not in gone:
            is_first = False
        elif is_first:
            yield Splice(one.start, every[at + 1].start, b"")
        else:
            yield Splice(every[at - 1].end, one.end, b"")


def canonical(value: Any) -> Any:
    """A JSON value without what readers ignore: the form of whole numbers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: canonical(inner) for key, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [canonical(inner) for inner in cast("list[Any]", value)]
    return value
