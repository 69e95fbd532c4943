"""What every dialect says of a client's own messages: what they are known by, and what they hold.

Knows digests and the small helpers that dialects share. Refuses to know any dialect.
"""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from foldline.core.item import Item
from foldline.core.log import Event, Instructed, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Media
from foldline.dialects.json_reader import Json
from foldline.dialects.json_slices import (
    Slice,
    Splice,
    canonical,
    cut_out,
    find_fields,
    find_values,
    splice,
)

STATEFUL = ("thread", "previous_response_id", "conversation", "background")
"""The fields by which a body refers to what its server keeps: such a body is no whole history."""
MARK = "cache_control"


class Described(NamedTuple):
    """A client's message, as far as it is looked at in every request."""

    role: str
    """user, assistant, tool, or system: those are in no chain."""
    digest: str
    """Of its normal form: what it says, not how it is written."""
    marked: bool
    """Whether it has a cache mark."""
    thinks: bool
    """Whether it has signed thinking."""


class ClientForm(Protocol):
    """How a dialect's clients write messages: each dialect has a module of this shape."""

    def describe(self, raw: bytes) -> Described:
        """What a message is known by."""
        ...

    def read_message(self, raw: bytes, described: Described) -> list[Event]:
        """A message as events."""
        ...

    def read_instructions(
        self, fields: Mapping[str, bytes], leading: Sequence[bytes]
    ) -> Instructed:
        """The instructions and tools of a request."""
        ...

    def answer_message(self, body: Mapping[str, Any]) -> bytes:
        """An answer as the message that a client says again."""
        ...

    def complete_answer(self, body: Json, prefill: bytes) -> Json:
        """An answer together with what the client began it with."""
        ...

    def replace_text(self, raw: bytes, event: Event, item: Item) -> bytes:
        """A message that shows of one of its events what an item does."""
        ...

    def drop_thinking(self, raw: bytes) -> bytes:
        """A message without its signed thinking."""
        ...

    def write_handoff(self, items: Sequence[Item], mark: bytes) -> bytes:
        """A handoff as messages, with the cache mark that it takes over."""
        ...

    def write_message(self, items: Sequence[Item]) -> bytes:
        """The message that some items are, in our own words."""
        ...

    def words_of(self, raw: bytes) -> str:
        """The texts of a message."""
        ...

    def is_results(self, raw: bytes) -> bool:
        """Whether a user's message begins with results."""
        ...

    def item_of(self, event: Event) -> Item:
        """A message's event as it came, to be written."""
        ...


def check_keys(raw: bytes) -> None:
    """Raise where a message or one of its blocks has a key twice: readers differ over those."""
    content = find_fields(raw).get("content")
    if content is not None and raw[content.start : content.start + 1] == b"[":
        for place in find_values(raw, content):
            if raw[place.start : place.start + 1] == b"{":
                find_fields(raw, place)


def digest_of(value: object) -> str:
    """A short digest of a JSON value, whatever the order of its keys."""
    return short(msgspec.json.encode(canonical(value), order="sorted"))


def short(body: bytes) -> str:
    """A short digest of some bytes."""
    return urlsafe_b64encode(hashlib.sha256(body).digest()[:15]).decode()


def chain_on(chain: str, digest: str) -> str:
    """The digest of some messages and one more."""
    return short(f"{chain} {digest}".encode())


def telling(fields: Mapping[str, Any], *ignored: str) -> Json:
    """The fields that say something: no marks, no nulls, nothing empty."""
    return {
        key: value
        for key, value in fields.items()
        if key != MARK and key not in ignored and value not in (None, "", [])
    }


def without_query(url: object) -> object:
    """An address without what a client signs anew: the part behind its `?`."""
    is_web = isinstance(url, str) and url.startswith(("http://", "https://"))
    return cast("str", url).partition("?")[0] if is_web else url


def linked(events: Sequence[Event], digest: str) -> list[Event]:
    """Events of one message: the last is known by its digest, the others go on."""
    found: list[Event] = []
    for at, event in enumerate(events):
        if isinstance(event, UserSaid | ModelSaid | ToolReturned):
            last = at == len(events) - 1
            event = msgspec.structs.replace(event, link=digest if last else "", more=not last)  # noqa: PLW2901
        found.append(event)
    return found


