"""Where a person starts folds, nothing is folded without a yes while the request can be sent.

And they are asked at the number that they wrote, as the displays show it: tokens used, of the window.
"""

from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken

from foldline.core.budget import limits, measure_budget
from foldline.core.log import Asked, Folded, Instructed, UsageReported
from foldline.core.parts import Text, Tool
from foldline.core.plan import Blocked, Facts, Ready, is_fold_waiting
from foldline.core.tokens import count_tokens
from foldline.draw.picture import build_picture
from foldline.draw.wording import render_usage_block
from foldline.errors import BadInput
from foldline.session.model_facts import build_facts
from foldline.settings import build_settings, parse_settings, read
from foldline.testing import Planned, model, user

PLAN, SELECTION, BUDGET = (
    "foldline.core.plan",
    "foldline.core.fold_selection",
    "foldline.core.budget",
)
WORDS = "it is in the text "
EACH = count_tokens(WORDS * 1_000) / 1_000
PRESETS = ("confirm", "classic", "steady", "window", "three-layer")


@dataclass(frozen=True)
class Case:
    """Settings as a file has them, and how full the window is."""

    window: int
    reserve: int | None
    threshold: float
    start: str
    preset: str
    system: float
    """Of the window."""
    tools: float
    filled: float | None
    """Of the window, about; None: all that can be sent."""
    near: int
    """Tokens above or below that."""
    reported: bool
    messages: int
    over: bool
    """Whether it may be more than can be sent."""

    @property
    def settings(self):
        """What the user's file says."""
        table = {"max_input_tokens": self.window}
        if self.reserve is not None:
            table["max_output_tokens"] = self.reserve
        return {
            "policy": self.preset,
            "start": self.start,
            "compact_threshold": self.threshold,
            "session": {"context": {"max_history_tokens": 0}},
            "model": table,
        }


def draw_case(random):
    """Draw one: windows by their order of size, and every second one near a limit."""
    window = int(2_000 * 1_000 ** random.random())
    threshold = round(random.uniform(0.3, 0.99), random.choice((1, 2, 3)))
    filled = random.choice((threshold, None, 0.8, 0.88, 0.9, 0.95, random.uniform(0.1, 1.05)))
    small = min(1, 20_000 / window)  # long texts only take time
    return Case(
        window=window,
        reserve=random.choice((None, None, int(window * random.uniform(0.005, 0.3)) + 1)),
        threshold=min(threshold, 0.99),
        start=random.choice(("ask", "manual")),
        preset=random.choice(PRESETS),
        system=random.choice((0, random.uniform(0, 0.1))) * small,
        tools=random.choice((0, random.uniform(0, 0.1))) * small,
        filled=filled,
        near=random.choice((0, 0, 1, -1, 2, -2, random.randint(-50, 50))),
        reported=window > 40_000 or random.random() < 0.5,
        messages=random.choice((2, *[6] * 20, 230)),
        over=random.random() < 0.1,  # folds take time
    )


def cases():
    return st.integers(0, 2**32).map(lambda seed: draw_case(Random(seed)))


