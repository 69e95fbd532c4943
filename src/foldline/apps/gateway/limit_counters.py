"""The counts of one process: its parts of all limits, and its trades with the store.

    counter = counters.get_counter(tenant, "owner=alice")
    part = counter.get_part(measure, now)
    await counter.trade(...)          # one read and one write of the store, or one write

A counter is what one rule counts apart: the calls of an owner, of a tenant, of a model. All its
limits are in one value of the store's side table. The value that was written last is remembered, so
that a process that nobody interrupts needs no read.
"""

import asyncio
import os
from collections.abc import Callable
from random import uniform
from typing import Final

import msgspec

from foldline.apps.gateway.allowances import (
    Measure,
    Part,
    Tally,
    Trade,
    make_trade,
    number_window,
)
from foldline.errors import FormatError, StoreFailed
from foldline.stores.base import Name, Store

SPACE: Final = "limits"
EVERYBODY: Final = "foldline gateway limits"
"""The tenant under which limits of all tenants are counted; that of a key is one word."""
_KEPT = 40 * 86_400.0  # seconds that a value is kept: longer than any window
_TRIES = 40
Tallies = dict[str, Tally]


class SharedCounter:
    """What one rule counts apart, as this process has it."""

    def __init__(self, store: Store, process: str, *, tenant: str, subject: str) -> None:
        self._store, self._process = store, process
        self.tenant, self.subject = tenant, subject
        self._name = Name(tenant or EVERYBODY, "")
        self._known: tuple[Tallies, int] | None = None
        self.parts: dict[str, Part] = {}
        self.limits: dict[Measure, int] = {}
        """The limits that calls have met, as they were then."""
        self.waiting: dict[Measure, int] = {}
        """What calls need that wait for a trade."""
        self.used_at = 0.0
        """When a call last took something."""
        self.is_stale = False
        """Whether limits have changed since the last trade."""
        self._trading: asyncio.Task[None] | None = None
        self.trades = 0

    def get_part(self, measure: Measure, now: float, *, is_away: bool = False) -> Part:
        """Return this process' part of the window that it is now.

        While the store is away a new window begins with what this process had of the last one.
        """
        number = number_window(measure.window, now)
        part = self.parts.get(measure.name)
        if part is None:
            part = self.parts[measure.name] = Part(number)
        elif part.window < number:
            before, part = part, Part(number)
            if is_away and measure.window == "minute":
                part.held, part.until = before.granted, now + measure.lasting
                part.granted = before.granted
            self.parts[measure.name] = part
        return part

    def wait_for(self, measure: Measure, need: int) -> None:
        """Let the trades from now on ask for what a call waits for; a negative need ends that."""
        self.waiting[measure] = self.waiting.get(measure, 0) + need

    @property
    def is_trading(self) -> bool:
        """Whether a trade is under way."""
        return self._trading is not None and not self._trading.done()

    def start_trade(
        self, clock: Callable[[], float], *, ending: bool = False
    ) -> "asyncio.Task[None]":
        """Begin a trade, or return the one that is under way."""
        if self._trading is None or self._trading.done():
            self._trading = asyncio.create_task(self._run_trade(clock, ending=ending))
            self._trading.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._trading

    async def _run_trade(self, clock: Callable[[], float], *, ending: bool) -> None:
        """Trade all limits of this counter, until no other process is faster."""
        for tried in range(_TRIES):
            tallies, version = self._known or await self._read_tallies()
            self._known = None
            now = clock()
            made, trades = self._make_trades(tallies, now, ending=ending)
            for part, trade in trades:
                part.sent = trade  # until an answer comes nobody knows
            body = msgspec.msgpack.encode(made)
            self.trades += 1
            done = await self._store.put(
                self._name, SPACE, self.subject, body, version=version, seconds=_KEPT
            )
            for part, trade in trades:
                part.sent = None
                if done:
                    part.confirm_trade(trade)
            if done:
                self._known = made, version + 1
                self.is_stale = False
                return
            await asyncio.sleep(uniform(0, 0.002) * (tried + 1))  # noqa: S311 - no secret
        raise StoreFailed(f"the limits of {self.subject!r} are written by too many at once")

    async def _read_tallies(self) -> tuple[Tallies, int]:
        entry = await self._store.get(self._name, SPACE, self.subject)
        return (decode_tallies(entry.value), entry.version) if entry else ({}, 0)

    def _make_trades(
        self, tallies: Tallies, now: float, *, ending: bool
    ) -> tuple[Tallies, list[tuple[Part, Trade]]]:
        made: Tallies = {}
        trades: list[tuple[Part, Trade]] = []
        for measure, limit in self.limits.items():
            part, tally = self.get_part(measure, now), tallies.get(measure.name, Tally())
            if tally.window == part.window + 1:  # the clock of another is a little ahead
                part = self.parts[measure.name] = Part(tally.window)
            part.waiting = self.waiting.get(measure, 0)
            made[measure.name], trade = make_trade(
                tally, part, self._process, measure=measure, limit=limit, now=now, ending=ending
            )
            trades.append((part, trade))
        return {**tallies, **made}, trades


class LimitCounters:
    """All counters of one process."""

    def __init__(self, store: Store) -> None:
        self._store, self._process = store, os.urandom(5).hex()
        self._counters: dict[tuple[str, str], SharedCounter] = {}
        self._past_trades = 0
        """Of counters that are forgotten."""

    def __len__(self) -> int:
        return len(self._counters)

    def get_counter(self, tenant: str, subject: str) -> SharedCounter:
        """Return the counter of a subject, and make it if there is none; tenant "" is for all."""
        key = tenant, subject
        counter = self._counters.get(key)
        if counter is None:
            counter = SharedCounter(self._store, self._process, tenant=tenant, subject=subject)
            self._counters[key] = counter
        return counter

    def list_counters(self) -> list[SharedCounter]:
        """List all counters."""
        return [*self._counters.values()]

    def count_trades(self) -> int:
        """Count the trades so far."""
        return self._past_trades + sum(one.trades for one in self._counters.values())

    def drop_counter(self, counter: SharedCounter) -> None:
        """Forget a counter that holds nothing."""
        self._past_trades += counter.trades
        self._counters.pop((counter.tenant, counter.subject), None)


def decode_tallies(value: bytes) -> Tallies:
    """Decode the counts of one subject."""
    try:
        return msgspec.msgpack.decode(value, type=dict[str, Tally])
    except msgspec.DecodeError as fault:
        raise FormatError(f"limits that cannot be read: {fault}") from fault
