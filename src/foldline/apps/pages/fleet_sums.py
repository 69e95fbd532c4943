"""The figures of the fleet: from usage rows where there are some, else from logs.

    rows, reading = await lists.usage.read_days(["acme"], first, last)
    rows += list_log_rows("acme", figures, first, last, counted=rows)
    for total in sum_fleet(rows).models: ...

A gateway and the session API write usage rows. Where an owner has some on a day, these are all that
is counted of the day: the same calls are in logs, too. Every row says where it comes from.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import gmtime, monotonic, strftime, time
from typing import Any, Literal, NamedTuple, TypeAlias

from foldline.apps.pages.figures import TenantFigures
from foldline.errors import FoldlineError
from foldline.session.usage_records import ADDED_SECONDS, UsageSums, read_usage
from foldline.stores.base import Store

SECONDS = 86_400
"""Of a day."""
_KEPT = 20_000  # days of tenants that are kept in memory
_FRESH = 5.0  # seconds in which a day is not read again: gateways write every five
_OVER = 600.0  # the same of a day that has been over for a while
_LATE = 900.0  # seconds after its end until a day is over for all processes
_AT_ONCE = 8  # days read at a time
_PATIENCE = 0.08  # seconds that a page waits for usage

FleetSource: TypeAlias = Literal["usage", "logs"]


class FleetRow(NamedTuple):
    """What an owner did on a day with a model."""

    tenant: str
    day: str
    owner: str
    model: str
    source: FleetSource
    sums: UsageSums


class AddedTime(NamedTuple):
    """A quantile of the seconds that requests were here, as far as a histogram tells."""

    most: float
    """No longer than this; 0 if nothing was counted."""
    is_longer: bool = False
    """Whether it is longer instead."""


@dataclass(slots=True)
class FleetTotal:
    """The sums of rows that are equal in one thing."""

    name: str
    sums: UsageSums = field(default_factory=UsageSums)
    sources: set[str] = field(default_factory=set[str])
    days: dict[str, int] = field(default_factory=dict[str, int])
    """The picodollars of each day."""

    def add(self, row: FleetRow) -> None:
        """Add a row."""
        self.sums.merge(row.sums)
        self.sources.add(row.source)
        self.days[row.day] = self.days.get(row.day, 0) + row.sums.pico

    def add_total(self, other: "FleetTotal") -> None:
        """Add other sums."""
        self.sums.merge(other.sums)
        self.sources |= other.sources
        for day, pico in other.days.items():
            self.days[day] = self.days.get(day, 0) + pico

    @property
    def source(self) -> str:
        """Where the sums come from, in words."""
        return "both" if len(self.sources) > 1 else "".join(self.sources)

    @property
    def has_usage(self) -> bool:
        """Whether savings, healed refusals, errors and added time are known at all."""
        return "usage" in self.sources


@dataclass(slots=True)
class FleetSums:
    """All sums of a page."""

    whole: FleetTotal
    tenants: list[FleetTotal]
    """The dearest first, as in the lists below."""
    owners: list[FleetTotal]
    models: list[FleetTotal]
    days: dict[str, FleetTotal]


def sum_fleet(rows: Iterable[FleetRow]) -> FleetSums:
    """Sum rows by tenant, by owner, by model and by day."""
    days: dict[str, FleetTotal] = {}
    callers: dict[tuple[str, str, str], FleetTotal] = {}
    for row in rows:
        days.setdefault(row.day, FleetTotal(row.day)).add(row)
        key = row.tenant, row.owner, row.model
        callers.setdefault(key, FleetTotal("")).add(row)
    # There are many rows, and few that ask: the tables are summed from these.
    whole = FleetTotal("all")
    for one in days.values():
        whole.add_total(one)
    tenants, owners, models = (_sum_callers(callers, at) for at in range(3))
    return FleetSums(whole, tenants, owners, models, days)


def _sum_callers(callers: Mapping[tuple[str, str, str], FleetTotal], at: int) -> list[FleetTotal]:
    totals: dict[str, FleetTotal] = {}
    for key, one in callers.items():
        totals.setdefault(key[at], FleetTotal(key[at])).add_total(one)
    return sorted(totals.values(), key=lambda one: (-one.sums.pico, -one.sums.calls, one.name))


def find_added(sums: UsageSums, share: float) -> AddedTime:
    """Find a quantile of the time that requests were here before they were sent on."""
    total, seen = sum(sums.added_counts), 0
    if not total:
        return AddedTime(0.0)
    for most, count in zip(ADDED_SECONDS, sums.added_counts, strict=False):
        seen += count
        if seen >= share * total:
            return AddedTime(most)
    return AddedTime(ADDED_SECONDS[-1], is_longer=True)


def name_day(number: int) -> str:
    """Name a day by its number since 1970."""
    return strftime("%Y-%m-%d", gmtime(number * SECONDS))


def list_log_rows(
    tenant: str, figures: TenantFigures, first: int, last: int, *, counted: Sequence[FleetRow]
) -> list[FleetRow]:
    """List what logs say of owners on days of which no usage rows are `counted`."""
    known = {(one.day, one.owner) for one in counted if one.tenant == tenant}
    begin, end = name_day(first), name_day(last)
    return [
        FleetRow(tenant, day, owner, model, "logs", sums)
        for (day, owner, model), sums in figures.groups.items()
        if begin <= day <= end and (day, owner) not in known
    ]


@dataclass(frozen=True, slots=True)
class _UsageDayRead:
    """A day of a tenant as it was when it was read."""

    read_at: float
    fresh: float
    """Seconds in which it is not read again."""
    rows: tuple[FleetRow, ...] = ()
    fault: str = ""


class UsageRead(NamedTuple):
    """The usage of some days."""

    rows: list[FleetRow]
    is_whole: bool
    """Whether all days have been read; else they are being read."""
    fault: str
    """Why a day could not be read, or ""."""


class UsageKept:
    """Usage rows, read in the background day by day, and kept in this process for a while."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._days: OrderedDict[tuple[str, int], _UsageDayRead] = OrderedDict()
        self._wanted: dict[tuple[str, int], None] = {}
        self._task: asyncio.Task[Any] | None = None

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def read_days(
        self, tenants: Sequence[str], first: int, last: int, *, patience: float | None = None
    ) -> UsageRead:
        """Return the rows of tenants and days, as far as they are read."""
        pairs = [(one, day) for day in range(last, first - 1, -1) for one in tenants][:_KEPT]
        now = monotonic()
        stale = [one for one in pairs if self._is_stale(one, now)]
        if stale:
            self._wanted.update(dict.fromkeys(stale))
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._read_wanted())
            await asyncio.wait({self._task}, timeout=_PATIENCE if patience is None else patience)
            if self._task.done():
                self._task.result()  # a fault of ours is shown
        found = [day for one in pairs if (day := self._days.get(one)) is not None]
        return UsageRead(
            [row for day in found for row in day.rows],
            len(found) == len(tenants) * (last - first + 1),
            next((day.fault for day in found if day.fault), ""),
        )

    def _is_stale(self, pair: tuple[str, int], now: float) -> bool:
        kept = self._days.get(pair)
        return kept is None or now - kept.read_at > kept.fresh

    async def _read_wanted(self) -> None:
        while self._wanted:
            pairs = list(self._wanted)[:_AT_ONCE]
            found = await asyncio.gather(*(self._read_day(*one) for one in pairs))
            for pair, day in zip(pairs, found, strict=True):
                self._wanted.pop(pair, None)
                self._days[pair] = day
                self._days.move_to_end(pair)
            while len(self._days) > _KEPT:
                self._days.popitem(last=False)

    async def _read_day(self, tenant: str, day: int) -> _UsageDayRead:
        is_over = time() > (day + 1) * SECONDS + _LATE
        fresh, begin = _OVER if is_over else _FRESH, day * SECONDS
        try:
            # The last hour begins before the last second: the next day's rows are not read.
            rows = await read_usage(self._store, tenant, since=begin, until=begin + SECONDS - 1)
        except FoldlineError as fault:
            return _UsageDayRead(monotonic(), _FRESH, fault=str(fault))
        groups: dict[tuple[str, str], UsageSums] = {}
        for row in rows:
            key = row.group.owner, row.group.model
            groups.setdefault(key, UsageSums()).merge(row.sums)
        name = name_day(day)
        return _UsageDayRead(
            monotonic(),
            fresh,
            tuple(
                FleetRow(tenant, name, owner, model, "usage", sums)
                for (owner, model), sums in groups.items()
            ),
        )
