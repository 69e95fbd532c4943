"""The report of a run: one screen, from figures."""

import asyncio
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from foldline.apps.cli import run_agent
from foldline.apps.cli.context import Desk
from foldline.apps.run.run_report import FoldFigures, RunFigures, render_prediction, render_report
from foldline.core.budget import limits
from foldline.core.log import Opened, UsageReported
from foldline.core.plan import Facts
from foldline.core.policy import STEADY
from foldline.core.prices import PICO, Prices
from foldline.draw.course import Course, CourseStep, TokensTaken, explain_oversized
from foldline.draw.picture import build_picture
from foldline.testing import view_of

PRICES = Prices(input=3.0, read=0.3, write=3.75, output=15.0)

NOW = build_picture(view_of([Opened("m")]), Facts(limits(1_500_000, None), STEADY, PRICES))


def step(  # noqa: PLR0913
    at, sent, *, read=0, wrote=0, whole=0, taken=(), dollars=0.1, counted=True
):  # fmt: skip
    usage = UsageReported(input=sent, cache_read=read, cache_write=wrote) if counted else None
    return CourseStep(
        at=at, turn=1, model="m", input=sent, output=100, everything=whole or sent, usage=usage,
        taken=taken, pico=None if dollars is None else round(dollars * PICO), all_pico=None if dollars is None else round(dollars * 3 * PICO),
    )  # fmt: skip


def report(*steps, calls=None, is_subscription=False, **more):
    figures = RunFigures()
    calls = [one.at for one in steps] if calls is None else calls
    figures.add_session("talk", Course(NOW, steps, 1), calls, prices_of=lambda _: PRICES)
    for name, value in more.items():
        setattr(figures, name, value)
    return render_report(figures, is_subscription=is_subscription)


FOLD = TokensTaken("fold", 7, 80_000, 12)
BEFORE = step(5, 100_000, wrote=100_000)


def test_a_fold_says_what_it_cost_and_when_that_was_repaid():
    """20,000 tokens written again at 3.75 instead of read at 0.30, for 80,000 less in each call."""
    fold = step(9, 20_000, wrote=20_000, whole=100_000, taken=(FOLD,))
    after = [step(10 + n, 20_000, read=20_000, whole=100_000) for n in range(2)]
    assert report(BEFORE, fold, *after) == [
        "foldline: 4 calls, 160k tokens in (25% from the cache), 400 out",
        "  paid      $0.4000",
        "  saved     $0.8000: sending everything would have cost about $1.20",
        "  folds     1 fold took 80k tokens out and cost $0.0690",
        "  repaid    not yet: after 3 calls",
    ]
    more = [step(12, 20_000, read=20_000, whole=100_000)]
    assert "  repaid    yes: after 3 calls" in report(BEFORE, fold, *after, *more)