def build_talk(case):
    """A conversation of that size, whose newest message is short."""
    said = parse_settings(case.settings)[0]
    policy = build_settings(said).policy
    facts = build_facts("m", window=case.window, reserve=case.reserve, policy=policy)
    talk = Planned(facts)
    system = WORDS * int(case.window * case.system / 5)
    tools = [Tool("bash", WORDS * int(case.window * case.tools / 5))] if case.tools else []
    if system or tools:
        talk.append(Instructed((Text(system),) if system else (), tuple(tools)))
    most = round(case.window * facts.limits.largest_threshold)
    wanted = (most if case.filled is None else round(case.window * case.filled)) + case.near
    wanted = wanted if case.over else min(wanted, most)
    fixed = measure_budget(talk.view, facts.limits).request
    turns = max(case.messages // 2, 1)
    # A count says how large it is; without one the words do.
    each = 4 if case.reported else max(int((wanted - fixed) / turns / EACH) - 5, 1)
    for turn in range(turns):
        talk.append(user(f"say {turn}: " + WORDS * each), model(f"answer {turn}"))
    newest = user("and now?")
    if case.reported:
        before = measure_budget(talk.view, facts.limits).request
        talk.append(newest)
        more = measure_budget(talk.view, facts.limits).request - before
        talk = replace_newest(talk, wanted - more, before)
    talk.append(newest)
    return talk


def replace_newest(talk, count, estimate):
    """The same conversation without its newest message, and with a provider's count."""
    again = Planned(talk.facts)
    again.append(*talk.events[1:-1])
    asked = Asked(again.view.head, "", "", 0, tokens=estimate, estimate=estimate)
    again.append(asked, UsageReported(input=max(count, 1)))
    return again


def check_consent(case):
    """No fold without a yes while it can be sent; asked at the number, or as late as can be."""
    talk = build_talk(case)
    known = talk.facts.limits
    budget = measure_budget(talk.view, known)
    free = known.window - known.reserve - budget.margin
    used = budget.request
    reached = used >= case.threshold * known.window - 1e-6
    possible = (
        case.threshold <= 1 - (known.reserve + int(known.window * known.margin)) / known.window
    )
    check_settings(case, possible=possible)
    made = talk.plan()
    if used <= free:
        assert isinstance(made, Ready), "it can be sent"
        assert made.folded is None, "nobody said yes"
        warned = any("largest share" in one for one in made.report.warnings)
        assert warned != possible, "nobody said that it cannot be"
        if case.start == "manual":
            assert not made.report.due
        elif possible:
            assert made.report.due == reached, "asked at another number"
            assert is_fold_waiting(talk.view, talk.facts) == reached
        elif not reached:
            room = free - budget.system - budget.tools
            assert made.report.due <= (budget.used >= 0.96 * room), "asked too early"
            assert made.report.due >= (budget.used >= 0.995 * room), "never asked"
    elif isinstance(made, Ready):
        assert made.folded is not None
        assert made.folded.why == "full", "it does not say why nobody was asked"
        assert made.report.total <= free
    else:
        assert isinstance(made, Blocked)
    if case.start == "ask" and possible:
        shown = render_usage_block(
            build_picture(talk.view, talk.facts), latest=0, growth=0, turns_left=None
        )
        percent = float(shown[-1].removeprefix("  Compaction threshold: ").removesuffix("%"))
        assert abs(percent - 100 * case.threshold) <= 0.051, "another number is shown"


def check_settings(case, *, possible):
    """The settings check takes a number that works, and names the largest where it does not."""
    try:
        read(case.settings)
    except BadInput as fault:
        told = str(fault)
    else:
        told = ""
    assert possible == (not told), told or "nobody said that this cannot be"
    if told:
        largest = float(told.rpartition(" ")[2])
        assert largest < case.threshold
        assert read({**case.settings, "compact_threshold": max(largest, 0.01)})


@given(cases())
def test_no_means_no(case):
    """P5-11, M-3, M-15."""
    check_consent(case)


@pytest.mark.slow
@pytest.mark.long
def test_no_means_no_ten_thousand_times():
    for seed in range(10_000):
        check_consent(draw_case(Random(seed)))


def check_all(cases):
    for case in cases:
        check_consent(case)


def find_seeds(*, count=400):
    return [draw_case(Random(seed)) for seed in range(count)]


@pytest.mark.parametrize(
    ("module", "line", "instead", "match"),
    [
        (SELECTION, 'hard if policy.start == "auto" else budget.room', "hard", "yes|another number"),
        (PLAN, "is_crowded = by_itself and", "is_crowded =", "nobody said yes"),
        (PLAN, "if not budget.fits and by_itself:\n        edit = _find_safe_fold(view, budget, facts)\n",
         "if not budget.fits:\n        edit = _find_safe_fold(view, budget, facts)\n", "nobody said yes"),
        (PLAN, "(by_itself and not early and _is_due", "(not early and _is_due", "nobody said yes"),
        (BUDGET, "limit = whole if whole <= self.room else self.room * max(share, _LAST_CALL)",
         "limit = min(whole, self.room * (0.7 + 0.3 * share))", "another number"),
        (BUDGET, "self.room * max(share, _LAST_CALL)", "whole", "never asked"),
        (BUDGET, "ceil(self.limits.window * share - _EXACT)", "self.limits.window * share + 1", "another number"),
        (SELECTION, 'why = "forced" if policy.start == "auto" else "full"', 'why = "forced"', "does not say why"),
        (BUDGET, "if self.threshold is None or self.threshold <= most:", "if True:", "nobody said"),
    ],
)  # fmt: skip
def test_the_property_catches(module, line, instead, match):
    found = find_seeds()
    with broken(module, line, instead), pytest.raises(AssertionError, match=match):
        check_all(found)


PROSE = "Most of the tests pass when the file is read in one piece, and nobody complained. "


@pytest.mark.parametrize("window", [8_000, 10_000, 64_000, 128_000, 200_000])
@pytest.mark.parametrize("reports", [False, True])
def test_confirm_asks_at_ninety_per_cent_and_folds_when_it_is_full(window, reports):
    """M-3, M-15, P5-09, P5-11, P5-14: the default reserve; every answer to the question is no."""
    talk = Planned(build_facts("m", window=window, reserve=None, policy="confirm"))
    asked, made = [], None
    while True:
        talk.append(user(PROSE * max(window // 20_000, 1)))
        used = measure_budget(talk.view, talk.facts.limits)
        made = talk.plan()
        assert isinstance(made, Ready)
        if made.folded:
            break
        asked.append((used.request / window, made.report.due))
        assert made.report.total <= window - made.report.reserve - made.report.margin
        talk.ask(made, counted=(lambda one: one.report.total) if reports else None)
        talk.append(model("ok"))
    assert all(due == (share >= 0.9) for share, due in asked)
    assert sum(due for _, due in asked) >= 3  # asked again after every answer
    assert used.used > used.room
    assert made.folded.why == "full"


def test_a_yes_is_a_yes():
    talk = build_talk(replace(draw_case(Random(1)), preset="confirm", start="ask", reserve=None,
                              window=30_000, threshold=0.9, filled=0.92, near=0, messages=6,
                              system=0, tools=0, reported=False))  # fmt: skip
    assert talk.plan().report.due
    made = talk.plan(replace(talk.facts, now=True))
    assert isinstance(made.folded, Folded)
    assert made.folded.why == "due"


def test_the_plain_limits_ask_before_it_is_full():
    """Facts made by hand, with a reserve of a tenth and a margin of another."""
    policy = read({"policy": "confirm"}).policy
    talk = Planned(Facts(limits(64_000, None), policy))
    seen = []
    while True:
        talk.append(user(PROSE * 3))
        made = talk.plan()
        if made.folded:
            break
        seen.append(made.report.due)
        talk.append(model("ok"))
    assert any(seen)
