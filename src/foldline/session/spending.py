"""Caps on what is spent, in tokens and in money, folds included: R-49.

    spending = Spending(store, name, prices, Caps(session=Cap(dollars=5.0), day=Cap(tokens=10**7)))
    reserved = await spending.before(12_000, 4_000, turn=17)   # `Spent` where a cap would be passed
    await spending.after(reserved, usage)                      # what it really took

Knows what a call costs, and that what may be spent is reserved before it is: several processes
share a cap and never pass it together. What was reserved by somebody who died comes back after a
while. Refuses to know models, and the calendar: who asks says what day it is.

A session and its newest turn are counted in one entry of the session's own; a user and a day in
entries of their tenant's, from when they have a cap on. Money is counted in whole millionths of a
millionth of a dollar, so that sums are exact.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from time import time
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from foldline.core.log import UsageReported
from foldline.core.prices import Prices
from foldline.errors import BadInput, Erased, Spent, StoreFailed
from foldline.stores.base import Name, Store

SPACE = "spend"
HOLD = 1_800.0
"""Seconds after which what was reserved and never settled comes back: longer than any call."""
_DAYS = 3 * 86_400.0  # a day's entry is of no use after that
_PICO = 10**12
_TRIES = 1_000  # of writing what others write too: each time one of them has got on
_PAUSE = 0.002  # seconds, and longer the more often another was first
Kind: TypeAlias = Literal["call", "fold"]


@dataclass(frozen=True, slots=True)
class Cap:
    """The most that may be spent; None is no limit."""

    tokens: int | None = None
    dollars: float | None = None

    def __post_init__(self) -> None:
        for limit in (self.tokens, self.dollars):
            if limit is not None and not limit >= 0:
                raise BadInput(f"a cap of {limit}: give what may be spent, 0 or more, or None")


NO_CAP = Cap()


@dataclass(frozen=True, slots=True)
class Caps:
    """What may be spent on one call, one turn, one session, one user, and all of a tenant's day."""

    call: Cap = NO_CAP
    turn: Cap = NO_CAP
    session: Cap = NO_CAP
    user: Cap = NO_CAP
    day: Cap = NO_CAP


class Amount(msgspec.Struct, frozen=True, array_like=True):
    """Tokens and what they cost, in millionths of a millionth of a dollar."""

    tokens: int = 0
    pico: int = 0

    @property
    def dollars(self) -> float:
        """The cost, for people."""
        return self.pico / _PICO

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.tokens + other.tokens, self.pico + other.pico)


NOTHING = Amount()


class Reserved(NamedTuple):
    """What one call may take, set aside until it is known what it took."""

    id: str
    amount: Amount
    prices: Prices
    tokens: tuple[int, int]
    """In and out, as they were estimated."""
    turn: int
    kind: Kind
    day: str


class Counted(NamedTuple):
    """What was spent, without what is reserved; None where nobody counts."""

    session: Amount
    turn: Amount
    folds: Amount
    """That part of the session's which went into folds."""
    user: Amount | None
    day: Amount | None


class _Held(msgspec.Struct, frozen=True, array_like=True):
    amount: Amount
    until: float
    turn: int


