"""Times and entries, by themselves: what comes when, what is wrong, what becomes of what was missed."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from foldline.agent.schedule import schedule_entry
from foldline.agent.schedule.schedule_entry import (
    MOST,
    ON_TIME,
    Times,
    build_schedule_entry,
    make_run_key,
    mark_fired,
    mark_lost,
    pause_entry,
    render_run_message,
    resume_entry,
    settle_or_claim,
)
from foldline.errors import BadInput

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)  # a Monday
ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu",
    "Pacific/Apia", "Africa/Casablanca", "America/Sao_Paulo",
)  # fmt: skip


def utc(*given):
    return datetime(*given, tzinfo=UTC)


def some(cron, zone, begin, count=3):
    found = Times(cron, zone).iterate_after(begin)
    return [f"{next(found).astimezone(ZoneInfo(zone)):%m-%d %H:%M %Z}" for _ in range(count)]


def test_a_fixed_time_that_the_clock_leaps_over_comes_right_behind_the_leap():
    """Berlin, 29 March 2026: 02:00 is followed by 03:00."""
    assert some("30 2 * * *", "Europe/Berlin", utc(2026, 3, 27, 12)) == [
        "03-28 02:30 CET", "03-29 03:00 CEST", "03-30 02:30 CEST",
    ]  # fmt: skip
    assert some("15,45 2 * * *", "Europe/Berlin", utc(2026, 3, 28, 12), 2) == [
        "03-29 03:00 CEST", "03-30 02:15 CEST",
    ]  # fmt: skip


def test_a_fixed_time_that_the_clock_shows_twice_comes_the_first_time():
    """Berlin, 25 October 2026: 03:00 is followed by 02:00."""
    expected = ["10-24 02:30 CEST", "10-25 02:30 CEST", "10-26 02:30 CET"]
    assert some("30 2 * * *", "Europe/Berlin", utc(2026, 10, 23, 12)) == expected
    # Also for a worker that starts between the two.
    assert some("30 2 * * *", "Europe/Berlin", utc(2026, 10, 25, 1, 15), 1) == expected[2:]


def test_what_follows_the_clock_follows_it():
    begin = utc(2026, 10, 24, 23, 59)
    assert some("0 * * * *", "Europe/Berlin", begin, 4) == [
        "10-25 02:00 CEST", "10-25 02:00 CET", "10-25 03:00 CET", "10-25 04:00 CET",
    ]  # fmt: skip
    assert some("0 */2 * * *", "Europe/Berlin", utc(2026, 3, 28, 23, 30), 2) == [
        "03-29 04:00 CEST", "03-29 06:00 CEST",
    ]  # fmt: skip
    assert some("0 30 2 * * *", "Europe/Berlin", utc(2026, 3, 28, 12), 1) == ["03-30 02:30 CEST"]


@pytest.mark.parametrize(
    ("cron", "told"),
    [
        ("0 25 * * *", "its hour '25' cannot be read; it takes 0-23"),
        ("60 9 * * *", "its minute '60'"),
        ("0 9 32 * *", "its day of month '32'"),
        ("0 9 * 13 *", "its month '13'"),
        ("0 9 * * 8", "its weekday '8'"),
        ("0 9 * * MO", "its weekday 'MO' cannot be read; it takes 0-7 or SUN-SAT"),
        ("70 0 9 * * *", "its second '70'"),
        ("0 9-5 * * *", "its hour '9-5'"),
        ("*/0 9 * * *", "its minute '*/0'"),
        ("0 9 * *", "has 4 fields; write five"),
        ("", "has 0 fields"),
        ("@daily", "write '0 0 * * *'"),
        ("0 9 30 2 *", "never comes"),
    ],
)
def test_a_wrong_expression_is_told_by_its_field(cron, told):
    with pytest.raises(BadInput) as fault:
        Times(cron)
    assert told in str(fault.value)


def test_a_wrong_zone_is_told_with_those_near_it():
    for wrong, near in (("Berlin", "Europe/Berlin"), ("Europe/Berln", "Europe/Berlin")):
        with pytest.raises(BadInput, match=near):
            Times("0 9 * * *", wrong)
    with pytest.raises(BadInput, match="write one like"):
        Times("0 9 * * *", "../../etc/passwd")


def test_without_its_extra_it_says_which(monkeypatch):
    monkeypatch.setattr(schedule_entry, "find_spec", lambda _: None)
    with pytest.raises(BadInput, match=r"pip install 'foldline\[schedule\]'"):
        Times("0 9 * * *")


@given(st.text(alphabet="0123456789*/-,#L @MONJANW", max_size=30))
def test_any_text_is_an_expression_or_an_error_of_ours(text):
    try:
        found = Times(text).iterate_after(NOON)
    except BadInput:
        return
    one, two = next(found), next(found)
    assert NOON < one < two


# Expressions in the strategy come at least once an hour up to once a day.
minutes = st.sampled_from(["0", "30", "15,45", "7-9", "*/20", "5/25"])
hours = st.sampled_from(["*", "2", "1,2,3", "*/6", "0-5", "23"])
days = st.sampled_from([("*", "*"), ("*", "MON-FRI"), ("1,15,28", "*"), ("*", "SUN#1"), ("L", "*")])
expressions = st.builds(lambda m, h, d: f"{m} {h} {d[0]} * {d[1]}", minutes, hours, days)
begins = st.integers(0, 365 * 24 * 60).map(lambda one: utc(2026, 1, 1) + timedelta(minutes=one))


@given(expressions, st.sampled_from(ZONES), begins, st.integers(0, 5_000))
def test_when_it_comes_does_not_depend_on_where_one_begins_to_look(cron, zone, begin, more):
    whole = Times(cron, zone).iterate_after(begin)
    first = [next(whole) for _ in range(6)]
    assert first == sorted({*first})
    between = begin + timedelta(minutes=more)
    again = Times(cron, zone).iterate_after(between)
    later = [one for one in first if one > between]
    assert [next(again) for _ in later] == later


def an_entry(**more):
    given = {"cron": "0 * * * *", "words": "Look.", "now": NOON - timedelta(minutes=30), **more}
    return build_schedule_entry("look", "main", **given)


def run(entry, now, *, die=lambda: False):
    """A worker's steps at one time: the claims that it fired, and the entry behind them."""
    claims = []
    while (stepped := settle_or_claim(entry, now, by="a", hold=30.0)) is not None:
        entry = stepped
        if entry.claim is not None:
            if die():
                return claims, entry
            claims.append(entry.claim)
            entry = mark_fired(entry, 1, until=now)
    return claims, entry


