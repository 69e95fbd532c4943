"""HTTP transports that plan what an SDK's client sends, and keep what it is answered.

A transport sends by the client it was made for. So whatever an SDK does to make a call, streamed or
not, passes here; what is no call of a known dialect passes untouched. Knows httpx, its timeouts and
its errors. Refuses to know conversations.
"""

import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Literal, TypeAlias, TypeVar

from foldline.dialects import base
from foldline.dialects.base import Dialect
from foldline.dialects.signatures import is_signed
from foldline.errors import (
    BadInput,
    BrokenView,
    Busy,
    Conflict,
    Erased,
    FoldlineError,
    StoreFailed,
    WireError,
)
from foldline.proxy.conversations import Conversations
from foldline.proxy.exchange import Exchange
from foldline.proxy.identity import Caller, Scope
from foldline.proxy.naming import check_name, current_name, find_caller, remember_asked
from foldline.session.sync import finish, wait

R = TypeVar("R")
OnStoreError: TypeAlias = Literal["raise", "pass"]
SESSION = "x-foldline-session"
"""The header by which one call names its conversation; never sent on."""
_UNPLANNED = (BrokenView, Conflict, Erased, WireError)
_AWAY = (StoreFailed, Busy)
_LONGEST = 30.0  # seconds that the store may take of a call whose client waits longer
_SOON = 0.2  # seconds: a store that fails so soon may be asked again at once
_OURS = ("content-length", "content-encoding", "transfer-encoding")  # true of other bytes
_log = logging.getLogger("foldline.wrap")


@dataclass(slots=True)
class ClientCall:
    """One call of an SDK, and the time that its client gives it."""

    dialect: Dialect
    body: bytes
    session: str
    caller: Caller
    timeouts: Mapping[str, float | None]
    """Seconds, by what they are for: connect, read, write, pool."""
    started: float = field(default_factory=monotonic)

    @property
    def seconds(self) -> float:
        """How long the store may take: half of the client's time, so that the provider has some."""
        most = self.timeouts.get("read")
        return _LONGEST if most is None else min(_LONGEST, most / 2)

    def left(self) -> dict[str, float | None]:
        """The client's timeouts, none longer than what is left of the time for an answer."""
        most = self.timeouts.get("read")
        if most is None:
            return {**self.timeouts}
        rest = max(most - (monotonic() - self.started), 0.001)
        return {name: min(each or most, rest) for name, each in self.timeouts.items()}

    @property
    def is_late(self) -> bool:
        """Whether the client's time is over."""
        most = self.timeouts.get("read")
        return most is not None and monotonic() - self.started >= most


