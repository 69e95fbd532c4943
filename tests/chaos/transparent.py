"""Law 9 at length: random programs of clients through the proxied path, judged by its oracle.

    just chaos transparent                                     2,000 programs, some minutes
    just chaos transparent --programs 100000 --jobs 2          an hour on two cores
    just chaos transparent --dialect openai-responses          all clients in one dialect
    just chaos transparent --seed 4711                         one program again
    just chaos transparent --survey --programs 500             every rule that is broken, with counts
    just chaos transparent --store postgresql:///test?host=127.0.0.1 --processes 2 --programs 2000

Programs of clients (`client_programs`) share keys, first words, first answers and ids of
calls; every other word is somebody's alone. Half of the programs are played step by step, half of them
with all clients at once. With `--store`, the processes of a program are real ones over a schema of
their own in that database, which is dropped afterwards.

Prints how often each thing happened and what edits were seen, and exits 1 on a violation, with the
program made as short as it goes while it breaks the same rule.
"""

import argparse
import asyncio
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "stores"))
sys.path.insert(0, str(Path(__file__).parents[1] / "properties"))
sys.path.insert(0, str(Path(__file__).parents[1] / "dialects"))

from client_programs import (
    Call,
    Player,
    Program,
    ProgramResult,
    ProxyAdapter,
    Setting,
    WatchedStore,
    draw_program,
    play,
    setting_of,
    take_counts,
)
from transparency_oracle import Violation, judge_program

from foldline.dialects.base import DIALECTS
from foldline.stores.open_store import store_at

BATCH = 50
SHOWN = 3  # violations of a rule that a survey keeps
EDITS = ("fold", "clip", "mask", "thought", "limit")
WRITTEN = ("folded", "masked", "rewound", "fork")
EFFECTS = (*EDITS, *WRITTEN, "heal")


@dataclass
class Counts:
    """What a number of programs did."""

    programs: int = 0
    logs: int = 0
    tags: Counter[str] = field(default_factory=Counter)
    """What clients did."""
    kinds: Counter[str] = field(default_factory=Counter)
    """What was written into the store."""
    edits: Counter[str] = field(default_factory=Counter)
    """What was seen in the bodies that went upstream."""
    share: Counter[str] = field(default_factory=Counter)
    """In how many programs each effect was seen."""
    rules: Counter[str] = field(default_factory=Counter)
    """In how many programs each rule was broken."""
    broken: dict[str, list[tuple[Program, bool, Violation]]] = field(default_factory=dict)

    def take(self, result: ProgramResult, *, at_once: bool) -> None:
        """Judge one program."""
        verdict = judge_program(result)
        self.programs += 1
        self.logs += len({sent.session for sent in result.sent if sent.session})
        self.tags += result.tags
        self.kinds += result.kinds
        self.edits += verdict.edits
        seen = verdict.edits + result.kinds + result.tags
        self.share.update(name for name in EFFECTS if seen[name])
        self.rules.update({one.rule for one in verdict.violations})
        for one in verdict.violations:
            kept = self.broken.setdefault(one.rule, [])
            if len(kept) < SHOWN and not any(each[0] is result.program for each in kept):
                kept.append((result.program, at_once, one))

    def add(self, other: "Counts") -> None:
        """Add what another process counted."""
        self.programs += other.programs
        self.logs += other.logs
        for name in ("tags", "kinds", "edits", "share", "rules"):
            getattr(self, name).update(getattr(other, name))
        for rule, several in other.broken.items():
            kept = self.broken.setdefault(rule, [])
            kept += several[: SHOWN - len(kept)]

    def show(self, seconds: float) -> None:
        """Print it all."""
        effects = {"heal": self.tags["heal"]} | {name: self.kinds[name] for name in WRITTEN}
        effects |= {name: self.edits[name] for name in EDITS}
        asked = f"{self.programs} programs, {self.logs} logs, {self.tags['request']} requests"
        print(f"{asked}, {sum(self.rules.values())} broken, {seconds:.0f} s")
        print("effects: " + ", ".join(f"{name} {effects[name]}" for name in EFFECTS))
        shares = (f"{name} {self.share[name] / max(self.programs, 1):.0%}" for name in EFFECTS)
        print("programs with one: " + ", ".join(shares))
        print("clients: " + ", ".join(f"{name} {n}" for name, n in sorted(self.tags.items())))
        print("store: " + ", ".join(f"{name} {n}" for name, n in sorted(self.kinds.items())))
        if self.rules:
            print(
                "BROKEN, by rule, in programs: "
                + ", ".join(f"{name} {n}" for name, n in self.rules.most_common())
            )


def is_at_once(program: Program) -> bool:
    """Half of the programs have all of their clients speak at once."""
    return program.seed % 2 == 1


