"""JSON with many records: an array, one large array inside something else, or JSON lines."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

import msgspec

from foldline.core.edits.structure.outline import Outline, join_within, list_ends
from foldline.core.edits.structure.sample import Printed, Sample
from foldline.core.tokens import count_tokens

_FEWEST, _MOST = 12, 100_000  # records
_DEPTH = 6  # of the array inside other values
_MAIN = 0.6  # of the text, that the array holds
_AROUND = 4  # lines before and behind the JSON, such as an exit status
_OBJECTS = 0.9  # of the records, from which on they are called objects
_RARE = 20  # a key is rare if at most one record of so many has it
_USUAL = 0.6  # of the records, that have the usual state
_VALUE = 40  # characters of a state
_STATE = re.compile(
    r"(?i)\w*(?:status|state|level|severity|error|code|success|result|passed|failed|outcome)\w*|ok"
)
_LINE = re.compile(r"\{.*\}\s*$")
_TYPES = {'"': "text", "{": "object", "[": "array", "t": "bool", "f": "bool", "n": "null"}
_Fields = Mapping[str, msgspec.Raw]
_FIELDS = dict[str, msgspec.Raw]


def is_json_lines(sample: Sample) -> bool:
    """Whether nearly every line is an object."""
    return sample.has_share(_LINE, _OBJECTS)


def outline_json_lines(printed: Printed, tokens: int) -> Outline | None:
    """Outline lines that are objects each; other lines between them are kept first."""
    found = [_decode_fields(line) for line in printed.lines]
    if sum(1 for one in found if one is not None) < _OBJECTS * len(found):
        return None
    return _outline_records(printed.lines, found, tokens, noun="line")


def outline_json(text: str, tokens: int) -> Outline | None:
    """Outline the one large array of a text; None without one."""
    bounds = _find_json(text)
    if bounds is None:
        return None
    try:
        body = text[bounds[0] : bounds[1]].encode("utf-8")
    except UnicodeEncodeError:
        return None
    spans = _find_records(body)
    if not _FEWEST <= len(spans) <= _MOST:
        return None
    before = text[: bounds[0]] + body[: spans[0][0]].decode("utf-8")
    after = body[spans[-1][1] :].decode("utf-8") + text[bounds[1] :]
    pieces = [body[lo:hi].decode("utf-8") for lo, hi in spans]
    around = count_tokens(before) + count_tokens(after)
    if around > tokens // 3 or median(map(len, pieces)) > tokens // 2:
        return None  # too little of it would be whole
    found = [_decode_fields(piece.rstrip(", \t\r")) for piece in pieces]
    objects = sum(1 for one in found if one is not None)
    noun = "object" if objects >= _OBJECTS * len(found) else "item"
    return _outline_records(
        pieces, found, tokens, noun=noun, before=before.rstrip("\n"), after=after.strip("\n")
    )


def _find_json(text: str) -> tuple[int, int] | None:
    """Find where JSON begins and ends: a few lines before and behind it may say other things."""
    start = 0
    for _ in range(_AROUND + 1):
        start = len(text) - len(text[start:].lstrip())
        if text.startswith(("[", "{"), start):
            break
        start = text.find("\n", start) + 1
        if not start:
            return None
    end = len(text)
    for _ in range(_AROUND + 1):
        end = len(text[:end].rstrip())
        if text.endswith(("]", "}"), start, end):
            return start, end
        end = text.rfind("\n", start, end)
        if end < 0:
            return None
    return None


def _find_records(body: bytes) -> list[tuple[int, int]]:
    """Find the places of the records of the array that holds most of the text."""
    start, node = 0, body
    for _ in range(_DEPTH):
        values = _decode_values(node)
        if node[:1] == b"[" and len(values) >= _FEWEST:
            return _find_spans(body, values, start) if len(values) <= _MOST else []
        largest = max(values, key=len, default=b"")
        if len(largest) < _MAIN * len(body):
            break
        start, node = body.find(largest, start + 1), largest
    return []


def _decode_values(node: bytes) -> list[bytes]:
    """Decode one level: the values of an array or an object, each as it is written."""
    try:
        if node[:1] == b"[":
            return [bytes(raw) for raw in msgspec.json.decode(node, type=list[msgspec.Raw])]
        return [bytes(raw) for raw in msgspec.json.decode(node, type=_FIELDS).values()]
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return []


def _find_spans(body: bytes, values: Sequence[bytes], start: int) -> list[tuple[int, int]]:
    """Find the places of an array's values: whole lines where they have lines to themselves."""
    spans: list[tuple[int, int]] = []
    at = start + 1
    for value in values:
        lo = body.find(value, at)  # only blanks and a comma are in between
        first = body.rfind(b"\n", at, lo) + 1
        hi = at = lo + len(value)
        last = body.find(b"\n", hi, hi + 3)
        if first and last >= 0 and not body[hi:last].strip(b" ,\r"):
            lo, hi = first, last
        spans.append((lo, hi))
    return spans


