"""Every recorded session: planned, encoded in all dialects, judged, and sent back byte for byte.

    just bench recorded

The 200 chats of tau-bench, the 22 runs of SWE-agent, the two `pi` sessions and the two traces, each
under three budgets and all presets, on its way and at its end; both judges of every dialect are asked
about messages, tools and system. What nobody edited must go back as it came. Needs FOLDLINE_SHARED.
Prints how many were asked and exits 1 where one is refused or differs.
"""

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests" / "dialects"))

import archive
import jury

from foldline.dialects.base import DIALECTS

STEPS = {"tau": 80, "swe": 18}
"""A short run takes every so many of these, and `pi` under one budget."""


def one(task: tuple[Path, str, int, bool]) -> tuple[Counter[str], list[str]]:
    """One session: what was asked, and what was refused or differs."""
    shared, source, place, short = task
    session = archive.sessions(shared, source)[place]
    windows = archive.WINDOWS[1:2] if short and source == "pi" else archive.WINDOWS
    planned, refused = archive.planned(session, windows=windows)
    kept, differs = archive.changed(session)
    return Counter(sessions=1) + planned + kept, refused + differs


def main() -> int:
    """Print the figures; 1 where something is refused or differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="some of each source")
    args = parser.parse_args()
    if not os.environ.get("FOLDLINE_SHARED"):
        print("FOLDLINE_SHARED is not set: no recorded sessions here")
        return 1
    shared = Path(os.environ["FOLDLINE_SHARED"])
    start, total, wrong = time.perf_counter(), Counter[str](), list[str]()
    with ProcessPoolExecutor(2) as pool:
        for source in reversed(archive.FILES):
            many = len(archive.sessions(shared, source))
            step = STEPS.get(source, 1) if args.short else 1
            tasks = [(shared, source, place, args.short) for place in range(0, many, step)]
            seen = Counter[str]()
            for asked, found in pool.map(one, tasks):
                seen += asked
                wrong += found
            print(
                f"{source:6} {seen['sessions']:3} sessions, {seen['requests']:6,} requests by both "
                f"judges of {len(DIALECTS)} dialects, {seen['blocked']:4,} blocked; message by message "
                f"{seen['as it was recorded']:3} as recorded, "
                f"{', '.join(f'{seen[name]:3} {name}' for name in DIALECTS)}, "
                f"{seen['indented']:3} of them indented"
            )
            total += seen
    print(
        f"{total['sessions']} sessions, {total['requests']:,} requests ({jury.NAMES}): "
        f"{len(wrong)} refused or changed; {time.perf_counter() - start:.0f} s"
    )
    for line in wrong[:20]:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
