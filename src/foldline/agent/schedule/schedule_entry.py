"""An entry of the schedule: its cron expression, and its states as time goes by.

    settle_or_claim(entry, now)   due: claimed for a worker · too late: counted as missed
    mark_fired(entry, place)      the claimed message is in the log, and an answer is owed
    mark_lost(entry, why)         the claimed message cannot be sent: the entry is stopped

Every time before `next` is fired, missed or claimed; there is no fourth. A claim names the time it
fires. When it expires, another worker fires that time again under the same key, however late:
it is unknown whether the message was written, and under its key it is written once.

When clocks change, as in Debian's cron:
- Fixed hours and minutes come once: a time the clock leaps over comes at the first minute after
  the leap, a time the clock shows twice comes the first time.
- An expression whose minute or hour begins with `*`, or that has seconds, follows the clock: a time
  leapt over does not come, a time shown twice comes twice.

Pure: knows no clock, store or session.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args
from zoneinfo import ZoneInfo, available_timezones

import msgspec
from msgspec.structs import replace

from foldline.errors import BadInput

if TYPE_CHECKING:
    from cronsim import CronSim

_BEGIN = datetime(2000, 1, 1, tzinfo=UTC)
_LONGEST_CRON = 200  # characters of an expression
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
    """The times of a cron expression in a time zone.

    Times("0 9 * * 1-5", "Europe/Berlin").iterate_after(now)    # weekdays at nine, in UTC
    """

    def __init__(self, cron: str, zone: str = "UTC") -> None:
        self.zone = _parse_zone(zone)
        self._cron = _check_expression(cron)
        if next(self.iterate_after(_BEGIN), None) is None:
            raise BadInput(
                f"the cron expression {cron!r} never comes: no month has such a day; "
                "change its day of month, or its month"
            )

    def iterate_after(self, then: datetime) -> Iterator[datetime]:
        """Yield every time after `then`, in UTC, the earliest first."""
        # When the clock shows a time twice, the simulator gives the first, which may be over.
        local = then.astimezone(self.zone)
        return (
            time
            for one in _make_simulator(self._cron, local)
            if (time := one.astimezone(UTC)) > then
        )


times_of = lru_cache(maxsize=1_000)(Times)
"""`Times`, cached: a worker asks for an entry's next time again and again."""


def _check_expression(cron: str) -> str:
    """Return the expression normalised; the error names the wrong field and what it takes."""
    if find_spec("cronsim") is None:
        raise BadInput(
            "schedules need 'cronsim', which is not installed; pip install 'foldline[schedule]'"
        )
    fields = cron[: _LONGEST_CRON + 1].split()
    if len(fields) == 1 and (instead := _NAMED.get(fields[0].lower())):
        raise BadInput(f"the cron expression {cron!r}: write {instead!r}")
    if len(cron) > _LONGEST_CRON or len(fields) not in (_FEW, _MANY):
        raise BadInput(
            f"the cron expression {cron[:_LONGEST_CRON]!r} has {len(fields)} fields; write five, "
            "minute hour day month weekday, like '0 9 * * 1-5', or six, seconds first"
        )
    for at, (field, named) in enumerate(zip(fields, _FIELDS[-len(fields) :], strict=True)):
        alone = [*("*" * at), field, *("*" * (len(fields) - at - 1))]
        if not _can_parse(" ".join(alone)):
            raise BadInput(
                f"the cron expression {cron!r}: its {named.name} {field!r} cannot be read; it "
                f"takes {named.takes}, '*', lists 1,2, ranges 1-5 and steps */2"
            )
    whole = " ".join(fields)
    if not _can_parse(whole):
        raise BadInput(
            f"the cron expression {cron!r} never comes: no month of those has such a day; "
            "change its day of month, or its month"
        )
    return whole


def _can_parse(cron: str) -> bool:
    from cronsim import CronSimError  # noqa: PLC0415 - an extra

    try:
        _make_simulator(cron, _BEGIN)
    except (CronSimError, AssertionError, ValueError, TypeError):
        return False
    return True


def _make_simulator(cron: str, begin: datetime) -> "CronSim":
    from cronsim import CronSim  # noqa: PLC0415 - an extra

    return CronSim(cron, begin)


def _parse_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        near = get_close_matches(name, available_timezones(), n=2, cutoff=0.5)
        last = [one for one in sorted(available_timezones()) if one.lower().endswith(name.lower())]
        found = [*(last if name else ()), *near][:2]
        hint = f"did you mean {' or '.join(found)}?" if found else "write one like Europe/Berlin"
        raise BadInput(f"there is no time zone {name[:80]!r}; {hint}") from None


