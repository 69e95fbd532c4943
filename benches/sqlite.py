"""The SQLite store: what opening, a turn and an append cost, however long the log is.

    just peers && just bench sqlite

a. Open a file and plan (R-68): 100,000 events beside 1,000, with the same live part; time and memory.
b. A turn, and opening, counted (law 6): statements, rows read and steps of SQLite's machine, at 10, 10,000
   and 1,000,000 events. Counts do not depend on what else the machine does.
c. Appends beside bare apsw: the same bytes and pragmas, one transaction each, on the same disk, one by
   one in turn. Ours never stands in the way of an event loop, so bare apsw is held against it awaited
   in a thread, too. Where its caller may stand still it saves the switch there and back, some 80 µs: a
   tenth beside a flush of 0.8 ms, half beside one of 0.1 ms. That is held from 0.5 ms on.
d. Load a session of 10,000 messages and append a turn, beside openai-agents' and google-adk's own
   SQLite sessions on the same history. They load all of it; ours was folded as it grew.

Medians, interleaved. Exits 1 where a target is missed. `--short`: 100,000 events instead of a million,
and fewer rounds. The files are made beside this tree, not in /tmp, which may be memory.
"""

import argparse
import asyncio
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw

from core import PYTHON, READS_FREE, event_of, further, history, lived, small
from foldline.core.budget import limits
from foldline.core.log import Event, Opened
from foldline.core.plan import Facts, Ready, plan
from foldline.core.policy import STEADY
from foldline.core.spine import Spine
from foldline.core.view import load
from foldline.dialects.openai_chat.dialect import DIALECT as OPENAI
from foldline.session import planning
from foldline.session.log_handle import Live
from foldline.stores import event_log
from foldline.stores.base import Name
from foldline.stores.sqlite import SqliteStore
from foldline.testing import model, user

NAME = Name("acme", "one")
FACTS = Facts(
    limits(200_000, None), STEADY, READS_FREE, "warm"
)  # a fold is looked for, none is due
PREFIX = Facts(limits(16_000, None), STEADY)
OPEN_MS, OPEN_MB, OPEN_RATIO = 50.0, 50.0, 1.5
STEPS_RATIO, APPEND_RATIO, FLUSH_US = 1.1, 0.8, 500
KEEPERS = Path(__file__).with_name("keepers.py")
TABLE = """
    pragma journal_mode = wal; pragma synchronous = full; pragma secure_delete = on;
    create table events (
        sid integer not null, seq integer not null, kind text not null, edit integer not null,
        time real not null, body blob not null, primary key (sid, seq)
    ) without rowid, strict;
"""


class Growing:
    """A log of some length that is folded now and then, written in bulk; its end is always the same."""

    def __init__(self, path: str) -> None:
        self.store = SqliteStore(path)
        self.view = load(Spine(), {}, head=-1)
        self.words: dict[int, Event] = {}
        self.batch: list[Event] = []
        with self.store.db.open_transaction():
            self.sid = self.store.db.create_session(NAME, time.time()).sid

    def put(self, event: Event) -> None:
        """Into the view, and into the file with many others."""
        self.view.append(self.view.head + 1, event)
        self.batch.append(event)
        if len(self.batch) == 10_000:
            self.flush()

    def flush(self) -> None:
        """What an append does, for many events."""
        first = self.view.head + 1 - len(self.batch)
        drafted = event_log.build_draft(self.batch).rows
        rows = [
            (self.sid, seq, row.kind, row.edit, time.time(), row.body)
            for seq, row in enumerate(drafted, first)
        ]
        with self.store.db.open_transaction():
            self.store.db.run_many("insert into events values (?, ?, ?, ?, ?, ?)", rows)
            self.store.db.sql(
                "update sessions set head = ?, size = size + ? where sid = ?",
                (self.view.head, sum(len(row.body) for row in drafted), self.sid),
            )
        self.batch = []

    def grow(self, length: int, *, live: int = 201) -> None:
        """Opened, small events and folds, then what is live."""
        tail = [event_of(message) for message in history(live)] if length >= 1_000 else []
        self.put(Opened("bench/model"))
        while self.view.head + 1 < length - len(tail):
            self.put(small(self.view.head + 1))
            if self.view.head % 600 == 599:
                self.fold(PREFIX)
        if tail:
            self.put(model("Done."))
            self.fold(replace(PREFIX, now=True))
        for event in tail:
            self.put(event)
        self.flush()

    def fold(self, facts: Facts) -> None:
        """Plan, and hold of what is folded only the user's words that the handoffs quote."""
        made = plan(self.view, replace(facts, fetched=self.words))
        assert isinstance(made, Ready), made
        known = {**self.words, **self.view.held}
        for event in made.events:
            self.put(event)
        quoted = {seq for one in self.view.list_folds().values() for seq in one.verbatim}
        self.words = {seq: known[seq] for seq in quoted}