class Planner:
    """Plans the calls of one client, each within the time that it has."""

    def __init__(
        self,
        http: Any,
        make_conversations: Callable[[], Conversations],
        *,
        session: str,
        on_store_error: OnStoreError,
    ) -> None:
        self.http, self._make_conversations = http, make_conversations
        self.session, self._on_store_error = session, on_store_error
        self._conversations, self._process = make_conversations(), os.getpid()
        self._away_until, self._is_closed = 0.0, False

    @property
    def conversations(self) -> Conversations:
        """The conversations of this process; one that was forked off opens the store anew."""
        if self._process != os.getpid():
            self._conversations, self._process = self._make_conversations(), os.getpid()
        return self._conversations

    async def close(self) -> None:
        """Nothing more is asked."""
        self._is_closed = True
        await self.conversations.close()

    def read(self, request: Any, body: bytes) -> ClientCall | None:
        """What a request asks; None where it is no call of a known dialect, or may not change."""
        named: str = request.headers.pop(SESSION, "")
        dialect = base.at(request.url.path)
        if dialect is None:
            return None
        if is_signed(request.headers.raw):
            _log.warning("a request is sent as it came: it is signed, and may not be changed")
            return None
        session = check_name(named) if named else current_name() or self.session
        timeouts: Mapping[str, float | None] = request.extensions.get("timeout") or {}
        return ClientCall(
            dialect, body, session, find_caller(self.conversations, session), timeouts
        )

    async def ask(self, call: ClientCall, request: Any) -> Exchange | None:
        """Plan a call; None where it is sent as it came."""
        asking = self.conversations.ask(
            call.dialect, call.body, scope=Scope(session=call.session), caller=call.caller
        )
        try:
            return await self._within(call.seconds, asking)
        except _UNPLANNED as fault:
            _log.warning("a request is sent as it came: %s", fault)
        except (*_AWAY, TimeoutError) as fault:
            if self._on_store_error == "raise":
                kind = self.http.ReadTimeout if isinstance(fault, TimeoutError) else None
                raise (kind or self.http.ConnectError)(str(fault), request=request) from fault
            _log.warning("a request is sent as it came, the store is away: %s", fault)
        except BadInput as fault:
            if not self._is_closed:
                raise
            raise self.http.ConnectError("the client was closed", request=request) from fault
        return None

    async def heal(self, call: ClientCall, exchange: Exchange) -> bool:
        """Whether to send another body, because an edit may heal a refusal."""
        if call.is_late:
            return False
        try:
            return await self._within(call.seconds, exchange.again())
        except (FoldlineError, TimeoutError) as fault:
            _log.warning("%s: a refusal is passed on: %s", exchange.session, fault)
            return False

    async def end(self, call: ClientCall, exchange: Exchange) -> None:
        """Take in an answer; the client has it, so it never fails for the store's sake."""
        try:
            await self._within(call.seconds, exchange.end())
        except (FoldlineError, TimeoutError) as fault:
            exchange.leave()
            level = logging.DEBUG if self._is_closed else logging.WARNING
            words = "%s: an answer is kept when the client says it again: %s"
            _log.log(level, words, exchange.session, fault)

    async def leave(self, call: ClientCall, exchange: Exchange) -> None:
        """Nothing came back."""
        exchange.leave()
        try:
            await self._within(call.seconds, exchange.release())
        except (FoldlineError, TimeoutError) as fault:
            _log.warning(
                "%s: what a call had reserved comes back later: %s", exchange.session, fault
            )

    async def _within(self, seconds: float, work: Coroutine[Any, Any, R]) -> R:
        """Do work on the store; one that kept a call waiting is left alone for as long."""
        from asyncio import timeout  # noqa: PLC0415 - half of the time of an import

        begun = monotonic()
        if begun < self._away_until:
            work.close()
            raise StoreFailed("the store did not answer a moment ago; it is asked again soon")
        try:
            async with timeout(seconds):
                return await work
        except (*_AWAY, TimeoutError) as fault:
            now = monotonic()
            if now - begun > _SOON:
                self._away_until = now + (now - begun)
            if isinstance(fault, TimeoutError):
                raise TimeoutError(f"the store took longer than {seconds:.3g} s") from fault
            raise

    def note(self, call: ClientCall, exchange: Exchange) -> None:
        """This thread or task has asked: `session_of` finds its conversation."""
        remember_asked(self.conversations, exchange.live, call.session)


# The two transports say the same, once with `await`: the SDKs' two kinds of client share no code.


