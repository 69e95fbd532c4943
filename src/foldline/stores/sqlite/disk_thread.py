"""The thread that waits for the disk, so that no event loop does.

Knows one queue and one thread, and what may be done together: where several such jobs wait, they
are done under one flush, and nobody is told before. Refuses to know what is done there. An executor
would do: its two futures and their locks take 25 µs more of every operation, a tenth of a fast
disk's flush.
"""

import threading
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeAlias, TypeVar

R = TypeVar("R")
Together: TypeAlias = Callable[[], AbstractContextManager[None]]
"""What holds several jobs: they are done when it ends well, and none of them where it does not."""
_MOST = 64  # jobs under one flush


class _Job(NamedTuple):
    work: Callable[[], Any]
    loop: AbstractEventLoop
    done: "Future[Any]"
    joins: bool
    """Whether it may be done together with others."""


class Doing:
    """The jobs that are being done."""

    def __init__(self) -> None:
        self.jobs: Sequence[_Job] = ()

    def is_left(self) -> bool:
        """Whether nobody waits for them any more, and they need not be done."""
        return bool(self.jobs) and all(map(_is_left, self.jobs))


class DiskThread:
    """Work is done one after another, in the order it came."""

    def __init__(self, together: Together) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self.doing = Doing()
        # Not waited for at exit: a session that nobody closed must not keep its process alive.
        given = (self._jobs, together, self.doing)
        threading.Thread(target=_serve, args=given, name="foldline-disk", daemon=True).start()

    async def run(self, work: Callable[[], R], *, joins: bool = False) -> R:
        """Do some work there."""
        loop = get_running_loop()
        done: Future[R] = loop.create_future()
        self._jobs.put(_Job(work, loop, done, joins))
        return await done

    def stop(self) -> None:
        """Nothing more comes."""
        self._jobs.put(None)

    def __del__(self) -> None:
        self.stop()


def _is_left(job: _Job) -> bool:
    """Whether whoever wanted it has gone: then it is not written behind their back."""
    return job.joins and job.done.cancelled()


def _serve(jobs: "SimpleQueue[_Job | None]", together: Together, doing: Doing) -> None:
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
        doing.jobs = batch = [one for one in batch if not _is_left(one)]
        for one, result, fault in _done(batch, together) if batch else ():
            try:
                one.loop.call_soon_threadsafe(_tell, one.done, result, fault)
            except RuntimeError:  # the loop is closed: nobody waits any more
                continue
        doing.jobs = ()
        # Nothing is kept alive until the next job: a store that nobody holds ends this thread.
        one = result = fault = None
        del job, batch, one, result, fault


def _done(
    batch: Sequence[_Job], together: Together
) -> list[tuple[_Job, Any, BaseException | None]]:
    """Each job with its outcome, once that is on the disk."""
    if len(batch) == 1:
        return [(batch[0], *_outcome(batch[0]))]
    outcomes: list[tuple[Any, BaseException | None]] = []
    try:
        with together():
            outcomes += map(_outcome, batch)
    except BaseException as fault:  # noqa: BLE001 - whoever waits is told, whatever it is
        return [(one, None, fault) for one in batch]
    return [(one, *outcome) for one, outcome in zip(batch, outcomes, strict=True)]


def _outcome(job: _Job) -> tuple[Any, BaseException | None]:
    try:
        return job.work(), None
    except BaseException as fault:  # noqa: BLE001 - whoever waits is told, whatever it is
        return None, fault


def _tell(done: "Future[Any]", result: Any, fault: BaseException | None) -> None:
    if done.cancelled():
        return
    if fault is None:
        done.set_result(result)
    else:
        done.set_exception(fault)
