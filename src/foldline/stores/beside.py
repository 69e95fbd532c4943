"""Runs work beside the event loop: parsing, planning and indexing of what is large.

Python runs one thread at a time, so more threads make nothing faster: each only keeps the loop
waiting for its turn. There are two, so that what is large does not wait for what is huge.

Indexes for searches are made once for all that wait for the same, and only while one waits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextvars import copy_context
from functools import cache, partial
from typing import Final, TypeVar

from foldline.stores.work_thread import WorkThread

T = TypeVar("T")
LARGE: Final = 200_000
"""Bytes: from here on work on them is run beside the loop."""
_HUGE = 2_000_000  # bytes
_find_thread = cache(WorkThread)


async def run_beside(work: Callable[[], T], *, size: int = LARGE) -> T:
    """Run work on `size` bytes, in a thread if they are many."""
    if size < LARGE:
        return work()
    thread = _find_thread("foldline-large" if size < _HUGE else "foldline-huge")
    return await thread.run_job(partial(copy_context().run, work))


class SharedIndexing:
    """The indexing of one store that is under way."""

    def __init__(self) -> None:
        self._current: dict[Hashable, _Indexing] = {}

    async def index(self, scope: Hashable, index_some: Callable[[], Awaitable[bool]]) -> None:
        """Call `index_some`, a slice of work, until it returns that nothing is left.

        Searches of one scope share that; it ends when the last of them is cancelled.
        """
        place = asyncio.get_running_loop(), scope
        if place in self._current:  # it may have looked too early to see what is new
            await self._wait_for(place, self._current[place])
        if place not in self._current:
            self._current[place] = _Indexing(index_some)
        await self._wait_for(place, self._current[place])

    async def _wait_for(self, place: Hashable, current: "_Indexing") -> None:
        current.waiting += 1
        try:
            await asyncio.shield(current.task)
        finally:
            current.waiting -= 1
            if current.task.done() or not current.waiting:
                current.task.cancel()
                if self._current.get(place) is current:
                    del self._current[place]


class _Indexing:
    """Indexing under way, and how many searches wait for it."""

    def __init__(self, index_some: Callable[[], Awaitable[bool]]) -> None:
        self.waiting = 0
        self.task = asyncio.ensure_future(self._index_all(index_some))
        self.task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _index_all(self, index_some: Callable[[], Awaitable[bool]]) -> None:
        # Before Python 3.12 a driver can lose a cancellation: then it ends after this slice.
        while not await index_some() and self.waiting:
            pass
