"""`foldline serve` as a process, for tests: on a free port, ended by SIGTERM."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

PROGRAM = Path(sys.executable).with_name("foldline")


class Begun(NamedTuple):
    """Where it listens, and what it said until then."""

    port: int
    shown: str

    @property
    def token(self) -> str:
        """What its sessions ask for, where it has no keys."""
        return re.search(r"^token +(\S+)", self.shown, re.MULTILINE)[1]


@contextmanager
def served(options: list, folder: Path, **env: str) -> Iterator[Begun]:
    """Serve from a folder; behind the block it is told to end, and ends well."""
    server = subprocess.Popen(
        [PROGRAM, "serve", *options],
        cwd=folder, env={**os.environ, **env},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        shown = ""
        while "pages" not in shown:
            line = server.stdout.readline()
            assert line, f"it did not start: {shown}"
            shown += line
        yield Begun(int(re.search(r":(\d+)/v1", shown)[1]), shown)
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