async def grown(folder: Path, length: int) -> str:
    """A file with a log of some length."""
    path = str(folder / f"{length}.db")
    start = time.perf_counter()
    growing = Growing(path)
    growing.grow(length)
    folds = len(growing.view.list_folds())
    await growing.store.close()
    size = os.stat(path).st_size / 1e6  # noqa: PTH116
    print(
        f"  {growing.view.head + 1:9,} events, {len(growing.view.items)} items live in {growing.view.tokens:,}"
        f" tokens, {folds} folds stand; {size:,.1f} MB, {time.perf_counter() - start:.1f} s"
    )
    return path


async def opened(path: str) -> Live:
    """Open a file and plan."""
    live = await Live.open(SqliteStore(path), NAME, facts=FACTS)
    made = plan(live.view, FACTS)
    assert isinstance(made, Ready), made
    return live


async def seconds(work: Callable[[], Awaitable[Any]]) -> tuple[float, Any]:
    """How long it took, after the garbage of the others is gone; and what came of it."""
    gc.collect()
    start = time.perf_counter()
    made = await work()
    return time.perf_counter() - start, made


async def opening(short_log: str, long_log: str, rounds: int) -> bool:
    """Part a."""
    taken: dict[str, list[float]] = {short_log: [], long_log: []}
    for number in range(rounds + 1):  # the first one warms up
        for path, times in taken.items():
            took, live = await seconds(lambda path=path: opened(path))
            await live.store.close()
            times.extend([took * 1e3] if number else [])
    few, many = (statistics.median(times) for times in taken.values())
    memory = [remembering(path) for path in taken]
    print(f"\na. open + plan, {rounds} rounds: {few:.1f} ms at 1,000, {many:.1f} ms at 100,000 (below {OPEN_MS:.0f}); "
          f"ratio {many / few:.3f} (at most {OPEN_RATIO}); memory +{memory[0]:.1f} and +{memory[1]:.1f} MB (below {OPEN_MB:.0f})")  # fmt: skip
    return many < OPEN_MS and many / few <= OPEN_RATIO and memory[1] < OPEN_MB


def remembering(path: str) -> float:
    """The same in a process of its own: MB at its peak."""
    command = [sys.executable, __file__, "--memory", path]
    made = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return float(made.stdout)


async def remembered(path: str) -> None:
    """What opening a log adds, at its peak, to a process that has opened an empty one before."""
    await (await opened(":memory:")).store.close()
    gc.collect()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # noqa: ASYNC240 - the peak from here on
    await opened(path)
    print(resident("VmHWM") - before)


def resident(what: str) -> float:
    """A line of the process's own account, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what))


class Counted:
    """What SQLite was asked on one connection."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.seen: Counter[str] = Counter()
        connection.exec_trace = self.statement
        connection.row_trace = self.row
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self.profile)

    def statement(self, _cursor: Any, _sql: str, _bindings: Any) -> bool:
        """One more."""
        self.seen["statements"] += 1
        return True

    def row(self, _cursor: Any, row: Any) -> Any:
        """One more."""
        self.seen["rows"] += 1
        return row

    def profile(self, event: dict[str, Any]) -> None:
        """How far the machine went."""
        self.seen["steps"] += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    def taken(self) -> Counter[str]:
        """What was counted, and from nothing again."""
        seen, self.seen = self.seen, Counter()
        return seen


