"""A terminal that a program looks at as a person would: tmux, on a socket of its own."""

import os
import subprocess
import time
from pathlib import Path


class Tmux:
    """One window; ended by its own socket, whatever became of it."""

    def __init__(self, folder: Path, *, columns: int = 100, rows: int = 30, env=None) -> None:
        self._socket = folder / "tmux"
        given = {"TERM": "screen-256color", "PS1": "$ ", "HISTFILE": "/dev/null", **(env or {})}
        shell = [f"{name}={value}" for name, value in given.items()]
        self._run(
            "-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows),
            "-c", str(folder), "env", *shell, "bash", "--norc", "--noprofile",
        )  # fmt: skip
        self._run("set-option", "-g", "history-limit", "50000")

    def _run(self, *command: str) -> str:
        env = {**os.environ, "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), "-u", *command],  # noqa: S607
            check=True, capture_output=True, text=True, env=env,
        )  # fmt: skip
        return done.stdout

    def types(self, text: str, *keys: str) -> None:
        """Type some words, then keys by their names."""
        if text:
            self._run("send-keys", "-l", text)
        if keys:
            self._run("send-keys", *keys)

    def resize(self, columns: int, rows: int) -> None:
        """Give the window another size."""
        self._run("resize-window", "-x", str(columns), "-y", str(rows))

    def screen(self, *, past: bool = False, colours: bool = False) -> str:
        """What is to be seen now, or all that was written."""
        more = [*(["-S", "-"] if past else []), *(["-e"] if colours else [])]
        return self._run("capture-pane", "-p", "-J", *more)

    def sees(self, words: str, *, count: int = 1, seconds: float = 60.0) -> str:
        """Wait until some words were written so often."""
        until = time.monotonic() + seconds
        while (text := self.screen(past=True)).count(words) < count:
            if time.monotonic() > until:
                raise AssertionError(f"{words!r} was not seen {count} times:\n{text}")
            time.sleep(0.1)
        return text

    def close(self) -> None:
        """End it."""
        subprocess.run(
            ["tmux", "-S", str(self._socket), "kill-server"],  # noqa: S607
            check=False, capture_output=True,
        )  # fmt: skip
