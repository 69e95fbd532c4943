"""Events in a store: the codec between logs and rows, and the tail that a view is loaded from.

Pictures and other large pieces are stored once, by their hash. Only the store's port is used, so
a wrapped store works like any other.
"""

import hashlib
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import msgspec

from foldline.core import log
from foldline.core import spine as spines
from foldline.core.log import Edit, Event, Logged, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Media, Native, Part, render_parts
from foldline.core.spine import Range, Spine
from foldline.core.view import View, load
from foldline.errors import BadInput, FormatError
from foldline.stores.base import Draft, Head, Name, Row, Store

T = TypeVar("T")
Said = UserSaid | ModelSaid | ToolReturned
LARGE = 16_384
"""From this many characters on, a piece is stored by its hash."""
_PIECE = 2_000  # rows that `iterate_rows` reads at a time
_FEW = 50_000  # bytes of rows: more are read beside the event loop
_EACH = 400  # bytes that take as long to read as a row
_BLOB = "blob:"  # text that itself begins with it is stored by hash too: nobody can forge one


@dataclass(frozen=True, slots=True)
class LogTail:
    """What a view is loaded from: the spine in force, the events it needs, the log's end."""

    spine: Spine
    events: list[Logged]
    head: int
    changed: float = field(default=0.0, compare=False)
    """When the newest of these events was appended, by the store's clock."""
    size: int = field(default=0, compare=False)
    """How many bytes take as long to read as these events."""

    async def load_view(self) -> View:
        """Load the view, beside the event loop if it is large."""
        return await _run_beside(self.build_view, self.size)

    def build_view(self) -> View:
        """Load the view."""
        return load(self.spine, dict(self.events), head=self.head)


async def append_events(  # noqa: PLR0913 - the store's own three conditions
    store: Store,
    name: Name,
    events: Sequence[Event],
    *,
    after: int | None = None,
    fence: int | None = None,
    once: str | None = None,
) -> int:
    """Append events to a log and return the place of the last one."""
    return await store.append(name, build_draft(events), after=after, fence=fence, once=once)


async def read_events(store: Store, name: Name, *spans: Range) -> list[Logged]:
    """Return the events of spans, in order."""
    pairs = _ends_of(spans)
    rows = await store.read(name, pairs)
    while (found := await _decode_rows(store, name, rows)) is None:
        before, rows = rows, await store.read(name, pairs)
        if rows == before:  # nobody erased or trimmed it in between
            raise _make_lost_piece_error(name)
    return found


async def read_tail(store: Store, name: Name, *, at: int | None = None) -> LogTail:
    """Read what the view at `at` (or the end) needs: two reads, however long the log."""
    head = await store.head(name, at=at)
    while True:
        spine = _decode_spine(head)
        spans = _ends_of(list_live_spans(spine, head.seq))
        rows = await store.read(name, spans)
        found = await _decode_rows(store, name, rows)
        if found is not None and not _has_missing_rows(rows, spans, head.floor):
            break
        before, head = head, await store.head(name, at=at)
        if head == before:  # nobody erased or trimmed it in between: the rows are really missing
            if found is None:
                raise _make_lost_piece_error(name)
            break
    changed = max((row.time for row in rows), default=0.0)
    return LogTail(spine, found, head.seq, changed, _weigh_rows(rows))


async def fork_log(store: Store, name: Name, to: str, *, at: int) -> None:
    """Create a session that starts as this one was at a place."""
    if not to:
        raise BadInput("a fork has a name of its own; give one")
    head = await store.head(name, at=at)
    if at < 0 or head.seq != at:
        raise BadInput(f"session {name.session!r} has no place {at} to fork at")
    keep = _ends_of(list_live_spans(_decode_spine(head), head.seq))
    keep += [] if head.edit is None else [(head.edit.seq, head.edit.seq)]
    await store.fork(name, to, at=head.seq, keep=keep)


def list_live_spans(spine: Spine, head: int) -> list[Range]:
    """List the spans that a spine shows, and the single events it needs besides."""
    ranges = [one for one in spine.segments if isinstance(one, Range) and one.lo <= head]
    shown = [Range(one.lo, head if one.hi is None else min(one.hi, head)) for one in ranges]
    alone = (Range(seq, seq) for seq in spines.list_needed_events(spine))
    return [*shown, *(one for one in alone if not any(spines.has_overlap(one, s) for s in shown))]


async def iterate_rows(store: Store, name: Name, head: int) -> AsyncGenerator[Row]:
    """Yield all rows of a log up to its head, read in batches."""
    for lo in range(0, head + 1, _PIECE):
        for row in await store.read(name, [(lo, min(lo + _PIECE - 1, head))]):
            yield row


