"""Appends: each a transaction of its own, many in one round trip and under one flush.

    alone     select append_one(…)      one row, committed and flushed by the server
    at once   select append(…)          several rows, or pieces: the same
    together  call append_all(…)        appends of one row that came while others were under way:
                                        committed one by one, flushed together, then answered
              call append_each(…)       the same where some have several rows

An append that comes while others are under way has to wait anyway, so those that wait are sent
together. No lock is held for another session, and a refused append refuses no other.

If the connection ends, an append with a `once` key is sent again, which writes it or finds it
written; without a key nobody knows its outcome, and the error says so.

Statements are sent in PostgreSQL's binary format and prepared once per connection. psycopg's cursor
handles any type and statement, and a third of the client's time went into that (280 µs with a
cursor, 180 without, of them 170 for the round trip).
"""

import asyncio
import hashlib
import struct
import time
from asyncio import Future, Task
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, TypeAlias, cast
from uuid import UUID
from weakref import WeakKeyDictionary

import psycopg
from psycopg import generators, pq
from psycopg.errors import error_from_result

from foldline.errors import BadInput, Conflict, Erased, FoldlineError
from foldline.stores.base import Draft, Name, Row
from foldline.stores.beside import run_beside
from foldline.stores.postgres.connections import (
    PATIENCE,
    Connection,
    Connections,
    is_lost,
    is_undone,
    sid_of,
    wait_before_retry,
)

Value: TypeAlias = bytes | None
_INT4, _INT8, _FLOAT8, _HEAD = (struct.Struct(one) for one in ("!i", "!q", "!d", "!iiIii"))
_prepared: "WeakKeyDictionary[psycopg.AsyncConnection[Any], set[bytes]]" = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Type:
    """A type, its oid, its array's oid, and how its values are encoded."""

    name: str
    oid: int
    array: int
    written: Callable[[Any], bytes]


TEXT = Type("text", 25, 1009, lambda one: cast("str", one).encode())
UUID_ = Type("uuid", 2950, 2951, lambda one: cast("UUID", one).bytes)
INT4 = Type("int4", 23, 1007, _INT4.pack)
INT8 = Type("int8", 20, 1016, _INT8.pack)
BOOL = Type("bool", 16, 1000, lambda one: b"\1" if one else b"\0")
FLOAT8 = Type("float8", 701, 1022, _FLOAT8.pack)
BYTEA = Type("bytea", 17, 1001, lambda one: one)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with `$1…` for its values; those from index `arrays` on are arrays."""

    name: bytes
    text: bytes
    types: tuple[Type, ...]
    arrays: int = 1_000

    @property
    def oids(self) -> list[int]:
        """The oids of its values' types."""
        return [one.array if at >= self.arrays else one.oid for at, one in enumerate(self.types)]


def encode_values(statement: Statement, values: Sequence[Any]) -> list[Value]:
    """Encode a statement's values."""
    return [
        encode_value(kind, value) if at < statement.arrays else encode_array(kind, value)
        for at, (kind, value) in enumerate(zip(statement.types, values, strict=True))
    ]


def encode_value(one: Type, value: Any) -> Value:
    """Encode one value."""
    return None if value is None else one.written(value)


def encode_array(one: Type, values: Sequence[Any]) -> bytes:
    """Encode an array of values of one type."""
    parts = [_HEAD.pack(1, 1, one.oid, len(values), 1)]
    for value in values:
        if value is None:
            parts.append(b"\xff\xff\xff\xff")
        else:
            body = one.written(value)
            parts += (_INT4.pack(len(body)), body)
    return b"".join(parts)


def decode_numbers(body: bytes | None, form: str) -> list[Any]:
    """Decode an array of numbers; `form` is `i`, `q` or `d`."""
    if not body:
        return []
    (count,) = _INT4.unpack_from(body, 12)
    numbers: list[Any] = []
    at = _HEAD.size
    for _ in range(count):
        (size,) = _INT4.unpack_from(body, at)
        at += 4
        numbers.append(None if size < 0 else struct.unpack_from(f"!{form}", body, at)[0])
        at += max(size, 0)
    return numbers


def decode_number(body: bytes | None, form: str) -> Any:
    """Decode one number."""
    return None if body is None else struct.unpack(f"!{form}", body)[0]


