"""`foldline serve --workers N`: processes at one socket, which this one holds and watches.

Each serves by itself and shares only the store with the others. One that ends is started again;
requests wait at the socket meanwhile. SIGTERM and Ctrl-C let all of them drain, SIGHUP makes all
read their settings again. They end with this process, however it ended.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from threading import Event, Thread
from time import monotonic
from typing import Any

from foldline.apps.cli.exit_codes import DONE, NOTHING
from foldline.apps.cli.output import print_lines, print_remark

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable by which processes share one set of metrics."""
_LOOK = 0.1  # seconds between two looks at the processes
_STARTING = 60.0  # seconds for the first process to listen
_SOON = 10.0  # seconds: a process that lived shorter is started again later
_LONGEST = 30.0  # seconds until then
KILL = 12.0  # seconds behind the drain until a process is killed
_STOPS = (signal.SIGTERM, signal.SIGINT)


class WorkerProcess:
    """One process that serves, and when it was started."""

    def __init__(self, command: Sequence[str], listening: socket.socket, *, is_first: bool) -> None:
        number = listening.fileno()
        # It inherits that SIGHUP is ignored: that would end it while it starts, and it reads the
        # newest settings then anyway.
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.process = subprocess.Popen(  # noqa: S603 - our own program
            [*command, "--socket", str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if is_first else subprocess.DEVNULL,
            pass_fds=(number,),
            start_new_session=True,  # Ctrl-C is for us, who tell them
        )
        signal.signal(signal.SIGHUP, before)
        self.started = monotonic()

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.process.poll() is None:
            self.process.send_signal(number)

    def announce_end(self) -> None:
        """Say that a signal follows: it need not follow our end any more."""
        with suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.write(b"done\n")
                self.process.stdin.flush()

    def close(self) -> None:
        """Close our end of its pipe: it has ended."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


class Supervisor:
    """Keeps a number of processes serving, until a signal."""

    def __init__(
        self, command: Sequence[str], listening: socket.socket, *, count: int, drain: float
    ) -> None:
        self._command, self._listening = (*command,), listening
        self._count, self._drain = count, drain
        self._workers: list[WorkerProcess] = []
        self._woken, self._stops, self._reloads = Event(), 0, 0
        self._due: list[float] = []  # when processes that ended are started again
        self._deaths = 0

    def run(self) -> int:
        """Serve until a signal; return the exit code."""
        for number in (*_STOPS, signal.SIGHUP):
            signal.signal(number, self._take_signal)
        os.environ[METRICS_FOLDER] = tempfile.mkdtemp(prefix="foldline-metrics-")
        try:
            return self._supervise()
        finally:
            for one in self._workers:
                one.process.kill()
                one.process.wait()
                one.close()
            shutil.rmtree(os.environ.pop(METRICS_FOLDER), ignore_errors=True)

    def _supervise(self) -> int:
        code = self._start_first()
        if code is not None:
            return code
        for _ in range(self._count - 1):
            self._start()
        reloads = 0
        while not self._stops:
            if reloads < self._reloads:
                reloads = self._reloads
                self._tell_all(signal.SIGHUP)
            self._restart_ended()
            self._wait()
        return self._stop()

    def _start(self, *, is_first: bool = False) -> WorkerProcess:
        one = WorkerProcess(self._command, self._listening, is_first=is_first)
        self._workers.append(one)
        return one

    def _start_first(self) -> int | None:
        """Start the first process, which prepares the store; return its code if it cannot serve."""
        first, listens = self._start(is_first=True), Event()

        def show_output() -> None:
            for line in first.process.stdout or ():
                print_lines(line.decode("utf-8", "replace").rstrip("\n"))
                sys.stdout.flush()
                listens.set()

        Thread(target=show_output, daemon=True).start()
        end = monotonic() + _STARTING
        while not listens.wait(_LOOK):
            if (code := first.process.poll()) is not None:
                return code
            if self._stops or monotonic() > end:
                return self._stop()
        return None

    def _restart_ended(self) -> None:
        now = monotonic()
        for one in [one for one in self._workers if one.process.poll() is not None]:
            self._workers.remove(one)
            one.close()
            _forget_metrics(one.process.pid)
            self._deaths = self._deaths + 1 if now - one.started < _SOON else 0
            pause = min(0.5 * 2.0**self._deaths, _LONGEST) if self._deaths else 0.0
            print_remark(
                f"process {one.process.pid} ended with {one.process.returncode}; "
                f"another one is started in {pause:g} s"
            )
            self._due.append(now + pause)
        for due in [due for due in self._due if due <= now]:
            self._due.remove(due)
            self._start()

    def _stop(self) -> int:
        """Let all processes drain; kill what is left long after.

        Each closes the socket when it takes no more connections. We hold it, too: while one has it
        open, those who connect wait for an answer that nobody gives.
        """
        self._listening.close()
        signalled, end = 0, monotonic() + self._drain + KILL
        for one in self._workers:
            one.announce_end()
        while any(one.process.poll() is None for one in self._workers) and monotonic() < end:
            if signalled < max(self._stops, 1):  # a second signal stops all at once
                signalled = max(self._stops, 1)
                self._tell_all(signal.SIGTERM)
            self._wait()
        # One that was still starting is ended by the signal itself.
        codes = [one.process.poll() for one in self._workers]
        return DONE if all(code in (DONE, -signal.SIGTERM) for code in codes) else NOTHING

    def _tell_all(self, number: int) -> None:
        for one in self._workers:
            one.send_signal(number)

    def _wait(self) -> None:
        self._woken.wait(_LOOK)
        self._woken.clear()

    def _take_signal(self, number: int, _frame: object) -> None:
        if number == signal.SIGHUP:
            self._reloads += 1
        else:
            self._stops += 1
        self._woken.set()


def build_worker_command(arguments: Sequence[str]) -> list[str]:
    """Build the command line of one process: ours, without the number of processes."""
    command, given = [sys.executable, "-m", "foldline"], iter(arguments)
    for word in given:
        if word == "--workers":
            next(given, None)
        elif not word.startswith("--workers="):
            command.append(word)
    return command


def _forget_metrics(process: int) -> None:
    """Leave what a dead process had under way out of the metrics; what it counted stays."""
    with suppress(ImportError):
        multiprocess: Any = import_module("prometheus_client.multiprocess")  # of an extra
        multiprocess.mark_process_dead(process)
