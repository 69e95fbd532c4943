"""Law 2 by two judges a dialect: our rules, and the types of the official SDKs.

    just bench judges --logs 100000

Each seed gives one conversation, as in `bench laws`: messages, answers, calls, results, folds, masks,
exclusions, undos, pins, new instructions, switches. Its last request and up to four that were sent
before are encoded in all dialects, and both judges are asked about messages, tools and system.
Seeds take turns in the dialects whose own items their events have beside them.
Prints how many were asked and exits 1 where one is refused, with its seed.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

from pool import summed

from foldline.core import rules
from foldline.core.parts import render_parts
from foldline.core.request import Request, render
from foldline.core.view import load
from foldline.dialects.base import list_dialects
from foldline.testing import Conversation, play, steps

sys.path += [str(Path(__file__).parents[1] / "tests" / one) for one in ("dialects", "support")]

import jury
from spine_at import spine_at

EARLIER = 4


def requests(talk: Conversation, random: Random) -> Iterator[Request]:
    """What would be sent now, and some of what was."""
    view = talk.view.copy()
    for event in rules.make_closing_events(view):
        view.append(view.head + 1, event)
    yield render(view)
    for sent in random.sample(talk.sent, min(EARLIER, len(talk.sent))):
        events = dict(talk.log[: sent.at + 1])
        yield render(load(spine_at(talk.log, sent.at), events, head=sent.at))


def many(seeds: range) -> tuple[Counter[str], list[str]]:
    """Some conversations before the judges: what was asked, and what was refused."""
    seen: Counter[str] = Counter()
    refused: list[str] = []
    for seed in seeds:
        random = Random(seed)
        several = list_dialects()
        dialect = several[seed % len(several)]
        talk = play(steps(random, 20 + seed % 101), dialect=dialect, dialects=(dialect,))
        seen["logs"] += 1
        seen["events"] += len(talk.events)
        for request in requests(talk, random):
            if (
                not request.items and not render_parts(request.system).strip()
            ):  # nothing can be sent
                seen["silent"] += 1
                continue
            seen["requests"] += 1
            seen["messages"] += len(request.items)
            refused += [f"seed {seed}: {one}" for one in jury.refused(request)]
    return seen, refused


def main() -> int:
    """Print the figures; 1 where a judge refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="150 logs")
    args = parser.parse_args()
    end = args.seed + (150 if args.short else args.logs)
    start = time.perf_counter()
    total, refused = summed(many, range(args.seed, end))
    print(
        f"{total['logs']:,} logs, {total['events']:,} events, {total['requests']:,} requests "
        f"({total['silent']:,} silent ones left out) of {total['messages']:,} items, "
        f"{len(list_dialects())} dialects, "
        f"2 judges ({jury.NAMES}): {len(refused)} refused; {time.perf_counter() - start:.0f} s"
    )
    for line in refused[:20]:
        print(line)
    return 1 if refused or not total["requests"] else 0


if __name__ == "__main__":
    sys.exit(main())
