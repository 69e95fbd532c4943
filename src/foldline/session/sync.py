"""Runs async code from sync code, on one event loop in a background thread.

A sync method is `make_sync(Thing.its_method)`, with the same parameters and types, so nothing is
written twice.
"""

import os
import sys
from _thread import RLock
from collections.abc import Callable, Coroutine
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
_THREADS = "foldline"  # the names of our own threads begin with it
_starting = RLock()


def _start_loop_once() -> "asyncio.AbstractEventLoop":
    """Return the process's one background loop, even if several threads ask at once."""
    with _starting:
        return _start_loop()


@cache
def _start_loop() -> "asyncio.AbstractEventLoop":
    import asyncio  # noqa: PLC0415 - half of the time that `import foldline` would take
    import threading  # noqa: PLC0415

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name=_THREADS, daemon=True).start()
    return loop


def run_coroutine(work: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine to its end; an interrupt in the caller cancels it."""
    from asyncio import run_coroutine_threadsafe  # noqa: PLC0415

    future = run_coroutine_threadsafe(work, _start_loop_once())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def finish_coroutine(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, without waiting in a thread of ours.

    Any thread may run a finalizer, and one of ours would wait for itself. When the interpreter
    ends, no thread runs any more: then nothing is done, and what was written is in the store.
    """
    if sys.is_finalizing():
        work.close()
        return
    from asyncio import run_coroutine_threadsafe  # noqa: PLC0415
    from threading import current_thread  # noqa: PLC0415

    if current_thread().name.startswith(_THREADS):
        run_coroutine_threadsafe(work, _start_loop_once())
    else:
        run_coroutine(work)


def _begin_anew() -> None:
    """Forget the loop in a forked child, where its thread no longer exists."""
    global _starting  # noqa: PLW0603 - another thread may have held it
    _starting = RLock()
    _start_loop.cache_clear()


os.register_at_fork(after_in_child=_begin_anew)


class Face(Generic[T]):
    """The sync form of an async object."""

    def __init__(self, aio: T) -> None:
        self.aio = aio


def make_sync(
    method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Face[T], P], R]:
    """Make the sync form of an async method."""

    @wraps(method)
    def run_method(face: Face[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return run_coroutine(method(face.aio, *args, **kwargs))

    return run_method
