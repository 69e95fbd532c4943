"""What a turn takes of PostgreSQL, counted: part c of benches/postgres.py.

A turn is the three calls that opening and an append are: head, read of what is live, append. It is
counted twice, at both ends of the wire:

    the client    libpq's own trace of the connection: statements, rows and bytes, both ways
    the server    `pg_stat_get_xact_blocks_fetched` of each table and each tree: pages, by name

Statements, rows and bytes must be equal, but that psycopg writes a place from 32,768 on in four bytes
instead of two. Descents must be equal. A descent of a tree may pass a page for each of its levels and no
other: how many it has is counted by a search for a key that is not there. A table may give one page more,
where the same rows lie on the border of two. Nothing has a slack of its own.

Two controls must be refused, or the check could not fail: a turn that reads twice what is live, and the
same turn without the key of `events`. Counts do not depend on what else the machine does.
"""
# ruff: noqa: S608 - the names in these statements are made here

import re
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from pg_place import a_schema, address_of, connected

from foldline.stores.base import Draft, Name, Row
from foldline.stores.postgres import PostgresStore
from foldline.stores.postgres.connections import sid_of

LIVE, FEW = 10, 10
HIGHER = 2
"""Levels that a tree may have grown by for a hundred thousand times as many rows."""
WIDER = 2 * 2
"""Bytes by which the two ends of a span are wider where places are large."""
BODY = (b'{"type":"user_said","parts":[{"text":"' + b"look at the module " * 50)[:198] + b'"}'
DRAFT = Draft([Row("user_said", BODY)])
Passed: TypeAlias = dict[str, Counter[str]]
"""Of each call, something by table and tree."""


class Wire(NamedTuple):
    """What went over a connection."""

    statements: int
    rows: int
    sent: int
    received: int


@dataclass(frozen=True)
class Turn:
    """What was counted of one."""

    wire: Wire
    pages: Passed
    scans: Passed
    levels: dict[str, int]

    @property
    def shown(self) -> str:
        """In one line."""
        trees = ", ".join(f"{tree} {levels}" for tree, levels in self.levels.items())
        calls = ", ".join(f"{call} {pages.total()}" for call, pages in self.pages.items())
        return (
            f"{self.wire.statements} statements, {self.wire.rows} rows, {self.wire.sent} bytes sent, "
            f"{self.wire.received} received; pages: {calls}; levels: {trees}"
        )


async def wire(store: PostgresStore, name: Name, *, live: int = LIVE) -> Wire:
    """What the client sends and hears in a turn; the store has one connection."""
    async with store.db.take_connection() as connection:
        server = connection.pgconn
    for _ in range(2):  # the second time everything is prepared
        last = (await store.head(name)).seq
        with tempfile.TemporaryFile("w+") as trace:
            server.trace(trace.fileno())
            await store.head(name)
            await store.read(name, [(last - live + 1, last)])
            await store.append(name, DRAFT, after=last)
            server.untrace()
            trace.seek(0)
            found = [line.split("\t")[1:4] for line in trace if line.count("\t") >= 3]
    size = {way: sum(int(one[1]) + 1 for one in found if one[0] == way) for way in "FB"}
    kinds = [one[2].strip() for one in found]
    return Wire(kinds.count("Execute"), kinds.count("DataRow"), size["F"], size["B"])


def counted(schema: str, name: Name, length: int) -> tuple[Passed, Passed, dict[str, int]]:
    """Pages and descents of a turn's calls by table and tree; and the trees' levels."""
    one, last = sid_of(name), length - 1
    said = f"convert_to($body${BODY.decode()}$body$, 'utf8')"
    calls = {
        "head": f"head($$acme$$, '{one}', null)",
        "read": f"read($$acme$$, '{one}', '{{{max(length - LIVE, 0)}}}', '{{{last}}}')",
        "append": f"append_one($$acme$$, '{one}', 's', null, null, null, 'user_said', false, null, "
        f"sha256({said}), {said})",
    }
    pages: Passed = {}
    scans: Passed = {}
    with connected() as connection:

        def passed(text: str) -> tuple[Counter[str], Counter[str]]:
            # Committed: a row that was taken back is one that the next of its place has to look at.
            with connection.transaction():
                connection.execute("select set_config('foldline.tenant', 'acme', true)")
                before = standing(connection, schema)
                connection.execute(f"select * from {schema}.{text}".encode(), prepare=True)
                after = standing(connection, schema)
            return after[0] - before[0], after[1] - before[1]

        connection.execute("set enable_seqscan = off; set enable_bitmapscan = off")
        none = {
            "heads": f"heads where sid = '{UUID(int=0)}'",
            "events": f"events where sid = '{one}' and seq = {2**31 - 1}",
        }
        levels = {
            f"{table}_pkey": min(passed(text)[0][f"{table}_pkey"] for _ in range(5))
            for table, text in none.items()
        }
        connection.execute("reset enable_seqscan; reset enable_bitmapscan")
        connection.execute(f"set role {schema}_app".encode())
        for call, text in calls.items():
            # What is read of the catalogue is read once; and once in many rows a page is full.
            tries = [passed(text) for _ in range(7)]
            pages[call], scans[call] = min(tries, key=lambda seen: seen[0].total())
    return pages, scans, levels


