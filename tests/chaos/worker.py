"""Kill workers over their jobs, and find every fold made once; measure what a worker costs.

    just chaos worker                   50 kills among 200 sessions, 1,000 orders, some five minutes
    just chaos worker --short           8 kills among 40 sessions, without the control: half a minute
    just chaos worker --orders 1000     R-29 on PostgreSQL alone, as in tests/stores/test_processes.py

On a private server in memory (`clusters.py`). Sessions whose fold is due are queued; two workers, the real
command with a scripted teller on a real port, are killed -9 while they have jobs in hand and started again.
What they have in hand is queued once more before the kill: the trap that holds a session's lock for ever.
At the end the queue is empty, each session has the folds that an undisturbed run gives it, its log is dense
and its next request can be sent.

The control must be caught, or the run fails: workers whose reaper lacks the catch of the trap.

The rate: our worker with folds that do nothing beside procrastinate with tasks that do nothing, in turns.
"""

import argparse
import asyncio
import logging
import os
import signal
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
from statistics import median
from typing import Any, NoReturn

import procrastinate
from clusters import Cluster, a_cluster

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / folder) for folder in ("properties", "session", "stores")]
from folding import SETTINGS, due, folds_of, goals, made  # noqa: E402 - beside us
from mutants import broken  # noqa: E402

from foldline.core.log import Opened  # noqa: E402
from foldline.dialects.openai_chat.dialect import DIALECT as OPENAI  # noqa: E402
from foldline.session import planning  # noqa: E402
from foldline.session.fold_queue import Queue  # noqa: E402
from foldline.session.fold_worker import LEASE, STALLED, Done, Worker, fold_session  # noqa: E402  # noqa: E402
from foldline.session.log_handle import Live  # noqa: E402
from foldline.session.model_facts import of_session  # noqa: E402
from foldline.stores.base import Name  # noqa: E402
from foldline.stores.open_store import store_at  # noqa: E402
from foldline.stores.sqlite import SqliteStore  # noqa: E402
from foldline.testing import Provider  # noqa: E402

LEAST = 0.8  # of procrastinate's own rate
SETS = 4  # of rounds, at most
TRAP = ("foldline.session.fold_worker", "except exceptions.UniqueViolation:", "except KeyError:")
_DOING = """
    select id, worker_id as worker, args->>'session' as session
    from procrastinate_jobs where status = 'doing'
"""
_NEWEST = "select last_value * is_called::int as worker from procrastinate_workers_id_seq"
_WORKERS = """
    select id from procrastinate_workers
    where last_heartbeat > now() - interval '30 s' order by id
"""
_KILLING = 600.0  # seconds in which all kills have met work, on any machine
_PATIENCE = STALLED + LEASE + 30.0  # seconds in which all of it is worked off once nobody is killed


class Broken(Exception):  # noqa: N818 - named for what was found
    """Something is not as it must be."""


def talk(number: int) -> list[Any]:
    """A session whose fold is due; no two are alike."""
    return [Opened("scripted", SETTINGS), *due(f"pasted text {number} ", 7 + number % 4)[1:]]


