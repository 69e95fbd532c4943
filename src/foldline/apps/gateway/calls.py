"""Requests on their way: each can be stopped from outside, and all are counted.

Knows when a call has waited too long, and who has how many. Refuses to know what is called. One
clock looks at all of them, so that a piece of an answer costs no timer.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeAlias, TypeVar

from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.keys import Client

T = TypeVar("T")
Why: TypeAlias = Literal["gone", "late", "drain"]
"""Who stopped a call: its client, the clock, the end of the gateway."""

WATCHED: Final = "foldline.watched"
"""Where a scope has `Watch`, if its server tells at once that a client is gone."""
Watch: TypeAlias = Callable[[Callable[[], None]], Callable[[], None]]
"""Be told; what is given back ends that."""


class GatewayCall:
    """One request, and whether it may go on."""

    __slots__ = ("_can_stop", "deadline", "ended", "stays", "task", "why")

    def __init__(self, deadline: float) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - uvicorn runs each request in one
        self.task = task
        self.deadline = deadline
        self.why: Why | None = None
        self.stays = False
        """Whether it goes on when its client is gone."""
        self.ended = False
        self._can_stop = True

    def stop(self, why: Why) -> None:
        """Stop it where it waits, or when it next waits."""
        if self.why is None and not self.ended and not (why == "gone" and self.stays):
            self.why = why
            if self._can_stop:
                self.task.cancel()

    def gone(self) -> None:
        """Its client hung up."""
        self.stop("gone")

    async def unbroken(self, work: Awaitable[T]) -> T:
        """Something that is not left in the middle: a stop waits for the next `check`."""
        self._can_stop = False
        try:
            return await work
        finally:
            self._can_stop = True

    def check(self) -> None:
        """Whether it was stopped meanwhile."""
        if self.why is not None:
            raise asyncio.CancelledError

    def stopped(self) -> Why | None:
        """Behind a `CancelledError`: who stopped it; None where it was not us."""
        self._can_stop = False
        if self.why is not None and self.task.cancelling():
            self.task.uncancel()
        return self.why


class Calls:
    """All of them."""

    def __init__(self, *, each: int, every: float = 1.0) -> None:
        self._calls: set[GatewayCall] = set()
        self._of: Counter[str] = Counter()
        self._each, self._every = each, every
        self._timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._calls)

    def start(self) -> None:
        """Look at the clock from now on."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for call in [one for one in self._calls if one.deadline < now]:
            call.stop("late")
        self._timer = loop.call_later(self._every, self.start)

    def close(self) -> None:
        """No more."""
        if self._timer is not None:
            self._timer.cancel()

    def enter(self, call: GatewayCall, client: Client) -> None:
        """A call begins."""
        scope = client.scope or client.tenant
        if self._of[scope] >= self._each:
            raise Refusal(
                429,
                "too_many",
                f"{self._each} requests of this key are under way; wait for one to end",
                retry=1,
            )
        self._of[scope] += 1
        self._calls.add(call)
        self._empty.clear()

    def leave(self, call: GatewayCall, client: Client) -> None:
        """And ends."""
        scope = client.scope or client.tenant
        self._calls.discard(call)
        self._of[scope] -= 1
        if not self._of[scope]:
            del self._of[scope]
        if not self._calls:
            self._empty.set()

    def stop(self) -> None:
        """Stop all of them: the gateway ends."""
        for call in [*self._calls]:
            call.stop("drain")

    async def over(self, seconds: float) -> bool:
        """Wait until none is left."""
        try:
            await asyncio.wait_for(self._empty.wait(), seconds)
        except TimeoutError:
            return False
        return True
