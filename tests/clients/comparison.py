"""What a gateway changed on the way: byte for byte, and whether it is only what Foldline may change.

Foldline may replace a run of messages by one handoff, replace a block's text by a stub or a clip, leave thinking
out, and lower what limits the answer. Everything else is the same bytes in the same order.
"""

import functools
import json
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

LIMITS = ("max_tokens", "max_completion_tokens", "budget_tokens")
"""Fields that may be lowered."""
THINKING = ("thinking", "redacted_thinking")
_HANDLE = re.compile(r"\blog:\d+")
_HANDOFF = re.compile(r"\s*\[handoff: ")
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[\s,:]*")


class Split(NamedTuple):
    """A JSON object or array in pieces: its values as they are written, and what is written around them."""

    frame: tuple[str, ...]
    values: tuple[str, ...]
    names: tuple[str, ...]
    """The fields' names; none for an array."""


def split(raw: str) -> Split:
    """Split an object or an array at its first level, without a byte of change."""
    at, start, frame, values, names = 1, 0, [], [], []
    while True:
        at = _SPACE.match(raw, at).end()
        if raw[at] in "]}":
            return Split((*frame, raw[start:]), tuple(values), tuple(names))
        if raw[0] == "{":
            name, at = _DECODER.raw_decode(raw, at)
            names.append(name)
            at = _SPACE.match(raw, at).end()
        frame.append(raw[start:at])
        _, start = _DECODER.raw_decode(raw, at)
        values.append(raw[at:start])
        at = start


@dataclass
class Comparison:
    """What differs between a request as it was sent and as it was received."""

    patches: set[str] = field(default_factory=set)
    """Each message that was patched, as it came but without cache marks, which move."""
    faults: list[str] = field(default_factory=list)
    """What Foldline may not change."""


def compare_requests(sent: str, got: str) -> Comparison:
    """Find all that differs."""
    found = Comparison()
    if sent == got:
        return found
    before, after = split(sent), split(got)
    if before.frame != after.frame:
        found.faults.append(f"fields {before.names} became {after.names}, or are written otherwise")
    came = dict(zip(after.names, after.values, strict=True))
    for name, old in zip(before.names, before.values, strict=True):
        new = came.get(name, "")
        if name == "messages" and old != new:
            compare_messages(old, new, found)
        elif old != new and not is_lowered(name, old, new):
            at = find_common(old, new)
            was, became = old[at : at + 40], new[at : at + 40]
            found.faults.append(f"{name} differs at byte {at}: {was!r} became {became!r}")
    return found


def is_lowered(name: str, old: str, new: str) -> bool:
    """Whether a limit was lowered and nothing else; the budget of thinking is one level down."""
    if name in LIMITS:
        return old.isdigit() and new.isdigit() and int(new) < int(old)
    if name != "thinking" or not (old.startswith("{") and new.startswith("{")):
        return False
    before, after = split(old), split(new)
    return before.frame == after.frame and all(
        one == other or is_lowered(part, one, other)
        for part, one, other in zip(before.names, before.values, after.values, strict=True)
    )


def compare_messages(old: str, new: str, found: Comparison) -> None:
    """Lay the messages beside each other: the same, patched, or a run that became a handoff."""
    before, after = split(old), split(new)
    reached = 0

    @functools.cache
    def align(at: int, to: int) -> tuple[int, ...] | None:
        """Which of the messages from `to` on are patches, if those from `at` on can have become them."""
        nonlocal reached
        reached = max(reached, to)
        if to == len(after.values):
            return () if at == len(before.values) else None
        message = after.values[to]
        if at < len(before.values) and (
            message == before.values[at] or is_patched(before.values[at], message)
        ):
            rest = align(at + 1, to + 1)
            if rest is not None:
                return rest if message == before.values[at] else (to, *rest)
        if is_handoff(message):  # never of the newest message
            for end in range(at + 1, len(before.values)):
                if (rest := align(end, to + 1)) is not None:
                    return (to, *rest)
        return None

    patched = align(0, 0)
    if patched is None:
        message = after.values[min(reached, len(after.values) - 1)]
        found.faults.append(f"messages[{reached}] was not sent and is no patch: {message[:80]!r}")
    elif not set(after.frame) <= set(before.frame):
        found.faults.append("messages are written with other spaces between them")
    else:
        found.patches |= {json.dumps(drop_marks(json.loads(after.values[to]))) for to in patched}


