"""What policies cost and forget on long recorded sessions, beside sending everything.

    FOLDLINE_SHARED=../shared just bench lab

Sessions: 40 tau-bench chats as one (several of these), the 22 SWE-agent runs as one, and the two real
`pi` sessions with what they really cost. Costs are simulated (reads at 0.10, 0.05, 0.025 of input, writes
at 1.25); retention is exact text: of the code-like names and whole lines that the agent used again, how
many were in front of it. No model is asked, and quality is not measured. Exits 1 where a figure that was
reached is lost; what is not reached yet is printed beside its target.
"""

import argparse
import gzip
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from foldline.core.budget import limits
from foldline.core.plan import Facts
from foldline.core.policy import CLASSIC, OFF, SLIDING, STEADY, THREE_LAYER, THRIFTY, WINDOW, Policy
from foldline.core.prices import Prices
from foldline.imports import read
from foldline.lab.bill.cache import Rules, bill
from foldline.lab.ours import Ours
from foldline.lab.probes.kept import Retention, retention
from foldline.lab.recorded import Recorded, imported, joined, size
from foldline.lab.replay import as_recorded, replay
from foldline.models.catalog import find

READS = (0.10, 0.05, 0.025)
POLICIES = (OFF, STEADY, THRIFTY, CLASSIC, SLIDING, WINDOW, THREE_LAYER)
PAID = {"pi_session_opus45": 42.60, "pi_session_sonnet45": 30.33}
WINDOW_TOKENS = 200_000


def text(shared: Path, name: str) -> str:
    """A recorded file."""
    with gzip.open(shared / "data" / name, "rt") as file:
        return file.read()


def long_sessions(shared: Path, *, short: bool) -> list[Recorded]:
    """Sessions of about 100,000 tokens and more."""
    tau = [
        imported(one) for one in read(text(shared, "tau_bench_gpt4o_airline.json.gz"), "tau.json")
    ]
    groups = [joined(f"tau {at}-{at + 39}", tau[at : at + 40]) for at in range(0, 200, 40)]
    runs = read(text(shared, "swe_agent_demo_trajs.jsonl.gz"), "swe.jsonl")
    swe = joined("swe, 22 runs", [imported(one) for one in runs])
    return [swe, groups[0]] if short else [swe, *groups]


def cost(session: Recorded, policy: Policy, share: float) -> tuple[float, int, Retention]:
    """A policy's bill for input, its folds, and what was still in front."""
    prices = Prices(1.0, share, 1.25, 5.0)
    window = 2_000_000 if policy is OFF else WINDOW_TOKENS
    made = replay(session, Ours(session, Facts(limits(window, None), policy, prices)))
    sent = [replace(step.sent, output=0) for step in made.steps]
    dollars = sum(call.dollars for call in bill(sent, Rules(prices, least=0)))
    return dollars, made.folds, retention(made)


def compare(session: Recorded, found: list[str]) -> None:
    """One session under every policy."""
    print(
        f"\n{session.name}: {len(session.calls)} calls, {sum(map(size, session.events)):,} tokens"
    )
    whole: dict[float, float] = {}
    shares: dict[str, list[float]] = {}
    for policy in POLICIES:
        rows = [cost(session, policy, share) for share in READS]
        whole = whole or {share: row[0] for share, row in zip(READS, rows, strict=True)}
        percent = [100 * row[0] / whole[share] for share, row in zip(READS, rows, strict=True)]
        shares[policy.name] = percent
        folds, kept = rows[0][1], rows[0][2]
        print(
            f"  {policy.name:12} cost {' / '.join(f'{one:5.1f}' for one in percent)} %   folds {folds:3}   "
            f"names {kept.names.percent:6.2f} (results {kept.from_results.percent:6.2f})   "
            f"lines {kept.lines.percent:5.1f} (in the turn {kept.turn_lines.percent:5.1f})"
        )
        if policy is STEADY and kept.names.percent < 99.7:
            found.append(
                f"{session.name}: steady keeps {kept.names.percent:.2f} % of the names, 99.7 wanted"
            )
    priced = max(shares["steady"][2], shares["thrifty"][2])
    if session.name.startswith("tau") and shares["three-layer"][2] <= max(100, priced):
        found.append(f"{session.name}: a mask that rolls should cost more than everything at 0.025")


def real(shared: Path, found: list[str]) -> None:
    """The two sessions whose bill is known."""
    for name, paid in PAID.items():
        session = imported(read(text(shared, f"{name}.jsonl.gz"), f"{name}.jsonl")[0])
        prices = find(session.model).prices
        rules = Rules(prices)
        told = bill(as_recorded(session), rules)
        simulated = sum(call.dollars for call in told)
        cold = sum(call.lost for call in told if call.cause not in ("", "first", "edit"))
        print(
            f"\n{name}: paid ${paid:.2f}, simulated ${simulated:.2f}, of it cold calls ${cold:.2f}"
        )
        if abs(simulated / paid - 1) > 0.05:
            found.append(f"{name}: simulated ${simulated:.2f}, paid ${paid:.2f}")
        for policy in (STEADY, THRIFTY, CLASSIC, WINDOW):
            start = time.perf_counter()
            made = replay(
                session, Ours(session, Facts(limits(WINDOW_TOKENS, None), policy, prices))
            )
            seconds = time.perf_counter() - start
            dollars = sum(call.dollars for call in bill([step.sent for step in made.steps], rules))
            kept = retention(made)
            print(
                f"  {policy.name:12} ${dollars:6.2f}   folds {made.folds:3}   names {kept.names.percent:5.1f} "
                f"(results {kept.from_results.percent:5.1f})   lines {kept.lines.percent:5.1f} "
                f"(in the turn {kept.turn_lines.percent:5.1f})   {seconds:.1f} s"
            )
            if dollars > paid:
                found.append(f"{name}: {policy.name} would have cost ${dollars:.2f}")


def main() -> int:
    """Print the tables; 1 where something that was reached is lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="two long sessions and the real ones")
    args = parser.parse_args()
    shared = os.environ.get("FOLDLINE_SHARED")
    if not shared:
        print("FOLDLINE_SHARED is not set: no recorded data here")
        return 0
    found: list[str] = []
    for session in long_sessions(Path(shared), short=args.short):
        compare(session, found)
    real(Path(shared), found)
    print(
        "\nNot reached yet, of what the lab is to show: on the pi sessions names 99 % and lines 90 %."
    )
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
