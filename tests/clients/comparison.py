"""What a gateway changed on the way: byte for byte, and whether it is only what Foldline may change.

Foldline may replace a run of messages by one handoff, replace a block's text by a stub or a clip, leave thinking
out, and lower what limits the answer. Everything else is the same bytes in the same order.

Over Responses a message is an item of `input`. There a client may also refer to what the provider keeps, by
`previous_response_id` and `item_reference`, and Foldline may write that out. It may leave reasoning out if it leaves
out the ids of what followed it, and put a handoff and earlier items in the place of a compaction item that it made.
"""

import functools
import json
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

LISTS = ("messages", "input", "contents")
"""Fields that hold the conversation."""
LIMITS = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxOutputTokens",
    "budget_tokens",
)
"""Fields that may be lowered."""
AROUND = ("thinking", "generationConfig")
"""Fields that hold such a limit."""
TEXTS = ("content", "text", "output", "parts", "functionResponse", "response")
"""Fields of a message that hold what may be shortened."""
MARKS = ("cache_control", "thoughtSignature")
"""What a client may leave out when it repeats a message."""
THINKING = ("thinking", "redacted_thinking")
STATE = ("previous_response_id", "store", "include")
"""Fields that may change where what the provider keeps is written out."""
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


def compare_requests(sent: str, got: str, kept: "Kept | None" = None) -> Comparison:
    """Find all that differs; `kept` is what the provider and the client have kept."""
    found = Comparison()
    if sent == got:
        return found
    kept = kept or Kept()
    is_written_out = kept.write_out(sent) != sent and kept.write_out(got) == got
    if is_written_out:  # it then counts what is said, not how it is written
        sent, got = write_plain(kept.write_out(sent)), write_plain(got)
    before, after = split(sent), split(got)
    free = STATE if is_written_out else ()
    if is_written_out:
        names = [[one for one in part.names if one not in free] for part in (before, after)]
        if names[0] != names[1]:
            found.faults.append(f"fields {before.names} became {after.names}")
    elif before.frame != after.frame:
        found.faults.append(f"fields {before.names} became {after.names}, or are written otherwise")
    came = dict(zip(after.names, after.values, strict=True))
    for name, old in zip(before.names, before.values, strict=True):
        new = came.get(name, "")
        if old == new or name in free:
            continue
        if name in LISTS and old.startswith("[") and new.startswith("["):
            compare_messages(old, new, found, kept)
        elif not is_lowered(name, old, new):
            at = find_common(old, new)
            was, became = old[at : at + 40], new[at : at + 40]
            found.faults.append(f"{name} differs at byte {at}: {was!r} became {became!r}")
    return found


def is_lowered(name: str, old: str, new: str) -> bool:
    """Whether a limit was lowered and nothing else; some are one level down."""
    if name in LIMITS:
        return old.isdigit() and new.isdigit() and int(new) < int(old)
    if name not in AROUND or not (old.startswith("{") and new.startswith("{")):
        return False
    before, after = split(old), split(new)
    return before.frame == after.frame and all(
        one == other or is_lowered(part, one, other)
        for part, one, other in zip(before.names, before.values, after.values, strict=True)
    )


def compare_messages(old: str, new: str, found: Comparison, kept: "Kept") -> None:
    """Lay the messages beside each other: the same, patched, or a run that became a handoff."""
    before, after = split(old), split(new)
    last = len(before.values)
    reached = 0
    # A compaction of ours stands for all but the leading instructions; what the client kept beside it may move behind.
    opened = max((at for at, one in enumerate(before.values) if is_own_compaction(one)), default=-1)
    first = next((at for at, one in enumerate(before.values) if not is_instruction(one)), last)

    @functools.cache
    def align(at: int, to: int, lacks_reasoning: bool = False) -> tuple[int, ...] | None:  # noqa: FBT001, FBT002
        """Which of the messages from `to` on are patches, if those from `at` on can have become them."""
        nonlocal reached
        reached = max(reached, to)
        if to == len(after.values):
            return () if at == last else None
        message = after.values[to]
        if at < last:
            was = before.values[at]
            if message == was and (rest := align(at + 1, to + 1)) is not None:
                return rest
            is_bare = lacks_reasoning and is_without_id(was, message)
            if is_patched(was, message) or is_bare:
                rest = align(at + 1, to + 1, lacks_reasoning)
                if rest is not None:
                    return (to, *rest)
            if is_reasoning(was) and (rest := align(at + 1, to, True)) is not None:  # noqa: FBT003
                return rest
            if at == first and opened >= at:
                end = to
                while end < len(after.values) and (
                    after.values[end] in before.values[at:opened]
                    or kept.may_stand_for_compaction(after.values[end])
                ):
                    end += 1
                    if (rest := align(opened + 1, end)) is not None:
                        new = (
                            one for one in range(to, end) if after.values[one] not in before.values
                        )
                        return (*new, *rest)
        if is_handoff(message):  # never of the newest message
            for end in range(at + 1, last):
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


def is_reasoning(item: str) -> bool:
    """Whether an item is reasoning, or refers to some."""
    read = json.loads(item)
    return read.get("type") == "reasoning" or (
        read.get("type") == "item_reference" and read["id"].startswith("rs_")
    )


def is_instruction(item: str) -> bool:
    """Whether an item is the system's or the developer's."""
    return item.startswith("{") and json.loads(item).get("role") in ("system", "developer")


def is_own_compaction(item: str) -> bool:
    """Whether an item is a compaction that Foldline made."""
    read = json.loads(item) if item.startswith("{") else {}
    return read.get("type") == "compaction" and "foldline" in str(read.get("encrypted_content"))


