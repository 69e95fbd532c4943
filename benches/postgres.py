"""The PostgreSQL store: what an append costs beside bare psycopg, and a turn however much there is.

    just bench postgres            1,000,000 events, 100,000 sessions
    just bench postgres --short    fewer of all

a. Appends of the same bytes at the same durability, ours ÷ bare psycopg's: one prepared INSERT a
   commit, awaited, into a table of the same columns, key and partitions. One session: one by one in
   turn, medians. 16 sessions: rounds in turn, bare with a connection for each session. The same into a
   plain table without partitions is printed, too. A store also compares, moves a head and checks the
   tenant: some 0.2 ms of two processors' time, a twentieth beside a disk's flush of 3 ms, and much
   beside one of 0.2 ms. So at one session the target is held where bare takes 1.5 ms, and what was
   measured is printed in any case.
b. Statements, rows and buffers of opening and of an append, at 10 events and a million, and beside one
   session and a hundred thousand. Counts do not depend on what else the machine does.

`FOLDLINE_PG` names the database; a schema is made there and dropped. Exits 1 where a target is missed.
"""
# ruff: noqa: S608 - the names in these statements are made here

import argparse
import asyncio
import hashlib
import os
import statistics
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from foldline.store.base import Draft, Name, Row
from foldline.store.postgres import PostgresStore
from foldline.store.postgres.connections import sid

SERVER = os.environ.get("FOLDLINE_PG", "postgresql:///test?host=127.0.0.1")
BODY = (b'{"type":"user_said","parts":[{"text":"' + b"look at the module " * 50)[:898] + b'"}'
RATIO, FLUSH, SESSIONS = 0.8, 0.0015, 16
LIVE = 50
DRAFT = Draft([Row("user_said", BODY)])


class Bare:
    """What somebody would write by hand: a table, and one INSERT an event."""

    def __init__(self, table: str) -> None:
        columns = "sid, seq, edit, time, tenant, kind, sha256, body"
        self.text = f"insert into {table} ({columns}) values (%s, %s, %s, %s, %s, %s, %s, %s)"
        self.places = dict.fromkeys(range(SESSIONS), 0)
        self.connections: list[psycopg.AsyncConnection[Any]] = []

    async def append(self, session: int) -> None:
        """One event."""
        self.places[session] += 1
        values = (uuid.UUID(int=session << 96 | 7), self.places[session], False, time.time(), "acme",
                  "user_said", hashlib.sha256(BODY).digest(), BODY)  # fmt: skip
        await self.connections[session].execute(self.text.encode(), values, prepare=True)


async def seconds(work: Callable[[], Awaitable[Any]]) -> float:
    """How long something takes."""
    start = time.perf_counter()
    await work()
    return time.perf_counter() - start


