"""What policies cost and forget on long sessions, beside sending everything; peers: `bench beside`.

    FOLDLINE_SHARED=../shared just bench lab            all of it, about six minutes on two cores
    just bench lab --short                              what CI runs

Sessions: made-up coding sessions of about 120,000 tokens and 200 calls whose seeds nobody tuned on;
tau-bench chats of the odd tasks, 33 as one; the 22 SWE-agent runs as one, reported; and the two real `pi`
sessions with what they really cost, reported. Costs are simulated: reads at 0.10, 0.05, 0.025 of input,
writes at 1.25, summaries billed. Retention is exact text: of the code-like names and whole lines that the
agent wrote again, how many were in front of it. Read again, not in the cost: one call more before each answer that reused
what was out of sight. No model is asked; what can be answered is measured by `bench answers`. Intervals
are bootstrapped over sessions. Exits 1 below a target that was reached, and prints the others beside theirs.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from made.generated import generate_coding_session
from probes.decay import measure_decay
from probes.planted import measure_planted
from probes.recoverable import measure_recovery
from rivals import READS
from sessions import chats, join_sessions, pi, swe, text

from foldline.core.budget import limits
from foldline.core.log import ModelSaid
from foldline.core.plan import Facts
from foldline.core.policy import (
    CLASSIC,
    CONFIRM,
    OFF,
    SLIDING,
    STEADY,
    THREE_LAYER,
    THRIFTY,
    WINDOW,
    Masking,
    Policy,
)
from foldline.core.prices import Prices
from foldline.lab.bill.cache import CacheRules, rules_for
from foldline.lab.bill.costs import build_cost_report
from foldline.lab.comparison import (
    Trial,
    TrialResult,
    estimate_interval,
    evaluate_contender,
    run_trial,
)
from foldline.lab.kept_names import KeptShare
from foldline.lab.policy_run import AsRecorded, Ours, Teller
from foldline.lab.recorded import Recorded, estimate_event_tokens
from foldline.lab.replay import replay_session
from foldline.models.catalog import find

WINDOW_TOKENS, ENDLESS = 200_000, 2_000_000
ROLLING = replace(OFF, name="rolling mask", mask=Masking(2, 5))
PAID = {"opus45": (42.60, 19.0), "sonnet45": (30.33, 8.5)}
NAMES, RESULTS = 99.7, 98.5
MOST = {  # percent of sending everything, at each of READS
    "steady": (46, 57, 69),
    "steady, told": (54, 65, 77),
    "thrifty": (40, 50, 62),
}


@dataclass(frozen=True)
class Way:
    """A policy as a line of a table."""

    name: str
    policy: Policy
    teller: Teller | None = None

    def trial(self, session: Recorded, prices: Prices) -> Trial:
        """A session this way."""
        window = ENDLESS if self.policy.folds is False else WINDOW_TOKENS
        return Trial(session, self.policy, CacheRules(prices, least=0), window, self.teller)


EVERYTHING = Way("everything", OFF)
OURS = [
    Way("steady", STEADY),
    Way("steady, told", STEADY, Teller(800)),
    Way("thrifty", THRIFTY),
]
BAD = Way("rolling mask", ROLLING)
PAPERS = [Way(one.name, one) for one in (CLASSIC, SLIDING, WINDOW, CONFIRM, THREE_LAYER)]


def tau(shared: Path) -> list[Recorded]:
    """Chats of the odd tasks, 33 as one session."""
    tasks = [one["task_id"] for one in json.loads(text(shared, "tau_bench_gpt4o_airline.json.gz"))]
    odd = [chat for chat, task in zip(chats(shared), tasks, strict=True) if task % 2]
    return [join_sessions(f"tau {at}", odd[at : at + 33]) for at in (0, 33, 66)]


def percents(
    sessions: list[Recorded], ways: list[Way], hands: Executor
) -> dict[str, list[list[TrialResult]]]:
    """Every way's results, by price and session; sending everything is the first way."""
    trials = [
        way.trial(session, Prices(1.0, share, 1.25, 5.0))
        for way in (EVERYTHING, *ways)
        for share in READS
        for session in sessions
    ]
    results = list(hands.map(run_trial, trials))
    many, found = len(sessions), {}
    for at, way in enumerate((EVERYTHING, *ways)):
        rows = results[at * many * len(READS) : (at + 1) * many * len(READS)]
        found[way.name] = [rows[n * many : (n + 1) * many] for n in range(len(READS))]
    return found


