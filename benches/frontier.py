"""What the default costs and keeps, beside other floors, sending everything, and dropping the oldest half.

    FOLDLINE_SHARED=../shared just bench frontier     all of it, three minutes on one core
    just bench frontier short ends                    parts: frontier, small, short, ends

Sessions: six recorded coding and support sessions and four made-up loads (talk, documents, support, voice);
beginnings of them for `short`; for `ends` each may end after any call. Bills are of the input, simulated;
retention is exact text, as in `bench lab`. No model is asked. Exits 1 above a target.
"""

import argparse
import json
import os
import sys
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import cast

from made.loads import LOADS, generate_load
from sessions import by_name, chats, join_sessions, text

from foldline.core.budget import limits
from foldline.core.log import ModelSaid
from foldline.core.plan import Facts
from foldline.core.policy import OFF, PRESETS, STEADY, Policy
from foldline.core.prices import FREE, Prices
from foldline.lab.bill.cache import CacheRules, compute_bills
from foldline.lab.kept_names import measure_retention
from foldline.lab.policy_run import Ours
from foldline.lab.recorded import Recorded
from foldline.lab.replay import Offer, Replayed, replay_session

ENDLESS, FULL = 1_000_000_000, 0.9
MOST_BILL = {"steady": 42.5, "thrifty": 36.6}
"""Percent of sending everything: 1.06 and 1.05 times the bills of the default before this one."""
MOST_SMALL, _NOISE = 100.0, 0.05  # percent
RECORDED = ("coding:0", "coding:1", "tauodd", "swe", "pi:opus45", "pi:sonnet45")
ENDING = ("coding:0", "coding:1", "coding:6", "tauodd", "swe", *LOADS)
SHORT = (
    *(f"coding:{seed}/{calls}" for seed in (2, 3, 4, 5) for calls in (25, 50, 100, 150)),
    *(f"tau:{at}/{calls}" for at in (33, 66) for calls in (50, 100, 200)),
    *(f"pi:{which}/{calls}" for which in ("opus45", "sonnet45") for calls in (50, 100, 150)),
    *(f"swe/{calls}" for calls in (30, 60, 120)),
    *(f"{load}/{calls}" for load in LOADS for calls in (10, 40)),
)
RULES = {
    "claude": CacheRules(Prices(1.0, 0.10, 1.25, 5.0)),
    "gpt": CacheRules(Prices(1.0, 0.10, 1.0, 8.0), seconds=600.0),
    "dear": CacheRules(Prices(1.0, 0.25, 1.0, 8.0), seconds=600.0),
    # Dollars are then recomputed tokens: nothing is paid, but a prompt is read again by the machine.
    "free": CacheRules(Prices(1.0, 1e-9, 1.0, 1e-9), least=0, seconds=1e9),
}
WAYS: dict[str, Policy] = {**PRESETS}


class Half(Ours):
    """Sends everything; where that is full, drops the oldest half of it."""

    def __init__(self, recorded: Recorded, most: float) -> None:
        super().__init__(recorded, Facts(limits(ENDLESS, None), OFF))
        self._most, self._start = most, 1

    def offer(self, *, seconds: float, missed: bool) -> Offer | None:
        """Everything from where the last drop ended."""
        made = super().offer(seconds=seconds, missed=missed)
        assert made is not None, "an endless window holds everything"
        pieces = made.pieces

        def size() -> float:
            return pieces[0].tokens + sum(one.tokens for one in pieces[self._start :])

        if size() > self._most:
            self._start += (len(pieces) - self._start) // 2
            while self._start < len(pieces) - 1 and (
                size() > self._most or "result" in cast("tuple[object]", pieces[self._start].key)
            ):
                self._start += 1
        return Offer([pieces[0], *pieces[self._start :]])


@cache
def session(name: str) -> Recorded:
    """A session, or its first calls."""
    shared = Path(os.environ["FOLDLINE_SHARED"])
    whole, _, calls = name.partition("/")
    if calls:
        found = session(whole)
        ends = [at for at, event in enumerate(found.events) if isinstance(event, ModelSaid)]
        end = ends[min(int(calls), len(ends)) - 1] + 1
        return replace(found, name=name, events=found.events[:end], times=found.times[:end])
    if whole in LOADS:
        return generate_load(whole)
    if whole == "tauodd":
        tasks = json.loads(text(shared, "tau_bench_gpt4o_airline.json.gz"))
        odd = [chat for chat, task in zip(chats(shared), tasks, strict=True) if task["task_id"] % 2]
        return join_sessions(whole, odd[:33])
    return by_name(whole, shared)


@dataclass(frozen=True)
class Row:
    """A session one way."""

    bills: tuple[float, ...]
    """Of the input, call by call."""
    sizes: tuple[float, ...]
    folds: tuple[tuple[int, str], ...]
    """At which call, and why."""
    blocked: int
    kept: dict[str, tuple[int, int]]

    @property
    def bill(self) -> float:
        """Of all calls."""
        return sum(self.bills)


