"""Leases with fences, and the side table; one statement each.

Knows that the server's clock says when a lease runs out, and that its holder counts by its own.
Refuses to know what is done under a lease.
"""

import time

from foldline.errors import Erased
from foldline.stores.base import Entry, Lease, Name
from foldline.stores.postgres.connections import Connections, call, sid

_LEASE = call("lease", "uuid", "text", "text", "float8")
_RELEASE = call("release", "uuid", "text", "int8")
_GET = call("get", "uuid", "text", "text")
_PUT = call("put", "uuid", "text", "text", "bytea", "int8", "float8")
_ERASED = 3


async def lease(db: Connections, name: Name, holder: str, *, seconds: float) -> Lease | None:
    """Take a session, or renew what is held; None while another holds it."""
    before = time.time()  # by our own clock, and before the server's: never longer than it thinks
    ((outcome, fence, moment),) = await db.ask(
        _LEASE, name.tenant, sid(name), name.session, holder, float(seconds), again=True
    )
    if outcome == _ERASED:
        raise Erased(name.session, moment)
    return None if outcome else Lease(name, holder, fence, before + seconds)


async def release(db: Connections, lease: Lease) -> None:
    """Give a session back; too late does nothing."""
    name = lease.name
    await db.ask(_RELEASE, name.tenant, sid(name), lease.holder, lease.fence, again=True)


async def get(db: Connections, name: Name, space: str, key: str) -> Entry | None:
    """A value of the side table, unless it has run out."""
    rows = await db.ask(_GET, name.tenant, sid(name), space, key, again=True)
    return Entry(*rows[0]) if rows else None


async def put(  # noqa: PLR0913 - a side table is a table
    db: Connections,
    name: Name,
    space: str,
    key: str,
    value: bytes | None,
    *,
    version: int | None = None,
    seconds: float | None = None,
) -> bool:
    """Set a value, or remove it; with `version` only where that is the entry's now (0: none)."""
    lasting = None if seconds is None else float(seconds)
    ((outcome, moment),) = await db.ask(
        _PUT, name.tenant, sid(name), space, key, value, version, lasting
    )
    if outcome == _ERASED:
        raise Erased(name.session, moment)
    return outcome == 0
