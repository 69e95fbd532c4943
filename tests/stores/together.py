"""Eight processes that work on one store at once: the child of `test_together.py`.

    python together.py ADDRESS WORK OPTIONS

Works on what `WORK` names until that is done, in as many processes as the options say, and prints what
each of them tells, as JSON. One interpreter is started, which forks: eight imports would take longer than
the work. An error that the work does not expect ends its process, and is shown.
"""

import asyncio
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "properties"))
from mutants import broken

from foldline.core.budget import limits
from foldline.core.log import UserSaid
from foldline.core.parts import Media, Text
from foldline.core.plan import Facts
from foldline.core.policy import STEADY
from foldline.dialects.openai_chat.dialect import DIALECT as OPENAI
from foldline.errors import BadInput, BrokenView, Conflict, Erased, StoreFailed
from foldline.session import planning
from foldline.session.log_handle import Live
from foldline.stores import event_log
from foldline.stores.base import Draft, Name, Row, Store
from foldline.stores.open_store import store_at
from foldline.testing import model, user

TENANT = "acme"
SHARED = Name(TENANT, "shared")
SMALL = Facts(limits(2_000, 100), STEADY)
LARGER = Facts(limits(6_000, 100), STEADY)
LEASE = 0.12  # seconds
GROUP = 3  # rows that are appended together
CANARY = "canaryword"


class Over:
    """A store with one operation changed."""

    def __init__(self, store: Store) -> None:
        self.inner = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Fenced(Over):
    """Appends under a lease's fence, and notes which places they took."""

    def __init__(self, store: Store, fence: int) -> None:
        super().__init__(store)
        self.fence, self.wrote = fence, list[int]()

    async def append(self, name: Name, draft: Draft, **given: Any) -> int:
        """Whatever fence is given."""
        end = await self.inner.append(name, draft, **given | {"fence": self.fence})
        self.wrote += range(end - len(draft.rows) + 1, end + 1)
        return end


class Forgiving(Over):
    """The control of a store that fails in silence: it says of every append that it was done."""

    forgiven = 0

    async def append(self, name: Name, draft: Draft, **given: Any) -> int:
        """As if nothing had happened."""
        try:
            return await self.inner.append(name, draft, **given)
        except StoreFailed:
            self.forgiven += 1
            return (await self.inner.head(name)).seq + len(draft.rows)


#


async def folding(store: Store, who: str, random: Random, *, holdings: int) -> dict[str, Any]:
    """Take the session, fold, and give it back or stay too long."""
    leases: list[dict[str, Any]] = []
    busy = 0
    for _ in range(holdings):
        while (lease := await store.lease(SHARED, who, seconds=LEASE)) is None:
            busy += 1
            await asyncio.sleep(random.uniform(0.002, 0.02))
        held = {"who": who, "fence": lease.fence, "taken": time.time(), "until": lease.until}
        leases.append(held)
        fenced = Fenced(store, lease.fence)
        try:
            said = [user(f"<{who}> " + "pasted text " * 90), model("answer text " * 90)]
            await event_log.append_events(fenced, SHARED, said)
            live = await Live.open(fenced, SHARED, facts=SMALL)
            await planning.plan_and_record_request(live, {}, dialect=OPENAI)
            if (
                random.random() < 0.5
            ):  # another takes it, and what is still to be written comes late
                await asyncio.sleep(LEASE + random.uniform(0.03, 0.1))
                await event_log.append_events(fenced, SHARED, [user(f"<{who}> late")])
            else:
                again = await store.lease(SHARED, who, seconds=LEASE)
                if again is not None and again.fence == lease.fence:
                    held["until"] = again.until
            held["released"] = time.time()
            await store.release(lease)
        except Conflict as conflict:
            held["lost"] = [conflict.of, conflict.found]
        held["wrote"] = fenced.wrote
    return {"leases": leases, "busy": busy}


#


async def failing(
    store: Store, who: str, _random: Random, *, rounds: int, forgiving: bool = False
) -> dict[str, Any]:
    """Write until the store has failed so many times, and go on with the same view."""
    given = Forgiving(store) if forgiving else store
    name = Name(TENANT, who)
    live = await Live.open(given, name, facts=SMALL)
    told: dict[str, Any] = {"done": [], "failed": [], "shown": [], "conflicts": 0}
    sql = getattr(
        getattr(store, "db", None), "sql", None
    )  # SQLite's: PostgreSQL's parent ends connections
    at = after = 0
    while after < 5:
        seen = len(told["failed"]) + getattr(given, "forgiven", 0)
        if sql and seen < rounds and at % 5 == 4:
            ((pages,),) = sql("pragma page_count")
            sql(f"pragma max_page_count = {pages}")  # no more room than now
        elif sql and seen >= rounds:
            sql("pragma max_page_count = 1000000")
        after += seen >= rounds
        before = live.view.head
        try:
            await live.receive_events(user(f"<{at}> " + "something to keep " * 100))
            told["done"].append(at)
        except StoreFailed:
            told["failed"].append(at)
            told["shown"] += [at] * (live.view.head != before)
        except Conflict:
            told["conflicts"] += 1
            live = await Live.open(given, name, facts=SMALL)
        at += 1
    return told | {"head": live.view.head}


