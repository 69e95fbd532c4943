"""Clients of the official SDKs, with their history planned on the way out.

    client = foldline.wrap(OpenAI())        # or AsyncOpenAI(), Anthropic(), AsyncAnthropic()

Knows the SDKs' HTTP layer: the wrapped client is the SDK's own, with a transport that sends by the
original's. So whatever the SDK does to make a call, streamed or not, passes here; what is no call
of a known dialect passes untouched. Refuses to know conversations.
"""

import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any, TypeVar

from foldline.core.policy import named
from foldline.errors import BadInput, BrokenView, Conflict, Erased, FoldlineError, WireError
from foldline.proxy.conversations import Conversations
from foldline.proxy.exchange import Exchange
from foldline.run.facts import known
from foldline.run.session import AsyncSession, Session
from foldline.run.sync import wait
from foldline.store.at import store_at
from foldline.wire import dialects
from foldline.wire.signed import is_signed

C = TypeVar("C")
_UNPLANNED = (BrokenView, Conflict, Erased, WireError)
_log = logging.getLogger("foldline.wrap")
_OURS = ("content-length", "content-encoding", "transfer-encoding")  # true of other bytes


def wrap(
    client: C,
    *,
    store: str | os.PathLike[str] = ":memory:",
    window: int | None = None,
    policy: str = "steady",
    fold_from: int = 0,
) -> C:
    """The same client; the history that each call sends is kept, and planned to fit the window.

    Takes `OpenAI`, `AsyncOpenAI`, `Anthropic` and `AsyncAnthropic`, and gives a client of the same
    class that is used as before, streams included. A client that signs its requests with AWS
    credentials is refused. `store` is an address as `open` takes it.
    Without `window` the catalogue is asked, and a provider's refusal for length teaches it.
    Below `fold_from` tokens nothing is edited that could be sent as it is.
    `client.foldline.session` is the newest conversation: its report, its edits, undo and recall.
    """
    inner: Any = getattr(client, "_client", None)
    copy: Any = getattr(client, "copy", None)
    http = _http(inner)
    if _is_signing(client):
        raise BadInput(
            f"wrap() cannot wrap a {type(client).__name__}: it signs every request with AWS "
            "credentials, and an edited request would not match its signature. Use a client that "
            "sends an API key, or foldline.open(), which plans before the client signs"
        )
    if http is None or copy is None or type(client).__name__.endswith(("Bedrock", "Vertex")):
        raise BadInput(
            f"wrap() cannot wrap a {type(client).__name__}; it takes OpenAI, AsyncOpenAI, "
            "Anthropic and AsyncAnthropic clients. Others may use foldline.open()"
        )
    named(policy)  # a wrong name is told here, not at the first call
    conversations = Conversations(
        store_at(store),
        lambda model: replace(
            known(model, window=window, reserve=None, policy=policy), fold_from=fold_from
        ),
    )
    is_async = isinstance(inner, http.AsyncClient)
    transport = (
        _async(http, inner, conversations) if is_async else _sync(http, inner, conversations)
    )
    outer = (http.AsyncClient if is_async else http.Client)(
        transport=transport,
        headers=inner.headers,
        cookies=inner.cookies,
        params=inner.params,
        timeout=inner.timeout,
    )
    wrapped = copy(http_client=outer)
    wrapped.foldline = Wrapped(conversations, is_async=is_async)
    return wrapped


def _is_signing(client: object) -> bool:
    """Whether an SDK's client signs the body of each request before its transport sees it."""
    uses_aws = getattr(client, "_use_sigv4", None)  # Anthropic's: of classes that can do both
    if uses_aws is None:
        uses_aws = getattr(client, "_uses_aws_auth", None)  # OpenAI's
        uses_aws = uses_aws() if callable(uses_aws) else uses_aws
    if uses_aws is not None:
        return bool(uses_aws)
    prepare = getattr(getattr(client, "_provider_runtime", None), "prepare_request", None)
    if "SigV4" in type(getattr(prepare, "__self__", None)).__name__:  # OpenAI(provider=bedrock())
        return True
    if getattr(client, "api_key", None):
        return False
    names = [f"{base.__module__}.{base.__name__}".lower() for base in type(client).__mro__]
    return any("bedrock" in name or ".aws." in name for name in names)


class Wrapped:
    """What passed through a wrapped client: its attribute `foldline`."""

    def __init__(self, conversations: Conversations, *, is_async: bool) -> None:
        self._conversations, self._is_async = conversations, is_async

    @property
    def session(self) -> AsyncSession | Session:
        """The newest conversation: an `AsyncSession` where the client is async."""
        if self._conversations.newest is None:
            raise BadInput("nothing was asked through this client yet")
        newest = AsyncSession(self._conversations.newest)
        return newest if self._is_async else Session(newest)