@dataclass
class Workers:
    """Two real workers, killed and started again."""

    address: str
    teller: str
    mutant: bool = False
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp()))
    running: "list[subprocess.Popen[bytes]]" = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """What the table calls each that runs."""
    started: int = 0

    def start(self) -> None:
        """One more."""
        self.started += 1
        given = ["worker", "--store", self.address, "--concurrency", "2", "--base-url", self.teller]
        program = [sys.executable, __file__, "--mutant"] if self.mutant else [str(Path(sys.executable).with_name("foldline"))]  # fmt: skip
        with (self.folder / f"{self.started}").open("wb") as out:
            self.running.append(subprocess.Popen([*program, *given], stdout=out, stderr=out))

    def kill(self, place: int) -> None:
        """Kill -9 one of them."""
        one = self.running.pop(place)
        if one.poll() is not None:
            raise Broken(f"a worker ended by itself: {self.said()[-300:]}")
        os.kill(one.pid, signal.SIGKILL)
        one.wait()
        self.numbers.pop(place)

    async def begun(self, queue: Queue) -> None:
        """Start one, and wait until it is counted."""
        before = await queue.connector.execute_query_one_async(_NEWEST)
        self.start()
        for _ in range(600):
            now = await queue.connector.execute_query_one_async(_NEWEST)
            if now["worker"] != before["worker"]:
                self.numbers.append(now["worker"])
                return
            await asyncio.sleep(0.05)
        raise Broken(f"a worker does not start: {self.said()[-300:]}")

    async def learn(self, queue: Queue) -> None:
        """Who was slow enough to be taken for dead has registered again, by another number."""
        rows = await queue.connector.execute_query_all_async(_WORKERS)
        there = [row["id"] for row in rows]
        others = [number for number in there if number not in self.numbers]
        for at, number in enumerate(self.numbers):
            if number not in there and others:
                self.numbers[at] = others.pop()

    def said(self) -> str:
        """All that they told."""
        files = sorted(self.folder.iterdir(), key=lambda file: int(file.name))
        return "".join(file.read_text(errors="replace") for file in files)

    def end(self) -> float:
        """As a supervisor does it; how long the slowest took."""
        begun = time.monotonic()
        for one in self.running:
            one.send_signal(signal.SIGTERM)
        try:
            for one in self.running:
                one.wait(30)
        finally:
            for one in self.running:
                one.kill()
                one.wait()
        return time.monotonic() - begun


@contextmanager
def working(address: str, *, mutant: bool = False) -> Iterator[Workers]:
    """Workers and their teller, ended afterwards."""
    with Provider(goals) as provider:
        provider.delay = 0.2
        provider._server.handle_error = lambda *_: None  # type: ignore[method-assign] # who is killed hangs up
        workers = Workers(address, f"{provider.url}/v1", mutant)
        try:
            yield workers
        finally:
            workers.end()
            for file in workers.folder.iterdir():
                file.unlink()
            workers.folder.rmdir()


async def killed(
    address: str, *, sessions: int, kills: int, random: Random, mutant: bool = False
) -> Counter[str]:
    """Queue sessions, kill workers over them, and look at each session in the end."""
    store, seen, count = store_at(address), Counter[str](), 0
    place = 0
    await store.head(Name("acme", "none"))
    with working(address, mutant=mutant) as workers:
        async with Queue(address, connections=4) as queue:
            for _ in range(2):
                await workers.begun(queue)
            until = time.monotonic() + _KILLING
            while seen["kills"] < kills:
                if time.monotonic() > until:
                    raise Broken(f"{seen['kills']} kills met work in {_KILLING:.0f} s")
                todo = (await queue.count_jobs())["todo"]
                while count < sessions or todo < 6:  # so that each kill meets work
                    name = Name("acme", f"s{count}")
                    await made(store, name, talk(count))
                    await queue.defer(name, install=True)
                    count, todo = count + 1, todo + 1
                doing = await queue.connector.execute_query_all_async(_DOING)
                if all(row["worker"] != workers.numbers[place] for row in doing):
                    await workers.learn(queue)
                    await asyncio.sleep(0.02)
                    continue
                await asyncio.sleep(random.uniform(0, 0.2))
                doing = await queue.connector.execute_query_all_async(_DOING)
                struck = [row for row in doing if row["worker"] == workers.numbers[place]]
                for row in struck if random.random() < 0.5 or mutant else ():
                    seen["queued once more"] += await queue.defer(
                        Name("acme", row["session"]), install=True
                    )
                workers.kill(place)
                await workers.begun(queue)
                place = random.randrange(2)
                seen["kills"] += 1
                seen["kills over a job"] += bool(struck)
            since = time.monotonic()
            while left := await queue.count_jobs():
                if time.monotonic() - since > _PATIENCE:
                    raise Broken(f"stuck: {dict(left)} after {_PATIENCE:.0f} s")
                await asyncio.sleep(0.2)
            if seen["kills over a job"] < kills // 2:
                raise Broken(f"{seen['kills over a job']} kills met a job: nothing was tested")
            seen["seconds until all was done"] = round(time.monotonic() - since)
        if (took := workers.end()) > 10:
            raise Broken(f"a worker took {took:.1f} s to end")
        said = workers.said()
        seen["given to another worker"] = said.count("was given to another worker")
        seen["dropped, as queued once more"] = said.count("was dropped")
        seen["failed"] = said.count(" failed: ")
    await _looked_at(store, count, seen)
    await store.close()
    return seen


