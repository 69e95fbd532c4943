"""What fits and would save nothing is not folded; a passage that matters is in sight."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken

from foldline.core.budget import limits, measure_budget
from foldline.core.fold_selection import count_most_messages
from foldline.core.log import UsageReported
from foldline.core.plan import Facts, Ready
from foldline.core.policy import STEADY, THRIFTY
from foldline.core.prices import FREE, UNKNOWN, Prices
from foldline.lab.policy_run import Planned
from foldline.testing import calls, model, result, user

SELECTION = "foldline.core.fold_selection"
PAID = Prices(3.0, 0.3, 3.75, 15.0)
steps = st.lists(
    st.tuples(st.sampled_from(("say", "call")), st.integers(1, 400)), min_size=5, max_size=60
)


def check_full_window(plan, window, policy, prices):
    """No request is folded that fits and whose fold would save nothing."""
    talk = Planned(Facts(limits(window, None), policy, prices))
    for number, (how, size) in enumerate(plan):
        if how == "say":
            talk.add(user(f"say {number}: " + "it is in the text. " * size))
        else:
            talk.add(
                user(f"do {number}"),
                calls(f"c{number}"),
                result(f"c{number}", f"line {number} of the text that is in the file\n" * size),
            )
        before = measure_budget(talk.view, talk.facts.limits)
        made = talk.plan()
        assert isinstance(made, Ready)
        if made.folded is not None:
            crowd = len(talk.view.items) > count_most_messages(talk.facts.limits, policy)
            paid = made.folded.why in ("pays", "cold") and not prices.free
            assert not before.fits or crowd or paid, "it fitted"
        talk.ask(made)
        talk.add(model(f"done {number}"), UsageReported(input=made.report.estimate))


@given(steps, st.sampled_from((2_048, 8_192, 60_000)), st.sampled_from((STEADY, THRIFTY)))
def test_where_nothing_is_paid_what_fits_is_not_folded(plan, window, policy):
    check_full_window(plan, window, policy, FREE)


@given(
    steps,
    st.sampled_from((2_048, 8_192, 60_000)),
    st.sampled_from((STEADY, THRIFTY)),
    st.sampled_from((PAID, UNKNOWN)),
)
def test_with_a_price_only_what_pays_is_folded(plan, window, policy, prices):
    check_full_window(plan, window, policy, prices)


def test_the_law_catches_a_fold_for_nothing():
    """A policy that folds early, and prices that nobody pays taken for real ones."""
    plan = [("call", 300)] * 60
    with pytest.raises(AssertionError, match="it fitted"):
        check_full_window(plan, 8_192, replace(STEADY, hard=0.8), FREE)
    with (
        broken(
            SELECTION,
            "if rule is None or facts.prices.free:\n        return None",
            "if rule is None:\n        return None",
        ),
        pytest.raises(AssertionError, match="it fitted"),
    ):
        check_full_window(plan, 60_000, THRIFTY, FREE)
