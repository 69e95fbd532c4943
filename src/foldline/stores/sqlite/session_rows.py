"""Appends, reads, forks, leases, side values and search in a SQLite file.

A fork reads what it did not copy from its ancestors. Leases and side values expire by this
machine's clock. A search first indexes what is new, so that appends stay fast.
"""

import time
from collections.abc import Generator, Sequence

from foldline.errors import BadInput, Conflict
from foldline.stores.base import Draft, Entry, Found, Head, Lease, Name, Row
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


def append_rows(  # noqa: PLR0913 - the three conditions of the port
    db: Db,
    name: Name,
    draft: Draft,
    *,
    after: int | None = None,
    fence: int | None = None,
    once: str | None = None,
) -> int:
    """Append rows to a log and return the place of the last one."""
    now = time.time()
    with db.open_transaction():
        found = db.find_session(name) or db.create_session(name, now)
        if once is not None:
            before = db.sql("select seq from seen where sid = ? and key = ?", (found.sid, once))
            if before:
                return before[0][0]
        if fence is not None and fence != found.fence:
            raise Conflict.make_fence_conflict(name.session, fence, found.fence)
        if after is not None and after != found.head:
            raise Conflict(name.session, after, found.head)
        end = found.head + len(draft.rows)
        _insert_rows(db, found.sid, found.head + 1, draft, now)
        size = sum(len(row.body) for row in draft.rows)
        db.sql(
            "update sessions set head = ?, size = size + ?, changed = ? where sid = ?",
            (end, size, now, found.sid),
        )
        if once is not None:
            db.sql("insert into seen values (?, ?, ?)", (found.sid, once, end))
    return end


def _insert_rows(db: Db, sid: int, first: int, draft: Draft, now: float) -> None:
    rows = [
        (sid, seq, row.kind, row.edit, row.time or now, row.body)
        for seq, row in enumerate(draft.rows, first)
    ]
    db.run_many("insert into events values (?, ?, ?, ?, ?, ?)", rows)
    for seq, row in enumerate(draft.rows, first):
        for piece in row.pieces:
            db.sql("insert or ignore into blobs values (?, ?)", (piece, draft.blobs[piece]))
            db.sql("insert or ignore into pieces values (?, ?, ?)", (piece, sid, seq))


def read_head(db: Db, name: Name, *, at: int | None = None) -> Head:
    """Return where a log ends; rows after `at` are ignored."""
    with db.open_transaction("deferred"):  # between two reads the sid may become another session's
        found = db.find_session(name)
        if found is None:
            return Head()
        end = found.head if at is None else min(at, found.head)
        edit = _find_newest_edit(db, found, end)
    return Head(end, edit, found.floor, found.trimmed, found.owner)


def _find_newest_edit(db: Db, found: SessionRow, end: int) -> Row | None:
    """Find the newest edit up to a place; before a fork's own rows it may be an ancestor's."""
    edits = db.read_rows(_EDIT, (found.sid, -1, end))
    newest = edits[0] if edits else None
    above: SessionRow | None = found
    # A fork copies the edit in force where it begins, not the edits before that.
    while above is not None and end <= above.origin_at:
        above = db.find_origin(above)
        edits = db.read_rows(_EDIT, (above.sid, newest.seq if newest else -1, end)) if above else []
        newest = edits[0] if edits else newest
    return newest


def read_rows(db: Db, name: Name, spans: Sequence[tuple[int, int]]) -> list[Row]:
    """Return the rows of spans in order; a fork's include its ancestors'."""
    with db.open_transaction("deferred"):
        found = db.find_session(name)
        rows = {} if found is None else {row.seq: row for row in _iterate_rows(db, found, spans)}
    return [rows[seq] for seq in sorted(rows)]


def _iterate_rows(db: Db, found: SessionRow, spans: Sequence[tuple[int, int]]) -> Generator[Row]:
    """Yield a session's own rows, then those that only its ancestors have."""
    lacking: list[tuple[int, int]] = []
    for lo, hi in spans:
        own = db.read_rows(_READ, (found.sid, lo, hi))
        yield from own
        if found.origin is not None and lo <= found.origin_at:
            lacking += _list_gaps([row.seq for row in own], lo, min(hi, found.origin_at))
    parent = db.find_origin(found) if lacking else None
    if parent is not None:
        yield from _iterate_rows(db, parent, lacking)


