"""A gateway's process for one run: on a free port of loopback, restarted when it dies.

The parent holds the listening socket, so requests wait while the gateway starts anew. The gateway
ends when the pipe to it closes, however the parent ended, and then ends the agent too.

A run holds a lock on a file in its temporary folder. The system drops the lock when the process
ends, however it ended, so a folder whose lock is free is left over.
"""

import fcntl
import http.client
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from foldline.errors import BadInput

_HOST = "127.0.0.1"
_BACKLOG = 256
_START_SECONDS = 30.0
_END_SECONDS = 15.0
_LOOK_SECONDS = 0.05
_ANSWER_SECONDS = 1.0  # a request waits at the socket, also for a gateway that dies before it is up
_MOST_DEATHS = 3  # soon after a start: then requests are only relayed
_SOON = 20.0  # seconds
RULE = "rule      "  # begins the line that says from where on it folds
_SHOWN = 12  # lines of its log in an error
_NAMED_SECONDS = 10.0  # for a gateway elsewhere to answer at all
_SAID = "foldline: "  # how a program of ours begins the line that says why it ends
_UNPLANNED = "a request was not planned: "  # in its log
_AGENT_SECONDS = 10.0  # for an agent without a parent to end by itself


class PrivateGateway:
    """A gateway that lives as long as a run."""

    def __init__(
        self, command: Sequence[str], log: Path, *, environment: Mapping[str, str]
    ) -> None:
        """`command` serves the socket whose number is appended; `log` gets what it prints."""
        self._command, self._log, self._environment = (*command,), log, environment
        self._listening = socket.create_server((_HOST, 0), backlog=_BACKLOG)
        self._process: subprocess.Popen[bytes] | None = None
        self._agent: int | None = None
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._started = 0.0
        self._deaths = 0
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self.restarts = 0
        self.is_plain = False
        """Whether it only relays, because it could not start otherwise or died too often."""
        self.fault = ""
        """The last line of its log when it began to relay only."""

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return f"http://{_HOST}:{self._listening.getsockname()[1]}"

    @property
    def pid(self) -> int | None:
        """The process that serves now."""
        return self._process.pid if self._process else None

    def add_arguments(self, words: Iterable[str]) -> None:
        """Add to its command line, before it is started."""
        self._command = (*self._command, *words)

    def start(self) -> None:
        """Start it, and wait until it answers; if it cannot fold, it relays."""
        if not self._try_start():
            self._begin_relaying()
            if not self._try_start():
                self.stop()
                last = self._read_last_line()
                if last.startswith(_SAID):  # it says itself what to mend, such as a setting
                    raise BadInput(last.removeprefix(_SAID))
                raise BadInput(f"the gateway did not start:\n{self.read_log_end()}")
        self._watcher.start()

    def _try_start(self) -> bool:
        """Start it, and anew if something kills it meanwhile; return whether it answers."""
        for _ in range(_MOST_DEATHS):
            process = self._spawn()
            if self._wait_until_up(process):
                return True
            if process.stdin is not None:
                _close_quietly(process.stdin)
            if process.poll() is None:
                process.kill()
                process.wait()
                self.fault = f"it did not answer within {_START_SECONDS:.0f} seconds"
                return False
            if process.returncode >= 0:
                return False
            self.fault = f"its process was killed (signal {-process.returncode})"
            self.restarts += 1
        return False

    def _wait_until_up(self, process: subprocess.Popen[bytes]) -> bool:
        end = time.monotonic() + _START_SECONDS
        while not self._answers():
            if process.poll() is not None or time.monotonic() > end:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _begin_relaying(self) -> None:
        self.is_plain = True
        self.fault = self._read_last_line().removeprefix(_SAID) or self.fault

    def protect(self, agent: int) -> None:
        """Name the agent's process, which ends with the gateway if the parent is killed."""
        with self._lock:
            self._agent = agent
            self._tell(f"agent {agent}")

    def stop(self) -> None:
        """End it; answers under way may end first."""
        with self._lock:
            if self._ending.is_set():
                return
            self._ending.set()
            self._tell("done")
            process = self._process
        if process is not None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdin is not None:
                _close_quietly(process.stdin)
        self._listening.close()

    def _spawn(self) -> subprocess.Popen[bytes]:
        number = self._listening.fileno()
        plain = ("--plain",) if self.is_plain else ()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [*self._command, *plain, "--socket", str(number)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=self._environment,
                pass_fds=(number,),
                start_new_session=True,  # Ctrl-C is for the agent
            )
        self._started = time.monotonic()
        if self._agent is not None:
            self._tell(f"agent {self._agent}")
        return self._process

    def _watch(self) -> None:
        """Start it anew whenever it ends by itself."""
        while True:
            process = self._process
            if process is None:
                return
            process.wait()
            with self._lock:
                if self._ending.is_set():
                    return
                if process.stdin is not None:
                    _close_quietly(process.stdin)
                if process.returncode < 0:
                    self.fault = f"its process was killed (signal {-process.returncode})"
                soon = time.monotonic() - self._started < _SOON
                self._deaths = self._deaths + 1 if soon else 1
                if self._deaths > _MOST_DEATHS:
                    if self.is_plain:
                        return  # nothing helps: the agent is refused, and says so
                    self._begin_relaying()
                    self._deaths = 1
                self.restarts += 1
                self._spawn()

    def _tell(self, line: str) -> None:
        pipe = self._process.stdin if self._process else None
        if pipe is not None:
            with suppress(
                OSError, ValueError
            ):  # if it has just died, the next process is asked again
                pipe.write(f"{line}\n".encode())
                pipe.flush()

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(
            _HOST, self._listening.getsockname()[1], timeout=_ANSWER_SECONDS
        )
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False
        finally:
            connection.close()

    def read_log_end(self) -> str:
        """Return the last lines of what it printed."""
        return "\n".join(self._read_lines()[-_SHOWN:])

    def find_rule(self) -> str:
        """Find from where on it folds, in what it has printed; "" if it does not say."""
        lines = self._read_lines()
        return next((line.removeprefix(RULE) for line in lines if line.startswith(RULE)), "")

    def find_unplanned(self) -> str:
        """Find why it has only relayed a request: the newest reason in its log; "" if none."""
        found = (line.partition(_UNPLANNED)[2] for line in reversed(self._read_lines()))
        return next(filter(None, found), "")

    def _read_last_line(self) -> str:
        return next(reversed(self._read_lines()), "")

    def _read_lines(self) -> list[str]:
        if not self._log.exists():
            return []
        return self._log.read_text(encoding="utf-8", errors="replace").splitlines()