def make_transport(inner: Any, planner: Planner) -> Any:
    """A transport that sends by a client."""
    http = planner.http

    class Heard(http.SyncByteStream):
        """An answer on its way to the client."""

        def __init__(
            self, response: Any, call: ClientCall, exchange: Exchange, chunks: Iterator[bytes]
        ) -> None:
            self._response, self._call = response, call
            self._exchange, self._chunks = exchange, chunks

        def __iter__(self) -> Iterator[bytes]:
            self._keep()
            yield from self._exchange.held
            for chunk in self._chunks:
                self._exchange.hear(chunk)
                self._keep()
                yield chunk

        def _keep(self) -> None:
            if self._exchange.complete:  # a client may go on from here, and never close it
                finish(planner.end(self._call, self._exchange))

        def close(self) -> None:
            self._response.close()
            finish(planner.end(self._call, self._exchange))

    class Transport(http.BaseTransport):
        """Sends what is planned, and hears what is answered."""

        def handle_request(self, request: Any) -> Any:
            call = planner.read(request, request.read())
            exchange = wait(planner.ask(call, request)) if call else None
            if call is None or exchange is None:
                return inner.send(_untouched(request, call), stream=True)
            planner.note(call, exchange)
            try:
                while True:
                    response = inner.send(_replaced(http, request, call, exchange), stream=True)
                    exchange.begin(response.status_code)
                    chunks = response.iter_bytes()
                    while not exchange.opened and (chunk := next(chunks, None)) is not None:
                        exchange.hear(chunk)
                    if not wait(planner.heal(call, exchange)):
                        break
                    response.close()
            except BaseException:
                wait(planner.leave(call, exchange))
                raise
            stream = Heard(response, call, exchange, chunks)
            return http.Response(response.status_code, headers=_headers(response), stream=stream)

        def close(self) -> None:
            inner.close()
            finish(planner.close())

    return Transport()


def make_async_transport(inner: Any, planner: Planner) -> Any:
    """A transport that sends by an async client."""
    http = planner.http

    class Heard(http.AsyncByteStream):
        """An answer on its way to the client."""

        def __init__(
            self, response: Any, call: ClientCall, exchange: Exchange, chunks: AsyncIterator[bytes]
        ) -> None:
            self._response, self._call = response, call
            self._exchange, self._chunks = exchange, chunks

        async def __aiter__(self) -> AsyncIterator[bytes]:
            await self._keep()
            for chunk in self._exchange.held:
                yield chunk
            async for chunk in self._chunks:
                self._exchange.hear(chunk)
                await self._keep()
                yield chunk

        async def _keep(self) -> None:
            if self._exchange.complete:
                await planner.end(self._call, self._exchange)

        async def aclose(self) -> None:
            await self._response.aclose()
            await planner.end(self._call, self._exchange)

    class Transport(http.AsyncBaseTransport):
        """Sends what is planned, and hears what is answered."""

        async def handle_async_request(self, request: Any) -> Any:
            call = planner.read(request, await request.aread())
            exchange = await planner.ask(call, request) if call else None
            if call is None or exchange is None:
                return await inner.send(_untouched(request, call), stream=True)
            planner.note(call, exchange)
            try:
                while True:
                    response = await inner.send(
                        _replaced(http, request, call, exchange), stream=True
                    )
                    exchange.begin(response.status_code)
                    chunks = response.aiter_bytes()
                    while not exchange.opened and (chunk := await anext(chunks, None)) is not None:
                        exchange.hear(chunk)
                    if not await planner.heal(call, exchange):
                        break
                    await response.aclose()
            except BaseException:
                await planner.leave(call, exchange)
                raise
            stream = Heard(response, call, exchange, chunks)
            return http.Response(response.status_code, headers=_headers(response), stream=stream)

        async def aclose(self) -> None:
            await inner.aclose()
            await planner.close()

    return Transport()


def _untouched(request: Any, call: ClientCall | None) -> Any:
    """A request as it came, with the time that is left for it."""
    if call is not None and call.timeouts:
        request.extensions = {**request.extensions, "timeout": call.left()}
    return request


def _replaced(http: Any, request: Any, call: ClientCall, exchange: Exchange) -> Any:
    """The same request with the planned body, and with the time that is left for it."""
    return http.Request(
        request.method,
        request.url,
        headers=_headers(request),
        content=exchange.body,
        extensions={**request.extensions, "timeout": call.left()},
    )


def _headers(message: Any) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = message.headers.multi_items()
    return [(name, value) for name, value in pairs if name.lower() not in _OURS]
