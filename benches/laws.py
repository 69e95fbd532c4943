"""The laws over conversations of the plain generator: many, and longer than Hypothesis draws them.

    just bench laws --logs 100000

Each seed gives one conversation of 20 to 120 steps: messages, answers, calls, results, folds, masks,
exclusions, undos, pins, new instructions, switches. Every law is asked of every one. Prints how many
were asked and exits 1 on the first that breaks, with its seed. Law 1 over whole sessions is `bench
fits`, law 7 is `tests/properties/test_worth.py`: both need a plan, and these conversations have none.
"""

import argparse
import sys
import time
from collections import Counter
from random import Random

from pool import summed

from foldline.testing import laws, play, steps


def many(seeds: range) -> tuple[Counter[str], list[str]]:
    """Some conversations through all laws: what was asked, and what broke."""
    seen: Counter[str] = Counter()
    broken: list[str] = []
    for seed in seeds:
        talk = play(steps(Random(seed), 20 + seed % 101))
        seen["logs"] += 1
        seen["events"] += len(talk.events)
        seen["requests"] += len(talk.sent)
        for law in laws.ALL:
            try:
                law(talk)
            except Exception as fault:  # noqa: BLE001 - every fault of a law is a finding
                broken.append(f"seed {seed}: {law.__name__}: {type(fault).__name__}: {fault}")
    return seen, broken


def main() -> int:
    """Print the figures; 1 where a law is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="500 logs")
    args = parser.parse_args()
    end = args.seed + (500 if args.short else args.logs)
    start = time.perf_counter()
    total, broken = summed(many, range(args.seed, end))
    print(
        f"{total['logs']:,} logs, {total['events']:,} events, {total['requests']:,} requests, "
        f"{len(laws.ALL)} laws each: {len(broken)} broken; {time.perf_counter() - start:.0f} s"
    )
    for line in broken[:20]:
        print(line)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
