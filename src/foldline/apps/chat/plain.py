"""The line where the terminal can do nothing, or there is none: words in, words out.

Knows lines and nothing of keys, colours and places. Ctrl-C stops what is under way, and leaves
where nothing is.
"""

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable

from foldline.apps.chat.safe import safe
from foldline.apps.cli.output import columns as wide

_MARK = "> "
_ROWS = 24
_READ = 65_536


class Plain:
    """A person who writes lines, or a file of them."""

    def __init__(self, *, prompt: bool = True) -> None:
        self.bar: Callable[[int], list[tuple[str, str]]] = lambda _: []
        self.words: Callable[[str], Iterable[tuple[str, str]]] | None = None
        self.stop: Callable[[], object] | None = None
        self._prompt = prompt
        self._lines: deque[str] = deque()
        self._rest = b""
        self._ended = False
        self._more = asyncio.Event()
        self._attached = False

    async def said(self) -> str | None:
        """The next line; one that ends in a backslash goes on in the next."""
        found: list[str] = []
        while True:
            line = await self._line(_MARK if not found else ". ")
            if line is None:
                return "\n".join(found) or None
            if line.endswith("\\"):
                found.append(line[:-1])
                continue
            found.append(line)
            if "\n".join(found).strip():
                return "\n".join(found)
            found.clear()

    async def ask(self, question: str) -> str | None:
        """The next line, in answer to a question."""
        return await self._line(question)

    def above(self, text: str) -> None:
        """Write."""
        if text:
            sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
            sys.stdout.flush()

    def live(self, text: "str | Callable[[], str]") -> None:
        """What is not finished is not shown."""

    def refresh(self) -> None:
        """Nothing is drawn."""

    def leave(self) -> None:
        """End as if the input had."""
        self._ended = True
        self._lines.clear()
        self._more.set()

    @property
    def columns(self) -> int:
        """How wide it is."""
        return wide()

    @property
    def rows(self) -> int:
        """How high it is."""
        return _ROWS

    def close(self) -> None:
        """Let go of the input."""
        if self._attached:
            loop = asyncio.get_running_loop()
            loop.remove_reader(sys.stdin.fileno())
            loop.remove_signal_handler(signal.SIGINT)
            self._attached = False

    async def _line(self, mark: str) -> str | None:
        self._attach()
        if self._prompt:
            sys.stdout.write(safe(mark))
            sys.stdout.flush()
        while not self._lines:
            if self._ended:
                return None
            self._more.clear()
            await self._more.wait()
        return self._lines.popleft()

    def _attach(self) -> None:
        if not self._attached:
            loop = asyncio.get_running_loop()
            loop.add_reader(sys.stdin.fileno(), self._read)
            loop.add_signal_handler(signal.SIGINT, self._interrupted)
            self._attached = True

    def _read(self) -> None:
        got = os.read(sys.stdin.fileno(), _READ)
        if not got:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._ended = True
            if self._rest:
                self._lines.append(self._rest.decode(errors="replace"))
        *lines, self._rest = (self._rest + got).split(b"\n")
        self._lines += (line.decode(errors="replace").rstrip("\r") for line in lines)
        self._more.set()

    def _interrupted(self) -> None:
        if self.stop is not None:
            self.stop()
        else:
            self.leave()
