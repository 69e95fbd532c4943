"""Caps on tokens and money, folds included.

    spending = Spending(store, name, prices, Caps(session=Cap(dollars=5.0), day=Cap(tokens=10**7)))
    reserved = await spending.reserve_call(12_000, 4_000, turn=17)   # raises `Spent` at a cap
    await spending.settle_call(reserved, usage)                      # what it really took

The most that a call may cost is reserved before it is made: several processes share a cap and
never pass it together. Reservations of a process that died expire.

A session and its newest turn are counted in one side value of the session; a user and a day in
side values of the tenant, only while they have a cap. Money is counted in whole picodollars, so
that sums are exact.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from time import time
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from foldline.core.log import UsageReported
from foldline.core.prices import PICO, PaidTokens, Prices, split_usage
from foldline.errors import BadInput, Erased, Spent
from foldline.stores.base import Name, Store
from foldline.stores.side_values import change_value

SPACE = "spend"
HOLD = 1_800.0
"""Seconds after which an unsettled reservation expires: longer than any call."""
_DAYS = 3 * 86_400.0  # a day's entry is of no use after that
Kind: TypeAlias = Literal["call", "fold"]


@dataclass(frozen=True, slots=True)
class Cap:
    """The most that may be spent; None means no limit."""

    tokens: int | None = None
    dollars: float | None = None

    def __post_init__(self) -> None:
        for limit in (self.tokens, self.dollars):
            if limit is not None and not limit >= 0:
                raise BadInput(f"a cap of {limit}: give what may be spent, 0 or more, or None")


NO_CAP = Cap()


@dataclass(frozen=True, slots=True)
class Caps:
    """Caps for one call, one turn, one session, one user, and a tenant's day."""

    call: Cap = NO_CAP
    turn: Cap = NO_CAP
    session: Cap = NO_CAP
    user: Cap = NO_CAP
    day: Cap = NO_CAP


class Amount(msgspec.Struct, frozen=True, array_like=True):
    """Tokens and their cost in picodollars."""

    tokens: int = 0
    pico: int = 0

    @property
    def dollars(self) -> float:
        """The cost in dollars."""
        return self.pico / PICO

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.tokens + other.tokens, self.pico + other.pico)


NOTHING = Amount()


class Reserved(NamedTuple):
    """The most that one call may take, reserved until its cost is known."""

    id: str
    amount: Amount
    prices: Prices
    tokens: tuple[int, int]
    """Input and output, as estimated."""
    turn: int
    kind: Kind
    day: str


class Counted(NamedTuple):
    """What was spent, without reservations; None where there is no cap."""

    session: Amount
    turn: Amount
    folds: Amount
    """The part of the session's that folds took."""
    user: Amount | None
    day: Amount | None


class _Held(msgspec.Struct, frozen=True, array_like=True):
    amount: Amount
    until: float
    turn: int


