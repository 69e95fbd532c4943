"""Append and render one event: a log of 1,000,000 events beside one of 1,000, in one run.

Law 6. The logs are generated on the fly and thrown away: a view holds only what is live. Prints both
medians, their ratio and the process's peak memory; exits 1 where the ratio is above 1.2 or the
memory above 150 MB.
"""

import argparse
import resource
import statistics
import sys
import time
from dataclasses import dataclass, field, replace

from foldline.core.budget import limits
from foldline.core.log import Asked, Event, Opened, UsageReported
from foldline.core.plan import Facts, Need, Ready, plan
from foldline.core.policy import STEADY
from foldline.core.request import render
from foldline.core.spine import Spine
from foldline.core.view import load
from foldline.dialects import openai_chat as wire
from foldline.testing import calls, model, result, user

RATIO, MEMORY_MB = 1.2, 150
WINDOW = 16_000
FACTS = Facts(limits(WINDOW, None), STEADY)
RESULT = "src/module.py:12: checked, nothing to report\n" * 12


def event_at(place: int) -> Event:
    """The log as a function of the place: turns of a message, a call, its result, an answer."""
    match place % 6:
        case 0:
            return user(f"Message {place}: look at the next module and say what you find.")
        case 1:
            return calls(f"call_{place}", text=f"Looking at {place}.")
        case 2:
            return result(f"call_{place - 1}", RESULT)
        case 3:
            return model(f"Nothing to report in {place}.")
        case 4:
            return Asked(0, wire.DIALECT, "0" * 64, wire.ENCODER)
        case _:
            return UsageReported(input=4_000, output=20)


@dataclass
class Growing:
    """A session that grows, and folds when it must; user messages of long ago are made again."""

    length: int = 0
    folds: int = 0
    made: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.view = load(Spine(), {}, head=-1)
        self.view.append(0, Opened("bench/model"))

    def grow(self, count: int) -> None:
        """Append many events, folding now and then."""
        for _ in range(count):
            self.view.append(self.view.head + 1, event_at(self.length))
            self.made[self.view.head] = self.length
            self.length += 1
            if self.length % 60 == 0:
                self.fold()

    def fold(self) -> None:
        """Plan, and do what the plan says."""
        made = plan(self.view, FACTS)
        again: dict[int, Event] = {}
        while isinstance(made, Need):
            again |= {span.lo: event_at(self.made[span.lo]) for span in made.ranges}
            made = plan(self.view, replace(FACTS, fetched=again))
        assert isinstance(made, Ready), made
        for event in made.events:
            self.view.append(self.view.head + 1, event)
            self.folds += 1
        if made.events:
            folds = self.view.list_folds().values()
            live = {*self.view.held, *(seq for f in folds for seq in (*f.verbatim, *f.clipped))}
            self.made = {seq: place for seq, place in self.made.items() if seq in live}

    def step(self) -> float:
        """Append one event and render the request: seconds of our processor."""
        event = event_at(self.length)
        start = time.thread_time()
        self.view.append(self.view.head + 1, event)
        wire.encode_request(render(self.view), {})
        took = time.thread_time() - start
        self.made[self.view.head] = self.length
        self.length += 1
        return took


def main() -> int:
    """Print the figures; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="30,000 events instead of 1,000,000")
    parser.add_argument("--steps", type=int, help="3,000, or 1,500 of the short form")
    args = parser.parse_args()
    long, usual = (30_000, 1_500) if args.short else (1_000_000, 3_000)
    steps = args.steps or usual
    small, large = Growing(), Growing()
    small.grow(1_000)
    start = time.perf_counter()
    large.grow(long)
    grown = time.perf_counter() - start
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(steps):
        for session, taken in zip((small, large), times, strict=True):
            taken.append(session.step())
            if session.view.tokens > 0.8 * WINDOW:
                session.fold()
    medians = [statistics.median(taken) * 1e6 for taken in times]
    ratio = medians[1] / medians[0]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"append + render, one event, live view {large.view.tokens:,} tokens, {steps:,} steps each, interleaved"
    )
    print(
        f"  1,000-event log      {medians[0]:8.1f} µs median, {len(small.view.items)} items live, {small.folds} folds"
    )
    print(
        f"  {long:,}-event log  {medians[1]:8.1f} µs median, {len(large.view.items)} items live, {large.folds} folds"
    )
    print(
        f"  ratio {ratio:.3f} (at most {RATIO}); peak memory {memory:.0f} MB (at most {MEMORY_MB})"
    )
    print(f"  growing the long log: {grown / long * 1e6:.1f} µs an event, folds included")
    return 0 if ratio <= RATIO and memory < MEMORY_MB else 1


if __name__ == "__main__":
    sys.exit(main())
