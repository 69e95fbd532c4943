"""The gateway's process: a port, signals, the drain at its end.

Knows uvicorn. Refuses to know requests. A signal makes the gateway unready, lets answers end for
`drain_seconds`, stops and records the rest, and ends the process with 0.
"""

import asyncio
import ctypes
import gc
import logging
import re
import resource
import signal
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from foldline.apps.gateway.app import Gateway
from foldline.apps.gateway.calls import WATCHED
from foldline.errors import BadInput
from foldline.models.redact import Redacting

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_AFTER = 10.0  # seconds behind the drain: for what was stopped to be written
_BACKLOG = 2_048
_SWITCH = 0.000_2  # seconds
_COLLECT = (20_000, 20, 20)
_DUMPABLE = 4  # prctl's own number
_BROKEN_OFF = "ASGI callable returned without completing response."  # what we mean by it is told

_UPGRADE = re.compile(rb"\r\n(upgrade)[ \t]*:", re.IGNORECASE)
_OFFERED = b"x-foldline-upgrade"  # ours, so that it is not passed on


class Served(uvicorn.Server):
    """One server; `stop` is what a signal does."""

    def __init__(self, gateway: Gateway, *, linger: float = 0.0) -> None:
        limits = gateway.settings.limits
        self._gateway, self._linger = gateway, linger
        super().__init__(
            uvicorn.Config(
                gateway,  # type: ignore[arg-type]
                http=bounded(limits.headers, limits.head_seconds),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=int(limits.drain_seconds + _AFTER),
            )
        )

    def stop(self) -> None:
        """Be unready, then take no more, then end; a second time: at once."""
        if self._gateway.health.draining:
            self._gateway.calls.stop()
        self._gateway.drain()
        asyncio.get_running_loop().call_later(self._linger, self._exit)

    def _exit(self) -> None:
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Uvicorn's own way ends with the signal's code: an end that was asked for is none."""
        loop = asyncio.get_running_loop()
        try:
            for number in _SIGNALS:
                loop.add_signal_handler(number, self.stop)
        except (RuntimeError, ValueError):  # a thread of somebody's: no signals there
            yield
            return
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)


def run(server: Served, listening: socket.socket) -> None:
    """Serve until a signal."""
    quiet()
    # A thread that has waited for the disk waits this long for a busy loop, statement by statement:
    # at Python's own 5 ms an append to SQLite takes tens of them.
    sys.setswitchinterval(_SWITCH)
    gc.collect()
    gc.freeze()  # what is here now stays; what a request leaves is hardly ever in a cycle
    gc.set_threshold(*_COLLECT)
    keep_to_itself()
    server.run(sockets=[listening])


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A port; `shared` lets several processes stand at it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listening.bind((host, port))
    except OSError as fault:
        listening.close()
        raise BadInput(
            f"no port {port} at {host}: {fault.strerror}; write another with --port"
        ) from fault
    listening.listen(_BACKLOG)
    listening.set_inheritable(True)
    return listening


def keep_to_itself() -> None:
    """Leave no core behind, and let no other process of this user look in: both hold keys."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # a core that goes into a pipe heeds no limit
        ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0)


def quiet() -> None:
    """Warnings on standard error, without secrets; an answer that we break off is none."""
    root = logging.getLogger()
    if not root.handlers:
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    for one in root.handlers:
        if not any(isinstance(kept, Redacting) for kept in one.filters):
            one.addFilter(Redacting())
    uvicorns = logging.getLogger("uvicorn.error")
    uvicorns.setLevel(logging.ERROR)  # it warns of every request that is none: strangers' to fill
    uvicorns.addFilter(_meant)


def _meant(record: logging.LogRecord) -> bool:
    return record.getMessage() != _BROKEN_OFF


def _head(data: bytes) -> bytes:
    end = data.find(b"\r\n\r\n")
    return data if end < 0 else data[: end + 2]


def bounded(most: int, seconds: float) -> type[HttpToolsProtocol]:
    """Uvicorn's protocol, with an end to how large a request's head is and how long it takes."""

    class Bounded(HttpToolsProtocol):
        _size = 0
        _in_head = True
        _patience: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            self._told: list[Callable[[], None]] = []
            self._cycles: list[RequestResponseCycle] = []
            super().connection_made(transport)
            self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._heard()
            super().connection_lost(exc)
            for one in self._cycles:  # uvicorn tells the newest only; of a pipeline it is the last
                one.disconnected = True
                one.message_event.set()
            for told in [*self._told]:
                told()

        def data_received(self, data: bytes) -> None:
            # The parser leaves out the body of a request that offers another protocol, as Java's
            # client does with each: an offer that nobody takes is none.
            if self._in_head:
                top = _head(data)
                self._size += len(top)
                if self._size > most:
                    self.send_400_response("Request head too large.")
                    return
                if found := _UPGRADE.search(top):
                    data = data[: found.start(1)] + _OFFERED + data[found.end(1) :]
            super().data_received(data)

        def on_message_complete(self) -> None:
            self._in_head = True
            super().on_message_complete()

        def on_message_begin(self) -> None:
            if self._patience is None:
                self._wait()
            super().on_message_begin()
            self.scope[WATCHED] = self._watch  # type: ignore[typeddict-unknown-key]

        def on_headers_complete(self) -> None:
            self._in_head, self._size = False, 0
            self._heard()
            super().on_headers_complete()
            open_ = [one for one in self._cycles if not one.response_complete]
            self._cycles = [*open_, self.cycle]

        def _watch(self, told: Callable[[], None]) -> Callable[[], None]:
            self._told.append(told)
            self.flow.resume_reading()  # who does not read does not see that the client is gone
            return partial(self._told.remove, told)

        def _wait(self) -> None:
            self._patience = self.loop.call_later(seconds, self._late)

        def _heard(self) -> None:
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None

        def _late(self) -> None:
            self._patience = None
            self.transport.close()

    return Bounded
