"""End writers, the server and connections at random points, and miss nothing that was acknowledged.

    just chaos postgres            the long form
    just chaos postgres --short    about two minutes

On a private cluster (`initdb`, as the user postgres where we are root), on a free port:
writers   a process that appends all that a session can is killed -9; the log must be what it was told
          to have appended, then what was in flight, whole or not at all
server    16 sessions append, singly and in batches, while the server is killed -9 and started again;
          appends with a `once` key go on by themselves and are there once, others are there at most once
proxy     the connection is cut at the n-th message, before it reaches the server or after, for every n
          of an append alone, of a batch, and of opening

Three controls must be caught, or the run fails: a server with `synchronous_commit = off`, batches without
their flush, and appends that are sent again without a key. A kill does not test what the disk does without
power: nothing here does.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psycopg
from sqlite import NAME, Broken, Known, Telling, believe, digest, how, take, write

from foldline.errors import StoreFailed
from foldline.store.base import Draft, Name, Row
from foldline.store.postgres import PostgresStore, appending

SESSIONS = 16


@dataclass
class Cluster:
    """A server of our own."""

    folder: Path
    port: int
    bin: Path

    def address(self, schema: str = "foldline", port: int = 0) -> str:
        """Where a store is."""
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/postgres?schema={schema}"

    def run(self, *command: str) -> None:
        """One of the server's own programs, as its own user."""
        user = "postgres" if os.getuid() == 0 else None
        subprocess.run(
            command, check=True, user=user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd="/",
        )  # fmt: skip

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = (
            f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c shared_buffers=32MB"
        )
        control = str(self.bin / "pg_ctl")
        log = str(self.folder / "log")
        self.run(control, "-D", str(self.folder / "at"), "-l", log, "-w", "-o", options, "start")

    def kill(self) -> None:
        """Kill -9 the server; its other processes see that and end."""
        number = int((self.folder / "at" / "postmaster.pid").read_text().split()[0])
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(number)], capture_output=True, text=True, check=False  # noqa: S607
        ).stdout.split()  # fmt: skip
        for one in (number, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        end = time.monotonic() + 10
        while time.monotonic() < end and any(
            Path(f"/proc/{one}").exists() for one in (number, *children)
        ):
            time.sleep(0.02)
        (self.folder / "at" / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """End it."""
        self.run(str(self.bin / "pg_ctl"), "-D", str(self.folder / "at"), "-m", "immediate", "stop")


@contextmanager
def a_cluster() -> Iterator[Cluster]:
    """A new server, gone afterwards."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    found = shutil.which("initdb")
    folder = Path(tempfile.mkdtemp(prefix="foldline-chaos-"))
    if os.getuid() == 0:
        shutil.chown(folder, pwd.getpwnam("postgres").pw_uid)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    cluster = Cluster(folder, port, Path(found).parent if found else programs[-1])
    cluster.run(
        str(cluster.bin / "initdb"), "-D", str(folder / "at"), "-U", "postgres", "-A", "trust"
    )
    cluster.start()
    try:
        yield cluster
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            cluster.stop()
        shutil.rmtree(folder)


def made(address: str) -> None:
    """Make a schema before anything is counted."""

    async def make() -> None:
        store = PostgresStore(address)
        await store.head(NAME)
        await store.close()

    asyncio.run(make())


# Writers.


def killed(address: str, known: Known, seed: int) -> list[Any]:
    """Start a writer and kill it: what it said."""
    heard, said = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(heard)
        try:
            asyncio.run(write(Telling(PostgresStore(address), said), known, Random(seed)))  # type: ignore[arg-type]
        except BaseException as fault:  # noqa: BLE001 - any end but a kill is a finding
            os.write(said, json.dumps({"fault": repr(fault)[:500]}).encode() + b"\n")
        os._exit(1)
    os.close(said)
    end, text = time.monotonic() + Random(seed + 1).uniform(0.1, 0.6), b""
    while True:
        ready, _, _ = select.select([heard], [], [], max(0.0, end - time.monotonic()))
        if ready:
            more = os.read(heard, 1 << 16)
            if not more:
                break
            text += more
        if time.monotonic() >= end:
            os.kill(child, signal.SIGKILL)
            end += 60
    os.close(heard)
    os.waitpid(child, 0)
    return [json.loads(line) for line in text.splitlines()]


async def compared(
    address: str, known: Known, flying: dict[str, Any] | None, seen: Counter[str]
) -> None:
    """The log beside what was acknowledged."""
    store = PostgresStore(address)
    try:
        rows = await store.read(NAME, [(0, 2**31 - 1)])
        head = (await store.head(NAME)).seq
        if [row.seq for row in rows] != list(range(head + 1)):
            raise Broken(f"not dense up to {head}")
        found = [digest(row) for row in rows]
        more = found[len(known.log) :]
        if found[: len(known.log)] != known.log:
            raise Broken(how(found, known.log))
        if more and (flying is None or more != flying["rows"]):
            raise Broken("torn, or twice: rows that were not in flight, or not all")
        if more and flying is not None:
            seen["in flight, there"] += 1
            take(known, flying, head, seen)
    finally:
        await store.close()


def writers(cluster: Cluster, kills: int, seed: int) -> Counter[str]:
    """Kill a writer so many times."""
    address, known = cluster.address("writers"), Known()
    made(address)
    seen: Counter[str] = Counter()
    for at in range(kills):
        flying = believe(known, killed(address, known, seed + at), seen)
        time.sleep(0.05)  # what the dead one sent last may still be under way
        asyncio.run(compared(address, known, flying, seen))
        seen["kills"] += 1
    return seen


# The server.


@dataclass
class Said:
    """What was appended, by whom, and what became of it."""

    told: dict[str, int] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)


async def talking(store: PostgresStore, said: Said, ended: asyncio.Event, *, keyed: bool) -> None:
    """Sessions append until they are told to end; each event has words of its own."""

    async def one(number: int) -> None:
        at = 0
        while not ended.is_set():
            at += 1
            words = f"{number}:{at}:{id(said)}"
            rows = [Row("user_said", words.encode())] * (3 if at % 7 == 0 else 1)
            said.tried.add(words)
            try:
                once = words if keyed else None
                said.told[words] = await store.append(
                    Name("t", f"s{number}"), Draft(rows), once=once
                )
            except StoreFailed:
                said.unknown.add(words)
                await asyncio.sleep(0.05)

    await asyncio.gather(*(one(number) for number in range(SESSIONS)))


async def verified(store: PostgresStore, said: Said) -> Counter[str]:
    """Every acknowledged append at its place, once; the unknown ones at most once."""
    found: Counter[str] = Counter()
    for number in range(SESSIONS):
        name = Name("t", f"s{number}")
        rows = await store.read(name, [(0, 2**31 - 1)])
        if [row.seq for row in rows] != list(range(len(rows))):
            raise Broken(f"{name.session} is not dense")
        bodies = [row.body.decode() for row in rows]
        for words in {one for one in said.tried if one.startswith(f"{number}:")}:
            times = bodies.count(words)
            whole = 3 if int(words.split(":")[1]) % 7 == 0 else 1
            if words in said.told and times == 0:
                raise Broken(f"lost: {words} was acknowledged at {said.told[words]}")
            if times > whole:
                raise Broken(f"duplicated: {words} is there {times} times")
            if times not in (0, whole):
                raise Broken(f"torn: {times} of {whole} rows of {words}")
            if words in said.told and bodies[said.told[words]] != words:
                raise Broken(f"reordered: {words} is not at {said.told[words]}")
            found["acknowledged"] += words in said.told
            found["unknown, there"] += words in said.unknown and times > 0
            found["unknown, not there"] += words in said.unknown and times == 0
    return found


async def struck(cluster: Cluster, schema: str, *, random: Random, keyed: bool) -> Counter[str]:
    """One kill of the server under load."""
    store, said, ended = PostgresStore(cluster.address(schema)), Said(), asyncio.Event()
    load = asyncio.create_task(talking(store, said, ended, keyed=keyed))
    await asyncio.sleep(random.uniform(0.3, 0.9))
    await asyncio.to_thread(cluster.kill)
    await asyncio.to_thread(cluster.start)
    await asyncio.sleep(0.2)
    ended.set()
    await load
    await store.close()
    again = PostgresStore(cluster.address(schema))
    try:
        return await verified(again, said)
    finally:
        await again.close()


def server(cluster: Cluster, schema: str, *, kills: int, seed: int) -> Counter[str]:
    """Kill the server so many times, with and without keys in turn."""
    made(cluster.address(schema))
    seen: Counter[str] = Counter()
    for at in range(kills):
        seen += asyncio.run(struck(cluster, schema, random=Random(seed + at), keyed=at % 2 == 0))
        seen["kills"] += 1
    return seen


# The proxy.


class Proxy:
    """Between a store and the server; cuts all connections once, at the n-th message."""

    def __init__(self, port: int, cut: int, *, before: bool) -> None:
        self.port, self.left, self.before, self.done = port, cut, before, False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        there, to = await asyncio.open_connection("127.0.0.1", self.port)
        back = asyncio.create_task(self.copied(there, writer))
        try:
            while chunk := await reader.read(1 << 16):
                self.left -= 1
                if self.left == 0 and self.before:
                    break
                to.write(chunk)
                await to.drain()
                if self.left == 0:
                    await asyncio.sleep(0.05)  # the server has it, and nobody hears the answer
                    break
        except (ConnectionError, asyncio.CancelledError):  # the run is over: nobody is waited for
            pass
        self.done |= self.left == 0
        back.cancel()
        for one in (to, writer):
            one.transport.abort()

    async def copied(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers, until the cut."""
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(1 << 16):
                if self.left == 0 and not self.done:
                    return
                writer.write(chunk)
                await writer.drain()


async def cut(cluster: Cluster, schema: str, at: int, *, before: bool) -> bool:
    """Open, append alone and together with keys, and read: all there once. Whether there was a cut."""
    proxy = Proxy(cluster.port, at, before=before)
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    tenant = f"cut{at}{before}"
    store = PostgresStore(cluster.address(schema, port))
    names = [Name(tenant, f"s{n}") for n in range(6)]
    while True:
        try:
            await store.head(names[0])
        except StoreFailed:  # the very first connection: nothing is repeated before it stood
            continue
        break
    for turn in range(3):
        rows = Draft([Row("user_said", b"%d" % turn)])
        await store.append(names[0], rows, once=f"alone {turn}")
        await asyncio.gather(*(store.append(name, rows, once=f"together {turn}") for name in names))
    for name in names:
        found = [row.body for row in await store.read(name, [(0, 99)])]
        wanted = [b"%d" % turn for turn in range(3) for _ in range(2 if name == names[0] else 1)]
        if found != wanted:
            raise Broken(f"cut at message {at}, before={before}: {name.session} holds {found}")
    await store.close()
    listening.close()
    return proxy.done


def proxied(cluster: Cluster, schema: str) -> Counter[str]:
    """Cut at every message there is."""
    made(cluster.address(schema))
    seen: Counter[str] = Counter()
    for before in (True, False):
        at = 1
        while asyncio.run(cut(cluster, schema, at, before=before)):
            seen["cuts"] += 1
            at += 1
    return seen


# Controls.


def caught(name: str, expected: str, work: Callable[[], Any]) -> bool:
    """Whether a control is found out, and for what it is."""
    try:
        work()
    except Broken as fault:
        print(f"control, {name}: caught: {str(fault)[:100]}")
        return expected in str(fault)
    print(f"control, {name}: NOT caught")
    return False


def without_flush(cluster: Cluster) -> None:
    """Batches that are acknowledged before the disk has them."""
    made(cluster.address("unflushed"))
    with psycopg.connect(cluster.address().partition("?")[0], autocommit=True) as owner:
        row = owner.execute("select pg_get_functiondef('unflushed.append_all'::regproc)").fetchone()
        assert row is not None
        text = row[0].replace("perform pg_logical_emit_message(true, 'foldline', '');", "")
        assert text != row[0]
        owner.execute(text.encode())
    server(cluster, "unflushed", kills=12, seed=1)


def lazy_server(cluster: Cluster) -> None:
    """A server that acknowledges before the disk has it."""
    with psycopg.connect(cluster.address().partition("?")[0], autocommit=True) as owner:
        owner.execute("alter role postgres set synchronous_commit = off")
    try:
        server(cluster, "lazily", kills=12, seed=1)
    finally:
        with psycopg.connect(cluster.address().partition("?")[0], autocommit=True) as owner:
            owner.execute("alter role postgres reset synchronous_commit")


def guessing(cluster: Cluster) -> None:
    """A store that sends appends again without remembering their keys."""
    made(cluster.address("guessing"))
    kept = appending.Appends._single

    async def keyless(self: Any, connection: Any, one: Any) -> Any:
        key, one.once = one.once, None
        try:
            return await kept(self, connection, one)
        finally:
            one.once = key

    appending.Appends._single = keyless  # type: ignore[method-assign]
    try:
        proxied(cluster, "guessing")
    finally:
        appending.Appends._single = kept  # type: ignore[method-assign]


def main() -> int:
    """Print the figures; 1 where something was lost, or a control was not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="25 and 10 kills")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # of course connections end here
    good: list[bool] = []
    with a_cluster() as cluster:
        good += [
            caught("synchronous_commit = off", "lost", lambda: lazy_server(cluster)),
            caught("batches without their flush", "lost", lambda: without_flush(cluster)),
            caught("sent again without a key", "holds", lambda: guessing(cluster)),
        ]
        parts: dict[str, Callable[[], Counter[str]]] = {
            "writers": lambda: writers(cluster, 25 if args.short else 500, args.seed),
            "server": lambda: server(cluster, "served", kills=10 if args.short else 100, seed=args.seed),
            "proxy": lambda: proxied(cluster, "proxied"),
        }  # fmt: skip
        for name, part in parts.items():
            start = time.monotonic()
            try:
                seen = part()
            except Broken as fault:
                print(f"{name}: BROKEN, seed {args.seed}: {fault}")
                good.append(False)
                continue
            figures = ", ".join(f"{what} {count:,}" for what, count in sorted(seen.items()))
            print(
                f"{name}: {figures} in {time.monotonic() - start:.0f} s; 0 lost, duplicated, reordered, torn"
            )
            good.append(True)
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