async def _looked_at(store: Any, count: int, seen: Counter[str]) -> None:
    """Each session beside an undisturbed run of the same one."""
    alone = SqliteStore(":memory:")
    for number in range(count):
        name = Name("acme", f"s{number}")
        await made(alone, name, talk(number))
        await fold_session(alone, name, install=True)
        expected = await folds_of(alone, name)
        found = await folds_of(store, name)  # which raises where the log is not dense
        if len(found) != len(expected) or not found:
            raise Broken(f"{name.session} has {len(found)} folds, undisturbed {len(expected)}")
        if found[0].change.span != expected[0].change.span:
            raise Broken(f"{name.session} is folded over another span than undisturbed")
        live = await Live.open(store, name, facts=of_session("scripted", SETTINGS))
        if b"go on" not in await planning.plan_and_record_request(live, {}, dialect=OPENAI):
            raise Broken(f"{name.session} has lost what was said last")
        seen["sessions"] += 1
        seen["folds"] += len(found)
        seen["told"] += bool(found[0].by)
    await alone.close()


# The rate.


async def bare(queue: Queue, count: int) -> float:
    """Procrastinate alone, with tasks that do nothing: seconds."""
    app = procrastinate.App(connector=queue.connector)

    @app.task(name="bare", queue="bare")
    async def nothing() -> None:
        """Do nothing."""

    await nothing.batch_defer_async(*({} for _ in range(count)))
    begun = time.perf_counter()
    await app.run_worker_async(
        queues=["bare"], wait=False, concurrency=4, delete_jobs="always", install_signal_handlers=False
    )  # fmt: skip
    return time.perf_counter() - begun


async def ours(address: str, count: int, fold: Callable[..., Any], prefix: str) -> float:
    """Our worker: seconds."""
    async with Queue(address, connections=4) as queue:
        for number in range(count):
            await queue.defer(Name("acme", f"{prefix}{number}"), install=True)
        told: list[Done] = []
        worker = Worker(
            queue, fold, concurrency=4, on_outcome=lambda _, done, __: told.append(done)
        )
        begun = time.perf_counter()
        await worker.run(once=True)
        took = time.perf_counter() - begun
    if len(told) != count or any(done.outcome == "failed" for done in told):
        raise Broken(f"{len(told)} of {count} jobs were done: {told[:1]}")
    return took


