"""A thread that waits for the disk, or computes for long, so that no event loop does.

It is a daemon: neither a session that was not closed nor work that was given up may keep its
process alive, as the threads of an executor would, which also cost 25 µs more per operation. Writes
that wait together are written under one flush, and none is answered before it.
"""

import threading
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeAlias, TypeVar

R = TypeVar("R")
Together: TypeAlias = Callable[[], AbstractContextManager[None]]
"""A context for several jobs: all are written when it exits, none if it raises."""
_MOST = 64  # jobs under one flush


class _Job(NamedTuple):
    work: Callable[[], Any]
    loop: AbstractEventLoop
    done: "Future[Any]"
    joins: bool
    """Whether it may share a flush with others."""


class Doing:
    """The jobs that are running."""

    def __init__(self) -> None:
        self.jobs: Sequence[_Job] = ()

    def is_left(self) -> bool:
        """Whether nobody waits for them any more, so they need not be done."""
        return bool(self.jobs) and all(job.joins and job.done.cancelled() for job in self.jobs)


class WorkThread:
    """Runs jobs one after another, in the order they came."""

    def __init__(self, name: str, together: Together = nullcontext) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self.doing = Doing()
        args = (self._jobs, together, self.doing)
        threading.Thread(target=_run_queue, args=args, name=name, daemon=True).start()

    async def run_job(self, work: Callable[[], R], *, joins: bool = False) -> R:
        """Run work in the thread and wait for its result."""
        loop = get_running_loop()
        done: Future[R] = loop.create_future()
        self._jobs.put(_Job(work, loop, done, joins))
        return await done

    def stop(self) -> None:
        """End the thread after the jobs that are queued."""
        self._jobs.put(None)

    def __del__(self) -> None:
        self.stop()


def _run_queue(jobs: "SimpleQueue[_Job | None]", together: Together, doing: Doing) -> None:
    ahead: list[_Job | None] = []
    while (job := ahead.pop() if ahead else jobs.get()) is not None:
        batch = [job]
        while job.joins and len(batch) < _MOST and not ahead:
            try:
                more = jobs.get_nowait()
            except Empty:
                break
            if more is not None and more.joins:
                batch.append(more)
            else:
                ahead.append(more)
        # What was given up is not begun, nor written behind its caller's back.
        doing.jobs = batch = [one for one in batch if not one.done.cancelled()]
        for one, result, fault in _run_batch(batch, together) if batch else ():
            try:
                one.loop.call_soon_threadsafe(_set_outcome, one.done, result, fault)
            except RuntimeError:  # the loop is closed: nobody waits any more
                continue
        doing.jobs = ()
        # Keep nothing alive until the next job: a store that nobody holds ends this thread.
        one = result = fault = None
        del job, batch, one, result, fault


def _run_batch(
    batch: Sequence[_Job], together: Together
) -> list[tuple[_Job, Any, BaseException | None]]:
    """Run jobs under one flush; return each with its result or error."""
    if len(batch) == 1:
        return [(batch[0], *_run_job(batch[0]))]
    outcomes: list[tuple[Any, BaseException | None]] = []
    try:
        with together():
            outcomes += map(_run_job, batch)
    except BaseException as fault:  # noqa: BLE001 - it is raised where the caller waits
        return [(one, None, fault) for one in batch]
    return [(one, *outcome) for one, outcome in zip(batch, outcomes, strict=True)]


def _run_job(job: _Job) -> tuple[Any, BaseException | None]:
    try:
        return job.work(), None
    except BaseException as fault:  # noqa: BLE001 - it is raised where the caller waits
        return None, fault


def _set_outcome(done: "Future[Any]", result: Any, fault: BaseException | None) -> None:
    if done.cancelled():
        return
    if fault is None:
        done.set_result(result)
    else:
        done.set_exception(fault)
