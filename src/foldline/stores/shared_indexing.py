"""Indexes for searches: once for all that wait for the same, and only while one waits."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable


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
        self.task = asyncio.ensure_future(_index_all(index_some))
        self.waiting = 0


async def _index_all(index_some: Callable[[], Awaitable[bool]]) -> None:
    while not await index_some():
        pass
