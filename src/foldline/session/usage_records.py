"""The usage of calls, summed by hour, owner and model, for bills.

    recorder = UsageRecorder(store)                  # one for each process
    recorder.add("acme", UsageGroup("alice", "laptop", "claude-opus-4-6"), sums)   # in memory
    await recorder.flush()                           # one statement for each tenant that asked

    rows = await read_usage(store, "acme", since=now - 7 * 86_400)     # of all processes
    for total in group_usage(rows, ("owner", "model")): ...

Sums are kept in the side table of their tenant, by days. A process writes its own sums into
segments that no other process writes: writing one again changes nothing, so that no sum is lost or
counted twice, and a process that is killed loses what came since its last flush. A segment that has
grown is left as it is, and the next one begun. Segments of a day are merged: the full ones while
the day lasts, all of them when it is over. Days older than `keep_days` are erased.
"""

import asyncio
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from time import gmtime, strftime, time
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import msgspec

from foldline.core.prices import PICO, PaidTokens
from foldline.errors import FoldlineError, FormatError
from foldline.stores.base import Name, Store
from foldline.stores.side_values import change_value

SPACE: Final = "usage"
KEEP_DAYS: Final = 100
"""Days for which usage is kept, if nothing else is set."""
ADDED_SECONDS: Final = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)
"""The upper bounds of the latencies that are counted apart; the last count is of longer ones."""
EVERY: Final = 5.0
"""Seconds between two flushes: what a killed process loses at most."""
REGISTRY: Final = "*"
"""The tenant in whose side table the names of all tenants with usage are kept."""
T = TypeVar("T")
Dimension: TypeAlias = Literal["tenant", "owner", "key", "model", "upstream", "day", "hour"]
DIMENSIONS: Final[tuple[Dimension, ...]] = get_args(Dimension)
_DAY, _HOUR = 86_400, 3_600
_FULL = 32_000  # bytes of a segment, from which on the next is begun
_CLOSED = 32  # full segments of one day that are merged together
_CHUNK = 20_000  # rows of a merged segment
_AT_ONCE = 16  # segments read at a time
_LATE = 900.0  # seconds after the end of a day: every process has flushed it by then
_TIDY = 3_600.0  # seconds between two looks at what is to be merged and erased
_log = logging.getLogger("foldline.usage")


class UsageGroup(NamedTuple):
    """Whose calls are summed together, and of which model."""

    owner: str = ""
    key: str = ""
    """What the operator calls the key."""
    model: str = ""
    upstream: str = ""
    """The upstream's name, or the host of its address."""


