"""An entry of the schedule, and what becomes of it as time goes by.

    step(entry, now)      nothing · due: claimed for a worker · too late: counted as missed
    fired(entry, place)   what was claimed stands in the log, and an answer to it is owed
    lost(entry, why)      what was claimed cannot be said: missed, and the entry is stopped

Every time before `next` is fired, counted as missed, or claimed; there is no fourth. A claim names
the time that is fired, so that whoever takes it over when it has run out fires that one again,
under the same key, however late it has become: nobody knows whether it was said, and under its key
it is said once. Knows rules and numbers. Refuses to know the clock, stores and sessions.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from foldline.agent.schedule.times import times_of
from foldline.errors import BadInput

Rule: TypeAlias = Literal["skip", "once", "all"]
ON_TIME = 60.0
"""Seconds within which a time is no missed one: workers are busy and clocks differ."""
MOST = 100
"""Runs that the rule `all` makes up for; older ones are counted."""
_LOOK = 10_000  # times that are looked at in one step: a worker may have been away for years
_GAPS = 10  # that an entry remembers
_LONGEST = 64  # characters of a name
_SAID = 20_000  # characters of an entry's words


class Missed(msgspec.Struct, frozen=True):
    """Times that came and were not fired."""

    first: datetime
    last: datetime
    count: int
    why: str


class Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    """A time that a worker is about to fire; another does when it has run out."""

    at: datetime
    by: str
    until: datetime
    stands_for: int = 0
    """The missed times that this run makes up for, besides its own."""
    since: datetime | None = None
    """The first of them."""
    late: bool = False


class Owed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message in the log that the agent has not answered yet."""

    place: int
    until: datetime
    """When it is tried again, by whoever sees it."""
    tries: int = 0