def test_what_is_on_time_is_fired_and_says_nothing_more():
    claims, entry = run(an_entry(), NOON + timedelta(seconds=ON_TIME))
    assert [one.at for one in claims] == [NOON]
    assert render_run_message(entry, claims[0]) == "Look."
    assert (entry.fired, entry.missed, entry.last) == (1, 0, NOON)
    assert entry.next == NOON + timedelta(hours=1)
    assert entry.owed.place == 1
    assert make_run_key(entry, NOON) == "cron:look:2026-03-02T12:00:00Z"


def test_by_the_rule_once_one_run_stands_for_all_and_says_how_many():
    claims, entry = run(an_entry(zone="Europe/Berlin"), NOON + timedelta(hours=3, minutes=20))
    assert [one.at for one in claims] == [NOON + timedelta(hours=3)]
    assert render_run_message(entry, claims[0]) == (
        "Look.\n\n[this run was due 2026-03-02 16:00 CET and is late; 3 runs before it were missed "
        "since 2026-03-02 13:00 CET; this one stands for all]"
    )
    assert (entry.fired, entry.missed, entry.gaps[-1].count) == (1, 3, 3)


def test_by_the_rule_skip_nothing_is_made_up_for():
    claims, entry = run(an_entry(rule="skip"), NOON + timedelta(hours=3, seconds=20))
    assert [(one.at, one.late) for one in claims] == [(NOON + timedelta(hours=3), False)]
    assert render_run_message(entry, claims[0]) == "Look."
    assert (entry.fired, entry.missed) == (1, 3)
    assert entry.gaps[-1].why == "its rule is skip"


def test_by_the_rule_all_each_is_made_up_for_up_to_a_bound():
    claims, entry = run(an_entry(rule="all"), NOON + timedelta(hours=2, minutes=20))
    assert [one.at.hour for one in claims] == [12, 13, 14]
    assert "is late" in render_run_message(entry, claims[0])
    claims, entry = run(an_entry(rule="all"), NOON + timedelta(hours=MOST + 50, minutes=20))
    assert (entry.fired, entry.missed, entry.gaps[0].why) == (MOST, 51, "more than 100 were missed")
    assert claims[-1].at == NOON + timedelta(hours=MOST + 50)


