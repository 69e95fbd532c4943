"""Kill -9 a writer of a SQLite file at random points, open the file again, and miss nothing.

    just chaos sqlite            2,000 kills
    just chaos sqlite --short    some 15 seconds

The writer appends single events and batches, pictures, folds and messages with a `once` key, through
the session's own code. It tells what it is about to append and, after the append has returned, that it
was acknowledged. Half of the writers die before a chosen statement of SQLite's, unless the clock comes
first, as it does for the others: some 30 and 70 of a hundred kills. Afterwards
the log must be the acknowledged appends in their order, then the one that was in flight, whole or not at
all; it is dense, its view loads and renders, what is delivered again is there once, and SQLite finds the
file intact. Every file is read again from its beginning at its end.

Two controls must be caught, or the run fails: a writer that acknowledges before COMMIT, and one that
writes a batch row by row. A kill does not test what the disk does without power: nothing here does.
"""

import argparse
import asyncio
import gc
import hashlib
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from foldline.core.budget import limits
from foldline.core.log import Folded, Opened, UserSaid
from foldline.core.parts import Media, Text
from foldline.core.plan import Facts
from foldline.core.policy import STEADY
from foldline.core.spine import Range
from foldline.dialects.openai_chat.dialect import DIALECT as OPENAI
from foldline.errors import Conflict
from foldline.session import planning
from foldline.session.log_handle import Live
from foldline.stores import event_log
from foldline.stores.base import Draft, Name, Row
from foldline.stores.sqlite import SqliteStore
from foldline.testing import model, user

NAME = Name("acme", "one")
FACTS = Facts(limits(4_000, 200), STEADY)
LONGEST = 0.12  # seconds that a writer lives
STATEMENTS = 150  # or how many it runs
PER_FILE = 100
INTACT_EACH = 20


class Broken(Exception):  # noqa: N818 - it is what is looked for
    """The file is not what was acknowledged."""


@dataclass
class Known:
    """What the log must hold, from what the writers said."""

    log: list[str] = field(default_factory=list)
    once: dict[str, int] = field(default_factory=dict)
    sent: dict[str, str] = field(default_factory=dict)
    """The words of each delivery, to deliver it again."""
    checked: int = 0


def digest(row: Row) -> str:
    """A row, short."""
    return hashlib.blake2b(row.kind.encode() + b"\0" + row.body, digest_size=8).hexdigest()


class Telling:
    """A store that says what it is asked to append, and when that was done."""

    def __init__(self, inner: SqliteStore, pipe: int) -> None:
        self.inner, self.pipe, self.count = inner, pipe, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def tell(self, **line: Any) -> None:
        """One line; short enough that a kill cannot cut it."""
        os.write(self.pipe, json.dumps(line).encode() + b"\n")

    async def append(self, name: Name, draft: Draft, *, once: str | None = None, **given: Any):
        """Intent, append, acknowledgement."""
        self.count += 1
        words = draft.rows[0].body.decode() if once else ""
        self.tell(
            trying=self.count, rows=[digest(row) for row in draft.rows], once=once, words=words
        )
        try:
            end = await self.writing(name, draft, once=once, **given)
        except Conflict:
            self.tell(refused=self.count)
            raise
        self.tell(done=self.count, end=end)
        return end

    async def writing(self, name: Name, draft: Draft, **given: Any) -> int:
        """The append itself."""
        return await self.inner.append(name, draft, **given)


class Early(Telling):
    """The control that loses: acknowledged before COMMIT."""

    async def writing(self, name: Name, draft: Draft, **given: Any) -> int:
        """Say that it is done when it is about to be."""
        head = (await self.inner.head(name)).seq
        before = self.inner.db.connection.exec_trace

        def trace(cursor: Any, sql: str, bindings: Any) -> bool:
            if sql == "commit" and given["once"] is None:
                self.tell(done=self.count, end=head + len(draft.rows))
            return before(cursor, sql, bindings) if before else True

        self.inner.db.connection.exec_trace = trace
        try:
            return await self.inner.append(name, draft, **given)
        finally:
            self.inner.db.connection.exec_trace = before


class RowByRow(Telling):
    """The control that tears: a batch in several transactions."""

    async def writing(self, name: Name, draft: Draft, **given: Any) -> int:
        """The first row under the conditions, the others behind it."""
        end = await self.inner.append(name, Draft(draft.rows[:1], draft.blobs), **given)
        for row in draft.rows[1:]:
            end = await self.inner.append(name, Draft([row], draft.blobs))
        return end