def read_blobs(db: Db, name: Name, hashes: Sequence[str]) -> dict[str, bytes]:
    """Return the pieces that this session or an ancestor refers to: a hash alone opens nothing."""
    kept: dict[str, bytes] = {}
    with db.open_transaction("deferred"):
        found = db.find_session(name)
        while found is not None and len(kept) < len(set(hashes)):
            for digest in set(hashes) - set(kept):
                if db.sql("select 1 from pieces where hash = ? and sid = ?", (digest, found.sid)):
                    rows = db.sql("select body from blobs where hash = ?", (digest,))
                    kept |= {digest: rows[0][0]} if rows else {}
            found = db.find_origin(found)
    return kept


def fork_session(db: Db, name: Name, to: str, *, at: int, keep: Sequence[tuple[int, int]]) -> None:
    """Create a session that continues after `at`, with the rows of `keep` copied."""
    now = time.time()
    with db.open_transaction():
        found = db.find_session(name)
        new = Name(name.tenant, to)
        if found is None or at > found.head:
            raise BadInput(f"session {name.session!r} has no place {at} to fork at")
        if taken := db.find_session(new):
            raise Conflict.make_name_conflict(to, taken.head)
        made = db.create_session(new, now)
        size = 0
        for row in {row.seq: row for row in _iterate_rows(db, found, keep)}.values():
            own = (made.sid, row.seq, row.kind, row.edit, row.time, row.body)
            db.sql("insert into events values (?, ?, ?, ?, ?, ?)", own)
            size += len(row.body)
        ancestor: SessionRow | None = found
        while ancestor is not None:  # a fork owns its pieces too: an ancestor may be erased
            db.sql(_SHARED, (made.sid, ancestor.sid, made.sid))
            ancestor = db.find_origin(ancestor)
        db.sql(
            "update sessions set head = ?, size = ?, origin = ?, origin_at = ?, "
            "origin_name = ?, floor = ?, owner = ? where sid = ?",
            (at, size, found.sid, at, name.session, found.floor, found.owner, made.sid),
        )


def _list_gaps(own: Sequence[int], lo: int, hi: int) -> list[tuple[int, int]]:
    """List the stretches of lo…hi that lie between the sorted places `own`."""
    gaps: list[tuple[int, int]] = []
    for place in (*(seq for seq in own if seq <= hi), hi + 1):
        if lo < place:
            gaps.append((lo, place - 1))
        lo = place + 1
    return gaps


def take_lease(db: Db, name: Name, holder: str, *, seconds: float) -> Lease | None:
    """Take or renew the lease of a session; None while another holds it."""
    now = time.time()
    with db.open_transaction():
        found = db.find_session(name) or db.create_session(name, now)
        mine = found.holder == holder
        if found.holder and found.until > now and not mine:
            return None
        # A renewed lease keeps its fence: what its holder is writing stays valid.
        fence = found.fence if mine and found.until > now else found.fence + 1
        db.sql(
            "update sessions set fence = ?, holder = ?, until = ? where sid = ?",
            (fence, holder, now + seconds, found.sid),
        )
    return Lease(name, holder, fence, now + seconds)


def release_lease(db: Db, lease: Lease) -> None:
    """Release a lease; does nothing if it has expired."""
    db.sql(
        "update sessions set holder = '', until = 0 "
        "where tenant = ? and session = ? and fence = ? and holder = ?",
        (*lease.name, lease.fence, lease.holder),
    )


def find_entry(db: Db, name: Name, space: str, key: str) -> Entry | None:
    """Return a side value unless it has expired."""
    rows = db.sql(
        "select value, version from side where tenant = ? and session = ? and space = ? "
        "and key = ? and (expires is null or expires > ?)",
        (*name, space, key, time.time()),
    )
    return Entry(*rows[0]) if rows else None


def put_entry(  # noqa: PLR0913 - a side table is a table
    db: Db,
    name: Name,
    space: str,
    key: str,
    value: bytes | None,
    *,
    version: int | None = None,
    seconds: float | None = None,
) -> bool:
    """Set or remove (None) a side value; with `version` only if it is current (0: no entry)."""
    with db.open_transaction():
        now = find_entry(db, name, space, key)
        if version is not None and version != (now.version if now else 0):
            return False
        place = (*name, space, key)
        db.sql("delete from side where tenant = ? and session = ? and space = ? and key = ?", place)
        if value is not None:
            db.refuse_erased(name)  # a fold prepared late would bring back what it summarizes
            expires = None if seconds is None else time.time() + seconds
            next_version = (now.version if now else 0) + 1
            db.sql(
                "insert into side values (?, ?, ?, ?, ?, ?, ?)",
                (*place, value, next_version, expires),
            )
    return True


