"""Peers over recorded sessions: one JSON line for each session, peer and price of a cached read.

    just peers
    PYTHONPATH=benches:src .rig/peers/bin/python -m rivals --shared ../shared --window 60000 swe tau:0 pi:opus45

Sessions are those of `sessions.by_name`. A peer that is not installed or that fails is
named with the reason, and the others go on. Runs in the environment of `just peers`; the first line says who
is there and with which settings.
"""

import argparse
import importlib
import importlib.metadata
import logging
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import msgspec
from sessions import by_name

from foldline.core.prices import Prices
from foldline.lab.bill.cache import CacheRules
from foldline.lab.comparison import evaluate_replay
from foldline.lab.kept_names import measure_retention
from foldline.lab.recorded import Recorded
from foldline.lab.replay import replay_session
from rivals import READS
from rivals.base import Everything, Peer

FAMILIES = {
    "langchain": "of_langchain",
    "agent-fw": "of_agent_framework",
    "strands": "of_strands",
    "openhands": "of_openhands",
    "adk": "of_adk",
}
PRICES = {share: Prices(1.0, share, 1.25, 5.0) for share in READS}


def peers(wanted: list[str]) -> tuple[list[type[Peer]], dict[str, str]]:
    """Those that are here and asked for, and a word on each: version and settings, or what is missing."""
    found: list[type[Peer]] = [Everything]
    notes: dict[str, str] = {}
    for family, module in FAMILIES.items():
        if wanted and not any(name.startswith(family) for name in wanted):
            continue  # importing them all takes ten seconds
        try:
            made = importlib.import_module(f"rivals.{module}").PEERS
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are measured
            notes[family] = f"not here: {type(error).__name__}: {str(error)[:200]}"
            continue
        chosen = [one for one in made if not wanted or one.label.startswith(tuple(wanted))]
        notes |= {one.label: f"{version(one)}; {one.note}" for one in chosen}
        found += chosen
    return found, notes


def version(peer: type[Peer]) -> str:
    """The package and its version; nothing for sending everything."""
    return f"{peer.package} {importlib.metadata.version(peer.package)}" if peer.package else ""


def lines(session: Recorded, maker: type[Peer], window: int) -> Iterator[dict[str, object]]:
    """A session under a peer: replayed once, billed at every price."""
    start = time.perf_counter()
    peer = maker(session, window)
    made = replay_session(session, peer)
    seconds = time.perf_counter() - start
    kept = measure_retention(made)
    for share, prices in PRICES.items():
        yield {
            "session": session.name,
            "peer": peer.name,
            "version": version(maker),
            "window": window,
            "read": share,
            "over": peer.over,
            "cuts": peer.cuts,
            "summaries": peer.scribe.asked,
            "seconds": round(seconds, 2),
            "result": evaluate_replay(made, kept, CacheRules(prices)),
        }


def main() -> None:
    """Say who is here, then a line for each result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sessions", nargs="+")
    parser.add_argument("--shared", type=Path, default=os.environ.get("FOLDLINE_SHARED"))
    parser.add_argument("--window", type=int, default=200_000)
    parser.add_argument(
        "--peer", action="append", default=[], help="only those whose name begins so; several times"
    )
    args = parser.parse_args()
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a library prints is no answer
    logging.disable(logging.CRITICAL)
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its import asks the network
    os.environ["OPENHANDS_SUPPRESS_BANNER"] = "1"
    os.environ["OTEL_SDK_DISABLED"] = "true"
    found, notes = peers(args.peer)
    answers.write(msgspec.json.encode({"python": sys.version.split()[0], "peers": notes}) + b"\n")
    for name in args.sessions:
        session = by_name(name, args.shared)
        for maker in found:
            try:
                for line in lines(session, maker, args.window):
                    answers.write(msgspec.json.encode(line) + b"\n")
            except Exception as error:  # noqa: BLE001 - a peer that fails is a result too
                traceback.print_exc()
                fault = f"{type(error).__name__}: {str(error)[:300]}"
                failed = {"session": name, "peer": maker.label, "window": args.window}
                answers.write(msgspec.json.encode({**failed, "failed": fault}) + b"\n")


if __name__ == "__main__":
    main()
