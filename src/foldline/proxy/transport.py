"""HTTP transports that plan what an SDK's client sends, and record the answers.

A transport sends through the httpx client it was made for, so every call of an SDK passes here,
streamed or not. Requests that are no call of a known dialect pass untouched.
"""

import logging
import os
from asyncio import timeout
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Literal, TypeAlias, TypeVar

from foldline.dialects import base
from foldline.dialects.base import Dialect, PathFacts, is_signed
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
from foldline.proxy.compacted_history import CompactedHistory, answer_compaction
from foldline.proxy.conversations import Conversations
from foldline.proxy.exchange import Exchange
from foldline.proxy.identity import (
    Caller,
    Scope,
    check_name,
    current_name,
    find_caller,
    remember_asked,
)
from foldline.session.sync import finish_coroutine, run_coroutine

R = TypeVar("R")
OnStoreError: TypeAlias = Literal["raise", "pass"]
SESSION = "x-foldline-session"
"""The header in which a call names its conversation; never sent on."""
UNPLANNED = (BrokenView, Conflict, Erased, WireError)
"""Faults with which a request is not planned: it goes out with the edits in force, if any."""
AWAY = (StoreFailed, Busy)
"""Faults of a store that does not answer."""
_LONGEST = 30.0  # seconds that the store may take, however long the client waits
_SOON = 0.2  # seconds: a store that fails this soon may be asked again at once
_OURS = ("content-length", "content-encoding", "transfer-encoding")  # they describe other bytes
_log = logging.getLogger("foldline.wrap")


@dataclass(slots=True)
class ClientCall:
    """One call of an SDK, and its client's timeouts."""

    dialect: Dialect
    body: bytes
    session: str
    caller: Caller
    timeouts: Mapping[str, float | None]
    """Seconds for connect, read, write and pool."""
    compacts: bool = False
    """Whether its path is one to which histories are posted to be compacted."""
    path: PathFacts | None = None
    """What its path says, where the body does not."""
    started: float = field(default_factory=monotonic)

    @property
    def seconds(self) -> float:
        """How long the store may take: half of the client's time, the rest is the provider's."""
        most = self.timeouts.get("read")
        return _LONGEST if most is None else min(_LONGEST, most / 2)

    def limit_timeouts(self) -> dict[str, float | None]:
        """Limit the client's timeouts to what is left of its read timeout."""
        most = self.timeouts.get("read")
        if most is None:
            return {**self.timeouts}
        rest = max(most - (monotonic() - self.started), 0.001)
        return {name: min(each or most, rest) for name, each in self.timeouts.items()}

    @property
    def is_late(self) -> bool:
        """Whether the client's read timeout has passed."""
        most = self.timeouts.get("read")
        return most is not None and monotonic() - self.started >= most


