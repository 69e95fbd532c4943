"""How the server does what a turn asks of it: which buffers, and which tables from end to end.

The head, the rows, the search are asked as the store asks them, and counted; the append is only
explained, so that no row is written or locked. Knows which session there is most to do for, and
how much that is. Refuses to know what to do about it.
"""

import hashlib
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from foldline.stores.postgres.connections import call
from foldline.stores.postgres.health import Login
from foldline.stores.postgres.health_queries import ReadingConnection, RunStatement

_ROWS = 200  # of the session's end, as a turn that opens it reads
_SAMPLE = 1_000_000  # sessions of which the longest is looked for; of more, some are drawn
_FEW = 32  # buffers for a row or two: some index levels, the rows, what is kept beside them
_PAGES = 64  # a table of fewer is sooner read whole
_FUNCTIONS = {
    "head": "head_and_owner",
    "search": "search_of",
}  # where a statement's name is not its function's
_COUNTED = "explain (analyze, buffers, timing off, summary off, format json) "
_LONGEST = "select tenant, sid, head from {schema}.heads{some} order by head desc limit 1"
_APPEND = """
    explain (format json) update {schema}.heads set head = head + 1, size = size + 1, changed = 0
    where sid = %s and behind
"""
_SCANS = """
    select c.relname, pg_relation_size(c.oid) / 8192, pg_stat_get_xact_numscans(c.oid)
    from pg_class as c where c.relnamespace = '{schema}'::regnamespace and c.relkind = 'r'
    and pg_stat_get_xact_numscans(c.oid) > 0
"""


@dataclass(frozen=True, slots=True)
class PlanSession:
    """The session that is looked at."""

    tenant: str
    sid: UUID
    head: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one statement of a turn is done."""

    what: str
    buffers: int | None
    """Pages touched; None where it was only explained."""
    most: int
    """Pages that it should take at most."""
    scanned: tuple[str, ...]
    """Tables that were read from end to end, though they are not small."""

    @property
    def slow(self) -> bool:
        """Whether it is more work than it has to be."""
        return bool(self.scanned) or (self.buffers or 0) > self.most


async def longest(ask: ReadingConnection, login: Login, tenant: str) -> PlanSession | None:
    """The session with the most rows: of all, or of one tenant where a login sees no more."""
    async with ask.together() as run:
        ((among,),) = await run(
            "select greatest(reltuples, 0)::bigint from pg_class "
            "where oid = '{schema}.heads'::regclass"
        )
        some = f" tablesample system ({100 * _SAMPLE / among})" if among > _SAMPLE else ""
        if not login.bypasses:
            await _as(run, tenant)
        rows = await run(_LONGEST.replace("{some}", some))
    return PlanSession(rows[0][0], rows[0][1], rows[0][2]) if rows else None


async def plans(ask: ReadingConnection, login: Login, session: PlanSession) -> list[Plan]:
    """Each statement of a turn on that session."""
    async with ask.together() as run:
        if login.bypasses:
            await run(f"set local role {login.role}")
        await _as(run, session.tenant)
        end, start = session.head, max(session.head - _ROWS + 1, 0)
        ((size,),) = await run(
            "select coalesce(sum(octet_length(body)), 0)::bigint from {schema}.events "
            "where sid = %s and seq >= %s",
            session.sid,
            start,
        )
        nobody = hashlib.sha256(session.sid.bytes).hexdigest()
        # A row is a page of its own at worst; a long body has an index and pages beside it.
        most = _FEW + 8 * (end - start + 1) + size // 1_000
        tenant, sid = session.tenant, session.sid
        words = (tenant, None, f"'{nobody}'", 20, None)
        return [
            await _counted(run, "head", "uuid, int4", (tenant, sid, None), most=_FEW),
            await _counted(
                run, "read", "uuid, int4[], int4[]", (tenant, sid, [start], [end]), most=most
            ),
            await _counted(run, "search", "uuid, text, int4, text", words, most=_FEW),
            await _append(run, session),
        ]


async def _counted(
    run: RunStatement, what: str, types: str, given: tuple[Any, ...], *, most: int
) -> Plan:
    function = _FUNCTIONS.get(what, what)
    statement = _COUNTED + call(function, *types.split(", ")).replace("%b", "%s")
    await run(statement, *given)  # what a connection learns the first time
    before = {name: scans for name, _, scans in await run(_SCANS)}
    ((told,),) = await run(statement, *given)
    scans = await run(_SCANS)
    plan = told[0]["Plan"]
    return Plan(
        what=what,
        buffers=plan["Shared Hit Blocks"] + plan["Shared Read Blocks"],
        most=most,
        scanned=tuple(
            name for name, pages, times in scans if pages > _PAGES and times > before.get(name, 0)
        ),
    )


async def _append(run: RunStatement, session: PlanSession) -> Plan:
    ((told,),) = await run(_APPEND, session.sid)
    ((pages,),) = await run("select pg_relation_size('{schema}.heads') / 8192")
    direct = _indexes(told[0]["Plan"]) == ["heads_pkey"]
    small = pages <= _PAGES
    return Plan(
        what="append", buffers=None, most=_FEW, scanned=() if direct or small else ("heads",)
    )


def _indexes(plan: dict[str, Any]) -> list[str]:
    """The indexes that a plan goes by."""
    below = [name for part in plan.get("Plans", ()) for name in _indexes(part)]
    return [plan["Index Name"], *below] if "Index Name" in plan else below


async def _as(run: RunStatement, tenant: str) -> None:
    await run("select set_config('foldline.tenant', %s, true)", tenant)
