"""Searches share the indexing of what is new, and it goes on for nobody."""

import asyncio
import gc
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from foldline.stores.beside import SharedIndexing


class Backlog:
    """Slices of work to do; each takes one step of the loop."""

    def __init__(self, left):
        self.left, self.steps, self.at_once, self.most = left, 0, 0, 0

    async def index_some(self):
        """Do one slice; whether that was all, as it was when this began."""
        seen, self.at_once = self.left, self.at_once + 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if seen:
            self.left, self.steps = self.left - 1, self.steps + 1
        return seen <= 1


@given(st.integers(0, 5), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 4)), max_size=6))
def test_whoever_searches_finds_what_was_there_before(backlog, searches):
    """One at a time, whenever searches begin, and however much is written between them."""

    async def run():
        work, shared = Backlog(backlog), SharedIndexing()

        async def search(after, written):
            for _ in range(after):
                await asyncio.sleep(0)
            work.left += written
            due = work.steps + work.left
            await shared.index("scope", work.index_some)
            assert work.steps >= due

        await asyncio.gather(*(search(*one) for one in searches))
        assert work.most <= 1
        assert not shared._current

    asyncio.run(run())


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6))
def test_indexing_ends_with_the_last_that_waits(leaving):
    """Each leaves after some steps; with the last of them the work ends, and not before."""

    async def run():
        work, shared = Backlog(1_000), SharedIndexing()
        tasks = [asyncio.ensure_future(shared.index("scope", work.index_some)) for _ in leaving]
        for step in range(max(leaving)):
            await asyncio.sleep(0)
            for task, leaves in zip(tasks, leaving, strict=True):
                if leaves == step + 1:
                    task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        ended = work.steps
        for _ in range(20):
            await asyncio.sleep(0)
        assert work.steps <= ended + 1 < 20
        assert not shared._current

    asyncio.run(run())


def test_indexing_ends_although_a_cancellation_is_lost():
    """As psycopg can lose it before Python 3.12."""

    async def run():
        shared, began, slices = SharedIndexing(), asyncio.Event(), []

        async def index_some():
            slices.append(1)
            began.set()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)
            return len(slices) == 100

        task = asyncio.ensure_future(shared.index("scope", index_some))
        await began.wait()
        indexing = next(iter(shared._current.values())).task
        task.cancel()
        await asyncio.wait([task, indexing], timeout=20)
        assert len(slices) == 1

    asyncio.run(run())


def test_indexing_that_fails_for_nobody_says_nothing():
    surprises = []

    async def run():
        asyncio.get_running_loop().set_exception_handler(lambda _, told: surprises.append(told))
        shared, began = SharedIndexing(), asyncio.Event()

        async def index_some():
            began.set()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(20)
            raise ConnectionError("the store is closed")

        task = asyncio.ensure_future(shared.index("scope", index_some))
        await began.wait()
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0.01)
        gc.collect()

    asyncio.run(run())
    assert not surprises