def is_without_id(old: str, new: str) -> bool:
    """Whether an item lost its id and nothing else."""
    before, after = json.loads(old), json.loads(new)
    return "id" not in after and {**after, "id": before.get("id")} == before


def is_handoff(message: str) -> bool:
    """Whether a message is nothing but a handoff."""
    read = json.loads(message) if message.startswith("{") else {}
    content = read.get("content") or read.get("parts")
    if isinstance(content, list):
        content = content[0].get("text") if len(content) == 1 else None
    return isinstance(content, str) and _HANDOFF.match(content) is not None


def is_patched(old: str, new: str) -> bool:
    """Whether a message or a block became another by patches only: stubs, clips, thinking left out."""
    if not (old.startswith("{") and new.startswith("{")):
        return False
    before, after = split(old), split(new)
    if before.frame != after.frame:
        return False
    return all(
        one == other or (name in TEXTS and (is_shortened(one, other) or is_patched(one, other)))
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
    name = next(one for one in LISTS if one in fields.names)
    return fields.values[fields.names.index(name)][:-1]


@dataclass
class Kept:
    """What the provider and the client have kept of earlier exchanges, to which requests over Responses refer."""

    conversations: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The items behind each response, by its id, as they were written."""
    items: dict[str, str] = field(default_factory=dict)
    """Output items by their ids."""
    sent: dict[str, list[str]] = field(default_factory=dict)
    """All items that the client has sent, by the call or the id they have."""

    def record(self, raw: str, response_id: str, output: list[dict[str, Any]]) -> None:
        """Keep a request and the output of its answer."""
        items = list_items(self.write_out(raw))
        for item in items:
            known = self.sent.setdefault(find_item_name(item), [])
            known += [item] if item not in known else []
        written = {one["id"]: json.dumps(one) for one in output if one.get("id")}
        self.items |= written
        if response_id:
            self.conversations[response_id] = (*items, *map(json.dumps, output))

    def write_out(self, raw: str) -> str:
        """A request over Responses with all that it refers to; the same bytes where that is nothing we know."""
        if '"previous_response_id"' not in raw and '"item_reference"' not in raw:
            return raw
        fields = split(raw)
        values = dict(zip(fields.names, fields.values, strict=True))
        behind = self.conversations.get(
            json.loads(values.get("previous_response_id", '""')) or "", ()
        )
        own = list_items(raw)
        items = [*behind, *(self.items.get(find_reference(one), one) for one in own)]
        if items == own:
            return raw
        values.pop("previous_response_id", None)
        values["input"] = f"[{','.join(items)}]"
        return f"{{{','.join(f'{json.dumps(name)}:{value}' for name, value in values.items())}}}"

    def may_stand_for_compaction(self, item: str) -> bool:
        """Whether an item may be what a compaction of Foldline's was opened to: a handoff, or what was sent before."""
        before = self.sent.get(find_item_name(item), ())
        if is_handoff(item) or item in before or any(is_patched(one, item) for one in before):
            return True
        means = strip_item(item)
        known = (*self.items.values(), *(one for sent in self.sent.values() for one in sent))
        return any(strip_item(one) == means for one in known)


def strip_item(item: str) -> Any:
    """What an item says: without ids and status, and a text for a list of one text."""
    read = {key: one for key, one in json.loads(item).items() if one is not None and key not in ("id", "status") and not key.startswith("internal_")}  # fmt: skip
    content = read.get("content")
    if isinstance(content, list) and len(content) == 1 and "text" in content[0]:
        read["content"] = content[0]["text"]
    if "role" in read:
        read.pop("type", None)
    if isinstance(read.get("arguments"), str):
        read["arguments"] = json.loads(read["arguments"])
    return read


def write_plain(raw: str) -> str:
    """A request as what it says: its items without ids, its keys in order."""
    fields = json.loads(raw)
    if isinstance(fields.get("input"), str):
        fields["input"] = [{"role": "user", "content": fields["input"]}]
    fields["input"] = [strip_item(json.dumps(one)) for one in fields["input"]]
    return json.dumps(fields, sort_keys=True)


def list_items(raw: str) -> list[str]:
    """The messages of a request one by one, as they are written; a text alone is one message."""
    fields = split(raw)
    values = dict(zip(fields.names, fields.values, strict=True))
    found = next((values[one] for one in LISTS if one in values), "[]")
    if found.startswith("["):
        return list(split(found).values)
    return [json.dumps({"type": "message", "role": "user", "content": json.loads(found)})]


def find_item_name(item: str) -> str:
    """What an item is known by: its kind, and its call or its id."""
    read = json.loads(item) if item.startswith("{") else {}
    return f"{read.get('type')} {read.get('call_id') or read.get('id')}"


def find_reference(item: str) -> str:
    """The id that an item refers to; nothing where it is none that refers."""
    read = json.loads(item)
    return read["id"] if read.get("type") == "item_reference" else ""


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
    """Bytes of messages that no earlier request had; marks, and a list for a text, make no new message."""
    seen: dict[str, int] = {}
    for raw in requests:
        for message in list_items(raw):
            plain = json.dumps(drop_marks(json.loads(message)), ensure_ascii=False)
            seen[plain] = len(plain.encode())
    return sum(seen.values())


def drop_marks(value: Any) -> Any:
    """A value without marks; a list of one text is that text."""
    if isinstance(value, list):
        parts = [drop_marks(one) for one in value]
        is_text = (
            len(parts) == 1 and isinstance(parts[0], dict) and parts[0].keys() == {"type", "text"}
        )
        return parts[0]["text"] if is_text else parts
    if isinstance(value, dict):
        return {name: drop_marks(one) for name, one in value.items() if name not in MARKS}
    return value
