"""Bytes of the prefix that differ from request to request: what makes every cache a miss.

Knows the words and tools that a log says each request began with, and what usually changes in them:
clocks, dates, ids, counters, paths, the order of things. Refuses to know what the changes cost.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import msgspec

from foldline.core.log import Event, Instructed, ModelSaid, Opened
from foldline.core.parts import Tool, text_of

Kind: TypeAlias = Literal[
    "time", "date", "id", "counter", "path", "order", "order of keys", "more", "less", "words"
]
_AROUND = 24  # characters of context on each side
_FAR = 60  # characters in which a pattern may begin or end around a difference
_MONTH = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_PATTERNS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("id", re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE)),
    (
        "time",
        re.compile(
            r"(?:\d{4}-\d\d-\d\d[T ])?\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?[ap]m\b)?",
            re.IGNORECASE,
        ),
    ),
    ("time", re.compile(r"\b1[5-9]\d{8}(?:\d{3}|\.\d+)?\b")),  # seconds or milliseconds since 1970
    ("date", re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\b\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}\b")),
    (
        "date",
        re.compile(
            rf"\b(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? )?(?:{_MONTH})[a-z]*\.? \d{{1,2}}"
            rf"(?:,? \d{{4}})?|\b\d{{1,2}}\.? (?:{_MONTH})[a-z]*\.?(?: \d{{4}})?",
            re.IGNORECASE,
        ),
    ),
    ("date", re.compile(r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b", re.IGNORECASE)),
    ("path", re.compile(r"(?:[A-Za-z]:\\|~?/|\.{1,2}/)[\w.~@+\\/-]+")),
    ("id", re.compile(r"\b(?=[0-9a-z_-]*\d)(?=[0-9a-z_-]*[a-z])[0-9a-z_-]{8,}\b", re.IGNORECASE)),
    ("counter", re.compile(r"\d[\d,.]*")),
)


@dataclass(frozen=True, slots=True)
class Volatile:
    """A place in the front of requests whose bytes changed."""

    at: int
    """The place in the log of the call that was sent the changed bytes."""
    where: Literal["system", "tools"]
    kind: Kind
    offset: int
    """The characters before it that were the same; all behind it is not found again."""
    before: str
    """What stands before the difference."""
    old: str
    new: str
    times: int = 1
    """In how many calls it had changed."""

    @property
    def shown(self) -> str:
        """The new bytes in their context, with a bar where the difference begins."""
        return f"…{self.before}|{self.new}…"


def volatile(events: Sequence[Event]) -> tuple[Volatile, ...]:
    """What changed in the front from one call to the next, each kind of change once."""
    found: dict[tuple[str, Kind], Volatile] = {}
    for one in _changes(events):
        known = found.get((one.where, one.kind))
        found[one.where, one.kind] = replace(known, times=known.times + 1) if known else one
    return tuple(found.values())


def _changes(events: Sequence[Event]) -> Iterator[Volatile]:
    first = events[0] if events else None
    imported = isinstance(first, Opened) and first.origin.startswith("import:")
    now: Instructed | None = None
    sent: Instructed | None = None
    for at, event in enumerate(events):
        if isinstance(event, Instructed):
            now = event
        elif isinstance(event, ModelSaid) and now is not None:
            if sent is not None and now != sent:
                yield from _between(at, sent, now, grows=imported)
            sent = now


def _between(at: int, old: Instructed, new: Instructed, *, grows: bool) -> Iterator[Volatile]:
    if old.tools != new.tools:
        yield _tools(at, old.tools, new.tools)
    was, now = text_of(old.parts), text_of(new.parts)
    if was != now and not (grows and now.startswith(was)):
        yield difference(was, now, at=at)


def difference(old: str, new: str, *, at: int = 0) -> Volatile:
    """The first bytes in which two texts differ, and what they look like."""
    place = _same(old, new)
    kind, begin = _kind(old, new, place)
    # From the beginning of what changed: "12:03:4|5" says less than the whole time does.
    before = new[max(begin - _AROUND, 0) : place]
    ends = (_end(text, place) for text in (old, new))
    was, now = (text[place:end] for text, end in zip((old, new), ends, strict=True))
    return Volatile(at, "system", kind, place, _line(before), _line(was), _line(now))


def _kind(old: str, new: str, place: int) -> tuple[Kind, int]:
    """What a difference looks like, and where it begins."""
    for kind, pattern in _PATTERNS:
        was, now = (_covering(text, place, pattern) for text in (old, new))
        if was and now and was.group() != now.group():
            return kind, min(was.start(), now.start())
    if place in (len(old), len(new)):
        return ("more" if place == len(old) else "less"), place
    if sorted(old.splitlines()) == sorted(new.splitlines()):
        return "order", place
    return "words", place


def _covering(text: str, place: int, pattern: re.Pattern[str]) -> re.Match[str] | None:
    """The match that a place lies in, or at the end of."""
    lo = max(place - _FAR, 0)
    for match in pattern.finditer(text, lo, place + _FAR):
        if match.start() <= place <= match.end():
            return match
    return None


def _same(old: str, new: str) -> int:
    """How many characters two texts begin with in common."""
    lo, hi = 0, min(len(old), len(new))
    while lo < hi:
        middle = (lo + hi + 1) // 2
        lo, hi = (middle, hi) if old.startswith(new[:middle]) else (lo, middle - 1)
    return lo


def _end(text: str, place: int) -> int:
    return min(place + _AROUND, len(text))


def _line(text: str) -> str:
    return " ".join(text.replace("\n", " ⏎ ").split(" "))


def _tools(at: int, old: tuple[Tool, ...], new: tuple[Tool, ...]) -> Volatile:
    """How two lists of tools differ."""
    was, now = _listed(old), _listed(new)
    place = _same(was, now)
    names = {tool.name for tool in old} ^ {tool.name for tool in new}
    if names:
        gone, come = sorted(names & {t.name for t in old}), sorted(names & {t.name for t in new})
        kind: Kind = "more" if not gone else "less" if not come else "words"
        return Volatile(at, "tools", kind, place, "", ", ".join(gone), ", ".join(come))
    if sorted(old, key=repr) == sorted(new, key=repr):
        order = [", ".join(tool.name for tool in tools) for tools in (old, new)]
        return Volatile(at, "tools", "order", place, "", order[0], order[1])
    if [_plain(tool) for tool in old] == [_plain(tool) for tool in new]:
        return replace(difference(was, now, at=at), where="tools", kind="order of keys")
    return replace(difference(was, now, at=at), where="tools")


def _listed(tools: Sequence[Tool]) -> str:
    return "\n".join(f"{tool.name}: {tool.description} {tool.schema}" for tool in tools)


def _plain(tool: Tool) -> object:
    """A tool without the order of its schema's keys."""
    try:
        return tool.name, tool.description, msgspec.json.decode(tool.schema)
    except msgspec.DecodeError:
        return tool
