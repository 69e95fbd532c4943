"""Folds sessions in the background, and the worker processes that take folds from the queue.

    done = await fold_session(store, name, tellers=tellers, install=True)
    done.outcome     folded, prepared, nothing, left, busy or gone; done.reason says why

    async with Queue(address, connections=4) as queue:
        await Worker(queue, fold, concurrency=4).run()      # until stop(), or once

`fold_session` plans, asks for the narrative, takes the session's lease, plans again and appends.
All of it follows from the log: a process killed at any point leaves nothing half done, and the next
one finds the fold made, or makes it.

A job is never retried by procrastinate itself. While it runs, the same wish may be queued again;
setting the job back to `todo` then fails on the queueing lock, the job stays `doing` for ever, and
with it the session's lock. So a job that fails queues a later one and is done; and a job whose
worker died is set back, or dropped if another one waits.
"""

import asyncio
from asyncio import CancelledError, create_task, shield, sleep, timeout
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import Literal, TypeAlias

import psycopg
from procrastinate import JobContext, exceptions
from procrastinate.jobs import Job, Status
from procrastinate.worker import Worker as Fetcher

from foldline.core import fold_selection
from foldline.core.budget import measure_budget
from foldline.core.edits import fold
from foldline.core.log import Edit, Event
from foldline.core.plan import Facts, Ready, after
from foldline.errors import Busy, Erased, FoldlineError, Overflow
from foldline.models.summarize import Narrative, Tellers
from foldline.session import planning
from foldline.session.fold_queue import TASK, Queue
from foldline.session.host import Host, find_host
from foldline.session.log_handle import Live
from foldline.session.log_lines import log_failed_fold, log_unopened
from foldline.session.model_facts import FactsOf, of_session
from foldline.session.stored_session import cancel_tasks, open_stored_session
from foldline.session.summaries import prepare_narrative, read_prepared
from foldline.stores.base import Name, Store

Outcome: TypeAlias = Literal["folded", "prepared", "nothing", "left", "busy", "gone", "failed"]
Telling: TypeAlias = Callable[[str, Host | None], Tellers | None]
"""Returns the narrators for a session's model and host, or None."""
LEASE = 10.0
"""Seconds that a session is held for its fold, also by a worker that was killed."""
_AWAITED = "an answer is under way; the next request folds by itself"
_OPEN = "calls wait for their results; the next request folds by itself"


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome for a session."""

    outcome: Outcome
    reason: str = ""
    before: int = 0
    """Tokens of a request before the fold, by our count."""
    after: int = 0
    by: str = ""
    """The model that wrote the fold's narrative; "" for none."""


async def fold_session(  # noqa: PLR0913 - the session, and what may be otherwise
    store: Store,
    name: Name,
    *,
    tellers: Telling | None = None,
    install: bool = False,
    seconds: float = LEASE,
    facts_of: FactsOf = of_session,
) -> Done:
    """Prepare the narrative of a session's next fold; with `install` make the fold that is due.

    Raises errors that may pass: `StoreFailed`, and `Conflict` over the fence.
    """
    try:
        live = await _open_for_fold(store, name, facts_of)
        if live.view.head < 0:
            return Done("gone", "there is no such session")
        ready = await planning.plan_next_request(live, live.facts)
        ask = _find_narrative_ask(live, ready)
        prepared, reason = (None, "") if ask is None else await _find_or_prepare(live, ask, tellers)
        if not install:
            return _report_prepared(live, ask, prepared, reason)
        if (why := _in_the_way(live, ready)) is not None:
            return _as_it_is(live, *why)
        return await _install_fold(live, replace(live.facts, prepared=prepared), seconds, reason)
    except Erased as fault:
        return Done("gone", str(fault))
    except Busy:
        return Done("busy", "somebody works on the session, and folds it by their next request")
    except Overflow as fault:
        log_failed_fold(name, fault)
        return Done("left", str(fault))


async def _open_for_fold(store: Store, name: Name, facts_of: FactsOf) -> Live:
    try:
        return (await open_stored_session(store, name, facts_of=facts_of)).live
    except Erased:
        raise  # it is gone, and nothing failed
    except FoldlineError as fault:
        log_unopened(name, fault)
        raise


def _find_narrative_ask(live: Live, ready: Ready) -> fold.Ask | None:
    """Find the narrative that a plan asks for; if a fold is due, the one of that fold."""
    if ready.folded is None:
        return ready.ask
    view = after(live.view, ready.events[: ready.events.index(ready.folded)])
    return fold_selection.plan_narrative(
        view, None, budget=measure_budget(view, live.facts.limits), facts=live.facts
    )


