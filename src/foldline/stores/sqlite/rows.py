"""Logs in tables: append, read, fork.

Knows how a log stays dense and what a fork shares with its ancestors. Refuses to know events.
"""

import time
from collections.abc import Generator, Sequence

from foldline.errors import BadInput, Conflict
from foldline.stores.base import Draft, Head, Name, Row
from foldline.stores.sqlite.connection import Db, SessionRow

_EDIT = """
    select seq, kind, edit, time, body from events
    where edit and sid = ? and seq > ? and seq <= ? order by seq desc limit 1
"""
_READ = """
    select seq, kind, edit, time, body from events
    where sid = ? and seq between ? and ? order by seq
"""
_SHARED = """
    insert or ignore into pieces select hash, ?, seq from pieces
    where sid = ? and seq in (select seq from events where sid = ?)
"""


def append(  # noqa: PLR0913 - the three conditions of the port
    db: Db,
    name: Name,
    draft: Draft,
    *,
    after: int | None = None,
    fence: int | None = None,
    once: str | None = None,
) -> int:
    """Add rows at the end of a log; the place of the last one."""
    now = time.time()
    with db.transaction():
        found = db.session(name) or db.create(name, now)
        if once is not None:
            before = db.sql("select seq from seen where sid = ? and key = ?", (found.sid, once))
            if before:
                return before[0][0]
        if fence is not None and fence != found.fence:
            raise Conflict.over(name.session, fence, found.fence)
        if after is not None and after != found.head:
            raise Conflict(name.session, after, found.head)
        end = found.head + len(draft.rows)
        _insert(db, found.sid, found.head + 1, draft, now)
        size = sum(len(row.body) for row in draft.rows)
        db.sql(
            "update sessions set head = ?, size = size + ?, changed = ? where sid = ?",
            (end, size, now, found.sid),
        )
        if once is not None:
            db.sql("insert into seen values (?, ?, ?)", (found.sid, once, end))
    return end


def _insert(db: Db, sid: int, first: int, draft: Draft, now: float) -> None:
    rows = [
        (sid, seq, row.kind, row.edit, row.time or now, row.body)
        for seq, row in enumerate(draft.rows, first)
    ]
    db.many("insert into events values (?, ?, ?, ?, ?, ?)", rows)
    for seq, row in enumerate(draft.rows, first):
        for piece in row.pieces:
            db.sql("insert or ignore into blobs values (?, ?)", (piece, draft.blobs[piece]))
            db.sql("insert or ignore into pieces values (?, ?, ?)", (piece, sid, seq))


def head(db: Db, name: Name, *, at: int | None = None) -> Head:
    """Where a log ends; what is behind `at` counts as not there yet."""
    with db.transaction("deferred"):  # a number that was looked up before may be another's by now
        found = db.session(name)
        if found is None:
            return Head()
        end = found.head if at is None else min(at, found.head)
        edit = _edit(db, found, end)
    return Head(end, edit, found.floor, found.trimmed, found.owner)


def _edit(db: Db, found: SessionRow, end: int) -> Row | None:
    """The newest edit up to a place; before a fork's own rows it may be an ancestor's."""
    edits = db.rows(_EDIT, (found.sid, -1, end))
    newest = edits[0] if edits else None
    above: SessionRow | None = found
    # A fork has a copy of the edit in force where it begins, not of those before it.
    while above is not None and end <= above.origin_at:
        above = db.origin(above)
        edits = db.rows(_EDIT, (above.sid, newest.seq if newest else -1, end)) if above else []
        newest = edits[0] if edits else newest
    return newest


def read(db: Db, name: Name, spans: Sequence[tuple[int, int]]) -> list[Row]:
    """The rows of some spans in order; of a fork also its ancestors'."""
    with db.transaction("deferred"):
        found = db.session(name)
        rows = {} if found is None else {row.seq: row for row in _read(db, found, spans)}
    return [rows[seq] for seq in sorted(rows)]


def _read(db: Db, found: SessionRow, spans: Sequence[tuple[int, int]]) -> Generator[Row]:
    """A session's own rows, then those that only its ancestors have."""
    lacking: list[tuple[int, int]] = []
    for lo, hi in spans:
        own = db.rows(_READ, (found.sid, lo, hi))
        yield from own
        if found.origin is not None and lo <= found.origin_at:
            lacking += _between([row.seq for row in own], lo, min(hi, found.origin_at))
    parent = db.origin(found) if lacking else None
    if parent is not None:
        yield from _read(db, parent, lacking)


def blobs(db: Db, name: Name, hashes: Sequence[str]) -> dict[str, bytes]:
    """Only what this session or an ancestor names: a hash alone opens nothing."""
    kept: dict[str, bytes] = {}
    with db.transaction("deferred"):
        found = db.session(name)
        while found is not None and len(kept) < len(set(hashes)):
            for one in set(hashes) - set(kept):
                if db.sql("select 1 from pieces where hash = ? and sid = ?", (one, found.sid)):
                    rows = db.sql("select body from blobs where hash = ?", (one,))
                    kept |= {one: rows[0][0]} if rows else {}
            found = db.origin(found)
    return kept


def fork(db: Db, name: Name, to: str, *, at: int, keep: Sequence[tuple[int, int]]) -> None:
    """A new session that goes on behind `at`, with the rows of `keep` copied."""
    now = time.time()
    with db.transaction():
        found = db.session(name)
        new = Name(name.tenant, to)
        if found is None or at > found.head:
            raise BadInput(f"session {name.session!r} has no place {at} to fork at")
        if taken := db.session(new):
            raise Conflict.taken(to, taken.head)
        made = db.create(new, now)
        size = 0
        for row in {row.seq: row for row in _read(db, found, keep)}.values():
            own = (made.sid, row.seq, row.kind, row.edit, row.time, row.body)
            db.sql("insert into events values (?, ?, ?, ?, ?, ?)", own)
            size += len(row.body)
        ancestor: SessionRow | None = found
        while ancestor is not None:  # its pieces are its own too: an ancestor may be erased
            db.sql(_SHARED, (made.sid, ancestor.sid, made.sid))
            ancestor = db.origin(ancestor)
        db.sql(
            "update sessions set head = ?, size = ?, origin = ?, origin_at = ?, "
            "origin_name = ?, floor = ?, owner = ? where sid = ?",
            (at, size, found.sid, at, name.session, found.floor, found.owner, made.sid),
        )


def _between(own: Sequence[int], lo: int, hi: int) -> list[tuple[int, int]]:
    """The stretches of lo…hi that are not among some places, which are in order."""
    gaps: list[tuple[int, int]] = []
    for place in (*(seq for seq in own if seq <= hi), hi + 1):
        if lo < place:
            gaps.append((lo, place - 1))
        lo = place + 1
    return gaps
