"""Lists, owners, holds, trimming, retention and erasure in PostgreSQL.

An erasure has two steps: the first removes the session and refuses later writes, the second deletes
its rows in batches. If that is cut short, the tenant's next retention finishes it. Whoever trims a
log says which rows its view still needs.
"""

import time
from collections.abc import Sequence
from uuid import UUID

from foldline.errors import BadInput, Erased
from foldline.stores.base import Listed, Name, Receipt, Retention
from foldline.stores.postgres.connections import Connections, build_call_statement, sid_of

_CLAIM = build_call_statement("claim", "uuid", "text", "text")
_SESSIONS = build_call_statement("sessions_of", "text", "int4", "text")
_HOLD = build_call_statement("hold", "uuid", "bool")
_TRIM = build_call_statement("trim", "uuid", "int4", "int4[]")
_LEAVING = build_call_statement("leaving", "float8", "int8", "numeric")
_WEIGHED = build_call_statement("weighed", "uuid")
_ERASE = build_call_statement("erase", "uuid", "text", "float8")
_SWEEP = build_call_statement("sweep", "uuid", "int4")
_UNSWEPT = build_call_statement("unswept")
_BATCH = 5_000  # rows that one transaction deletes: of one session, so of one partition


async def claim_session(db: Connections, name: Name, owner: str) -> str:
    """Set the owner of a session without owner and events; return the owner it has then."""
    ((owner_now, erased),) = await db.run_statement(
        _CLAIM, name.tenant, sid_of(name), name.session, owner, again=True
    )
    if erased is not None:
        raise Erased(name.session, erased)
    return owner_now


async def list_sessions(
    db: Connections, tenant: str, *, after: str = "", limit: int = 100, owner: str | None = None
) -> list[Listed]:
    """List a tenant's sessions by name, those after `after`; with `owner` only that owner's."""
    sid_of(Name(tenant, after))  # checks both names
    rows = await db.run_statement(_SESSIONS, tenant, after, limit, owner, again=True)
    return [Listed(*row) for row in rows]


async def set_hold(db: Connections, name: Name, *, on: bool) -> None:
    """Exempt a session from retention, or end the exemption."""
    ((found,),) = await db.run_statement(_HOLD, name.tenant, sid_of(name), on, again=True)
    if not found:
        raise BadInput(f"there is no session {name.session!r} to hold")


async def trim_log(db: Connections, name: Name, floor: int, *, keep: Sequence[int]) -> int:
    """Erase the rows below a floor except those of `keep`; return how many."""
    ((gone,),) = await db.run_statement(_TRIM, name.tenant, sid_of(name), floor, list(keep))
    return gone


async def apply_retention(
    db: Connections, tenant: str, rule: Retention, *, dry: bool = False
) -> Receipt:
    """Erase the sessions that exceed a rule, each in its own transactions."""
    sid_of(Name(tenant, ""))  # checks the name
    if not dry:
        for (sid,) in await db.run_statement(_UNSWEPT, tenant, again=True):
            await _delete_erased_rows(db, tenant, sid)
    seconds = None if rule.seconds is None else float(rule.seconds)
    leaving = await db.run_statement(
        _LEAVING, tenant, seconds, rule.sessions, rule.size, again=True
    )
    parts = [
        await _erase_or_measure(db, Name(tenant, one), changed, dry=dry) for one, changed in leaving
    ]
    return Receipt(
        tuple(one for part in parts for one in part.sessions),
        sum(part.events for part in parts),
        sum(part.size for part in parts),
        time.time(),
        dry=dry,
    )


async def erase_session(db: Connections, name: Name, *, unless: float | None = None) -> Receipt:
    """Erase a session for good; with `unless`, not if it is held or changed since then."""
    now = time.time()
    ((there,),) = await db.run_statement(
        _ERASE, name.tenant, sid_of(name), name.session, unless, again=True
    )
    if not there:
        return Receipt(time=now)
    return Receipt((name.session,), *await _delete_erased_rows(db, name.tenant, sid_of(name)), now)


async def _erase_or_measure(db: Connections, name: Name, changed: float, *, dry: bool) -> Receipt:
    if dry:
        ((events, size),) = await db.run_statement(_WEIGHED, name.tenant, sid_of(name), again=True)
        return Receipt((name.session,), events, size)
    return await erase_session(db, name, unless=changed)


async def _delete_erased_rows(db: Connections, tenant: str, sid: UUID) -> tuple[int, int]:
    """Delete the rows of an erased session; return how many, and their bytes."""
    events = size = 0
    while True:
        ((rows, freed),) = await db.run_statement(_SWEEP, tenant, sid, _BATCH, again=True)
        events, size = events + rows, size + freed
        if rows < _BATCH:
            return events, size
