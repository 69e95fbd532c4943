"""What a run paid for caches that had expired, by the provider's counts."""

from dataclasses import replace

import pytest

from foldline.apps.run.run_report import measure_cold_call
from foldline.core.log import UsageReported
from foldline.draw.course import CourseStep, TokensTaken
from foldline.models.catalog import resolve_model

CLAUDE, GPT = "claude-sonnet-4-5", "gpt-5"


def make_step(model, sent, read, *, written=None, long=None):
    usage = UsageReported(input=sent, cache_read=read, cache_write=written, cache_write_long=long)
    return CourseStep(1, 1, model, sent, 10, sent, usage=usage)


WARM = make_step(CLAUDE, 60_000, 59_000, written=1_000)
COLD = make_step(CLAUDE, 61_000, 0, written=61_000)


def measure(before, step):
    return measure_cold_call(before, step, resolve_model(step.model).prices)


def test_it_is_what_was_paid_above_a_read():
    prices = resolve_model(CLAUDE).prices
    assert measure(WARM, COLD) == pytest.approx(60_000 * (prices.write - prices.read) / 1e6)
    partly = make_step(CLAUDE, 61_000, 20_000, written=41_000)
    assert measure(WARM, partly) == pytest.approx(40_000 * (prices.write - prices.read) / 1e6)


def test_an_hour_costs_more_and_openai_takes_the_price_of_input():
    prices = resolve_model(CLAUDE).prices
    hour = make_step(CLAUDE, 61_000, 0, written=61_000, long=61_000)
    assert measure(WARM, hour) == pytest.approx(60_000 * (2 * prices.input - prices.read) / 1e6)
    prices = resolve_model(GPT).prices
    before, after = make_step(GPT, 60_000, 59_000), make_step(GPT, 61_000, 0)
    assert measure(before, after) == pytest.approx(60_000 * (prices.input - prices.read) / 1e6)


NOTHING = {
    "the first call": (None, COLD),
    "a warm call": (WARM, make_step(CLAUDE, 61_000, 60_000, written=1_000)),
    "another model": (make_step(GPT, 60_000, 59_000), COLD),
    "a fold": (WARM, replace(COLD, taken=(TokensTaken("fold", 9, 40_000, 7),))),
    "a thinking budget that we lowered": (WARM, replace(COLD, lowers_budget=True)),
    "one that we lower no more": (replace(WARM, lowers_budget=True), COLD),
    "no cache": (make_step(CLAUDE, 60_000, 0, written=0), make_step(CLAUDE, 61_000, 0, written=0)),
    "no counts": (WARM, replace(COLD, usage=None)),
}


@pytest.mark.parametrize(("before", "step"), NOTHING.values(), ids=NOTHING)
def test_nothing_was_lost(before, step):
    assert measure(before, step) == 0.0