def kept(results: list[TrialResult], what: str) -> float:
    """A share over several sessions."""
    every: list[KeptShare] = [getattr(one.retention, what) for one in results]
    return sum(every, KeptShare()).percent


@dataclass(frozen=True)
class Set:
    """Some sessions under some ways."""

    title: str
    sessions: list[Recorded]
    found: dict[str, list[list[TrialResult]]]

    def __add__(self, other: "Set") -> "Set":
        found = {
            name: [a + b for a, b in zip(rows, other.found[name], strict=True)]
            for name, rows in self.found.items()
        }
        title = f"{self.title} and {other.title}"
        return Set(title, self.sessions + other.sessions, found)

    def shares(self, name: str) -> list[list[float]]:
        """Percent of sending everything, by price and session."""
        return [
            [
                100 * one.input_dollars / whole.input_dollars
                for one, whole in zip(row, base, strict=True)
            ]
            for row, base in zip(self.found[name], self.found["everything"], strict=True)
        ]

    def show(self) -> None:
        """Print it as a table."""
        many = len(self.sessions)
        tokens = sum(sum(map(estimate_event_tokens, one.events)) for one in self.sessions) // many
        calls = sum(len(one.calls) for one in self.sessions) // many
        print(
            f"\n{self.title}: {many} session(s) of {tokens:,} tokens and {calls} calls on average"
        )
        for name, rows in self.found.items():
            shares, first = self.shares(name), rows[0]
            told = [estimate_interval(row) for row in shares]
            again = [
                100
                * sum(one.recall_dollars for one in row)
                / sum(one.input_dollars for one in base)
                for row, base in zip(rows, self.found["everything"], strict=True)
            ]
            print(
                f"  {name:13} cost {' / '.join(f'{one.mean:5.1f} ({one.low:.1f}-{one.high:.1f})' for one in told)} %"
                f"  worst {max(map(max, shares)):5.1f}  folds {sum(len(one.edits) for one in first) / many:4.1f}"
                f"  names {kept(first, 'names'):6.2f} (results {kept(first, 'from_results'):6.2f})"
                f"  lines {kept(first, 'lines'):5.1f} (in the turn {kept(first, 'turn_lines'):5.1f})"
                f"  read again + {' / '.join(f'{one:.1f}' for one in again)} %"
            )

    def missed(self, *, slack: float) -> list[str]:
        """What is below its target by more than so many points."""
        below = [
            f"{self.title}: {name} costs {estimate_interval(row).mean:.1f} % at {share}, at most {most} wanted"
            for name, targets in MOST.items()
            for row, most, share in zip(self.shares(name), targets, READS, strict=True)
            if estimate_interval(row).mean > most + slack
        ]
        first = self.found["steady"][0]
        # Two generated sessions kept 348 of 356 names seen only in results (97.75 %); since a fold
        # that pays comes in time 341, with the floor of 48,000 339 (95.22 %).
        slacks = {"names": (NAMES, slack), "from_results": (RESULTS, 1.4 * slack)}
        for what, (least, less) in slacks.items():
            if kept(first, what) < least - less:
                below.append(
                    f"{self.title}: steady keeps {kept(first, what):.2f} % of {what}, {least} wanted"
                )
        return below

    def bad(self) -> list[str]:
        """Whether the planted bad policy is found out."""
        last = {name: estimate_interval(self.shares(name)[-1]).mean for name in self.found}
        found_out = last[BAD.name] > max(100, last["steady"], last["thrifty"])
        return [] if found_out else ["a mask that rolls should cost more than everything at 0.025"]


def compare(title: str, sessions: list[Recorded], ways: list[Way], hands: Executor) -> Set:
    """Some sessions under every way, shown."""
    made = Set(title, sessions, percents(sessions, ways, hands))
    made.show()
    return made


def cut(session: Recorded, calls: int) -> Recorded:
    """The beginning of a session."""
    ends = [at for at, event in enumerate(session.events) if isinstance(event, ModelSaid)]
    return Recorded(
        f"{session.name}, {calls} calls", session.model, session.events[: ends[calls - 1] + 1]
    )