def _http(inner: Any) -> ModuleType | None:
    """The HTTP library that a client stands on: it differs between releases of the SDKs."""
    for base in type(inner).__mro__:
        name = base.__module__.partition(".")[0]
        if name in ("httpx", "httpx2"):
            return sys.modules[name]
    return None


# The two transports say the same, once with `await`: the SDKs' two kinds of client share no code.


def _sync(http: Any, inner: Any, conversations: Conversations) -> Any:
    class Heard(http.SyncByteStream):
        """An answer on its way to the client."""

        def __init__(self, response: Any, exchange: Exchange, chunks: Iterator[bytes]) -> None:
            self._response, self._exchange, self._chunks = response, exchange, chunks

        def __iter__(self) -> Iterator[bytes]:
            self._kept()
            yield from self._exchange.held
            for chunk in self._chunks:
                self._exchange.hear(chunk)
                self._kept()
                yield chunk

        def _kept(self) -> None:
            if self._exchange.complete:  # a client may go on from here, and never close it
                wait(self._exchange.end())

        def close(self) -> None:
            self._response.close()
            wait(self._exchange.end())

    class Transport(http.BaseTransport):
        """Sends what is planned, and hears what is answered."""

        def handle_request(self, request: Any) -> Any:
            dialect = _dialect_of(request)
            try:
                exchange = wait(conversations.ask(dialect, request.read())) if dialect else None
            except _UNPLANNED as fault:
                exchange = _relay_unplanned(fault)
            if exchange is None:
                return inner.send(request, stream=True)
            try:
                while True:
                    response = inner.send(_with(http, request, exchange.body), stream=True)
                    exchange.begin(response.status_code)
                    chunks = response.iter_bytes()
                    while not exchange.opened and (chunk := next(chunks, None)) is not None:
                        exchange.hear(chunk)
                    if not wait(exchange.again()):
                        break
                    response.close()
            except BaseException:
                exchange.leave()
                raise
            stream = Heard(response, exchange, chunks)
            return http.Response(response.status_code, headers=_kept(response), stream=stream)

        def close(self) -> None:
            inner.close()
            wait(conversations.store.close())

    return Transport()


def _async(http: Any, inner: Any, conversations: Conversations) -> Any:
    class Heard(http.AsyncByteStream):
        """An answer on its way to the client."""

        def __init__(self, response: Any, exchange: Exchange, chunks: AsyncIterator[bytes]) -> None:
            self._response, self._exchange, self._chunks = response, exchange, chunks

        async def __aiter__(self) -> AsyncIterator[bytes]:
            await self._kept()
            for chunk in self._exchange.held:
                yield chunk
            async for chunk in self._chunks:
                self._exchange.hear(chunk)
                await self._kept()
                yield chunk

        async def _kept(self) -> None:
            if self._exchange.complete:
                await self._exchange.end()

        async def aclose(self) -> None:
            await self._response.aclose()
            await self._exchange.end()

    class Transport(http.AsyncBaseTransport):
        """Sends what is planned, and hears what is answered."""

        async def handle_async_request(self, request: Any) -> Any:
            dialect = _dialect_of(request)
            try:
                exchange = (
                    await conversations.ask(dialect, await request.aread()) if dialect else None
                )
            except _UNPLANNED as fault:
                exchange = _relay_unplanned(fault)
            if exchange is None:
                return await inner.send(request, stream=True)
            try:
                while True:
                    response = await inner.send(_with(http, request, exchange.body), stream=True)
                    exchange.begin(response.status_code)
                    chunks = response.aiter_bytes()
                    while not exchange.opened and (chunk := await anext(chunks, None)) is not None:
                        exchange.hear(chunk)
                    if not await exchange.again():
                        break
                    await response.aclose()
            except BaseException:
                exchange.leave()
                raise
            stream = Heard(response, exchange, chunks)
            return http.Response(response.status_code, headers=_kept(response), stream=stream)

        async def aclose(self) -> None:
            await inner.aclose()
            await conversations.store.close()

    return Transport()


def _dialect_of(request: Any) -> dialects.Dialect | None:
    """What a request is written in, if it may be changed."""
    dialect = dialects.at(request.url.path)
    if dialect is not None and is_signed(request.headers.raw):
        _log.warning("a request is sent as it came: it is signed, and may not be changed")
        return None
    return dialect


def _relay_unplanned(fault: FoldlineError) -> None:
    """Leave a request to the provider, which may take it as it came, and say so."""
    _log.warning("a request is sent as it came: %s", fault)


def _with(http: Any, request: Any, body: bytes) -> Any:
    """The same request with another body."""
    return http.Request(
        request.method,
        request.url,
        headers=_kept(request),
        content=body,
        extensions=request.extensions,
    )


def _kept(message: Any) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = message.headers.multi_items()
    return [(name, value) for name, value in pairs if name.lower() not in _OURS]
