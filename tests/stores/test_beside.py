"""Work beside the event loop: few threads, and what is huge delays nothing that is smaller."""

import asyncio
import threading

from foldline.stores.beside import LARGE, run_beside

HUGE = 10 * LARGE * LARGE


def test_small_work_stays_on_the_loop():
    async def run():
        here = threading.get_ident()
        assert await run_beside(threading.get_ident, size=LARGE - 1) == here
        assert await run_beside(threading.get_ident, size=LARGE) != here

    asyncio.run(run())


def test_large_work_does_not_wait_for_huge():
    async def run():
        goes_on = threading.Event()
        huge = [asyncio.ensure_future(run_beside(goes_on.wait, size=HUGE)) for _ in range(8)]
        await asyncio.sleep(0.01)
        assert await asyncio.wait_for(run_beside(lambda: "done"), 20) == "done"
        assert not any(one.done() for one in huge)
        goes_on.set()
        assert all(await asyncio.gather(*huge))

    asyncio.run(run())


def test_two_threads_run_all_of_it():
    """Each more would keep the loop waiting once more for its turn."""

    async def run():
        sizes = (LARGE, HUGE) * 20
        found = await asyncio.gather(*(run_beside(threading.get_ident, size=one) for one in sizes))
        assert len({*found}) == 2

    asyncio.run(run())


def test_work_that_nobody_waits_for_is_not_begun():
    async def run():
        goes_on, began = threading.Event(), []
        first = asyncio.ensure_future(run_beside(goes_on.wait, size=HUGE))
        await asyncio.sleep(0.01)
        second = asyncio.ensure_future(run_beside(lambda: began.append(1), size=HUGE))
        await asyncio.sleep(0.01)
        second.cancel()
        await asyncio.wait([second])
        goes_on.set()
        await first
        await run_beside(lambda: None, size=HUGE)
        assert not began

    asyncio.run(run())
