"""The thread that waits for the disk, so that no event loop does.

Knows one queue and one thread. Refuses to know what is done there. An executor would do: its two
futures and their locks take 25 µs more of every operation, a tenth of a fast disk's flush.
"""

import threading
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

R = TypeVar("R")
_Job: TypeAlias = tuple[Callable[[], Any], AbstractEventLoop, "Future[Any]"]


class Waiting:
    """Work is done one after another, in the order it came."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        # Not waited for at exit: a session that nobody closed must not keep its process alive.
        threading.Thread(target=_serve, args=(self._jobs,), daemon=True).start()

    async def run(self, work: Callable[[], R]) -> R:
        """Do some work there."""
        loop = get_running_loop()
        done: Future[R] = loop.create_future()
        self._jobs.put((work, loop, done))
        return await done

    def stop(self) -> None:
        """Nothing more comes."""
        self._jobs.put(None)

    def __del__(self) -> None:
        self.stop()


def _serve(jobs: "SimpleQueue[_Job | None]") -> None:
    while (job := jobs.get()) is not None:
        work, loop, done = job
        try:
            told = (done, work(), None)
        except BaseException as fault:  # noqa: BLE001 - whoever waits is told, whatever it is
            told = (done, None, fault)
        try:
            loop.call_soon_threadsafe(_tell, *told)
        except RuntimeError:  # the loop is closed: nobody waits any more
            continue
        finally:
            del job, work, done, told  # nothing is kept alive until the next job


def _tell(done: "Future[Any]", result: Any, fault: BaseException | None) -> None:
    if done.cancelled():
        return
    if fault is None:
        done.set_result(result)
    else:
        done.set_exception(fault)
