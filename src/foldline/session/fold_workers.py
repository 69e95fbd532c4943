"""Workers: processes that take folds from the queue, one at a time for each session.

    async with Queue(address, connections=4) as queue:
        await Worker(queue, fold, concurrency=4).run()      # until stop(), or once

Knows retries, what becomes of a job whose worker died, and how a worker ends. Refuses to know how a
session is folded: whoever starts a worker gives that.

A job is never retried in procrastinate's own way. While it runs, the same wish may be queued once
more; setting it back to `todo` then fails on the queueing lock, the job stays `doing` for ever, and
with it the session's lock. So a job that fails queues another one, later, and is done; and a job
whose worker died is set back, or dropped where that cannot be because another one waits.
"""

from asyncio import CancelledError, Event, create_task, shield, sleep, timeout
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import TypeAlias

import psycopg
from procrastinate import JobContext, exceptions
from procrastinate.jobs import Job, Status
from procrastinate.worker import Worker as Fetcher

from foldline.errors import FoldlineError
from foldline.session.fold_queue import TASK, Queue
from foldline.session.fold_worker import LEASE, Done
from foldline.stores.base import Name

Fold: TypeAlias = Callable[[Name, bool], Awaitable[Done]]
"""What is done about a session, and whether the fold is installed."""
Told: TypeAlias = Callable[[Name | None, Done, float], None]
"""What became of a session, and the seconds it took; None: of the worker itself."""
PAUSES = (2.0, 10.0, 30.0, 120.0)
"""Seconds after which what failed is tried again; then no more."""
HEARTBEAT, STALLED = 2.0, 8.0
"""Seconds between two signs of life, and without one after which a worker's jobs are another's."""
_BUSY = 2  # tries for a session that is held: by a worker that was killed, it is not held for long
_STALLS = 10  # times that a job's worker died: it may be the job that kills them
_GRACE = 8.0  # seconds in which a job may end when its worker is to
_POLL = 1.0  # seconds between two looks for jobs that are due again: nothing tells of those
_ONE_REAPER = "select pg_try_advisory_xact_lock(hashtextextended('foldline reaper of ' || %s, 0))"
_FAILS = (exceptions.ProcrastinateException, psycopg.Error, OSError)


async def reap(queue: Queue, *, seconds: float = STALLED) -> list[str]:
    """Give the jobs of dead workers to others; what was done about each."""
    async with queue.connector.pool.connection() as held, held.transaction():
        # One reaper at a time: a second one would set back what a live worker has taken since.
        row = await (await held.execute(_ONE_REAPER, (queue.schema,))).fetchone()
        if row is None or not row[0]:
            return []
        stalled = await queue.app.job_manager.get_stalled_jobs(
            queue=queue.name, task_name=TASK, seconds_since_heartbeat=seconds
        )
        return await _given_back(queue, stalled)


async def _given_back(queue: Queue, jobs: Iterable[Job]) -> list[str]:
    manager, found = queue.app.job_manager, list[str]()
    for job in jobs:
        try:
            if job.attempts >= _STALLS:
                await manager.finish_job(job, Status.FAILED, delete_job=True)
                found.append(f"given up: {job.attempts + 1} workers died over it")
                continue
            try:
                await manager.retry_job(job)
                found.append("given to another worker")
            except exceptions.UniqueViolation:
                await manager.finish_job(job, Status.FAILED, delete_job=True)
                found.append("dropped: the same is queued once more")
        except exceptions.ConnectorException as fault:
            if not isinstance(fault.__cause__, psycopg.errors.RaiseException):
                raise  # else: it has ended in the meantime
    return found