async def rates(address: str, *, rounds: int, jobs: int) -> tuple[float, str]:
    """Ours by procrastinate's own, in turns; and with folds."""

    async def nothing(_name: Name, _install: bool) -> Done:  # noqa: FBT001 - the shape of a fold
        return Done("nothing")

    ratio, took = 0.0, {"bare": [], "ours": [], "folds": []}
    store = store_at(address)
    for at in range(SETS * rounds):
        async with Queue(address, connections=4) as queue:
            took["bare"].append(await bare(queue, jobs))
        took["ours"].append(await ours(address, jobs, nothing, "n"))
        for number in range(jobs // 4):
            await made(store, Name("acme", f"{at}f{number}"), talk(number))
        folding = lambda name, install: fold_session(store, name, install=install)  # noqa: E731
        took["folds"].append(await ours(address, jobs // 4, folding, f"{at}f"))
        ratio = median(bare / ours for bare, ours in zip(took["bare"], took["ours"], strict=True))
        if at + 1 >= rounds and ratio >= LEAST:
            break  # below the target more rounds are taken, and the median of them all
    await store.close()
    a_second = {what: jobs / median(seconds) for what, seconds in took.items()}
    return ratio, (
        f"rate: {a_second['ours']:.0f} jobs/s that do nothing, procrastinate "
        f"{procrastinate.__version__} alone {a_second['bare']:.0f}/s: {ratio:.2f} of it (at least {LEAST}), "
        f"medians of {len(took['ours'])} rounds; "
        f"{a_second['folds'] / 4:.0f} folds/s without a model"
    )


# The campaign.


def part(name: str, work: Callable[[], Counter[str]]) -> bool:
    """A part finds nothing."""
    start = time.monotonic()
    try:
        seen = work()
    except Broken as fault:
        print(f"{name}: BROKEN: {fault}", flush=True)
        return False
    figures = ", ".join(f"{what} {count:,}" for what, count in sorted(seen.items()))
    print(f"{name}: {figures} ({time.monotonic() - start:.0f} s)", flush=True)
    return True


def control(cluster: Cluster, random: Random) -> bool:
    """Workers that fall into the trap are found out."""
    start = time.monotonic()
    try:
        asyncio.run(killed(cluster.address("trapped"), sessions=6, kills=2, random=random, mutant=True))  # fmt: skip
        told, caught = "NOT caught", False
    except Broken as fault:
        caught = "stuck" in str(fault)
        told = f"{'caught' if caught else 'caught for ANOTHER REASON'}: {fault}"
    took = time.monotonic() - start
    print(f"control, a reaper without the catch: {told} ({took:.0f} s)", flush=True)
    return caught


def ordered(cluster: Cluster, count: int) -> Counter[str]:
    """R-29: a worker's fold and two gateways, in so many orders."""
    from test_processes import _interleaved, _working  # noqa: PLC0415 - one for both

    orders = asyncio.run(_interleaved(cluster.address("ordered"), count, _working))
    return Counter({"seeds": count, "different orders": len(orders)})


def ended(_number: int, _frame: object) -> NoReturn:
    """Asked to end: as after Ctrl-C, everything that was started is ended first."""
    raise KeyboardInterrupt


def main() -> int:
    """Print the figures; 1 where a fold is lost or made twice, or the control is not caught."""
    if sys.argv[1:2] == ["--mutant"]:
        from foldline.apps.cli.app import run_command  # noqa: PLC0415

        with broken(*TRAP):
            return run_command(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--short", action="store_true", help="8 kills, no orders")
    parser.add_argument("--orders", type=int, help="only R-29, in so many orders")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, ended)
    logging.getLogger("procrastinate").setLevel(logging.CRITICAL)
    random, good, start = Random(args.seed), True, time.monotonic()
    print(f"seed {args.seed}", flush=True)
    with a_cluster(memory=True) as cluster:
        if args.orders is None:
            sessions, kills = (40, 8) if args.short else (200, 50)
            work = killed(cluster.address("killed"), sessions=sessions, kills=kills, random=random)
            good &= part("killed", lambda: asyncio.run(work))
            rounds = 3 if args.short else 10
            ratio, told = asyncio.run(rates(cluster.address("rated"), rounds=rounds, jobs=100))
            print(told, flush=True)
            good &= ratio >= LEAST
        if not args.short and args.orders is None:
            good &= control(cluster, random)
        if not args.short:
            good &= part("orders", lambda: ordered(cluster, args.orders or 1_000))
    print(f"{'all as it must be' if good else 'BROKEN'} in {time.monotonic() - start:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
