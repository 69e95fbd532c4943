"""Digests and patches of clients' messages, shared by the dialects."""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from foldline.core.item import Item
from foldline.core.log import Event, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Call, Gap, Media, Part, Thought, calls_of, spoken_text_of, text_of
from foldline.core.view import View
from foldline.dialects.json_slices import (
    Json,
    Slice,
    Splice,
    apply_splices,
    cut_out,
    encode_normalised,
    find_fields,
    find_values,
)
from foldline.errors import WireError

STATEFUL = ("thread", "previous_response_id", "conversation", "background")
"""Fields that refer to state on the server: such a request is not the whole history."""
MARK = "cache_control"
EMPTY = Gap("[says nothing]")
"""Shown for a message without words, so that it is in the view, counted, and goes back."""


class Described(NamedTuple):
    """The facts of a client's message that every request needs."""

    role: str
    """user, assistant, tool, or system, which is not in the chain. In dialects with compaction also
    `compaction`, a provider's: the model does not see the messages before it; and `fold`, an
    item of ours, in place of the messages that its digest, a `FoldMark`, names."""
    digest: str
    """Of its normal form: what it says, not how it is written."""
    marked: bool
    """Whether it has a cache mark."""
    thinks: bool
    """Whether it has signed thinking."""
    stays: bool = False
    """Whether something in it is kept where it is folded, because later requests depend on it."""
    is_opaque: bool = False
    """Whether nothing of it was understood: it holds its place among the system messages."""

    @staticmethod
    def describe_opaque(raw: bytes) -> "Described":
        """Describe a message of an unknown role, which is carried as it is."""
        return Described(
            "system", digest_bytes(raw), marked=False, thinks=False, stays=True, is_opaque=True
        )


class KeptState(NamedTuple):
    """The state of folded messages that stays in sight."""

    behind: Sequence[bytes] = ()
    """Messages directly behind the handoff."""
    controls: Sequence[bytes] = ()
    """System messages, which a provider wants behind the user's next ones."""


class FoldMark(NamedTuple):
    """Names the beginning of a client's history that is in a log of ours, in place of its messages.

    Clients carry it as opaque text, so it survives where their history does not.
    """

    session: str
    place: int
    """The last event that belongs to it."""
    messages: int
    """How many of the client's messages it replaces."""
    chain: str
    """The digest of these messages, one after the other."""

    def encode(self) -> str:
        """Write it as the text that a client carries."""
        return f"{_OURS}{self.place}:{self.messages}:{self.chain}:{self.session}"

    @staticmethod
    def parse(text: str) -> "FoldMark | None":
        """Read it; None if the text is none of ours."""
        fields = text.removeprefix(_OURS).split(":", 3)
        if not text.startswith(_OURS) or len(fields) != 4:  # noqa: PLR2004
            return None
        place, count, chain, session = fields
        is_number = place.isascii() and place.isdigit() and count.isascii() and count.isdigit()
        if not is_number or max(len(place), len(count)) > 12 or int(count) < 1:  # noqa: PLR2004
            return None
        return FoldMark(session, int(place), int(count), chain)


_OURS = "foldline:1:"


def is_blank_item(item: Item, dialect: str) -> bool:
    """Whether an item has only thoughts or blank words, so that nothing is written.

    A result is always written, and so is an item that came in the dialect itself.
    """
    if item.role == "result" or (item.native is not None and item.native.dialect == dialect):
        return False
    return not any(
        isinstance(part, Call | Media) or spoken_text_of((part,)).strip() for part in item.parts
    )


def find_last_answer(view: View, dialect: str) -> Item | None:
    """Return the answer that a request would end with; None if it ends with something else."""
    if view.open:
        return None  # open calls are closed first, and their results end the request
    every = reversed((*view.items, *view.waiting))
    last = next((item for item in every if not is_blank_item(item, dialect)), None)
    return last if last is not None and last.role == "model" else None


def append_value(listed: bytes, written: bytes) -> bytes | None:
    """Append a value in JSON to a list, which may be b"" or null; None for any other value."""
    if listed in (b"", b"null"):
        return b"[" + written + b"]"
    if not listed.startswith(b"["):
        return None
    last = find_values(listed, Slice(0, len(listed)))
    if not last:
        return b"[" + written + b"]"
    return listed[: last[-1].end] + b"," + written + listed[last[-1].end :]


def item_of(event: Event) -> Item:
    """Turn a message's event into an item to write."""
    match event:
        case ToolReturned():
            return Item(
                0, "result", event.parts, 0, call_id=event.call_id, ok=event.ok, native=event.native
            )
        case ModelSaid():
            return Item(0, "model", event.parts, 0, native=event.native)
        case UserSaid():
            return Item(0, "user", event.parts, 0, native=event.native)
        case _:
            raise WireError("an event that is no message")


def has_visible_parts(parts: tuple[Part, ...]) -> bool:
    """Whether a message shows anything but thoughts: words, media or calls."""
    if calls_of(parts) or any(isinstance(part, Media) for part in parts):
        return True
    return bool(text_of(part for part in parts if not isinstance(part, Thought)).strip())


def normalise_arguments(arguments: Any) -> Any:
    """Decode a call's arguments, however they are spelled; a text that is no JSON is stripped."""
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments or "{}")
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            arguments = arguments.strip()
    return {} if arguments is None else arguments


