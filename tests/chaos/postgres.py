"""End writers, the server and connections at random points, fill its disks, and miss nothing that was acknowledged.

    just chaos postgres            300 and 50 kills, some eight minutes
    just chaos postgres --short    a minute

On private clusters (`clusters.py`), each on a free port; controls and the short form in memory:
writers   a process that appends all that a session can is killed -9; the log must be what it was told
          to have appended, then what was in flight, whole or not at all
server    16 sessions append, singly and in batches, while the server is killed -9 and started again
          (`loads.py`); for half of the kills the process that writes the journal late is stopped before,
          so that nothing is on the disk but what somebody waited for
proxy     every message is cut before, after and in its midst, delayed and stalled (`cutting.py`)
disk      the disk of the tables, then that of the journal, is full, and is not any more (`filling.py`)

Appends with a `once` key go on by themselves and are there once; the others are told what became of them,
or that nobody knows, and are there at most once.

Eight controls must be caught, or the run fails: writers that acknowledge too early, or write a batch row
by row; a server with `synchronous_commit = off`, killed, and out of space; batches without their flush;
appends that are sent again without a key; a panic that is taken for a refusal; a full disk that is
swallowed. A kill does not test what the disk does without power: nothing here does.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import os
import resource
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, NoReturn

import psycopg
from clusters import Cluster, NoDisk, a_cluster
from cutting import every_message
from filling import filled
from loads import Said, talking, verified
from sqlite import NAME, Broken, Known, Telling, believe, digest, how, take, write

from foldline.errors import StoreFailed
from foldline.stores.base import Draft, Name
from foldline.stores.postgres import PostgresStore, connections
from foldline.stores.postgres import append as appending

BOUND = 40  # kills within which a control must be caught
SLOW = 0.05  # seconds that a control takes where it is wrong, so that a kill meets it there


def made(address: str) -> None:
    """Make a schema before anything is counted."""

    async def make() -> None:
        store = PostgresStore(address)
        await store.head(NAME)
        await store.close()

    asyncio.run(make())


# Writers.


class Hasty(Telling):
    """The control that loses: acknowledged before it is sent, and killed between the two."""

    async def writing(self, name: Name, draft: Draft, **given: Any) -> int:
        """Say that it is done when it is about to be, unless it will be refused."""
        head = (await self.inner.head(name)).seq
        if given["once"] is None and given.get("after") in (None, head):
            self.tell(done=self.count, end=head + len(draft.rows))
            os.kill(os.getpid(), signal.SIGKILL)
        return await self.inner.append(name, draft, **given)


class Piecemeal(Telling):
    """The control that tears: a batch in several transactions."""

    async def writing(self, name: Name, draft: Draft, **given: Any) -> int:
        """The first row under the conditions, the others behind it."""
        end = await self.inner.append(name, Draft(draft.rows[:1], draft.blobs), **given)
        for row in draft.rows[1:]:
            await asyncio.sleep(SLOW)
            end = await self.inner.append(name, Draft([row], draft.blobs))
        return end


def killed(address: str, known: Known, kind: type[Telling], *, random: Random) -> list[Any]:
    """Start a writer and kill it: what it said."""
    heard, said = os.pipe()
    early = random.random() < 0.1  # some die while they open
    ours, theirs = random.uniform(0.01, 0.3), Random(random.random())
    child = os.fork()
    if child == 0:
        os.close(heard)
        try:
            asyncio.run(write(kind(PostgresStore(address), said), known, theirs))  # type: ignore[arg-type]
        except BaseException as fault:  # noqa: BLE001 - any end but a kill is a finding
            os.write(said, json.dumps({"fault": repr(fault)[:500]}).encode() + b"\n")
        os._exit(1)
    os.close(said)
    end, text = time.monotonic() + (ours if early else 60), b""
    try:
        while True:
            ready, _, _ = select.select([heard], [], [], max(0.0, end - time.monotonic()))
            if ready:
                more = os.read(heard, 1 << 16)
                if not more:
                    break
                first = b'"done"' not in text
                text += more
                if first and not early and b'"done"' in text:  # however slow the machine is
                    end = time.monotonic() + ours
            if time.monotonic() >= end:
                os.kill(child, signal.SIGKILL)
                end += 60
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(heard)
    return [json.loads(line) for line in text.splitlines()]


def quiet(cluster: Cluster) -> None:
    """What a dead writer sent last may still be under way: wait until its connections are gone."""
    end = time.monotonic() + 20
    with cluster.owner() as owner:
        while owner.execute(
            "select from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
        ).fetchone():
            if time.monotonic() > end:
                raise RuntimeError("the connections of a dead writer do not end")
            time.sleep(0.005)


async def compared(
    address: str, known: Known, flying: dict[str, Any] | None, seen: Counter[str]
) -> None:
    """The log beside what was acknowledged, from where it was compared last."""
    store = PostgresStore(address)
    try:
        head = (await store.head(NAME)).seq
        rows = await store.read(NAME, [(known.checked, max(head, known.checked))])
        if [row.seq for row in rows] != list(range(known.checked, head + 1)):
            raise Broken(f"lost, or not dense: {known.checked} to {head}")
        found, told = [digest(row) for row in rows], known.log[known.checked :]
        more = found[len(told) :]
        if found[: len(told)] != told:
            raise Broken(how(found, told))
        if more and (flying is None or more != flying["rows"]):
            raise Broken("torn, or twice: rows that were not in flight, or not all")
        if flying is not None:
            seen[f"in flight, {'there' if more else 'not there'}"] += 1
            if more:
                take(known, flying, head, seen)
        known.checked = len(known.log)
    finally:
        await store.close()


def writers(
    cluster: Cluster, schema: str, *, kills: int, random: Random, kind: type[Telling] = Telling
) -> Counter[str]:
    """Kill a writer so many times, and read all of it again at the end."""
    address, known = cluster.address(schema), Known()
    made(address)
    seen: Counter[str] = Counter()
    for _ in range(kills):
        seen["kills"] += 1
        lines = killed(address, known, kind, random=random)
        quiet(cluster)
        try:
            asyncio.run(compared(address, known, believe(known, lines, seen), seen))
        except Broken as fault:
            raise Broken(f"kill {seen['kills']}: {fault}") from fault
    known.checked = 0
    asyncio.run(compared(address, known, None, seen))
    if seen["appends"] < kills // 2:
        raise Broken(f"only {seen['appends']} appends in {kills} kills: nothing was tested")
    return seen


# The server.


async def struck(cluster: Cluster, schema: str, said: Said, *, random: Random, held: bool) -> None:
    """One kill of the server under load."""
    store, ended = PostgresStore(cluster.address(schema)), asyncio.Event()
    if held:
        await asyncio.to_thread(cluster.hold_journal)
    load = asyncio.create_task(talking(store, said, ended))
    try:
        await asyncio.sleep(random.uniform(0.2, 0.7))
        await asyncio.to_thread(cluster.kill)
        await asyncio.to_thread(cluster.start)
        await asyncio.sleep(0.2)
    finally:
        ended.set()
        await load
        await store.close()


async def found(cluster: Cluster, schema: str, said: Said) -> Counter[str]:
    """What a new store finds of it."""
    store = PostgresStore(cluster.address(schema))
    try:
        return await verified(store, said)
    finally:
        await store.close()


def server(
    cluster: Cluster, schema: str, *, kills: int, random: Random, control: bool = False
) -> Counter[str]:
    """Kill the server so many times, with and without keys in turn; a control has it harder."""
    made(cluster.address(schema))
    seen: Counter[str] = Counter()
    loads: list[Said] = []
    for at in range(kills):
        # Three rows are sent alone and wait for the disk, and what was written before them with them.
        said = Said(keyed=at % 2 == 0, wide=not control)
        held = control or at // 2 % 2 == 0
        loads.append(said)
        asyncio.run(struck(cluster, schema, said, random=random, held=held))
        seen["kills"] += 1
        try:
            seen += asyncio.run(found(cluster, schema, said))
        except Broken as fault:
            raise Broken(f"kill {seen['kills']}: {fault}") from fault
        if said.keyed and said.failed():
            fault = [*said.unknown.values(), *said.refused.values()][0]
            raise Broken(f"an append with a key gave up: {fault}")
    for said in loads:  # what a later kill did to earlier ones
        asyncio.run(found(cluster, schema, said))
    return seen


# The disks.


def disks(cluster: Cluster, schema: str, *, rounds: int) -> Counter[str]:
    """Fill either disk so many times, with and without keys in turn."""
    made(cluster.address(schema))
    seen: Counter[str] = Counter()
    for at in range(rounds):
        for which in ("tables", "journal"):
            keyed = (at % 2 == 0) == (which == "journal")
            seen += asyncio.run(filled(cluster, schema, which, keyed=keyed))
            with cluster.owner() as owner:  # else the tables' disk is full before the journal's
                owner.execute(f"truncate {schema}.events, {schema}.seen, {schema}.heads".encode())
                owner.execute("checkpoint")
    return seen


# Controls.


@contextmanager
def instead(where: Any, name: str, other: Any) -> Iterator[None]:
    """Something of ours is another, for a while."""
    kept = getattr(where, name)
    setattr(where, name, other)
    try:
        yield
    finally:
        setattr(where, name, kept)


def without_flush(cluster: Cluster, random: Random) -> None:
    """Batches that are acknowledged before the disk has them."""
    made(cluster.address("unflushed"))
    with cluster.owner() as owner:
        row = owner.execute("select pg_get_functiondef('unflushed.append_all'::regproc)").fetchone()
        assert row is not None
        text = str(row[0])
        broken = text.replace("perform pg_logical_emit_message(true, 'foldline', '');", "")
        assert text != broken
        owner.execute(broken.encode())
    server(cluster, "unflushed", kills=BOUND, random=random, control=True)


@contextmanager
def lazy(cluster: Cluster) -> Iterator[None]:
    """A server that acknowledges before the disk has it."""
    cluster.setting("set synchronous_commit = off")
    try:
        yield
    finally:
        with contextlib.suppress(psycopg.OperationalError):
            cluster.setting("reset synchronous_commit")


def lazy_killed(cluster: Cluster, random: Random) -> None:
    """It is killed."""
    made(cluster.address("lazily"))
    with lazy(cluster):
        server(cluster, "lazily", kills=BOUND, random=random, control=True)


def lazy_full(cluster: Cluster) -> None:
    """The disk of its journal is full."""
    made(cluster.address("filled"))
    with lazy(cluster):
        for _ in range(5):
            cluster.hold_journal()
            asyncio.run(filled(cluster, "filled", "journal", keyed=False))


def guessing(cluster: Cluster) -> None:
    """A store that sends appends again, and the server is not told their keys."""
    made(cluster.address("guessing"))

    def conditions(one: Any) -> tuple[Any, ...]:
        return (one.name.tenant, one.sid, one.name.session, one.after, one.fence, None)

    with instead(appending._Append, "conditions", property(conditions)):
        asyncio.run(every_message(cluster, "guessing", ("after",)))


def refused(cluster: Cluster) -> None:
    """A store that takes a server's last word for a refusal of the append."""
    made(cluster.address("refused"))
    kept = connections.is_lost

    def is_lost(fault: psycopg.Error) -> bool:
        return fault.sqlstate != "53100" and kept(fault)

    with instead(connections, "is_lost", is_lost), instead(appending, "is_lost", is_lost):
        asyncio.run(every_message(cluster, "refused", ("panic",)))