def test_the_page_shows_a_report():
    """What docs/how-to/run.md shows is what is printed of such a run."""
    figures = RunFigures(
        sessions={"talk-13e20ee5b669-0": 1_900_000}, calls=61, input=1_900_000, read=1_767_000, output=21_000,
        everything=4_100_000, pico=1_820_000_000_000, all_pico=2_890_000_000_000, has_edits=True,
        folds=[FoldFigures(80_000, 0.069, 0.024, 40)],
    )  # fmt: skip
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "run.md").read_text()
    (shown,) = re.findall(r"^```text\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    *lines, look = shown.splitlines()
    assert lines == render_report(figures, is_subscription=False)
    assert look.startswith("  look      foldline history talk-")


def test_what_the_cache_had_lost_is_said():
    """100,000 tokens written again at 3.75 instead of read at 0.30; half a cent is no line."""
    cold = step(9, 101_000, wrote=101_000)
    lines = report(BEFORE, cold)
    assert lines[1:] == [
        "  paid      $0.2000",
        "  cold      $0.3450 of it was paid again: the cache was lost",
    ]
    assert not any("  cold  " in line for line in report(BEFORE, cold, is_subscription=True))
    assert not any("  cold  " in line for line in report(BEFORE, step(9, 101_000, read=100_000)))
    small = step(5, 1_300, wrote=1_300), step(9, 1_400, wrote=1_400)
    assert not any("  cold  " in line for line in report(*small))


@pytest.mark.parametrize(
    ("calls", "shown"),
    [
        ((1, 2), "0 of 2 folds"),
        ((1, 9), "1 of 2 folds, on average after 3 calls"),
        ((40, 40), "2 of 2 folds, on average after 17 calls"),
    ],
)
def test_only_folds_that_repaid_have_an_average(calls, shown):
    """They need 3 and 30 calls."""
    folds = [FoldFigures(9, 30.0, 1.0, calls[0]), FoldFigures(9, 3.0, 1.0, calls[1])]
    assert f"  repaid    {shown}" in report(BEFORE, folds=folds)


@pytest.mark.parametrize("is_subscription", [False, True])
def test_calls_that_could_not_have_carried_everything_are_counted(is_subscription):
    fold = step(9, 20_000, wrote=20_000, whole=100_000, taken=(FOLD,))
    more = [step(10 + n, 20_000, read=20_000, whole=1_900_000) for n in range(2)]
    shown, without = (
        "\n".join(report(*steps, is_subscription=is_subscription)).split()
        for steps in ((BEFORE, fold, *more), (BEFORE, fold))
    )
    note = explain_oversized(2)
    assert note in " ".join(shown)
    assert note.rpartition(":")[2] not in " ".join(without)


def test_folds_of_earlier_runs_still_save():
    fold = step(9, 20_000, wrote=20_000, whole=100_000, taken=(FOLD,))
    lines = report(BEFORE, fold, step(12, 20_000, read=20_000, whole=100_000), calls=[12])
    assert lines[0].startswith("foldline: 1 call, 20k tokens in (100% ")
    assert [line.split()[0] for line in lines[1:]] == ["paid", "saved"]


def test_without_edits_nothing_is_said_to_be_saved():
    assert [line.split()[0] for line in report(BEFORE)[1:]] == ["paid"]


def test_a_subscription_has_tokens_and_quota():
    fold = step(9, 20_000, wrote=20_000, whole=100_000, taken=(FOLD,))
    assert report(fold, is_subscription=True, quota={"5h": (0.314, 0.352)})[1:] == [
        "  quota     5h: from 31% to 35% used",
        "  saved     80% of 100k tokens",
        "  folds     1 fold took 80k tokens out",
    ]


@pytest.mark.parametrize(
    ("one", "note"),
    [
        (step(5, 9, counted=False), "$0.2000 (1 of 2 calls estimated: no counts came)"),
        (step(5, 9, dollars=None), "$0.1000 (without 1 call of unknown price)"),
    ],
)
def test_what_the_sum_lacks_is_said(one, note):
    assert f"  paid      {note}" in report(one, step(6, 9))


def test_narratives_are_paid_for():
    figures = RunFigures()
    course = Course(NOW, (step(9, 9, taken=(FOLD,)),), 1)
    figures.add_session("talk", course, [9], prices_of=lambda _: PRICES)
    figures.narratives += PICO // 4
    lines = render_report(figures, is_subscription=False)
    assert "  paid      $0.3500" in lines
    assert "  folds     1 fold took 80k tokens out and cost $0.2500" in lines


def test_the_session_to_look_at_is_the_one_that_most_was_sent_in():
    """Claude Code asks a small model for a title in a conversation of its own, before and after."""
    figures = RunFigures()
    assert figures.main_session is None
    for name, sent in (("title", 300), ("talk", 90_000), ("summary", 400)):
        figures.add_session(name, Course(NOW, (step(9, sent),), 1), [9], prices_of=lambda _: PRICES)
    assert figures.main_session == "talk"


def test_relayed_requests_are_no_figures():
    assert report(BEFORE, relayed=2)[-1] == "  relayed   2 requests, not in these figures"
    assert report(relayed=1) == ["foldline: 1 call was relayed, not counted"]
    assert report(relayed=7, fault="database or disk is full") == [
        "foldline: 7 calls were relayed, not counted",
        "  because   database or disk is full",
    ]
    assert report() == ["foldline: no call of a model was seen"]


def test_requests_that_failed_or_had_no_plan_are_counted():
    failed = {"refused": 3, "unplanned": Counter({"overflow": 2, "brokenview": 1})}
    told = ["  refused   3 requests", "  unplanned 3 requests: 2 overflow, 1 brokenview"]
    assert report(**failed) == ["foldline: no call of a model was answered", *told]
    assert report(BEFORE, **failed)[-2:] == told
    assert report(relayed=1, **failed)[-2:] == told


AUDITED = {"route": "/v1/messages", "status": 200, "ended": "done", "session": "", "patches": None, "unplanned": "", "quota": None}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "refused", "unplanned"),
    [
        ({"status": 400}, 1, {}),
        ({"status": 503}, 1, {}),
        ({"unplanned": "brokenview"}, 0, {"brokenview": 1}),
        ({"status": 413, "unplanned": "overflow"}, 1, {"overflow": 1}),
        ({"unplanned": "compaction"}, 0, {}),
        ({"status": 404, "route": "/v1/models"}, 0, {}),
    ],
)
def test_a_run_counts_what_its_gateway_noted(line, refused, unplanned, tmp_path):
    audit = tmp_path / "audit.jsonl"
    audit.write_text(json.dumps(AUDITED | line) + "\n")
    desk = Desk(f"{tmp_path / 'a.db'}", "local")
    figures = asyncio.run(run_agent._build_report(desk, audit, 0.0, None))
    assert (figures.refused, figures.unplanned) == (refused, unplanned)


def test_a_prediction_in_dollars_or_percent():
    figures = RunFigures(pico=2 * PICO)
    for predicted, subscription, words in (
        (1.5, False, "it would have been $1.50: $0.5000 less"),
        (2.5, False, "it would have been $2.50: $0.5000 more"),
        (1.5, True, "it would have been 25% less, at list prices"),
    ):
        lines = render_prediction(figures, predicted, "steady", is_subscription=subscription)
        assert lines == [f"  dry       with steady {words}"]


@pytest.mark.parametrize("folds", [1, 999])
def test_no_line_is_wider_than_a_terminal(folds):
    many = [step(n, 900_000, whole=1_900_000, taken=(FOLD,), dollars=99.99) for n in range(folds)]
    lines = report(*many, relayed=12_345, quota={"7d": (0.5, 1.0)})
    assert max(map(len, lines)) <= 80