def lengths(seeds: range, hands: Executor) -> None:
    """How often, and by how much, a session ends above the price of sending everything."""
    print(
        "\nBy length (made-up sessions cut off): mean % / how many above 100 / the worst, at each price"
    )
    for calls in (25, 50, 100, 200):
        sessions = [cut(generate_coding_session(seed).recorded, calls) for seed in seeds]
        found = percents(sessions, [OURS[0], OURS[2]], hands)
        for name in ("steady", "thrifty"):
            told = []
            for row, base in zip(found[name], found["everything"], strict=True):
                shares = [
                    100 * one.input_dollars / all_.input_dollars
                    for one, all_ in zip(row, base, strict=True)
                ]
                told.append(
                    f"{sum(shares) / len(shares):5.1f} / {sum(s > 100.05 for s in shares)} / {max(shares):5.1f}"
                )
            print(f"  {calls:4} calls  {name:8}  {'   '.join(told)}")


def planted(seeds: range, *, calls: int) -> list[str]:
    """What was planted and is still in front; whether everything that was cut comes back."""
    missed: list[str] = []
    for way in (OURS[0], OURS[2]):
        rules = facts = todo = ask = f1 = back = folds = 0.0
        lowest, files = 100.0, 1.0
        for seed in seeds:
            made = generate_coding_session(seed, calls=calls, tokens=600 * calls)
            ours = Ours(
                made.recorded,
                Facts(limits(WINDOW_TOKENS, None), way.policy, Prices(1, 0.1, 1.25, 5)),
            )
            done = replay_session(made.recorded, ours)
            found, bytes_ = (
                measure_planted(done, made.truth),
                measure_recovery(ours.events, made.recorded),
            )
            rules += found.constraints.percent
            lowest, files = min(lowest, found.constraints.percent), min(files, found.shown.f1)
            facts += found.at_end.percent
            todo, ask = todo + found.todos.percent, ask + found.questions.percent
            f1, back, folds = f1 + found.shown.f1, back + bytes_.percent, folds + done.folds
            if found.resurrected:
                missed.append(
                    f"{way.name}, seed {seed}: {found.resurrected} corrected values came back"
                )
        many = len(seeds)
        print(
            f"  {way.name:8} {calls} calls, {folds / many:4.1f} folds: constraints {rules / many:.2f} %, file states"
            f" F1 {f1 / many:.4f} (least {files:.4f}), facts at the end {facts / many:.1f} %, tasks {todo / many:.2f} %,"
            f" open questions {ask / many:.1f} %, recoverable {back / many:.3f} %"
        )
        if lowest < 100 or files < 0.99 or back / many < 100:
            missed.append(
                f"{way.name}, {calls} calls: constraints {lowest:.2f} %, F1 {files:.4f}, back {back / many:.2f} %"
            )
    return missed


def fading(seeds: range) -> None:
    """Facts over many folds with a teller that forgets."""
    print(
        "\nFacts left after 1 / 4 / 10 / 16 folds, by the share that a teller forgets: a summary of a summary; our"
    )
    print("narrative's lines; the whole handoff")
    for loss in (0.1, 0.3, 0.5):
        runs = [measure_decay(seed, loss=loss) for seed in seeds]
        rows = {
            what: [
                100 * sum(getattr(one[at], what) for one in runs) / len(runs)
                for at in (0, 3, 9, 15)
            ]
            for what in ("retold", "narrative", "handoff")
        }
        print(
            f"  {loss}: "
            + "   ".join(" / ".join(f"{one:3.0f}" for one in row) for row in rows.values())
        )


