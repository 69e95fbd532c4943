"""The default: nothing is folded below its floor unless forced, and results arrive whole."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken

from foldline.core.budget import limits, measure_budget
from foldline.core.fold_selection import explain_folding
from foldline.core.log import ModelSaid
from foldline.core.parts import Call
from foldline.core.plan import Facts, Ready, admit
from foldline.core.policy import PRESETS, STEADY, THRIFTY
from foldline.core.prices import FREE, Prices
from foldline.core.tokens import count_parts
from foldline.testing import Planned, calls, model, result, user

WINDOWS = st.sampled_from((8_000, 32_000, 64_000, 200_000, 1_000_000))
PAID = Prices(3.0, 0.075, 3.0, 15.0)
PRICES = st.sampled_from((PAID, FREE, Prices(3.0, 0.75, 3.75, 15.0)))
SIZES = st.lists(st.integers(20, 2_500), min_size=2, max_size=12)


def rows(turn, count):
    return "\n".join(f"{turn}.{row} item {row * 7919 % 9973} in stock" for row in range(count))


def nothing_is_folded_early(window, prices, sizes, cache, turns=40):
    talk = Planned(Facts(limits(window, None), STEADY, prices))
    floor = min(48_000, window // 2)
    for turn in range(turns):
        talk.add(user(f"Task {turn}: look and tell."))
        before = measure_budget(talk.view, talk.facts.limits)
        made = talk.plan(Facts(talk.facts.limits, STEADY, prices, cache))
        assert isinstance(made, Ready)
        if made.folded and made.folded.why != "forced":
            least = floor // 2 if talk.view.list_folds() else floor
            assert before.request >= 0.99 * least, f"folded at {before.request:,} of {window:,}"
            assert not prices.free, "folded where nothing is paid for"
        talk.ask(made, counted=lambda one: one.report.total)
        talk.add(calls(f"c{turn}"), result(f"c{turn}", rows(turn, sizes[turn % len(sizes)])))
        talk.ask(talk.plan(), counted=lambda one: one.report.total)
        talk.add(model("Done."))
    return talk.folds()


@given(WINDOWS, PRICES, SIZES, st.sampled_from(("warm", "cold")))
def test_nothing_below_the_floor_is_folded_unless_forced(window, prices, sizes, cache):
    nothing_is_folded_early(window, prices, sizes, cache, turns=12)


FLOOR = "foldline.core.fold_selection"


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("return max(floor // 2 if view.list_folds() else floor, facts.fold_from)", "return 0"),
        ("floor = min(rule.floor, limits.window // 2) if rule else 0", "floor = 1_000"),
        ("if rule is None or facts.prices.free:", "if rule is None:"),
    ],
)
def test_the_floor_catches(line, instead):
    def run():
        for prices in (PAID, FREE):
            nothing_is_folded_early(200_000, prices, [500], "cold")

    run()
    with broken(FLOOR, line, instead), pytest.raises(AssertionError):
        run()


NUMBER = r"([\d,]+)"


def find_number(pattern, text):
    found = re.search(pattern, text)
    return int(found[1].replace(",", "")) if found else None


def plan_keeps_the_rule(name, window, prices):
    """It folds from where the rule says, and shows results whole up to where it says."""
    policy = PRESETS[name]
    most = limits(window, None, usual=policy.reserve, margin=policy.margin, threshold=policy.threshold)  # fmt: skip
    facts = Facts(most, policy, prices, cache="cold")
    talk = Planned(facts, user("Begin."))
    rule = explain_folding(talk.view, facts)
    assert f"{window:,}" in rule
    least = find_number(rf"below {NUMBER} tokens", rule)
    whole = find_number(rf"whole up to {NUMBER} ", rule)
    talk.add(calls("c"))
    line = "This one is in stock, and so are all of the others.\n"
    each = len(line) if "bytes" in rule else count_parts(result("c", line * 500).parts) / 500
    for share, is_whole in ((0.97, True), (1.03, False)):
        arrived = result("c", line * int(share * whole / each))
        assert (admit(talk.view, arrived, facts)[0].clip is None) == is_whole
    talk.add(result("c", "short"), model("Done."))
    for turn in range(200):
        talk.add(user(f"Task {turn}: " + rows(turn, window // 300)))
        before = measure_budget(talk.view, most)
        made = talk.plan()
        if not isinstance(made, Ready) or made.folded or made.report.due:
            break
        talk.ask(made)
        talk.add(model("Done."))
    is_full = not before.fits or before.used > 0.85 * before.room
    if not policy.folds:
        assert not isinstance(made, Ready)
    elif least is None:
        assert is_full == ("when the window is full" in rule)
    else:
        assert least <= before.request <= 1.25 * least + 3_000
    return rule


SAID = [(name, 100_000, prices) for name in PRESETS for prices in (PAID, FREE)]


@pytest.mark.parametrize(("name", "window", "prices"), SAID)
def test_the_rule_that_is_said_is_the_one_that_is_kept(name, window, prices):
    plan_keeps_the_rule(name, window, prices)


@pytest.mark.parametrize(
    ("module", "line", "instead", "case"),
    [
        (FLOOR, "return max(floor // 2 if view.list_folds() else floor, facts.fold_from)", "return 9_000", ("steady", PAID)),
        (FLOOR, "starts[ending] = max(fixed + min(dues), facts.fold_from)", "starts[ending] = 9_000", ("classic", PAID)),
        (FLOOR, "if policy.priced and not facts.prices.free:", "if policy.priced:", ("steady", FREE)),
        ("foldline.core.plan", "measure_result_cap(budget, wanted.tokens)", "2_500", ("steady", PAID)),
    ],
)  # fmt: skip
def test_the_rule_catches(module, line, instead, case):
    with broken(module, line, instead), pytest.raises(AssertionError):
        plan_keeps_the_rule(case[0], 100_000, case[1])


def results_are_whole(policy, window, sizes):
    talk = Planned(Facts(limits(window, None), policy, PAID), user("Look at all of them."))
    quarter = measure_budget(talk.view, talk.facts.limits).room // 4
    for turn, size in enumerate(sizes):
        talk.add(calls(f"c{turn}"))
        talk.add(result(f"c{turn}", rows(turn, size)))
        arrived = talk.events[-1]
        assert (arrived.clip is None) == (count_parts(arrived.parts) <= min(quarter, 25_000))
        made = talk.plan()
        assert isinstance(made, Ready)
        shown = next(one for one in made.request.items if one.seq == talk.view.tops[-1])
        assert shown.state == ("whole" if arrived.clip is None else "clipped")
        talk.ask(made, counted=lambda one: one.report.total)


@given(st.sampled_from((STEADY, THRIFTY)), st.sampled_from((100_000, 200_000, 1_000_000)), SIZES)
def test_results_up_to_a_quarter_of_the_room_are_whole(policy, window, sizes):
    results_are_whole(policy, window, sizes[:6])


def test_whole_results_catch():
    policy = "foldline.core.policy"
    line, instead = "return own or (self.clips", "return Clipping(2_500, 'ends') or (self.clips"
    with broken(policy, line, instead), pytest.raises(AssertionError):
        results_are_whole(STEADY, 200_000, [400, 1_500])


@pytest.mark.parametrize(
    ("command", "is_read"),
    [
        ("cat a.py", True),
        ("sed -n 1,200p src/a.py | head -50", True),
        ("cd src && nl -ba a.py", True),
        ("bash -lc 'cat a.py'", True),
        ("cat a.py; make", False),
        ("cat a.py | python -", False),
        ("sed -i s/a/b/ a.py", False),
        ("cat a.py > b.py", False),
        ("pytest -q", False),
    ],
)
def test_a_shell_command_that_only_shows_files_is_a_reader(command, is_read):
    talk = Planned(Facts(limits(1_000_000, None), STEADY, PAID), user("Read it."))
    talk.add(ModelSaid((Call("a", "exec_command", json.dumps({"cmd": command})),)))
    talk.add(result("a", rows(0, 4_000)))
    assert count_parts(talk.events[-1].parts) > 25_000
    assert (talk.events[-1].clip is None) == is_read