async def run_binary_statement(
    connection: "psycopg.AsyncConnection[Any]", statement: Statement, values: Sequence[Value]
) -> list[Value]:
    """Run a statement and return its one row, as bytes."""
    server = connection.pgconn
    formats = [pq.Format.BINARY] * len(values)
    if connection.prepare_threshold is None:  # behind a pooler no prepared statement lasts
        server.send_query_params(
            statement.text, values, statement.oids, formats, result_format=pq.Format.BINARY
        )
    else:
        known = _prepared.setdefault(connection, set())
        if statement.name not in known:
            server.send_prepare(statement.name, statement.text, statement.oids)
            results = await connection.wait(generators.execute(server))
            # A caller that was cancelled before the answer came has left it prepared.
            with suppress(psycopg.errors.DuplicatePreparedStatement):
                _check_results(connection, results)
            known.add(statement.name)
        send = partial(
            server.send_query_prepared,
            statement.name, values, formats, result_format=pq.Format.BINARY,
        )  # fmt: skip
        await run_beside(send, size=sum(map(len, filter(None, values))))
    result = _check_results(connection, await connection.wait(generators.execute(server)))
    return [result.get_value(0, at) for at in range(result.nfields)]


def _check_results(connection: "psycopg.AsyncConnection[Any]", results: Sequence[Any]) -> Any:
    result = results[-1]
    if result.status in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        return result
    raise error_from_result(result, connection.info.encoding)


_CONDITIONS = (TEXT, UUID_, TEXT, INT4, INT8, BYTEA)
_ROW = (*_CONDITIONS, TEXT, BOOL, FLOAT8, BYTEA, BYTEA)
_SOME = (
    *_CONDITIONS, INT4, INT8, TEXT, BOOL, FLOAT8, TEXT, BYTEA, BYTEA, TEXT, BYTEA
)  # fmt: skip
_SEVERAL = (*_CONDITIONS, INT4, INT8, INT4, TEXT, BOOL, FLOAT8, BYTEA, BYTEA)
_ARRAYS = 8  # of `_SOME`: the values before describe the append, not its rows
LANES = 2
"""Connections that appends use: while one waits for the disk, the other gets the next batch."""
_EACH = 400  # bytes that take as long to encode as a row
_TOGETHER, _BYTES = 64, 4_000_000  # the most appends and bytes of one batch
_Outcome: TypeAlias = tuple[int, int, float | None]


@dataclass(slots=True, eq=False)
class _Append:
    name: Name
    sid: UUID
    draft: Draft
    after: int | None
    fence: int | None
    once: bytes | None
    since: float
    done: "Future[_Outcome] | None" = None
    tries: int = 0
    apart: bool = False
    """Whether it is sent by itself: it has pieces, or a batch with it was refused."""
    row: Row | None = field(init=False, default=None)
    """Its row, if it has just one, without pieces."""

    @property
    def conditions(self) -> tuple[Any, ...]:
        """The first arguments of all append functions, in order."""
        return (self.name.tenant, self.sid, self.name.session, self.after, self.fence, self.once)

    def __post_init__(self) -> None:
        rows = self.draft.rows  # examined only once: there are thousands a second
        pieces = any([row.pieces for row in rows])  # noqa: C419 - a list of one is faster
        self.row = rows[0] if len(rows) == 1 and not pieces else None
        self.apart = self.apart or not rows or pieces or self.size > _BYTES

    @property
    def weight(self) -> int:
        """How many bytes take as long to encode."""
        return self.draft.size + len(self.draft.rows) * _EACH

    @property
    def newest(self) -> int | None:
        """The index of its newest edit."""
        return max((at for at, row in enumerate(self.draft.rows) if row.edit), default=None)

    @property
    def size(self) -> int:
        """The size of its rows in bytes."""
        return sum(len(row.body) for row in self.draft.rows)