async def counted(path: str) -> tuple[Counter[str], Counter[str]]:
    """Part b for one file: what opening asks, and what a turn does."""
    store = SqliteStore(path)
    counts = Counted(store.db.connection)
    live = await Live.open(store, NAME, facts=FACTS)
    opening = counts.taken()
    await live.receive_events(user("Go on with the next."))
    await planning.plan_and_record_request(live, {}, dialect=OPENAI)
    await live.receive_events(model("Done."))
    turn = counts.taken()
    await store.close()
    return opening, turn


async def counting(paths: dict[int, str]) -> bool:
    """Part b."""
    print("\nb. counted: a turn (a message, a request, an answer), and opening")
    found = {length: await counted(path) for length, path in paths.items()}
    for length, (opening, turn) in found.items():
        line = "  {:9,} events: turn {statements} statements, {rows} rows, {steps} steps"
        print(line.format(length, **turn), "| open {statements}, {rows}, {steps}".format(**opening))
    turns = [turn for _, turn in found.values()]
    same = all(
        (one["statements"], one["rows"]) == (turns[0]["statements"], turns[0]["rows"])
        for one in turns
    )
    (_, middle), (_, last) = [(turn, opening) for opening, turn in list(found.values())[-2:]]
    flat = last["rows"] <= middle["rows"] * STEPS_RATIO
    steps = max(one["steps"] for one in turns) / min(one["steps"] for one in turns)
    more = last["steps"] / middle["steps"]
    print(f"  a turn's statements and rows are {'equal' if same else 'NOT equal'}; steps {steps:.3f}, "
          f"and of opening {more:.3f} (at most {STEPS_RATIO})")  # fmt: skip
    return same and flat and max(steps, more) <= STEPS_RATIO


async def appending(folder: Path, rounds: int) -> bool:
    """Part c."""
    said = user("checked the parser, nothing to report " * 24)
    body = event_log.build_draft([said]).rows[0].body
    store, pool = SqliteStore(str(folder / "ours.db")), ThreadPoolExecutor(1)
    bare, awaited = (apsw.Connection(str(folder / f"{name}.db")) for name in ("bare", "awaited"))
    for one in (bare, awaited):
        one.execute(TABLE).fetchall()
    taken: list[tuple[float, float, float]] = []
    head = -1

    def insert(into: apsw.Connection, seq: int) -> None:
        row = (1, seq, "user_said", False, time.time(), body)
        into.execute("insert into events values (?, ?, ?, ?, ?, ?)", row).fetchall()

    for seq in range(rounds):
        times = [time.perf_counter()]
        head = await event_log.append_events(store, NAME, [said], after=head)
        times.append(time.perf_counter())
        insert(bare, seq)
        times.append(time.perf_counter())
        await asyncio.get_running_loop().run_in_executor(pool, insert, awaited, seq)
        times.append(time.perf_counter())
        taken.append((times[1] - times[0], times[2] - times[1], times[3] - times[2]))
    await store.close()
    bare.close()
    awaited.close()
    ours, alone, beside = (statistics.median(column) * 1e6 for column in zip(*taken, strict=True))
    print(f"\nc. appends of {len(body)} bytes, {rounds:,} each, one by one in turn: {1e6 / ours:,.0f}/s ({ours:.0f} µs); "
          f"bare apsw {apsw.apsw_version()}\n"
          f"   awaited, as in our event loop    {1e6 / beside:7,.0f}/s ({beside:.0f} µs): {beside / ours:.3f} (at least {APPEND_RATIO})\n"
          f"   where its caller stands still    {1e6 / alone:7,.0f}/s ({alone:.0f} µs): {alone / ours:.3f} "
          f"(the same, where a flush takes {FLUSH_US} µs)")  # fmt: skip
    return min(beside, alone if alone >= FLUSH_US else beside) / ours >= APPEND_RATIO