class _Count(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry: what is spent, and the reservations by id."""

    spent: Amount = NOTHING
    folds: Amount = NOTHING
    turn: int = -1
    in_turn: Amount = NOTHING
    held: dict[str, _Held] = {}

    def filter_holds(self, one: str, now: float) -> dict[str, _Held]:
        """Return the other reservations that have not expired."""
        return {key: held for key, held in self.held.items() if key != one and held.until > now}


_Place: TypeAlias = tuple[Literal["session", "user", "day"], str]
_Change: TypeAlias = Callable[[_Count], _Count]


def utc_day() -> str:
    """Return today's date in UTC."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


class Spending:
    """The spending of one session, and its caps."""

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

    async def reserve_call(  # noqa: PLR0913 - how much, for whom, at what price
        self,
        tokens_in: int,
        tokens_out: int,
        *,
        cached: int = 0,
        turn: int = -1,
        kind: Kind = "call",
        prices: Prices | None = None,
    ) -> Reserved:
        """Reserve the most that a call may cost: a full answer, and input at the highest price.

        `cached` tokens of the input are known to come from the cache; `turn` is the place of the
        user's message that is being answered. Raises `Spent` and reserves nothing if that would
        exceed a cap.
        """
        prices = prices or self._prices
        amount = estimate_cost(prices, tokens_in, tokens_out, cached=min(cached, tokens_in))
        one = os.urandom(8).hex()
        tokens = (tokens_in, tokens_out)
        reserved = Reserved(one, amount, prices, tokens, turn, kind, self._today())
        _check_cap("call", self.caps.call, spent=NOTHING, would=amount)
        try:
            for place in self._list_places(reserved.day):
                await self._change_entry(place, self._make_reserve_change(place, reserved))
        except BaseException:
            await self.release(reserved)
            raise
        return reserved

    async def settle_call(self, reserved: Reserved, usage: UsageReported | None) -> Amount:
        """Count what a call took instead of its reservation; without usage, the estimate."""
        tokens_in, tokens_out = reserved.tokens
        tokens = split_usage(usage or UsageReported(), tokens_in=tokens_in, tokens_out=tokens_out)
        took = Amount(tokens.total, tokens.compute_price(reserved.prices))
        await self._settle_reservation(reserved, took)
        return took

    async def release(self, reserved: Reserved) -> None:
        """Release the reservation of a call that was refused or not made."""
        await self._settle_reservation(reserved, NOTHING)

    async def read_spent(self) -> Counted:
        """Return what was spent so far."""
        entries = {
            place[0]: await self._read_entry(place) for place in self._list_places(self._today())
        }
        session = entries["session"]
        user, day = (entries[one].spent if one in entries else None for one in ("user", "day"))
        return Counted(session.spent, session.in_turn, session.folds, user, day)

    def _list_places(self, day: str) -> list[_Place]:
        """List the entries to count in: shared ones only if they have a cap."""
        places: list[_Place] = [("session", "session")]
        if self.caps.user != NO_CAP:
            places.append(("user", f"user:{self._user}"))
        if self.caps.day != NO_CAP:
            places.append(("day", f"day:{day}"))
        return places

    def _make_reserve_change(self, place: _Place, reserved: Reserved) -> _Change:
        cap = {"session": self.caps.session, "user": self.caps.user, "day": self.caps.day}[place[0]]

        def reserve_amount(count: _Count) -> _Count:
            now = time()
            held = count.filter_holds(reserved.id, now)
            turn = max(count.turn, reserved.turn)  # a late call counts to the newest turn
            in_turn = count.in_turn if turn == count.turn else NOTHING
            would = reserved.amount
            _check_cap(place[0], cap, spent=_sum_amounts(count.spent, held), would=would)
            if place[0] == "session":
                of_turn = {key: one for key, one in held.items() if one.turn == turn}
                _check_cap(
                    "turn", self.caps.turn, spent=_sum_amounts(in_turn, of_turn), would=would
                )
            held[reserved.id] = _Held(would, now + self._hold, turn)
            return _Count(count.spent, count.folds, turn, in_turn, held)

        return reserve_amount

    async def _settle_reservation(self, reserved: Reserved, took: Amount) -> None:
        for place in self._list_places(reserved.day):

            def settle_amount(count: _Count) -> _Count:
                held = count.held.get(reserved.id)
                turn = held.turn if held else reserved.turn
                left = count.filter_holds(reserved.id, time())
                in_turn = count.in_turn + took if turn == count.turn else count.in_turn
                folds = count.folds + took if reserved.kind == "fold" else count.folds
                return _Count(count.spent + took, folds, count.turn, in_turn, left)

            with suppress(Erased):  # the session is gone; the user's and the day's counts stay
                await self._change_entry(place, settle_amount)

    async def _change_entry(self, place: _Place, change: _Change) -> None:
        """Change an entry that other processes may change, too."""

        def write(value: bytes | None) -> bytes | None:
            count = _decode_count(value)
            new = change(count)
            return value if new == count else msgspec.msgpack.encode(new)

        seconds = _DAYS if place[0] == "day" else None
        name = self._choose_owner(place)
        await change_value(self._store, name, SPACE, place[1], write, seconds=seconds)

    async def _read_entry(self, place: _Place) -> _Count:
        entry = await self._store.get(self._choose_owner(place), SPACE, place[1])
        return _decode_count(entry.value if entry is not None else None)

    def _choose_owner(self, place: _Place) -> Name:
        return self._name if place[0] == "session" else Name(self._name.tenant, "")


def _check_cap(what: str, cap: Cap, *, spent: Amount, would: Amount) -> None:
    if cap.tokens is not None and spent.tokens + would.tokens > cap.tokens:
        raise Spent(what, spent=spent.tokens, would=would.tokens, limit=cap.tokens, unit="tokens")
    if cap.dollars is not None and spent.pico + would.pico > round(cap.dollars * PICO):
        raise Spent(
            what, spent=spent.dollars, would=would.dollars, limit=cap.dollars, unit="dollars"
        )


def _sum_amounts(spent: Amount, held: dict[str, _Held]) -> Amount:
    return sum((one.amount for one in held.values()), spent)


def estimate_cost(prices: Prices, tokens_in: int, tokens_out: int, *, cached: int = 0) -> Amount:
    """Estimate the most that a call costs: everything new may be written to the cache."""
    fresh = PaidTokens(fresh=tokens_in - cached, read=cached, output=tokens_out)
    written = fresh._replace(fresh=0, write=fresh.fresh)
    return Amount(fresh.total, max(one.compute_price(prices) for one in (fresh, written)))


def _decode_count(value: bytes | None) -> _Count:
    return msgspec.msgpack.decode(value, type=_Count) if value else _Count()
