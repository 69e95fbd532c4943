"""Law 1 on the plan: whatever comes in, the request fits, without a model's help."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken

from foldline.core import rules
from foldline.core.budget import limits, measure
from foldline.core.log import Asked, Instructed, Opened, Text, UserSaid
from foldline.core.plan import Blocked, Facts, Need, Ready, admit, plan
from foldline.core.policy import STEADY
from foldline.core.view import View, load
from foldline.testing import Conversation, calls, model, result, user, view_of

SIZES = st.sampled_from((1, 1, 5, 5, 40, 200, 3_000))
TALK = st.lists(
    st.tuples(st.sampled_from(("user", "user", "model", "calls", "calls", "many")), SIZES),
    min_size=1,
    max_size=40,
)


def event(name, size, place):
    words = f"word{place} " * size
    match name:
        case "user":
            return [user(words)]
        case "model":
            return [model(f"answer{place} " * min(size, 40))]
        case "calls":
            return [calls(f"c{place}"), result(f"c{place}", words)]
        case _:
            ids = [f"m{place}_{index}" for index in range(10 if name == "ten" else 4)]
            return [calls(*ids), *(result(one, words) for one in ids)]


def converse(script, window) -> tuple[View, Facts, list]:
    """Run a script through admission and plan, as a session does; every plan that was made."""
    facts = Facts(limits(window, None), STEADY)
    events = [Opened("m"), Instructed((Text("You are careful."),))]
    view = view_of(events)

    def append(*new):
        for one in new:
            events.append(one)
            view.append(view.head + 1, one)

    plans = []
    for place, (name, size) in enumerate(script):
        for one in event(name, size, place):
            append(*admit(view, one, facts))
        made = plan(view, facts)
        if isinstance(made, Need):
            fetched = {r.lo: events[r.lo] for r in made.ranges}
            made = plan(view, replace(facts, fetched=fetched))
        plans.append(made)
        if isinstance(made, Ready):
            append(*made.events, Asked(view.head + len(made.events), "", "", 0))
    return view, facts, plans


def fits(script, window):
    _, _, plans = converse(script, window)
    for made in plans:
        assert isinstance(made, Ready), f"{made} is not ready"
        limit = made.report.window - made.report.reserve - made.report.margin
        assert made.report.total <= limit, f"{made.report} exceeds {limit}"


@given(TALK, st.sampled_from((1_024, 2_048, 8_192, 32_768)))
def test_every_request_fits(script, window):
    """Law 1, R-06, R-01, R-05, R-09: histories of many windows, single items of many windows."""
    fits(script, window)


@pytest.mark.parametrize(
    ("module", "line", "instead", "script", "window"),
    [
        ("plan", "        edit = _fold(work, budget, facts)\n", "        edit = None\n", [("user", 200)] * 9, 1_024),
        ("budget", "return max(budget.estimated(budget.room) - _LEAST_HANDOFF, _LEAST_CLIP)",
         "return 10**9", [("user", 3_000)], 1_024),
        ("budget", "return max(free // max(len(view.open), 1), _LEAST_CLIP)", "return 10**9",
         [("ten", 3_000)], 2_048),
    ],
)  # fmt: skip
def test_fits_catches(module, line, instead, script, window):
    """A plan that never folds, and admissions that let everything in, overflow."""
    fits(script, window)
    with broken(f"foldline.core.{module}", line, instead), pytest.raises(AssertionError):
        fits(script, window)


@given(TALK)
def test_plan_is_pure(script):
    """The same view and facts give the same plan, and the view is left as it was."""
    view, facts, _ = converse(script, 2_048)
    before = {name: repr(value) for name, value in vars(view).items()}
    assert plan(view, facts) == plan(view.copy(), facts)
    assert {name: repr(value) for name, value in vars(view).items()} == before


@given(TALK)
def test_unanswered_words_stay(script):
    """R-28: what the user said last is in the next request, verbatim unless it alone is too large."""
    view, _, _ = converse([*script, ("user", 5)], 2_048)
    last = max(seq for seq, one in view.held.items() if isinstance(one, UserSaid))
    shown = next(item for item in view.items if item.seq == last)
    assert shown.state == "whole"


def test_never_stuck():
    """Forty messages that nobody answered still fit: the oldest are folded, the newest stays whole."""
    view, _, plans = converse([("user", 40)] * 40, 1_024)
    assert all(isinstance(made, Ready) for made in plans)
    assert view.items[-1].state == "whole"


def test_blocked_names_each_part():
    """R-16: fixed parts that leave no room are named with their sizes."""
    view = view_of([Opened("m"), Instructed((Text("rule " * 5_000),)), user("hello")])
    made = plan(view, Facts(limits(2_048, None), STEADY))
    assert isinstance(made, Blocked)
    assert made.parts["system"] > 2_048
    assert set(made.parts) >= {"system", "tools", "output reserve", "margin", "newest items"}


def test_what_was_excluded_is_not_quoted_again():
    """A message that a person took out of the model's sight stays out when it is folded."""
    talk = Conversation()
    talk.add(user("the password is hunter2"), model("noted"))
    talk.mask([1], exclude=True)
    for place in range(30):
        talk.add(user(f"word{place} " * 20), model("yes"))
    ready = plan(talk.view, Facts(limits(1_024, None), STEADY))
    assert isinstance(ready, Ready)
    assert "log:0-" in ready.events[-1].text
    assert "hunter2" not in ready.events[-1].text


def test_need_names_what_a_merge_lacks():
    """A merge quotes the user's first task again: the plan asks for the event, then is ready."""
    view, facts, plans = converse([("user", 40), ("model", 5)] * 20, 1_024)
    assert any(made.events for made in plans)
    assert 2 not in view.held  # the first task, folded away
    view = view.copy()
    for place in range(40):
        view.append(view.head + 1, user(f"more {place} " * 10))
        view.append(view.head + 1, model("yes"))
    made = plan(view, facts)
    assert isinstance(made, Need)
    assert 2 in [span.lo for span in made.ranges]
    first = user("word0 " * 40)
    fetched = {span.lo: first for span in made.ranges}
    ready = plan(view, replace(facts, fetched=fetched))
    assert isinstance(ready, Ready)
    fold = ready.events[-1]
    assert "word0 word0" in fold.text
    again = load(fold.spine, {**view.held, view.head + 1: fold}, head=view.head + 1)
    rules.check(again)
    assert measure(again, facts.limits).used < measure(view, facts.limits).used
