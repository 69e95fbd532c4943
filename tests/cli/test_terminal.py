"""A person's first screen, in a real terminal of 80 by 24: nothing wraps, and colours are there."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("foldline")


@pytest.fixture
def screen(tmp_path):
    """A terminal of its own; gives a function that types a line and reads what stands there."""
    if shutil.which("tmux") is None:
        print("no tmux on this machine: the first screen was not looked at in a terminal")
        pytest.skip("tmux is not installed")
    socket = f"foldline-{os.getpid()}"

    def tmux(*arguments: str) -> str:
        command = ["tmux", "-L", socket, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    shell = f"env HOME={tmp_path} PS1='> ' FOLDLINE_STORE={tmp_path}/a.db bash --norc --noprofile"
    tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", shell)
    tmux("set-option", "-g", "history-limit", "5000")

    def types(line: str) -> tuple[list[str], list[str], str]:
        """The lines as they stand, the same with wrapped ones joined, and with their colours."""
        tmux("clear-history")
        tmux("send-keys", f"clear; {line}; echo done-$?", "Enter")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            time.sleep(0.1)
            stands = tmux("capture-pane", "-p", "-S", "-2000")
            if any(one.startswith("done-") for one in stands.split("\n")):
                break
        joined = tmux("capture-pane", "-p", "-J", "-S", "-2000")
        return stands.split("\n"), joined.split("\n"), tmux("capture-pane", "-p", "-e")

    yield types
    subprocess.run(["tmux", "-L", socket, "kill-server"], check=False, capture_output=True)  # noqa: S607


@pytest.mark.real
def test_the_first_screen(screen, recordings):
    for line in (f"import {recordings}", "sessions", "context alright", "history alright 3"):
        stands, joined, coloured = screen(f"{PROGRAM} {line}")
        assert "done-0" in stands, stands
        body = [one.rstrip() for one in joined if one.strip() and str(PROGRAM) not in one]
        wide = [one for one in body if len(one) > 80]
        assert wide == [], "a line that the terminal had to wrap"
        assert not any("Traceback" in one for one in body)
        if line.startswith("context"):
            assert "\x1b[38;5;111m" in coloured, "results in their colour"