async def write(store: Telling, known: Known, random: Random) -> None:
    """Everything that a session does, until somebody ends it."""
    for key in list(known.sent)[-2:]:  # what came last is delivered again
        await event_log.append_events(store, NAME, [user(known.sent[key])], once=key)
    live = await Live.open(store, NAME, facts=FACTS)
    if live.view.head < 0:
        await live.append([Opened("m")])
    while True:
        try:
            await one_step(live, store, random)
        except Conflict:
            live = await Live.open(store, NAME, facts=FACTS)


async def one_step(live: Live, store: Telling, random: Random) -> None:
    """Append something."""
    words = f"{random.random()} " + "look at this module " * random.randint(1, 20)
    match random.choice(("one", "one", "batch", "once", "picture", "ask", "ask")):
        case "one":
            await live.receive_events(user(words))
        case "batch":
            some = [user(f"{n} {words}") for n in range(random.randint(2, 6))]
            await live.append([*some, model("I looked.")])
        case "once":
            await event_log.append_events(store, NAME, [user(words)], once=f"{random.random()}")
        case "picture":
            picture = Media("image", base64=f"{random.random()}" * 2_000)
            await live.append([UserSaid((Text(words), picture)), model("A cat.")])
        case _ if not live.view.items:
            await live.receive_events(user(words))  # a request that says nothing is refused
        case _:
            await planning.plan_and_record_request(live, {}, dialect=OPENAI)
            await live.receive_events(model(f"answer {words}"))


def writer(path: str, known: Known, *, kind: type[Telling], seed: int, pipe: int) -> None:
    """The child: writes until it is killed, by itself before a statement if the seed says so."""
    random = Random(seed)
    inner = SqliteStore(path)
    if random.random() < 0.5:
        left = [random.randint(1, STATEMENTS)]

        def trace(_cursor: Any, _sql: str, _bindings: Any) -> bool:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return True

        inner.db.connection.exec_trace = trace
    asyncio.run(write(kind(inner, pipe), known, random))


def killed(path: str, known: Known, kind: type[Telling], seed: int) -> tuple[list[Any], bool]:
    """Start a writer and kill it: what it said, and whether it was the clock."""
    heard, said = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(heard)
        try:
            writer(path, known, kind=kind, seed=seed, pipe=said)
        except BaseException as fault:  # noqa: BLE001 - any end but a kill is a finding
            os.write(said, json.dumps({"fault": repr(fault)[:500]}).encode() + b"\n")
        os._exit(1)
    os.close(said)
    end = time.monotonic() + Random(seed + 1).uniform(0.002, LONGEST)
    if seed % 8 == 0:
        end += 2.0  # let the statements have their turn on a slow machine
    text, clock = b"", False
    while True:
        ready, _, _ = select.select([heard], [], [], max(0.0, end - time.monotonic()))
        if ready:
            more = os.read(heard, 1 << 16)
            if not more:
                break
            text += more
        if not clock and time.monotonic() >= end:
            os.kill(child, signal.SIGKILL)
            clock, end = True, time.monotonic() + 60
    os.close(heard)
    os.waitpid(child, 0)
    return [json.loads(line) for line in text.splitlines()], clock


def believe(known: Known, lines: list[Any], seen: Counter[str]) -> dict[str, Any] | None:
    """Take in what a writer said; what was in flight when it died."""
    flying: dict[str, Any] | None = None
    for line in lines:
        if "fault" in line:
            raise Broken(f"the writer failed: {line['fault']}")
        if "trying" in line:
            flying = line
            if line["once"]:
                known.sent[line["once"]] = json.loads(line["words"])["parts"][0]["text"]
        elif "refused" in line:
            flying = None
        elif flying is not None and "done" in line:
            seen["appends"] += 1
            take(known, flying, line["end"], seen)
            flying = None
    return flying


def take(known: Known, trying: dict[str, Any], end: int, seen: Counter[str]) -> None:
    """An append that was acknowledged."""
    key = trying["once"]
    if key in known.once:
        seen["delivered again"] += 1
        if end != known.once[key]:
            raise Broken(f"duplicated: {key} was at {known.once[key]} and is at {end}")
        return
    known.log += trying["rows"]
    if end != len(known.log) - 1:
        raise Broken(f"acknowledged at {end}, must be at {len(known.log) - 1}")
    if key:
        known.once[key] = end


