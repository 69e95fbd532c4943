"""Clipping: what is shown of a message that is too large, decided once, when it arrives.

Knows the ways to cut and the words of their markers. Refuses to know the log: the handle and the
outcome are added by the view, which knows the message's place.
"""

import msgspec

from foldline.core import cut
from foldline.core.log import Clip, Gap, Part, Text, ToolReturned, UserSaid, text_of
from foldline.core.policy import How
from foldline.core.tokens import count

_LINES = 128
_LINE_BYTES = 10 * 1024
_MARKER = 56  # tokens that the marker, its handle and line ends take


def clip(event: UserSaid | ToolReturned, *, cap: int, how: How) -> UserSaid | ToolReturned:
    """The event with a clip, where its words exceed `cap` tokens; the whole stays in the event."""
    words = text_of(event.parts)
    whole = count(words)
    if whole <= cap and not (how == "lines" and _long(words)):
        return event
    keep = max(cap - _MARKER, 1)
    texts = _lines(words, keep) if how == "lines" else _ends(words, keep, whole=whole, how=how)
    others = (part for part in event.parts if not isinstance(part, Text | Gap))
    shown = Clip((*texts, *others), how, whole, sum(count(text_of((part,))) for part in texts))
    return msgspec.structs.replace(event, clip=shown)


def _ends(words: str, keep: int, *, whole: int, how: How) -> tuple[Part, ...]:
    def gap(which: str) -> Gap:
        return Gap(f"[truncated: kept {which} ~{keep} of ~{whole} tokens ({how})]")

    match how:
        case "tail":
            return (gap("last"), Text(cut.tail(words, keep)))
        case "both":
            first, last = cut.both(words, keep)
            return (Text(first), gap("first+last"), Text(last))
        case _:
            return (Text(cut.head(words, keep)), gap("first"))


def _long(words: str) -> bool:
    return _bytes(words) > _LINE_BYTES or words.count("\n") >= 2 * _LINES


def _lines(words: str, keep: int) -> tuple[Part, ...]:
    total = len(words.splitlines())
    first, omitted, last = cut.lines(words, _LINES)
    title = Text(f"Total output lines: {total}")
    markers = [f"[... omitted {omitted} of {total} lines ...]"] if omitted else []
    if count(first) + count(last) > keep or _bytes(first) + _bytes(last) > _LINE_BYTES:
        # Both limits hold at once: by lines first, then by the ends of what is still too long.
        markers.append("[... truncated for length ...]")
        if not omitted:
            first, last = cut.both(words, keep)
        first = _first_bytes(cut.head(first, keep // 2), _LINE_BYTES // 2)
        last = _last_bytes(cut.tail(last, keep - keep // 2), _LINE_BYTES // 2)
    return (title, Text(first.rstrip("\n")), Gap("\n".join(markers)), Text(last))


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _first_bytes(text: str, size: int) -> str:
    return text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def _last_bytes(text: str, size: int) -> str:
    return text.encode("utf-8", "replace")[-size:].decode("utf-8", "ignore")
