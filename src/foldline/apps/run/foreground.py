"""Run a program in the foreground, with the terminal as its own, and give back its exit code.

The terminal sends Ctrl-C, Ctrl-Z and changes of its size to the whole group of processes: the
program takes them, and the parent only waits. It stops when the program has stopped, so that the
shell has its prompt back, also at a full-screen program, which takes Ctrl-Z as a key.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import FrameType
from typing import Any

from foldline.errors import BadInput

_THE_AGENTS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
"""The terminal sends these to the program as well."""
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
"""Others send these to the parent alone."""
_SIGNALLED = 128


def run_in_foreground(
    command: Sequence[str], environment: Mapping[str, str], *, started: Callable[[int], None]
) -> int:
    """Run a program to its end; `started` is called with its process id.

    Returns its code, or 128 and the number of the signal that ended it, as shells do.
    """
    with ExitStack() as stack:
        for number in _THE_AGENTS:
            _handle(stack, number, _ignore)  # not SIG_IGN: the program would inherit that
        try:
            process = subprocess.Popen(command, env={**environment})  # noqa: S603 - the user's own
        except FileNotFoundError:
            raise BadInput(f"there is no program {command[0]!r} here; install it first") from None
        except OSError as fault:
            raise BadInput(f"{command[0]!r} cannot be started: {fault.strerror}") from fault
        for number in _PASSED_ON:
            _handle(stack, number, lambda got, _: os.kill(process.pid, got))
        started(process.pid)
        code = process.returncode = _wait_for_end(process.pid)
    return code if code >= 0 else _SIGNALLED - code


def _wait_for_end(pid: int) -> int:
    """Wait until a program has ended, and stop whenever it stops; returns its code."""
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        # Until the shell continues the job. SIGSTOP would also stop a parent without a shell that
        # could do so; what the program does then is no matter of its parent.
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)


def _handle(stack: ExitStack, number: int, handler: Callable[[int, FrameType | None], Any]) -> None:
    before = signal.signal(number, handler)
    stack.callback(signal.signal, number, before)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing."""