_SPOKEN = """
    select seq, body from events where sid = ? and seq between ? and ?
    and kind in ('user_said', 'model_said', 'tool_returned') order by seq limit 500
"""
_MOMENT = 0.1  # seconds of indexing before other work has its turn
_BEHIND = "select sid from sessions where tenant = ? and indexed < head"
_INDEXED = "select indexed, head, opened from sessions where sid = ?"
_POST = """
    insert into postings values (?, ?, ?, ?)
    on conflict do update set body = cast(body || excluded.body as blob)
"""
_POSTINGS = """
    select term, session, changed, block, length(body) / 4,
        case when term = ? then x'' else body end
    from postings join sessions using (sid) where tenant = ? and term in
"""


def search_index(  # noqa: PLR0913 - what the port narrows a search by
    db: Db,
    tenant: str,
    words: str,
    *,
    session: str | None = None,
    limit: int = 20,
    owner: str | None = None,
) -> list[Found]:
    """Search what is indexed; `index_some` first indexes what is new."""
    from foldline.stores import search_ranking, search_terms  # noqa: PLC0415 - for a search alone

    terms = search_terms.list_query_terms(words)
    only, where = _narrow_search(session, owner)
    mark = search_ranking.mark_tenant(tenant)
    every = search_ranking.EVERY ^ mark
    marked = [every, *(term ^ mark for term in terms)]
    rows = db.sql(
        f"{_POSTINGS} ({', '.join('?' * len(marked))}){where}",
        (every, tenant, *marked, *only.values()),
    )
    found = (search_ranking.PostingRow(row[0] ^ mark, *row[1:]) for row in rows)
    return search_ranking.rank_postings(found, limit)


def index_some(
    db: Db, tenant: str, *, session: str | None = None, owner: str | None = None
) -> bool:
    """Index what is new, for a moment; whether that was all of it.

    Appends stay as fast as without an index, and other work goes on between two moments.
    """
    from foldline.stores import search_ranking  # noqa: PLC0415 - for a search alone

    only, where = _narrow_search(session, owner)
    mark, end = search_ranking.mark_tenant(tenant), time.monotonic() + _MOMENT
    for (sid,) in db.sql(_BEHIND + where, (tenant, *only.values())):
        while _index_block(db, sid, mark):
            if time.monotonic() > end:
                return False
    return True


def _narrow_search(session: str | None, owner: str | None) -> tuple[dict[str, str], str]:
    """Return what a search is narrowed by, and its condition."""
    columns = {"session": session, "owner": owner}
    only = {column: value for column, value in columns.items() if value is not None}
    return only, "".join(f" and {column} = ?" for column in only)


def _index_block(db: Db, sid: int, mark: int) -> bool:
    """Index the next rows of a session, up to the end of a block; False if there are no more."""
    from foldline.stores import event_log, search_ranking  # noqa: PLC0415 - for a search alone

    before = db.sql(_INDEXED, (sid,))
    if not before or before[0][0] >= before[0][1]:
        return False
    ((indexed, head, opened),) = before
    end = min(search_ranking.find_block_end(indexed + 1), head)
    batch = search_ranking.PostingBatch()
    at = indexed + 1
    while rows := db.sql(_SPOKEN, (sid, at, end)):
        for seq, body in rows:
            batch.add_message(seq, event_log.extract_search_text(body))
        at = rows[-1][0] + 1
    with db.open_transaction():
        # Another process may have indexed these rows meanwhile, or have erased something; and an
        # erased session's number may be another's by now.
        now = db.sql(_INDEXED, (sid,))
        if now and (now[0][0], now[0][2]) == (indexed, opened):
            rows = [(term, sid, block, body) for term, block, body in batch.list_rows(mark)]
            db.run_many(_POST, rows)
            db.sql("update sessions set indexed = ? where sid = ?", (end, sid))
    return True


def clear_index(db: Db, sid: int) -> None:
    """Clear the index of a session; the next search builds it again from the rows that are left."""
    db.sql("delete from postings where sid = ?", (sid,))
    db.sql("update sessions set indexed = -1 where sid = ?", (sid,))