async def _find_or_prepare(
    live: Live, ask: fold.Ask, tellers: Telling | None
) -> tuple[fold.Prepared | None, str]:
    """Return a prepared narrative, made now if needed; or else why there is none."""
    prepared = await read_prepared(live.store, live.name, ask.base)
    if prepared is not None:
        return prepared, ""
    try:
        narrators = tellers and tellers(live.view.model, await find_host(live))
    except FoldlineError as fault:  # no key, no package, no agreed host: fold without a narrative
        return None, str(fault)
    if not narrators:
        return None, ""
    made: Narrative = await prepare_narrative(live, ask, narrators)
    return made.prepared, made.reason


def _report_prepared(
    live: Live, ask: fold.Ask | None, prepared: fold.Prepared | None, reason: str
) -> Done:
    if ask is None:
        return _as_it_is(live, "nothing", "no narrative is wanted")
    if prepared is None:
        return _as_it_is(live, "left", reason or "there is nobody to ask")
    return replace(_as_it_is(live, "prepared", ""), by=prepared.by)


def _in_the_way(live: Live, ready: Ready) -> tuple[Outcome, str] | None:
    """Return why no fold can be installed now, or None."""
    if ready.folded is None:
        return "nothing", "no fold is due"
    if live.view.awaited:
        return "left", _AWAITED  # the caller would find that the log moved on before the answer
    if not all(isinstance(event, Edit) for event in ready.events):
        return "left", _OPEN  # a request would close them; their tools may still be at work
    return None


async def _install_fold(live: Live, facts: Facts, seconds: float, reason: str) -> Done:
    """Hold the session, plan again on its current state, append, release it."""
    done = _as_it_is(live, "nothing", "no fold is due")

    async def decide_fold() -> Sequence[Event]:
        nonlocal done
        ready = await planning.plan_next_request(live, facts)
        if (why := _in_the_way(live, ready)) is not None:
            done = _as_it_is(live, *why)
            return ()
        before = measure_budget(live.view, facts.limits).request
        by = ready.folded.by if ready.folded else ""
        done = Done("folded", reason, before, ready.report.total, by)
        return ready.events

    try:
        await live.hold_lease(seconds)
        await live.append_decision(decide_fold)
    finally:
        if live.lease is not None:
            with suppress(FoldlineError):  # it expires by itself
                await live.store.release(live.lease)
    return done


def _as_it_is(live: Live, outcome: Outcome, reason: str) -> Done:
    size = measure_budget(live.view, live.facts.limits).request
    return Done(outcome, reason, size, size)


Fold: TypeAlias = Callable[[Name, bool], Awaitable[Done]]
"""Folds a session; the flag says whether to install the fold."""
OnOutcome: TypeAlias = Callable[[Name | None, Done, float], None]
"""Called with an outcome and its seconds; the name is None for the worker itself."""
PAUSES = (2.0, 10.0, 30.0, 120.0)
"""Seconds before each further try of a failed job; after the last it is given up."""
HEARTBEAT, STALLED = 2.0, 8.0
"""Seconds between two heartbeats, and without one until a worker's jobs go to others."""
_BUSY = 2  # tries for a session that is held: a killed worker's lease expires soon
_STALLS = 10  # dead workers of one job until it is given up: the job may kill them
_GRACE = 8.0  # seconds that a job has to end when its worker stops
_POLL = 1.0  # seconds between two looks for jobs that are due later: nothing notifies of those
_ONE_REAPER = "select pg_try_advisory_xact_lock(hashtextextended('foldline reaper of ' || %s, 0))"
_FAILS = (exceptions.ProcrastinateException, psycopg.Error, OSError)


async def recover_stalled_jobs(queue: Queue, *, seconds: float = STALLED) -> list[str]:
    """Give the jobs of dead workers to others; return what was done about each."""
    async with queue.connector.pool.connection() as held, held.transaction():
        # One reaper at a time: a second would set back jobs that a live worker has taken since.
        row = await (await held.execute(_ONE_REAPER, (queue.schema,))).fetchone()
        if row is None or not row[0]:
            return []
        stalled = await queue.app.job_manager.get_stalled_jobs(
            queue=queue.name, task_name=TASK, seconds_since_heartbeat=seconds
        )
        return await _given_back(queue, stalled)


async def _given_back(queue: Queue, jobs: Iterable[Job]) -> list[str]:
    manager, outcomes = queue.app.job_manager, list[str]()
    for job in jobs:
        try:
            if job.attempts >= _STALLS:
                await manager.finish_job(job, Status.FAILED, delete_job=True)
                outcomes.append(f"given up: {job.attempts + 1} workers died over it")
                continue
            try:
                await manager.retry_job(job)
                outcomes.append("given to another worker")
            except exceptions.UniqueViolation:
                await manager.finish_job(job, Status.FAILED, delete_job=True)
                outcomes.append("dropped: the same is queued once more")
        except exceptions.ConnectorException as fault:
            if not isinstance(fault.__cause__, psycopg.errors.RaiseException):
                raise  # otherwise the job has ended meanwhile
    return outcomes


