"""The disk of PostgreSQL is full, twice: its tables', and its journal's.

    tables    the server refuses what needs another page, and each caller hears so at once: no space, what
              to do, and whether it was written; everything can still be read
    journal   the server ends in a panic; appends with a key wait for it and go on by themselves, the
              others are told that nobody knows

Then there is room again, the server is started where it ended, and the same sessions go on through the
same store. Knows both disks. Refuses to know what else may happen to a server.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable

from clusters import Cluster
from loads import SESSIONS, Said, talking, verified
from sqlite import Broken

from foldline.stores.postgres import PostgresStore

LEFT = 1 << 18
BODY = 4_000
AT_ONCE = 10.0
"""Seconds within which a caller hears of a full disk."""


async def filled(
    cluster: Cluster,
    schema: str,
    which: str,
    *,
    keyed: bool,
    kind: Callable[[str], PostgresStore] = PostgresStore,
) -> Counter[str]:
    """Fill a disk under load, make room again, and find everything."""
    store, said, ended = kind(cluster.address(schema)), Said(keyed, size=BODY), asyncio.Event()
    load = asyncio.create_task(talking(store, said, ended))
    try:
        await asyncio.sleep(0.3)
        before = len(cluster.log())
        cluster.fill(which, leaving=LEFT if which == "tables" else 0)
        await _until(
            lambda: (b"No space" if which == "tables" else b"PANIC") in cluster.log()[before:],
            f"the disk of the {which} was not found full",
        )
        if which == "tables":
            await asyncio.sleep(0.5)
            await _readable(store, said)
        else:
            cluster.hold_journal(signal.SIGCONT)
            await asyncio.sleep(0.3)
        cluster.free(which)
        await asyncio.to_thread(_running, cluster)
        done = len(said.told)
        await _until(
            lambda: len({word.partition(":")[0] for word in list(said.told)[done:]}) == SESSIONS,
            f"there is room again on the disk of the {which}, and some session does not go on",
        )
    finally:
        cluster.free(which)
        ended.set()
        await load
        await store.close()
    await asyncio.to_thread(cluster.kill)
    await asyncio.to_thread(cluster.start)
    again = PostgresStore(cluster.address(schema))
    try:
        found = await verified(again, said)
    finally:
        await again.close()
    _heard(said, which)
    found[f"{which} full"] += 1
    return found


def _running(cluster: Cluster) -> None:
    """It may have come back by itself, or be about to end: look until it answers."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if not cluster.is_up():
            cluster.start()
        if cluster.answers():
            return
        time.sleep(0.05)
    raise RuntimeError(f"the server did not come back: {cluster.said()}")


async def _readable(store: PostgresStore, said: Said) -> None:
    for name in said.names():
        last = max((at for word, at in said.told.items() if word.partition(":")[0] == name.session), default=-1)  # fmt: skip
        if len(await store.read(name, [(0, last)])) != last + 1:
            raise Broken(f"lost: {name.session} cannot be read while the disk is full")


def _heard(said: Said, which: str) -> None:
    """What the callers were told."""
    faults = [*said.refused.values(), *said.unknown.values()]
    if which == "journal" and said.keyed and faults:
        raise Broken(f"an append with a key gave up: {faults[0]}")
    if not faults and (which == "tables" or not said.keyed):
        raise Broken(f"nobody heard of the full disk of the {which}")
    for fault in faults:
        if "repeat the call" not in fault:
            raise Broken(f"a caller was not told what to do: {fault}")
        if which == "tables" and "No space left on device" not in fault:
            raise Broken(f"a caller was not told what was wrong: {fault}")
    if which == "tables" and said.slowest > AT_ONCE:
        raise Broken(f"a caller heard of the full disk after {said.slowest:.0f} s")


async def _until(met: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + 40
    while not met():
        if time.monotonic() > end:
            raise Broken(otherwise)
        await asyncio.sleep(0.03)
