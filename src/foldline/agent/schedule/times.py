"""A cron expression in a time zone: when it comes, and what is wrong with it.

    Times("0 9 * * 1-5", "Europe/Berlin").after(now)      # every weekday at nine, in UTC

When clocks change, as Debian's cron has it:
- An expression of fixed hours and minutes comes once: a time that the clock leaps over comes at the
  first minute behind the leap, a time that the clock shows twice comes the first time.
- One whose minute or hour begins with `*`, and one with seconds, follows the clock: a time that is
  leapt over does not come, one that is shown twice comes twice.

Knows expressions and zones. Refuses to know what the time is.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from foldline.errors import BadInput

if TYPE_CHECKING:
    from cronsim import CronSim

_BEGIN = datetime(2000, 1, 1, tzinfo=UTC)
_LONGEST = 200  # characters of an expression
_FEW, _MANY = 5, 6  # fields, without and with seconds


class _CronField(NamedTuple):
    name: str
    takes: str


_FIELDS = (
    _CronField("second", "0-59"),
    _CronField("minute", "0-59"),
    _CronField("hour", "0-23"),
    _CronField("day of month", "1-31 or L"),
    _CronField("month", "1-12 or JAN-DEC"),
    _CronField("weekday", "0-7 or SUN-SAT (0 and 7 are Sunday)"),
)
_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class Times:
    """When an expression comes, in a zone."""

    def __init__(self, cron: str, zone: str = "UTC") -> None:
        self.zone = _zone(zone)
        self._cron = _sound(cron)
        if next(self.after(_BEGIN), None) is None:
            raise BadInput(
                f"the cron expression {cron!r} never comes: no month has such a day; "
                "change its day of month, or its month"
            )

    def after(self, then: datetime) -> Iterator[datetime]:
        """Every time behind `then`, in UTC, the earliest first."""
        # A time that the clock shows for the second time is behind its first, which has come.
        local = then.astimezone(self.zone)
        return (
            time for one in _simulated(self._cron, local) if (time := one.astimezone(UTC)) > then
        )


times_of = lru_cache(maxsize=1_000)(Times)
"""The same, kept: a worker asks for the next time of an entry again and again."""


def _sound(cron: str) -> str:
    """An expression that can be read; else which field is wrong, and what it takes."""
    if find_spec("cronsim") is None:
        raise BadInput(
            "schedules need 'cronsim', which is not installed; pip install 'foldline[schedule]'"
        )
    fields = cron[: _LONGEST + 1].split()
    if len(fields) == 1 and (instead := _NAMED.get(fields[0].lower())):
        raise BadInput(f"the cron expression {cron!r}: write {instead!r}")
    if len(cron) > _LONGEST or len(fields) not in (_FEW, _MANY):
        raise BadInput(
            f"the cron expression {cron[:_LONGEST]!r} has {len(fields)} fields; write five, "
            "minute hour day month weekday, like '0 9 * * 1-5', or six, seconds first"
        )
    for at, (field, named) in enumerate(zip(fields, _FIELDS[-len(fields) :], strict=True)):
        alone = [*("*" * at), field, *("*" * (len(fields) - at - 1))]
        if not _reads(" ".join(alone)):
            raise BadInput(
                f"the cron expression {cron!r}: its {named.name} {field!r} cannot be read; it "
                f"takes {named.takes}, '*', lists 1,2, ranges 1-5 and steps */2"
            )
    whole = " ".join(fields)
    if not _reads(whole):
        raise BadInput(
            f"the cron expression {cron!r} never comes: no month of those has such a day; "
            "change its day of month, or its month"
        )
    return whole


def _reads(cron: str) -> bool:
    from cronsim import CronSimError  # noqa: PLC0415 - an extra

    try:
        _simulated(cron, _BEGIN)
    except (CronSimError, AssertionError, ValueError, TypeError):
        return False
    return True


def _simulated(cron: str, begin: datetime) -> "CronSim":
    from cronsim import CronSim  # noqa: PLC0415 - an extra

    return CronSim(cron, begin)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        near = get_close_matches(name, available_timezones(), n=2, cutoff=0.5)
        last = [one for one in sorted(available_timezones()) if one.lower().endswith(name.lower())]
        found = [*(last if name else ()), *near][:2]
        hint = f"did you mean {' or '.join(found)}?" if found else "write one like Europe/Berlin"
        raise BadInput(f"there is no time zone {name[:80]!r}; {hint}") from None
