"""Events in a store: the codec between logs and rows, and the tail that a view is loaded from.

Knows events' JSON, and that pictures and other large pieces are kept once, by their hash. Refuses
to know backends: it stands on the store's operations alone, so a wrapped store is a store.
"""

import hashlib
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from foldline.core import log
from foldline.core import spine as spines
from foldline.core.log import Edit, Event, Logged, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Media, Native, Part, retold
from foldline.core.spine import Range, Spine
from foldline.core.view import View, load
from foldline.errors import BadInput, FormatError
from foldline.stores.base import Draft, Head, Name, Row, Store

Said = UserSaid | ModelSaid | ToolReturned
LARGE = 16_384
"""The characters from which a piece is kept by its hash."""
_PIECE = 2_000  # rows that a walk reads at a time
_BLOB = "blob:"  # what begins so of itself is set apart too: nobody can forge one


@dataclass(frozen=True, slots=True)
class LogTail:
    """What a view is loaded from: the spine in force, the events it needs, the log's end."""

    spine: Spine
    events: list[Logged]
    head: int
    changed: float = field(default=0.0, compare=False)
    """When the newest of these events was appended, by the store's clock."""

    def view(self) -> View:
        """The view that this is the tail of."""
        return load(self.spine, dict(self.events), head=self.head)


async def append(  # noqa: PLR0913 - the store's own three conditions
    store: Store,
    name: Name,
    events: Sequence[Event],
    *,
    after: int | None = None,
    fence: int | None = None,
    once: str | None = None,
) -> int:
    """Add events to a log; the place of the last one."""
    return await store.append(name, draft(events), after=after, fence=fence, once=once)


async def read(store: Store, name: Name, *spans: Range) -> list[Logged]:
    """The events of some spans, in order."""
    pairs = _pairs(spans)
    rows = await store.read(name, pairs)
    while (found := await _events(store, name, rows)) is None:
        before, rows = rows, await store.read(name, pairs)
        if rows == before:  # nobody erased or trimmed it in between
            raise _lost(name)
    return found


async def tail(store: Store, name: Name, *, at: int | None = None) -> LogTail:
    """What the view at `at` (or the end) is made of, however long the log: two reads."""
    head = await store.head(name, at=at)
    while True:
        spine = _spine(head)
        spans = _pairs(live(spine, head.seq))
        rows = await store.read(name, spans)
        found = await _events(store, name, rows)
        if found is not None and not _lacks(rows, spans, head.floor):
            break
        before, head = head, await store.head(name, at=at)
        if head == before:  # nobody erased or trimmed it in between: it is as it is
            if found is None:
                raise _lost(name)
            break
    changed = max((row.time for row in rows), default=0.0)
    return LogTail(spine, found, head.seq, changed)


async def fork(store: Store, name: Name, to: str, *, at: int) -> None:
    """A new session that begins as this one was at a place."""
    if not to:
        raise BadInput("a fork has a name of its own; give one")
    head = await store.head(name, at=at)
    if at < 0 or head.seq != at:
        raise BadInput(f"session {name.session!r} has no place {at} to fork at")
    keep = _pairs(live(_spine(head), head.seq))
    keep += [] if head.edit is None else [(head.edit.seq, head.edit.seq)]
    await store.fork(name, to, at=head.seq, keep=keep)


def live(spine: Spine, head: int) -> list[Range]:
    """The spans that a spine shows, and the single events that it needs besides."""
    ranges = [one for one in spine.segments if isinstance(one, Range) and one.lo <= head]
    shown = [Range(one.lo, head if one.hi is None else min(one.hi, head)) for one in ranges]
    alone = (Range(seq, seq) for seq in spines.needs(spine))
    return [*shown, *(one for one in alone if not any(spines.overlap(one, s) for s in shown))]


async def walk(store: Store, name: Name, head: int) -> AsyncGenerator[Row]:
    """All rows of a log up to its head, however many, some at a time."""
    for lo in range(0, head + 1, _PIECE):
        for row in await store.read(name, [(lo, min(lo + _PIECE - 1, head))]):
            yield row


