"""The temporary folder of a run, and those that killed runs have left.

A run holds a lock on a file in its folder. The system drops the lock when the process ends, however
it ended, so a folder whose lock is free is left over.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX, _LOCK = "foldline-run-", "lock"


@contextmanager
def make_run_folder() -> Generator[Path]:
    """Make a folder for one run, and remove it after the run; those of killed runs first."""
    _remove_left_folders()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        folder = Path(name)
        with (folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder


def _remove_left_folders() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, in use, or gone meanwhile
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with (folder / _LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
