"""The price of a call whose cache has expired, against the simulated caches of providers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.core.cold_cache import (
    LONG_LIFETIME,
    USUAL_LIFETIME,
    ColdCall,
    estimate_cache_state,
    estimate_cold_call,
    format_dollars,
    render_cold_call,
    replace_write_price,
)
from foldline.core.prices import UNKNOWN
from foldline.lab.bill.cache import (
    CacheBlock,
    CacheCall,
    compute_bills,
    find_longer_rules,
    rules_for,
)
from foldline.models.catalog import find

MODELS = ("claude-sonnet-4-5", "claude-opus-4-6", "gpt-5", "gpt-5.6", "deepseek-chat")


def bill_second_call(rules, *, sent, new, pause):
    """What the simulated provider bills for sending a call some seconds after another."""
    blocks = [CacheBlock("front", 5_000.0), CacheBlock("talk", sent - 5_000.0)]
    calls = [
        CacheCall(0, 1_000.0, blocks, 0.0, front=1),
        CacheCall(1, 1_000.0 + pause, [*blocks, CacheBlock("new", float(new))], 0.0, front=1),
    ]
    return compute_bills(calls, rules)[1].dollars


@given(
    st.sampled_from(MODELS),
    st.integers(15_000, 180_000),
    st.integers(1, 20_000),
    st.floats(1.0, 100_000.0),
)
def test_the_price_is_what_the_provider_bills(model, sent, new, pause):
    """Cold and warm within 5 %; nothing is said of a cache that is still there."""
    rules = rules_for(model, find(model).prices)
    told = estimate_cold_call(
        rules.prices, tokens=sent + new, sent=sent, seconds=pause, lifetime=rules.seconds
    )
    billed = bill_second_call(rules, sent=sent, new=new, pause=pause)
    warm = bill_second_call(rules, sent=sent, new=new, pause=1.0)
    assert (told is None) == (pause <= rules.seconds or billed - warm < 0.01)
    if told is not None:
        assert told.cold == pytest.approx(billed, rel=0.05)
        assert told.warm == pytest.approx(warm, rel=0.05)
        assert told.tokens == sent


def test_a_cache_of_an_hour_costs_more_and_lives_longer():
    rules = find_longer_rules(rules_for("claude-sonnet-4-5", find("claude-sonnet-4-5").prices))
    call = {"tokens": 60_000, "sent": 59_000, "lifetime": LONG_LIFETIME}
    prices = replace_write_price(find("claude-sonnet-4-5").prices)
    assert estimate_cold_call(prices, **call, seconds=3_000) is None
    told = estimate_cold_call(prices, **call, seconds=4_000)
    assert told.cold == pytest.approx(
        bill_second_call(rules, sent=59_000, new=1_000, pause=4_000), rel=0.05
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, True),
        ({"seconds": 299}, False),
        ({"tokens": 9_000, "sent": 9_000}, False),
        ({"sent": 0}, False),
    ],
)
def test_it_is_said_only_where_it_matters(change, said):
    call = {"tokens": 60_000, "sent": 59_000, "seconds": USUAL_LIFETIME + 1, **change}
    assert (estimate_cold_call(find("claude-sonnet-4-5").prices, **call) is not None) is said


def test_nothing_is_said_where_tokens_are_free_or_the_lifetime_is_not_known():
    call = {"tokens": 60_000, "sent": 59_000, "seconds": 1_000}
    assert estimate_cold_call(UNKNOWN, **call) is None
    assert estimate_cold_call(find("gpt-5").prices, **call) is None, "it may live for an hour"
    assert estimate_cold_call(find("gpt-5").prices, **{**call, "seconds": 4_000}) is not None


def test_a_request_above_the_step_has_its_prices():
    prices = replace(find("claude-sonnet-4-5").prices, step=200_000, above=2.0)
    call = {"sent": 200_000, "seconds": 1_000, "folded": 50_000}
    told = estimate_cold_call(prices, tokens=210_000, **call)
    assert told.cold == pytest.approx(210_000 * 2 * 3.75 / 1e6)
    assert told.folded == pytest.approx(50_000 * 3.75 / 1e6), "a fold brings it below the step"


def test_what_is_known_of_the_lifetime_decides():
    """Anthropic states five minutes; who states nothing may keep a prompt for up to an hour."""
    claude, gpt = find("claude-sonnet-4-5").prices, find("gpt-5").prices
    states = [estimate_cache_state(pause, claude) for pause in (299, 301)]
    assert states == ["warm", "cold"]
    states = [estimate_cache_state(pause, gpt) for pause in (299, 301, 3_601)]
    assert states == ["warm", "unknown", "cold"]
    states = [estimate_cache_state(pause, claude, LONG_LIFETIME) for pause in (301, 3_601)]
    assert states == ["warm", "cold"]


def test_a_fold_that_is_made_anyway_is_what_is_paid():
    call = {"tokens": 60_000, "sent": 60_000, "seconds": 999, "folded": 15_000}
    prices = find("claude-sonnet-4-5").prices
    told = estimate_cold_call(prices, **call, is_folded=True)
    assert told.list_dollars() == {"cost": told.folded, "warm": told.warm, "unfolded": told.cold}
    assert render_cold_call(told) == (
        "The cache has expired: the next message costs about $0.056; unfolded, $0.23."
    )
    told = estimate_cold_call(prices, **call)
    assert told.list_dollars() == {"cost": told.cold, "warm": told.warm, "folded": told.folded}
    told = estimate_cold_call(prices, **{**call, "folded": 59_000}, is_folded=True)
    assert told.cost == told.folded, "however little it saves"


def test_the_words():
    told = ColdCall(tokens=60_000, cold=0.236, warm=0.0213, folded=0.058)
    assert render_cold_call(told) == (
        "The cache has expired: sending the next message costs about $0.24 instead of $0.021. "
        "/compact first: $0.058."
    )
    assert render_cold_call(replace(told, folded=None)).endswith("instead of $0.021.")
    fold = estimate_cold_call(
        find("claude-sonnet-4-5").prices, tokens=60_000, sent=60_000, seconds=999, folded=58_000
    )
    assert fold.folded is None, "a fold that saves next to nothing is not named"


@given(st.floats(0.001, 100.0))
def test_rounded_dollars_are_within_three_percent(dollars):
    assert float(format_dollars(dollars)[1:]) == pytest.approx(dollars, rel=0.03, abs=5e-5)
