"""The scripted provider of `upstream.py`, as a process on a free port, for tests of wrap and gateway."""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

UPSTREAM = Path(__file__).with_name("upstream.py")


class Scripted:
    """A provider that runs: its address, and what reached it."""

    def __init__(self, url: str, log: Path) -> None:
        self.url, self.log = url, log

    def list_served(self) -> list[dict[str, Any]]:
        """Each request with a conversation: its path, its headers, and the fields of `Served`."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if line.get("raw")]

    def list_sent(self) -> list[str]:
        """The bodies of all requests that it served, as they came."""
        return [line["raw"] for line in self.list_served()]

    def expire_cache(self) -> None:
        """Make it forget what it has cached, as after a long pause."""
        asked = urllib.request.Request(f"{self.url}/expire", method="POST")  # noqa: S310 - our own
        urllib.request.urlopen(asked).close()  # noqa: S310

    def list_usage(self) -> list[dict[str, Any]]:
        """What each answer said that it took."""
        return [line["usage"] for line in self.list_served() if line.get("usage")]


@contextmanager
def start_provider(  # noqa: PLR0913 - one for each thing that providers do differently
    folder: Path,
    *,
    window: int = 0,
    rounds: int = 4,
    reports_cache: bool = False,
    recalls: bool = False,
    pace: float = 0.0,
    more: tuple[Any, ...] = (),
) -> Iterator[Scripted]:
    """Start a provider with a log in a folder, and `more` of its options; it ends with the block."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    log = folder / "served.jsonl"
    log.touch()
    options = ["--port", port, "--window", window, "--rounds", rounds, "--log", log]
    options += ["--pace", pace, *more]
    options += ["--reports-cache"] if reports_cache else []
    options += ["--recalls"] if recalls else []
    process = subprocess.Popen([sys.executable, UPSTREAM, *map(str, options)])
    try:
        for _ in range(400):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield Scripted(f"http://127.0.0.1:{port}", log)
    finally:
        process.kill()
        process.wait()
