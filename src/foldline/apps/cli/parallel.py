"""Work for many hands: in this process, on the machine's cores, or on a cluster.

Knows executors, how long they take to start, and the bar that somebody watches. Refuses to know
what is computed: results come back in the order of the work, whoever was first.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

from foldline.errors import BadInput

Job = TypeVar("Job")
Done = TypeVar("Done")
_PATIENCE = "10s"  # until a cluster must have answered


async def spread(
    work: Callable[[Job], Done],
    jobs: Sequence[Job],
    executor: Executor | None,
    *,
    bar: Callable[[], None],
) -> list[Done]:
    """Every job done, in order; who interrupts waits for the job in this process at most."""
    if executor is None:
        found: list[Done] = []
        for job in jobs:
            found.append(work(job))
            bar()
            await asyncio.sleep(0)  # where an interrupt comes through
        return found
    futures = [asyncio.wrap_future(executor.submit(work, job)) for job in jobs]
    for future in futures:
        future.add_done_callback(lambda _: bar())
    try:
        return await asyncio.gather(*futures)
    finally:
        for future in futures:
            future.cancel()


@contextmanager
def executor(
    *, jobs: int | None, cluster: str | None, most: int, worth: bool
) -> Generator[Executor | None]:
    """Who does the work: a cluster where one is named, else processes where they are worth it."""
    if cluster is not None:
        with _cluster(cluster) as remote:
            yield remote
        return
    if jobs is not None and jobs < 1:
        raise BadInput(f"--jobs {jobs}: at least one process must do the work; write --jobs 1")
    hands = min(jobs or os.cpu_count() or 1, most)
    if hands == 1 or (jobs is None and not worth):
        yield None
        return
    pool = ProcessPoolExecutor(hands, mp_context=get_context("spawn"), initializer=_deaf)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in active_children():  # who gives up does not wait for what is half done
            child.terminate()
        raise
    pool.shutdown()


@contextmanager
def _cluster(address: str) -> Generator[Executor]:
    if find_spec("distributed") is None:
        raise BadInput(
            "--cluster needs 'distributed', which is not installed; pip install 'foldline[lab]'"
        )
    distributed: Any = __import__("distributed")
    try:
        client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as fault:
        raise BadInput(
            f"no Dask scheduler answers at {address!r} ({_reason(fault)}); "
            "`dask scheduler` starts one and prints its address, as tcp://HOST:8786"
        ) from fault
    with client, client.get_executor() as remote:
        yield remote


def _reason(fault: BaseException) -> str:
    said = " ".join(str(fault).split())
    return said[:80] or type(fault).__name__


def _deaf() -> None:
    """An interrupt is for the process that a person started: the others are ended by it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def progress(title: str, total: int, unit: str, *, on: bool) -> Generator[Callable[[], None]]:
    """A bar on stderr that moves by a thing done, where somebody looks and has to wait."""
    if not on or total < 2 or not sys.stderr.isatty():  # noqa: PLR2004
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415 - only who waits needs it
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn(title),
        BarColumn(32),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=total)
        yield lambda: shown.advance(task)