Rule: TypeAlias = Literal["skip", "once", "all"]
ON_TIME = 60.0
"""Seconds of delay that do not make a time late: workers are busy and clocks differ."""
MOST = 100
"""Runs that the rule `all` makes up for; older ones are counted as missed."""
_LOOK = 10_000  # times examined in one step: a worker may have been away for years
_GAPS = 10  # gaps an entry remembers
_LONGEST_NAME = 64  # characters of a name
_SAID = 20_000  # characters of an entry's words


class Missed(msgspec.Struct, frozen=True):
    """Times that passed without being fired."""

    first: datetime
    last: datetime
    count: int
    why: str


class Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    """A time that a worker is about to fire; after `until` another takes it over."""

    at: datetime
    by: str
    until: datetime
    stands_for: int = 0
    """How many missed times this run makes up for, besides its own."""
    since: datetime | None = None
    """The first of them."""
    late: bool = False


class Owed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message in the log that the agent has not answered yet."""

    place: int
    until: datetime
    """When any worker may try again."""
    tries: int = 0


class ScheduleEntry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A message for a session, when it is sent, and how far it has come."""

    name: str
    session: str
    cron: str
    words: str
    next: datetime
    """The first time that is neither fired, missed nor claimed."""
    zone: str = "UTC"
    rule: Rule = "once"
    lateness: float | None = None
    """Seconds after which a time is no longer made up for; None: never."""
    enabled: bool = True
    claim: Claim | None = None
    owed: Owed | None = None
    fired: int = 0
    last: datetime | None = None
    """The last time that was fired."""
    missed: int = 0
    gaps: tuple[Missed, ...] = ()
    """The newest gaps, the oldest first."""
    lapsed: int = 0
    """Missed since the last run, under the rule `once`."""
    since: datetime | None = None
    fault: str = ""
    """Why it was stopped, or why the last answer failed."""
    removed: bool = False


def build_schedule_entry(  # noqa: PLR0913 - what an entry has
    name: str,
    session: str,
    *,
    cron: str,
    words: str,
    now: datetime,
    zone: str = "UTC",
    rule: Rule = "once",
    lateness: float | None = None,
) -> ScheduleEntry:
    """Check the values and build an entry, first due after `now`."""
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise BadInput(
            f"{name[:80]!r} is no name of an entry; write 1 to {_LONGEST_NAME} characters that "
            "can be seen"
        )
    if not words.strip() or len(words) > _SAID:
        raise BadInput(f"an entry says 1 to {_SAID:,} characters, and not blanks alone")
    if rule not in get_args(Rule):
        raise BadInput(f"there is no rule {rule!r} for missed runs; write skip, once or all")
    if lateness is not None and not lateness > 0:
        raise BadInput("the most lateness is more than nothing; leave it out where there is none")
    return ScheduleEntry(
        name=name,
        session=session,
        cron=cron,
        words=words,
        next=next(times_of(cron, zone).iterate_after(now)),
        zone=zone,
        rule=rule,
        lateness=lateness,
    )


def settle_or_claim(
    entry: ScheduleEntry, now: datetime, *, by: str, hold: float
) -> ScheduleEntry | None:
    """Claim what is due for the worker `by`, or count it as missed; None if nothing is due.

    Each call settles or claims one thing; call it until it returns None.
    """
    until = now + timedelta(seconds=hold)
    if entry.claim is not None:
        if entry.claim.until > now:
            return None
        return replace(entry, claim=replace(entry.claim, by=by, until=until))
    if not entry.enabled or entry.removed or entry.next > now:
        return None
    due = _list_due_times(entry, now)
    if len(due) > _LOOK:  # there are more, and all of these are late
        return _record_missed_times(
            entry, due[: _LOOK - MOST], due[_LOOK - MOST], "nobody was there"
        )
    late = [one for one in due if _measure_age(one, now) > ON_TIME]
    gone, why = _select_missed_times(entry, due, late, now)
    if gone:
        return _record_missed_times(
            entry, gone, due[len(gone)] if len(gone) < len(due) else None, why
        )
    if late and entry.rule == "once":
        entry = _record_missed_times(entry, due[:-1], due[-1], "one run stands for them")
        due = due[-1:]
    upcoming = due[1] if len(due) > 1 else _compute_next_time(entry, due[0])
    claim = Claim(
        at=due[0],
        by=by,
        until=until,
        stands_for=entry.lapsed,
        since=entry.since,
        late=_measure_age(due[0], now) > ON_TIME,
    )
    return replace(entry, next=upcoming, claim=claim, lapsed=0, since=None)