class Planner:
    """Plans the calls of one client, each within its time limit."""

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
        """The conversations of this process; a forked process opens the store again."""
        if self._process != os.getpid():
            self._conversations, self._process = self._make_conversations(), os.getpid()
        return self._conversations

    async def close(self) -> None:
        """Close the conversations and their store."""
        self._is_closed = True
        await self.conversations.close()

    def read_call(self, request: Any, body: bytes) -> ClientCall | None:
        """Read a request; None if it is no call of a known dialect, or is signed."""
        named: str = request.headers.pop(SESSION, "")
        compacting = base.find_compact_dialect(request.url.path)
        dialect = compacting or base.find_path_dialect(request.url.path)
        if dialect is None:
            return None
        if is_signed(request.headers.raw):
            _log.warning("a request is sent as it came: it is signed, and may not be changed")
            return None
        session = check_name(named) if named else current_name() or self.session
        timeouts: Mapping[str, float | None] = request.extensions.get("timeout") or {}
        return ClientCall(
            dialect,
            body,
            session,
            find_caller(self.conversations, session),
            timeouts,
            compacting is not None,
            dialect.read_path(request.url.path, request.url.query.decode("latin-1")),
        )

    async def plan_call(self, call: ClientCall, request: Any) -> Exchange | CompactedHistory | None:
        """Plan a call, or answer it; None if it is sent as it came.

        Where no plan can be made it is sent with the edits in force.
        """
        why = "store-away"
        try:
            return await self._run_within(call.seconds, self._start_call(call))
        except UNPLANNED as fault:
            _log.warning("a request is not planned: %s", fault)
            why = type(fault).__name__.lower()
        except (*AWAY, TimeoutError) as fault:
            if self._on_store_error == "raise":
                kind = self.http.ReadTimeout if isinstance(fault, TimeoutError) else None
                raise (kind or self.http.ConnectError)(str(fault), request=request) from fault
            _log.warning("a request is not planned, the store is away: %s", fault)
        except BadInput as fault:
            if not self._is_closed:
                raise
            raise self.http.ConnectError("the client was closed", request=request) from fault
        except FoldlineError:
            raise
        except Exception:  # noqa: BLE001 - a fault of ours is no reason to refuse a request
            _log.exception("a request is not planned by a fault of our own")
            why = "fault"
        if call.compacts:
            return None
        return await self.conversations.start_unrecorded(
            call.dialect, call.body, why=why, scope=Scope(session=call.session), path=call.path
        )

    async def _start_call(self, call: ClientCall) -> Exchange | CompactedHistory | None:
        scope = Scope(session=call.session)
        answered = await answer_compaction(
            self.conversations,
            call.dialect,
            call.body,
            posted=call.compacts,
            scope=scope,
            caller=call.caller,
        )
        if answered is not None or call.compacts:
            return answered
        return await self.conversations.start_exchange(
            call.dialect, call.body, scope=scope, caller=call.caller, path=call.path
        )

    async def ask_again(self, call: ClientCall, exchange: Exchange, *, goes_on: bool) -> bool:
        """Plan again after a refusal, or if the answer goes on; return whether there is a body."""
        if not goes_on:
            return await self._heal_refusal(call, exchange)
        if await self.answer_calls(call, exchange):
            return True
        exchange.stop_rounds()
        return False

    async def answer_calls(self, call: ClientCall, exchange: Exchange) -> bool:
        """Answer calls of `recall` and plan the next request; return whether there is one."""
        try:
            if await self._run_within(call.seconds, exchange.answer_calls()):
                return True
        except (FoldlineError, TimeoutError) as fault:
            _log.warning("%s: a recall is not answered: %s", exchange.session, fault)
        return False

    async def _heal_refusal(self, call: ClientCall, exchange: Exchange) -> bool:
        """Plan again after a refusal; return whether there is another body to send."""
        if call.is_late:
            return False
        try:
            return await self._run_within(call.seconds, exchange.heal_refusal())
        except (FoldlineError, TimeoutError) as fault:
            _log.warning("%s: a refusal is passed on: %s", exchange.session, fault)
            return False

    async def end_call(self, call: ClientCall, exchange: Exchange) -> None:
        """Record an answer; the client already has it, so a store's error is only logged."""
        try:
            await self._run_within(call.seconds, exchange.end_response())
        except (FoldlineError, TimeoutError) as fault:
            exchange.mark_unanswered()
            level = logging.DEBUG if self._is_closed else logging.WARNING
            words = "%s: an answer is kept when the client says it again: %s"
            _log.log(level, words, exchange.session, fault)

    async def cancel_call(self, call: ClientCall, exchange: Exchange) -> None:
        """Release the reservation of a call that got no answer."""
        exchange.mark_unanswered()
        try:
            await self._run_within(call.seconds, exchange.release_reservation())
        except (FoldlineError, TimeoutError) as fault:
            _log.warning(
                "%s: what a call had reserved comes back later: %s", exchange.session, fault
            )

    async def _run_within(self, seconds: float, work: Coroutine[Any, Any, R]) -> R:
        """Run work on the store; after a slow failure, fail at once for as long as it took."""
        begun = monotonic()
        if begun < self._away_until:
            work.close()
            raise StoreFailed("the store did not answer a moment ago; it is asked again soon")
        try:
            async with timeout(seconds):
                return await work
        except (*AWAY, TimeoutError) as fault:
            now = monotonic()
            if now - begun > _SOON:
                self._away_until = now + (now - begun)
            if isinstance(fault, TimeoutError):
                raise TimeoutError(f"the store took longer than {seconds:.3g} s") from fault
            raise

    def remember_call(self, call: ClientCall, exchange: Exchange) -> None:
        """Remember this thread's or task's conversation for `session_of`."""
        remember_asked(self.conversations, exchange.live, call.session)


