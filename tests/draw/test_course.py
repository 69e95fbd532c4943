"""A session over time: its sums are what was reported, whatever the log; nothing is drawn outside."""

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.core.budget import estimate_request, limits
from foldline.core.edits.clip import clip_event
from foldline.core.edits.undo import rewind_view
from foldline.core.log import (
    Asked,
    Edit,
    Folded,
    Logged,
    ModelSwitched,
    Opened,
    ToolReturned,
    Undone,
    UsageReported,
    UserSaid,
)
from foldline.core.plan import Facts
from foldline.core.policy import STEADY
from foldline.core.prices import UNKNOWN, Prices, make_prices
from foldline.core.rules import cut_points
from foldline.core.spine import Change, Range, Spine
from foldline.draw import course as words
from foldline.draw.course import HOWS, CourseStep, Following, build_course_columns, price_step
from foldline.draw.course_svg import course_svg
from foldline.draw.course_terminal import course_terminal
from foldline.draw.picture import build_picture
from foldline.draw.svg import WIDTH
from foldline.draw.wording import measure_width
from foldline.testing import Conversation, calls, model, result, user, view_of
from foldline.testing.strategies import conversations

PRICES = Prices(input=4.0, read=0.4, write=5.0, output=20.0)
STEPPED = make_prices(input=4.0, read=0.4, write=5.0, output=20.0, step=200_000, above=8.0)
counts = st.none() | st.integers(0, 3_000_000)
usages = st.builds(
    UsageReported,
    input=counts,
    cache_read=counts,
    cache_write=counts,
    output=counts,
    asked=st.none() | st.integers(0, 50),
)


def now(window=8_192, view=None):
    shown = view or view_of([Opened("test/model")])
    return build_picture(shown, Facts(limits(window, None), STEADY, PRICES))


def course(log, now, priced):
    following = Following(now, priced)
    for seq, event in log:
        following.apply_event(seq, event)
    return following.build_course()


def drawn_of(events, *, window=8_192, prices=PRICES, view=None):
    log = [Logged(seq, event) for seq, event in enumerate(events)]
    return course(log, now(window, view), lambda _: prices)


@st.composite
def logs(draw):
    """The log of a conversation with counts in it, also where no provider would put them."""
    events = [*draw(conversations()).events]
    for usage in draw(st.lists(usages, max_size=12)):
        events.insert(draw(st.integers(1, len(events))), usage)
    return events


@given(logs(), st.sampled_from((UNKNOWN, PRICES, STEPPED)))
def test_the_sums_are_what_was_reported(events, prices):
    """Every count of the log is drawn once, and nothing is told as counted that was not."""
    drawn = drawn_of(events, prices=prices)
    told = [event for event in events if isinstance(event, UsageReported)]
    kept = [step.usage for step in drawn.steps if step.usage]
    for name in ("input", "cache_read", "cache_write", "output"):
        assert sum(getattr(one, name) or 0 for one in kept) == sum(
            getattr(one, name) or 0 for one in told
        )
    counted = sum(step.input for step in drawn.steps if step.counted)
    assert counted == sum(one.input or 0 for one in told)
    assert all(0 <= step.read <= step.input <= step.everything for step in drawn.steps)
    folds = [event for event in events if isinstance(event, Folded)]
    assert drawn.sum_edits()["fold"][0] == len(folds)
    if prices != UNKNOWN:
        for step in drawn.steps:
            assert step.dollars >= 0
            assert step.all_dollars >= 0


@given(logs(), st.integers(1, 30))
def test_columns_hold_every_call_once(events, most):
    drawn = drawn_of(events)
    shown = build_course_columns(drawn, most)
    assert len(shown) == min(len(drawn.steps), most)
    assert tuple(step for column in shown for step in column.steps) == drawn.steps
    assert max((one.largest.input for one in shown), default=0) == drawn.peak
    for how in HOWS:
        taken = [one for column in shown for one in column.select_edits(how)]
        assert taken == [one for one in drawn.taken if one.how == how and one not in drawn.later]


@given(logs(), st.sampled_from((PRICES, STEPPED)))
def test_without_an_edit_everything_costs_what_was_paid(events, prices):
    """Exactly, whatever the caches held: also for a first call that hit what another session left."""
    drawn = drawn_of([one for one in events if not is_edit(one)], prices=prices)
    for step in drawn.steps:
        assert (step.everything, step.all_dollars) == (step.input, step.dollars)
    cut = next((at for at, one in enumerate(events) if is_edit(one)), len(events))
    edited = drawn_of(events, prices=prices)
    for step in edited.steps:
        if step.at < cut:
            assert (step.everything, step.all_dollars) == (step.input, step.dollars)


