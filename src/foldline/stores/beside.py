"""Runs work beside the event loop: parsing, planning and indexing of what is large.

Python runs one thread at a time, so more threads make nothing faster: each only keeps the loop
waiting for its turn. There are two, so that what is large does not wait for what is huge.
"""

from asyncio import get_running_loop
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Final, TypeVar

T = TypeVar("T")
LARGE: Final = 200_000
"""Bytes: from here on work on them is run beside the loop."""
_HUGE = 2_000_000  # bytes
_large, _huge = (ThreadPoolExecutor(1, f"foldline-{name}") for name in ("large", "huge"))


async def run_beside(work: Callable[[], T], *, size: int = LARGE) -> T:
    """Run work on `size` bytes, in a thread if they are many."""
    if size < LARGE:
        return work()
    lane = _large if size < _HUGE else _huge
    return await get_running_loop().run_in_executor(lane, copy_context().run, work)
