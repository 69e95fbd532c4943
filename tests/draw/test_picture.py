"""R-77: a picture whose parts sum to what is sent, and that knows what was sent before."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foldline.core.budget import limits, measure_budget
from foldline.core.log import Asked, Instructed, ModelSwitched, Opened, UsageReported
from foldline.core.parts import Text, Tool
from foldline.core.plan import Facts
from foldline.core.policy import OFF, PRESETS, STEADY
from foldline.core.prices import make_prices
from foldline.core.request import NAMES, Request, build_report, render
from foldline.core.rules import cut_points
from foldline.draw.picture import KINDS, SPACES, build_picture, count_kept_items, fill_cells
from foldline.testing import (
    Conversation,
    Planned,
    Step,
    calls,
    model,
    play,
    result,
    user,
    view_of,
)
from foldline.testing.strategies import conversations

PRICES = make_prices(input=5.0, read=0.5, write=6.25, output=25.0, step=200_000)
UNDONE_BEHIND_A_MASK = (
    *(("user", 1), ("instruct", 1), ("calls", 0), ("result", 0), ("instruct", 0)),
    *(("fold", 0), ("ask", 0), ("exclude", 0), ("undo", 1)),
)
WINDOWS = st.sampled_from((400, 2_000, 8_192, 200_000))


def facts(window=8_192, policy=STEADY, **more):
    return Facts(limits(window, None, max_input=more.pop("max_input", None)), policy, **more)


@given(conversations(), WINDOWS, st.sampled_from(sorted(PRESETS)))
def test_the_parts_sum_to_the_report(talk, window, preset):
    given = facts(window, PRESETS[preset])
    drawn = build_picture(talk.view, given)
    said = build_report(talk.view, measure_budget(talk.view, given.limits))
    parts = {kind: sum(run.tokens for run in drawn.select_runs(kind)) for kind in KINDS}
    assert drawn.total == said.total
    assert parts == {kind: said.parts.get(kind, 0) for kind in KINDS}
    items = (*talk.view.items, *talk.view.waiting)
    for kind in set(NAMES.values()):
        count = sum(run.items for run in drawn.select_runs(kind))
        assert count == sum(NAMES[item.role] == kind for item in items)
    assert drawn.total + sum(drawn.measure_spaces().values()) == max(drawn.window, drawn.total)
    assert drawn.prefix.kept + drawn.prefix.new == drawn.total
    assert len(drawn.folds) == len(talk.view.list_folds())


@given(conversations(), WINDOWS, st.integers(1, 400))
def test_cells_are_in_the_order_sent_and_as_many_as_the_tokens(talk, window, count):
    drawn = build_picture(talk.view, facts(window))
    filled = fill_cells(drawn, count)
    assert len(filled) == count
    kinds = [fill for fill in filled if fill in KINDS]
    assert filled[: len(kinds)] == tuple(kinds), "the request is not in front"
    order = [SPACES.index(fill) for fill in filled[len(kinds) :]]
    assert order == sorted(order)
    shown = min(drawn.total, window) * count / window
    assert abs(len(kinds) - shown) <= 1


@example(play([Step(name, a, 0) for name, a in UNDONE_BEHIND_A_MASK]))
@given(conversations())
def test_what_is_called_as_last_sent_was_sent_so(talk):
    """The items that are counted as cached are, byte for byte, a prefix of the last request."""
    place = count_kept_items(talk.view)
    if place is None:
        assert build_picture(talk.view, facts(200_000)).prefix.kept == 0
        return
    now = render(talk.view)
    same = Request(now.model, now.system, now.tools, now.items[:place], now.native)
    last = talk.sent[-1]
    for shown, sent in zip(talk.dialects, last.blocks, strict=True):
        blocks = tuple(shown.encode_blocks(same))
        assert blocks == sent[: len(blocks)]
        if talk.changes == last.changes:
            assert blocks == sent, "with nothing changed between, all of it is the same"


def test_a_new_message_is_new_and_the_rest_is_read_from_the_cache():
    talk = Planned(facts(8_192, prices=PRICES, cache="warm"), Instructed((Text("Be brief."),)))
    talk.add(user("Make the tests pass. " * 40))
    before = build_picture(talk.view, talk.facts)
    assert (before.prefix.kept, before.prefix.sent) == (0, False)
    talk.ask(talk.plan())
    assert build_picture(talk.view, talk.facts).prefix.new == 0
    talk.add(model("I read them. " * 30))
    after = build_picture(talk.view, talk.facts)
    assert after.prefix.kept == before.total
    assert after.cost is not None
    assert after.cost.dollars == pytest.approx(
        (0.5 * before.total + 6.25 * (after.total - before.total)) / 1e6
    )
    cold = build_picture(talk.view, replace(talk.facts, cache="cold"))
    assert cold.cost is not None
    assert cold.cost.dollars == pytest.approx(6.25 * cold.total / 1e6)


def test_another_model_or_other_tools_begin_anew():
    for event in (ModelSwitched("other/model"), Instructed((), (Tool("read"),))):
        talk = Conversation()
        talk.add(user("hello"))
        talk.ask()
        assert build_picture(talk.view, facts()).prefix.kept > 0
        talk.add(event)
        assert build_picture(talk.view, facts()).prefix.kept == 0


def test_after_a_fold_only_what_opens_the_request_was_sent_before():
    talk = Conversation()
    talk.add(Instructed((Text("Be brief. " * 30),)))
    for turn in range(6):
        talk.add(user(f"Task {turn}: " + "look at the parser. " * 60))
        talk.ask()
        talk.add(model(f"Done {turn}."))
    talk.fold(cut_points(talk.view)[3], cap=150)
    drawn = build_picture(talk.view, facts())
    assert drawn.prefix.kept == sum(run.tokens for run in drawn.select_runs("system")) > 0
    talk.ask()
    assert build_picture(talk.view, facts()).prefix.new == 0


def test_a_cost_is_none_without_a_price_and_at_least_above_a_step():
    talk = Planned(facts(400_000, OFF))
    talk.add(user("This is the text of the answer, and of the question. " * 16_000))
    assert build_picture(talk.view, talk.facts).cost is None
    drawn = build_picture(talk.view, replace(talk.facts, prices=PRICES))
    assert drawn.cost is not None
    assert drawn.cost.step == 200_000
    assert not drawn.cost.assumed
    guessed = build_picture(talk.view, replace(talk.facts, prices=make_prices(input=5.0)))
    assert guessed.cost is not None
    assert guessed.cost.assumed


def test_a_clip_says_how_much_is_shown_of_how_much():
    talk = Planned(facts(200_000), user("run it"), calls("c"))
    talk.add(result("c", "a line of the log\n" * 8_000))
    (short,) = build_picture(talk.view, talk.facts).shorts
    assert (short.kind, short.state, short.items) == ("results", "clipped", 1)
    assert 20_000 < short.shown <= 25_000
    assert short.whole > 27_000


def test_a_limit_on_what_is_sent_closes_a_part_of_the_window():
    drawn = build_picture(view_of([Opened("m")]), facts(400_000, max_input=272_000))
    assert drawn.measure_spaces() == {
        "free": 232_000,
        "margin": 40_000,
        "closed": 88_000,
        "reserve": 40_000,
    }


def test_reported_numbers_say_so():
    talk = Planned(facts())
    talk.add(user("hello " * 300))
    assert build_picture(talk.view, talk.facts).counted == "estimated"
    talk.append(Asked(talk.view.head, "", "", 0, estimate=400), UsageReported(input=380))
    assert build_picture(talk.view, talk.facts).counted == "reported"


@pytest.mark.parametrize(
    ("used", "level"), [(699, "green"), (700, "yellow"), (899, "yellow"), (900, "red")]
)
def test_colours_change_where_the_printed_number_does(used, level):
    """A-42."""
    drawn = build_picture(view_of([Opened("m"), user("hello")]), facts(1_000))
    (run,) = drawn.runs
    assert replace(drawn, runs=(replace(run, tokens=used),)).level == level
