"""Several processes on one store, what comes in during a fold, and what ten thousand turns weigh."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from folding import SETTINGS, telling
from mutants import broken
from serving import a_schema, address_of, connected

from foldline.core import log
from foldline.core.budget import limits
from foldline.core.log import Folded
from foldline.core.plan import Facts
from foldline.core.policy import STEADY
from foldline.core.spine import Range
from foldline.dialects.openai_chat.dialect import DIALECT as OPENAI
from foldline.errors import Conflict, FoldlineError
from foldline.session import planning
from foldline.session.fold_worker import fold_session
from foldline.session.log_handle import Live
from foldline.stores import event_log
from foldline.stores.base import Name
from foldline.stores.open_store import store_at
from foldline.stores.sqlite import SqliteStore
from foldline.testing import Planned, model, user

SHARED = Name("acme", "shared")
WRITER = Path(__file__).with_name("writing.py")
WRITERS, APPENDS, FOLDS = 8, 200, 20
SEEN = (AssertionError, FoldlineError)
DEEP = os.environ.get("FOLDLINE_LAWS") == "deep"
SMALL = Facts(limits(2_000, 100), STEADY)
OPENED = log.Opened("scripted", SETTINGS)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request, tmp_path):
    if request.param == "sqlite":
        yield str(tmp_path / "talks.db")
        return
    with a_schema() as schema:
        yield address_of(schema)


@pytest.mark.real
def test_eight_processes_write_one_session(address):
    """R-62, R-65: all once, dense, no error but a conflict, and the session goes on."""
    command = [sys.executable, str(WRITER), address]
    started = [
        subprocess.Popen(
            [*command, f"p{who}", str(APPENDS)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for who in range(WRITERS)
    ]
    ended = [(*process.communicate(timeout=300), process.returncode) for process in started]
    assert [(err.decode(), code) for _, err, code in ended] == [("", 0)] * WRITERS
    told = Counter()
    for out, _, _ in ended:
        told.update(json.loads(out))
    asyncio.run(_all_is_there(address, told))


async def _all_is_there(address, told):
    store = store_at(address)
    head = (await store.head(SHARED)).seq
    found = await event_log.read_events(store, SHARED, Range(0, head))
    assert [seq for seq, _ in found] == list(range(head + 1))
    written = [event for _, event in found if isinstance(event, log.UserSaid)]
    marks = [re.match("<(p[0-9]):([0-9]+)>", event.parts[0].text).groups() for event in written]
    for who in range(WRITERS):
        assert [int(at) for by, at in marks if by == f"p{who}"] == list(range(APPENDS))
    folds = sum(isinstance(event, Folded) for _, event in found)
    print(f"\n{WRITERS} processes, {head + 1} events, {folds} folds, {told['conflicts']} conflicts")
    assert folds == told["folds"] >= FOLDS
    assert told["conflicts"] > 0  # the control: they did meet
    live = await Live.open(store, SHARED, facts=Facts(limits(8_000, 400), STEADY))
    assert b"module_199" in await planning.plan_and_record_request(live, {}, dialect=OPENAI)
    asked = [seq for seq, event in found if isinstance(event, log.Asked)]
    for at in asked[:: len(asked) // 10]:
        await planning.rebuild_request(live, at)  # law 5: equal to its hash, or an error
    if isinstance(store, SqliteStore):
        assert store.db.sql("pragma integrity_check") == [("ok",)]
    await store.close()


class Turns:
    """Lets one store operation through at a time; a seed says whose."""

    def __init__(self, seed: int, left: int) -> None:
        self.random = Random(seed)
        self.waiting: dict[str, asyncio.Event] = {}
        self.left = left
        self.taken = ""
        # A worker does more than its gateways: in a third of the orders it is as far as they are.
        self.ahead = self.random.choice((1, 3, 9)) if left > 2 else 1

    def over(self, store: SqliteStore, who: str) -> "Gate":
        """The same store, for one who waits for the turn."""
        return Gate(self, store, who)

    async def turn(self, who: str) -> None:
        """Wait until the seed says so."""
        self.waiting[who] = asyncio.Event()
        self.choose()
        await self.waiting[who].wait()
        del self.waiting[who]
        self.taken += who

    def choose(self) -> None:
        """Once all wait who are not done."""
        if len(self.waiting) == self.left > 0:
            who = sorted(self.waiting)
            chances = [self.ahead if one == "f" else 1 for one in who]
            self.waiting[self.random.choices(who, chances)[0]].set()

    def done(self) -> None:
        """No more turns for one of them."""
        self.left -= 1
        self.choose()


class Gate:
    """A store whose operations wait for their turn."""

    def __init__(self, turns: Turns, store: SqliteStore, who: str) -> None:
        self._turns, self._store, self._who = turns, store, who

    def __getattr__(self, name):
        async def waiting(*args, **kwargs):
            await self._turns.turn(self._who)
            return await getattr(self._store, name)(*args, **kwargs)

        return waiting


async def _folding(store, name, turns):
    """Open, plan, fold; again where somebody came between."""
    while True:
        live = await Live.open(store, name, facts=SMALL)
        try:
            await planning.plan_and_record_request(live, {}, dialect=OPENAI)
        except Conflict:
            continue
        break
    turns.done()


async def _working(store, name, turns):
    """A worker's fold, its narrative told by a script; again where it was overtaken."""
    done = await fold_session(store, name, tellers=telling(), install=True)
    turns.done()
    assert (done.outcome, done.by) == ("folded", "scripted"), (name, done)


