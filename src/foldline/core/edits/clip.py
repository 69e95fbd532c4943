"""Clipping: what is shown of a message that is too large, decided once, when it arrives.

Knows the ways to cut and the words of their markers. Refuses to know the log: the handle and the
outcome are added by the view, which knows the message's place.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec

from foldline.core import rules, truncate
from foldline.core.budget import Limits, learned, measure
from foldline.core.handles import handle
from foldline.core.item import CUT_AGAIN, Item
from foldline.core.log import Clipped, ToolReturned, UserSaid
from foldline.core.names import names
from foldline.core.parts import Clip, Gap, Part, Stub, Text, text_of
from foldline.core.policy import How
from foldline.core.spine import Change, Range, swap
from foldline.core.tokens import count, roughly
from foldline.core.view import View

_LINES = 128
_LINE_BYTES = 10 * 1024
_LINE = 200  # characters of one error line
_LOOK = 131_072  # characters of the cut that are searched: what is longer is searched by recall
_PIECE = 16_384  # characters of it that are searched at a time
# Linear on any text: this runs on whatever a tool prints.
_FAULT = re.compile(
    r"\b[Ee]rror\b|[a-z]Error\b|Exception\b|\bFAILED\b|\bFATAL\b|\bERROR\b|\bTraceback\b|\bpanic\b"
    r"|\bexit(?:ed)? (?:with |code |status |with code |with status )?\d"
)
_SIGNS = ("rror", "xception", "FAIL", "FATAL", "ERR", "raceback", "panic", "exit")
_NEWEST = 0.7  # of room, for the newest messages of a request that was refused
_LEAST_BYTES = 240  # of one message: less says nothing
_HANDLE = 30  # characters of the handle that a view adds to a clip
_MARKER = 56  # tokens that the marker, its handle and line ends take


def clip(event: UserSaid | ToolReturned, *, cap: int, how: How) -> UserSaid | ToolReturned:
    """The event with a clip, where its words exceed `cap` tokens; the whole stays in the event."""
    words = text_of(part for part in event.parts if isinstance(part, Text))
    whole = roughly(words, above=cap)  # far above the cap it is only told
    if whole <= cap and not (how == "lines" and _long(words)):
        return event
    keep = max(cap - _MARKER, 1)
    texts = _lines(words, keep) if how == "lines" else _ends(words, keep, of=(cap, whole), how=how)
    others = (part for part in event.parts if not isinstance(part, Text | Gap))
    if len(words) <= sum(len(text_of((part,))) for part in texts) + _HANDLE:
        return event  # what says that something was cut would be longer than what was
    shown = Clip((*texts, *others), how, whole, sum(count(text_of((part,))) for part in texts))
    return msgspec.structs.replace(event, clip=shown)


def _ends(words: str, keep: int, *, of: tuple[int, int], how: How) -> tuple[Part, ...]:
    def gap(which: str) -> Gap:
        return Gap(f"[truncated: kept {which} ~{of[0]} of ~{of[1]} tokens ({how})]")

    match how:
        case "ends":
            return _with_errors(words, keep, gap("first+last"))
        case "tail":
            return (gap("last"), Text(truncate.tail(words, keep)))
        case "both":
            first, last = truncate.both(words, keep)
            return (Text(first), gap("first+last"), Text(last))
        case _:
            return (Text(truncate.head(words, keep)), gap("first"))


def _with_errors(words: str, keep: int, gap: Gap) -> tuple[Part, ...]:
    """Head and tail, and between them what is looked for later: error lines, names."""
    first = truncate.head(words, keep * 60 // 100)
    last = truncate.tail(words, keep * 25 // 100, start=len(first))
    start, end = len(first), len(words) - len(last)
    errors = _errors(words[max(start, end - _LOOK) : end], keep * 11 // 100)
    names = _names(words[start : min(start + _LOOK, end)], first + last, keep * 4 // 100)
    found = [Text(f"[errors in the cut]\n{errors}")] if errors else []
    found += [Text(f"[names in the cut] {names}")] if names else []
    return (Text(first), gap, *found, Text(last))


def _errors(text: str, tokens: int) -> str:
    """The newest distinct lines that tell of a failure or an exit status, as they came."""
    kept: list[str] = []
    for line in _faults(text):
        tokens -= count(line) + 1
        if tokens < 0:
            break
        kept.append(line)
    return "\n".join(reversed(kept))


def _faults(text: str) -> Iterator[str]:
    """Those lines, newest first; by pieces from the end: where there are many, one is enough."""
    seen: set[str] = set()
    end = len(text)
    while end > 0:
        start = text.rfind("\n", 0, max(end - _PIECE, 0)) + 1
        piece = text[start:end]
        end = start
        signs = [sign for sign in _SIGNS if sign in piece]
        for whole in reversed(piece.splitlines() if signs else ()):
            line = whole.strip()[:_LINE]
            if line not in seen and any(sign in line for sign in signs):
                seen.add(line)
                if _FAULT.search(line):
                    yield line


def _names(text: str, shown: str, tokens: int) -> str:
    """Paths and code-like names that only the cut part has: most repeated first, then shortest."""
    counted = names(text)
    kept: list[str] = []
    for name in sorted(counted, key=lambda name: (-counted[name], len(name), name)):
        if name in shown:
            continue
        tokens -= count(name) + 1
        if tokens < 0:
            break
        kept.append(name)
    return " ".join(kept)


def _long(words: str) -> bool:
    return _bytes(words) > _LINE_BYTES or len(words.splitlines()) > 2 * _LINES


def _lines(words: str, keep: int) -> tuple[Part, ...]:
    first, omitted, last = truncate.lines(words, _LINES)
    total = omitted + 2 * _LINES if omitted else len(words.splitlines())
    title = Text(f"Total output lines: {total}")
    markers = [f"[... omitted {omitted} of {total} lines ...]"] if omitted else []
    if count(first) + count(last) > keep or _bytes(first) + _bytes(last) > _LINE_BYTES:
        # Both limits hold at once: by lines first, then by the ends of what is still too long.
        markers.append("[... truncated for length ...]")
        if not omitted:
            first, last = truncate.both(words, keep)
        first = _first_bytes(truncate.head(first, keep // 2), _LINE_BYTES // 2)
        last = _last_bytes(truncate.tail(last, keep - keep // 2), _LINE_BYTES // 2)
    return (title, Text(first.rstrip("\n")), Gap("\n".join(markers)), Text(last))


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _first_bytes(text: str, size: int) -> str:
    return text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def _last_bytes(text: str, size: int) -> str:
    return text.encode("utf-8", "replace")[-size:].decode("utf-8", "ignore")


def reclip(view: View, limits: Limits) -> tuple[Clipped, Limits] | None:
    """Cut the newest messages once more, to be appended next; None where they are small.

    For a request that a provider refused. Sizes are bytes here, which tokens never exceed; the
    limits given back are less what the estimate may be too small by.
    """
    limits = learned(limits, view.windows.get(view.model))
    budget = measure(view, limits)
    newest = [
        item
        for item in (*view.items[rules.newest(view) :], *view.waiting)
        if item.role in ("user", "result") and item.state != "folded"
    ]
    sizes = {item.seq: _bytes(text_of(item.parts)) for item in newest}
    free = int(budget.room * _NEWEST)
    if sum(sizes.values()) <= free:
        return None
    share = _level(sizes.values(), free)
    large = [item for item in newest if sizes[item.seq] > share]
    stubs = [Stub(item.seq, _cut_bytes(view, item, share)) for item in large]
    if not stubs:
        return None
    change = Change(span=Range(stubs[0].seq, stubs[-1].seq), masks_on=(view.head + 1,))
    spine = swap(view.spine, change)
    assert spine is not None, "a new mask stands nowhere yet"  # noqa: S101
    left = sum(min(size, share) for size in sizes.values())
    unsure = max(left - sum(count(stub.text) for stub in stubs), 0)
    return Clipped(tuple(stubs), change, spine), replace(limits, window=limits.window - unsure)


def _level(sizes: Iterable[int], most: int) -> int:
    """The size to which all can be cut so that together they do not exceed `most`."""
    left, rest = most, sorted(sizes)
    for at, size in enumerate(rest):
        share = left // (len(rest) - at)
        if size > share:
            return max(share, _LEAST_BYTES)
        left -= size
    return max(most, _LEAST_BYTES)


def _cut_bytes(view: View, item: Item, size: int) -> str:
    """The two ends of a message, and its handle."""
    said = view.held[item.seq]
    whole = said.parts if isinstance(said, UserSaid | ToolReturned) else item.parts
    words = text_of(part for part in whole if isinstance(part, Text))
    half = max(size - _MARKER * 2, _LEAST_BYTES) // 2
    where = f"{CUT_AGAIN}\n[whole: {handle(item.seq)}]"
    return f"{_first_bytes(words, half)}\n{where}\n{_last_bytes(words, half)}"
