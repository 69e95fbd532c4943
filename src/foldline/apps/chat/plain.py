"""The input line without a capable terminal: lines in, lines out.

Ctrl-C cancels the work under way, and leaves if there is none.
"""

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, nullcontext

from foldline.apps.chat.safe import clean_text
from foldline.apps.cli.output import measure_terminal

_MARK = "> "
_ROWS = 24
_READ = 65_536


class Plain:
    """A person who writes lines, or a file of them."""

    def __init__(self, *, prompt: bool = True) -> None:
        self.bar: Callable[[int], list[tuple[str, str]]] = lambda _: []
        self.words: Callable[[str], Iterable[tuple[str, str]]] | None = None
        self.stop: Callable[[], object] | None = None
        self.expand: Callable[[], object] | None = None
        self.expands = "/expand"
        self.stops_at_question = False  # Ctrl-C stops the work in any case
        self._prompt = prompt
        self._lines: deque[str] = deque()
        self._kept: deque[str] = deque()  # answered no question, and is said after it
        self._rest = b""
        self._ended = False
        self._more = asyncio.Event()
        self._attached = False

    async def said(self) -> str | None:
        """Return the next line; a backslash at its end joins the following one."""
        if self._kept:
            return self._kept.popleft()
        found: list[str] = []
        while True:
            line = await self._read_line(_MARK if not found else ". ")
            if line is None:
                return "\n".join(found) or None
            if line.endswith("\\"):
                found.append(line[:-1])
                continue
            found.append(line)
            if "\n".join(found).strip():
                return "\n".join(found)
            found.clear()

    async def ask(self, question: str, *, secret: bool = False) -> str | None:
        """Return the next line, as the answer to a question; a `secret` one is not echoed."""
        with _no_echo() if secret else nullcontext():
            return await self._read_line(question)

    def put_back(self, text: str) -> None:
        """Say it after the question: there is no line to put it on."""
        self._kept.append(text)

    def above(self, text: str) -> None:
        """Write text to stdout."""
        if text:
            sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
            sys.stdout.flush()

    def live(self, text: "str | Callable[[], str]") -> None:
        """Do nothing: unfinished text is not shown."""

    def refresh(self) -> None:
        """Do nothing: nothing is redrawn."""

    def renew_completions(self) -> None:
        """Do nothing: nothing is completed."""

    def leave(self) -> None:
        """End as if the input had."""
        self._ended = True
        self._lines.clear()
        self._kept.clear()
        self._more.set()

    @property
    def columns(self) -> int:
        """The terminal's width."""
        return measure_terminal()

    @property
    def rows(self) -> int:
        """The height that is assumed."""
        return _ROWS

    def close(self) -> None:
        """Stop reading."""
        if self._attached:
            loop = asyncio.get_running_loop()
            loop.remove_reader(sys.stdin.fileno())
            loop.remove_signal_handler(signal.SIGINT)
            self._attached = False

    async def _read_line(self, mark: str) -> str | None:
        self._connect_input()
        if self._prompt:
            sys.stdout.write(clean_text(mark))
            sys.stdout.flush()
        while not self._lines:
            if self._ended:
                return None
            self._more.clear()
            await self._more.wait()
        return self._lines.popleft()

    def _connect_input(self) -> None:
        if not self._attached:
            loop = asyncio.get_running_loop()
            loop.add_reader(sys.stdin.fileno(), self._read_input)
            loop.add_signal_handler(signal.SIGINT, self._handle_interrupt)
            self._attached = True

    def _read_input(self) -> None:
        got = os.read(sys.stdin.fileno(), _READ)
        if not got:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._ended = True
            if self._rest:
                self._lines.append(self._rest.decode(errors="replace"))
        *lines, self._rest = (self._rest + got).split(b"\n")
        self._lines += (line.decode(errors="replace").rstrip("\r") for line in lines)
        self._more.set()

    def _handle_interrupt(self) -> None:
        if self.stop is not None:
            self.stop()
        else:
            self.leave()


@contextmanager
def _no_echo() -> Generator[None]:
    """Turn the terminal's echo off, if it is one."""
    import termios  # noqa: PLC0415 - not on every system

    stdin = sys.stdin.fileno()
    if not os.isatty(stdin):
        yield
        return
    before, now = termios.tcgetattr(stdin), termios.tcgetattr(stdin)
    now[3] &= ~termios.ECHO
    termios.tcsetattr(stdin, termios.TCSADRAIN, now)
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