# The two transports differ only in `await`: the SDKs' two kinds of client share no code.


def make_transport(inner: Any, planner: Planner) -> Any:
    """Make a transport that sends through a client."""
    http = planner.http

    class ReadStream(http.SyncByteStream):
        """An answer on its way to the client."""

        def __init__(
            self,
            call: ClientCall,
            exchange: Exchange,
            asked: tuple[Any, Iterator[bytes]],
            ask: Callable[[], tuple[Any, Iterator[bytes]]],
        ) -> None:
            self._call, self._exchange, self._ask = call, exchange, ask
            self._response, self._chunks = asked

        def __iter__(self) -> Iterator[bytes]:
            exchange = self._exchange
            while True:
                self._end_when_complete()
                yield from exchange.list_held()
                for chunk in self._chunks:
                    passed = exchange.receive_chunk(chunk)
                    self._end_when_complete()
                    if passed:
                        yield passed
                if rest := exchange.end_stream():
                    yield rest
                if not exchange.goes_on:
                    return
                self._response.close()
                if not run_coroutine(planner.answer_calls(self._call, exchange)):
                    yield exchange.stop_rounds()
                    return
                self._call.started = monotonic()  # the client has heard something since
                self._response, self._chunks = self._ask()

        def _end_when_complete(self) -> None:
            if self._exchange.complete:  # a client may stop reading here, and never close it
                finish_coroutine(planner.end_call(self._call, self._exchange))

        def close(self) -> None:
            self._response.close()
            finish_coroutine(planner.end_call(self._call, self._exchange))

    class Transport(http.BaseTransport):
        """Sends planned requests and records the answers."""

        def handle_request(self, request: Any) -> Any:
            call = planner.read_call(request, request.read())
            exchange = run_coroutine(planner.plan_call(call, request)) if call else None
            if isinstance(exchange, CompactedHistory):
                return _build_local_response(http, exchange)
            if call is None or exchange is None:
                return inner.send(_apply_timeouts(request, call), stream=True)
            planner.remember_call(call, exchange)

            def ask() -> tuple[Any, Iterator[bytes]]:
                """Send the planned request, and others while they heal a refusal or follow it."""
                while True:
                    response = inner.send(
                        _build_planned_request(http, request, call, exchange), stream=True
                    )
                    exchange.start_response(response.status_code)
                    chunks = response.iter_bytes()
                    while not exchange.opened and (chunk := next(chunks, None)) is not None:
                        exchange.receive_chunk(chunk)
                    goes_on = not exchange.opened and exchange.end_body()
                    if not run_coroutine(planner.ask_again(call, exchange, goes_on=goes_on)):
                        return response, chunks
                    response.close()

            try:
                asked = ask()
            except BaseException:
                run_coroutine(planner.cancel_call(call, exchange))
                raise
            stream = ReadStream(call, exchange, asked, ask)
            headers = _filter_headers(asked[0])
            return http.Response(asked[0].status_code, headers=headers, stream=stream)

        def close(self) -> None:
            inner.close()
            finish_coroutine(planner.close())

    return Transport()