async def _coming_in(store, name, deliveries, turns):
    for at in deliveries:
        await event_log.append_events(store, name, [user(f"inbound <{at}>")], once=f"m{at}")
    turns.done()


async def _interleaved(address, seeds, folding=_folding):
    """A fold and three messages, some of them delivered again, each on a connection: the orders.

    Beside a worker two gateways deliver the same messages.
    """
    who = "fij" if folding is _working else "fi"
    stores = [store_at(address) for _ in who]
    try:
        return await _orders(stores, who, seeds, folding)
    finally:
        for store in stores:
            await store.close()


async def _orders(stores, who, seeds, folding):
    for store in stores:
        if isinstance(store, SqliteStore):  # who comes first is asked here, not what stays
            store.db.sql("pragma synchronous = off")
    before = [
        event
        for n in range(8)
        for event in (user(f"{n} " + "pasted text " * 20), model("answer text " * 80))
    ]
    orders: set[str] = set()
    for seed in range(seeds):
        name, turns, random = Name("acme", f"s{seed}"), Turns(seed, len(who)), Random(-seed)
        await event_log.append_events(stores[0], name, [OPENED, *before, user("go on")], after=-1)
        deliveries = sorted([0, 1, 2, *random.choices(range(3), k=random.randint(0, 2))])
        await asyncio.gather(
            folding(turns.over(stores[0], "f"), name, turns),
            *(
                _coming_in(turns.over(store, one), name, deliveries, turns)
                for one, store in zip(who[1:], stores[1:], strict=True)
            ),
        )
        orders.add(turns.taken)
        live = await Live.open(stores[1], name, facts=SMALL)
        events = [event for _, event in await live.read_events(Range(0, live.view.head))]
        said = [e.parts[0].text for e in events if isinstance(e, log.UserSaid)]
        assert said[-3:] == [f"inbound <{at}>" for at in range(3)], (seed, turns.taken)
        assert sum(text.startswith("inbound") for text in said) == 3
        folds = [event for event in events if isinstance(event, Folded)]
        assert len(folds) == 1 if folding is _working else folds, seed
        sent = (await planning.plan_and_record_request(live, {}, dialect=OPENAI)).decode()
        assert re.findall("inbound <([0-9])>", sent) == ["0", "1", "2"], (seed, turns.taken)
    return orders


DEEP = os.environ.get("FOLDLINE_LAWS") == "deep"
BOTH = pytest.mark.parametrize("folding", [_folding, _working], ids=["by a request", "by a worker"])


@BOTH
def test_what_comes_in_during_a_fold_is_there_once(tmp_path, folding):
    """R-29: 1,000 interleavings; 200 in CI."""
    seeds = 1_000 if DEEP else 200
    orders = asyncio.run(_interleaved(str(tmp_path / "talks.db"), seeds, folding))
    print(f"\n{seeds} seeds, {len(orders)} different orders")
    assert len(orders) > (100 if DEEP else 40)


@pytest.mark.real
@BOTH
def test_what_comes_in_during_a_fold_is_there_once_on_postgres(folding):
    """R-29, on PostgreSQL: fewer, each of them waits for a disk; `just chaos worker` asks all."""
    with a_schema() as schema:
        seeds = 150 if DEEP else 60
        orders = asyncio.run(_interleaved(address_of(schema), seeds, folding))
    print(f"\n{seeds} seeds, {len(orders)} different orders")
    assert len(orders) > seeds / 3