def _decode_fields(piece: str) -> _Fields | None:
    """Decode an object's fields, each as it is written; None if it is no object."""
    if not piece.lstrip().startswith("{"):
        return None
    try:
        return msgspec.json.decode(piece, type=_FIELDS)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return None


def _outline_records(  # noqa: PLR0913 - the parts of an outline
    pieces: Sequence[str],
    found: Sequence[_Fields | None],
    tokens: int,
    *,
    noun: str,
    before: str = "",
    after: str = "",
) -> Outline:
    """The first and last, then those that differ: keys, states, smallest and largest numbers."""
    keys = Counter(key for one in found if one is not None for key in one)

    def iterate_order() -> Iterator[int]:
        yield from list_ends(len(pieces), 2, 2)
        yield from _iterate_odd(found, keys)
        yield from _iterate_extremes(found, keys)

    schema = join_within(_describe_keys(found, keys), tokens // 8)
    return Outline(
        kind="json",
        pieces=pieces,
        order=iterate_order(),
        noun=noun,
        facts=(f"keys: {schema}",) if schema else (),
        before=before,
        after=after,
    )


def _iterate_odd(found: Sequence[_Fields | None], keys: Counter[str]) -> Iterator[int]:
    """Yield records that are no objects among objects, have a rare key, or an unusual state."""
    total = keys.total() and sum(1 for one in found if one is not None)
    if total < len(found) * _OBJECTS:
        return
    yield from (place for place, one in enumerate(found) if one is None)
    most = max(total // _RARE, 1)
    rare = {key for key, times in keys.items() if times <= most}
    yield from (place for place, one in enumerate(found) if one and not rare.isdisjoint(one))
    for key in keys:
        if not _STATE.fullmatch(key[:_VALUE]):
            continue
        states = [one and key in one and bytes(one[key])[:_VALUE] for one in found]
        counted = Counter(states)
        if counted.most_common(1)[0][1] >= _USUAL * len(found):
            yield from (place for place, one in enumerate(states) if counted[one] <= most)


def _iterate_extremes(found: Sequence[_Fields | None], keys: Counter[str]) -> Iterator[int]:
    """Yield the records with the smallest and the largest number of each key."""
    for key, times in keys.items():
        if times * 2 < len(found):
            continue
        numbers: list[tuple[float, int]] = []
        for place, one in enumerate(found):
            raw = bytes(one[key]) if one and key in one else b""
            if 0 < len(raw) <= _VALUE and raw[:1] in b"-0123456789":
                numbers.append((float(raw), place))
        if numbers:
            yield min(numbers)[1]
            yield max(numbers)[1]


def _describe_keys(found: Sequence[_Fields | None], keys: Counter[str]) -> Iterator[str]:
    """Say of each key which types its values have, and how many records have it if not all do."""
    types: dict[str, set[str]] = {key: set() for key in keys}
    for one in found:
        for key, raw in (one or {}).items():
            types[key].add(_TYPES.get(chr(bytes(raw)[0]), "number"))
    for key, times in keys.most_common():
        name = " ".join(key[:_VALUE].split())
        share = "" if times == len(found) else f" in {times:,}"
        yield f"{name} {'|'.join(sorted(types[key]))}{share}"
