"""Work beside the event loop: few threads, and what is huge delays nothing that is smaller."""

import asyncio
import subprocess
import sys
import threading
from time import monotonic

import pytest

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


GIVES_UP = """
import asyncio, sys, time
from foldline.stores.beside import run_beside

async def run():
    async with asyncio.timeout(0.2):
        await run_beside(lambda: time.sleep(60), size=int(sys.argv[1]))

try:
    asyncio.run(run())
except TimeoutError:
    print("given up")
"""


@pytest.mark.parametrize("size", [LARGE, HUGE])
def test_work_that_was_given_up_does_not_keep_its_process_alive(size, timed):
    """A drain has a deadline; a thread of long work must not hold the exit beyond it."""
    begun = monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", GIVES_UP, str(size)],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "given up\n", "")
    assert monotonic() - begun < timed(5.0)


def test_a_fault_of_the_work_is_raised_where_it_is_awaited():
    async def run():
        with pytest.raises(ZeroDivisionError):
            await run_beside(lambda: 1 / 0)
        assert await run_beside(lambda: "goes on") == "goes on"

    asyncio.run(run())
