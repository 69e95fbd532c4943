"""The simulator against the truth: what two real sessions cost, call by call."""

import gzip
from functools import cache
from pathlib import Path

import pytest

from foldline.core.budget import limits
from foldline.core.plan import Facts
from foldline.core.policy import PRESETS
from foldline.importers import read
from foldline.lab.bill.cache import CacheRules, compute_bills, rules_for
from foldline.lab.kept_names import measure_retention
from foldline.lab.policy_run import Ours, as_recorded
from foldline.lab.recorded import convert_imported
from foldline.lab.replay import replay_session
from foldline.models.catalog import find

ROOT = Path(__file__).parents[2]
PAID = {"opus45": 42.60, "sonnet45": 30.33}
COLD = {"opus45": 6.70, "sonnet45": 14.26}


@cache
def session(shared, name):
    with gzip.open(shared / "data" / f"pi_session_{name}.jsonl.gz", "rt") as file:
        return convert_imported(read(file.read(), "pi.jsonl")[0])


@pytest.mark.parametrize("name", PAID)
def test_what_it_really_cost(shared, name):
    """Within 5 %, from the events alone; misses replayed from the record, each with its price."""
    recorded = session(shared, name)
    billed = compute_bills(as_recorded(recorded), CacheRules(find(recorded.model).prices))
    paid = sum(call.dollars for call in billed)
    cold = sum(call.lost for call in billed if call.cause == "missed")
    print(f"\n{name}: simulated ${paid:.2f}, paid ${PAID[name]:.2f}; cold calls ${cold:.2f}")
    assert paid == pytest.approx(PAID[name], rel=0.05)
    assert cold == pytest.approx(COLD[name], rel=0.10)
    counted = [(call, recorded.scale.fixed + recorded.scale.ratio * call.estimate) for call in recorded.calls if call.input]  # fmt: skip
    errors = sorted(abs(believed / call.input - 1) for call, believed in counted)
    assert errors[len(errors) // 2] < 0.02


@pytest.mark.parametrize("name", PAID)
def test_under_every_preset(shared, name):
    """Replayed twice it is the same; every priced preset is far below what was paid."""
    recorded = session(shared, name)
    prices = find(recorded.model).prices
    dollars = {}
    # The short session under all of them; the long one under those that are compared below.
    few = ("steady", "thrifty", "off")
    for preset in (one for one in PRESETS.values() if one.name in few or name == "sonnet45"):
        window = 2_000_000 if preset.name == "off" else 200_000
        facts = Facts(limits(window, None), preset, prices)
        made = replay_session(recorded, Ours(recorded, facts))
        billed = compute_bills([step.sent for step in made.steps], CacheRules(prices))
        kept = measure_retention(made)
        dollars[preset.name] = sum(call.dollars for call in billed)
        peak = max(call.input for call in billed)
        print(f"{name} {preset.name:12} ${dollars[preset.name]:6.2f}  folds {made.folds:3}  peak {peak / 1000:4.0f}k  names {kept.names.percent:5.1f} results {kept.from_results.percent:5.1f} lines {kept.lines.percent:5.1f} in the turn {kept.turn_lines.percent:5.1f}")  # fmt: skip
        assert not made.blocked
        assert peak < 200_000 or preset.name == "off"
        if preset.name == "steady":
            assert replay_session(recorded, Ours(recorded, facts)).steps == made.steps
            # As `lab compare` and `bench lab` bill it; README and docs name what anyone gets.
            calls = [step.sent for step in made.steps]
            shown = sum(
                call.dollars for call in compute_bills(calls, rules_for(recorded.model, prices))
            )
            for page in ("README.md", "docs/performance.md"):
                row = next(
                    line for line in (ROOT / page).read_text().splitlines() if "$42.60" in line
                )
                assert f"${shown:.2f}" in row
        if preset.name == "off":
            assert kept.lines.percent == 100
    assert dollars["thrifty"] < dollars["steady"] < PAID[name] / 2
