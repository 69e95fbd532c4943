"""The queue on PostgreSQL: once for a session, retried, given to others when a worker dies, never stuck."""

import asyncio
import logging
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from folding import due, events_of, folds_of, made, telling
from mutants import broken
from procrastinate import exceptions
from serving import address_of, an_empty_schema, connected

import foldline
from foldline.errors import FormatError, StoreFailed
from foldline.session import fold_worker
from foldline.session.fold_queue import (
    Deferring,
    Queue,
    defer_fold,
    list_pending_queue,
    migrate_queue,
)
from foldline.session.fold_worker import Done, Worker, fold_session, recover_stalled_jobs
from foldline.session.summaries import read_prepared
from foldline.stores.base import Name
from foldline.stores.open_store import store_at

pytestmark = [pytest.mark.anyio, pytest.mark.real]
NAME = Name("acme", "main")
PROGRAM = Path(sys.executable).with_name("foldline")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def quiet():
    """What procrastinate logs of jobs that fail is not ours to show."""
    log = logging.getLogger("procrastinate")
    before, log.level = log.level, logging.CRITICAL
    yield
    log.setLevel(before)


@pytest.fixture
def address():
    with an_empty_schema() as schema:
        yield address_of(schema)
        with connected() as server:
            server.execute(f"drop schema if exists {schema}_jobs cascade")


class Told:
    """What a worker told."""

    def __init__(self):
        self.lines = []

    def __call__(self, name, done, seconds):
        """Note it."""
        self.lines.append((name, done, seconds))

    @property
    def outcomes(self):
        """Of sessions, in order."""
        return [done.outcome for name, done, _ in self.lines if name]


def folding(store):
    """What a worker does, with a scripted teller."""
    return lambda name, install: fold_session(store, name, tellers=telling(), install=install)


async def nothing(_name, _install):
    return Done("nothing")


@contextmanager
def hurried(monkeypatch, **given):
    for name, value in given.items():
        monkeypatch.setattr(fold_worker, name, value)
    yield


async def test_a_wish_is_queued_once(address):
    """Also while it is under way: then once more, and no more than that."""
    async with Queue(address) as queue:
        assert await queue.defer(NAME)
        assert not await queue.defer(NAME)
        assert await queue.defer(NAME, install=True)  # another wish
        assert not await queue.defer(NAME, install=True)
        assert await queue.defer(Name("other", "main"))
        assert await queue.count_jobs() == {"todo": 3}
        assert not await defer_fold(address, NAME)


async def test_all_that_come_first_make_the_tables_once(address):
    assert await asyncio.gather(*(defer_fold(address, Name("acme", f"s{n}")) for n in range(8)))
    async with Queue(address) as queue:
        assert await queue.count_jobs() == {"todo": 8}


async def test_many_make_the_tables_and_give_the_rights_at_once(address):
    """Several `foldline migrate`, beside workers that start."""
    store = store_at(address)
    await store.head(NAME)  # makes the role that the rights are given to
    await store.close()
    for _ in range(3):
        await asyncio.gather(*(migrate_queue(address) for _ in range(8)))
    assert not await list_pending_queue(address)


async def test_tables_of_another_release_are_not_touched(address):
    async with Queue(address) as queue:
        await queue.defer(NAME)
    with connected() as server:
        server.execute(f"comment on schema {queue.schema} is 'foldline, procrastinate 02.00'")
    with pytest.raises(
        FormatError, match=r"kept by foldline, procrastinate 02\.00.*drop the schema"
    ):
        await defer_fold(address, NAME)


async def test_a_worker_folds_what_is_queued_and_leaves_no_rows(address):
    store, told = store_at(address), Told()
    names = [Name("acme", f"s{n}") for n in range(3)]
    for name in names:
        await made(store, name)
    async with Queue(address, connections=4) as queue:
        for name in names:
            await queue.defer(name, install=True)
        await queue.defer(Name("acme", "never"), install=True)
        await made(store, Name("acme", "erased"))
        await queue.defer(Name("acme", "erased"), install=True)
        await store.erase(Name("acme", "erased"))
        await Worker(queue, folding(store), on_outcome=told).run(once=True)
        assert await queue.count_jobs() == {}
    assert sorted(told.outcomes) == ["folded"] * 3 + ["gone"] * 2
    for name in names:
        (fold,) = await folds_of(store, name)
        assert fold.by == "scripted"
    with connected(options=queue.options) as server:
        assert not server.execute("select from procrastinate_events").fetchall()
    await store.close()


