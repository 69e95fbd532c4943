"""Facts over many folds, and how sure a mean is."""

from dataclasses import replace
from statistics import fmean

import pytest
from probes.decay import MERGING, measure_decay

from foldline.lab.comparison import estimate_interval


def test_what_is_carried_does_not_fade_as_what_is_retold():
    for loss in (0.1, 0.5):
        runs = [measure_decay(seed, loss=loss, folds=6) for seed in range(3)]
        last = [run[-1] for run in runs]
        assert [len(run) for run in runs] == [6, 6, 6]
        assert fmean(one.retold for one in last) <= (1 - loss) ** 6 + 0.15
        assert all(one.handoff == 1 for one in last)
        assert fmean(one.narrative for one in last) == pytest.approx(1 - loss, abs=0.15)
    assert measure_decay(1, loss=0.3, folds=3) == measure_decay(1, loss=0.3, folds=3)


def test_what_nobody_tells_is_in_no_narrative():
    last = measure_decay(0, loss=1.0, folds=2)[-1]
    assert (last.retold, last.narrative) == (0, 0)
    assert last.handoff == 1


def test_without_room_facts_fade():
    small = replace(MERGING, words=250)
    assert measure_decay(0, loss=0.1, folds=4, policy=small)[-1].handoff < 0.5


def test_an_interval():
    values = [99.0, 100.0, 98.5, 97.0, 100.0]
    found = estimate_interval(values, seed=1)
    assert found == estimate_interval(values, seed=1)
    assert found.mean == pytest.approx(98.9)
    assert 97.0 <= found.low < found.mean < found.high <= 100.0
    many = [float(n * n % 97) for n in range(40)]
    assert estimate_interval(many, seed=1) != estimate_interval(many, seed=2)
    assert estimate_interval([5.0, 5.0]) == (5.0, 5.0, 5.0)
    wide, narrow = estimate_interval([0.0, 10.0] * 3), estimate_interval([0.0, 10.0] * 30)
    assert narrow.high - narrow.low < (wide.high - wide.low) / 2
    assert str(estimate_interval([5.0])) == "5.00 (5.00 to 5.00)"
    with pytest.raises(ValueError, match="no values"):
        estimate_interval([])
