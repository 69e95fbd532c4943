"""The one formula, and limits that cannot be switched off."""

import pytest

from foldline.core.budget import UNKNOWN_WINDOW, limits, measure
from foldline.core.log import Instructed, Opened, Text, Tool
from foldline.core.policy import named
from foldline.core.request import report
from foldline.errors import BadInput
from foldline.testing import user, view_of


@pytest.mark.parametrize(("window", "reserve"), [(None, None), (0, 0), (-5, -1)])
def test_unset_limits_never_switch_the_gate_off(window, reserve):
    """R-07, R-09."""
    found = limits(window, reserve)
    assert (found.window, found.source) == (UNKNOWN_WINDOW, "default")
    assert found.reserve == UNKNOWN_WINDOW // 10


@pytest.mark.parametrize(
    ("window", "reserve", "clamped"),
    [(131_072, 131_072, 65_536), (1_048_576, 943_718, 524_288), (16_384, 0, 1_638)],
)
def test_the_reserve_is_clamped(window, reserve, clamped):
    """R-04."""
    assert limits(window, reserve).reserve == clamped


def test_room_is_what_the_fixed_parts_leave_and_the_report_sums_up():
    """A-01: window - system - tools - reserve - margin."""
    tool = Tool("bash", "runs a command", '{"type":"object"}')
    view = view_of([Opened("m"), Instructed((Text("Be brief."),), (tool,)), user("hello")])
    budget = measure(view, limits(10_000, 500))
    assert budget.room == 10_000 - budget.system - budget.tools - 500 - 1_000
    made = report(view, budget)
    assert made.total == budget.request == budget.system + budget.tools + view.tokens
    assert str(made).startswith(f"{made.total:,} of 10,000 tokens")


def test_an_unknown_policy_names_the_known_ones():
    with pytest.raises(BadInput, match="off, steady"):
        named("stedy")
