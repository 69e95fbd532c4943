"""Lists, owners, holds, trimming, retention and erasure in a SQLite file.

Erased means gone from the file, its index and its journal. Whoever trims a log says which rows its
view still needs.
"""

import time
from collections.abc import Sequence

from foldline.errors import BadInput
from foldline.stores.base import Listed, Name, Receipt, Retention
from foldline.stores.sqlite import session_rows
from foldline.stores.sqlite.connection import Db, make_tombstone

_LISTED = """
    select session, head, size, opened, changed, origin_name, held, owner from sessions
    where tenant = ? and session > ? order by session limit ?
"""
_OWNED = """
    select session, head, size, opened, changed, origin_name, held, owner from sessions
    where tenant = ? and owner = ? and session > ? order by session limit ?
"""
_SIZES = "select seq, length(body) from events where sid = ? order by seq"
_STAYS = "select 1 from sessions where sid = ? and (held or changed > ?)"
_ORPHANS = "delete from blobs where hash = ? and not exists (select 1 from pieces where hash = ?)"


def claim_session(db: Db, name: Name, owner: str) -> str:
    """Set the owner of a session without owner and events; return the owner it has then."""
    with db.open_transaction():
        found = db.find_session(name) or db.create_session(name, time.time())
        if found.owner or found.head >= 0:
            return found.owner
        db.sql("update sessions set owner = ? where sid = ?", (owner, found.sid))
    return owner


def list_sessions(
    db: Db, tenant: str, *, after: str = "", limit: int = 100, owner: str | None = None
) -> list[Listed]:
    """List a tenant's sessions by name, those after `after`; with `owner` only that owner's."""
    if owner is None:
        rows = db.sql(_LISTED, (tenant, after, limit))
    else:
        rows = db.sql(_OWNED, (tenant, owner, after, limit))
    return [Listed(*row[:6], held=bool(row[6]), owner=row[7]) for row in rows]


def set_hold(db: Db, name: Name, *, on: bool) -> None:
    """Exempt a session from retention, or end the exemption."""
    with db.open_transaction():
        found = db.find_session(name)
        if found is None:
            raise BadInput(f"there is no session {name.session!r} to hold")
        db.sql("update sessions set held = ? where sid = ?", (on, found.sid))


def trim_log(db: Db, name: Name, floor: int, *, keep: Sequence[int]) -> int:
    """Erase the rows below a floor except those of `keep`; return how many."""
    with db.open_transaction():
        found = db.find_session(name)
        if found is None or floor <= found.floor or floor > found.head:
            return 0
        kept = set(keep)
        rows = db.sql("select seq from events where sid = ? and seq < ?", (found.sid, floor))
        gone = [seq for (seq,) in rows if seq not in kept]
        for seq in gone:
            _delete_row(db, found.sid, seq)
        session_rows.clear_index(db, found.sid)
        db.sql(
            "update sessions set floor = ?, trimmed = ?, size = "
            "(select total(length(body)) from events where events.sid = sessions.sid) "
            "where sid = ?",
            (floor, time.time(), found.sid),
        )
    _truncate_journal(db)
    return len(gone)


def _delete_row(db: Db, sid: int, seq: int) -> None:
    hashes = db.sql("select hash from pieces where sid = ? and seq = ?", (sid, seq))
    db.sql("delete from pieces where sid = ? and seq = ?", (sid, seq))
    for (digest,) in hashes:
        db.sql(_ORPHANS, (digest, digest))
    db.sql("delete from events where sid = ? and seq = ?", (sid, seq))


def apply_retention(db: Db, tenant: str, rule: Retention, *, dry: bool = False) -> Receipt:
    """Erase the sessions that exceed a rule, each in its own transaction."""
    rows = db.sql(
        "select session, size, changed from sessions where tenant = ? and not held "
        "order by changed",
        (tenant,),
    )
    (held, taken) = db.sql(
        "select count(*), total(size) from sessions where tenant = ? and held", (tenant,)
    )[0]
    left, size = len(rows) + held, taken + sum(row[1] for row in rows)
    before = None if rule.seconds is None else time.time() - rule.seconds
    going: list[tuple[str, float]] = []
    for session, taken, changed in rows:
        old = before is not None and changed < before
        many = rule.sessions is not None and left > rule.sessions
        large = rule.size is not None and size > rule.size
        if not old and not many and not large:
            break
        going.append((session, changed))
        left, size = left - 1, size - taken
    parts = [
        erase_session(db, Name(tenant, one), dry=dry, unless=None if dry else changed)
        for one, changed in going
    ]
    return Receipt(
        tuple(one for part in parts for one in part.sessions),
        sum(part.events for part in parts),
        sum(part.size for part in parts),
        time.time(),
        dry=dry,
    )


def erase_session(db: Db, name: Name, *, dry: bool = False, unless: float | None = None) -> Receipt:
    """Erase a session for good; with `unless`, not if it is held or changed since then."""
    now = time.time()
    with db.open_transaction():
        found = db.find_session(name)
        if unless is not None and (found is None or db.sql(_STAYS, (found.sid, unless))):
            return Receipt(time=now, dry=dry)  # somebody came back to it after it was listed
        rows = [] if found is None else db.sql(_SIZES, (found.sid,))
        aside = db.sql("select 1 from side where tenant = ? and session = ? limit 1", name)
        if found is None and not (aside and name.session):  # "" is the tenant, not a session
            return Receipt(time=now, dry=dry)
        if not dry:
            if found is not None:
                for seq, _ in rows:
                    _delete_row(db, found.sid, seq)
                session_rows.clear_index(db, found.sid)
                db.sql("delete from seen where sid = ?", (found.sid,))
                db.sql("delete from sessions where sid = ?", (found.sid,))
            db.sql("delete from side where tenant = ? and session = ?", name)
            db.sql("insert or replace into erased values (?, ?)", (make_tombstone(name), now))
    if not dry:
        _truncate_journal(db)
    return Receipt((name.session,), len(rows), sum(size for _, size in rows), now, dry=dry)


def _truncate_journal(db: Db) -> None:
    """Empty the journal beside the file, which may hold erased rows."""
    db.sql("pragma wal_checkpoint(truncate)")