def standing(connection: Any, schema: str) -> tuple[Counter[str], Counter[str]]:
    """Pages and scans of this connection that were not added up yet, by table and tree."""
    found = connection.execute(
        "select relname, pg_stat_get_xact_blocks_fetched(oid), pg_stat_get_xact_numscans(oid)"
        f" from pg_class where relnamespace = '{schema}'::regnamespace"
        " and pg_stat_get_xact_blocks_fetched(oid) > 0"
    ).fetchall()
    pages, scans = Counter[str](), Counter[str]()
    for relation, fetched, scanned in found:
        whole = re.sub(r"_\d\d(?=_|$)", "", relation)  # of a partition: its parent
        pages[whole] += fetched
        scans[whole] += scanned
    return pages, scans


def grown(now: Turn, then: Turn) -> list[str]:
    """What a turn takes more of than it did, and may not."""
    found = [
        f"{name}: {count} instead of {before}"
        for name, count, before in zip(Wire._fields, now.wire, then.wire, strict=True)
        if not before <= count <= before + (WIDER if name == "sent" else 0)
    ]
    for tree, levels in now.levels.items():
        if levels > then.levels[tree] + HIGHER:
            found.append(f"{tree}: {levels} levels, and there were {then.levels[tree]}")
    for call, pages in now.pages.items():
        if now.scans[call] != then.scans[call]:
            found.append(f"{call}: scans {dict(now.scans[call])}, not {dict(then.scans[call])}")
        for relation, passed in pages.items():
            added = call == "append" and relation == "events_pkey"
            descents = now.scans[call][relation] + added
            levels = now.levels.get(relation)
            most = descents * levels if levels else then.pages[call][relation] + 1
            if passed > most:
                found.append(f"{call}: {passed} pages of {relation}, at most {most}")
    return found


async def turn(store: PostgresStore, name: Name, length: int) -> Turn:
    """Count one, at both ends."""
    pages, scans, levels = counted(store.db.place.schema, name, length)
    return Turn(await wire(store, name), pages, scans, levels)


async def filled(store: PostgresStore, name: Name, length: int) -> None:
    """A session of some length, its newest edit where its live part begins."""
    for lo in range(0, length, 5_000):
        some = range(lo, min(lo + 5_000, length))
        await store.append(name, Draft([Row("user_said", BODY, n == length - LIVE) for n in some]))


def crowd(schema: str, sessions: int) -> None:
    """Many sessions of one event."""
    heads = "md5('s' || n)::uuid, 'acme', 'many' || n, 9, 0, 0, true"
    events = "md5('s' || n)::uuid, 9, false, 0, 'acme', 'user_said', sha256('x'), 'x'"
    with connected() as owner:
        for table, columns, values in (
            ("heads", "sid, tenant, session, head, opened, changed, behind", heads),
            ("events", "sid, seq, edit, time, tenant, kind, sha256, body", events),
        ):
            many = f"select {values} from generate_series(1, {sessions}) as n"
            owner.execute(f"insert into {schema}.{table} ({columns}) {many}".encode())
        owner.execute(f"vacuum analyze {schema}.heads".encode())


async def counting(*, events: int, sessions: int) -> bool:
    """Part c."""
    print(f"\nc. a turn, counted: head, read of the last {LIVE}, append")
    with a_schema() as schema:
        store = PostgresStore(address_of(schema, pool="1"))
        try:
            return await _counting(store, events=events, sessions=sessions)
        finally:
            await store.close()


async def _counting(store: PostgresStore, *, events: int, sessions: int) -> bool:
    names = [Name("acme", f"session {at}") for at in range(3)]
    await filled(store, names[0], FEW)
    turns = {f"{FEW} events, 1 session": await turn(store, names[0], FEW)}
    (first,) = turns.values()
    await filled(store, names[1], events)
    turns[f"{events:,} events"] = last = await turn(store, names[1], events)
    crowd(store.db.place.schema, sessions)
    await filled(store, names[2], FEW)
    turns[f"{sessions:,} sessions"] = await turn(store, names[2], FEW)
    held = True
    for label, one in turns.items():
        more = grown(one, first)
        print(f"   {label:22} {one.shown}", *(f"\n     MORE: {what}" for what in more))
        held &= not more
    twice = await wire(store, names[1], live=2 * LIVE)
    with connected() as owner:
        schema = store.db.place.schema
        owner.execute(f"alter table {schema}.events drop constraint events_pkey".encode())
    pages, scans, levels = counted(schema, names[1], events)
    heads = {"heads_pkey": levels["heads_pkey"]}
    controls = {
        "twice as much live": grown(replace(last, wire=twice), first),
        "without the key": grown(replace(last, pages=pages, scans=scans, levels=heads), first),
    }
    for label, more in controls.items():
        said = f"refused, {more[0]}" if more else "NOT REFUSED: this check cannot fail"
        print(f"   control, {label}: {said}")
        held &= bool(more)
    return held