def mark_fired(entry: ScheduleEntry, place: int, *, until: datetime) -> ScheduleEntry:
    """Record that the claimed message is in the log, at `place`."""
    claim = entry.claim
    assert claim is not None  # noqa: S101 - the caller has checked
    # An answer to the newest message answers those before it too.
    owed = Owed(max(place, entry.owed.place if entry.owed else -1), until)
    return replace(entry, claim=None, owed=owed, fired=entry.fired + 1, last=claim.at)


def mark_lost(entry: ScheduleEntry, why: str) -> ScheduleEntry:
    """Record that the claimed message cannot be sent, and stop the entry."""
    claim = entry.claim
    assert claim is not None  # noqa: S101 - the caller has checked
    entry = _record_missed_times(entry, [claim.at], entry.next, why)
    return replace(entry, claim=None, enabled=False, lapsed=0, since=None, fault=why)


def render_run_message(entry: ScheduleEntry, claim: Claim) -> str:
    """Render a run's message; a late one says so, and how many runs it stands for."""
    zone = times_of(entry.cron, entry.zone).zone

    def format_time(time: datetime) -> str:
        return f"{time.astimezone(zone):%Y-%m-%d %H:%M %Z}"

    notes: list[str] = []
    if claim.late:
        notes.append(f"this run was due {format_time(claim.at)} and is late")
    if claim.stands_for and claim.since:
        runs = f"{claim.stands_for:,} run{'s' if claim.stands_for > 1 else ''}"
        were = "were" if claim.stands_for > 1 else "was"
        notes.append(
            f"{runs} before it {were} missed since {format_time(claim.since)}; this one "
            f"stands for all"
        )
    return f"{entry.words}\n\n[{'; '.join(notes)}]" if notes else entry.words


def make_run_key(entry: ScheduleEntry, at: datetime) -> str:
    """Make a run's idempotency key: a second append with it is ignored."""
    return f"cron:{entry.name}:{at:%Y-%m-%dT%H:%M:%SZ}"


def pause_entry(entry: ScheduleEntry, now: datetime) -> ScheduleEntry:
    """Pause an entry; what was due before and not fired counts as missed."""
    while entry.enabled and entry.next <= now:
        entry = _record_missed_times(entry, _list_due_times(entry, now), None, "it was paused")
    return replace(entry, enabled=False)


def resume_entry(entry: ScheduleEntry, now: datetime) -> ScheduleEntry:
    """Resume an entry; times that passed while it was paused are not missed."""
    if entry.enabled:
        return entry
    return replace(
        entry, enabled=True, next=_compute_next_time(entry, now), lapsed=0, since=None, fault=""
    )


def _list_due_times(entry: ScheduleEntry, now: datetime) -> list[datetime]:
    coming = times_of(entry.cron, entry.zone).iterate_after(entry.next)
    return [entry.next, *islice(takewhile(lambda one: one <= now, coming), _LOOK)]


def _select_missed_times(
    entry: ScheduleEntry, due: Sequence[datetime], late: Sequence[datetime], now: datetime
) -> tuple[Sequence[datetime], str]:
    """Select the oldest due times that are not made up for, and say why."""
    most = entry.lateness
    stale = [one for one in due if most is not None and _measure_age(one, now) > most]
    ruled = {"skip": late, "once": late[:0], "all": late[:-MOST]}[entry.rule]
    if len(stale) > len(ruled):
        return stale, f"more than {most:g} s late"
    return ruled, "its rule is skip" if entry.rule == "skip" else f"more than {MOST} were missed"


def _record_missed_times(
    entry: ScheduleEntry, gone: Sequence[datetime], upcoming: datetime | None, why: str
) -> ScheduleEntry:
    if not gone:
        return entry
    gaps = (*entry.gaps, Missed(gone[0], gone[-1], len(gone), why))
    entry = replace(
        entry,
        next=upcoming or _compute_next_time(entry, gone[-1]),
        missed=entry.missed + len(gone),
        gaps=gaps[-_GAPS:],
    )
    if entry.rule != "once":
        return entry
    return replace(entry, lapsed=entry.lapsed + len(gone), since=entry.since or gone[0])


def _compute_next_time(entry: ScheduleEntry, then: datetime) -> datetime:
    return next(times_of(entry.cron, entry.zone).iterate_after(then))


def _measure_age(one: datetime, now: datetime) -> float:
    return (now - one).total_seconds()
