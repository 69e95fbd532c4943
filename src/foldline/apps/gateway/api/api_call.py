"""One request of the session API and its reply: ASGI in, structs out.

Bodies and queries become the structs that a route asks for. Every error becomes a status and a body
{"error": {"kind", "message", "way_out"}}, which never shows a traceback, a path, or a secret that a
provider's message quotes.
"""

import asyncio
import logging
import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import parse_qsl

import msgspec

from foldline import errors
from foldline.apps.gateway.api.schemas import (
    LONGEST_NAME,
    AnswerSchema,
    FaultSchema,
    RefusalSchema,
    Shape,
)
from foldline.apps.gateway.api_keys import Client
from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.provider_routes import ModelLimits
from foldline.errors import BadInput, FoldlineError
from foldline.models.redact import redact_text
from foldline.stores.base import Name

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from foldline.apps.gateway.api.pool import OpenSession, Pool
    from foldline.apps.gateway.call_figures import TurnMeter


class NotFound(FoldlineError):  # noqa: N818 - named for what happened
    """There is nothing of that name for this tenant."""


class Forbidden(FoldlineError):  # noqa: N818
    """The client's key may not do this, whatever session it is about."""


class Misfit(FoldlineError):  # noqa: N818
    """The request's method, size or content type is refused."""

    def __init__(self, status: int, message: str, *, allow: str = "") -> None:
        self.status, self.allow = status, allow
        super().__init__(message)


class NameTaken(FoldlineError):  # noqa: N818
    """There is a session of that name already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a session {name!r} already; choose another name, or use that")


class Stopped(FoldlineError):  # noqa: N818
    """The gateway itself stopped the turn."""

    def __init__(self) -> None:
        super().__init__("the gateway is going down and stopped the turn; post the message again")


class ErrorAnswer(NamedTuple):
    """An error as the client gets it."""

    status: int
    body: RefusalSchema
    headers: tuple[tuple[str, str], ...] = ()


_STATUS: tuple[tuple[type[FoldlineError], int], ...] = (
    (Forbidden, 403),
    (NotFound, 404),
    (errors.BadHandle, 404),
    (errors.NotAnEdit, 404),
    (errors.BadInput, 400),
    (NameTaken, 409),
    (errors.Busy, 409),
    (errors.Conflict, 409),
    (errors.UndoFirst, 409),
    (errors.Vetoed, 409),
    (errors.OtherHost, 409),
    (errors.Erased, 410),
    (errors.Overflow, 413),
    (errors.Spent, 402),
    (errors.Limited, 429),
    (errors.ModelFailed, 502),
    (errors.Unsupported, 501),
    (errors.FormatError, 501),
    (Stopped, 503),
    (errors.StoreFailed, 503),
    (errors.Sealed, 503),
)
STATUSES = tuple(sorted({405, 415, 500, *(status for _, status in _STATUS)}))
"""Every status that an error may have."""
_AGAIN: dict[type[FoldlineError], float] = {errors.Busy: 1.0, errors.StoreFailed: 1.0, Stopped: 1.0}
_BROKEN = "something is wrong in the gateway itself; its operator finds it in the log"


def build_error_answer(fault: BaseException) -> ErrorAnswer:
    """Turn an error into an answer; an unexpected one is logged, and its text not shown."""
    if isinstance(fault, Misfit):
        headers = (("allow", fault.allow),) if fault.allow else ()
        return ErrorAnswer(fault.status, _make_refusal("misfit", str(fault)), headers)
    if isinstance(fault, RecursionError):
        return ErrorAnswer(400, _make_refusal("bad_input", "nested too deeply"))
    for kind, status in _STATUS:
        if isinstance(fault, kind):
            return ErrorAnswer(
                status,
                _make_refusal(_format_kind(kind), _describe_fault(fault)),
                _make_retry_headers(kind, fault),
            )
    logging.getLogger("foldline.gateway").error("a request failed", exc_info=fault)
    return ErrorAnswer(500, _make_refusal("fault", _BROKEN))


def _describe_fault(fault: FoldlineError) -> str:
    if not isinstance(fault, errors.ModelFailed):
        return str(fault)
    if fault.fault.kind == "auth":  # the provider's message may quote the key
        return f"{fault.model} gave no answer: its provider refused the operator's key"
    return redact_text(str(fault)).text


def _make_retry_headers(
    kind: type[FoldlineError], fault: FoldlineError
) -> tuple[tuple[str, str], ...]:
    again = _AGAIN.get(kind)
    if isinstance(fault, errors.Limited):
        again = fault.seconds
    if isinstance(fault, errors.ModelFailed):
        again = fault.fault.retry_after
    return () if again is None else (("retry-after", str(max(math.ceil(again), 1))),)


def _make_refusal(kind: str, words: str) -> RefusalSchema:
    message, _, way_out = words.partition("; ")
    return RefusalSchema(error=FaultSchema(kind=kind, message=message, way_out=way_out))


def _format_kind(kind: type[FoldlineError]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


Scope: TypeAlias = Any
Receive: TypeAlias = Any
Send: TypeAlias = Any
R = TypeVar("R")
S = TypeVar("S", bound=Shape)
JSON, EVENTS = "application/json", "text/event-stream"
OPENAPI = "openapi.json"
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_QUIET = 15.0  # seconds without an event after which a stream sends a sign of life


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """An answer as bytes."""

    body: bytes
    media: str = JSON
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer of server-sent events, as they come."""

    events: AsyncGenerator[bytes]
    over: Callable[[], Awaitable[None]] | None = None
    """Called at the end, even if nobody has listened."""


