"""Runs work beside the event loop: parsing, planning and indexing of what is large.

Python runs one thread at a time, so more threads make nothing faster: each only keeps the loop
waiting for its turn. There are two, so that what is large does not wait for what is huge.
"""

from collections.abc import Callable
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
