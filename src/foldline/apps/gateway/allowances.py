"""What several processes may use together, and how each takes its part of it: arithmetic alone.

A limit is counted in a `Tally` that all processes share, one for each window of time. A process
holds a `Lease` of it: an allowance that it may use without asking. From time to time it trades:

    tally, trade = make_trade(tally, part, "process 7", measure=…, limit=…, now=…)
    … write the tally, unless another process was first …
    part.confirm_trade(trade)

A trade reports what was used, gives back what is idle, and takes as much as calls need, with some
more while plenty is left. What was used and all leases together never exceed the limit, so the
calls of all processes never do, as long as no call takes more than was reserved for it.

A process that dies reports nothing more. When its lease has expired, all of it counts as used: what
was spent is never forgotten, and at most the idle part of one lease is counted too much. If the
process lives after all, its next trade puts the count right.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

WindowKind: TypeAlias = Literal["", "minute", "day", "month"]
_MINUTE, _DAY = 60, 86_400
_HORIZON = 3.0  # seconds of its own pace that a process takes in advance
_SOONEST = 1.0  # seconds over which that pace is measured at least
_HALVES = 2  # of what is free, the parts that all holders may take in advance: one of them
_IDLE = 8  # one of so many parts of a limit may be idle, in all leases together
_AHEAD = 32  # one of so many parts of a limit may be taken in advance by whoever lacks it
_REMEMBERED = 86_400.0  # seconds after which an ended lease is forgotten
_DECEMBER = 12


class Measure(NamedTuple):
    """What a limit counts."""

    name: str
    """As operators write it."""
    window: WindowKind
    """How long it counts; "" for what is under way now."""
    lasting: float
    """Seconds of a lease. One of another kind than money ends with its window at the latest."""

    @property
    def is_money(self) -> bool:
        """Whether it counts picodollars."""
        return self.name.startswith("dollars")

    @property
    def depends_on_body(self) -> bool:
        """Whether one call may take more of it than another."""
        return self.is_money or self.name == "tokens_per_minute"

    @property
    def adds_up(self) -> bool:
        """Whether what was used stays used until the window ends."""
        return bool(self.window)


MEASURES: Final = {
    one.name: one
    for one in (
        Measure("requests_per_minute", "minute", 120.0),
        Measure("tokens_per_minute", "minute", 120.0),
        Measure("dollars_per_day", "day", 900.0),
        Measure("dollars_per_month", "month", 900.0),
        Measure("concurrent_calls", "", 60.0),
    )
}


def number_window(kind: WindowKind, now: float) -> int:
    """Return the number of the window at a time, in UTC; they count up."""
    match kind:
        case "minute":
            return int(now // _MINUTE)
        case "day":
            return int(now // _DAY)
        case "month":
            date = datetime.fromtimestamp(now, UTC)
            return date.year * _DECEMBER + date.month - 1
        case _:
            return 0


def find_window_end(kind: WindowKind, number: int) -> float:
    """Return when a window ends, in seconds since 1970."""
    match kind:
        case "minute":
            return float((number + 1) * _MINUTE)
        case "day":
            return float((number + 1) * _DAY)
        case "month":
            year, month = divmod(number + 1, _DECEMBER)
            return datetime(year, month + 1, 1, tzinfo=UTC).timestamp()
        case _:
            return float("inf")


class Allowance(msgspec.Struct, array_like=True, frozen=True):
    """The lease of one process: how much it may still use without asking."""

    held: int
    until: float
    serial: int
    """The number of the trade that made it."""


class Tally(msgspec.Struct, array_like=True, frozen=True):
    """One limit's count in one window, as all processes share it."""

    window: int = 0
    spent: int = 0
    """What was reported as used, and the leases that ended without a report."""
    leases: dict[str, Allowance] = {}
    ended: dict[str, Allowance] = {}
    """Leases that are counted in `spent`, for processes that come back."""


@dataclass(frozen=True, slots=True)
class Trade:
    """What a trade makes of a process' part, once it is written."""

    serial: int
    used: int
    """What it reports."""
    held: int
    until: float
    free: int
    """What this process could take at most, its lease included."""
    spent: int
    """What is spent then, by all processes."""
    holders: int
    at: float
    spare: int = 0
    """How much more it holds than calls need."""