def _has_missing_rows(rows: Sequence[Row], spans: Sequence[tuple[int, int]], floor: int) -> bool:
    """Whether rows at or above the retention floor are missing."""
    wanted = sum(max(0, hi - max(lo, floor) + 1) for lo, hi in spans)
    return sum(row.seq >= floor for row in rows) < wanted


def _decode_spine(head: Head) -> Spine:
    edit = None if head.edit is None else log.decode_event(head.edit.body)
    return edit.spine if isinstance(edit, Edit) else Spine()


def _ends_of(spans: Iterable[Range]) -> list[tuple[int, int]]:
    return [spines.ends_of(one) for one in spans]


def build_draft(events: Iterable[Event], times: Sequence[float] = ()) -> Draft:
    """Encode events as rows with their large pieces apart; `times` dates the rows."""
    blobs: dict[str, bytes] = {}
    rows = [_encode_row(event, blobs) for event in events]
    if times:
        rows = [row._replace(time=time) for row, time in zip(rows, times, strict=True)]
    return Draft(rows, blobs)


def extract_search_text(body: bytes) -> str:
    """Return the text that a message is found by; "" for other events and unreadable ones."""
    try:
        event = log.decode_event(body)
    except FormatError:  # one unreadable row must not end every search
        return ""
    return render_parts(event.parts) if isinstance(event, Said) else ""


def _encode_row(event: Event, blobs: dict[str, bytes]) -> Row:
    def extract_blob(text: str) -> str:
        if len(text) < LARGE and not text.startswith(_BLOB):
            return text
        body = text.encode()
        name = hashlib.sha256(body).hexdigest()
        blobs[name] = body
        pieces.append(name)
        return f"{_BLOB}{name}"

    pieces: list[str] = []
    kept = _map_pieces(event, extract_blob)
    return Row(
        log.event_kind_of(event),
        log.encode_event(kept),
        isinstance(event, Edit),
        pieces=tuple(pieces),
    )


def _make_lost_piece_error(name: Name) -> FormatError:
    return FormatError(
        f"{name.session!r} names a large piece that its store does not have; restore a backup"
    )


async def _run_beside(work: Callable[[], T], size: int) -> T:
    if size < _FEW:
        return work()
    from foldline.stores.beside import run_beside  # noqa: PLC0415 - half of the time of an import

    return await run_beside(work, size=size)


def _weigh_rows(rows: Sequence[Row]) -> int:
    return sum(len(row.body) for row in rows) + len(rows) * _EACH


def _decode_events(rows: Sequence[Row]) -> tuple[list[Logged], list[str]]:
    """Decode rows; also list the pieces that they name."""
    found = [Logged(row.seq, log.decode_event(row.body)) for row in rows]
    wanted: list[str] = []

    def collect_blob(text: str) -> str:
        wanted.extend([text.removeprefix(_BLOB)] if text.startswith(_BLOB) else [])
        return text

    for _, event in found:
        _map_pieces(event, collect_blob)
    return found, wanted


async def _decode_rows(store: Store, name: Name, rows: Sequence[Row]) -> list[Logged] | None:
    """Decode rows and put their pieces back; None if a piece is gone."""
    found, wanted = await _run_beside(partial(_decode_events, rows), _weigh_rows(rows))
    if not wanted:
        return found
    blobs = await store.blobs(name, wanted)
    if not {*wanted} <= {*blobs}:
        return None

    def restore_blob(text: str) -> str:
        return blobs[text.removeprefix(_BLOB)].decode() if text.startswith(_BLOB) else text

    return [Logged(seq, _map_pieces(event, restore_blob)) for seq, event in found]


def _map_pieces(event: Event, change: Callable[[str], str]) -> Event:
    """Apply `change` to an event's pieces: pictures, other files and native JSON."""
    if not isinstance(event, Said):
        return event
    parts = _map_media(event.parts, change)
    native = event.native
    if native is not None and (body := change(native.body)) != native.body:
        native = Native(native.dialect, body)
    clip = None if isinstance(event, ModelSaid) else event.clip
    if clip is not None and (shown := _map_media(clip.parts, change)) != clip.parts:
        clip = msgspec.structs.replace(clip, parts=shown)
    if isinstance(event, ModelSaid):
        return msgspec.structs.replace(event, parts=parts, native=native)
    return msgspec.structs.replace(event, parts=parts, native=native, clip=clip)


def _map_media(parts: tuple[Part, ...], change: Callable[[str], str]) -> tuple[Part, ...]:
    if not any(isinstance(part, Media) for part in parts):
        return parts
    return tuple(
        msgspec.structs.replace(part, base64=change(part.base64))
        if isinstance(part, Media) and part.base64
        else part
        for part in parts
    )
