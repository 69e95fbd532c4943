"""Requests under way: they are counted per client, and each can be stopped from outside.

One timer checks the deadlines of all calls, so that a chunk of an answer costs no timer.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeAlias, TypeVar

from foldline.apps.gateway.api_keys import Client
from foldline.apps.gateway.error_response import Refusal

T = TypeVar("T")
Why: TypeAlias = Literal["gone", "late", "drain"]
"""Who stopped a call: its client, the clock, the end of the gateway."""

WATCHED: Final = "foldline.watched"
"""The key of a scope's `Watch`, if its server reports at once that a client is gone."""
Watch: TypeAlias = Callable[[Callable[[], None]], Callable[[], None]]
"""Subscribes to a disconnect; call the returned function to unsubscribe."""


class GatewayCall:
    """One request under way, and whether it may go on."""

    __slots__ = ("_can_stop", "deadline", "ended", "stays", "task", "why")

    def __init__(self, deadline: float) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - uvicorn runs each request in one
        self.task = task
        self.deadline = deadline
        self.why: Why | None = None
        self.stays = False
        """Whether the call goes on when its client is gone."""
        self.ended = False
        self._can_stop = True

    def stop(self, why: Why) -> None:
        """Stop the call where it waits, or when it next checks."""
        if self.why is None and not self.ended and not (why == "gone" and self.stays):
            self.why = why
            if self._can_stop:
                self.task.cancel()

    def handle_disconnect(self) -> None:
        """Stop the call: its client hung up."""
        self.stop("gone")

    async def run_shielded(self, work: Awaitable[T]) -> T:
        """Run `work` to its end: a stop waits for the next `check_not_stopped`."""
        self._can_stop = False
        try:
            return await work
        finally:
            self._can_stop = True

    def check_not_stopped(self) -> None:
        """Raise `CancelledError` if the call was stopped meanwhile."""
        if self.why is not None:
            raise asyncio.CancelledError

    def take_stop_reason(self) -> Why | None:
        """Say after a `CancelledError` who stopped the call; None if it was not stopped here."""
        self._can_stop = False
        if self.why is not None and self.task.cancelling():
            self.task.uncancel()
        return self.why


class Calls:
    """All calls of the process, at most `each` per client."""

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
        """Stop calls that are late, now and every `every` seconds."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for call in [*self._calls]:
            if call.deadline < now:
                call.stop("late")
        self._timer = loop.call_later(self._every, self.start)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def add_call(self, call: GatewayCall, client: Client) -> None:
        """Count a call, or refuse it where the client has too many."""
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

    def remove_call(self, call: GatewayCall, client: Client) -> None:
        """Count a call no longer."""
        scope = client.scope or client.tenant
        self._calls.discard(call)
        self._of[scope] -= 1
        if not self._of[scope]:
            del self._of[scope]
        if not self._calls:
            self._empty.set()

    def stop_all(self) -> None:
        """Stop all calls: the gateway ends."""
        for call in [*self._calls]:
            call.stop("drain")

    async def wait_for_end(self, seconds: float) -> bool:
        """Wait until no call is left; False if some are after `seconds`."""
        try:
            await asyncio.wait_for(self._empty.wait(), seconds)
        except TimeoutError:  # also where none is left, and no time either
            return not self._calls
        return True