def make_async_transport(inner: Any, planner: Planner) -> Any:
    """Make a transport that sends through an async client."""
    http = planner.http

    class AsyncReadStream(http.AsyncByteStream):
        """An answer on its way to the client."""

        def __init__(
            self,
            call: ClientCall,
            exchange: Exchange,
            asked: tuple[Any, AsyncIterator[bytes]],
            ask: Callable[[], Awaitable[tuple[Any, AsyncIterator[bytes]]]],
        ) -> None:
            self._call, self._exchange, self._ask = call, exchange, ask
            self._response, self._chunks = asked

        async def __aiter__(self) -> AsyncIterator[bytes]:
            exchange = self._exchange
            while True:
                await self._end_when_complete()
                for chunk in exchange.list_held():
                    yield chunk
                async for chunk in self._chunks:
                    passed = exchange.receive_chunk(chunk)
                    await self._end_when_complete()
                    if passed:
                        yield passed
                if rest := exchange.end_stream():
                    yield rest
                if not exchange.goes_on:
                    return
                await self._response.aclose()
                if not await planner.answer_calls(self._call, exchange):
                    yield exchange.stop_rounds()
                    return
                self._call.started = monotonic()
                self._response, self._chunks = await self._ask()

        async def _end_when_complete(self) -> None:
            if self._exchange.complete:
                await planner.end_call(self._call, self._exchange)

        async def aclose(self) -> None:
            await self._response.aclose()
            await planner.end_call(self._call, self._exchange)

    class AsyncTransport(http.AsyncBaseTransport):
        """Sends planned requests and records the answers."""

        async def handle_async_request(self, request: Any) -> Any:
            call = planner.read_call(request, await request.aread())
            exchange = await planner.plan_call(call, request) if call else None
            if isinstance(exchange, CompactedHistory):
                return _build_local_response(http, exchange)
            if call is None or exchange is None:
                return await inner.send(_apply_timeouts(request, call), stream=True)
            planner.remember_call(call, exchange)

            async def ask() -> tuple[Any, AsyncIterator[bytes]]:
                """Send the planned request, and others while they heal a refusal or follow it."""
                while True:
                    response = await inner.send(
                        _build_planned_request(http, request, call, exchange), stream=True
                    )
                    exchange.start_response(response.status_code)
                    chunks = response.aiter_bytes()
                    while not exchange.opened and (chunk := await anext(chunks, None)) is not None:
                        exchange.receive_chunk(chunk)
                    goes_on = not exchange.opened and exchange.end_body()
                    if not await planner.ask_again(call, exchange, goes_on=goes_on):
                        return response, chunks
                    await response.aclose()

            try:
                asked = await ask()
            except BaseException:
                await planner.cancel_call(call, exchange)
                raise
            stream = AsyncReadStream(call, exchange, asked, ask)
            headers = _filter_headers(asked[0])
            return http.Response(asked[0].status_code, headers=headers, stream=stream)

        async def aclose(self) -> None:
            await inner.aclose()
            await planner.close()

    return AsyncTransport()


def _apply_timeouts(request: Any, call: ClientCall | None) -> Any:
    if call is not None and call.timeouts:
        request.extensions = {**request.extensions, "timeout": call.limit_timeouts()}
    return request


def _build_local_response(http: Any, answer: CompactedHistory) -> Any:
    headers = {"content-type": answer.content_type, "x-foldline-session": answer.session}
    return http.Response(200, headers=headers, content=answer.body)


def _build_planned_request(http: Any, request: Any, call: ClientCall, exchange: Exchange) -> Any:
    return http.Request(
        request.method,
        request.url,
        headers=_filter_headers(request),
        content=exchange.body,
        extensions={**request.extensions, "timeout": call.limit_timeouts()},
    )


def _filter_headers(message: Any) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = message.headers.multi_items()
    return [(name, value) for name, value in pairs if name.lower() not in _OURS]