def check_gateway(url: str) -> None:
    """Raise `BadInput` unless a server answers at a gateway's address, whatever it answers."""
    named = urlsplit(url)
    if named.scheme not in ("http", "https") or not named.hostname:
        raise BadInput(f"--gateway {url!r}: give its address, such as http://127.0.0.1:8080")
    is_near = named.hostname in ("localhost", "::1") or named.hostname.startswith("127.")
    # What is on this machine is asked directly, whatever proxy the environment names.
    handlers = [urllib.request.ProxyHandler({})] if is_near else []
    opener = urllib.request.build_opener(*handlers)
    try:
        opener.open(f"{url.rstrip('/').removesuffix('/v1')}/healthz", timeout=_NAMED_SECONDS)
    except urllib.error.HTTPError:
        return  # a server answers
    except (OSError, http.client.HTTPException, ValueError) as fault:
        reason = getattr(fault, "reason", None) or fault
        raise BadInput(f"--gateway {url}: nobody answers there ({reason})") from fault


def _close_quietly(pipe: IO[bytes]) -> None:
    with suppress(OSError):
        pipe.close()


def follow_parent(lines: IO[bytes]) -> None:
    """End this process when the pipe from its parent closes; in a thread.

    If the parent was killed, no process waits for its agent: it is asked to end, and ended
    if it does not.
    """

    def watch() -> None:
        agent = 0
        for line in lines:
            word, _, number = line.decode().strip().partition(" ")
            if word == "done":
                return  # a signal follows
            agent = int(number) if number.isdecimal() else agent
        if agent:
            _end_process(agent)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _end_process(pid: int) -> None:
    """Ask a process to end, wait for a while, then end it."""
    end = time.monotonic() + _AGENT_SECONDS
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)  # one that is stopped takes no signal
        while time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
            os.kill(pid, 0)
        os.kill(pid, signal.SIGKILL)


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