class _Count(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry: what is spent, and what is reserved, by the reservation's id."""

    spent: Amount = NOTHING
    folds: Amount = NOTHING
    turn: int = -1
    in_turn: Amount = NOTHING
    held: dict[str, _Held] = {}

    def without(self, one: str, now: float) -> dict[str, _Held]:
        """What is reserved beside one, as far as it has not run out."""
        return {key: held for key, held in self.held.items() if key != one and held.until > now}


_Place: TypeAlias = tuple[Literal["session", "user", "day"], str]
_Change: TypeAlias = Callable[[_Count], _Count]


def utc_day() -> str:
    """The date, where days begin."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


class Spending:
    """What one session spends, and the caps that it shares."""

    def __init__(  # noqa: PLR0913 - whose, at what price, up to what
        self,
        store: Store,
        name: Name,
        prices: Prices,
        caps: Caps,
        *,
        user: str = "",
        today: Callable[[], str] = utc_day,
        hold: float = HOLD,
    ) -> None:
        if caps.user != NO_CAP and not user:
            raise BadInput("a cap per user and nobody to count for; give user=")
        self._store, self._name, self._prices = store, name, prices
        self.caps, self._user, self._today, self._hold = caps, user, today, hold

    async def before(  # noqa: PLR0913 - how much, for whom, at what price
        self,
        tokens_in: int,
        tokens_out: int,
        *,
        cached: int = 0,
        turn: int = -1,
        kind: Kind = "call",
        prices: Prices | None = None,
    ) -> Reserved:
        """Set aside what a call may take: all of its reserve, and its input at the highest price.

        `cached` of it is known to be read from the cache; `turn` is the place of the person's
        message that is being answered. Raises `Spent`, and sets nothing aside, where a cap would be
        passed.
        """
        prices = prices or self._prices
        amount = _estimate(prices, tokens_in, tokens_out, cached=min(cached, tokens_in))
        one = os.urandom(8).hex()
        tokens = (tokens_in, tokens_out)
        reserved = Reserved(one, amount, prices, tokens, turn, kind, self._today())
        _check("call", self.caps.call, spent=NOTHING, would=amount)
        try:
            for place in self._places(reserved.day):
                await self._change(place, self._reserving(place, reserved))
        except BaseException:
            await self.release(reserved)
            raise
        return reserved

    async def after(self, reserved: Reserved, usage: UsageReported | None) -> Amount:
        """Count what a call took, in place of what was set aside; untold, it is that."""
        took = price(reserved.prices, usage or UsageReported(), told=reserved.tokens)
        await self._settle(reserved, took)
        return took

    async def release(self, reserved: Reserved) -> None:
        """The call was not made, or refused: nothing was taken."""
        await self._settle(reserved, NOTHING)

    async def spent(self) -> Counted:
        """What was spent until now."""
        found = {place[0]: await self._read(place) for place in self._places(self._today())}
        session = found["session"][0]
        user, day = (found[one][0].spent if one in found else None for one in ("user", "day"))
        return Counted(session.spent, session.in_turn, session.folds, user, day)

    def _places(self, day: str) -> list[_Place]:
        """The entries that count: one that many share only where a cap needs it."""
        places: list[_Place] = [("session", "session")]
        if self.caps.user != NO_CAP:
            places.append(("user", f"user:{self._user}"))
        if self.caps.day != NO_CAP:
            places.append(("day", f"day:{day}"))
        return places

    def _reserving(self, place: _Place, reserved: Reserved) -> _Change:
        cap = {"session": self.caps.session, "user": self.caps.user, "day": self.caps.day}[place[0]]

        def reserve(count: _Count) -> _Count:
            now = time()
            held = count.without(reserved.id, now)
            turn = max(count.turn, reserved.turn)  # what comes late is counted to the newest
            in_turn = count.in_turn if turn == count.turn else NOTHING
            would = reserved.amount
            _check(place[0], cap, spent=_sum(count.spent, held), would=would)
            if place[0] == "session":
                of_turn = {key: one for key, one in held.items() if one.turn == turn}
                _check("turn", self.caps.turn, spent=_sum(in_turn, of_turn), would=would)
            held[reserved.id] = _Held(would, now + self._hold, turn)
            return _Count(count.spent, count.folds, turn, in_turn, held)

        return reserve

    async def _settle(self, reserved: Reserved, took: Amount) -> None:
        for place in self._places(reserved.day):

            def settle(count: _Count) -> _Count:
                held = count.held.get(reserved.id)
                turn = held.turn if held else reserved.turn
                left = count.without(reserved.id, time())
                in_turn = count.in_turn + took if turn == count.turn else count.in_turn
                folds = count.folds + took if reserved.kind == "fold" else count.folds
                return _Count(count.spent + took, folds, count.turn, in_turn, left)

            with suppress(Erased):  # the session is gone; its user's and the day's count stays
                await self._change(place, settle)

    async def _change(self, place: _Place, change: _Change) -> None:
        """Write what becomes of an entry, whoever else writes it."""
        name = self._owner(place)
        seconds = _DAYS if place[0] == "day" else None
        for tried in range(_TRIES):
            count, version = await self._read(place)
            new = change(count)
            if new == count:
                return
            body = msgspec.msgpack.encode(new)
            if await self._store.put(name, SPACE, place[1], body, version=version, seconds=seconds):
                return
            await asyncio.sleep(min(_PAUSE * tried, 0.05))
        raise StoreFailed(f"{place[1]!r} of {name.tenant!r} is written by too many at once")

    async def _read(self, place: _Place) -> tuple[_Count, int]:
        entry = await self._store.get(self._owner(place), SPACE, place[1])
        if entry is None:
            return _Count(), 0
        return msgspec.msgpack.decode(entry.value, type=_Count), entry.version

    def _owner(self, place: _Place) -> Name:
        return self._name if place[0] == "session" else Name(self._name.tenant, "")


def _check(what: str, cap: Cap, *, spent: Amount, would: Amount) -> None:
    if cap.tokens is not None and spent.tokens + would.tokens > cap.tokens:
        raise Spent(what, spent=spent.tokens, would=would.tokens, limit=cap.tokens, unit="tokens")
    if cap.dollars is not None and spent.pico + would.pico > round(cap.dollars * _PICO):
        raise Spent(
            what, spent=spent.dollars, would=would.dollars, limit=cap.dollars, unit="dollars"
        )


def _sum(spent: Amount, held: dict[str, _Held]) -> Amount:
    return sum((one.amount for one in held.values()), spent)


def _estimate(prices: Prices, tokens_in: int, tokens_out: int, *, cached: int) -> Amount:
    """The most that a call costs if it is as large as that: all that is new may be written."""
    at = prices.at(tokens_in)
    fresh = (tokens_in - cached) * _pico(max(at.input, at.write))
    pico = fresh + cached * _pico(at.read) + tokens_out * _pico(at.output)
    return Amount(tokens_in + tokens_out, pico)


def price(prices: Prices, usage: UsageReported, *, told: tuple[int, int] = (0, 0)) -> Amount:
    """What a call cost by what its provider counted, each token at its own price.

    Input and output that it did not count are `told`.
    """
    tokens_in = told[0] if usage.input is None else usage.input
    tokens_out = told[1] if usage.output is None else usage.output
    at = prices.at(tokens_in)
    read = min(usage.cache_read or 0, tokens_in)
    write = min(usage.cache_write or 0, tokens_in - read)
    fresh = (tokens_in - read - write) * _pico(at.input)
    cached = read * _pico(at.read) + write * _pico(at.write)
    return Amount(tokens_in + tokens_out, fresh + cached + tokens_out * _pico(at.output))


def _pico(price: float) -> int:
    """Dollars for a million tokens as millionths of a millionth of one, for one token."""
    return round(price * 1_000_000)
