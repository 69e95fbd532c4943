"""Start many processes at once on an empty database: all of them must become ready.

    just chaos first_start            20 rounds of 100 processes, a quarter of an hour
    just chaos first_start --short    2 rounds of 24, half a minute

Each round makes a database on a private server (`clusters.py`). Its processes open a session with the library, run
`foldline migrate`, `foldline serve` and `foldline worker`, all from the same moment on, as the owner of the tables.
A process is ready when it has ended with 0; a gateway, when `/readyz` answers 200, and it must then end with 0.

A control must be caught, or the run fails: processes that ask for the tables by what their connection remembers of
the catalogue, which may be from before they had the lock.
"""

import argparse
import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
import urllib.request
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NoReturn
from unittest import mock

from clusters import DIRECT, Cluster, a_cluster

import foldline

# What every process needs is imported once, and each is a fork: a start is mostly imports.
import foldline.apps.cli.migrate
import foldline.apps.cli.run_worker
import foldline.apps.cli.serve
import foldline.apps.gateway.server
import foldline.apps.pages
import foldline.session.fold_worker
from foldline.apps.cli import app
from foldline.stores.postgres import schema

KINDS = ("library", "migrate", "serve", "library", "serve", "library", "worker", "serve")
COMMANDS = {
    "migrate": ["migrate"],
    "worker": ["worker", "--once", "--no-model"],
    "serve": ["serve", "--upstream", "http://127.0.0.1:9", "--port", "0", "--keys", "store"],
}
REMEMBERED = "select where to_regclass(%s || '.migrations') is not null"
SECONDS = 600.0


async def open_session(address: str, number: int) -> None:
    """What a program does with the library first."""
    async with foldline.aopen(address, model="m", window=9_000, session=f"s{number}") as session:
        await session.add("hello")
        await session.request()


def run_child(kind: str, number: int, address: str, folder: Path, go: int) -> NoReturn:
    """Be one process: wait until all are told to go, then do what its kind does."""
    code = 1
    try:
        with (folder / f"{number}").open("wb", buffering=0) as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_DFL)
        os.chdir(folder)
        os.read(go, 1)
        if kind == "library":
            asyncio.run(open_session(address, number))
            code = 0
        else:
            code = app.run_command([*COMMANDS[kind], "--store", address])
    except BaseException:  # noqa: BLE001 - it is read by whoever started this
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


class Started:
    """One process of a round."""

    def __init__(self, kind: str, number: int, folder: Path) -> None:
        self.kind, self._said, self.ready = kind, folder / f"{number}", False
        self.process, self.code = 0, -1

    def look(self) -> bool:
        """Whether it has ended; a gateway that is ready is told to."""
        if self.code >= 0:
            return True
        found, status = os.waitpid(self.process, os.WNOHANG)
        if found:
            self.code = os.waitstatus_to_exitcode(status) & 0xFF
            self.ready = self.code == 0 and (self.ready or self.kind != "serve")
            return True
        if self.kind == "serve" and not self.ready and self._answers():
            self.ready = True
            os.kill(self.process, signal.SIGTERM)
        return False

    def _answers(self) -> bool:
        listens = re.search(r"gateway at (http://\S+)", self.said())
        with suppress(OSError):
            return listens is not None and (
                urllib.request.urlopen(f"{listens[1]}/readyz", timeout=5).status == 200  # noqa: S310
            )
        return False

    def said(self) -> str:
        """What it printed."""
        return self._said.read_text(errors="replace") if self._said.exists() else ""

    def kill(self) -> None:
        """End it where it hangs."""
        if self.code < 0:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)


def start_round(cluster: Cluster, name: str, kinds: list[str]) -> tuple[Counter[str], list[str]]:
    """Start processes at once on a new database; return who became ready, and why others did not."""
    folder = Path(tempfile.mkdtemp(prefix="foldline-first-"))
    with cluster.owner() as owner:
        owner.execute(f"create database {name}".encode())
    address = f"postgresql://postgres@127.0.0.1:{cluster.port}/{name}?{DIRECT}"
    started = [Started(kind, number, folder) for number, kind in enumerate(kinds)]
    told, go = os.pipe()
    try:
        for number, one in enumerate(started):
            one.process = os.fork()
            if one.process == 0:
                os.close(go)
                run_child(one.kind, number, address, folder, told)
        os.close(go)
        end = time.monotonic() + SECONDS
        while sum(one.look() for one in started) < len(started) and time.monotonic() < end:
            time.sleep(0.05)
        for one in started:
            one.kill()
        why = [f"{one.kind}: {one.said()[-300:]}" for one in started if not one.ready]
        return Counter(one.kind for one in started if one.ready), why
    finally:
        os.close(told)
        shutil.rmtree(folder)
        with cluster.owner() as owner:
            owner.execute(f"drop database {name} with (force)".encode())


def main() -> int:
    """Print the figures; 1 if a process did not become ready, or the control was not caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--short", action="store_true", help="2 rounds of 24 processes")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args()
    processes = args.processes or (24 if args.short else 100)
    rounds = args.rounds or (2 if args.short else 20)
    begun, good = time.monotonic(), True
    os.environ.update(HOME="/nonexistent", NO_COLOR="1")
    with a_cluster(memory=True) as cluster:
        cluster.stop()
        cluster.settings["max_connections"] = str(100 + 5 * processes)
        cluster.start()
        with mock.patch.object(schema, "_HAS_MIGRATIONS", REMEMBERED):
            ready, why = start_round(cluster, "control", ["library"] * 30)
        caught = any("already exists" in one for one in why)
        good &= caught
        print(
            f"control, a remembered catalogue: {'caught' if caught else 'NOT caught'}: "
            f"{ready.total()} of 30 ready",
            flush=True,
        )
        total, slowest = Counter[str](), 0.0
        for at in range(rounds):
            start = time.monotonic()
            ready, why = start_round(cluster, f"round_{at}", [KINDS[n % len(KINDS)] for n in range(processes)])  # fmt: skip
            slowest = max(slowest, time.monotonic() - start)
            total += ready
            for one in why[:3]:
                print(f"round {at + 1}: NOT ready, {one}", flush=True)
            good &= not why
    figures = ", ".join(f"{kind} {count}" for kind, count in sorted(total.items()))
    print(
        f"ready: {total.total()} of {rounds * processes} ({figures}); slowest round {slowest:.0f} s"
    )
    print(f"{'all as it must be' if good else 'BROKEN'} in {time.monotonic() - begun:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