class Worker:
    """Takes jobs until it is stopped, or until there are none."""

    def __init__(
        self, queue: Queue, fold: Fold, *, concurrency: int = 4, on_outcome: OnOutcome | None = None
    ) -> None:
        self.queue = queue
        self._fold = fold
        self._concurrency = concurrency
        self._on_outcome = on_outcome
        self._stopped = asyncio.Event()
        self._fetcher: Fetcher | None = None
        self._running: set[int | None] = set()
        self._missed: set[int | None] = set()  # ours in the table, but not running here
        queue.app.task(name=TASK, queue=queue.name, pass_context=True)(self._run_job)

    def stop(self) -> None:
        """Take no more jobs; running ones end or are given back within ten seconds."""
        self._stopped.set()
        if self._fetcher is not None:
            self._fetcher.stop()

    async def run(self, *, once: bool = False) -> None:
        """Work until stopped; with `once` until nothing is queued, not even for later."""
        reaping = create_task(self._run_reaper(), name="reaper")
        try:
            while not self._stopped.is_set():
                try:
                    await self._fetch_jobs(once=once)
                    if once and not (await self.queue.count_jobs()).total():
                        return
                except (*_FAILS, FoldlineError) as fault:
                    self._report_outcome(
                        None, Done("failed", f"{_describe_fault(fault)}; it goes on in {_POLL:g} s")
                    )
                await self._wait_for_stop(_POLL / 4 if once else _POLL)
        finally:
            await cancel_tasks(reaping)

    async def _fetch_jobs(self, *, once: bool) -> None:
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

    async def _wait_for_stop(self, seconds: float) -> None:
        with suppress(TimeoutError):  # not wait_for(): it can swallow a cancellation
            async with timeout(seconds):
                await self._stopped.wait()

    async def _run_job(
        self, context: JobContext, *, tenant: str, session: str, install: bool, tries: int
    ) -> None:
        """Run one job of the queue; it is done then, whatever its outcome."""
        name, begun = Name(tenant, session), monotonic()
        self._running.add(context.job.id)
        try:
            done = await self._fold(name, install)
            if done.outcome == "busy" and install and tries < _BUSY:
                done = await self._schedule_retry(
                    name, done, install=install, tries=tries, seconds=LEASE
                )
        except CancelledError:  # the worker ends
            await shield(self.queue.defer(name, install=install, tries=tries))
            self._report_outcome(
                name, Done("left", "given back: this worker ends"), monotonic() - begun
            )
            raise
        except Exception as fault:  # noqa: BLE001 - no job may end its worker
            done = Done("failed", _describe_fault(fault))
            if tries < len(PAUSES):
                pause = PAUSES[tries]
                done = await self._schedule_retry(
                    name, done, install=install, tries=tries, seconds=pause
                )
            else:
                done = Done("failed", f"{done.reason}; given up after {tries + 1} tries")
        finally:
            self._running.discard(context.job.id)
        self._report_outcome(name, done, monotonic() - begun)

    async def _schedule_retry(
        self, name: Name, done: Done, *, install: bool, tries: int, seconds: float
    ) -> Done:
        """Queue another try and add that to the outcome's reason."""
        try:
            queued = await self.queue.defer(name, install=install, tries=tries + 1, seconds=seconds)
            then = f"tried again in {seconds:g} s" if queued else "it is queued once more"
        except FoldlineError as fault:
            then = f"given up: {fault}"
        return replace(done, reason=f"{done.reason}; {then}")

    async def _run_reaper(self) -> None:
        while True:
            await sleep(HEARTBEAT)
            try:
                stalled = await recover_stalled_jobs(self.queue)
                for what in (*stalled, *await self._recover_lost_jobs()):
                    self._report_outcome(None, Done("left", f"a job of a dead worker was {what}"))
            except (*_FAILS, FoldlineError) as fault:
                self._report_outcome(
                    None, Done("failed", f"nobody looks for dead workers: {_describe_fault(fault)}")
                )

    async def _recover_lost_jobs(self) -> list[str]:
        """Recover jobs that the table says are ours but ended: their end could not be written."""
        worker_id = self._fetcher.worker_id if self._fetcher else None
        if worker_id is None:
            return []
        doing = await self.queue.app.job_manager.list_jobs_async(
            queue=self.queue.name, task=TASK, status="doing", worker_id=worker_id
        )
        missed = {job.id: job for job in doing if job.id not in self._running}
        twice = [missed[one] for one in self._missed & missed.keys()]
        self._missed = {*missed}
        return await _given_back(self.queue, twice)

    def _report_outcome(self, name: Name | None, done: Done, seconds: float = 0.0) -> None:
        if self._on_outcome is not None:
            self._on_outcome(name, done, seconds)


def _describe_fault(fault: BaseException) -> str:
    if isinstance(fault, exceptions.ConnectorException):
        fault = fault.__cause__ or fault
    return " ".join(str(fault).split()) or type(fault).__name__
