"""A threshold is the number that the user wrote, a share of the window; one that cannot be is told."""

from dataclasses import replace

import pytest

from foldline.core.budget import limits, measure_budget
from foldline.core.log import Instructed
from foldline.core.parts import Text
from foldline.core.plan import Ready, compute_tiers
from foldline.core.policy import PRESETS
from foldline.core.prices import Prices
from foldline.draw.picture import build_picture
from foldline.draw.wording import render_usage_block
from foldline.errors import BadInput
from foldline.session.model_facts import build_facts
from foldline.settings import read
from foldline.testing import Planned, calls, model, result, user

PAID = Prices(3.0, 0.3, 3.75, 15.0)
WINDOW = 128_000


def set_up(window=WINDOW, **said):
    """The facts of a session with these settings."""
    policy = read(said).policy
    return replace(build_facts("m", window=window, reserve=None, policy=policy), prices=PAID)


def find_first_fold(facts):
    """How full the window was when the first fold was made, and that fold."""
    talk = Planned(facts)
    for turn in range(4_000):
        talk.add(user(f"Task {turn}: do the next thing and tell me."))
        for step in range(4):
            used = measure_budget(talk.view, talk.facts.limits)
            made = talk.plan()
            assert isinstance(made, Ready)
            if made.folded:
                return used, made.folded
            talk.ask(made, counted=lambda one: one.report.total)
            name = f"c{turn}_{step}"
            if step < 3:
                talk.add(
                    calls(name),
                    result(name, f"line{turn} of the output\n" * (facts.limits.window // 3_000)),
                )
        talk.add(model(f"Done with {turn}."))
    raise AssertionError("never folded")


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.9])
@pytest.mark.parametrize("preset", ["steady", "thrifty", "classic", "window"])
def test_nothing_is_folded_before_the_number(preset, threshold):
    """M-3, P5-09: not because it would pay, nor because it is cold or dear; then it is."""
    facts = set_up(40_000, policy=preset, compact_threshold=threshold)
    used, fold = find_first_fold(replace(facts, cache="cold"))
    assert threshold <= used.request / 40_000 <= threshold + 0.03
    assert fold.why in ("due", "pays", "cold")


def test_without_the_number_steady_is_as_it_was():
    used, fold = find_first_fold(set_up(policy="steady"))
    assert used.request < 0.5 * WINDOW
    assert fold.why == "pays"
    assert build_facts("m", window=WINDOW, reserve=None, policy="steady").limits == limits(
        WINDOW, None
    )


def test_a_price_step_does_not_come_before_the_number():
    facts = set_up(policy="steady", compact_threshold=0.9)  # of 128,000
    facts = replace(facts, limits=replace(facts.limits, step=40_000))
    used, _ = find_first_fold(facts)
    assert used.request >= 0.9 * WINDOW


def test_a_number_above_the_presets_own_hard_share_counts():
    used, fold = find_first_fold(set_up(40_000, policy="classic", compact_threshold=0.92))
    assert used.request >= 0.92 * 40_000
    assert fold.why == "due"


@pytest.mark.parametrize("reports", [0, 4])
@pytest.mark.parametrize("name", ["compact_threshold", "compaction.safety_ratio"])
@pytest.mark.parametrize("share", [0.4, 0.65, 0.7, 0.8, 0.875, 0.9, 0.95])
@pytest.mark.parametrize("preset", sorted({*PRESETS} - {"off"}))
def test_the_number_is_what_is_used_and_shown(preset, share, name, reports):
    """P5-09, P1-44: in every preset, with and without a system prompt, before and after reports."""
    facts = set_up(policy=preset, **{name: share})
    talk = Planned(facts, Instructed((Text("Be brief. " * 400),)))
    for turn in range(reports):
        talk.append(user(f"hello {turn}"))
        talk.ask(talk.plan(), counted=lambda one: one.report.total)
        talk.append(model("hello"))
    talk.append(user("go"))
    budget = measure_budget(talk.view, facts.limits)
    tiers = compute_tiers(budget, facts.policy)
    assert tiers["soft"] + budget.system + budget.tools == round(share * WINDOW)
    drawn = build_picture(talk.view, facts)
    assert dict(drawn.tiers)["soft"] == round(share * WINDOW)
    block = render_usage_block(drawn, latest=2_340, growth=1_890, turns_left=410)
    assert block[2:] == [
        "  Latest turn: 2,340 tokens",
        "  Avg turn: 1,890 tokens",
        "  Estimated turns remaining: ~410",
        f"  Compaction threshold: {100 * share:g}%",
    ]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            {"compact_threshold": 0.9, "model": {"max_input_tokens": 100_000, "max_output_tokens": 20_000}},
            ("compact_threshold = 0.9 of the window cannot be reached: 20,000 of 100,000 tokens are kept "
             "for the answer, and 2,000 for errors of the count; the largest share that works is 0.78"),
        ),
        (
            {"compaction": {"safety_ratio": 0.99}, "model": {"max_input_tokens": 8_000}},
            ("compaction.safety_ratio = 0.99 of the window cannot be reached: 320 of 8,000 tokens are kept "
             "for the answer, and 160 for errors of the count; the largest share that works is 0.94"),
        ),
        (
            {
                "compact_threshold": 0.5,
                "providers": {"a": {"compact_threshold": 0.95}},
                "model": {"name": "a/x", "max_input_tokens": 8_000, "max_output_tokens": 1_000},
            },
            ("providers.a.compact_threshold = 0.95 of the window cannot be reached: 1,000 of 8,000 tokens "
             "are kept for the answer, and 160 for errors of the count; the largest share that works "
             "is 0.85"),
        ),
    ],
)  # fmt: skip
def test_an_impossible_number_is_told_when_settings_are_read(said, told):
    """M-3: with the largest that works."""
    with pytest.raises(BadInput) as fault:
        read(said)
    assert str(fault.value) == told


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ({"window": 100_000, "reserve": 15_000}, "15,000 of 100,000 tokens are kept for the answer"),
        ({"window": 400_000, "reserve": 4_000, "max_input": 272_000}, "the model takes 272,000 of 400,000 tokens"),
    ],
)  # fmt: skip
def test_a_window_that_is_known_later_warns(known, told):
    """M-3: in the report, beside the other warnings; and it asks before it is full."""
    policy = PRESETS["confirm"]
    facts = replace(
        build_facts("m", window=1, reserve=None, policy=policy),
        limits=limits(**known, margin=policy.margin, threshold=policy.threshold),
    )
    talk = Planned(facts, user("hello"))
    (warning,) = talk.plan().report.warnings
    assert warning.startswith(f"a threshold of 0.9 of the window cannot be reached: {told}")
    budget = measure_budget(talk.view, facts.limits)
    assert 0.96 * budget.room <= compute_tiers(budget, policy)["soft"] < budget.room
