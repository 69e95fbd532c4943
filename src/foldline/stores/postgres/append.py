"""Appends: each a transaction of its own, many in one round trip and under one flush.

    alone     select append_one(…)      one row, committed and flushed by the server
    at once   select append(…)          several rows, pieces: the same
    together  call append_all(…)        what came while others were under way: committed one by one,
              call append_each(…)       flushed as one, and nobody is told before; where some have
                                        several rows, by the second

Whoever appends while others do waits for them anyway, so what came meanwhile is sent together. No
lock is held for another session, and one that is refused takes none with it.

Knows what becomes of an append whose connection ends: with a `once` key it is sent again, which
writes it or finds it written; without one nobody knows, and that is said. Refuses to know events.
"""

import asyncio
import hashlib
import time
from asyncio import Future, Task
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, TypeAlias, cast
from uuid import UUID

import psycopg

from foldline.errors import BadInput, Conflict, Erased, FoldlineError
from foldline.stores.base import Draft, Name, Row
from foldline.stores.postgres.connections import (
    PATIENCE,
    Connection,
    Connections,
    is_lost,
    is_undone,
    pause,
    sid,
)
from foldline.stores.postgres.wire_format import (
    BOOL,
    BYTEA,
    FLOAT8,
    INT4,
    INT8,
    TEXT,
    UUID_,
    Statement,
    Type,
    array,
    number,
    numbers,
    single,
    speak,
)

_CONDITIONS = (TEXT, UUID_, TEXT, INT4, INT8, BYTEA)
_ROW = (*_CONDITIONS, TEXT, BOOL, FLOAT8, BYTEA, BYTEA)
_SOME = (
    *_CONDITIONS, INT4, INT8, TEXT, BOOL, FLOAT8, TEXT, BYTEA, BYTEA, TEXT, BYTEA
)  # fmt: skip
_SEVERAL = (*_CONDITIONS, INT4, INT8, INT4, TEXT, BOOL, FLOAT8, BYTEA, BYTEA)
_ARRAYS = 8  # of `_SOME`: the values before are of the append, not of its rows
LANES = 2
"""Connections that appends take: while one waits for the disk, the other is sent the next batch."""
_TOGETHER, _BYTES = 64, 4_000_000  # the most appends and bytes of one batch
_Outcome: TypeAlias = tuple[int, int, float | None]


@dataclass(slots=True, eq=False)
class _Append:
    """One append that somebody waits for."""

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
    """Sent by itself: it has pieces, or sent with others it was refused, or one of them was."""
    row: Row | None = field(init=False, default=None)
    """Its row, where it is one without pieces."""

    @property
    def conditions(self) -> tuple[Any, ...]:
        """What its functions have in common, in their order; the tenant first."""
        return (self.name.tenant, self.sid, self.name.session, self.after, self.fence, self.once)

    def __post_init__(self) -> None:
        rows = self.draft.rows  # looked at once: there are thousands a second
        pieces = any([row.pieces for row in rows])  # noqa: C419 - a list of one is faster
        self.row = rows[0] if len(rows) == 1 and not pieces else None
        self.apart = self.apart or not rows or pieces

    @property
    def newest(self) -> int | None:
        """Which of its rows is its newest edit."""
        return max((at for at, row in enumerate(self.draft.rows) if row.edit), default=None)

    @property
    def size(self) -> int:
        """The bytes of its rows."""
        return sum(len(row.body) for row in self.draft.rows)


