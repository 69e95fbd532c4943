"""The tool `shell`: runs a command and returns what it printed. POSIX only.

A command leads a process group of its own; when it ends, takes too long or is stopped, everything
that still runs in that group is killed. Of long output the first and the last part are kept.
Variables that look like secrets are not in its environment.
"""

import asyncio
import os
import re
import signal
from codecs import getincrementaldecoder
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from foldline.agent.tool import Arguments, Intent, Result, Tool, report_output, said
from foldline.agent.tools.permission_rules import for_command
from foldline.agent.tools.read_files import Root, convert_arguments, make_object_schema
from foldline.errors import BadInput

USUAL, MOST = 120, 600
"""Seconds a command may take: by default, and at most."""
KEPT = 10_000_000
"""Bytes of output that are kept."""
_PIECE = 65_536
_GRACE = 0.3  # seconds to read what is still in the pipe
_PATIENCE = 0.4  # seconds between SIGTERM and SIGKILL
_SECRET = re.compile(
    r"FOLDLINE_.*|(?:.*_)?(?:API_?KEY|(?:ACCESS|SECRET|PRIVATE)_KEY|TOKEN|SECRET|PASSWORD|PASSWD"
    r"|CREDENTIALS?)S?",
    re.IGNORECASE,
)
_CALM = {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat"}


class _Shell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: str
    timeout: float | None = None


def build_shell_tool(root: Root, *, most: float = MOST, keep: Collection[str] = ()) -> Tool:
    """Build the tool `shell`: commands of at most `most` seconds; `keep` names allowed secrets."""

    def make_intent(arguments: Arguments) -> Intent:
        command = _check_arguments(arguments).command
        first, *more = command.strip().split("\n")
        lines = f" … ({len(more) + 1} lines)" if more else ""
        return Intent(f"run {first}{lines}", command, for_command(command))

    def list_paths(arguments: Arguments) -> Sequence[Path]:
        from foldline.core.ledger.shell_commands import list_touches  # noqa: PLC0415 - slow import

        places: list[Path] = [root.path]
        for touch in list_touches(_check_arguments(arguments).command):
            for path in filter(None, (touch.path, touch.to)):
                with suppress(BadInput):
                    places.append(root.resolve_path(path).real)
        return [*dict.fromkeys(places)]

    async def run_shell(arguments: Arguments) -> Result:
        given = _check_arguments(arguments)
        seconds = min(given.timeout or min(USUAL, most), most)
        return await run_shell_command(
            given.command, root.path, seconds, build_environment(os.environ, keep)
        )

    return Tool(
        name="shell",
        description="Run a command with bash in the working folder. No input; cd does not last.",
        schema=make_object_schema(
            "command",
            command="string",
            timeout={
                "type": "number",
                "description": f"seconds, default {min(USUAL, most)}, most {most}",
            },
        ),
        run=run_shell,
        intent=make_intent,
        touches=list_paths,
    )


def build_environment(given: Mapping[str, str], keep: Collection[str] = ()) -> dict[str, str]:
    """Copy variables without those that look like secrets, and turn pagers and colours off."""
    kept = {k: v for k, v in given.items() if k in keep or not _SECRET.fullmatch(k)}
    return kept | _CALM


def _check_arguments(arguments: Arguments) -> _Shell:
    given = convert_arguments(arguments, _Shell)
    if not given.command.strip() or "\0" in given.command:
        raise BadInput("there is no command; write one like: ls -la")
    if given.timeout is not None and not given.timeout > 0:
        raise BadInput("timeout is in seconds, and more than 0")
    return given


class _Output:
    """Printed bytes: all, or the first and the last `most // 2`."""

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._first, self._last = bytearray(), bytearray()
        self._dropped = 0

    def add_chunk(self, piece: bytes) -> None:
        room = self._half - len(self._first)
        if room > 0:
            self._first += piece[:room]
            piece = piece[room:]
        self._last += piece
        if len(self._last) > 2 * self._half:
            self._trim_tail()

    def render_text(self) -> str:
        self._trim_tail()
        if not self._dropped:
            return (self._first + self._last).decode("utf-8", "replace")
        first = self._first.decode("utf-8", "replace")
        last = self._last.decode("utf-8", "replace")
        return f"{first}\n[{self._dropped:,} bytes of output are not kept]\n{last}"

    def _trim_tail(self) -> None:
        if (over := len(self._last) - self._half) > 0:
            del self._last[:over]
            self._dropped += over


async def run_shell_command(
    command: str, cwd: Path, seconds: float, variables: Mapping[str, str]
) -> Result:
    """Run a command for at most `seconds`; what it printed is the result, also when stopped."""
    from shutil import which  # noqa: PLC0415 - imports every archive format

    # Our own pipe: asyncio would wait for its pipe as long as any child has it open.
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
    printed = asyncio.ensure_future(_read_output(stream, output))  # in this call's context
    killed = ""
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
            await asyncio.wait([printed], timeout=_GRACE)
    except TimeoutError:
        killed = f"killed: it did not end within {seconds:g} s"
    except asyncio.CancelledError:
        # Still a result: what the command printed until then has happened, and is recorded.
        killed = "killed: stopped by the user"
    try:
        left = await _stop_group(process.pid)
        await asyncio.wait([printed], timeout=_GRACE)
        with suppress(TimeoutError):  # reaps it before the event loop may close
            await asyncio.wait_for(process.wait(), _PATIENCE)
    finally:
        printed.cancel()
        transport.close()
    status = process.returncode
    lines = [] if not left or killed else ["[what it left running was ended]"]
    lines.append(f"[{killed}]" if killed else f"[exit status {status}]")
    text = output.render_text()
    apart = "" if not text or text.endswith("\n") else "\n"
    return said(text + apart + "\n".join(lines), ok=not killed and status == 0)


async def _read_output(stream: asyncio.StreamReader, output: _Output) -> None:
    decoder = getincrementaldecoder("utf-8")("replace")
    while piece := await stream.read(_PIECE):
        output.add_chunk(piece)
        report_output(decoder.decode(piece))


async def _stop_group(group: int) -> bool:
    """Kill what is left of a group, within a second; returns whether anything was."""
    if not _send_signal(group, signal.SIGTERM):
        return False
    try:
        for _ in range(round(_PATIENCE / 0.02)):
            await asyncio.sleep(0.02)
            if not _send_signal(group, 0):
                return True
    finally:
        _send_signal(group, signal.SIGKILL)
    await asyncio.sleep(0.02)
    return True


def _send_signal(group: int, what: int) -> bool:
    """Signal a process group; returns whether any process received it."""
    try:
        os.killpg(group, what)
    except (ProcessLookupError, PermissionError):  # no process, or on macOS only zombies
        return False
    return True
