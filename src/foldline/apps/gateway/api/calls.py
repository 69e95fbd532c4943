"""One request of a client, and what it is answered with: ASGI in structs.

Knows how a body and an address become the struct that a route wants, and says what is wrong with
them. Refuses to know routes and sessions.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl

import msgspec

from foldline.apps.gateway.api.errors import ErrorAnswer, Misfit
from foldline.apps.gateway.api.schemas import LONGEST_NAME, Answer, Shape
from foldline.errors import BadInput
from foldline.stores.base import Name

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from foldline.apps.gateway.api.pool import OpenSession, Pool

Scope: TypeAlias = Any
Receive: TypeAlias = Any
Send: TypeAlias = Any
R = TypeVar("R")
S = TypeVar("S", bound=Shape)
JSON, EVENTS = "application/json", "text/event-stream"
OPENAPI = "openapi.json"
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_QUIET = 15.0  # seconds after which a stream says that it is still there


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """An answer as bytes."""

    body: bytes
    media: str = JSON
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Stream:
    """Server-sent events, as they come."""

    events: AsyncGenerator[bytes]
    over: Callable[[], Awaitable[None]] | None = None
    """Done at its end, also where nobody has listened to any of it."""


Reply: TypeAlias = Answer | ApiAnswer | Stream


@dataclass(frozen=True, slots=True)
class ApiCall:
    """What a client asks for."""

    pool: "Pool"
    tenant: str
    owner: str
    """Whose the sessions are that are made here; "" where owners are not told apart."""
    admin: bool
    """Whether all sessions of the tenant are seen."""
    path: tuple[str, ...]
    """What stands in the places of the route's path: the session's name, and more."""
    headers: Mapping[str, str]
    receive: Receive
    body: Any
    query: Any

    @property
    def name(self) -> Name:
        """The session that is meant."""
        return Name(self.tenant, sound_name(self.path[0]))

    @property
    def sees(self) -> str | None:
        """The owner whose sessions are seen; None: all of the tenant's."""
        return None if self.admin else self.owner

    def seen(self, session: str | None = None) -> "AbstractAsyncContextManager[OpenSession]":
        """The session that is meant, or another of the tenant's, if the client may see it."""
        name = self.name if session is None else Name(self.tenant, session)
        return self.pool.seen(name, owner=self.sees)

    @property
    def streams(self) -> bool:
        """Whether the client wants server-sent events."""
        return EVENTS in self.headers.get("accept", "")

    async def gone(self) -> None:
        """Wait until the client has gone."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def unless_gone(self, work: "asyncio.Future[R]") -> R:
        """What some work comes to; `ClientGoneError` where nobody waits for it any more."""
        gone = asyncio.ensure_future(self.gone())
        try:
            await asyncio.wait((work, gone), return_when="FIRST_COMPLETED")
            if not work.done():
                raise ClientGoneError
            return work.result()
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)


def sound_name(given: str) -> str:
    """A session's name that can stand in an address and in every store."""
    if not 0 < len(given) <= LONGEST_NAME or not given.isprintable() or "/" in given:
        raise BadInput(
            f"{given[:80]!r} is no name of a session; write 1 to {LONGEST_NAME} characters that "
            "can be seen, without slashes"
        )
    if given in (".", "..", OPENAPI):
        raise BadInput(f"{given!r} names something else in an address; choose another name")
    return given


async def read_body(receive: Receive, *, most: int) -> bytes:
    """All that a client sends, up to so many bytes."""
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > most:
            raise Misfit(413, f"a body of more than {most:,} bytes; send less at a time")
        if not message.get("more_body"):
            return b"".join(pieces)


class ClientGoneError(Exception):
    """Nobody is there to be answered."""


def of_body(body: bytes, shape: type[S], media: str) -> S:
    """A body as its struct; none at all is an empty object."""
    kind = media.partition(";")[0].strip().lower()
    if body and kind != JSON:
        raise Misfit(415, f"a body of {kind[:80] or 'no kind'}; send application/json")
    try:
        return msgspec.json.decode(body or b"{}", type=shape)
    except msgspec.ValidationError as fault:
        raise _wrong(fault, shape, "the body") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise BadInput(f"the body is no JSON: {fault}") from None


def of_query(query: bytes, shape: type[S]) -> S:
    """What stands behind the question mark, as its struct."""
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50
        )
        given = dict(pairs)
    except ValueError as fault:
        raise BadInput(f"the address cannot be read: {fault}") from None
    if len(given) < len(pairs):
        raise BadInput("a parameter of the address is there twice; write each once")
    try:
        return msgspec.convert(given, shape, strict=False)
    except msgspec.ValidationError as fault:
        raise _wrong(fault, shape, "the address") from None


def _wrong(fault: msgspec.ValidationError, shape: type[Shape], where: str) -> BadInput:
    said = str(fault)
    unknown = _UNKNOWN.search(said)
    if unknown is None:
        return BadInput(f"{where} is not what was expected: {said}")
    near = get_close_matches(unknown[1], shape.__struct_fields__, n=1)
    known = ", ".join(shape.__struct_fields__) or "none"
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {known}"
    return BadInput(f"{where} has a field {unknown[1][:80]!r} that nobody reads; {hint}")


def event(kind: str, told: Any, at: int | None = None) -> bytes:
    """One server-sent event."""
    place = b"" if at is None else b"id: %d\n" % at
    return b"%sevent: %s\ndata: %s\n\n" % (place, kind.encode(), msgspec.json.encode(told))


async def answer(
    send: Send, call: ApiCall | None, reply: Reply | ErrorAnswer, *, status: int = 200
) -> None:
    """Send what a client is answered with."""
    match reply:
        case ErrorAnswer(code, body, headers):
            sent = ApiAnswer(msgspec.json.encode(body), status=code, headers=headers)
        case Answer():
            sent = ApiAnswer(msgspec.json.encode(reply), status=status)
        case ApiAnswer():
            sent = reply
        case Stream(events, over):
            assert call is not None  # noqa: S101 - only a route streams
            try:
                await _stream(send, call, events)
            finally:
                if over is not None:
                    await over()
            return
    await _start(
        send, sent.status, sent.media, (*sent.headers, ("content-length", f"{len(sent.body)}"))
    )
    await send({"type": "http.response.body", "body": sent.body})


async def _start(send: Send, status: int, media: str, headers: tuple[tuple[str, str], ...]) -> None:
    every = (("content-type", media), ("cache-control", "no-store"), *headers)
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in every]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


async def _stream(send: Send, call: ApiCall, events: AsyncGenerator[bytes]) -> None:
    """Events until there are no more, or nobody listens; then they are let go of at once."""
    gone = asyncio.ensure_future(call.gone())
    coming: asyncio.Future[bytes] | None = None
    try:
        await _start(send, 200, EVENTS, ())
        while not gone.done():
            coming = coming or asyncio.ensure_future(anext(events))
            await asyncio.wait((coming, gone), timeout=_QUIET, return_when="FIRST_COMPLETED")
            if not coming.done():
                if not gone.done():
                    await send(_piece(b": still here\n\n"))
                continue
            try:
                piece = coming.result()
            except StopAsyncIteration:
                break
            finally:
                coming = None
            await send(_piece(piece))
        if not gone.done():
            await send({"type": "http.response.body", "body": b""})
    except OSError:
        pass  # the client hung up while something was sent
    finally:
        for one in (coming, gone):
            if one is not None:
                one.cancel()
                with suppress(BaseException):
                    await one
        await events.aclose()


def _piece(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}
