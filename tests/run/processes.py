"""The processes of a run: which there are, and which is its gateway."""

import time
from pathlib import Path


def list_processes(home):
    """The processes with this home, by their environment: the run, its gateway, its agent."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={home}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                words = (folder / "cmdline").read_bytes().decode().split("\0")
                found[int(folder.name)] = words
        except OSError:
            continue
    return found


def find_gateway(run_pid):
    """The gateway of a run: its memory is its own, so it is known by its parent."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes().decode().split("\0")
        except (OSError, IndexError, ValueError):
            continue
        if parent == run_pid and "--socket" in words:
            return int(folder.name), words
    return None


def wait_until(holds, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := holds():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not so after {seconds} s")


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