class Appends:
    """The appends of this process: those under way, and those that wait."""

    def __init__(self, db: Connections) -> None:
        self._db = db
        self._one = build_select(db, "append_one", _ROW)
        self._some = build_select(db, "append", _SOME, arrays=_ARRAYS)
        self._all = _build_call(db, "append_all", _ROW)
        self._each = _build_call(db, "append_each", _SEVERAL)
        self._waiting: deque[_Append] = deque()
        self._busy = 0
        self._lanes: set[Task[None]] = set()

    async def append(
        self,
        name: Name,
        draft: Draft,
        *,
        after: int | None = None,
        fence: int | None = None,
        once: str | None = None,
    ) -> int:
        """Append rows to a log and return the place of the last one."""
        self._db.check_open()
        key = None
        if once is not None:
            key = hashlib.sha256(once.encode("utf-8", "surrogatepass")).digest()
        one = _Append(name, sid_of(name), draft, after, fence, key, time.monotonic())
        outcome, place, moment = await (
            self._append_alone(one) if not self._busy else self._append_queued(one)
        )
        match outcome:
            case 1:
                raise Conflict(name.session, -1 if after is None else after, place)
            case 2:
                raise Conflict.make_fence_conflict(
                    name.session, -1 if fence is None else fence, place
                )
            case 3:
                raise Erased(name.session, moment or 0.0)
            case _:
                return place

    async def close(self) -> None:
        """Wait for the appends under way."""
        if self._lanes:
            await asyncio.wait(self._lanes)

    async def _append_alone(self, one: _Append) -> _Outcome:
        """Send an append in the caller's own task, as nobody else appends."""
        self._busy += 1
        try:
            while True:
                try:
                    async with self._db.take_connection() as connection:
                        return await self._send_single(connection, one)
                except psycopg.Error as fault:
                    if not _may_repeat(one, fault, known=True):
                        raise self._db.translate_error(fault, alone=not one.tries) from fault
                one.tries += 1
                await wait_before_retry(one.tries)
        finally:
            self._busy -= 1
            self._start_lane()

    async def _append_queued(self, one: _Append) -> _Outcome:
        one.done = asyncio.get_running_loop().create_future()
        self._waiting.append(one)
        self._start_lane()
        return await one.done

    def _start_lane(self) -> None:
        """Start another lane if appends wait and there is room for one."""
        if self._waiting and self._busy < LANES:
            self._busy += 1
            lane = asyncio.create_task(self._run_lane())
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)

    async def _run_lane(self) -> None:
        batch: list[_Append] = []
        try:
            while self._waiting:
                batch = []
                try:
                    async with self._db.take_connection() as connection:
                        while batch := self._take_batch():
                            await self._send_batch(connection, batch)
                except FoldlineError as fault:
                    _refuse_batch(batch or self._take_batch(), fault)
                except psycopg.Error as fault:
                    # Without a batch there was no connection: nothing was sent.
                    await self._handle_fault(batch or self._take_batch(), fault, sent=bool(batch))
        except BaseException:
            for one in batch:
                cast("Future[_Outcome]", one.done).cancel()
            raise
        finally:
            self._busy -= 1

    def _take_batch(self) -> list[_Append]:
        """Take the next batch, or one append that goes alone; skip those nobody waits for."""
        batch: list[_Append] = []
        size = 0
        while self._waiting and len(batch) < _TOGETHER and size < _BYTES:
            one = self._waiting[0]
            if batch and one.apart:
                break
            self._waiting.popleft()
            if one.done is not None and not one.done.done():
                batch.append(one)
                size += one.size
                if one.apart:
                    break
        return batch

    async def _send_batch(self, connection: Connection, batch: Sequence[_Append]) -> None:
        if len(batch) == 1:
            _set_outcome(batch[0], await self._send_single(connection, batch[0]))
            return
        every = all(one.row is not None for one in batch)
        statement = self._all if every else self._each

        def encode_columns() -> list[Value]:
            return encode_values(statement, _of_all(batch) if every else _of_each(batch))

        columns = await run_beside(encode_columns, size=sum(one.weight for one in batch))
        outcomes, places, moments = await run_binary_statement(connection, statement, columns)
        decoded = zip(
            decode_numbers(outcomes, "i"),
            decode_numbers(places, "q"),
            decode_numbers(moments, "d"),
            strict=True,
        )
        for one, outcome in zip(batch, decoded, strict=True):
            _set_outcome(one, outcome)

    async def _send_single(self, connection: Connection, one: _Append) -> _Outcome:
        statement = self._one if one.row is not None else self._some
        encoded = await run_beside(partial(_encode_single, one, statement), size=one.weight)
        outcome, place, moment = await run_binary_statement(connection, statement, encoded)
        return decode_number(outcome, "i"), decode_number(place, "q"), decode_number(moment, "d")

    async def _handle_fault(
        self, batch: Sequence[_Append], fault: psycopg.Error, *, sent: bool
    ) -> None:
        """Queue again what may be repeated; fail the others with an unknown outcome."""
        again = [one for one in batch if sent and _may_repeat(one, fault, known=len(batch) == 1)]
        for one in batch:
            if one in again:
                one.tries += 1
                one.apart = one.apart or not is_lost(fault)
            else:
                alone = not one.tries and (len(batch) == 1 or not sent)
                _refuse_batch([one], self._db.translate_error(fault, alone=alone))
        if again:
            await wait_before_retry(max(one.tries for one in again))
            self._waiting.extendleft(reversed(again))


