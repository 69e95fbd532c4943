"""The gateway's process: uvicorn, its port, and signals.

A signal makes the gateway unready. After `linger` seconds no connection is taken any more, and all
that is under way has `drain_seconds` to end: relayed answers, turns, searches. Then the rest is
stopped and recorded, and the process ends with 0. This is the only deadline of the end.
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

from foldline.apps.gateway.asgi import Gateway
from foldline.apps.gateway.calls import WATCHED
from foldline.dialects.base import list_dialects
from foldline.errors import BadInput
from foldline.models.redact import Redacting

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_AFTER = 1.0  # seconds for what was stopped to answer and to end by itself
_BACKLOG = 2_048
_SWITCH = 0.000_2  # seconds
_COLLECT = (20_000, 20, 20)
_DUMPABLE = 4  # PR_SET_DUMPABLE
_BROKEN_OFF = "ASGI callable returned without completing response."
_UPGRADE = re.compile(rb"\r\n(upgrade)[ \t]*:", re.IGNORECASE)
_OFFERED = b"x-foldline-upgrade"  # headers with our prefix are not passed on


class Served(uvicorn.Server):
    """A server of one gateway; a signal calls `stop`."""

    def __init__(self, gateway: Gateway, *, linger: float = 0.0) -> None:
        limits = gateway.settings.limits
        self._gateway, self._linger = gateway, linger
        super().__init__(
            uvicorn.Config(
                gateway,  # type: ignore[arg-type]
                http=build_bounded_protocol(limits.headers, limits.head_seconds),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=75,
            )
        )

    def stop(self) -> None:
        """Become unready, then refuse requests, then end; a second call stops all at once."""
        loop = asyncio.get_running_loop()
        if self._gateway.health.draining:
            self._stop_requests()
            return
        drain = self._gateway.drain(linger=self._linger)
        loop.call_later(self._linger, self._request_exit)
        loop.call_at(drain, self._stop_requests)

    def _request_exit(self) -> None:
        self.should_exit = True

    def _stop_requests(self) -> None:
        """Stop what is under way, and cancel what then goes on."""
        self._request_exit()
        self._gateway.stop_all()
        asyncio.get_running_loop().call_later(_AFTER, self._cancel_requests)

    def _cancel_requests(self) -> None:
        for task in self.server_state.tasks:
            task.cancel()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle signals instead of uvicorn, which would end with the signal's code.

        A requested shutdown is not an error.
        """
        loop = asyncio.get_running_loop()
        try:
            for number in _SIGNALS:
                loop.add_signal_handler(number, self.stop)
            loop.add_signal_handler(signal.SIGHUP, self._gateway.reload)
        except (RuntimeError, ValueError):  # not in the main thread: no signals here
            yield
            return
        try:
            yield
        finally:
            for number in (*_SIGNALS, signal.SIGHUP):
                loop.remove_signal_handler(number)


def run_server(server: Served, listening: socket.socket) -> None:
    """Serve until a signal."""
    prepare_process()
    server.run(sockets=[listening])


def prepare_process() -> None:
    """Set up this process as one that serves: logging, switches, garbage, no core dumps."""
    set_up_logging()
    # After each statement SQLite's thread waits this long for a busy loop to yield: at Python's
    # default of 5 ms an append takes tens of milliseconds.
    sys.setswitchinterval(_SWITCH)
    list_dialects()  # what the first request would load, before there is one
    gc.collect()
    gc.freeze()  # what is loaded now stays; what a request leaves is hardly ever in a cycle
    gc.set_threshold(*_COLLECT)
    keep_to_itself()


def open_socket(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Listen at a port; `shared` lets several processes listen at it."""
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
    """Write no core dump, and let no process of this user read our memory: it holds keys."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # a core dump into a pipe ignores the limit
        ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0)


def set_up_logging() -> None:
    """Log warnings to standard error, without secrets and without answers that we break off.

    Of the gateway itself also what an operator asked for, such as settings that are read again.
    """
    root = logging.getLogger()
    if not root.handlers:
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    for handler in root.handlers:
        if not any(isinstance(each, Redacting) for each in handler.filters):
            handler.addFilter(Redacting())
    logging.getLogger("foldline.gateway").setLevel(logging.INFO)
    uvicorns = logging.getLogger("uvicorn.error")
    uvicorns.setLevel(logging.ERROR)  # it warns of every bad request: strangers could fill the log
    uvicorns.addFilter(_is_unexpected)


def _is_unexpected(record: logging.LogRecord) -> bool:
    return record.getMessage() != _BROKEN_OFF


def _extract_head(data: bytes) -> bytes:
    end = data.find(b"\r\n\r\n")
    return data if end < 0 else data[: end + 2]


def build_bounded_protocol(most: int, seconds: float) -> type[HttpToolsProtocol]:
    """Build uvicorn's protocol with limits of bytes and seconds for a request's head."""

    class Bounded(HttpToolsProtocol):
        _size = 0
        _in_head = True
        _patience: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            self._listeners: list[Callable[[], None]] = []
            self._cycles: list[RequestResponseCycle] = []
            super().connection_made(transport)
            self._start_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)
            for cycle in self._cycles:  # uvicorn tells only the newest of pipelined requests
                cycle.disconnected = True
                cycle.message_event.set()
            for listener in [*self._listeners]:
                listener()

        def data_received(self, data: bytes) -> None:
            # The parser skips the body of a request that offers an upgrade, as Java's client does
            # with each. Nobody takes the offer, so its header is renamed.
            if self._in_head:
                head = _extract_head(data)
                self._size += len(head)
                if self._size > most:
                    self.send_400_response("Request head too large.")
                    return
                if found := _UPGRADE.search(head):
                    data = data[: found.start(1)] + _OFFERED + data[found.end(1) :]
            super().data_received(data)

        def on_message_complete(self) -> None:
            self._in_head = True
            super().on_message_complete()

        def on_message_begin(self) -> None:
            if self._patience is None:
                self._start_timer()
            super().on_message_begin()
            self.scope[WATCHED] = self._subscribe_disconnect  # type: ignore[typeddict-unknown-key]

        def on_headers_complete(self) -> None:
            self._in_head, self._size = False, 0
            self._stop_timer()
            super().on_headers_complete()
            under_way = [cycle for cycle in self._cycles if not cycle.response_complete]
            self._cycles = [*under_way, self.cycle]

        def _subscribe_disconnect(self, listener: Callable[[], None]) -> Callable[[], None]:
            self._listeners.append(listener)
            self.flow.resume_reading()  # a paused transport does not see that the client is gone
            return partial(self._listeners.remove, listener)

        def _start_timer(self) -> None:
            self._patience = self.loop.call_later(seconds, self._handle_timeout)

        def _stop_timer(self) -> None:
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None

        def _handle_timeout(self) -> None:
            self._patience = None
            self.transport.close()

    return Bounded
