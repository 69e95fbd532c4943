"""An upstream that records and answers in raw bytes: for tests of relays.

Knows requests byte for byte, and which of them are still open: a client that hangs up is noticed.
Knows no dialect and keeps no rule of HTTP in what it answers: a script says the very bytes.

    with Upstream(lambda asked: [head(200), b"one", 0.1, CUT]) as upstream: ...
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from ssl import SSLContext
from threading import Event, Thread
from time import monotonic, sleep
from typing import Self, TypeAlias


class Doing(Enum):
    """What is done instead of writing."""

    CUT = "close the connection"
    HANG = "say nothing until the client hangs up"


CUT, HANG = Doing.CUT, Doing.HANG
Step: TypeAlias = "bytes | float | Doing"
"""Bytes to write, seconds to wait, or one of those."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request as it came."""

    line: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    at: float = field(default_factory=monotonic)

    @property
    def target(self) -> bytes:
        """The path and the query."""
        return self.line.split(b" ")[1]

    def header(self, name: str) -> bytes | None:
        """The first header of a name."""
        wanted = name.lower().encode()
        return next((value for key, value in self.headers if key.lower() == wanted), None)


Script: TypeAlias = Callable[[Recorded], Sequence[Step]]


def head(status: int = 200, *, length: int | None = None, more: bytes = b"") -> bytes:
    """The head of an answer: of a length, or chunked."""
    size = b"transfer-encoding: chunked" if length is None else b"content-length: %d" % length
    return b"HTTP/1.1 %d Any\r\ncontent-type: application/json\r\n%s\r\n%s\r\n" % (
        status, size, more,
    )  # fmt: skip


def chunk(body: bytes) -> bytes:
    """A piece of a chunked answer; an empty one ends it."""
    return b"%x\r\n%s\r\n" % (len(body), body)


class Upstream:
    """A server on a free port, in a thread of its own."""

    def __init__(self, script: Script | None = None, *, tls: SSLContext | None = None) -> None:
        self.script: Script = script or (lambda _: [head(length=2) + b"{}"])
        self.asked: list[Recorded] = []
        self.open = 0
        """Requests that are neither answered nor left."""
        self.left = 0
        """Requests that their client has hung up on."""
        self.written = 0
        """Bytes of answers that were taken."""
        self.url = ""
        self._tls = tls
        self._ready = Event()
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._run, name="upstream", daemon=True)
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def closed(self, seconds: float = 20.0) -> bool:
        """Whether no request is open, now or soon."""
        end = monotonic() + seconds
        while self.open and monotonic() < end:
            sleep(0.005)
        return not self.open

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._over.wait()
        server.close()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while (asked := await _request(reader)) is not None:
                self.asked.append(asked)
                self.open += 1
                try:
                    if not await self._answer(self.script(asked), reader, writer):
                        break
                finally:
                    self.open -= 1
        except (OSError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer(
        self, steps: Sequence[Step], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Do the steps; whether the connection lives on."""
        for step in steps:
            if isinstance(step, bytes):
                try:
                    writer.write(step)
                    await writer.drain()
                except OSError:
                    self.left += 1
                    return False
                self.written += len(step)
            elif step is CUT:
                writer.close()
                await writer.wait_closed()
                return False
            else:
                seconds = step if isinstance(step, float) else None
                try:
                    await asyncio.wait_for(reader.read(1), seconds)
                except TimeoutError:
                    continue
                except OSError:
                    pass
                self.left += 1
                return False
        return True


async def _request(reader: asyncio.StreamReader) -> Recorded | None:
    try:
        top = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    line, *rest = top[:-4].split(b"\r\n")
    headers = [(name, value.strip()) for name, _, value in (one.partition(b":") for one in rest)]
    asked = Recorded(line, headers, b"")
    length = int(asked.header("content-length") or 0)
    return Recorded(line, headers, await reader.readexactly(length) if length else b"")