async def appending(store: PostgresStore, schema: str, rounds: int) -> bool:
    """Part a."""
    same, plain = Bare(f"{schema}.bare"), Bare(f"{schema}.plain")
    with psycopg.connect(SERVER, autocommit=True) as owner:
        owner.execute(f"create table {schema}.plain (like {schema}.events including all)".encode())
        owner.execute(
            f"create table {schema}.bare (like {schema}.events including all) partition by hash (sid)".encode()
        )
        for at in range(64):
            owner.execute(
                f"create table {schema}.bare_{at} partition of {schema}.bare for values with (modulus 64, remainder {at})".encode()
            )
    same.connections = plain.connections = [
        await psycopg.AsyncConnection.connect(SERVER, autocommit=True) for _ in range(SESSIONS)
    ]
    names = [Name("acme", f"s{at}") for at in range(SESSIONS)]

    async def ours(session: int) -> None:
        await store.append(names[session], DRAFT)

    ways: dict[str, Callable[[int], Awaitable[None]]] = {
        "ours": ours, "bare": same.append, "plain": plain.append
    }  # fmt: skip
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 20):
        for way, append in ways.items():
            took = await seconds(lambda append=append: append(0))
            if number >= 20:
                taken[way].append(took)
    middle = {way: statistics.median(column) for way, column in taken.items()}
    one = middle["bare"] / middle["ours"]
    print(f"\na. appends of {len(BODY)} bytes beside psycopg {psycopg.__version__}, "
          f"{rounds:,} each, one by one in turn; median µs: "
          + ", ".join(f"{way} {took * 1e6:,.0f}" for way, took in middle.items())
          + f"\n   1 session: {one:.3f} of bare into the same table, {middle['plain'] / middle['ours']:.3f} "
          f"of bare into a plain one (at least {RATIO} where bare takes {FLUSH * 1e3} ms)")  # fmt: skip

    async def together(append: Callable[[int], Awaitable[None]]) -> None:
        async def several(session: int) -> None:
            for _ in range(20):
                await append(session)

        await asyncio.gather(*(several(session) for session in range(SESSIONS)))

    rates: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(max(rounds // 40, 7)):
        for way, append in ways.items():
            took = await seconds(lambda append=append: together(append))
            if number:
                rates[way].append(20 * SESSIONS / took)
    ratios = {
        way: statistics.median(a / b for a, b in zip(rates["ours"], rates[way], strict=True))
        for way in ("bare", "plain")
    }
    print(f"   {SESSIONS} sessions, medians of {len(rates['ours'])} rounds: "
          + ", ".join(f"{way} {statistics.median(rate):,.0f}/s" for way, rate in rates.items())
          + f": {ratios['bare']:.3f} of bare into the same table, {ratios['plain']:.3f} into a plain one "
          f"(at least {RATIO})")  # fmt: skip
    for connection in same.connections:
        await connection.close()
    return (one >= RATIO or middle["bare"] < FLUSH) and ratios["bare"] >= RATIO


def counted(schema: str, name: Name, length: int) -> dict[str, tuple[int, int]]:
    """Rows and buffers of a turn's statements, each inside its function."""
    one, last = sid(name), length - 1
    calls = {
        "head": f"head($$acme$$, '{one}', null)",
        "read": f"read($$acme$$, '{one}', '{{{max(length - LIVE, 0)}}}', '{{{last}}}')",
        "append": f"append_one($$acme$$, '{one}', 's', {last}, null, null, 'user_said', false, null, "
        f"sha256('x'), convert_to(repeat('word ', 180), 'utf8'))",
    }
    found: dict[str, tuple[int, int]] = {}
    with psycopg.connect(SERVER, autocommit=True) as connection:
        connection.execute(f"set role {schema}_app".encode())
        for call, text in calls.items():
            for _ in range(3):  # what is read of the catalogue is read once
                with connection.transaction(force_rollback=True):
                    connection.execute("select set_config('foldline.tenant', 'acme', true)")
                    row = connection.execute(
                        f"explain (analyze, buffers, format json) select * from {schema}.{text}".encode()
                    ).fetchone()
            assert row is not None
            plan = row[0][0]["Plan"]
            buffers = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            found[call] = (plan["Actual Rows"], buffers)
    return found


async def statements(store: PostgresStore, name: Name, length: int) -> int:
    """How many statements a server was sent for opening and one append."""
    sent: list[str] = []
    asked, single = store.db.ask, store._appends._single  # noqa: SLF001

    async def asking(statement: str, *values: Any, **how: Any) -> Any:
        sent.append(statement)
        return await asked(statement, *values, **how)

    async def appended(*given: Any) -> Any:
        sent.append("append")
        return await single(*given)

    store.db.ask, store._appends._single = asking, appended  # type: ignore[method-assign]  # noqa: SLF001
    await store.head(name)
    await store.read(name, [(max(length - LIVE, 0), length - 1)])
    await store.append(name, DRAFT, after=length - 1)
    store.db.ask, store._appends._single = asked, single  # type: ignore[method-assign]  # noqa: SLF001
    return len(sent)


async def counting(store: PostgresStore, schema: str, *, events: int, sessions: int) -> bool:
    """Part b."""
    found: dict[str, tuple[dict[str, tuple[int, int]], int]] = {}
    sizes = {"10 events": 10, f"{events:,} events": events}
    for label, length in sizes.items():
        name = Name("acme", f"long{length}")
        for lo in range(0, length, 5_000):
            some = min(5_000, length - lo)
            await store.append(name, Draft([Row("user_said", BODY[:200], n % 500 == 9) for n in range(some)]))  # fmt: skip
        found[label] = counted(schema, name, length), await statements(store, name, length)
    with psycopg.connect(SERVER, autocommit=True) as owner:
        for table, columns, values in (
            ("heads", "sid, tenant, session, head, opened, changed, behind", "md5('s' || n)::uuid, 'acme', 'many' || n, 9, 0, 0, true"),
            ("events", "sid, seq, edit, time, tenant, kind, sha256, body", "md5('s' || n)::uuid, 9, false, 0, 'acme', 'user_said', sha256('x'), 'x'"),
        ):  # fmt: skip
            owner.execute(
                f"insert into {schema}.{table} ({columns}) select {values} from generate_series(1, {sessions}) as n".encode()
            )
        owner.execute(f"vacuum analyze {schema}.heads".encode())
    name = Name("acme", "beside")
    await store.append(name, Draft([Row("user_said", BODY[:200], n == 9) for n in range(10)]))
    found[f"{sessions:,} sessions"] = counted(schema, name, 10), await statements(store, name, 10)
    print(f"\nb. a turn: statements; rows and buffers of head, read (≤ {LIVE} live), append")
    held = True
    first = next(iter(found.values()))
    for label, (counts, count) in found.items():
        print(f"   {label:20} {count} statements; "
              + ", ".join(f"{call} {rows}/{buffers}" for call, (rows, buffers) in counts.items()))  # fmt: skip
        held &= count == first[1] == 3
        for call, (rows, buffers) in counts.items():
            live = (
                LIVE
                if call == "read" and label.endswith("events") and not label.startswith("10 ")
                else first[0][call][0]
            )
            # One more level for each of the few trees, and the pages of the live rows themselves.
            held &= rows == live and buffers <= first[0][call][1] + 6
    return held


async def all_parts(schema: str, *, short: bool) -> dict[str, bool]:
    """Every part, and whether it holds."""
    joined = "&" if "?" in SERVER else "?"
    store = PostgresStore(f"{SERVER}{joined}schema={schema}")
    await store.head(Name("acme", "s0"))
    held = {"a": await appending(store, schema, 300 if short else 2_000)}
    many = {"events": 50_000, "sessions": 5_000} if short else {"events": 1_000_000, "sessions": 100_000}  # fmt: skip
    held["b"] = await counting(store, schema, **many)
    await store.close()
    return held


def main() -> int:
    """Print the figures; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="50,000 events, fewer rounds")
    args = parser.parse_args()
    schema = f"foldline_b{uuid.uuid4().hex[:12]}"
    try:
        held = asyncio.run(all_parts(schema, short=args.short))
    finally:
        with psycopg.connect(SERVER, autocommit=True) as owner:
            owner.execute(f"drop schema if exists {schema} cascade".encode())
            owner.execute(f"drop role if exists {schema}_app".encode())
    missed = [name for name, good in held.items() if not good]
    print(f"\nmissed: {', '.join(missed)}" if missed else "\nall targets held")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