class Swallowing(PostgresStore):
    """A store that says nothing of a full disk."""

    async def append(self, name: Name, draft: Draft, **given: Any) -> int:
        """Done, in any case."""
        try:
            return await super().append(name, draft, **given)
        except StoreFailed:
            return (await self.head(name)).seq + len(draft.rows)


def swallowing(cluster: Cluster) -> None:
    """Callers hear of no failure, so it is enough that they look."""
    made(cluster.address("filled"))
    asyncio.run(filled(cluster, "filled", "tables", keyed=False, kind=Swallowing))


class Campaign:
    """What was run, and whether all of it was as it must be."""

    def __init__(self, seed: int) -> None:
        self.seed, self.good = seed, True

    def random(self, part: str) -> Random:
        """Its own for every part, so that each can be run again as it was."""
        return Random(f"{self.seed} {part}")

    def control(self, name: str, expected: str, work: Callable[[], Any]) -> None:
        """A control is found out, and for what it is."""
        start = time.monotonic()
        try:
            work()
            words, caught = "NOT caught", False
        except Broken as fault:
            caught = expected in str(fault)
            words = f"{'caught' if caught else 'caught for ANOTHER REASON'}: {str(fault)[:90]}"
        self.good &= caught
        print(f"control, {name}: {words} ({time.monotonic() - start:.0f} s)", flush=True)

    def part(self, name: str, work: Callable[[], Counter[str]]) -> None:
        """A part finds nothing."""
        start = time.monotonic()
        try:
            seen = work()
        except Broken as fault:
            self.good = False
            print(f"{name}: BROKEN, seed {self.seed}: {fault}", flush=True)
            return
        figures = ", ".join(f"{what} {count:,}" for what, count in sorted(seen.items()))
        took = f"{time.monotonic() - start:.0f} s"
        print(f"{name}: {figures}; 0 lost, duplicated, reordered, torn ({took})", flush=True)