def is_edit(event):
    clipped = isinstance(event, ToolReturned | UserSaid) and event.clip is not None
    return clipped or isinstance(event, Edit)


def boxed(text):
    """Well-formed, and every mark and word inside the card."""
    root = ET.fromstring(text)  # noqa: S314 - our own
    high = float(root.get("height"))
    ids = {one.get("id") for one in root.iter() if one.get("id")}
    assert {*re.findall(r"url\(#(\w+)\)", text)} <= ids
    assert "nan" not in text
    assert "inf" not in re.sub(r">[^<]*<", "><", text)
    for one in root.iter():
        kind = one.tag.rpartition("}")[2]
        if kind == "rect" and one.get("x"):
            x, y, wide, tall = (float(one.get(name)) for name in ("x", "y", "width", "height"))
            assert -1 <= x <= x + wide <= WIDTH + 1
            assert -1 <= y <= y + tall <= high + 1
        elif kind == "text":
            x, y = float(one.get("x")), float(one.get("y"))
            long = len(one.text or "") * float(one.get("font-size")) * 0.56
            left = x - long if one.get("text-anchor") == "end" else x
            assert left >= 0, one.text
            assert left + long <= WIDTH, one.text
            assert 0 <= y <= high
        elif kind == "path":
            points = re.findall(r"(?:M|L)(-?[\d.]+) (-?[\d.]+)", one.get("d"))
            heights = re.findall(r"V(-?[\d.]+)", one.get("d"))
            assert all(0 <= float(x) <= WIDTH for x, _ in points)
            assert all(0 <= float(y) <= high for y in (*(y for _, y in points), *heights))
    return root


@given(logs(), st.sampled_from((300, 8_192, 1_000_000)), st.sampled_from((UNKNOWN, STEPPED)))
def test_any_log_gives_a_picture_within_its_box(events, window, prices):
    drawn = drawn_of(events, window=window, prices=prices)
    boxed(course_svg(drawn))
    for wide in (20, 60, 80, 133):
        lines = course_terminal(drawn, wide).splitlines()
        assert all(measure_width(line) <= wide for line in lines)


def ask(talk, usage=None):
    """A request and its answer; counted as it was estimated, where no count is given."""
    size = estimate_request(talk.view)
    talk.add(Asked(talk.view.head, "openai", "", 1, tokens=size, estimate=size))
    talk.add(model("An answer."), usage or UsageReported(input=size, output=50))


def session(turns=40, fold_at=20):
    """A session that grows turn by turn, and folds once."""
    talk = Conversation("test/model")
    for turn in range(turns):
        talk.add(user(f"Turn {turn}. " + "words of a person " * 60))
        if turn == fold_at:
            talk.fold(cut_points(talk.view)[-4], cap=200)
        ask(talk)
    return talk


def test_a_fold_is_a_tooth_and_everything_a_ramp():
    drawn = drawn_of(session().events, window=24_000)
    sizes = [step.input for step in drawn.steps]
    whole = [step.everything for step in drawn.steps]
    assert (drawn.turns, len(sizes)) == (40, 40)
    assert [at for at, step in enumerate(drawn.steps) if step.taken] == [20]
    assert sizes[20] < sizes[19] / 2
    (taken,) = drawn.taken
    assert (taken.how, taken.tokens) == ("fold", pytest.approx(sizes[19] - sizes[20], rel=0.1))
    assert whole[:20] == sizes[:20], "until something is kept out of sight, it is what was sent"
    assert whole[20:] == pytest.approx(
        [whole[19] / 20 * (at + 1) for at in range(20, 40)], rel=0.02
    )
    title = f"40 turns, 1 fold: never above {words.format_token_ceiling(drawn.peak)} of 24k tokens"
    assert words.describe_course(drawn) == title
    for step in drawn.steps:  # no cache was reported: everything would not have had one either
        assert step.all_dollars == pytest.approx((step.everything * 4 + 50 * 20) / 1e6)
    paid, everything = drawn.dollars
    assert words.describe_course_cost(drawn).startswith(
        f"${paid:.4f} instead of about ${everything:.4f}"
    )