#


def group(who: str, at: int) -> Draft:
    """Rows that are there together or not at all."""
    said = [user(f"<{who}:{at}:{row}> " + "x" * 200) for row in range(GROUP)]
    return event_log.build_draft(said)


def is_whole(rows: Sequence[Row]) -> bool:
    """Whether a session's rows are dense, and their groups whole."""
    marks = [row.body.split(b"<")[1].split(b">")[0].rpartition(b":") for row in rows]
    return [row.seq for row in rows] == list(range(len(rows))) and all(
        len({mark[0] for mark in marks[at : at + GROUP]}) == 1
        and [mark[2] for mark in marks[at : at + GROUP]] == [b"0", b"1", b"2"]
        for at in range(0, len(rows), GROUP)
    )


async def appending(
    store: Store, who: str, random: Random, *, stop: str, sessions: Sequence[str]
) -> dict[str, Any]:
    """Append to any session and read any, until told to stop; a new one for each that is gone."""
    names = list(sessions)
    told = {"events": 0, "size": 0, "reads": 0, "halves": 0, "erased": 0}
    at = 0
    while not os.path.exists(stop):  # noqa: ASYNC240, PTH110 - it is asked 1,000 times a second
        at += 1
        session = random.choice(names)
        name = Name(TENANT, session)
        if at % 2:
            draft = group(who, at)
            try:
                await store.append(name, draft)
            except Erased:
                names.remove(session)
                names.append(f"{who}-{at}")
                told["erased"] += 1
                continue
            told["events"] += GROUP
            told["size"] += sum(len(row.body) for row in draft.rows)
        else:
            told["reads"] += 1
            told["halves"] += not is_whole(await store.read(name, [(0, 100_000)]))
    return told


#


async def writing(store: Store, who: str, random: Random, *, seconds: float = 30) -> dict[str, Any]:
    """All that a session can write, until it is erased; then each of it once more."""
    told: dict[str, Any] = {"events": 0, "size": 0, "refused": 0, "let in": []}

    async def append(name: Name, draft: Draft, **given: Any) -> int:
        end = await store.append(name, draft, **given)
        told["events"] += len(draft.rows)
        told["size"] += sum(len(row.body) for row in draft.rows)
        return end

    counted = Over(store)
    counted.append = append  # type: ignore[attr-defined]
    words = f"{CANARY} of {who}"
    picture = Media("image", base64=f"{CANARY}{who}" * 2_500)

    async def fold() -> None:
        try:
            live = await Live.open(counted, SHARED, facts=LARGER)
            await planning.plan_and_record_request(live, {}, dialect=OPENAI)
        except (Conflict, BrokenView):  # a fold that reads what is just erased writes nothing
            return
        except BadInput:  # nothing was said yet, or nothing is left
            await event_log.append_events(counted, SHARED, [user(words)])

    works = {
        "append": lambda: event_log.append_events(counted, SHARED, [user(words)]),
        "turn": lambda: event_log.append_events(
            counted, SHARED, [user(words), model(words + " more" * 80)]
        ),
        "picture": lambda: event_log.append_events(
            counted, SHARED, [UserSaid((Text(words), picture))]
        ),
        "put": lambda: store.put(SHARED, "prepared", who, words.encode()),
        "lease": lambda: store.lease(SHARED, CANARY + who, seconds=0.01),
        "once": lambda: event_log.append_events(
            counted, SHARED, [user(words)], once=f"{CANARY} {who} {told['events']}"
        ),
        "fold": fold,
        "search": lambda: store.search(TENANT, CANARY),
    }
    try:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            await works[random.choice(list(works))]()
    except Erased:
        pass
    for what, work in works.items():
        if what in ("search", "fold"):
            continue
        try:
            await work()
        except Erased:
            told["refused"] += 1
        else:
            told["let in"].append(what)
    return told


WORKS = {"folding": folding, "failing": failing, "appending": appending, "writing": writing}


def work(address: str, what: str, who: int, options: dict[str, Any]) -> Any:
    """One process's part."""

    async def doing() -> Any:
        store = store_at(address)
        try:
            return await WORKS[what](store, f"p{who}", Random(who), **options)
        finally:
            await store.close()

    return asyncio.run(doing())


def main() -> int:
    """Fork, wait, tell."""
    address, what, given = sys.argv[1:4]
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # it tells of what is meant to happen
    options = json.loads(given)
    started: list[tuple[int, int]] = []
    with ExitStack() as stack:
        for mutant in options.pop("broken", []):
            stack.enter_context(broken(*mutant))
        for who in range(options.pop("processes")):
            told, telling = os.pipe()
            number = os.fork()
            if number:
                os.close(telling)
                started.append((number, told))
                continue
            try:
                body = json.dumps(work(address, what, who, options)).encode()
                with os.fdopen(telling, "wb") as pipe:
                    pipe.write(body)
                os._exit(0)
            except BaseException:  # noqa: BLE001 - the child ends here, whatever it was
                traceback.print_exc()
                os._exit(1)
    bodies = [os.fdopen(told, "rb").read() for _, told in started]
    codes = [os.waitpid(number, 0)[1] for number, _ in started]
    print(json.dumps([json.loads(body or b"null") for body in bodies]))
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