def controls(run: Campaign, cluster: Cluster) -> None:
    """What the parts must find out."""
    hasty, torn, late, unflushed = map(run.random, ("hasty", "torn", "lazy", "unflushed"))
    works: tuple[tuple[str, str, Callable[[], Any]], ...] = (
        ("acknowledged before it is sent", "lost",
         lambda: writers(cluster, "hasty", kills=BOUND, random=hasty, kind=Hasty)),
        ("a batch row by row", "torn",
         lambda: writers(cluster, "torn", kills=BOUND, random=torn, kind=Piecemeal)),
        ("synchronous_commit = off, killed", "lost", lambda: lazy_killed(cluster, late)),
        ("batches without their flush", "lost", lambda: without_flush(cluster, unflushed)),
        ("sent again without a key", "holds", lambda: guessing(cluster)),
        ("a panic taken for a refusal", "nothing was written", lambda: refused(cluster)),
    )  # fmt: skip
    for name, expected, work in works:
        run.control(name, expected, work)


def killing(run: Campaign, cluster: Cluster, *, short: bool) -> None:
    """Writers, the server, connections."""
    random = run.random("writers")
    kills = 25 if short else 300
    run.part("writers", lambda: writers(cluster, "written", kills=kills, random=random))
    again = run.random("server")
    times = 6 if short else 50
    run.part("server", lambda: server(cluster, "served", kills=times, random=again))
    made(cluster.address("proxied"))
    for pool in (1,) if short else (1, 8):
        work = every_message(cluster, "proxied", pool=pool, each=4 if short else 1)
        run.part(f"proxy, connections {pool}", lambda work=work: asyncio.run(work))