class Worker:
    """One process's worker: takes jobs until it is stopped, or until there are none."""

    def __init__(
        self, queue: Queue, fold: Fold, *, concurrency: int = 4, told: Told | None = None
    ) -> None:
        self.queue = queue
        self._fold = fold
        self._concurrency = concurrency
        self._told = told
        self._stopped = Event()
        self._fetcher: Fetcher | None = None
        self._running: set[int | None] = set()
        self._missed: set[int | None] = set()  # ours by the table, and not in hand
        queue.app.task(name=TASK, queue=queue.name, pass_context=True)(self._job)

    def stop(self) -> None:
        """Take no more jobs; those in hand are ended or given back within ten seconds."""
        self._stopped.set()
        if self._fetcher is not None:
            self._fetcher.stop()

    async def run(self, *, once: bool = False) -> None:
        """Work until stopped; with `once` until nothing is queued, also for later."""
        reaping = create_task(self._reaping(), name="reaper")
        try:
            while not self._stopped.is_set():
                try:
                    await self._fetching(once=once)
                    if once and not (await self.queue.counts()).total():
                        return
                except (*_FAILS, FoldlineError) as fault:
                    self._tell(None, Done("failed", f"{_words(fault)}; it goes on in {_POLL:g} s"))
                await self._pause(_POLL / 4 if once else _POLL)
        finally:
            reaping.cancel()
            with suppress(CancelledError):
                await reaping

    async def _fetching(self, *, once: bool) -> None:
        self._fetcher = Fetcher(
            self.queue.app,
            queues=[self.queue.name],
            concurrency=self._concurrency,
            wait=not once,
            fetch_job_polling_interval=_POLL,
            shutdown_graceful_timeout=_GRACE,
            delete_jobs="always",
            install_signal_handlers=False,
            update_heartbeat_interval=HEARTBEAT,
            stalled_worker_timeout=STALLED,
        )
        if not self._stopped.is_set():
            await self._fetcher.run()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):  # not wait_for(): it may take a cancellation for its own end
            async with timeout(seconds):
                await self._stopped.wait()

    async def _job(
        self, context: JobContext, *, tenant: str, session: str, install: bool, tries: int
    ) -> None:
        """One job of the queue; whatever comes of it, it is done then."""
        name, begun = Name(tenant, session), monotonic()
        self._running.add(context.job.id)
        try:
            done = await self._fold(name, install)
            if done.outcome == "busy" and install and tries < _BUSY:
                done = await self._again(name, done, install=install, tries=tries, seconds=LEASE)
        except CancelledError:  # the worker ends
            await shield(self.queue.defer(name, install=install, tries=tries))
            self._tell(name, Done("left", "given back: this worker ends"), monotonic() - begun)
            raise
        except Exception as fault:  # noqa: BLE001 - no job takes a worker with it
            done = Done("failed", _words(fault))
            if tries < len(PAUSES):
                pause = PAUSES[tries]
                done = await self._again(name, done, install=install, tries=tries, seconds=pause)
            else:
                done = Done("failed", f"{done.reason}; given up after {tries + 1} tries")
        finally:
            self._running.discard(context.job.id)
        self._tell(name, done, monotonic() - begun)

    async def _again(
        self, name: Name, done: Done, *, install: bool, tries: int, seconds: float
    ) -> Done:
        """Queue another try; what became of it with what is done about it."""
        try:
            queued = await self.queue.defer(name, install=install, tries=tries + 1, seconds=seconds)
            then = f"tried again in {seconds:g} s" if queued else "it is queued once more"
        except FoldlineError as fault:
            then = f"given up: {fault}"
        return replace(done, reason=f"{done.reason}; {then}")

    async def _reaping(self) -> None:
        while True:
            await sleep(HEARTBEAT)
            try:
                for what in [*await reap(self.queue), *await self._lost()]:
                    self._tell(None, Done("left", f"a job of a dead worker was {what}"))
            except (*_FAILS, FoldlineError) as fault:
                self._tell(None, Done("failed", f"nobody looks for dead workers: {_words(fault)}"))

    async def _lost(self) -> list[str]:
        """Jobs that the table says are ours and that ended: their end could not be written."""
        mine = self._fetcher.worker_id if self._fetcher else None
        if mine is None:
            return []
        doing = await self.queue.app.job_manager.list_jobs_async(
            queue=self.queue.name, task=TASK, status="doing", worker_id=mine
        )
        missed = {job.id: job for job in doing if job.id not in self._running}
        twice = [missed[one] for one in self._missed & missed.keys()]
        self._missed = {*missed}
        return await _given_back(self.queue, twice)

    def _tell(self, name: Name | None, done: Done, seconds: float = 0.0) -> None:
        if self._told is not None:
            self._told(name, done, seconds)


def _words(fault: BaseException) -> str:
    cause = fault.__cause__ if isinstance(fault, exceptions.ConnectorException) else None
    told = cause or fault
    return " ".join(str(told).split()) or type(told).__name__
