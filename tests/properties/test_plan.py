"""Law 1 on the plan: whatever comes in, the request fits, without a model's help."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken

from foldline.core import rules
from foldline.core.budget import limits, measure_budget
from foldline.core.log import Edit, Instructed, Opened, UserSaid
from foldline.core.parts import Text
from foldline.core.plan import Blocked, Facts, Need, Ready, plan
from foldline.core.policy import PRESETS, STEADY
from foldline.core.view import load
from foldline.dialects import openai_chat as wire
from foldline.testing import Conversation, Planned, calls, model, result, user, view_of

SIZES = st.sampled_from((1, 1, 5, 5, 40, 200, 3_000))
TALK = st.lists(
    st.tuples(st.sampled_from(("user", "user", "model", "calls", "calls", "many")), SIZES),
    min_size=1,
    max_size=40,
)

CACHED = ("_bounds", "_summed")


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


def converse(script, window) -> tuple[Planned, list]:
    """Run a script through admission and plan; every plan that was made."""
    talk = Planned(Facts(limits(window, None), STEADY), Instructed((Text("You are careful."),)))
    plans = []
    for place, (name, size) in enumerate(script):
        talk.add(*event(name, size, place))
        plans.append(talk.plan())
        if isinstance(plans[-1], Ready):
            talk.ask(plans[-1])
    return talk, plans


def fits(script, window):
    _, plans = converse(script, window)
    for made in plans:
        assert isinstance(made, Ready), f"{made} is not ready"
        limit = made.report.window - made.report.reserve - made.report.margin
        assert made.report.total <= limit, f"{made.report} exceeds {limit}"


@given(TALK, st.sampled_from((1_024, 2_048, 8_192, 32_768)))
def test_every_request_fits(script, window):
    """Law 1, R-06, R-01, R-05, R-09: histories of many windows, single items of many windows."""
    fits(script, window)


def test_fits_catches():
    """A plan that never folds overflows."""
    script = [("user", 100), ("model", 40)] * 9
    fits(script, 1_024)
    line = "    if not facts.policy.folds:\n"
    with (
        broken("foldline.core.fold_selection", line, "    if True:\n"),
        pytest.raises(AssertionError),
    ):
        fits(script, 1_024)


@pytest.mark.parametrize("windows", [0.5, 1, 1.2, 3, 10])
def test_a_history_of_many_windows_fits(windows):
    """R-01: no model's help, no exception."""
    turns = int(windows * 8_192 / 130)
    fits([("user", 40), ("model", 5)] * turns, 8_192)


def test_one_turn_of_two_hundred_calls():
    """R-03: 200 results of 5,000 tokens on a window of 128,000, no call over budget."""
    talk = Planned(Facts(limits(128_000, None), STEADY), user("do everything"))
    for n in range(200):
        talk.add(calls(f"c{n}"), result(f"c{n}", f"line {n} of the output, checked\n" * 550))
        made = talk.plan()
        assert isinstance(made, Ready)
        assert made.report.total <= 128_000 - made.report.reserve - made.report.margin
        talk.ask(made)
    assert talk.folds()


@given(TALK, st.sampled_from(("steady", "thrifty", "three-layer", "classic")))
def test_still_between_edits(script, preset):
    """Law 4 across batches: a request begins with the one before, unless an edit lies between."""
    talk = Planned(Facts(limits(8_192, None), PRESETS[preset]))
    before: list[bytes] = []
    for place, (name, size) in enumerate(script):
        talk.add(*event(name, size, place))
        made = talk.plan()
        assert isinstance(made, Ready)
        blocks = wire.encode_blocks(made.request)
        if not any(isinstance(one, Edit) for one in made.events):
            assert blocks[: len(before)] == before
        talk.ask(made)
        before = blocks


def test_folds_without_an_answer_stop():
    """R-19: heartbeats that nobody answers are folded three times, then it stops and says so."""
    talk = Planned(Facts(limits(2_048, None), STEADY))
    refused = None
    for place in range(200):
        talk.add(user(f"word{place} " * 40, speaker="heartbeat"))
        made = talk.plan()
        if isinstance(made, Blocked):
            refused = made
            break
        talk.ask(made)
    assert refused is not None
    assert len(talk.folds()) == 3
    assert "folds that led to no answer" in refused.parts
    talk.append(model("sorry, I was away"))
    assert isinstance(talk.plan(), Ready)


@given(TALK)
def test_plan_is_pure(script):
    """The same view and facts give the same plan, and the view is left as it was."""
    talk, _ = converse(script, 2_048)
    view, facts = talk.view, talk.facts

    def look():  # at all but what is remembered of sizes
        return {name: repr(value) for name, value in vars(view).items() if name not in CACHED}

    before = look()
    assert plan(view, facts) == plan(view.copy(), facts)
    assert look() == before


@given(TALK)
def test_unanswered_words_stay(script):
    """R-28: what the user said last is in the next request, verbatim unless it alone is too large."""
    view = converse([*script, ("user", 5)], 2_048)[0].view
    last = max(seq for seq, one in view.held.items() if isinstance(one, UserSaid))
    shown = next(item for item in view.items if item.seq == last)
    assert shown.state == "whole"


def test_never_stuck():
    """Very many messages that nobody answered still fit: the oldest are folded."""
    talk, plans = converse([("user", 40)] * 40, 1_024)
    assert all(isinstance(made, Ready) for made in plans)
    assert talk.view.items[-1].state in ("whole", "clipped")
    assert talk.view.items[-1].tokens > 80


def test_a_fold_does_not_put_the_margin_back():
    """What reports have taught of the error outlives a fold; a request is within its own limit."""
    talk = Planned(Facts(limits(10_000, None), STEADY))
    for _ in range(5):
        talk.add(user("word " * 100))
        made = talk.plan()
        talk.ask(made, counted=lambda made: made.report.estimate)
        talk.add(model("ok"))
    talk.add(user("word " * 6_000))
    made = talk.plan()
    assert isinstance(made, Ready)
    assert made.report.margin == 200
    assert made.report.total <= 10_000 - made.report.reserve - made.report.margin


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
    talk, plans = converse([("user", 40), ("model", 5)] * 20, 1_024)
    assert any(made.events for made in plans)
    assert 2 not in talk.view.held  # the first task, folded away
    view, facts = talk.view.copy(), talk.facts
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
    rules.check_view(again)
    assert measure_budget(again, facts.limits).used < measure_budget(view, facts.limits).used
