"""The shell: `shell` runs a command and gives back what it printed.

Knows processes: a command is the head of a group of its own, and when it ends, takes too long or is
stopped, whatever of that group still runs is ended too. Its output is held up to a bound, the first
and the last of it. Refuses to hand on our secrets: variables that look like keys are not in its
environment. POSIX only.
"""

import asyncio
import os
import re
import signal
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from foldline.agent.tool import Arguments, Intent, Result, Tool, said
from foldline.agent.tools.arguments import schema, taken
from foldline.agent.tools.places import Root
from foldline.agent.tools.rules import for_command
from foldline.errors import BadInput

USUAL, MOST = 120, 600
"""Seconds that a command may take where it does not say, and where it does."""
KEPT = 10_000_000
"""Bytes of output that are kept."""
_PIECE = 65_536
_GRACE = 0.3  # seconds for what is still in the pipe
_PATIENCE = 0.4  # seconds between asking a group to end and ending it
_SECRET = re.compile(
    r"FOLDLINE_.*|(?:.*_)?(?:API_?KEY|(?:ACCESS|SECRET|PRIVATE)_KEY|TOKEN|SECRET|PASSWORD|PASSWD"
    r"|CREDENTIALS?)S?",
    re.IGNORECASE,
)
_CALM = {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat"}


class _Shell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: str
    timeout: float | None = None


def shell(root: Root, *, most: float = MOST, keep: Collection[str] = ()) -> Tool:
    """`shell`: a command, for at most so many seconds; `keep` names secrets that it may have."""

    def intent(arguments: Arguments) -> Intent:
        command = _given(arguments).command
        first, *more = command.strip().split("\n")
        lines = f" … ({len(more) + 1} lines)" if more else ""
        return Intent(f"run {first}{lines}", command, for_command(command))

    def touches(arguments: Arguments) -> Sequence[Path]:
        from foldline.core.ledger import shell as ledger  # noqa: PLC0415 - it takes a while

        found = ledger.touches(_given(arguments).command)
        paths = [path for one in found for path in (one.path, one.to) if path]
        places: list[Path] = [root.path]
        for path in paths:
            with suppress(BadInput):
                places.append(root.place(path).real)
        return [*dict.fromkeys(places)]

    async def run(arguments: Arguments) -> Result:
        given = _given(arguments)
        seconds = min(given.timeout or min(USUAL, most), most)
        return await _run(given.command, root.path, seconds, environment(os.environ, keep))

    return Tool(
        name="shell",
        description="Run a command with bash in the working folder. No input; cd does not last.",
        schema=schema(
            "command",
            command="string",
            timeout={
                "type": "number",
                "description": f"seconds, default {min(USUAL, most)}, most {most}",
            },
        ),
        run=run,
        intent=intent,
        touches=touches,
    )


def environment(given: Mapping[str, str], keep: Collection[str] = ()) -> dict[str, str]:
    """The variables for a command: those given without what looks like a secret; no pagers."""
    kept = {k: v for k, v in given.items() if k in keep or not _SECRET.fullmatch(k)}
    return kept | _CALM


def _given(arguments: Arguments) -> _Shell:
    given = taken(arguments, _Shell)
    if not given.command.strip() or "\0" in given.command:
        raise BadInput("there is no command; write one like: ls -la")
    if given.timeout is not None and not given.timeout > 0:
        raise BadInput("timeout is in seconds, and more than 0")
    return given


class _Output:
    """What was printed: all of it, or the first and the last half of what is kept."""

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._first, self._last = bytearray(), bytearray()
        self._dropped = 0

    def take(self, piece: bytes) -> None:
        room = self._half - len(self._first)
        if room > 0:
            self._first += piece[:room]
            piece = piece[room:]
        self._last += piece
        if len(self._last) > 2 * self._half:
            self._trim()

    def text(self) -> str:
        self._trim()
        first = self._first.decode("utf-8", "replace")
        last = self._last.decode("utf-8", "replace")
        if not self._dropped:
            return (self._first + self._last).decode("utf-8", "replace")
        return f"{first}\n[{self._dropped:,} bytes of output are not kept]\n{last}"

    def _trim(self) -> None:
        if (over := len(self._last) - self._half) > 0:
            del self._last[:over]
            self._dropped += over


async def _run(command: str, cwd: Path, seconds: float, variables: dict[str, str]) -> Result:
    from shutil import which  # noqa: PLC0415 - it brings all archives along

    # A pipe of our own: one of asyncio's is waited for as long as anybody has it open.
    read, write = os.pipe()
    stream = asyncio.StreamReader(limit=_PIECE)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(read, "rb", buffering=0)
    )
    try:
        process = await asyncio.create_subprocess_exec(
            *(which("bash") or "/bin/sh", "-c", command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=write,
            stderr=write,
            cwd=cwd,
            env=variables,
            start_new_session=True,
        )
    except BaseException:
        transport.close()
        raise
    finally:
        os.close(write)
    output = _Output(KEPT)
    printed = asyncio.ensure_future(_drain(stream, output))
    killed = ""
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
            await asyncio.wait([printed], timeout=_GRACE)
    except TimeoutError:
        killed = f"killed: it did not end within {seconds:g} s"
    except asyncio.CancelledError:
        # A result all the same: what it printed until then has happened, and is told.
        killed = "killed: stopped by the user"
    try:
        left = await _end(process.pid)
        await asyncio.wait([printed], timeout=_GRACE)
        with suppress(TimeoutError):  # it is dead; the loop, which may end next, is to know it
            await asyncio.wait_for(process.wait(), _PATIENCE)
    finally:
        printed.cancel()
        transport.close()
    status = process.returncode
    lines = [] if not left or killed else ["[what it left running was ended]"]
    lines.append(f"[{killed}]" if killed else f"[exit status {status}]")
    text = output.text()
    apart = "" if not text or text.endswith("\n") else "\n"
    return said(text + apart + "\n".join(lines), ok=not killed and status == 0)


async def _drain(stream: asyncio.StreamReader, output: _Output) -> None:
    while piece := await stream.read(_PIECE):
        output.take(piece)


async def _end(group: int) -> bool:
    """End what is left of a group, within a second; whether anything was."""
    if not _sent(group, signal.SIGTERM):
        return False
    try:
        for _ in range(round(_PATIENCE / 0.02)):
            await asyncio.sleep(0.02)
            if not _sent(group, 0):
                return True
    finally:
        _sent(group, signal.SIGKILL)
    await asyncio.sleep(0.02)
    return True


def _sent(group: int, what: int) -> bool:
    """Whether a signal found anybody."""
    try:
        os.killpg(group, what)
    except (ProcessLookupError, PermissionError):  # nobody, or on macOS only the dead
        return False
    return True