async def check(path: str, known: Known, flying: dict[str, Any] | None, seen: Counter[str]) -> None:
    """Open the file again and compare."""
    store = SqliteStore(path)
    store._in_memory = True  # no thread: nothing of this process may be running when it forks
    try:
        head = (await store.head(NAME)).seq
        rows = await store.read(NAME, [(known.checked, head)])
        if [row.seq for row in rows] != list(range(known.checked, head + 1)):
            raise Broken(f"not dense between {known.checked} and {head}")
        found, told = [digest(row) for row in rows], known.log[known.checked :]
        more = found[len(told) :]
        if found[: len(told)] != told:
            raise Broken(how(found, told))
        if more:
            if flying is None or more != flying["rows"] or flying["once"] in known.once:
                raise Broken(
                    f"torn, or twice: {len(more)} rows that were not in flight, or not all"
                )
            seen["in flight, there"] += 1
            take(known, flying, head, seen)
        elif flying is not None:
            seen["in flight, not there"] += 1
        events = await event_log.read_events(store, NAME, Range(known.checked, head))
        seen["events"] += len(events)
        seen["folds"] += sum(isinstance(event, Folded) for _, event in events)
        known.checked = len(known.log)
        if head >= 0:
            live = await Live.open(store, NAME, facts=FACTS)
            OPENAI.encode_request((await planning.plan_next_request(live, FACTS)).request, {})
        if seen["kills"] % INTACT_EACH == 0:
            seen["intact"] += 1
            if (told := store.db.sql("pragma integrity_check")) != [("ok",)]:
                raise Broken(f"integrity_check: {told[:3]}")
    finally:
        await store.close()


def how(found: list[str], told: list[str]) -> str:
    """In which way the log is not what was acknowledged."""
    if len(found) < len(told) and found == told[: len(found)]:
        return f"lost: {len(told) - len(found)} acknowledged events"
    if set(told) - set(found):
        return f"lost: {len(set(told) - set(found))} acknowledged events, others are there"
    return "duplicated" if len(set(found)) < len(found) else "reordered"


def campaign(kills: int, seen: Counter[str], *, kind: type[Telling], seed: int) -> None:
    """So many kills, over several files; raises `Broken` with the file kept."""
    done = 0
    while done < kills:
        folder = Path(tempfile.mkdtemp(prefix="foldline-chaos-"))
        path, known = str(folder / "talks.db"), Known()
        for _ in range(min(PER_FILE, kills - done)):
            done += 1
            seen["kills"] += 1
            try:
                lines, clock = killed(path, known, kind, seed + done)
                seen["by the clock"] += clock
                asyncio.run(check(path, known, believe(known, lines, seen), seen))
            except Broken as fault:
                if kind is not Telling:
                    shutil.rmtree(folder)
                raise Broken(f"kill {done}, seed {seed + done}, {path}: {fault}") from fault
        known.checked = 0  # and once more from the beginning
        asyncio.run(check(path, known, None, Counter(kills=INTACT_EACH)))
        shutil.rmtree(folder)


def caught(name: str, kind: type[Telling], *, seed: int, expected: str) -> bool:
    """Whether a control is found out, and for what it is."""
    seen: Counter[str] = Counter()
    try:
        campaign(200, seen, kind=kind, seed=seed)
    except Broken as fault:
        print(f"control, {name}: caught at kill {seen['kills']}: {str(fault).split(': ', 1)[1]}")
        return expected in str(fault)
    print(f"control, {name}: NOT caught in {seen['kills']} kills")
    return False


def main() -> int:
    """Print the figures; 1 where something was lost, or a control was not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--short", action="store_true", help="80 kills")
    args = parser.parse_args()
    kills = 80 if args.short else args.kills
    gc.freeze()
    controls: tuple[tuple[str, type[Telling], str], ...] = (
        ("acknowledged before COMMIT", Early, "lost"),
        ("a batch row by row", RowByRow, "torn"),
    )
    good = [caught(name, kind, seed=args.seed, expected=how) for name, kind, how in controls]
    seen: Counter[str] = Counter()
    start, fault = time.monotonic(), ""
    try:
        campaign(kills, seen, kind=Telling, seed=args.seed)
    except Broken as broken:
        fault = str(broken)
    took = time.monotonic() - start
    names = ("by the clock", "appends", "events", "folds", "delivered again", "in flight, there",
             "in flight, not there", "intact")  # fmt: skip
    print(f"{seen['kills']:,} kills in {took:.0f} s, seed {args.seed}: " + ", ".join(f"{name} {seen[name]:,}" for name in names))  # fmt: skip
    print(fault or "0 acknowledged events lost, duplicated, reordered or torn")
    return 0 if all(good) and not fault and seen["folds"] else 1


if __name__ == "__main__":
    sys.exit(main())