class Appends:
    """What this process appends, and what waits for it."""

    def __init__(self, db: Connections) -> None:
        self._db = db
        self._one = _selecting(db, "append_one", _ROW)
        self._some = _selecting(db, "append", _SOME, arrays=_ARRAYS)
        self._all = _calling(db, "append_all", _ROW)
        self._each = _calling(db, "append_each", _SEVERAL)
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
        """Add rows at the end of a log; the place of the last one."""
        self._db.check()
        key = None if once is None else hashlib.sha256(once.encode("utf-8", "surrogatepass"))
        digest = None if key is None else key.digest()
        one = _Append(name, sid(name), draft, after, fence, digest, time.monotonic())
        outcome, place, moment = await (self._alone(one) if not self._busy else self._queued(one))
        match outcome:
            case 1:
                raise Conflict(name.session, -1 if after is None else after, place)
            case 2:
                raise Conflict.over(name.session, -1 if fence is None else fence, place)
            case 3:
                raise Erased(name.session, moment or 0.0)
            case _:
                return place

    async def close(self) -> None:
        """Wait for what is under way."""
        if self._lanes:
            await asyncio.wait(self._lanes)

    async def _alone(self, one: _Append) -> _Outcome:
        """Nobody else appends: in the caller's own task."""
        self._busy += 1
        try:
            while True:
                try:
                    async with self._db.one() as connection:
                        return await self._single(connection, one)
                except psycopg.Error as fault:
                    if not _may_repeat(one, fault, known=True):
                        raise self._db.meaning(fault, alone=not one.tries) from fault
                one.tries += 1
                await pause(one.tries)
        finally:
            self._busy -= 1
            self._wake()

    async def _queued(self, one: _Append) -> _Outcome:
        one.done = asyncio.get_running_loop().create_future()
        self._waiting.append(one)
        self._wake()
        return await one.done

    def _wake(self) -> None:
        """Another lane, where something waits and there is room for one."""
        if self._waiting and self._busy < LANES:
            self._busy += 1
            lane = asyncio.create_task(self._serve())
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)

    async def _serve(self) -> None:
        """Send what waits, for as long as something does."""
        batch: list[_Append] = []
        try:
            while self._waiting:
                batch = []
                try:
                    async with self._db.one() as connection:
                        while batch := self._taken():
                            await self._send(connection, batch)
                except FoldlineError as fault:
                    _refuse(batch or self._taken(), fault)
                except psycopg.Error as fault:
                    # Without a batch there was no connection: nothing was sent.
                    await self._resolve(batch or self._taken(), fault, sent=bool(batch))
        except BaseException:
            for one in batch:
                cast("Future[_Outcome]", one.done).cancel()
            raise
        finally:
            self._busy -= 1

    def _taken(self) -> list[_Append]:
        """The next batch: appends without pieces, or another alone; not those nobody waits for."""
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

    async def _send(self, connection: Connection, batch: Sequence[_Append]) -> None:
        if len(batch) == 1:
            _tell(batch[0], await self._single(connection, batch[0]))
            return
        every = all(one.row is not None for one in batch)
        values = _of_all(batch) if every else _of_each(batch)
        statement = self._all if every else self._each
        columns = [
            array(kind, column) for kind, column in zip(statement.types, values, strict=True)
        ]
        outcomes, places, moments = await speak(connection, statement, columns)
        told = zip(numbers(outcomes, "i"), numbers(places, "q"), numbers(moments, "d"), strict=True)
        for one, outcome in zip(batch, told, strict=True):
            _tell(one, outcome)

    async def _single(self, connection: Connection, one: _Append) -> _Outcome:
        row = one.row
        statement = self._one if row is not None else self._some
        values = (*one.conditions, *(_of_row(row) if row is not None else _of_rows(one)))
        given = [
            single(kind, value) if at < statement.arrays else array(kind, value)
            for at, (kind, value) in enumerate(zip(statement.types, values, strict=True))
        ]
        outcome, place, moment = await speak(connection, statement, given)
        return number(outcome, "i"), number(place, "q"), number(moment, "d")

    async def _resolve(self, batch: Sequence[_Append], fault: psycopg.Error, *, sent: bool) -> None:
        """After a fault: send again what may be, and tell the others that nobody knows."""
        again = [one for one in batch if sent and _may_repeat(one, fault, known=len(batch) == 1)]
        for one in batch:
            if one in again:
                one.tries += 1
                one.apart = one.apart or not is_lost(fault)
            else:
                alone = not one.tries and (len(batch) == 1 or not sent)
                _refuse([one], self._db.meaning(fault, alone=alone))
        if again:
            await pause(max(one.tries for one in again))
            self._waiting.extendleft(reversed(again))


def _selecting(
    db: Connections, name: str, types: tuple[Type, ...], arrays: int = 1_000
) -> Statement:
    """One append: the tenant is set in the same round trip."""
    rest = ", ".join(f"${at}" for at in range(2, len(types) + 1))
    text = f"select * from {{schema}}.{name}(set_config('foldline.tenant', $1, true), {rest})"  # noqa: S608 - of ours alone
    return Statement(f"foldline_{name}".encode(), db.text(text), types, arrays)


def _calling(db: Connections, name: str, types: tuple[Type, ...]) -> Statement:
    """Several."""
    given = ", ".join(f"${at}" for at in range(1, len(types) + 1))
    text = f"call {{schema}}.{name}({given}, '{{}}', '{{}}', '{{}}')"
    return Statement(f"foldline_{name}".encode(), db.text(text), types, arrays=0)


def _may_repeat(one: _Append, fault: psycopg.Error, *, known: bool) -> bool:
    """Whether sending it again writes it once; `known` says that the fault is this append's own."""
    if time.monotonic() - one.since > PATIENCE:
        return False
    return (known and is_undone(fault)) or (one.once is not None and (is_lost(fault) or not known))


def _refuse(batch: Sequence[_Append], fault: FoldlineError) -> None:
    for one in batch:
        if one.done is not None and not one.done.done():
            one.done.set_exception(fault)


def _tell(one: _Append, outcome: _Outcome) -> None:
    if one.done is not None and not one.done.done():
        one.done.set_result(outcome)


def _of_row(row: Row) -> tuple[Any, ...]:
    return (row.kind, row.edit, row.time or None, hashlib.sha256(row.body).digest(), row.body)


def _of_all(batch: Sequence[_Append]) -> list[tuple[Any, ...]]:
    """Appends of one row each, column by column."""
    given = ((*one.conditions, *_of_row(cast("Row", one.row))) for one in batch)
    return list(zip(*given, strict=True))


def _of_each(batch: Sequence[_Append]) -> list[tuple[Any, ...]]:
    """Appends of any number of rows: of each, then of all their rows."""
    ends = accumulate(len(one.draft.rows) for one in batch)
    given = (
        (*one.conditions, one.newest, one.size, end) for one, end in zip(batch, ends, strict=True)
    )
    rows = (_of_row(row) for one in batch for row in one.draft.rows)
    return [*zip(*given, strict=True), *zip(*rows, strict=True)]


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
