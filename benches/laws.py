"""The laws over conversations of the plain generator: many, and longer than Hypothesis draws them.

    just bench laws --logs 100000
    just bench laws --logs 100000 --dialect openai-responses
    just bench laws --sessions 20000

Each seed gives one conversation of 20 to 120 steps (`--longest`): messages, answers, calls, results, folds, masks,
exclusions, undos, pins, new instructions, switches. Seeds take turns in the dialects that they record
their requests in, with what only that dialect has; laws 2 and 4 are asked in all of them. With
`--dialect` all are of one, in which alone the laws are asked, and the types of its SDK are asked too
about what would be sent at the end. Every law is asked of every one. Prints how many
were asked and exits 1 on the first that breaks, with its seed. With `--sessions` whole lives of sessions
are played instead, see `tests/properties/session_programs.py`: crashes, restarts, undo, switches. Law 1 over whole sessions is `bench
fits`, law 7 is `tests/properties/test_worth.py`: both need a plan, and these conversations have none.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random

from pool import summed

from foldline.core import rules
from foldline.core.request import render
from foldline.dialects.base import DIALECTS, Dialect, get_dialect, list_dialects
from foldline.testing import Conversation, play, steps

sys.path.append(str(Path(__file__).parents[1] / "tests" / "properties"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "dialects"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

import jury
import law_checks as laws
import session_programs

SHORTEST = 20  # steps of a conversation


def judged(talk: Conversation) -> None:
    """Law 2 by the second judge: the SDK's types take what would be sent now."""
    view = talk.view.copy()
    for event in rules.make_closing_events(view):
        view.append(view.head + 1, event)
    found = jury.refused(render(view), (talk.dialect,))
    assert not found, found


def many(seeds: range, *, only: str, longest: int) -> tuple[Counter[str], list[str]]:
    """Some conversations through all laws: what was asked, and what broke."""
    seen: Counter[str] = Counter()
    broken: list[str] = []
    alone: tuple[Dialect, ...] = (get_dialect(only),) if only else ()
    several = alone or tuple(list_dialects())
    asked = (judged, *laws.ALL) if alone else laws.ALL
    for seed in seeds:
        dialect = several[seed % len(several)]
        talk = play(
            steps(Random(seed), SHORTEST + seed % (longest - SHORTEST + 1)),
            dialect=dialect,
            dialects=alone,
        )
        seen["logs"] += 1
        seen[dialect.name] += 1
        seen["events"] += len(talk.events)
        seen["requests"] += len(talk.sent)
        for law in asked:
            try:
                law(talk)
            except Exception as fault:  # noqa: BLE001 - every fault of a law is a finding
                broken.append(f"seed {seed}: {law.__name__}: {type(fault).__name__}: {fault}")
    return seen, broken


def live(seeds: range) -> tuple[Counter[str], list[str]]:
    """Some programs of whole sessions: what happened, and which were refused or stuck."""
    seen: Counter[str] = Counter()
    broken: list[str] = []
    for seed in seeds:
        program = session_programs.steps(Random(seed), SHORTEST + seed % 5)
        try:
            seen.update(asyncio.run(session_programs.play(program)).seen)
        except Exception as fault:  # noqa: BLE001 - every fault of a session is a finding
            broken.append(f"seed {seed}: {type(fault).__name__}: {fault}")
        seen["programs"] += 1
    return seen, broken


def main() -> int:
    """Print the figures; 1 where a law is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="150 logs")
    parser.add_argument("--longest", type=int, default=120, help="steps of a conversation")
    parser.add_argument("--dialect", choices=[*DIALECTS], default="")
    parser.add_argument("--sessions", type=int, help="programs of whole sessions instead")
    args = parser.parse_args()
    if args.sessions:
        start = time.perf_counter()
        total, broken = summed(live, range(args.seed, args.seed + args.sessions))
        steps_ = sum(total[name] for name in {*session_programs.NAMES})
        print(
            f"{total['programs']:,} programs, {steps_:,} steps, {total['requests']:,} requests, {total['overflow']:,} that nothing makes fit: {len(broken)} refused or stuck; {time.perf_counter() - start:.0f} s"
        )
        for line in broken[:20]:
            print(line)
        return 1 if broken else 0
    end = args.seed + (150 if args.short else args.logs)
    start = time.perf_counter()
    total, broken = summed(
        partial(many, only=args.dialect, longest=args.longest), range(args.seed, end)
    )
    print(
        f"{total['logs']:,} logs ({', '.join(f'{total[name]:,} {name}' for name in DIALECTS)}), "
        f"{total['events']:,} events, {total['requests']:,} requests, {len(laws.ALL)} laws each: {len(broken)} broken; {time.perf_counter() - start:.0f} s"
    )
    for line in broken[:20]:
        print(line)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