def real(shared: Path, hands: Executor, *, short: bool) -> list[str]:
    """The two sessions whose bill is known; reported, never tuned on."""
    missed: list[str] = []
    for name, (paid, most) in PAID.items():
        session = pi(shared, name)
        prices = find(session.model).prices
        rules = rules_for(session.model, prices)
        bill = build_cost_report(session, rules)
        ways = [OURS[0]] if short else [EVERYTHING, *OURS, *PAPERS[:3]]
        results = list(
            hands.map(run_trial, [replace(way.trial(session, prices), rules=rules) for way in ways])
        )
        print(
            f"\npi {name}: paid ${paid:.2f}; by its counts ${bill.total:.2f}, of it ${bill.lost:.2f} for {len(bill.cold)} cold calls"
        )
        for way, one in zip(ways, results, strict=True):
            r = one.retention
            print(
                f"  {way.name:13} ${one.dollars:6.2f}  folds {len(one.edits):3}  names {r.names.percent:5.2f} (results"
                f" {r.from_results.percent:5.2f})  lines {r.lines.percent:5.1f} (in the turn {r.turn_lines.percent:5.1f})"
                f"  read again + ${one.recall_dollars:.2f}"
            )
        ours = results[ways.index(OURS[0])]
        r = ours.retention
        print(
            f"  wanted of steady: ${most:.2f}, names 99 (results 99.5), lines 90 (in the turn 99)"
        )
        # Reached, so held: below its targets are names seen only in results, and lines.
        # Names of opus45 were 99.64 % for $18.17 until a fold that pays came in time: 98.84 % for
        # $16.94, 40 of 5,003 names less behind four folds more. Floors from 0 to 56,000, shorter
        # results and smaller forced folds all have 98.8; a floor of 64,000 99.7 % for $17.26.
        reached = (
            (r.names.percent, 98.5),
            (r.turn_lines.percent, 99.0),
            (r.from_results.percent, 98.5),
            (r.lines.percent, 84.0),
        )
        if ours.dollars > most or any(is_ < least for is_, least in reached):
            missed.append(f"{name}: steady is below what it reached")
        if abs(bill.total / paid - 1) > 0.05:
            missed.append(f"{name}: ${bill.total:.2f} by the counts, ${paid:.2f} paid")
        simulated = evaluate_contender(session, AsRecorded(session), rules).dollars
        print(f"  the simulator, from the events alone, misses replayed: ${simulated:.2f}")
        if abs(simulated / paid - 1) > 0.05:
            missed.append(f"{name}: simulated ${simulated:.2f}, paid ${paid:.2f}")
    return missed


def repeats(seed: int) -> list[str]:
    """The same bytes from the same seed; and how long one replay takes on one core."""
    start = time.process_time()
    body = msgspec.json.encode(
        run_trial(
            OURS[0].trial(generate_coding_session(seed).recorded, Prices(1.0, 0.1, 1.25, 5.0))
        )
    )
    seconds = time.process_time() - start
    again = msgspec.json.encode(
        run_trial(
            OURS[0].trial(generate_coding_session(seed).recorded, Prices(1.0, 0.1, 1.25, 5.0))
        )
    )
    print(
        f"\nOne session made, replayed, billed and probed in {seconds:.1f} s of one core; sha256 {hashlib.sha256(body).hexdigest()[:12]}"
    )
    return [f"{seconds:.1f} s for a replay"] * (seconds > 5) + ["a replay differs"] * (
        body != again
    )


def main() -> int:
    """Print the tables; 1 where something that was reached is lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="fewer sessions")
    args = parser.parse_args()
    shared = Path(os.environ["FOLDLINE_SHARED"]) if os.environ.get("FOLDLINE_SHARED") else None
    seeds = range(2) if args.short else range(10)
    missed = repeats(0)
    with ProcessPoolExecutor() as hands:
        made = [generate_coding_session(seed).recorded for seed in seeds]
        ways = [*OURS, BAD] if args.short else [*OURS, BAD, *PAPERS]
        # A mean of few sessions says little: the short form holds them with some slack.
        slack = 2.5 if args.short else 0.0
        long = compare("made-up coding", made, ways, hands)
        missed += long.bad()
        if shared:
            chats = tau(shared)[: 1 if args.short else 3]
            long += compare("tau-bench of odd tasks", chats, ways, hands)
            if not args.short:
                long.show()
                compare("SWE-agent, reported", [swe(shared)], ways, hands)
            missed += real(shared, hands, short=args.short)
        missed += long.missed(slack=slack)
        if not args.short:
            lengths(seeds, hands)
    print("\nPlanted in made-up sessions:")
    missed += planted(range(1) if args.short else range(5), calls=200)
    if not args.short:
        missed += planted(range(2), calls=800)
        fading(range(8))
    print()
    for line in missed:
        print(f"MISSED {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