class ScheduleEntry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is said, where and when; and how far it has come."""

    name: str
    session: str
    cron: str
    words: str
    next: datetime
    """The first time that is neither fired, missed nor claimed."""
    zone: str = "UTC"
    rule: Rule = "once"
    lateness: float | None = None
    """Seconds after which a time is not made up for any more; None: however late."""
    enabled: bool = True
    claim: Claim | None = None
    owed: Owed | None = None
    fired: int = 0
    last: datetime | None = None
    """The newest time that was fired."""
    missed: int = 0
    gaps: tuple[Missed, ...] = ()
    """The newest times that were missed."""
    lapsed: int = 0
    """Missed since the last run, under the rule `once`."""
    since: datetime | None = None
    fault: str = ""
    """Why it was stopped, or why nobody answered last."""
    removed: bool = False


def made(  # noqa: PLR0913 - what an entry has
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
    """A new entry, which comes for the first time after now."""
    if not 0 < len(name) <= _LONGEST or not name.isprintable() or name != name.strip():
        raise BadInput(
            f"{name[:80]!r} is no name of an entry; write 1 to {_LONGEST} characters that can be "
            "seen"
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
        next=next(times_of(cron, zone).after(now)),
        zone=zone,
        rule=rule,
        lateness=lateness,
    )


def step(entry: ScheduleEntry, now: datetime, *, by: str, hold: float) -> ScheduleEntry | None:
    """What becomes of an entry now: claimed for `by`, or counted as missed; None: nothing is due.

    One step settles or claims one thing; step again until there is none.
    """
    until = now + timedelta(seconds=hold)
    if entry.claim is not None:
        if entry.claim.until > now:
            return None
        return replace(entry, claim=replace(entry.claim, by=by, until=until))
    if not entry.enabled or entry.removed or entry.next > now:
        return None
    due = _due(entry, now)
    if len(due) > _LOOK:  # those behind them are late too
        return _settled(entry, due[: _LOOK - MOST], due[_LOOK - MOST], "nobody was there")
    late = [one for one in due if _age(one, now) > ON_TIME]
    gone, why = _gone(entry, due, late, now)
    if gone:
        return _settled(entry, gone, due[len(gone)] if len(gone) < len(due) else None, why)
    if late and entry.rule == "once":
        entry = _settled(entry, due[:-1], due[-1], "one run stands for them")
        due = due[-1:]
    upcoming = due[1] if len(due) > 1 else _first(entry, due[0])
    claim = Claim(
        at=due[0],
        by=by,
        until=until,
        stands_for=entry.lapsed,
        since=entry.since,
        late=_age(due[0], now) > ON_TIME,
    )
    return replace(entry, next=upcoming, claim=claim, lapsed=0, since=None)


def fired(entry: ScheduleEntry, place: int, *, until: datetime) -> ScheduleEntry:
    """What was claimed is in the log, at a place."""
    claim = entry.claim
    assert claim is not None  # noqa: S101 - whoever marks has looked
    # The newest message is answered last: whoever answers it answers those before.
    owed = Owed(max(place, entry.owed.place if entry.owed else -1), until)
    return replace(entry, claim=None, owed=owed, fired=entry.fired + 1, last=claim.at)


def lost(entry: ScheduleEntry, why: str) -> ScheduleEntry:
    """What was claimed cannot be said, nor will anything be: the entry is stopped."""
    claim = entry.claim
    assert claim is not None  # noqa: S101 - whoever marks has looked
    entry = _settled(entry, [claim.at], entry.next, why)
    return replace(entry, claim=None, enabled=False, lapsed=0, since=None, fault=why)


def said(entry: ScheduleEntry, claim: Claim) -> str:
    """The words of a run; a late one says so, and how many it stands for."""
    zone = times_of(entry.cron, entry.zone).zone

    def shown(time: datetime) -> str:
        return f"{time.astimezone(zone):%Y-%m-%d %H:%M %Z}"

    notes: list[str] = []
    if claim.late:
        notes.append(f"this run was due {shown(claim.at)} and is late")
    if claim.stands_for and claim.since:
        runs = f"{claim.stands_for:,} run{'s' if claim.stands_for > 1 else ''}"
        were = "were" if claim.stands_for > 1 else "was"
        notes.append(
            f"{runs} before it {were} missed since {shown(claim.since)}; this one stands for all"
        )
    return f"{entry.words}\n\n[{'; '.join(notes)}]" if notes else entry.words


def key(entry: ScheduleEntry, at: datetime) -> str:
    """What a run is known by: said once, whoever says it."""
    return f"cron:{entry.name}:{at:%Y-%m-%dT%H:%M:%SZ}"


def paused(entry: ScheduleEntry, now: datetime) -> ScheduleEntry:
    """Off: what was due before and nobody has fired is missed."""
    while entry.enabled and entry.next <= now:
        entry = _settled(entry, _due(entry, now), None, "it was paused")
    return replace(entry, enabled=False)


def resumed(entry: ScheduleEntry, now: datetime) -> ScheduleEntry:
    """On again: what came while it was paused is no missed run."""
    if entry.enabled:
        return entry
    return replace(entry, enabled=True, next=_first(entry, now), lapsed=0, since=None, fault="")


def _due(entry: ScheduleEntry, now: datetime) -> list[datetime]:
    coming = times_of(entry.cron, entry.zone).after(entry.next)
    return [entry.next, *islice(takewhile(lambda one: one <= now, coming), _LOOK)]


def _gone(
    entry: ScheduleEntry, due: Sequence[datetime], late: Sequence[datetime], now: datetime
) -> tuple[Sequence[datetime], str]:
    """What is not made up for, the oldest of what is due; and why."""
    most = entry.lateness
    stale = [one for one in due if most is not None and _age(one, now) > most]
    ruled = {"skip": late, "once": late[:0], "all": late[:-MOST]}[entry.rule]
    if len(stale) > len(ruled):
        return stale, f"more than {most:g} s late"
    return ruled, "its rule is skip" if entry.rule == "skip" else f"more than {MOST} were missed"


def _settled(
    entry: ScheduleEntry, gone: Sequence[datetime], upcoming: datetime | None, why: str
) -> ScheduleEntry:
    """Times counted as missed."""
    if not gone:
        return entry
    gaps = (*entry.gaps, Missed(gone[0], gone[-1], len(gone), why))
    entry = replace(
        entry,
        next=upcoming or _first(entry, gone[-1]),
        missed=entry.missed + len(gone),
        gaps=gaps[-_GAPS:],
    )
    if entry.rule != "once":
        return entry
    return replace(entry, lapsed=entry.lapsed + len(gone), since=entry.since or gone[0])


def _first(entry: ScheduleEntry, then: datetime) -> datetime:
    return next(times_of(entry.cron, entry.zone).after(then))


def _age(one: datetime, now: datetime) -> float:
    return (now - one).total_seconds()