def filling(run: Campaign, *, short: bool) -> None:
    """The disks."""
    try:
        with a_cluster(small=True) as cluster:
            run.control(
                "synchronous_commit = off, journal full", "lost", lambda: lazy_full(cluster)
            )
            run.control("a full disk swallowed", "lost", lambda: swallowing(cluster))
            run.part("disk", lambda: disks(cluster, "filled", rounds=1 if short else 10))
    except NoDisk as fault:
        run.good &= short
        print(f"disk: {'skipped' if short else 'NOT RUN'}: {fault}", flush=True)


def ended(_number: int, _frame: object) -> NoReturn:
    """Asked to end: as after Ctrl-C, everything that was started is ended first."""
    raise KeyboardInterrupt


def main() -> int:
    """Print the figures; 1 where something was lost, or a control was not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--short", action="store_true", help="25 and 6 kills, every fourth message")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # of course connections end here
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a panic leaves no picture of the server
    signal.signal(signal.SIGTERM, ended)
    gc.freeze()
    start, run = time.monotonic(), Campaign(args.seed)
    print(f"seed {args.seed}", flush=True)
    with a_cluster(memory=True) as cluster:
        controls(run, cluster)
        if args.short:
            killing(run, cluster, short=True)
    if not args.short:
        with a_cluster() as cluster:
            killing(run, cluster, short=False)
    filling(run, short=args.short)
    print(f"{'all as it must be' if run.good else 'BROKEN'} in {time.monotonic() - start:.0f} s")
    return 0 if run.good else 1


if __name__ == "__main__":
    sys.exit(main())