Reply: TypeAlias = AnswerSchema | ApiAnswer | Stream


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One request of a client."""

    pool: "Pool"
    tenant: str
    owner: str
    """The owner of sessions that the client makes; "" if there are no owners."""
    key: str
    """What the operator calls the client's key; "" without keys."""
    admin: bool
    """Whether the client sees all sessions of the tenant."""
    words: bool
    """Whether it reads what was said; else figures alone, and what is shared with it."""
    only_reads: bool
    """Whether the route changes nothing, so that it serves sessions that are shared."""
    models: ModelLimits
    """The models that its sessions may ask."""
    is_valid: Callable[[], Awaitable[bool]]
    """Says whether its key is still valid, for answers that take long."""
    path: tuple[str, ...]
    """The values of the route's path parameters: the session's name comes first."""
    headers: Mapping[str, str]
    receive: Receive
    body: Any
    query: Any
    meter: "TurnMeter | None" = None
    """Sums what its calls of models take."""

    @property
    def client(self) -> Client:
        """Who asks, for the operator's limits."""
        return Client(self.tenant, "", self.key, self.owner)

    @property
    def name(self) -> Name:
        """The session that the path names."""
        return Name(self.tenant, sound_name(self.path[0]))

    @property
    def sees(self) -> str | None:
        """The owner whose sessions the client sees; None for all of the tenant's."""
        return None if self.admin else self.owner

    def open_session(
        self, session: str | None = None
    ) -> "AbstractAsyncContextManager[OpenSession]":
        """Open the path's session, or another of the tenant's, if the client may see it."""
        name = self.name if session is None else Name(self.tenant, session)
        return self.pool.open_session(name, owner=self.sees, only_reads=self.only_reads)

    def check_model(self, model: str) -> None:
        """Refuse a model that the client's sessions may not ask."""
        try:
            self.models.check_names([model])
        except Refusal as refusal:
            raise Forbidden(refusal.message) from None

    @property
    def streams(self) -> bool:
        """Whether the client wants server-sent events."""
        return EVENTS in self.headers.get("accept", "")

    async def wait_for_disconnect(self) -> None:
        """Wait until the client has gone."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def unless_gone(self, work: "asyncio.Future[R]") -> R:
        """Wait for the result of `work`; raises `ClientGoneError` if the client leaves first."""
        gone = asyncio.ensure_future(self.wait_for_disconnect())
        try:
            await asyncio.wait((work, gone), return_when="FIRST_COMPLETED")
            if not work.done():
                raise ClientGoneError
            return work.result()
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)


def sound_name(given: str) -> str:
    """Check a session's name: it must fit into a URL and into every store."""
    if not 0 < len(given) <= LONGEST_NAME or not given.isprintable() or "/" in given:
        raise BadInput(
            f"{given[:80]!r} is no name of a session; write 1 to {LONGEST_NAME} characters that "
            "can be seen, without slashes"
        )
    if given in (".", "..", OPENAPI):
        raise BadInput(f"{given!r} names something else in an address; choose another name")
    return given


