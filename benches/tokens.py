"""The estimate beside tiktoken and bytes/4: megabytes a second, and error, on the same texts.

Needs the package tiktoken and FOLDLINE_SHARED (its ranks and recorded sessions). Exits 1 where a kind
of content falls outside 0.95-1.6 of o200k, or below 100 MB/s on a result of 1 MB, unless the machine is
so slow that tiktoken beside it is slow too: then below twice its rate. Since every byte of a text is
counted, the machines seen so far print 2.8 to 12 times; they take turns, so that others slow both.
"""

import argparse
import gzip
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from foldline.core.tokens import count_tokens

RATE, TIMES, LOW, HIGH = 100, 2, 0.95, 1.6
ROUNDS = 15


def texts(shared: Path) -> dict[str, str]:
    """Recorded content by kind."""
    found: dict[str, list[str]] = {"tool results": [], "answers": [], "json": [], "chat": []}
    for name in ("opus45", "sonnet45"):
        with gzip.open(shared / "data" / f"pi_session_{name}.jsonl.gz", "rt") as file:
            for line in file:
                message = json.loads(line).get("message") or {}
                for part in message.get("content") or ():
                    if isinstance(part, dict) and part.get("type") == "text":
                        kind = "tool results" if message["role"] == "toolResult" else "answers"
                        found[kind].append(part["text"])
    with gzip.open(shared / "data" / "tau_bench_gpt4o_airline.json.gz", "rt") as file:
        for run in json.load(file):
            for message in run["traj"]:
                if message["role"] == "tool":
                    found["json"].append(message["content"])
                elif message["role"] == "user":
                    found["chat"].append(message["content"])
    return {kind: "\n".join(parts)[:1_000_000] for kind, parts in found.items()}


def measure_rates(counters: dict[str, Callable[[str], object]], text: str) -> dict[str, float]:
    """Megabytes a second of each, the best of some tries, in which they take turns."""
    best = dict.fromkeys(counters, float("inf"))
    for _ in range(ROUNDS):
        for name, counter in counters.items():
            best[name] = min(best[name], _timed(counter, text))
    return {name: len(text.encode()) / 1e6 / seconds for name, seconds in best.items()}


def _timed(counter: Callable[[str], object], text: str) -> float:
    start = time.perf_counter()
    counter(text)
    return time.perf_counter() - start


def main() -> int:
    """Print the figures; 1 where a target is missed."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    shared = os.environ.get("FOLDLINE_SHARED")
    if not shared:
        print("FOLDLINE_SHARED is not set: no ranks and no recorded texts here")
        return 1
    os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(shared) / "data" / "tiktoken")
    import tiktoken  # noqa: PLC0415 - it looks for its ranks when it is first used

    o200k = tiktoken.get_encoding("o200k_base")
    samples = texts(Path(shared))
    print(f"{'':14}{'ours/o200k':>12}{'bytes/4':>10}{'true tokens':>14}")
    missed = False
    for kind, text in samples.items():
        true = len(o200k.encode(text, disallowed_special=()))
        ours, quarter = count_tokens(text) / true, len(text.encode()) / 4 / true
        missed |= not LOW <= ours <= HIGH
        print(f"{kind:14}{ours:12.2f}{quarter:10.2f}{true:14,}")
    large = (samples["tool results"] * 2)[:1_000_000]
    counters: dict[str, Callable[[str], object]] = {
        "ours": count_tokens,
        f"tiktoken {tiktoken.__version__}": lambda t: o200k.encode(t, disallowed_special=()),
        "bytes/4": lambda t: len(t.encode()) // 4,
    }
    rates = measure_rates(counters, large)
    for name, speed in rates.items():
        print(f"{name:18}{speed:10.0f} MB/s on 1 MB of tool results")
    times = rates["ours"] / list(rates.values())[1]
    print(f"ours / tiktoken: {times:.1f} times")
    return 1 if missed or (rates["ours"] < RATE and times < TIMES) else 0


if __name__ == "__main__":
    sys.exit(main())