def test_the_bill_is_that_of_the_prices():
    """Reads, writes and the rest each at its price; above the step all input costs more."""
    usage = UsageReported(input=1_000, cache_read=600, cache_write=300, output=10)
    events = [Opened("m"), user("hi"), Asked(1, "openai", "", 1, tokens=900), model("yes"), usage]
    (step,) = drawn_of(events).steps
    assert step.dollars == pytest.approx((600 * 0.4 + 300 * 5 + 100 * 4 + 10 * 20) / 1e6)
    large = UsageReported(input=300_000, output=10)
    (step,) = drawn_of([*events[:-1], large], prices=STEPPED).steps
    assert step.dollars == pytest.approx((300_000 * 8 + 10 * 20) / 1e6)
    assert "Above 200,000 tokens" in " ".join(
        words.explain_estimates(drawn_of([*events[:-1], large], prices=STEPPED))
    )
    assert drawn_of(events, prices=UNKNOWN).dollars is None
    assert "no price" in words.describe_course_cost(drawn_of(events, prices=UNKNOWN))


def told(*usages, edit=None):
    talk = Conversation("test/model")
    for at, usage in enumerate(usages):
        talk.add(user("words of a person " * 300))
        if edit is not None and at == len(usages) - 1:
            edit(talk)
        ask(talk, usage)
    return drawn_of(talk.events).steps


def test_everything_has_the_luck_of_the_session():
    """A cold cache is cold for everything too; a cache that a fold broke would have been warm."""
    first = UsageReported(input=2_000, cache_read=0, cache_write=2_000, output=0)
    warm = UsageReported(input=4_000, cache_read=2_000, cache_write=2_000, output=0)
    cold = UsageReported(input=4_000, cache_read=0, cache_write=4_000, output=0)
    before, step = told(first, warm)
    held = before.everything * 0.4 + (step.everything - before.everything) * 5
    assert step.all_dollars == pytest.approx(held / 1e6)
    *_, step = told(first, warm, cold)
    assert step.all_dollars == pytest.approx(step.everything * 5 / 1e6)
    *_, before, step = told(
        first, warm, warm, warm, cold, edit=lambda talk: talk.fold(cut_points(talk.view)[-2])
    )
    held = before.everything * 0.4 + (step.everything - before.everything) * 5
    assert step.all_dollars == pytest.approx(held / 1e6)


@given(st.booleans(), st.booleans(), st.integers(1_000, 50_000), st.integers(0, 5_000))
def test_a_change_of_the_thinking_budget_is_ours(was_lowered, is_lowered, held, new):
    """Its cold cache would have been warm for everything; without a change it is cold for both."""
    wrote = UsageReported(input=held, cache_read=0, cache_write=held, output=9)
    before = CourseStep(1, 1, "m", held, 9, held, wrote, lowers_budget=was_lowered)
    again = UsageReported(input=held + new, cache_read=0, cache_write=held + new, output=9)
    step = CourseStep(2, 1, "m", held + new, 9, held + new, again, lowers_budget=is_lowered)
    priced = price_step(step, before, PRICES, cached=True, writes=True)
    lost = held * (PRICES.write - PRICES.read) * (was_lowered != is_lowered) / 1e6
    assert priced.dollars - priced.all_dollars == pytest.approx(lost)


def test_what_an_earlier_session_left_in_the_cache_is_read_by_everything_too():
    """A first call that was read from the cache (G: outside, 2), then a fold."""
    first = UsageReported(input=27_013, cache_read=27_008, output=53)
    (step,) = told(first)
    assert step.all_dollars == step.dollars == pytest.approx((27_008 * 0.4 + 5 * 4 + 53 * 20) / 1e6)
    warm = UsageReported(input=29_000, cache_read=27_000, cache_write=2_000, output=0)
    fold = UsageReported(input=28_000, cache_read=26_000, cache_write=2_000, output=0)
    *before, after = told(
        first, warm, warm, warm, fold, edit=lambda talk: talk.fold(cut_points(talk.view)[-2])
    )
    assert all(one.all_dollars == one.dollars for one in before)
    held = before[-1].everything
    assert after.everything > after.input
    whole = (held * 0.4 + (after.everything - held) * 5) / 1e6
    assert after.all_dollars == pytest.approx(whole)


def test_what_a_client_rewound_is_not_in_everything():
    talk = Conversation("test/model")
    talk.add(user("go"))
    ask(talk)
    talk.add(user("words of a person " * 3_000))
    ask(talk)
    whole = drawn_of(talk.events).steps[-1].everything
    talk.add(rewind_view(talk.view, dropped=[Range(len(talk.events) - 4, len(talk.events) - 1)]))
    for _ in range(3):
        talk.add(user("something else " * 100))
        ask(talk)
    talk.fold(cut_points(talk.view)[-2])
    talk.add(user("and on"))
    ask(talk)
    assert drawn_of(talk.events).steps[-1].everything < whole / 2