class Others:
    """The peers' process, asked one thing at a time."""

    def __init__(self, given: dict[str, Any], *, script: Path = KEEPERS) -> None:
        self.process = subprocess.Popen(  # noqa: S603 - our own script
            [str(PYTHON), str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        here = self.answer(json.dumps(given))
        self.python, self.notes = here["python"], here["peers"]

    def answer(self, line: str) -> dict[str, Any]:
        """Ask, and wait."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


async def beside(folder: Path, count: int, rounds: int) -> bool:
    """Part d."""
    messages, turns = history(count), further(rounds + 1)
    talk = lived(messages)
    path = str(folder / "lived.db")
    store = SqliteStore(path)
    await event_log.append_events(store, NAME, talk.events, after=-1)
    await store.close()
    print(f"\nd. load {count:,} messages and append a turn, {rounds} rounds, median ms "
          f"(ours: {len(talk.events):,} events, {len(talk.folds())} folds)")  # fmt: skip
    there = PYTHON.exists()
    others = Others({"folder": str(folder), "history": messages, "turns": turns}) if there else None
    names = [n for n, note in others.notes.items() if "not here" not in note] if others else []
    taken: dict[str, list[tuple[float, float, int]]] = {name: [] for name in ("ours", *names)}
    for number in range(rounds + 1):
        new = [event_of(message) for message in turns[number]]
        load_took, live = await seconds(lambda: Live.open(SqliteStore(path), NAME, facts=FACTS))
        append_took, _ = await seconds(lambda live=live, new=new: live.append(new))
        await live.store.close()
        taken["ours"].append((load_took, append_took, len(live.view.items)))
        for name in names:
            found = others.answer(name) if others else {}
            taken[name].append((found["load"], found["append"], found["items"]))
    if others is None:
        print("  no peers: .rig/peers is not there, `just peers` makes it")
    else:
        others.process.communicate()
    medians = {
        name: tuple(statistics.median(column) for column in zip(*rows[1:], strict=True))
        for name, rows in taken.items()
    }
    ahead = True
    for name, (loaded, appended, items) in medians.items():
        times = (loaded + appended) / sum(medians["ours"][:2])
        note = f"{times:.1f} x ours; {others.notes[name]}, Python {others.python}" if others and name in names else ""  # fmt: skip
        print(
            f"  {name:30} load {loaded * 1e3:8.2f}  append {appended * 1e3:6.2f}  {items:,.0f} items  {note}"
        )
        ahead &= name == "ours" or times > 1
    for name, note in others.notes.items() if others else ():
        if name not in names:
            print(f"  {name:30} {note}")
    return ahead


async def all_parts(folder: Path, *, short: bool) -> dict[str, bool]:
    """Every part, and whether it holds."""
    sizes = (10, 1_000, 10_000, 100_000, *([] if short else [1_000_000]))
    paths = {size: await grown(folder, size) for size in sizes}
    rounds = 20 if short else 60
    held = {"a": await opening(paths[1_000], paths[100_000], rounds)}
    del paths[1_000]
    if not short:
        del paths[100_000]
    held["b"] = await counting(paths)
    held["c"] = await appending(folder, 500 if short else 4_000)
    held["d"] = await beside(folder, 2_000 if short else 10_000, 3 if short else 15)
    return held


def main() -> int:
    """Print the figures; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="100,000 events, fewer rounds")
    parser.add_argument("--memory", metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory:
        asyncio.run(remembered(args.memory))
        return 0
    root = KEEPERS.parents[1] / ".rig"
    root.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=root, prefix="bench-"))
    try:
        held = asyncio.run(all_parts(folder, short=args.short))
    finally:
        shutil.rmtree(folder)
    missed = [name for name, good in held.items() if not good]
    print(f"\nmissed: {', '.join(missed)}" if missed else "\nall targets held")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