def replace_in_blocks(
    raw: bytes, blocks: Sequence[Slice], text: str, *, media: bool, among: Sequence[Slice]
) -> list[Splice]:
    """Show one text in place of the texts among some blocks, and of media unless they stay.

    The text stands in the first text block, whose other fields stay, or in place of what is left
    out; a cache mark of those that are left out moves to it. Blocks of a kind that nobody knows
    stay. `among` are all blocks of the message.
    """
    every = [(place, find_fields(raw, place)) for place in blocks]
    texts = [(place, fields) for place, fields in every if "text" in fields]
    gone = [place for place, _ in texts[1:]]
    if not media:
        gone += [
            place
            for place, fields in every
            if "text" not in fields and bytes(raw[slice(*fields["type"])]) in _MEDIA
        ]
    if not texts:
        return _replace_media(raw, gone, text, among=among)
    place, fields = texts[0]
    words = fields["text"]
    found = [Splice(words.start, words.end, msgspec.json.encode(text))]
    marks = [find_fields(raw, one).get(MARK) for one in gone]
    moved = next((mark for mark in reversed(marks) if mark), None)
    if moved and MARK not in fields:
        mark = f',"{MARK}":'.encode() + raw[slice(*moved)]
        found.append(Splice(place.end - 1, place.end - 1, mark))
    return [*found, *cut_out(gone, among)]


def _replace_media(
    raw: bytes, gone: Sequence[Slice], text: str, *, among: Sequence[Slice]
) -> list[Splice]:
    """Show a text in place of pictures and files that have none beside them."""
    if not gone:
        return []
    mark = find_mark(raw, gone)
    block = {"type": "text", "text": text, **({MARK: msgspec.Raw(mark)} if mark else {})}
    return [Splice(*gone[0], msgspec.json.encode(block)), *cut_out(gone[1:], among)]


_MEDIA = {b'"image"', b'"document"', b'"image_url"', b'"file"', b'"input_audio"'}


def replace_content(raw: bytes, content: Slice, text: str, *, media: bool) -> list[Splice]:
    """Show one text in place of a content: a string, or the blocks of a list."""
    if raw[content.start : content.start + 1] == b"[":
        blocks = find_values(raw, content)
        found = replace_in_blocks(raw, blocks, text, media=media, among=blocks)
        return found or [Splice(*content, msgspec.json.encode(text))]
    return [Splice(*content, msgspec.json.encode(text))]


def shows_media(item: Item) -> bool:
    """Whether pictures or files stay beside what is shown of an item: a clip cuts words only."""
    return item.state == "clipped" or any(isinstance(part, Media) for part in item.parts)


def find_mark(raw: bytes, blocks: Iterable[Slice]) -> bytes:
    """The last cache mark among some blocks, as the client wrote it; nothing if there is none."""
    found = b""
    for place in blocks:
        if raw[place.start : place.start + 1] != b"{":
            continue
        fields = find_fields(raw, place)
        if (mark := fields.get(MARK)) and raw[slice(*mark)] != b"null":
            found = raw[slice(*mark)]
    return found


def last_mark(raw: bytes) -> bytes:
    """The last cache mark in a message, as the client wrote it; nothing if there is none."""
    content = find_fields(raw).get("content")
    if content is None or raw[content.start : content.start + 1] != b"[":
        return b""
    return find_mark(raw, find_values(raw, content))


def cut_blocks(raw: bytes, kinds: Iterable[bytes]) -> bytes:
    """A message without its blocks of some kinds; as it is, where nothing else would be left."""
    content = find_fields(raw).get("content")
    if content is None or raw[content.start : content.start + 1] != b"[":
        return raw
    blocks = find_values(raw, content)
    gone = [
        one
        for one in blocks
        if raw[one.start : one.start + 1] == b"{"
        and raw[slice(*find_fields(raw, one).get("type", (0, 0)))] in kinds
    ]
    if not gone or len(gone) == len(blocks):
        return raw
    return splice(raw, cut_out(gone, blocks))
