"""The recorded sessions that several benches read, by name.

Knows the files of the shared folder. Refuses to know what is measured on them.
"""

import gzip
from pathlib import Path

from foldline.imports import read
from foldline.lab.recorded import Recorded, imported, joined


def text(shared: Path, name: str) -> str:
    """A recorded file."""
    with gzip.open(shared / "data" / name, "rt") as file:
        return file.read()


def swe(shared: Path) -> Recorded:
    """The 22 SWE-agent runs as one session."""
    runs = read(text(shared, "swe_agent_demo_trajs.jsonl.gz"), "swe.jsonl")
    return joined("swe, 22 runs", [imported(one) for one in runs])


def chats(shared: Path) -> list[Recorded]:
    """Every tau-bench chat, in the file's order."""
    body = text(shared, "tau_bench_gpt4o_airline.json.gz")
    return [imported(one) for one in read(body, "tau.json")]


def pi(shared: Path, which: str) -> Recorded:
    """A real session of the `pi` agent: opus45 or sonnet45."""
    file = f"pi_session_{which}.jsonl"
    return imported(read(text(shared, f"{file}.gz"), file)[0])