def build_select(
    db: Connections, name: str, types: tuple[Type, ...], arrays: int = 1_000
) -> Statement:
    """Build the statement that calls a function, which also sets the tenant."""
    rest = ", ".join(f"${at}" for at in range(2, len(types) + 1))
    text = f"select * from {{schema}}.{name}(set_config('foldline.tenant', $1, true), {rest})"  # noqa: S608 - no user's text in it
    return Statement(f"foldline_{name}".encode(), db.encode_statement(text), types, arrays)


def _build_call(db: Connections, name: str, types: tuple[Type, ...]) -> Statement:
    values = ", ".join(f"${at}" for at in range(1, len(types) + 1))
    text = f"call {{schema}}.{name}({values}, '{{}}', '{{}}', '{{}}')"
    return Statement(f"foldline_{name}".encode(), db.encode_statement(text), types, arrays=0)


def _may_repeat(one: _Append, fault: psycopg.Error, *, known: bool) -> bool:
    """Whether sending it again writes it once; `known`: the fault is this append's own."""
    if time.monotonic() - one.since > PATIENCE:
        return False
    return (known and is_undone(fault)) or (one.once is not None and (is_lost(fault) or not known))


def _refuse_batch(batch: Sequence[_Append], fault: FoldlineError) -> None:
    for one in batch:
        if one.done is not None and not one.done.done():
            one.done.set_exception(fault)


def _set_outcome(one: _Append, outcome: _Outcome) -> None:
    if one.done is not None and not one.done.done():
        one.done.set_result(outcome)


def _encode_single(one: _Append, statement: Statement) -> list[Value]:
    values = (*one.conditions, *(_of_rows(one) if one.row is None else _of_row(one.row)))
    return encode_values(statement, values)


def _of_row(row: Row) -> tuple[Any, ...]:
    return (row.kind, row.edit, row.time or None, hashlib.sha256(row.body).digest(), row.body)


def _of_all(batch: Sequence[_Append]) -> list[tuple[Any, ...]]:
    """Return appends of one row each as columns."""
    rows = ((*one.conditions, *_of_row(cast("Row", one.row))) for one in batch)
    return list(zip(*rows, strict=True))


def _of_each(batch: Sequence[_Append]) -> list[tuple[Any, ...]]:
    """Return appends of any number of rows as columns: those of the appends, then of all rows."""
    ends = accumulate(len(one.draft.rows) for one in batch)
    heads = (
        (*one.conditions, one.newest, one.size, end) for one, end in zip(batch, ends, strict=True)
    )
    rows = (_of_row(row) for one in batch for row in one.draft.rows)
    return [*zip(*heads, strict=True), *zip(*rows, strict=True)]


def _of_rows(one: _Append) -> tuple[Any, ...]:
    rows = one.draft.rows
    named = list(dict.fromkeys(piece for row in rows for piece in row.pieces))
    if any(" " in piece for piece in named):
        raise BadInput(f"a piece of {one.name.session!r} is not named by its hash: it has a space")
    return (
        one.newest,
        one.size,
        [row.kind for row in rows],
        [row.edit for row in rows],
        [row.time or None for row in rows],
        [" ".join(row.pieces) or None for row in rows],
        [hashlib.sha256(row.body).digest() for row in rows],
        [row.body for row in rows],
        named,
        [one.draft.blobs[piece] for piece in named],
    )