def _lacks(rows: Sequence[Row], spans: Sequence[tuple[int, int]], floor: int) -> bool:
    """Whether rows are missing that retention has left whole."""
    wanted = sum(max(0, hi - max(lo, floor) + 1) for lo, hi in spans)
    return sum(row.seq >= floor for row in rows) < wanted


def _spine(head: Head) -> Spine:
    """The spine in force at a head: that of its newest edit."""
    edit = None if head.edit is None else log.decode(head.edit.body)
    return edit.spine if isinstance(edit, Edit) else Spine()


def _pairs(spans: Iterable[Range]) -> list[tuple[int, int]]:
    return [spines.ends(one) for one in spans]


def draft(events: Iterable[Event], times: Sequence[float] = ()) -> Draft:
    """Events as rows, their large pieces apart; dated, where it is known when they happened."""
    blobs: dict[str, bytes] = {}
    rows = [_row(event, blobs) for event in events]
    if times:
        rows = [row._replace(time=time) for row, time in zip(rows, times, strict=True)]
    return Draft(rows, blobs)


def words(body: bytes) -> str:
    """What a message may be found by."""
    event = log.decode(body)
    return retold(event.parts) if isinstance(event, Said) else ""


def _row(event: Event, blobs: dict[str, bytes]) -> Row:
    def apart(text: str) -> str:
        if len(text) < LARGE and not text.startswith(_BLOB):
            return text
        body = text.encode()
        name = hashlib.sha256(body).hexdigest()
        blobs[name] = body
        pieces.append(name)
        return f"{_BLOB}{name}"

    pieces: list[str] = []
    kept = _mapped(event, apart)
    return Row(log.kind(event), log.encode(kept), isinstance(event, Edit), pieces=tuple(pieces))


def _lost(name: Name) -> FormatError:
    return FormatError(
        f"{name.session!r} names a large piece that its store does not have; restore a backup"
    )


async def _events(store: Store, name: Name, rows: Sequence[Row]) -> list[Logged] | None:
    """Rows as events, their pieces put back; None where one of those is not there any more."""
    found = [Logged(row.seq, log.decode(row.body)) for row in rows]
    wanted: list[str] = []

    def note(text: str) -> str:
        wanted.extend([text.removeprefix(_BLOB)] if text.startswith(_BLOB) else [])
        return text

    for _, event in found:
        _mapped(event, note)
    if not wanted:
        return found
    blobs = await store.blobs(name, wanted)
    if not {*wanted} <= {*blobs}:
        return None

    def whole(text: str) -> str:
        return blobs[text.removeprefix(_BLOB)].decode() if text.startswith(_BLOB) else text

    return [Logged(seq, _mapped(event, whole)) for seq, event in found]


def _mapped(event: Event, change: Callable[[str], str]) -> Event:
    """An event with its pieces changed: pictures and other files, and foreign JSON."""
    if not isinstance(event, Said):
        return event
    parts = _parts(event.parts, change)
    native = event.native
    if native is not None and (body := change(native.body)) != native.body:
        native = Native(native.dialect, body)
    clip = None if isinstance(event, ModelSaid) else event.clip
    if clip is not None and (shown := _parts(clip.parts, change)) != clip.parts:
        clip = msgspec.structs.replace(clip, parts=shown)
    if isinstance(event, ModelSaid):
        return msgspec.structs.replace(event, parts=parts, native=native)
    return msgspec.structs.replace(event, parts=parts, native=native, clip=clip)


def _parts(parts: tuple[Part, ...], change: Callable[[str], str]) -> tuple[Part, ...]:
    if not any(isinstance(part, Media) for part in parts):
        return parts
    return tuple(
        msgspec.structs.replace(part, base64=change(part.base64))
        if isinstance(part, Media) and part.base64
        else part
        for part in parts
    )