@dataclass(slots=True)
class Part:
    """The part of a tally that this process has."""

    window: int = 0
    held: int = 0
    """Its lease, as far as is known."""
    until: float = 0.0
    used: int = 0
    """Used and not reported yet."""
    reserved: int = 0
    """Reserved for calls under way."""
    waiting: int = 0
    """What calls need that wait for a trade."""
    serial: int = 0
    sent: Trade | None = None
    """A trade of which nobody knows whether it was written."""
    free: int = 0
    spent: int = 0
    holders: int = 1
    traded: float = 0.0
    """When the last trade was made; 0.0 before the first."""
    pace: int = 0
    """What calls took since."""
    granted: int = 0
    """What it was given in this window."""
    spare: int = 0
    """What it took in advance at the last trade."""

    def find_left(self, now: float) -> int:
        """Return what may be taken without asking."""
        if now >= self.until:
            return 0
        held = self.held
        if self.sent is not None:  # what it gives back may be another's already
            held = min(held, self.sent.held + self.sent.used)
        return held - self.used - self.reserved

    def reserve_need(self, need: int) -> None:
        """Reserve what a call may take."""
        self.reserved += need

    def settle_need(self, need: int, took: int) -> None:
        """Count what a call took instead of what was reserved for it."""
        self.reserved -= need
        self.used += took
        self.pace += took

    def find_idle(self) -> int:
        """Return what is held and not needed now."""
        return self.held - self.used - self.reserved

    def find_spent(self) -> int:
        """Return what is used of the limit, as far as this process knows."""
        return self.spent + self.used + self.reserved

    def keeps_too_much(self, limit: int, now: float) -> bool:
        """Whether so much is idle that others may lack it."""
        least = min(limit // (_IDLE * self.holders), max(self.free, 0) // (_HALVES * self.holders))
        return self.find_idle() > (
            least if now - self.traded > _HORIZON else max(least, self.spare)
        )

    def must_report(self, limit: int, now: float) -> bool:
        """Whether so much was used that others should know of it."""
        much = limit // (100 if self.free * 10 > limit else 1_000)
        return self.used > much and now - self.traded > _HORIZON

    def confirm_trade(self, trade: Trade) -> None:
        """Take over a trade that was written."""
        self.granted += max(trade.held + trade.used - self.held, 0)
        self.held, self.until, self.serial = trade.held, trade.until, trade.serial
        self.used -= trade.used
        self.free, self.spent, self.holders = trade.free, trade.spent, trade.holders
        self.traded, self.spare, self.pace, self.sent = trade.at, trade.spare, 0, None


def make_trade(  # noqa: PLR0913 - a tally, whose part, and what holds for it
    tally: Tally,
    part: Part,
    process: str,
    *,
    measure: Measure,
    limit: int,
    now: float,
    ending: bool = False,
) -> tuple[Tally, Trade]:
    """Report what a process used, and renew its lease; `ending` keeps only what calls need.

    The tally is as the store has it; one of an earlier window begins anew.
    """
    if tally.window < part.window:
        tally = Tally(part.window)
    tally = end_leases(tally, process, measure=measure, now=now)
    leases, ended = {**tally.leases}, {**tally.ended}
    mine, counted = leases.pop(process, None), ended.pop(process, None)
    _resolve_sent(part, mine or counted)
    # A lease that ended is in `spent` already. One that is nowhere was never written, or was lost.
    spent = tally.spent
    if measure.adds_up:
        spent = max(spent + part.used - (counted.held if counted is not None else 0), 0)
    free = limit - spent - sum(one.held for one in leases.values())
    others = sum(one.held > 0 for one in leases.values())
    needed = part.reserved + part.waiting
    more = 0
    if not ending:
        spare = free - needed
        more = _choose_advance(part, measure, limit=limit, free=spare, holders=others + 1, now=now)
    held = max(min(needed + more, free), part.reserved, 0)
    serial, until = part.serial + 1, now + measure.lasting
    leases[process] = Allowance(held, until, serial)  # one of nothing, too: by it a trade is found
    made = Tally(tally.window, spent, leases, ended)
    spare = max(held - needed, 0)
    return made, Trade(serial, part.used, held, until, free, spent, others + 1, now, spare)


def end_leases(tally: Tally, process: str, *, measure: Measure, now: float) -> Tally:
    """Count the leases of others that have expired as used; those of things under way are free."""
    late = [name for name, one in tally.leases.items() if one.until <= now and name != process]
    old = [name for name, one in tally.ended.items() if one.until + _REMEMBERED < now]
    if not late and not old:
        return tally
    spent = tally.spent
    leases = {name: one for name, one in tally.leases.items() if name not in late}
    ended = {name: one for name, one in tally.ended.items() if name not in old}
    if measure.adds_up:
        for name in late:
            ended[name] = tally.leases[name]
            spent += tally.leases[name].held
    return Tally(tally.window, spent, leases, ended)


def _resolve_sent(part: Part, written: Allowance | None) -> None:
    """Find out whether a trade was written whose answer was lost: its lease has its number."""
    sent, part.sent = part.sent, None
    if sent is None:
        return
    if written is not None and written.serial == sent.serial:
        part.confirm_trade(sent)
    else:
        part.serial = max(part.serial, sent.serial)


def _choose_advance(  # noqa: PLR0913 - of what, and how much of it there is
    part: Part, measure: Measure, *, limit: int, free: int, holders: int, now: float
) -> int:
    """Choose how much to hold beside what calls need: less, the less is free."""
    pace = 0
    if measure.adds_up and part.traded:  # a place that one call leaves is the next one's
        pace = int(part.pace / max(now - part.traded, _SOONEST) * _HORIZON)
    idle = max(part.find_idle() - part.waiting, 0)
    # As much again where calls lack it, so that a process soon needs no trade for each call.
    kept = min(max(idle, part.waiting), limit // (_IDLE * holders))
    ahead = limit // (_AHEAD * holders) if measure.adds_up and part.waiting else 0
    return min(max(pace, kept, ahead), max(free, 0) // (_HALVES * holders))