def test_what_is_too_late_is_counted_and_told_by_the_next_run():
    late = an_entry(lateness=3_600.0)
    claims, entry = run(late, NOON + timedelta(hours=3, minutes=20))
    assert [(one.at.hour, one.stands_for) for one in claims] == [(15, 3)]
    claims, entry = run(replace(late, lateness=600.0), NOON + timedelta(hours=3, minutes=20))
    assert (claims, entry.missed, entry.gaps[-1].why) == ([], 4, "more than 600 s late")
    claims, entry = run(entry, NOON + timedelta(hours=4))
    assert render_run_message(entry, claims[0]).endswith(
        "[4 runs before it were missed since 2026-03-02 12:00 UTC; this one stands for all]"
    )


def test_a_worker_that_was_away_for_years_counts_in_steps():
    every = an_entry(cron="* * * * *")
    claims, entry = run(every, NOON + timedelta(days=30))
    assert (len(claims), entry.missed) == (1, 30 * 24 * 60 + 29)
    assert claims[0].stands_for == entry.missed
    assert claims[0].since == every.next


def test_a_claim_is_taken_over_when_it_has_run_out_and_fires_the_same_time():
    claimed = settle_or_claim(an_entry(), NOON, by="a", hold=30.0)
    assert settle_or_claim(claimed, NOON + timedelta(seconds=29), by="b", hold=30.0) is None
    much_later = NOON + timedelta(days=2, minutes=5)
    taken = settle_or_claim(claimed, much_later, by="b", hold=30.0)
    assert (taken.claim.at, taken.claim.by) == (NOON, "b")
    assert render_run_message(taken, taken.claim) == render_run_message(claimed, claimed.claim)
    claims, entry = run(mark_fired(taken, 7, until=much_later), much_later)
    assert [one.at for one in claims] == [NOON + timedelta(days=2)]
    assert (entry.fired, entry.missed) == (2, 47)


def test_what_cannot_be_said_is_missed_and_stops_the_entry():
    claimed = settle_or_claim(an_entry(), NOON, by="a", hold=30.0)
    entry = mark_lost(claimed, "erased")
    assert (entry.enabled, entry.missed, entry.fault, entry.claim) == (False, 1, "erased", None)
    assert settle_or_claim(entry, NOON + timedelta(days=1), by="a", hold=30.0) is None


def test_a_pause_counts_what_was_due_before_and_nothing_during_it():
    entry = pause_entry(an_entry(), NOON + timedelta(hours=1, minutes=30))
    assert (entry.missed, entry.gaps[-1].why) == (2, "it was paused")
    assert run(entry, NOON + timedelta(days=1))[0] == []
    entry = resume_entry(entry, NOON + timedelta(days=1, minutes=30))
    assert (entry.next, entry.missed) == (NOON + timedelta(days=1, hours=1), 2)
    assert (
        resume_entry(an_entry(), NOON + timedelta(days=1)) == an_entry()
    )  # was on: all is still due


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"name": ""}, "no name of an entry"),
        ({"name": "a\nb"}, "no name of an entry"),
        ({"words": "  "}, "not blanks alone"),
        ({"rule": "twice"}, "write skip, once or all"),
        ({"lateness": 0.0}, "more than nothing"),
    ],
)
def test_an_entry_that_cannot_be_is_told(more, told):
    given = {"name": "look", "session": "main", "cron": "0 9 * * *", "words": "Look.", **more}
    with pytest.raises(BadInput, match=told):
        build_schedule_entry(given.pop("name"), given.pop("session"), now=NOON, **given)


@settings(deadline=None)
@given(
    expressions,
    st.sampled_from(ZONES),
    begins,
    st.sampled_from(["skip", "once", "all"]),
    st.sampled_from([None, 30.0, 900.0, 86_400.0]),
    st.lists(st.tuples(st.integers(1, 4_000), st.booleans()), min_size=1, max_size=12),
)
def test_every_time_is_fired_once_or_counted_as_missed(cron, zone, begin, rule, lateness, looks):  # noqa: PLR0913, PLR0917
    """Whatever the expression, the zone, and when workers look, die and come back."""
    entry = build_schedule_entry(
        "e", "s", cron=cron, words="w", now=begin, zone=zone, rule=rule, lateness=lateness
    )
    now, all_fired = begin, []
    for minutes_, dies in [*looks, (2, False)]:
        now += timedelta(minutes=minutes_)
        claims, entry = run(entry, now, die=lambda dies=dies: dies)
        all_fired += [one.at for one in claims]
    coming = []
    for one in Times(cron, zone).iterate_after(begin):
        if one > now:
            break
        coming.append(one)
    assert entry.claim is None
    assert len(all_fired) == len({*all_fired}) == entry.fired
    assert {*all_fired} <= {*coming}
    assert entry.fired + entry.missed == len(coming)
    assert entry.next > now
    if rule == "all" and lateness is None and len(coming) <= MOST:
        assert all_fired == coming