class UsageSums(msgspec.Struct, array_like=True):
    """Sums over calls; fields may be added at the end."""

    calls: int = 0
    input: int = 0
    """All tokens that were sent, cached or not."""
    output: int = 0
    cache_read: int = 0
    """Of the input: tokens that came from the provider's cache."""
    cache_write: int = 0
    """Of the input: tokens that were written to the provider's cache."""
    pico: int = 0
    """The cost in picodollars, so that sums are exact."""
    saved_pico: int = 0
    """By how much the clients' own requests, sent whole, would have cost more, estimated."""
    edits: int = 0
    folds: int = 0
    healed: int = 0
    """Refusals for length that the client never saw."""
    stored: int = 0
    """Bytes that were written to logs."""
    estimated: int = 0
    """Calls that no provider counted."""
    unpriced: int = 0
    """Calls of models without a known price."""
    added_micros: int = 0
    """Microseconds that requests were here before they were sent on."""
    added_counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(ADDED_SECONDS) + 1))
    """How many were here up to each of `ADDED_SECONDS`, and longer."""
    errors: dict[str, int] = {}
    """Calls without a good answer, by kind."""

    @property
    def dollars(self) -> float:
        """What the calls cost."""
        return self.pico / PICO

    @property
    def saved_dollars(self) -> float:
        """By how much the clients' own requests, sent whole, would have cost more."""
        return self.saved_pico / PICO

    @property
    def whole_dollars(self) -> float:
        """What the clients' own requests, sent whole, would have cost."""
        return (self.pico + self.saved_pico) / PICO

    @property
    def known_dollars(self) -> float | None:
        """The dollars of the calls whose price is known; None if that is no call."""
        return self.dollars if self.calls > self.unpriced + self.estimated else None

    def add_tokens(self, tokens: PaidTokens, pico: int | None) -> None:
        """Add a call's tokens, and its price in picodollars if that is known."""
        self.input += tokens.input
        self.output += tokens.output
        self.cache_read += tokens.read
        self.cache_write += tokens.write + tokens.long
        self.unpriced += pico is None
        self.pico += pico or 0

    def merge(self, other: "UsageSums", times: int = 1) -> None:
        """Add other sums to these; with `times=-1` take them out again."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + times * getattr(other, name))
        counts = zip(self.added_counts, other.added_counts, strict=False)
        self.added_counts = [one + two for one, two in counts]
        if other.errors:
            errors = {**self.errors}
            for kind, count in other.errors.items():
                errors[kind] = errors.get(kind, 0) + count
            self.errors = errors

    def count_added(self, seconds: float) -> None:
        """Count the seconds that one request was here before it was sent on."""
        self.added_micros += round(seconds * 1_000_000)
        at = next((n for n, most in enumerate(ADDED_SECONDS) if seconds <= most), -1)
        self.added_counts[at] += 1


_COUNTS = tuple(
    name for name in UsageSums.__struct_fields__ if name not in ("added_counts", "errors")
)


class UsageRow(NamedTuple):
    """The sums of one hour and group."""

    tenant: str
    hour: int
    """Its beginning, in seconds since 1970."""
    group: UsageGroup
    sums: UsageSums

    def read_dimension(self, name: Dimension) -> str:
        """Return the row's value in a dimension, as text."""
        match name:
            case "tenant":
                return self.tenant
            case "day":
                return strftime("%Y-%m-%d", gmtime(self.hour))
            case "hour":
                return strftime("%Y-%m-%dT%H:00Z", gmtime(self.hour))
            case _:
                return getattr(self.group, name)


class UsageTotal(NamedTuple):
    """The sums of all rows that are equal in some dimensions."""

    values: tuple[str, ...]
    """One for each dimension, in the order in which they were asked for."""
    sums: UsageSums


def group_usage(rows: Iterable[UsageRow], by: Sequence[Dimension]) -> list[UsageTotal]:
    """Sum rows by some dimensions; the dearest first, by time where that is the first dimension."""
    totals: dict[tuple[str, ...], UsageSums] = {}
    for row in rows:
        values = tuple(row.read_dimension(one) for one in by)
        totals.setdefault(values, UsageSums()).merge(row.sums)
    found = [UsageTotal(*pair) for pair in totals.items()]
    if by and by[0] in ("day", "hour"):
        return sorted(found, key=lambda one: (one.values[0], -one.sums.pico, one.values))
    return sorted(found, key=lambda one: (-one.sums.pico, -one.sums.calls, one.values))


class _ListedSegment(msgspec.Struct, array_like=True, frozen=True):
    """A segment in a day's list; a full one is written no more."""

    name: str
    is_full: bool = False


class _UsageDay(msgspec.Struct, array_like=True, frozen=True):
    """The list of a day's segments; `dead` ones are merged and may still have to be erased."""

    segments: tuple[_ListedSegment, ...] = ()
    dead: tuple[str, ...] = ()
    merged: dict[str, int] = {}
    """The segments that were merged when the day was over, and how many changes each had."""


class _KeptDays(msgspec.Struct, array_like=True, frozen=True):
    """The oldest day that may have usage, and the newest that is merged; as `_number_day` does."""

    oldest: int
    merged: int


_Rows: TypeAlias = dict[tuple[int, UsageGroup], UsageSums]
_Written: TypeAlias = tuple[int, str, str, str, str, UsageSums]


@dataclass(slots=True)
class _UsageSegment:
    """What this process adds to one day of a tenant."""

    tenant: str
    day: int
    name: str
    rows: _Rows = field(default_factory=dict[tuple[int, UsageGroup], UsageSums])
    fresh: _Rows = field(default_factory=dict[tuple[int, UsageGroup], UsageSums])
    """Of the rows: what the store may not have."""
    changes: int = 0
    written: int = 0
    """The changes that the store has."""
    is_listed: bool = False

    @property
    def place(self) -> str:
        """Its key in the side table."""
        return _place(self.day, self.name)

    def add(self, key: tuple[int, UsageGroup], sums: UsageSums) -> None:
        """Add sums to a row."""
        for rows in (self.rows, self.fresh):
            before = rows.get(key)
            if before is None:
                rows[key] = before = UsageSums()
            before.merge(sums)
        self.changes += 1