def test_edits_that_were_undone_are_said():
    """The course stays as it was: what was sent was sent (outside, 17). A redo is no undo."""
    events = session().events
    place = next(at for at, one in enumerate(events) if isinstance(one, Folded))
    none = Change(Range(0, 0))
    undone = [*events, Undone(place, none, Spine())]
    drawn = drawn_of(undone, window=24_000)
    assert "1 edit was undone later." in course_terminal(drawn, 500)
    assert drawn.steps == drawn_of(events, window=24_000).steps
    again = [*undone, Undone(len(events), none, Spine())]
    assert drawn_of(again, window=24_000).undone == 0
    assert "undone" not in course_terminal(drawn_of(again, window=24_000), 500)


def test_what_could_not_be_sent_is_told():
    """From the first call on that no request could have held: said in the picture and below it."""
    events = session().events
    drawn = drawn_of(events, window=6_000)
    first = next(step for step in drawn.steps if step.everything > 6_000 - 600)
    assert drawn.outgrown == first
    assert f"full at turn {first.turn};" in course_svg(drawn)
    oversized = sum(step.everything > 6_000 - 600 for step in drawn.steps)
    assert words.explain_oversized(oversized) in course_terminal(drawn, 500)
    assert "would not have fitted" not in course_terminal(drawn_of(events, window=100_000), 500)


def test_what_nobody_counted_is_told_as_estimated():
    events = [Opened("m"), user("hi"), Asked(1, "openai", "", 1, tokens=900), model("yes")]
    drawn = drawn_of(events)
    assert (drawn.steps[0].input, drawn.counted) == (900, False)
    assert "tokens estimated" in words.render_course_subtitle(drawn)
    both = drawn_of([*events, user("and?"), model("no"), UsageReported(input=5, output=1)])
    assert "tokens reported for 1 call, else estimated" in words.render_course_subtitle(both)
    assert "cache not reported" in course_svg(drawn)


def test_a_call_that_broke_off_is_none():
    """Its edits belong to the call that came then."""
    large = clip_event(result("c", "a line of a log\n" * 900), cap=200, how="ends")
    events = [Opened("m"), user("hi"), calls("c"), UsageReported(input=0, output=0), large]
    events += [model(""), UsageReported(input=0, output=0), model("yes"), UsageReported(input=9)]
    (step,) = drawn_of(events).steps
    assert (step.input, [one.how for one in step.taken]) == (9, ["clip"])
    assert step.taken[0].tokens == large.clip.whole - large.clip.shown > 1_000


def test_masks_and_what_came_after_the_last_call():
    talk = Conversation("test/model")
    talk.add(user("go"), calls("c"), result("c", "a line of a log\n" * 300))
    talk.ask()
    talk.add(model("done"), UsageReported(input=2_000))
    talk.mask([3])
    drawn = drawn_of(talk.events)
    assert [one.how for one in drawn.later] == ["mask"]
    assert drawn.sum_edits()["mask"][1] > 1_000
    assert "□ 1 took" in course_terminal(drawn, 80)
    assert course_svg(drawn).count(' stroke-width="1.5"') == 1


def test_another_model_has_other_prices():
    events = [Opened("a"), user("hi"), model("yes"), UsageReported(input=1_000, output=0)]
    events += [ModelSwitched("b"), user("hi"), model("yes"), UsageReported(input=1_000, output=0)]
    log = [Logged(seq, event) for seq, event in enumerate(events)]
    twice = replace(PRICES, input=8.0)
    drawn = course(log, now(), lambda name: twice if name == "b" else PRICES)
    assert [step.dollars for step in drawn.steps] == pytest.approx([0.004, 0.008])


def test_a_person_can_read_it():
    drawn = drawn_of(session().events, window=24_000)
    lines = course_terminal(drawn, 60).splitlines()
    assert lines[0] == words.describe_course(drawn)
    row = {line.split()[0]: line for line in lines if line}
    assert row["tokens"].split()[1] == "▁▁▁▁▂▃▃▃▄▄▄▅▆▆▆▇▇▁▁▂▂▂▃▄▄▄▅▅▆▆▇▇▇█"
    assert row["folds"].count("▼") == 1
    assert "masks" in row
    assert course_terminal(drawn_of([Opened("m")])).startswith("no call of a model yet")


@pytest.mark.parametrize(
    ("number", "short"),
    [(0, "0"), (999, "999"), (1_500, "2k"), (999_600, "1.0M"), (2_340_000, "2.3M")],
)
def test_numbers_are_short(number, short):
    assert words.format_tokens(number) == short


def test_nothing_is_told_as_less_than_it_was():
    assert words.format_token_ceiling(45_001) == "46k"
    assert words.choose_ticks(46_000, 4) == [0, 20_000, 40_000]
    assert words.choose_ticks(0, 4) == [0]