def check_keys(raw: bytes, *names: str) -> None:
    """Raise if an item repeats a key, or a part of its lists of these names: readers then differ.

    A message is one item, or several with commas between them, or a list of contents.
    """
    if raw.startswith(b'"'):
        return
    listed = raw if raw.startswith(b"[") else b"[" + raw + b"]"
    for place in find_values(listed, Slice(0, len(listed))):
        for name, inner in find_fields(listed, place).items():
            if name in names and listed.startswith(b"[", inner.start):
                for part in find_values(listed, inner):
                    if listed.startswith(b"{", part.start):
                        find_fields(listed, part)


def _find_blocks(raw: bytes) -> list[Slice]:
    """Locate the blocks of a message; none if its content is not a list."""
    content = find_fields(raw).get("content")
    if content is None or not raw.startswith(b"[", content.start):
        return []
    return find_values(raw, content)


def digest_of(value: object) -> str:
    """Return a short digest of a JSON value, independent of key order."""
    return digest_bytes(encode_normalised(value))


def digest_bytes(body: bytes) -> str:
    """Return a short digest of some bytes."""
    return urlsafe_b64encode(hashlib.sha256(body).digest()[:15]).decode()


def chain_on(chain: str, digest: str) -> str:
    """Return the digest of a chain of messages and one more."""
    return digest_bytes(f"{chain} {digest}".encode())


def strip_empty_fields(fields: Mapping[str, Any], *ignored: str) -> Json:
    """Drop cache marks, nulls and empty values."""
    return {
        key: value
        for key, value in fields.items()
        if key != MARK and key not in ignored and value not in (None, "", [])
    }


def without_query(url: object) -> object:
    """Drop a web address's query, which a client may sign anew for every request."""
    is_web = isinstance(url, str) and url.startswith(("http://", "https://"))
    return cast("str", url).partition("?")[0] if is_web else url


def strip_native(event: Event) -> Event:
    """Return an event without the JSON that it came in."""
    if isinstance(event, UserSaid | ModelSaid | ToolReturned):
        return msgspec.structs.replace(event, native=None)
    return event


def link_events(events: Sequence[Event], digest: str) -> list[Event]:
    """Link the events of one message: the last has its digest, the others `more`."""
    found: list[Event] = []
    for at, event in enumerate(events):
        if isinstance(event, UserSaid | ModelSaid | ToolReturned):
            last = at == len(events) - 1
            event = msgspec.structs.replace(event, link=digest if last else "", more=not last)  # noqa: PLW2901
        found.append(event)
    return found


def replace_in_blocks(  # noqa: PLR0913 - a message, and what to write
    raw: bytes,
    blocks: Sequence[Slice],
    text: str,
    *,
    media: bool,
    among: Sequence[Slice],
    kind: str = "text",
) -> list[Splice]:
    """Replace the texts among some blocks by one text, and media too unless `media`.

    The text goes into the first text block, whose other fields stay, or in place of what is
    removed; a cache mark of removed blocks moves to it. Blocks of unknown kinds stay. `among` are
    all blocks of the message; a text block that has to be made is of the type `kind`.
    """
    every = [(place, find_fields(raw, place)) for place in blocks]
    texts = [(place, fields) for place, fields in every if "text" in fields]
    gone = [place for place, _ in texts[1:]]
    if not media:
        gone += [
            place
            for place, fields in every
            if "text" not in fields and bytes(raw[slice(*fields.get("type", (0, 0)))]) in _MEDIA
        ]
    if not texts:
        return _replace_media(raw, gone, text, among=among, kind=kind)
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
    raw: bytes, gone: Sequence[Slice], text: str, *, among: Sequence[Slice], kind: str
) -> list[Splice]:
    """Replace media that have no text beside them by a text."""
    if not gone:
        return []
    mark = find_mark(raw, gone)
    block = {"type": kind, "text": text, **({MARK: msgspec.Raw(mark)} if mark else {})}
    return [Splice(*gone[0], msgspec.json.encode(block)), *cut_out(gone[1:], among)]


_MEDIA = {
    *(b'"image"', b'"document"', b'"image_url"', b'"file"', b'"input_audio"'),
    *(b'"input_image"', b'"input_file"'),
}


def replace_content(
    raw: bytes, content: Slice, text: str, *, media: bool, kind: str = "text"
) -> list[Splice]:
    """Replace a content, a string or a list of blocks, by one text."""
    found: list[Splice] = []
    if raw.startswith(b"[", content.start):
        blocks = find_values(raw, content)
        found = replace_in_blocks(raw, blocks, text, media=media, among=blocks, kind=kind)
    return found or [Splice(*content, msgspec.json.encode(text))]


def shows_media(item: Item) -> bool:
    """Whether an item's media stay beside its text: a clip cuts only words."""
    return item.state == "clipped" or any(isinstance(part, Media) for part in item.parts)


def find_mark(raw: bytes, blocks: Iterable[Slice]) -> bytes:
    """Return the last cache mark among some blocks as the client wrote it, or b""."""
    found = b""
    for block in blocks:
        if not raw.startswith(b"{", block.start):
            continue
        mark = find_fields(raw, block).get(MARK)
        if mark and raw[slice(*mark)] != b"null":
            found = raw[slice(*mark)]
    return found


def last_mark(raw: bytes) -> bytes:
    """Return the last cache mark in a message as the client wrote it, or b""."""
    return find_mark(raw, _find_blocks(raw))


def cut_blocks(raw: bytes, kinds: Iterable[bytes]) -> bytes:
    """Remove a message's blocks of some kinds, unless nothing else would be left."""
    blocks = _find_blocks(raw)
    gone = [
        block
        for block in blocks
        if raw.startswith(b"{", block.start)
        and raw[slice(*find_fields(raw, block).get("type", (0, 0)))] in kinds
    ]
    if not gone or len(gone) == len(blocks):
        return raw
    return apply_splices(raw, cut_out(gone, blocks))