async def read_body(receive: Receive, *, most: int) -> bytes:
    """Read a body of at most `most` bytes."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > most:
            raise Misfit(413, f"a body of more than {most:,} bytes; send less at a time")
        if not message.get("more_body"):
            return b"".join(chunks)


class ClientGoneError(Exception):
    """The client hung up."""


def of_body(body: bytes, shape: type[S], media: str) -> S:
    """Parse a body into its struct; an empty body counts as an empty object."""
    kind = media.partition(";")[0].strip().lower()
    if body and kind != JSON:
        raise Misfit(415, f"a body of {kind[:80] or 'no kind'}; send application/json")
    try:
        return msgspec.json.decode(body or b"{}", type=shape)
    except msgspec.ValidationError as fault:
        raise _make_input_error(fault, shape, "the body") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise BadInput(f"the body is no JSON: {fault}") from None


def of_query(query: bytes, shape: type[S]) -> S:
    """Parse a query string into its struct."""
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
        raise _make_input_error(fault, shape, "the address") from None


def _make_input_error(fault: msgspec.ValidationError, shape: type[Shape], where: str) -> BadInput:
    unknown = _UNKNOWN.search(str(fault))
    if unknown is None:
        return BadInput(f"{where} is not what was expected: {fault}")
    near = get_close_matches(unknown[1], shape.__struct_fields__, n=1)
    known = ", ".join(shape.__struct_fields__) or "none"
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {known}"
    return BadInput(f"{where} has a field {unknown[1][:80]!r} that nobody reads; {hint}")


def encode_sse_event(kind: str, data: Any, at: int | None = None) -> bytes:
    """Encode a server-sent event; `at` is its id."""
    place = b"" if at is None else b"id: %d\n" % at
    return b"%sevent: %s\ndata: %s\n\n" % (place, kind.encode(), msgspec.json.encode(data))


async def send_reply(
    send: Send, call: ApiCall | None, reply: Reply | ErrorAnswer, *, status: int = 200
) -> None:
    """Send a reply to the client."""
    match reply:
        case ErrorAnswer(code, body, headers):
            sent = ApiAnswer(msgspec.json.encode(body), status=code, headers=headers)
        case AnswerSchema():
            sent = ApiAnswer(msgspec.json.encode(reply), status=status)
        case ApiAnswer():
            sent = reply
        case Stream(events, over):
            assert call is not None  # noqa: S101 - only a route streams
            try:
                await _send_events(send, call, events)
            finally:
                if over is not None:
                    await over()
            return
    await _send_head(
        send, sent.status, sent.media, (*sent.headers, ("content-length", f"{len(sent.body)}"))
    )
    await send({"type": "http.response.body", "body": sent.body})


async def _send_head(
    send: Send, status: int, media: str, headers: tuple[tuple[str, str], ...]
) -> None:
    every = (("content-type", media), ("cache-control", "no-store"), *headers)
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in every]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


async def _send_events(send: Send, call: ApiCall, events: AsyncGenerator[bytes]) -> None:
    """Send events until there are no more or the client is gone."""
    gone = asyncio.ensure_future(call.wait_for_disconnect())
    coming: asyncio.Future[bytes] | None = None
    try:
        await _send_head(send, 200, EVENTS, ())
        while not gone.done():
            coming = coming or asyncio.ensure_future(anext(events))
            await asyncio.wait((coming, gone), timeout=_QUIET, return_when="FIRST_COMPLETED")
            if not coming.done():
                if not gone.done():
                    await send(_make_body_chunk(b": still here\n\n"))
                continue
            try:
                event = coming.result()
            except StopAsyncIteration:
                break
            finally:
                coming = None
            await send(_make_body_chunk(event))
        if not gone.done():
            await send({"type": "http.response.body", "body": b""})
    except OSError:
        pass  # the client hung up while something was sent
    finally:
        for future in (coming, gone):
            if future is not None:
                future.cancel()
                with suppress(BaseException):
                    await future
        await events.aclose()


def _make_body_chunk(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}
