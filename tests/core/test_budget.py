"""The one formula, and limits that cannot be switched off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.core.budget import UNKNOWN_WINDOW, estimate_request, limits, measure_budget
from foldline.core.log import (
    Asked,
    Instructed,
    Opened,
    ServerTruncated,
    UsageReported,
    WindowLearned,
)
from foldline.core.parts import Text, Tool
from foldline.core.plan import Facts, admit
from foldline.core.policy import STEADY, named
from foldline.core.request import build_report
from foldline.core.token_bounds import count_cautiously
from foldline.core.tokens import MESSAGE
from foldline.errors import BadInput
from foldline.session.model_facts import build_facts
from foldline.settings import read
from foldline.testing import model, user, view_of


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
    budget = measure_budget(view, limits(10_000, 500))
    assert budget.room == 10_000 - budget.system - budget.tools - 500 - 1_000
    made = build_report(view, budget)
    assert made.total == budget.request == budget.system + budget.tools + view.tokens
    assert str(made).startswith(f"{made.total:,} of 10,000 tokens")


def a_budget(**kw):
    known = {"source": "catalogue", **kw}
    view = view_of([Opened("m"), Instructed((Text("Be brief."),)), user("hello")])
    return measure_budget(view, limits(400_000, 20_000, **known))


def test_three_limits():
    """gpt-5 takes 272,000 of a window of 400,000: the smaller one bounds room."""
    wide, narrow = a_budget(), a_budget(max_input=272_000)
    assert wide.room - narrow.room == 400_000 - 20_000 - 272_000


@pytest.mark.parametrize(
    ("share", "tokens", "step", "trigger"),
    [(0.5, None, None, "share"), (0.5, 50_000, None, "tokens"), (0.9, 200_000, 150_000, "step")],
)
def test_a_trigger_is_the_smallest_of_share_number_and_price_step(share, tokens, step, trigger):
    """R-10."""
    budget = a_budget(step=step)
    expected = {
        "share": int(budget.room * share),
        "tokens": tokens,
        "step": (step or 0) - budget.system - budget.tools - budget.margin,
    }
    assert budget.compute_tier(share, tokens=tokens) == expected[trigger]


def test_a_step_that_the_fixed_parts_pass_is_no_trigger():
    budget = a_budget(step=5)
    assert budget.compute_tier(0.5) == int(budget.room * 0.5)


@pytest.mark.parametrize(
    ("stated", "window", "source"), [(100_000, 100_000, "learned"), (900_000, 400_000, "catalogue")]
)
def test_a_stated_window_lowers_what_was_believed_for_good(stated, window, source):
    """R-08: also after a fold, because it stands."""
    view = view_of([Opened("m"), WindowLearned("m", stated), user("hello")])
    found = measure_budget(view, limits(400_000, None, source="catalogue")).limits
    assert (found.window, found.source) == (window, source)
    assert 1 in view.list_standing_events()


def test_a_smaller_window_does_not_raise_what_may_be_sent():
    view = view_of([Opened("m"), WindowLearned("m", 350_000), user("hello")])
    before = measure_budget(
        view_of([Opened("m"), user("hello")]), limits(400_000, 20_000, max_input=272_000)
    )
    after = measure_budget(view, limits(400_000, 20_000, max_input=272_000))
    assert after.room <= before.room + before.margin


def test_another_models_window_is_another_models():
    view = view_of([Opened("m"), WindowLearned("n", 1_000), user("hello")])
    assert measure_budget(view, limits(400_000, None)).limits.window == 400_000


TEXTS = st.text(max_size=40).map(lambda text: f"a{text}" * 50)


@given(st.lists(TEXTS, min_size=1, max_size=4), TEXTS)
def test_a_quarter_of_the_bytes_where_that_is_set(before, newest):
    """P2-03, M-13: of what no provider has counted; how large it may be is known as ever."""

    def quarter(text):
        return -(-len(text.encode()) // 4) + MESSAGE

    policy = read({"estimator": "bytes/4"}).policy
    rough = build_facts("m", window=10**6, reserve=None, policy=policy).limits
    view = view_of([Opened("m"), *map(user, before)])
    budget = measure_budget(view, rough)
    assert budget.request == sum(map(quarter, before))
    assert budget.used + budget.doubt >= sum(count_cautiously(one) + MESSAGE for one in before)
    asked = Asked(view.head, "", "", 0, estimate=estimate_request(view))
    counted = UsageReported(input=asked.estimate + 17)
    for seq, event in enumerate((asked, counted, model("So it is."), user(newest)), view.head + 1):
        view.append(seq, event)
    more = quarter("So it is.") + quarter(newest)
    assert measure_budget(view, rough).request == counted.input + more


def test_warnings_say_what_to_do():
    """R-04, R-07, R-58."""
    tools = tuple(Tool(f"tool_{n}", "does something useful " * 40) for n in range(40))
    view = view_of([Opened("m"), Instructed((), tools), user("hello")])
    found = measure_budget(view, limits(None, 10**9)).warnings
    assert [words.split()[0:2] for words in found] == [["the", "model's"], ["the", "output"]]
    small = measure_budget(view, limits(10_000, None)).warnings
    assert len(small) == 1
    assert "before anything is said" in small[0]


def test_a_count_far_below_what_was_sent_is_an_alarm():
    """R-11: the server has cut the prompt and did not say so."""
    view = view_of([Opened("m"), user("word " * 5_000)])
    view.append(2, Asked(1, "d", "", 1, tokens=6_000, estimate=6_000))
    facts = Facts(limits(100_000, None), STEADY)
    reported = UsageReported(asked=2, input=2_048)
    assert admit(view, reported, facts) == [reported, ServerTruncated(6_000, 2_048)]
    assert admit(view, UsageReported(asked=2, input=5_000), facts)[1:] == []


def test_an_unknown_policy_names_the_known_ones():
    with pytest.raises(BadInput, match="classic, confirm, off, sliding, steady"):
        named("stedy")
