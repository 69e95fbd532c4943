"""Generated sessions with random settings against a model whose tokenizer nobody knows.

    just bench fits --sessions 100000
    just bench fits --sessions 100000 --dialect openai-responses

Each session has a hidden tokenizer (a ratio to the estimate, noise for every message, a constant that
the provider adds) and reports its counts back. Sessions take turns in the dialects: their events have
that dialect's own items beside them, and every request is encoded and judged in it. Counted: requests above the true window, refusals to
plan, folds, and folds that gained nothing. Exits 1 on any request above the window, on a fault of one, on a refusal, or
where forced folds are not bounded by what came in: after the first two of a session (one message may
be as large as the window, and be forced in and out) each must be earned by new tokens.
"""

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random

import msgspec

from foldline.core.budget import limits, measure_budget
from foldline.core.item import Item
from foldline.core.log import Folded, Instructed, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Clip, Text
from foldline.core.plan import Facts, Ready
from foldline.core.policy import PRESETS
from foldline.core.prices import Prices
from foldline.core.tokens import count_parts, count_tokens
from foldline.dialects.base import DIALECTS, Dialect, get_dialect, list_dialects
from foldline.testing import Planned, calls, model, result, user
from foldline.testing.own_items import give_own_items

FREE_FOLDS, NEVER = 2, 10_000
LEAST_NEW = 20  # per cent of the hard limit that must have come in for each further forced fold
NAMES = sorted(set(PRESETS) - {"off"})
WORDS = ("parser", "module_7", "the", "failed", "src/a/b.py", "{'id': 12}", "and", "0x1f", "über")
SOUP = " ".join(Random(0).choices(WORDS, k=60_000))


class Hidden:
    """A tokenizer that nobody knows, and what it makes of a request."""

    def __init__(self, random: Random) -> None:
        self.ratio = random.uniform(0.62, 1.02)
        self.constant = random.choice((0, 0, 20, 60))
        self.noise = random.uniform(0.0, 0.06)
        self.seed = random.randrange(1 << 30)

    def count(self, items: tuple[Item, ...], fixed: int) -> int:
        """The true size."""
        total = fixed * self.ratio + self.constant
        for item in items:
            wobble = ((item.seq * 2_654_435_761 + self.seed) % 2_001 - 1_000) / 1_000 * self.noise
            total += item.tokens * self.ratio * (1 + wobble)
        return int(total)