END = ("if after is not None and after != found.head:", "if False:")
SEEN_TWICE = ('db.sql("insert into seen values (?, ?, ?)", (found.sid, once, end))', "pass")


@pytest.mark.parametrize(
    ("broken_line", "folding"),
    [(END, _folding), (SEEN_TWICE, _folding), (SEEN_TWICE, _working)],
    ids=["the end is not compared", "deliveries are not remembered", "nor beside a worker"],
)
def test_a_store_that_lets_them_mix_is_seen(tmp_path, broken_line, folding):
    """A fold alone stands wherever it lands: what it leaves is open to the end."""
    with broken("foldline.stores.sqlite.session_rows", *broken_line), pytest.raises(SEEN):
        asyncio.run(_interleaved(str(tmp_path / "talks.db"), 100, folding))


def test_a_worker_that_does_not_decide_again_is_seen(tmp_path):
    """The control: a worker that does not decide again is refused, and does not fold."""
    with (
        broken(
            "foldline.session.log_handle",
            'if self.lease is None or conflict.of == "fence":',
            "if True:",
        ),
        pytest.raises(SEEN),
    ):
        asyncio.run(_interleaved(str(tmp_path / "talks.db"), 100, _working))


def long_session(turns):
    """A session of so many turns, folds included, and how many characters were said in it."""
    talk, random = Planned(Facts(limits(128_000, None), STEADY)), Random(5)
    some = ["the", "parser", "fails", "in", "module", "because", "token", "was", "expected"]
    said = 0
    for turn in range(turns):
        for event in (user(f"{turn} " + " ".join(random.choices(some, k=60))),
                      model(" ".join(random.choices(some, k=120)))):  # fmt: skip
            said += len(event.parts[0].text)
            talk.add(event)
        if turn % 4 == 3:
            talk.ask(talk.plan(), counted=lambda made: made.report.estimate * 9 // 10)
    return talk, said


def bytes_of(store, address, path):
    """What a store takes on disk, with all its indexes; of PostgreSQL by table."""
    if isinstance(store, SqliteStore):
        store.db.sql("pragma wal_checkpoint(truncate)")
        return {"file": path.stat().st_size}
    schema = re.search(r"schema=(\w+)", address)[1]
    with connected() as owner:
        owner.execute(f"vacuum {', '.join(f'{schema}.{t}' for t in ('events', 'heads', 'words'))}")
        found = owner.execute(
            "select regexp_replace(relname, '_[0-9]+$', ''), sum(pg_total_relation_size(oid))::int8 "
            "from pg_class where relnamespace = %s::regnamespace and relkind = 'r' "
            "and reltuples > 0 group by 1 order by 2 desc",  # an empty partition's indexes have a page
            (schema,),
        )
        return dict(found.fetchall())


@pytest.mark.real
@pytest.mark.anyio
async def test_what_ten_thousand_turns_weigh(address, tmp_path):
    """R-66: what is on disk beside what was appended, folds included, with and without the index.

    On PostgreSQL a tenth of it, unless the laws are asked deep.
    """
    store = store_at(address)
    talk, said = long_session(10_000 if isinstance(store, SqliteStore) or DEEP else 1_000)
    for at in range(0, len(talk.events), 8):
        await event_log.append_events(store, SHARED, talk.events[at : at + 8], after=at - 1)
    given = sum(len(row.body) for row in event_log.build_draft(talk.events).rows)
    folds = sum(len(log.encode_event(one)) for one in talk.folds())
    sizes = []
    for _ in range(2):
        sizes.append(bytes_of(store, address, tmp_path / "talks.db"))
        assert len(await store.search("acme", "parser", session="shared")) == 20  # indexes all
    bare, indexed = (sum(one.values()) for one in sizes)
    print(
        f"\n{len(talk.events):,} events, {len(talk.folds())} folds: words {said:,}, events {given:,} "
        f"({folds:,} of them folds), "
        f"stored {bare:,} = {bare / given:.3f} x events, {bare / said:.3f} x words; "
        f"with the index {indexed / given:.3f} x events, {indexed / said:.3f} x words; {sizes}"
    )
    assert bare <= 1.5 * given
    await store.close()