async def test_what_fails_is_tried_again_and_given_up_with_a_reason(address, monkeypatch):
    told, tries = Told(), []

    async def failing(name, _install):
        tries.append(time.monotonic())
        if name.session == "main" or len(tries) < 3:
            raise StoreFailed("the disk is full")
        return Done("folded")

    with hurried(monkeypatch, PAUSES=(0.1, 0.2), _POLL=0.05):
        async with Queue(address) as queue:
            await queue.defer(NAME, install=True)
            await Worker(queue, failing, on_outcome=told).run(once=True)
    assert told.outcomes == ["failed"] * 3
    reasons = [done.reason for _, done, _ in told.lines]
    assert reasons[0] == "the disk is full; tried again in 0.1 s"
    assert reasons[2] == "the disk is full; given up after 3 tries"
    assert tries[1] - tries[0] >= 0.1
    assert tries[2] - tries[1] >= 0.2


async def test_what_fails_while_it_is_queued_once_more_is_not_stuck(address, monkeypatch):
    """Procrastinate's own retry would leave it `doing` for ever: the second face of the trap."""
    told, times = Told(), 0

    async def once_more(name, install):
        nonlocal times
        times += 1
        if times == 1:
            await queue.defer(name, install=install)
            raise StoreFailed("a moment")
        return Done("folded")

    with hurried(monkeypatch, PAUSES=(0.1,)):
        async with Queue(address) as queue:
            await queue.defer(NAME, install=True)
            await asyncio.wait_for(Worker(queue, once_more, on_outcome=told).run(once=True), 20)
    assert told.outcomes == ["failed", "folded"]
    assert told.lines[0][1].reason == "a moment; it is queued once more"


async def test_a_session_that_is_held_is_tried_again_for_a_while(address, monkeypatch):
    """By a worker that was killed, it is not held for long."""
    told, store = Told(), store_at(address)
    await made(store, NAME)
    lease = await store.lease(NAME, "who was killed", seconds=60)

    async def run_out_after_one(name, install):
        done = await fold_session(store, name, install=install)
        await store.release(lease)
        return done

    with hurried(monkeypatch, LEASE=0.3):
        async with Queue(address) as queue:
            await queue.defer(NAME, install=True)
            await Worker(queue, run_out_after_one, on_outcome=told).run(once=True)
    assert told.outcomes == ["busy", "folded"]
    assert len(await folds_of(store, NAME)) == 1
    await store.close()


async def _dead(queue, name):
    """A job whose worker died over it."""
    await queue.defer(name, install=True)
    manager = queue.app.job_manager
    worker = await manager.register_worker()
    job = await manager.fetch_job(queues=[queue.name], worker_id=worker)
    await manager.unregister_worker(worker)  # as another worker does that finds no heartbeat
    return job


async def _reaped(address, seconds):
    """Two dead workers' jobs, one of them queued once more: all is worked off, or it is stuck."""
    told = Told()
    other = Name("acme", "other")
    async with Queue(address, connections=4) as queue:
        await _dead(queue, NAME)
        await _dead(queue, other)
        await queue.defer(NAME, install=True)
        assert await queue.count_jobs() == {"doing": 2, "todo": 1}
        try:
            found = await recover_stalled_jobs(queue)
        except exceptions.UniqueViolation:
            found = []
        worker = Worker(queue, nothing, on_outcome=told)
        work = asyncio.create_task(worker.run(once=True))
        ended, _ = await asyncio.wait({work}, timeout=seconds)
        worker.stop()
        await work
        if not ended:
            raise TimeoutError
    assert sorted(name.session for name, *_ in told.lines if name) == ["main", "other"]
    return found


async def test_jobs_of_dead_workers_are_given_to_others(address):
    """The trap: one that is queued once more cannot be set back, and is dropped."""
    assert sorted(await _reaped(address, 60)) == [
        "dropped: the same is queued once more",
        "given to another worker",
    ]


async def test_a_reaper_that_falls_into_the_trap_is_seen(address):
    """The control: without the catch the session's lock is held for ever."""
    line, instead = "except exceptions.UniqueViolation:", "except KeyError:"
    with broken("foldline.session.fold_worker", line, instead), pytest.raises(TimeoutError):
        await _reaped(address, 6)
    async with Queue(address) as queue:
        assert await queue.count_jobs() == {
            "doing": 2,
            "todo": 1,
        }  # nor is anybody else's given back