def run_batch(seeds: Iterable[int], dialect: str = "") -> Counts:
    """Play some programs in this process."""

    async def play_all() -> Counts:
        counts = Counts()
        for seed in seeds:
            program = draw_program(seed, dialect=dialect)
            at_once = is_at_once(program)
            counts.take(await play(program, at_once=at_once), at_once=at_once)
        return counts

    return asyncio.run(play_all())


def shrink(program: Program, breaks: Callable[[Program], bool]) -> Program:
    """A program with as few steps as still break the rule: halves first, then one by one."""
    size = max(len(program.steps) // 2, 1)
    while True:
        at = 0
        while at < len(program.steps):
            fewer = program._replace(steps=program.steps[:at] + program.steps[at + size :])
            if fewer.steps and breaks(fewer):
                program = fewer
            else:
                at += size
        if size == 1:
            return program
        size //= 2


def show_violation(program: Program, rule: str, *, at_once: bool) -> None:
    """Print a violation, made short."""

    def found(one: Program) -> list[Violation]:
        result = asyncio.run(play(one, at_once=at_once))
        return [each for each in judge_program(result).violations if each.rule == rule]

    short = shrink(program, lambda one: bool(found(one)))
    again = found(short)
    print(
        f"\n{rule}: seed {program.seed}{' (all at once)' * at_once}, {len(short.steps)} of {len(program.steps)} steps"
    )
    print(f"  play_program({short!r}, at_once={at_once})")
    print(f"  {again[0].text if again else 'it does not happen again'}")


# --- Real processes ----------------------------------------------------------------------------


def serve(address: str, pipe: Any) -> None:
    """A process that relays: takes requests from a pipe, one task for each."""
    asyncio.run(_serve(address, pipe))


async def _serve(address: str, pipe: Any) -> None:
    store = WatchedStore(store_at(address))
    proxies: dict[tuple[int, int], ProxyAdapter] = {}
    calls: dict[int, tuple[ProxyAdapter, Call]] = {}
    names, tasks = count(), set()
    loop = asyncio.get_running_loop()

    async def do(what: str, *given: Any) -> Any:
        if what == "begin":
            program, number, window, policy = given
            proxies[program, number] = ProxyAdapter(store, window=window, policy=policy)
            return None
        if what == "ask":
            program, number, dialect, body, caller, streams = given
            proxy = proxies[program, number]
            call = await proxy.ask(dialect, body, caller, streams=streams)
            name = next(names)
            calls[name] = proxy, call
            return name, call.body, call.session, call.patches, call.is_planned, call.fault
        if what == "counts":
            (tenant,) = given
            stored = {name: size for name, size in store.stored.items() if name[0] == tenant}
            kinds, store.kinds = store.kinds, Counter()
            return dict(kinds), stored
        name, *rest = given
        proxy, call = calls[name]
        if what == "leave":
            return await proxy.leave(call)
        again = await proxy.answer(call, *rest)
        return again, call.body, call.session, call.patches

    async def reply(number: int, request: tuple[Any, ...]) -> None:
        try:
            answer = True, await do(*request)
        except Exception as fault:  # noqa: BLE001 - the parent judges it
            answer = False, repr(fault)
        pipe.send((number, answer))

    while (got := await loop.run_in_executor(None, pipe.recv)) is not None:
        task = loop.create_task(reply(*got))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    await store.close()


class RealProcess:
    """A process at the other end of a pipe."""

    def __init__(self, address: str) -> None:
        self._pipe, theirs = multiprocessing.get_context("spawn").Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=serve, args=(address, theirs), daemon=True
        )
        self._process.start()
        self._numbers, self._waiting = count(), dict[int, asyncio.Future[Any]]()

    def listen(self) -> None:
        """Read answers as they come, in the loop that is running."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe.fileno(), self._read)

    def _read(self) -> None:
        while self._pipe.poll():
            try:
                number, (fine, answer) = self._pipe.recv()
            except EOFError:
                asyncio.get_running_loop().remove_reader(self._pipe.fileno())
                for one in self._waiting.values():
                    one.set_exception(RuntimeError("the process is gone"))
                return
            waiting = self._waiting.pop(number)
            if fine:
                waiting.set_result(answer)
            else:
                waiting.set_exception(RuntimeError(answer))

    async def do(self, *request: Any) -> Any:
        """Have something done there."""
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        self._pipe.send((number, request))
        return await self._waiting[number]

    def stop(self) -> None:
        """End it."""
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())
        self._pipe.send(None)
        self._process.join(20)
        if self._process.is_alive():
            self._process.kill()


class RealAdapter:
    """A proxy of one program in a real process."""

    def __init__(self, process: RealProcess, program: int, number: int) -> None:
        self._process, self._which = process, (program, number)

    async def begin(self, setting: Setting) -> "RealAdapter":
        """Start it there, in place of the one before."""
        await self._process.do("begin", *self._which, setting.window, setting.policy)
        return self

    async def ask(self, dialect: str, body: bytes, caller: Any, *, streams: bool = False) -> Call:
        """What goes upstream for a request."""
        request = (dialect, body, caller, streams)
        name, *fields = await self._process.do("ask", *self._which, *request)
        body, session, patches, is_planned, fault = fields
        return Call(body, session, patches, is_planned, fault, handle=name)

    async def answer(self, call: Call, status: int, chunks: Any) -> bool:
        """Take in a response."""
        answer = await self._process.do("answer", call.handle, status, [*chunks])
        again, call.body, call.session, call.patches = answer
        return again

    async def leave(self, call: Call) -> None:
        """Nothing came back."""
        await self._process.do("leave", call.handle)


async def play_for_real(program: Program, processes: list[RealProcess]) -> ProgramResult:
    """Play one program through real processes, all clients at once, as a tenant of its own."""
    setting = setting_of(program)
    tenant = f"tenant-{program.seed}"

    async def begin(number: int) -> RealAdapter:
        process = processes[number % len(processes)]
        return await RealAdapter(process, program.seed, number).begin(setting)

    player = Player(program, begin, tenant=tenant)
    player.setting = _of_several(setting, len(processes))
    result = await player.play_at_once()
    for process in processes:
        take_counts(result, *await process.do("counts", tenant))
    return result


def _of_several(setting: Setting, processes: int) -> Setting:
    return replace(setting, processes=max(setting.processes, processes))


async def run_for_real(
    address: str, processes: int, seeds: Iterable[int], *, at_a_time: int = 4, dialect: str = ""
) -> Counts:
    """Play programs through processes of their own, several at a time."""
    counts = Counts()
    running = [RealProcess(address) for _ in range(processes)]
    waiting = iter(seeds)

    async def work() -> None:
        for seed in waiting:
            program = draw_program(seed, dialect=dialect)
            counts.take(await play_for_real(program, running), at_once=True)

    try:
        for process in running:
            process.listen()
        await asyncio.gather(*(work() for _ in range(at_a_time)))
    finally:
        for process in running:
            process.stop()
    return counts


@contextmanager
def schema_at(server: str) -> Any:
    """The address of a new schema in a database, dropped afterwards."""
    os.environ["FOLDLINE_PG"] = server  # which `serving` reads when it is imported
    from serving import a_schema, address_of  # noqa: PLC0415

    with a_schema() as schema:
        address = address_of(schema, server)
        asyncio.run(_prepare(address))
        yield address


async def _prepare(address: str) -> None:
    store = store_at(address)
    await store.sessions("nobody")
    await store.close()


def main() -> int:
    """Run as the arguments say; 1 where a rule was broken."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--programs", type=int, default=2_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="play this one program only")
    parser.add_argument(
        "--survey", action="store_true", help="go on behind violations, and count them"
    )
    parser.add_argument("--store", default="", help="a PostgreSQL address, for real processes")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--dialect", choices=[*DIALECTS], default="")
    given = parser.parse_args()
    begun, counts = time.monotonic(), Counts()
    if given.seed is not None:
        given.first, given.programs, given.jobs = given.seed, 1, 1
    seeds = range(given.first, given.first + given.programs)
    with ExitStack() as stack:
        if given.store:
            address = stack.enter_context(schema_at(given.store))
            step = len(seeds) if given.survey else BATCH * 4
            for at in range(0, len(seeds), step):
                counts.add(
                    asyncio.run(
                        run_for_real(
                            address,
                            given.processes,
                            seeds[at : at + step],
                            dialect=given.dialect,
                        )
                    )
                )
                if counts.rules and not given.survey:
                    break
        else:
            batches = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
            pool = stack.enter_context(
                ProcessPoolExecutor(
                    given.jobs,
                    max_tasks_per_child=200,
                    mp_context=multiprocessing.get_context("spawn"),
                )
            )
            for one in pool.map(partial(run_batch, dialect=given.dialect), batches):
                counts.add(one)
                if counts.rules and not given.survey:
                    pool.shutdown(wait=True, cancel_futures=True)
                    break
    counts.show(time.monotonic() - begun)
    for rule, several in counts.broken.items():
        program, at_once, violation = several[0]
        if given.store:
            print(f"\n{rule}: seed {program.seed}: {violation.text}")
        else:
            show_violation(program, rule, at_once=at_once)
    return 1 if counts.rules else 0


if __name__ == "__main__":
    sys.exit(main())
