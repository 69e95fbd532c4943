"""Both formulas against brute force."""

from math import inf, isclose

import pytest

from foldline.core.prices import Prices, cheapest_size, fold_cost, make_prices, pays_back_after


@pytest.mark.parametrize("r", [0.10, 0.05, 0.025])
def test_an_edit_pays_back_after_that_many_calls(r):
    """R-46: the bill with and without the edit, call by call, crosses there."""
    prices = Prices(1.0, r, 1.25, 5.0)
    gone, left, behind = 60_000, 2_000, 8_000
    after = pays_back_after(prices, gone=gone, left=left, behind=behind)
    plain = edited = 0.0
    calls = 0
    while edited >= plain:
        plain += prices.r * (gone + behind)
        edited += (prices.w if calls == 0 else prices.r) * (left + behind)
        calls += 1
        assert calls < 1_000
    assert calls - 1 <= after + 1 <= calls + 1


def test_what_does_not_shrink_never_pays():
    assert pays_back_after(make_prices(input=3.0), gone=100, left=100, behind=0) == inf


@pytest.mark.parametrize("r", [0.10, 0.05, 0.025])
@pytest.mark.parametrize(("left", "growth"), [(14_000, 700), (30_000, 300)])
def test_the_cheapest_size(r, left, growth):
    """H: within a few per cent of the best size found by trying all."""
    prices = Prices(1.0, r, 1.25, 5.0)
    cost = fold_cost(prices, rewritten=9_000)
    best = min(
        range(left + growth, 200_000, growth),
        key=lambda size: bill(prices, left, growth, cost, size),
    )
    formula = cheapest_size(prices, left=left, growth=growth, cost=cost)
    least = bill(prices, left, growth, cost, best)
    assert bill(prices, left, growth, cost, formula) <= 1.01 * least
    assert isclose(formula, best, rel_tol=0.10)


def bill(prices, left, growth, cost, size):
    """Dollars a call of a conversation that grows from `left` to `size`, folds, and grows again."""
    calls = max((size - left) / growth, 1.0)
    read = prices.r * (left + size) / 2 * calls
    return (read + cost) / calls


def test_unknown_prices_are_assumed_and_say_so():
    assert make_prices(input=0).assumed
    assert make_prices(input=3.0).r == pytest.approx(0.10)
    assert not make_prices(input=3.0, read=0.3, write=3.75).assumed


def test_above_the_step_output_costs_more_too():
    prices = make_prices(input=2.0, output=10.0, step=200_000, above=4.0, above_output=15.0)
    assert (prices.at(200_000).output, prices.at(200_001).output) == (10.0, 15.0)
    assert prices.at(200_001).input == 4.0


def test_an_unknown_price_is_not_zero():
    unknown, free = make_prices(input=None), make_prices(input=0)
    assert (unknown.is_known, unknown.free, unknown.r, unknown.w) == (False, False, 0.10, 1.25)
    assert (free.is_known, free.free) == (False, True)