async def test_a_job_that_kills_its_workers_is_given_up(address):
    async with Queue(address, connections=4) as queue:
        for _ in range(11):
            await _dead(queue, NAME)
            found = await recover_stalled_jobs(queue)
        assert await queue.count_jobs() == {}
    assert found == ["given up: 11 workers died over it"]


async def test_one_reaper_at_a_time(address):
    """Two would set back what a live worker has taken between their looks."""
    async with Queue(address, connections=4) as queue:
        for n in range(5):
            await _dead(queue, Name("acme", f"s{n}"))
        both = await asyncio.gather(recover_stalled_jobs(queue), recover_stalled_jobs(queue))
        assert sorted(map(len, both)) == [0, 5]
        assert await queue.count_jobs() == {"todo": 5}


async def test_a_worker_ends_although_its_reaper_loses_a_cancellation(address, monkeypatch):
    """As a driver can lose one before Python 3.12: the worker waited for its end for ever."""
    lost, beating = [], asyncio.Event()

    async def lose(_queue):
        beating.set()
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            lost.append(1)
            if len(lost) > 1:
                raise
        return []

    async def wait_for_reaper(_name, _install):
        await beating.wait()
        return Done("nothing")

    monkeypatch.setattr(fold_worker, "recover_stalled_jobs", lose)
    with hurried(monkeypatch, HEARTBEAT=0.05):
        async with Queue(address, connections=4) as queue, asyncio.timeout(20) as bound:
            await queue.defer(NAME)
            await Worker(queue, wait_for_reaper).run(once=True)
    assert lost
    assert not bound.expired()


async def test_a_job_whose_end_was_not_written_is_not_lost(address, monkeypatch):
    """Its worker lives, so no heartbeat tells of it."""
    told, loop = Told(), asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(None)  # procrastinate lets that fault fall
    with hurried(monkeypatch, HEARTBEAT=0.1):
        async with Queue(address, connections=4) as queue:
            manager = queue.app.job_manager
            finish, failed = manager.finish_job, []

            async def failing(job, status, delete_job):
                if not failed:
                    failed.append(job.id)
                    raise exceptions.ConnectorException("the server was away")
                await finish(job, status, delete_job)

            monkeypatch.setattr(manager, "finish_job", failing)
            await queue.defer(NAME, install=True)
            worker = Worker(queue, nothing, on_outcome=told)
            work = asyncio.create_task(worker.run())
            for _ in range(100):
                await asyncio.sleep(0.1)
                if len(told.outcomes) == 2 and not await queue.count_jobs():
                    break
            worker.stop()
            await work
    loop.set_exception_handler(before)
    assert failed
    assert told.outcomes == ["nothing", "nothing"]


async def test_two_workers_never_work_on_one_session(address):
    told, inside, most = Told(), {}, {}

    async def looking(name, _install):
        inside[name] = inside.get(name, 0) + 1
        most[name] = max(most.get(name, 0), inside[name])
        await asyncio.sleep(0.05)
        inside[name] -= 1
        return Done("nothing")

    async with Queue(address, connections=4) as first, Queue(address, connections=4) as second:
        for n in range(6):
            await first.defer(Name("acme", f"s{n}"))
            await first.defer(Name("acme", f"s{n}"), install=True)
        workers = [Worker(one, looking, on_outcome=told) for one in (first, second)]
        await asyncio.gather(*(one.run(once=True) for one in workers))
    assert len(told.outcomes) == 12
    assert set(most.values()) == {1}


async def test_whoever_is_stopped_ends_what_it_has_or_gives_it_back(address, monkeypatch, timed):
    told = Told()

    async def long(name, _install):
        await asyncio.sleep(0.2 if name.session == "short" else 60)
        return Done("folded")

    with hurried(monkeypatch, _GRACE=0.5):
        async with Queue(address, connections=4) as queue:
            await queue.defer(NAME, install=True)
            await queue.defer(Name("acme", "short"), install=True)
            worker = Worker(queue, long, on_outcome=told)
            work = asyncio.create_task(worker.run())
            for _ in range(500):
                await asyncio.sleep(0.01)
                if len(worker._running) == 2:
                    break
            begun = time.monotonic()
            worker.stop()
            await work
            assert time.monotonic() - begun < timed(2)
            assert await queue.count_jobs() == {"todo": 1}
    assert sorted(told.outcomes) == ["folded", "left"]


