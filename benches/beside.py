"""What our policies and other libraries cost and keep on the same sessions, as a table and a picture.

    just peers && FOLDLINE_SHARED=../shared just bench beside                              half an hour
    just bench beside --peer strands --session coding:0                                   a minute
    just bench beside --from benches/rivals/measured.jsonl --picture docs/pictures/peers   drawn anew

Sessions, counter, prices and probes are the lab's; every library runs its own code in the environment of
`just peers`, at a window of 60,000 tokens. Cost is that of the input beside sending everything, cached reads at
0.10, writes at 1.25, summaries billed. Kept is exact text: of the code-like names that the agent wrote again,
how many were in front of it. Quality is not measured. Exits 1 where a library that always fits keeps as much as
`steady` for less.
"""

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rivals import READS, rivals, table
from rivals.picture import Point, drawn
from sessions import by_name

from foldline.core.policy import STEADY, THRIFTY
from foldline.core.prices import Prices
from foldline.lab.bill.cache import CacheRules
from foldline.lab.comparison import Trial, run_trial

WINDOW = 60_000
SESSIONS = ("coding:0", "coding:1", "tau:0")
OURS = (STEADY, THRIFTY)


def ours(sessions: list[str], shared: Path) -> list[dict[str, Any]]:
    """Our policies' rows, in the form of the rivals'."""
    rows: list[dict[str, Any]] = []
    for name in sessions:
        session = by_name(name, shared)
        for policy in OURS:
            for share in READS:
                rules = CacheRules(Prices(1.0, share, 1.25, 5.0))
                result = run_trial(Trial(session, policy, rules, WINDOW))
                row = {"session": name, "peer": f"foldline {policy.name}", "version": "this tree"}
                rest = {"window": WINDOW, "read": share, "over": result.blocked}
                edits = {"cuts": len(result.edits), "summaries": 0, "seconds": 0.0}
                rows.append({**row, **rest, **edits, "result": msgspec.to_builtins(result)})
    return rows


@dataclass(frozen=True)
class Row:
    """What the picture needs of a row; `--keep` writes these."""

    session: str
    peer: str
    version: str
    read: float
    over: int
    calls: int
    spent: float
    used: int
    there: int

    @classmethod
    def of(cls, row: dict[str, Any]) -> "Row":
        """A row of the table."""
        result = row["result"]
        names = result["retention"]["names"]
        spent = round(result["dollars"] - result["output_dollars"], 6)
        known = (row["session"], row["peer"], row["version"], row["read"], row["over"])
        return cls(*known, result["calls"], spent, names["used"], names["there"])


def points(rows: list[Row], read: float) -> list[Point]:
    """A point a library: its cost as the mean over sessions, its names over all of them."""
    whole = {one.session: one.spent for one in rows if (one.peer, one.read) == ("everything", read)}
    found: list[Point] = []
    for peer in dict.fromkeys(one.peer for one in rows):
        mine = [one for one in rows if (one.peer, one.read) == (peer, read)]
        if {one.session for one in mine} != whole.keys():
            print(f"{peer}: not on every session, left out of the picture")
            continue
        cost = sum(100 * one.spent / whole[one.session] for one in mine) / len(mine)
        kept = 100 * sum(one.there for one in mine) / sum(one.used for one in mine)
        over = 100 * sum(one.over for one in mine) / sum(one.calls for one in mine)
        found.append(Point(peer, mine[0].version, cost, kept, over))
    return found


def main() -> int:
    """Measure or read, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--session", action="append", help="instead of all of them")
    parser.add_argument("--peer", action="append", default=[], help="whose name begins so")
    parser.add_argument("--from", dest="kept", type=Path, help="rows that were measured before")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write the rows")
    parser.add_argument("--picture", type=Path, help="FILE.svg and FILE.png, without the ending")
    args = parser.parse_args()
    if args.kept:
        rows = [Row(**json.loads(line)) for line in args.kept.read_text().splitlines()]
    else:
        shared = Path(os.environ["FOLDLINE_SHARED"])
        sessions = args.session or list(SESSIONS)
        made = rivals(sessions, shared=shared, window=WINDOW, peers=args.peer)
        made += ours(sessions, shared)
        table(made)
        rows = [Row.of(row) for row in made if "result" in row]
    if args.keep:
        args.keep.write_text("".join(json.dumps(vars(row)) + "\n" for row in rows))
    found = points(rows, READS[0])
    print(f"\n{'':28}{'cost %':>8}{'names %':>9}{'over the window %':>19}")
    for one in sorted(found, key=lambda one: one.cost):
        print(f"{one.name:28}{one.cost:8.1f}{one.kept:9.2f}{one.over:19.1f}")
    if args.picture:
        import resvg_py  # noqa: PLC0415 - for pictures alone

        drawing = drawn(found, sessions=len({row.session for row in rows}), window=WINDOW)
        args.picture.with_suffix(".svg").write_text(drawing, encoding="utf-8")
        pixels = resvg_py.svg_to_bytes(svg_string=drawing, zoom=2)
        args.picture.with_suffix(".png").write_bytes(bytes(pixels))
    steady = next(one for one in found if one.name == "foldline steady")
    better = [
        one
        for one in found
        if not one.ours and not one.over and one.kept >= steady.kept and one.cost < steady.cost
    ]
    for one in better:
        print(f"MISSED {one.name} keeps {one.kept:.2f} % for {one.cost:.1f} %")
    return 1 if better else 0


if __name__ == "__main__":
    sys.exit(main())