def session(seed: int, dialect: Dialect) -> Counter[str]:
    """One session: what happened in it."""
    random = Random(seed)
    window = int(1_500 * 2 ** random.triangular(0, 4, 0))
    policy = PRESETS[random.choice(NAMES)]
    policy = replace(policy, hard=random.uniform(0.6, policy.hard), start="auto")
    reserve = random.choice((None, 0, window // 20, window // 4))
    prices = Prices(3.0, 3.0 * random.choice((0.1, 0.05, 0.025)), 3.75, 15.0)
    facts = Facts(
        limits(window, reserve), policy, prices, random.choice(("warm", "cold", "unknown"))
    )
    hidden = Hidden(random)
    talk = Planned(facts, Instructed((Text("Be careful. " * random.randint(0, 20)),)))
    seen: Counter[str] = Counter({"sessions": 1, dialect.name: 1})
    place = count()

    def add(event: UserSaid | ModelSaid | ToolReturned) -> None:
        at = next(place)
        talk.add(give_own_items(dialect, event, place=at, a=at % 12, b=at * 5 % 12))

    def words(most: int) -> str:
        start = random.randrange(len(SOUP) // 2)
        return SOUP[start : start + 4 * random.randint(1, max(most, 2))]

    def counted(made: Ready) -> int:
        fixed = made.report.estimate - sum(item.tokens for item in made.request.items)
        return hidden.count(made.request.items, fixed)

    def ask() -> None:
        made = talk.plan()
        if not isinstance(made, Ready):
            seen["refused"] += 1
            return
        true = counted(made)
        seen["requests"] += 1
        seen["above"] += true > window
        seen["above with answer"] += true + facts.limits.reserve // 2 > window
        body = msgspec.json.decode(dialect.encode_request(made.request, {}))
        seen["faults"] += len(dialect.list_faults(body))
        talk.ask(made, counted=counted)

    for turn in range(random.randint(2, 5)):
        add(user(words(random.choice((10, 60, window // 8, window // 2)))))
        for step in range(random.randint(0, 3)):
            ask()
            ids = [f"{turn}.{step}.{n}" for n in range(random.choice((1, 1, 2, 4)))]
            thought = "hm, " * 5 if dialect.has_turns else ""
            add(calls(*ids, text=words(10), thought=thought))
            for one_id in ids:
                text = words(random.choice((5, 80, window // 6, window)))
                add(result(one_id, text, ok=random.random() < 0.8))
        ask()
        add(model(words(40)))
    seen["folds"] = len(talk.folds())
    seen["idle folds"] = sum(fold.after >= fold.before for fold in talk.folds())
    seen["least new, %"] = earned(talk)
    return seen


def earned(talk: Planned) -> int:
    """What came in between the first and the last forced fold, for each after two, of hard."""
    budget = measure_budget(talk.view, talk.facts.limits)
    policy = talk.facts.policy
    hard = budget.convert_to_estimate(budget.compute_tier(policy.hard, of=policy.of))
    new, at_folds = 0, list[int]()
    for event in talk.events:
        match event:
            case UserSaid(clip=Clip(parts)) | ToolReturned(clip=Clip(parts)):
                new += count_parts(parts)
            case UserSaid(parts) | ModelSaid(parts) | ToolReturned(_, parts):
                # As the view counts it: a provider's own JSON says more than its parts.
                own = count_tokens(event.native.body) if event.native else 0
                new += max(count_parts(parts), own)
            case Folded(why="forced"):
                at_folds.append(new)
            case _:
                pass
    if len(at_folds) <= FREE_FOLDS:
        return NEVER
    return 100 * (at_folds[-1] - at_folds[0]) // ((len(at_folds) - FREE_FOLDS) * hard)


def many(seeds: range, *, only: str = "") -> Counter[str]:
    """Some sessions, summed; the hardest driven of them kept apart."""
    total: Counter[str] = Counter()
    least = NEVER
    several = [get_dialect(only)] if only else list_dialects()
    for seed in seeds:
        seen = session(seed, several[seed % len(several)])
        least = min(least, seen.pop("least new, %"))
        total += seen
    total["least new, %"] = least
    return total


def main() -> int:
    """Print the figures; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="300 sessions")
    parser.add_argument("--dialect", choices=[*DIALECTS], default="")
    args = parser.parse_args()
    count = 300 if args.short else args.sessions
    start = time.perf_counter()
    chunks = [
        range(at, min(at + 250, args.seed + count))
        for at in range(args.seed, args.seed + count, 250)
    ]
    total: Counter[str] = Counter()
    least = NEVER
    with ProcessPoolExecutor(2) as pool:
        for seen in pool.map(partial(many, only=args.dialect), chunks):
            least = min(least, seen.pop("least new, %"))
            total += seen
    for name in (
        "sessions",
        *DIALECTS,
        "requests",
        "folds",
        "idle folds",
        "refused",
        "above",
        "above with answer",
        "faults",
    ):
        print(f"{name:20}{total[name]:12,}")
    print(f"{'folds a request':20}{total['folds'] / max(total['requests'], 1):12.3f}")
    print(f"{'least new a fold':20}{least:11} %   of the hard limit, in the session driven hardest")
    print(f"{time.perf_counter() - start:.0f} s")
    bad = ("above", "above with answer", "refused", "idle folds", "faults")
    return 1 if any(total[name] for name in bad) or least < LEAST_NEW else 0


if __name__ == "__main__":
    sys.exit(main())
