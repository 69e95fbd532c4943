"""Who works on a session, and the side table: small values with a version and an end.

Knows the store's clock: leases and entries run out by it. Refuses to know what they are for.
"""

import time

from foldline.stores.base import Entry, Lease, Name
from foldline.stores.sqlite.connection import Db


def lease(db: Db, name: Name, holder: str, *, seconds: float) -> Lease | None:
    """Take a session, or renew what is held; None while another holds it."""
    now = time.time()
    with db.transaction():
        found = db.session(name) or db.create(name, now)
        mine = found.holder == holder
        if found.holder and found.until > now and not mine:
            return None
        # Renewed, a lease keeps its fence: what its holder is writing stays valid.
        fence = found.fence if mine and found.until > now else found.fence + 1
        db.sql(
            "update sessions set fence = ?, holder = ?, until = ? where sid = ?",
            (fence, holder, now + seconds, found.sid),
        )
    return Lease(name, holder, fence, now + seconds)


def release(db: Db, lease: Lease) -> None:
    """Give a session back; too late does nothing."""
    db.sql(
        "update sessions set holder = '', until = 0 "
        "where tenant = ? and session = ? and fence = ? and holder = ?",
        (*lease.name, lease.fence, lease.holder),
    )


def get(db: Db, name: Name, space: str, key: str) -> Entry | None:
    """A value of the side table, unless it has run out."""
    rows = db.sql(
        "select value, version from side where tenant = ? and session = ? and space = ? "
        "and key = ? and (expires is null or expires > ?)",
        (*name, space, key, time.time()),
    )
    return Entry(*rows[0]) if rows else None


def put(  # noqa: PLR0913 - a side table is a table
    db: Db,
    name: Name,
    space: str,
    key: str,
    value: bytes | None,
    *,
    version: int | None = None,
    seconds: float | None = None,
) -> bool:
    """Set a value, or remove it; with `version` only where that is the entry's now (0: none)."""
    with db.transaction():
        now = get(db, name, space, key)
        if version is not None and version != (now.version if now else 0):
            return False
        place = (*name, space, key)
        db.sql("delete from side where tenant = ? and session = ? and space = ? and key = ?", place)
        if value is not None:
            db.refuse_erased(name)  # a fold prepared late would bring back what it tells
            expires = None if seconds is None else time.time() + seconds
            next_version = (now.version if now else 0) + 1
            db.sql(
                "insert into side values (?, ?, ?, ?, ?, ?, ?)",
                (*place, value, next_version, expires),
            )
    return True