# Sessions that defer.


async def test_a_session_defers_its_wish_and_takes_what_a_worker_prepared(address):
    """The worker asks, the session's own request folds."""
    deferring = Deferring(address)
    async with foldline.aopen(address, model="scripted", window=4_000, reserve=300) as s:
        s.live.narrator = deferring
        slowest = 0.0
        for n in range(40):
            await s.add(f"Look at module_{n} today. " + "It may be there. " * 25)
            begun = time.monotonic()
            await s.request()
            slowest = max(slowest, time.monotonic() - begun)
            await s.add({"role": "assistant", "content": f"I looked at module_{n}. " * 10})
            if deferring._task is not None:
                break
        await deferring._task
        assert (deferring.deferred, deferring.failed) == (1, 0)
        told, store = Told(), s.live.store
        async with Queue(address, connections=4) as queue:
            assert await queue.count_jobs() == {"todo": 1}
            await Worker(queue, folding(store), on_outcome=told).run(once=True)
        assert told.outcomes == ["prepared"]
        assert await read_prepared(store, s.live.name, s.live.view.spine)
        for n in range(40, 80):
            await s.add(f"Look at module_{n} today. " + "It may be there. " * 25)
            await s.request()
            await s.add({"role": "assistant", "content": f"I looked at module_{n}. " * 10})
            if found := await folds_of(store, s.live.name):
                break
        assert found[0].by == "scripted"
    print(f"\nslowest request {slowest * 1e3:.0f} ms")


async def test_a_queue_that_is_away_is_counted_and_hinders_nobody(address):
    deferring = Deferring("postgresql://127.0.0.1:1/none")
    store = store_at(address)
    await made(store, NAME, due(turns=5))
    async with foldline.aopen(address, model="scripted", session="main", tenant="acme",
                              window=3_600, reserve=100) as s:  # fmt: skip
        s.live.narrator = deferring
        await s.request()
        await asyncio.sleep(0.3)
    assert deferring.failed == 1
    assert "cannot be reached" in deferring.reason
    await store.close()


# The command.


@pytest.fixture
def started(address):
    """Workers as they are run; whatever becomes of the test, they are ended."""
    running = []

    def start(*more):
        command = [PROGRAM, "worker", "--store", address, *more]
        pipe = subprocess.PIPE
        running.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


async def test_the_command_works_until_nothing_is_queued(address, started):
    store = store_at(address)
    await made(store, NAME)
    await defer_fold(address, NAME, install=True)
    out, err = started("--no-model", "--once").communicate(timeout=60)
    assert err == ""
    assert out.startswith("acme/main  ")
    assert "tokens  folded  " in out
    assert len(await folds_of(store, NAME)) == 1
    await store.close()


async def test_a_signal_ends_the_command_and_a_killed_ones_job_is_taken_over(address, started):
    """R-63, with real processes: killed -9 over a job, another one makes the fold."""
    store = store_at(address)
    await made(store, NAME)
    first = started("--no-model")
    # Whoever takes a lease waits for us, with the job in hand.
    with connected() as server, server.transaction():
        server.execute(f"lock table {address.rpartition('=')[2]}.heads in exclusive mode")
        await defer_fold(address, NAME, install=True)
        async with Queue(address) as queue:
            for _ in range(300):
                if (await queue.count_jobs())["doing"]:
                    break
                await asyncio.sleep(0.1)
            assert await queue.count_jobs() == {"doing": 1}
            await queue.defer(NAME, install=True)  # the trap
        first.kill()
        first.communicate()
    second = started("--no-model", "--once")
    out, _ = second.communicate(timeout=60)
    assert "folded" in out
    assert len(await folds_of(store, NAME)) == 1
    third = started("--no-model")
    with connected(options=queue.options) as server:
        for _ in range(300):
            if server.execute("select from procrastinate_workers").fetchall():
                break
            await asyncio.sleep(0.1)
    begun = time.monotonic()
    third.send_signal(signal.SIGTERM)
    assert third.communicate(timeout=20)[1] == ""
    assert third.returncode == 0
    assert time.monotonic() - begun < 10
    assert len(await events_of(store, NAME)) == len(due()) + 1
    await store.close()
