"""Other libraries' ways to keep a history small, over the lab's sessions: same sessions, counter, prices.

Knows how to ask the environment of `just peers` for them. Refuses to import a peer: they want other
versions of much that we use, so they run in a process of their own (`rivals.__main__`).

    from rivals import rivals, table
    rows = rivals(["swe", "tau:0", "pi:opus45"], shared=Path("../shared"), window=60_000)
    table(rows)
"""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

READS = (0.10, 0.05, 0.025)
HERE = Path(__file__).resolve().parents[1]
PYTHON = HERE.parent / ".rig" / "peers" / "bin" / "python"


def rivals(
    sessions: list[str], *, shared: Path, window: int = 200_000, peers: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Every peer over these sessions, at each of `READS`; nothing, and a word, where no peers are set up.

    A row has session, peer, version, window, read, over (requests larger than the window), cuts
    (requests that broke the cache), summaries (calls beside the conversation), seconds, and result (a `trials.Result` as JSON has it); or session,
    peer, window and `failed`. `everything` is among the peers: its cost is what percents are of. Costs are
    in units where a fresh input token costs 1: `result["dollars"] - result["output_dollars"]` is the input.
    Names of sessions are those of `rivals.__main__`; `peers`
    chooses those whose names begin so: whole families (`strands`) or one.
    """
    options = ["--shared", str(shared), "--window", str(window)]
    rows = _run_child("rivals", *options, *(f"--peer={name}" for name in peers), *sessions)
    for name, note in rows[0]["peers"].items() if rows else ():
        print(f"  {name}: {note}")
    return rows[1:]


def ask_peers(talks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What every peer shows at the end of each conversation: see `rivals.answers`."""
    return _run_child("rivals.answers", said="".join(json.dumps(one) + "\n" for one in talks))


def _run_child(module: str, *options: str, said: str = "") -> list[dict[str, Any]]:
    """The JSON lines of a program in the peers' environment; none, and a word, without it."""
    if not PYTHON.exists():
        print("peers are not set up here (`just peers`): no rivals")
        return []
    done = subprocess.run(  # noqa: S603 - our own program
        [str(PYTHON), "-m", module, *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "src")])},
        input=said,
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or not rows:
        print(f"rivals ended with {done.returncode}: {done.stderr[-600:]}")
    return rows


def table(rows: list[dict[str, Any]]) -> None:
    """What came of them, a line for each session and peer."""
    cost: dict[tuple[str, int, float, str], float] = {}
    for row in rows:
        if "result" in row:
            spent = row["result"]["dollars"] - row["result"]["output_dollars"]
            cost[row["session"], row["window"], row["read"], row["peer"]] = spent
    for row in rows:
        if "failed" in row:
            print(f"{row['session']:12} {row['window']:7,} {row['peer']:28} {row['failed']}")
        elif row["read"] == READS[0]:
            where = row["session"], row["window"]
            shares = [
                100 * cost[*where, read, row["peer"]] / cost[*where, read, "everything"]
                for read in READS
            ]
            result = row["result"]
            kept = {
                name: 100 * one["there"] / one["used"] if one["used"] else 100.0
                for name, one in result["retention"].items()
            }
            print(
                f"{row['session']:12} {row['window']:7,} {row['peer']:28}"
                f" cost {' / '.join(f'{one:6.1f}' for one in shares)} %"
                f"  names {kept['names']:6.2f} (results {kept['from_results']:6.2f})"
                f"  lines {kept['lines']:6.2f} (in the turn {kept['turn_lines']:6.2f})"
                f"  over {row['over']:4} of {result['calls']:4}"
                f"  cuts {row['cuts']:4}  summaries {row['summaries']:3}  largest {max(result['sizes'], default=0):7,}"
                f"  {row['seconds']:6.1f} s"
            )
