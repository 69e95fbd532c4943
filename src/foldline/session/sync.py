"""The portal: one event loop in a thread of its own, and the sync face of anything async.

Knows coroutines. Refuses to know what they do: a sync verb is `verb(Thing.its_async_method)`, with
the same parameters and types, so nothing is written twice.
"""

import os
from _thread import RLock
from collections.abc import Callable, Coroutine
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


_THREADS = "foldline"
"""What the names of our own threads begin with."""
_starting = RLock()


def _loop() -> "asyncio.AbstractEventLoop":
    """The process's one background loop, though several threads may ask for it at once."""
    with _starting:
        return _start_loop()


@cache
def _start_loop() -> "asyncio.AbstractEventLoop":
    import asyncio  # noqa: PLC0415 - half of the time that `import foldline` would take
    import threading  # noqa: PLC0415

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name=_THREADS, daemon=True).start()
    return loop


def wait(work: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine to its end; an interrupt in the caller cancels it."""
    from asyncio import run_coroutine_threadsafe  # noqa: PLC0415

    future = run_coroutine_threadsafe(work, _loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def finish(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, but do not wait for it in a thread of ours.

    A finalizer may be run by any thread. One of ours would wait for itself.
    """
    from asyncio import run_coroutine_threadsafe  # noqa: PLC0415
    from threading import current_thread  # noqa: PLC0415

    if current_thread().name.startswith(_THREADS):
        run_coroutine_threadsafe(work, _loop())
    else:
        wait(work)


def _begin_anew() -> None:
    """A thread does not survive a fork: the child starts a loop of its own."""
    global _starting  # noqa: PLW0603 - another thread may have held it
    _starting = RLock()
    _start_loop.cache_clear()


os.register_at_fork(after_in_child=_begin_anew)


class Face(Generic[T]):
    """The sync face of an async thing."""

    def __init__(self, aio: T) -> None:
        self.aio = aio


def verb(
    method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Face[T], P], R]:
    """The sync form of an async method."""

    @wraps(method)
    def waiting(face: Face[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return wait(method(face.aio, *args, **kwargs))

    return waiting
