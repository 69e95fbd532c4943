"""What an answer reuses although it was out of sight is charged as a call that reads it back."""

import pytest
from made.generated import generate_coding_session

from foldline.core.policy import OFF, THRIFTY
from foldline.core.prices import Prices
from foldline.lab.bill.cache import CacheRules
from foldline.lab.comparison import Trial, run_trial

RULES = CacheRules(Prices(3.0, 0.3, 3.75, 15.0))


@pytest.fixture(scope="module")
def session():
    return generate_coding_session(5, calls=100, tokens=60_000).recorded


def test_what_was_out_of_sight_is_charged(session):
    result = run_trial(Trial(session, THRIFTY, RULES, 60_000))
    kept = result.retention
    hidden = [share for share in (kept.names, kept.lines) if share.there < share.used]
    assert bool(kept.missing) == bool(hidden), (
        "a call is charged if and only if it lacked something"
    )
    assert hidden, "the session is long enough that something is missing"
    least = sum(result.sizes[call] * 0.3 for call in kept.missing) / 1e6
    assert least < result.recall_dollars < result.dollars


def test_who_sends_everything_reads_nothing_again(session):
    result = run_trial(Trial(session, OFF, RULES, 2_000_000))
    assert (result.retention.missing, result.recall_dollars) == ({}, 0)