def is_handoff(message: str) -> bool:
    """Whether a message is nothing but a handoff."""
    content = json.loads(message).get("content")
    if isinstance(content, list):
        content = content[0].get("text") if len(content) == 1 else None
    return isinstance(content, str) and _HANDOFF.match(content) is not None


def is_patched(old: str, new: str) -> bool:
    """Whether a message or a block became another by patches only: stubs, clips, thinking left out."""
    before, after = split(old), split(new)
    if before.frame != after.frame:
        return False
    return all(
        one == other or (name in ("content", "text") and is_shortened(one, other))
        for name, one, other in zip(before.names, before.values, after.values, strict=True)
    )


def is_shortened(old: str, new: str) -> bool:
    """Whether a content became a stub or a clip, or a list of blocks one with such blocks and without thinking."""
    if old.startswith("[") and new.startswith("["):
        kept = [one for one in split(old).values if json.loads(one).get("type") not in THINKING]
        all_kept, blocks = split(old).values, split(new).values
        for one in (kept, all_kept):
            if len(one) == len(blocks) and all(
                a == b or is_patched(a, b) for a, b in zip(one, blocks, strict=True)
            ):
                return True
    texts = [_HANDLE.findall(one) for one in (old, new)]
    return len(new) < len(old) and len(texts[1]) > 0 and texts[0] != texts[1]


def find_common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def read_messages(raw: str) -> str:
    """The messages of a request, as they are written, without the bracket at their end."""
    fields = split(raw)
    return fields.values[fields.names.index("messages")][:-1]


@dataclass
class Prefixes:
    """How much of each request the next one begins with, outside those in which an edit was made."""

    kept: int = 0
    total: int = 0
    edited: list[int] = field(default_factory=list)
    """Requests that lost more of the one before than the client itself had changed: by a new patch."""
    broken: list[int] = field(default_factory=list)
    """And those that did so without one."""

    @property
    def share(self) -> float:
        """The share of bytes that the next request has in common."""
        return self.kept / self.total if self.total else 0.0


def compare_prefixes(sent: list[str], got: list[str], patches: list[set[str]]) -> Prefixes:
    """Measure consecutive requests. A patch of a message that is new costs no prefix, and is no edit here."""
    found, known = Prefixes(), set()
    ours, theirs = pairwise(map(read_messages, sent)), pairwise(map(read_messages, got))
    for number, ((before, after), (old, new)) in enumerate(zip(ours, theirs, strict=True), 1):
        known |= patches[number - 1]
        common = find_common(old, new)
        has_lost = len(old) - common > len(before) - find_common(before, after)
        if has_lost and patches[number] - known:
            found.edited.append(number)
            continue
        if has_lost:
            found.broken.append(number)
        found.kept, found.total = found.kept + common, found.total + len(old)
    return found


def count_new_bytes(requests: list[str]) -> int:
    """Bytes of messages that no earlier request had; cache marks, and a list for a text, make no new message."""
    seen: dict[str, int] = {}
    for raw in requests:
        for message in json.loads(raw)["messages"]:
            plain = json.dumps(drop_marks(message), ensure_ascii=False)
            seen[plain] = len(plain.encode())
    return sum(seen.values())


def drop_marks(value: Any) -> Any:
    """A value without cache marks; a list of one text is that text."""
    if isinstance(value, list):
        parts = [drop_marks(one) for one in value]
        is_text = (
            len(parts) == 1 and isinstance(parts[0], dict) and parts[0].keys() == {"type", "text"}
        )
        return parts[0]["text"] if is_text else parts
    if isinstance(value, dict):
        return {name: drop_marks(one) for name, one in value.items() if name != "cache_control"}
    return value