@cache
def measure(name: str, way: str, window: int, prices: str, *, kept: bool = False) -> Row:
    """Replay a session one way: a policy's name, `everything` or `half`."""
    recorded, rules = session(name), RULES[prices]
    if way in WAYS:
        known = FREE if prices == "free" else replace(rules.prices, free=False)
        contender = Ours(recorded, Facts(limits(window, None), WAYS[way], known))
    elif way == "half":
        contender = Half(recorded, window * FULL)
    else:
        contender = Ours(recorded, Facts(limits(ENDLESS, None), OFF))
    made = replay_session(recorded, contender)
    billed = compute_bills([step.sent for step in made.steps], rules)
    out = rules.prices.output / 1e6
    return Row(
        tuple(call.dollars - call.output * out for call in billed),
        tuple(call.input for call in billed),
        tuple((at, fold.why) for at, step in enumerate(made.steps) for fold in step.folds),
        made.blocked,
        _count_kept(made) if kept else {},
    )


def _count_kept(made: Replayed) -> dict[str, tuple[int, int]]:
    found = measure_retention(made)
    shares = {"names": found.names, "results": found.from_results, "lines": found.lines}
    return {name: (one.there, one.used) for name, one in shares.items()}


def fits(name: str, window: int, prices: str) -> bool:
    """Whether everything fits."""
    return max(measure(name, "everything", ENDLESS, prices).sizes) <= FULL * window


def find_base(name: str, window: int, prices: str) -> Row:
    """Sending everything where that fits, else dropping the oldest half."""
    way = "everything" if fits(name, window, prices) else "half"
    return measure(name, way, ENDLESS if way == "everything" else window, prices)


def measure_ends(way: str, prices: str) -> tuple[list[float], list[str]]:
    """Each session ended after any call until a fold is forced: its bill beside that of everything."""
    shares: list[float] = []
    worst: list[str] = []
    for name in ENDING:
        plain = measure(name, "everything", ENDLESS, prices)
        made = measure(name, way, 200_000, prices)
        end = next((at for at, why in made.folds if why == "forced"), len(made.bills))
        pairs = zip(accumulate(made.bills[:end]), accumulate(plain.bills[:end]), strict=True)
        own = [made / whole for made, whole in pairs]
        at = own.index(max(own))
        worst.append(f"{name} {100 * own[at]:.1f} % at call {at + 1}")
        shares += own
    return shares, worst


def print_frontier() -> bool:
    """The default beside other floors; whether its bill is within 1.06 of what it was."""
    floors = {f"floor {floor:,}": floor for floor in (0, 28_000, 64_000, 96_000)}
    for name, floor in floors.items():
        WAYS[name] = replace(STEADY, name=name, priced=replace(STEADY.priced, floor=floor))
    print("| way | bill, % of everything | worst | names % | lines % | folds |")
    shares: dict[str, float] = {}
    for way in ("thrifty", "floor 0", "floor 28,000", "steady", "floor 64,000", "floor 96,000"):
        rows = [measure(name, way, 200_000, "claude", kept=True) for name in RECORDED]
        bases = [find_base(name, 200_000, "claude").bill for name in RECORDED]
        own = [100 * row.bill / base for row, base in zip(rows, bases, strict=True)]
        shares[way] = sum(own) / len(own)
        kept: list[str] = []
        for what in ("names", "lines"):
            there, used = (sum(row.kept[what][at] for row in rows) for at in (0, 1))
            kept.append(f"{100 * there / used:.1f}")
        folds = sum(len(row.folds) for row in rows)
        print(f"| {way} | {shares[way]:.1f} | {max(own):.0f} | {' | '.join(kept)} | {folds} |")
    return shares["steady"] <= MOST_BILL["steady"] and shares["thrifty"] <= MOST_BILL["thrifty"]


def print_small() -> bool:
    """The default in a window of 32,000, beside dropping the oldest half."""
    own: list[float] = []
    for name in RECORDED:
        base = measure(name, "half", 32_000, "claude").bill
        own.append(100 * measure(name, "steady", 32_000, "claude").bill / base)
        print(f"{name} at 32,000: {own[-1]:.0f} % of dropping the oldest half")
    return max(own) <= MOST_SMALL


def print_short() -> bool:
    """Short sessions: how many cost more than sending everything."""
    for way in ("steady", "thrifty"):
        names = [name for name in SHORT if fits(name, 200_000, "claude")]
        bases = [measure(name, "everything", ENDLESS, "claude").bill for name in names]
        rows = [measure(name, way, 200_000, "claude").bill for name in names]
        own = [100 * row / base for row, base in zip(rows, bases, strict=True)]
        dearer = sum(one > 100 + _NOISE for one in own)
        print(f"{way}: {dearer} of {len(own)} short sessions dearer, worst {max(own):.1f} %")
        if way == "steady" and dearer:
            return False
    return True


def print_ends() -> bool:
    """Sessions that end after any call: how many of the ends are dearer."""
    for way in ("steady", "thrifty"):
        shares, worst = measure_ends(way, "claude")
        dearer = sum(100 * one > 100 + _NOISE for one in shares)
        print(f"{way}: {dearer} of {len(shares)} ends dearer, worst {100 * max(shares):.1f} %")
        print(f"  {'; '.join(worst)}")
    return True


PARTS = {
    "frontier": print_frontier,
    "small": print_small,
    "short": print_short,
    "ends": print_ends,
}


def main() -> int:
    """Print the parts; 1 above a target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[*PARTS], help=", ".join(PARTS))
    if not os.environ.get("FOLDLINE_SHARED"):
        print("FOLDLINE_SHARED is not set: no recorded sessions here")
        return 1
    passed = [PARTS[name]() for name in parser.parse_args().parts]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
