"""The cache's arithmetic, by hand and as a property."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.core.prices import Prices
from foldline.lab.cache import Block, Rules, Sent, bill

PRICES = Prices(1.0, 0.1, 1.25, 5.0)
RULES = Rules(PRICES, least=100)


def sent(*keys, time=0.0, output=0, missed=False):
    return Sent(0, time, [Block(key, 100) for key in keys], output, front=1, missed=missed)


def test_by_hand():
    """What is shared is read, the rest is written, and what is written again has its cause."""
    calls = [
        sent("s", "a", time=1),
        sent("s", "a", "b", time=2),
        sent("s", "fold", "b", time=3),  # a fold: b is written again
        sent("s", "fold", "b", "c", time=400),  # too late
        sent("t", "fold", "b", "c", time=401),  # another system prompt
        sent("t", "fold", "b", "c", "d", time=402, missed=True),
    ]
    billed = bill(calls, RULES)
    assert [(one.read, one.written, one.again, one.cause) for one in billed] == [
        (0, 200, 0, "first"),
        (200, 100, 0, ""),
        (100, 200, 100, "edit"),
        (0, 400, 300, "expired"),
        (0, 400, 300, "system"),
        (0, 500, 400, "missed"),
    ]
    assert billed[1].dollars == pytest.approx((200 * 0.1 + 100 * 1.25) / 1e6)
    assert billed[2].lost == pytest.approx(100 * 1.15 / 1e6)


def test_a_prefix_that_is_too_short_is_not_kept():
    assert [one.read for one in bill([sent("s"), sent("s", "a")], Rules(PRICES, least=101))] == [
        0,
        0,
    ]


@given(
    st.lists(st.lists(st.sampled_from("abcde"), min_size=1, max_size=6, unique=True), max_size=8)
)
def test_every_token_is_paid_once(histories):
    billed = bill([sent(*keys, output=3) for keys in histories], RULES)
    for one, keys in zip(billed, histories, strict=True):
        assert one.read + one.written == one.input == 100 * len(keys)
        assert 0 <= one.again <= one.written
        assert one.dollars == pytest.approx((one.read * 0.1 + one.written * 1.25 + 15) / 1e6)
