"""What is kept, whose it is and for how long: lists, owners, holds, trimming, retention, erasure.

Knows that an erasure is two steps: from the first on there is no such session and no write comes
back; then its rows go, some at a time. Where that is cut short, the next erasure or retention of
the tenant goes on with it. Refuses to know views: who trims a log says which rows its view still
needs.
"""

import time
from collections.abc import Sequence
from uuid import UUID

from foldline.errors import BadInput, Erased
from foldline.stores.base import Listed, Name, Receipt, Retention
from foldline.stores.postgres.connections import Connections, call, sid

_CLAIM = call("claim", "uuid", "text", "text")
_SESSIONS = call("sessions_of", "text", "int4", "text")
_HOLD = call("hold", "uuid", "bool")
_TRIM = call("trim", "uuid", "int4", "int4[]")
_LEAVING = call("leaving", "float8", "int8", "numeric")
_WEIGHED = call("weighed", "uuid")
_ERASE = call("erase", "uuid", "text", "float8")
_SWEEP = call("sweep", "uuid", "int4")
_UNSWEPT = call("unswept")
_BATCH = 5_000  # rows that a transaction takes away: of one session, so of one partition


async def claim(db: Connections, name: Name, owner: str) -> str:
    """Give a session an owner if it has neither one nor events; the owner that it has then."""
    ((found, moment),) = await db.ask(
        _CLAIM, name.tenant, sid(name), name.session, owner, again=True
    )
    if moment is not None:
        raise Erased(name.session, moment)
    return found


async def sessions(
    db: Connections,
    tenant: str,
    *,
    after: str = "",
    limit: int = 100,
    owner: str | None = None,
) -> list[Listed]:
    """A tenant's sessions by name, behind `after`; with `owner` only that owner's."""
    sid(Name(tenant, after))
    found = await db.ask(_SESSIONS, tenant, after, limit, owner, again=True)
    return [Listed(*row) for row in found]


async def hold(db: Connections, name: Name, *, on: bool) -> None:
    """Keep a session from retention, or no longer: R-74."""
    ((found,),) = await db.ask(_HOLD, name.tenant, sid(name), on, again=True)
    if not found:
        raise BadInput(f"there is no session {name.session!r} to hold")


async def trim(db: Connections, name: Name, floor: int, *, keep: Sequence[int]) -> int:
    """Erase what lies below a floor but the rows of `keep`; how many rows went."""
    ((gone,),) = await db.ask(_TRIM, name.tenant, sid(name), floor, list(keep))
    return gone


async def retain(db: Connections, tenant: str, rule: Retention, *, dry: bool = False) -> Receipt:
    """Erase the sessions that a rule leaves no room for, each in transactions of its own: R-67."""
    sid(Name(tenant, ""))
    if not dry:
        for (one,) in await db.ask(_UNSWEPT, tenant, again=True):
            await _sweep(db, tenant, one)
    seconds = None if rule.seconds is None else float(rule.seconds)
    leaving = await db.ask(_LEAVING, tenant, seconds, rule.sessions, rule.size, again=True)
    parts = [await _gone(db, Name(tenant, one), changed, dry=dry) for one, changed in leaving]
    return Receipt(
        tuple(one for part in parts for one in part.sessions),
        sum(part.events for part in parts),
        sum(part.size for part in parts),
        time.time(),
        dry=dry,
    )


async def erase(db: Connections, name: Name, *, unless: float | None = None) -> Receipt:
    """Erase a session for good: R-73; not one that is held or was changed since `unless`."""
    now = time.time()
    ((there,),) = await db.ask(_ERASE, name.tenant, sid(name), name.session, unless, again=True)
    if not there:
        return Receipt(time=now)
    return Receipt((name.session,), *await _sweep(db, name.tenant, sid(name)), now)


async def _gone(db: Connections, name: Name, changed: float, *, dry: bool) -> Receipt:
    if dry:
        ((events, size),) = await db.ask(_WEIGHED, name.tenant, sid(name), again=True)
        return Receipt((name.session,), events, size)
    return await erase(db, name, unless=changed)


async def _sweep(db: Connections, tenant: str, one: UUID) -> tuple[int, int]:
    """Take away the rows of an erased session: how many events, of how many bytes."""
    events = size = 0
    while True:
        ((some, taken),) = await db.ask(_SWEEP, tenant, one, _BATCH, again=True)
        events, size = events + some, size + taken
        if some < _BATCH:
            return events, size