class UsageRecorder:
    """Sums the calls of one process, and writes the sums to the store from time to time."""

    def __init__(
        self,
        store: Store,
        *,
        keep_days: int = KEEP_DAYS,
        clock: Callable[[], float] = time,
    ) -> None:
        self._store, self._clock, self.keep_days = store, clock, keep_days
        self._process, self._number = os.urandom(5).hex(), 0
        self._open: dict[str, _UsageSegment] = {}
        self._left: list[_UsageSegment] = []
        """Segments of days that are over, until they are written."""
        self._registered: set[str] = set()
        self._flushing = asyncio.Lock()
        self._tidied = 0.0
        self._has_failed = False

    def add(self, tenant: str, group: UsageGroup, sums: UsageSums) -> None:
        """Add a call; nothing is written here."""
        now = int(self._clock())
        segment = self._open.get(tenant)
        if segment is None or segment.day != now // _DAY:
            segment = self._begin_segment(tenant, now // _DAY)
        segment.add((now - now % _HOUR, group), sums)

    def _begin_segment(self, tenant: str, day: int) -> _UsageSegment:
        before = self._open.get(tenant)
        if before is not None and before.changes > before.written:
            self._left.append(before)
        self._number += 1
        new = self._open[tenant] = _UsageSegment(tenant, day, f"{self._process}.{self._number}")
        return new

    async def run(self) -> None:
        """Flush, merge and erase until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            await self.flush()
            if self._clock() - self._tidied >= _TIDY:
                self._tidied = self._clock()
                await self._tidy_tenants()

    async def flush(self) -> None:
        """Write what changed; what cannot be written now is written by a later flush."""
        async with self._flushing:
            for segment in (*self._left, *self._open.values()):
                if segment.changes == segment.written:
                    continue
                try:
                    await self._write_segment(segment)
                except FoldlineError as fault:
                    if not self._has_failed:
                        _log.warning("usage is not written now, and kept in memory: %s", fault)
                    self._has_failed = True
                    return
            self._has_failed = False
            self._left = [one for one in self._left if one.changes > one.written]

    async def _write_segment(self, segment: _UsageSegment) -> None:
        await self._register_tenant(segment.tenant)
        if self._clock() > (segment.day + 1) * _DAY + _LATE / 2:
            await self._renew_merged(segment)
            if segment.changes == segment.written:
                return
        if not segment.is_listed:  # before it is written: one that is not listed is never found
            day = await _list_segment(self._store, segment, is_full=False)
            segment.is_listed = True
            if sum(one.is_full for one in day.segments) >= _CLOSED:
                await merge_day(self._store, segment.tenant, segment.day)
        if await self._put_rows(segment) < _FULL or self._open.get(segment.tenant) is not segment:
            return
        self._leave_segment(segment)
        if segment.changes > segment.written:
            await self._put_rows(segment)
        await _list_segment(self._store, segment, is_full=True)

    async def _put_rows(self, segment: _UsageSegment) -> int:
        """Write all rows of a segment; return how many bytes they are."""
        changes, fresh = segment.changes, segment.fresh
        segment.fresh = {}
        body = _encode_rows(segment.rows, changes)
        try:
            await self._store.put(_owner(segment.tenant), SPACE, segment.place, body)
        except BaseException:
            for key, sums in segment.fresh.items():
                fresh.setdefault(key, UsageSums()).merge(sums)
            segment.fresh = fresh
            # It may be written. From here on nothing is added to it: then whoever merges it has
            # either what was written before, or all of it.
            self._leave_segment(segment)
            raise
        segment.written = changes
        return len(body)

    def _leave_segment(self, segment: _UsageSegment) -> None:
        """Add nothing to a segment any more."""
        if self._open.get(segment.tenant) is segment:
            del self._open[segment.tenant]
        if segment not in self._left:
            self._left.append(segment)

    async def _renew_merged(self, segment: _UsageSegment) -> None:
        """Go on under another name, with what is not written, if its day was merged meanwhile."""
        day, _ = await _read_day(self._store, segment.tenant, segment.day)
        merged = day.merged.get(segment.name)
        if merged is None:
            return
        if merged >= segment.changes:
            segment.written = segment.changes
        else:
            self._number += 1
            segment.name, segment.is_listed = f"{self._process}.{self._number}", False
            segment.rows, segment.fresh = segment.fresh, _copy_rows(segment.fresh)

    async def _register_tenant(self, tenant: str) -> None:
        if tenant in self._registered:
            return

        def write(value: bytes | None) -> bytes | None:
            known = _decode(value, list[str]) if value else []
            self._registered.update(known)
            return value if tenant in known else msgspec.msgpack.encode(sorted({*known, tenant}))

        await change_value(self._store, _owner(REGISTRY), SPACE, "tenants", write)
        self._registered.add(tenant)

    async def _tidy_tenants(self) -> None:
        """Merge and erase what is due for every tenant."""
        try:
            for tenant in await list_tenants(self._store):
                await tidy_usage(self._store, tenant, keep_days=self.keep_days, now=self._clock())
        except FoldlineError as fault:
            _log.warning("usage is not merged now, and later: %s", fault)


async def list_tenants(store: Store) -> list[str]:
    """List all tenants that have usage, or had some."""
    entry = await store.get(_owner(REGISTRY), SPACE, "tenants")
    return _decode(entry.value, list[str]) if entry else []


async def read_usage(
    store: Store, tenant: str, *, since: float, until: float | None = None
) -> list[UsageRow]:
    """Read a tenant's usage of all hours that begin from `since` on and before `until`.

    The hours are those of `UsageRow.hour`, so the first one is whole if `since` is in it.
    """
    until = time() if until is None else until
    first = int(since) - int(since) % _HOUR
    merged: _Rows = {}
    for day in range(first // _DAY, int(until) // _DAY + 1):
        for rows in await _read_segments(store, tenant, day):
            for (hour, group), sums in rows.items():
                if first <= hour < until:
                    merged.setdefault((hour, group), UsageSums()).merge(sums)
    return [UsageRow(tenant, *key, sums) for key, sums in sorted(merged.items(), key=_sort_key)]


async def tidy_usage(store: Store, tenant: str, *, keep_days: int, now: float) -> int:
    """Merge the days that are over, and erase those older than `keep_days`; return how many."""
    entry = await store.get(_owner(tenant), SPACE, "kept")
    today = int(now) // _DAY
    before = today - 1 if now % _DAY > _LATE else today - 2
    if entry is None:
        kept = _KeptDays(today - max(keep_days, 1) - 1, before - 1)
    else:
        kept = _decode(entry.value, _KeptDays)
    for day in range(max(kept.merged + 1, today - keep_days), before + 1):
        await merge_day(store, tenant, day, is_over=True)
    erased = 0
    for day in range(kept.oldest, today - keep_days):
        erased += await _erase_day(store, tenant, day)
    new = _KeptDays(max(kept.oldest, today - keep_days), max(kept.merged, before))
    if entry is None or new != kept:
        version = entry.version if entry else 0
        body = msgspec.msgpack.encode(new)  # if another process was first, it did the same
        await store.put(_owner(tenant), SPACE, "kept", body, version=version)
    return erased


async def merge_day(store: Store, tenant: str, day: int, *, is_over: bool = False) -> None:
    """Merge the full segments of a day; all of them if the day is over."""
    listed, version = await _read_day(store, tenant, day)
    old = [one.name for one in listed.segments if is_over or one.is_full]
    if len(old) < (2 if is_over else _CLOSED) and not listed.dead:
        return
    segments, dead = listed.segments, listed.dead
    if len(old) > 1:
        rows: _Rows = {}
        merged = {**listed.merged}
        for name in old:
            entry = await store.get(_owner(tenant), SPACE, _place(day, name))
            changes, some = (
                _decode_rows(entry.value)
                if entry
                else (0, dict[tuple[int, UsageGroup], UsageSums]())
            )
            if is_over:
                merged[name] = changes
            for key, sums in some.items():
                rows.setdefault(key, UsageSums()).merge(sums)
        items, new = iter(rows.items()), list[str]()
        while chunk := dict(islice(items, _CHUNK)):
            new.append(f"merged.{os.urandom(5).hex()}")
            place = _place(day, new[-1])
            await store.put(_owner(tenant), SPACE, place, _encode_rows(chunk, 0))
        # Not full: while the day lasts, what was merged is not read and written again.
        left = (one for one in segments if one.name not in old)
        segments = (*(_ListedSegment(name) for name in new), *left)
    else:
        old, new, merged = [], [], listed.merged
    body = msgspec.msgpack.encode(_UsageDay(segments, tuple(old), merged))
    done = await store.put(_owner(tenant), SPACE, _place(day), body, version=version)
    gone = {*dead, *old} - {one.name for one in segments} if done else new
    for name in gone:  # not done: another process was first
        await store.put(_owner(tenant), SPACE, _place(day, name), None)


async def _erase_day(store: Store, tenant: str, day: int) -> int:
    listed, version = await _read_day(store, tenant, day)
    if not version:
        return 0
    for name in (*(one.name for one in listed.segments), *listed.dead):
        await store.put(_owner(tenant), SPACE, _place(day, name), None)
    await store.put(_owner(tenant), SPACE, _place(day), None)
    return 1


async def _read_segments(store: Store, tenant: str, day: int) -> list[_Rows]:
    """Read all segments of a day; again if some were merged meanwhile."""
    while True:
        listed, version = await _read_day(store, tenant, day)
        names = [one.name for one in listed.segments]
        found: list[_Rows] = []
        lost = False
        for at in range(0, len(names), _AT_ONCE):
            entries = await asyncio.gather(
                *(
                    store.get(_owner(tenant), SPACE, _place(day, name))
                    for name in names[at : at + _AT_ONCE]
                )
            )
            lost = lost or None in entries
            found += [_decode_rows(entry.value)[1] for entry in entries if entry is not None]
        # One that is listed and not written yet is no loss; one that was merged is in another.
        if not lost or (await _read_day(store, tenant, day))[1] == version:
            return found


async def _read_day(store: Store, tenant: str, day: int) -> tuple[_UsageDay, int]:
    entry = await store.get(_owner(tenant), SPACE, _place(day))
    return (_decode(entry.value, _UsageDay), entry.version) if entry else (_UsageDay(), 0)


async def _list_segment(store: Store, segment: _UsageSegment, *, is_full: bool) -> _UsageDay:
    """Write a segment into the list of its day; return the list."""
    new = _UsageDay()

    def write(value: bytes | None) -> bytes:
        nonlocal new
        day = _decode(value, _UsageDay) if value else _UsageDay()
        others = (one for one in day.segments if one.name != segment.name)
        listed = _ListedSegment(segment.name, is_full)
        new = _UsageDay((*others, listed), day.dead, day.merged)
        return msgspec.msgpack.encode(new)

    await change_value(store, _owner(segment.tenant), SPACE, _place(segment.day), write)
    return new


def _owner(tenant: str) -> Name:
    return Name(tenant, "")


def _place(day: int, name: str = "") -> str:
    date = strftime("%Y-%m-%d", gmtime(day * _DAY))
    return f"{date}/{name}" if name else date


def _encode_rows(rows: Mapping[tuple[int, UsageGroup], UsageSums], changes: int) -> bytes:
    written = [(hour, *group, sums) for (hour, group), sums in rows.items()]
    return zlib.compress(msgspec.msgpack.encode((changes, written)), 1)


def _decode_rows(body: bytes) -> tuple[int, _Rows]:
    try:
        plain = zlib.decompress(body)
    except zlib.error as fault:
        raise FormatError(f"usage that cannot be read: {fault}") from fault
    rows: _Rows = {}
    changes, written = _decode(plain, tuple[int, list[_Written]])
    for hour, owner, key, model, upstream, sums in written:
        rows[hour, UsageGroup(owner, key, model, upstream)] = sums
    return changes, rows


def _copy_rows(rows: _Rows) -> _Rows:
    copied: _Rows = {}
    for key, sums in rows.items():
        copied.setdefault(key, UsageSums()).merge(sums)
    return copied


def _sort_key(pair: tuple[tuple[int, UsageGroup], UsageSums]) -> tuple[int, UsageGroup]:
    return pair[0]


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except msgspec.DecodeError as fault:
        raise FormatError(f"usage that cannot be read: {fault}") from fault
