"""Check what strangers send: a request's path, its size, and the size it decompresses to.

room = Room(1_000_000_000)
share = Share(room)
sent = await read_request_body(receive, stated, most=32_000_000, share=share)
plain = await RequestBody(sent, encoding, dialect, limits=limits, share=share).read()
"""

import asyncio
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from functools import partial
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec

from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.settings import GatewayLimits
from foldline.dialects.base import Dialect
from foldline.dialects.json_slices import find_fields, has_more_values
from foldline.errors import WireError
from foldline.stores.beside import run_beside

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
_GZIP = 16 + zlib.MAX_WBITS
_WINDOW = {b"gzip": _GZIP, b"x-gzip": _GZIP, b"deflate": zlib.MAX_WBITS}
PLANNING: Final = 4
"""Bytes of memory that planning takes for each byte of a request, about."""
_STEP = 262_144  # bytes that are decompressed at once
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


def checked_path(method: str, raw: bytes) -> str:
    """Return a path unchanged, or refuse one that leads out of the upstream's address."""
    if method not in _METHODS:
        raise Refusal(405, "bad_method", f"{method[:20]} is not relayed")
    decoded = unquote_to_bytes(raw)
    if (
        not raw.startswith(b"/")
        or b"\\" in decoded
        or any(byte <= 32 or byte == 127 for byte in raw)  # noqa: PLR2004 - controls, the space
        or any(step in (b".", b"..") for step in decoded.split(b"/"))
    ):
        raise Refusal(400, "bad_path", "a path that leads out of the upstream's address")
    try:
        return raw.decode("ascii")
    except UnicodeDecodeError:
        raise Refusal(400, "bad_path", "a path has letters that are not ASCII") from None


class Gone(Exception):  # noqa: N818 - named for what happened
    """The client hung up."""


class IdleMemory(Protocol):
    """Memory that can be given up for requests: conversations that nobody asks now."""

    @property
    def held_bytes(self) -> int:
        """How much it takes."""
        ...

    def drop_idle(self, size: int) -> None:
        """Give up at least `size` bytes, if there are so many."""
        ...


class Room:
    """The bytes that all requests under way and all idle conversations may hold in memory."""

    def __init__(self, most: int, idle: IdleMemory | None = None) -> None:
        self.most, self.taken = most, 0
        self._idle = idle
        self.refused: Counter[str] = Counter()
        """Requests that a bound refused, by its name."""

    @property
    def held(self) -> int:
        """The bytes that idle conversations hold."""
        return self._idle.held_bytes if self._idle is not None else 0

    def take_bytes(self, size: int) -> bool:
        """Take some bytes, in place of the oldest idle conversations; False if none are left."""
        lacking = self.taken + self.held + size - self.most
        if lacking > 0 and self._idle is not None:
            self._idle.drop_idle(lacking)
        if self.taken + self.held + size > self.most:
            return False
        self.taken += size
        return True


class Share:
    """One request's share of the room."""

    __slots__ = ("_size", "room")

    def __init__(self, room: Room) -> None:
        self.room, self._size = room, 0

    def reserve_bytes(self, size: int) -> None:
        """Take some more bytes, or refuse the request."""
        if not self.room.take_bytes(size):
            self.room.refused["memory"] += 1
            raise Refusal(503, "full", "too many large requests are here; come back", retry=1)
        self._size += size

    def release_bytes(self) -> None:
        """Give all bytes back."""
        self.room.taken -= self._size
        self._size = 0


class RequestBody:
    """A request's body as it came, and as it reads."""

    def __init__(
        self,
        sent: bytes,
        encoding: bytes | None,
        dialect: Dialect | None,
        *,
        limits: GatewayLimits,
        share: Share,
    ) -> None:
        self.sent, self._encoding, self._dialect = sent, encoding, dialect
        self._limits, self._share = limits, share
        self._plain: bytes | None = None
        self._is_read = False

    async def read(self) -> bytes | None:
        """Return the body decompressed; None if only the upstream may know how to read it.

        It is decompressed and counted once. Raises `Refusal` if it is more than may be read.
        """
        if not self._is_read:
            most = self._limits.body
            self._plain = self.sent
            if self._encoding:
                self._plain = await decode_body(
                    self.sent, self._encoding, most=most, share=self._share
                )
            if self._plain is not None:
                # What is made of a request while it is planned: texts, hashes, events, a new body.
                self._share.reserve_bytes(len(self._plain) * PLANNING)
                await run_beside(partial(self._check_counts, self._plain), size=len(self._plain))
            self._is_read = True
        return self._plain

    def _check_counts(self, plain: bytes) -> None:
        """Refuse a body of too many values or messages, before any of them is read."""
        if has_more_values(plain, self._limits.values):
            self._refuse_count("values", self._limits.values)
        listed = self._list_messages(plain)
        if len(listed) > self._limits.messages:
            self._refuse_count("messages", self._limits.messages)

    def _list_messages(self, plain: bytes) -> list[msgspec.Raw]:
        dialect = self._dialect
        if dialect is None:
            return []
        try:
            for name, place in find_fields(plain).items():
                if dialect.aliases.get(name, name) == dialect.messages:
                    raw = memoryview(plain)[place.start : place.end]
                    return msgspec.json.decode(raw, type=list[msgspec.Raw])
        except (WireError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # whoever reads it says so
        return []

    def _refuse_count(self, name: str, most: int) -> None:
        self._share.room.refused[name] += 1
        words = f"the request has more than {most:,} {name}; gateway.max_{name} allows more"
        code = "too_many_messages" if name == "messages" else "too_many_values"
        raise Refusal(413, code, words)


async def read_request_body(
    receive: Receive, stated: bytes | None, *, most: int, share: Share
) -> bytes:
    """Read a request's body of at most `most` bytes; raises `Gone` if the client hangs up."""
    if stated is not None and stated.isdigit() and int(stated) > most:
        raise _too_large(most)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        if chunk := message.get("body", b""):
            share.reserve_bytes(len(chunk))
            size += len(chunk)
            chunks.append(chunk)
            if size > most:
                raise _too_large(most)
        if not message.get("more_body", False):
            return await run_beside(partial(b"".join, chunks), size=size)


async def decode_body(body: bytes, encoding: bytes, *, most: int, share: Share) -> bytes | None:
    """Decompress a body, in steps; None if only the upstream may know how to read it."""
    copy = Copy(encoding, most=most)
    pieces: list[bytes] = []
    size = 0
    for piece in copy.iterate_pieces(body):
        share.reserve_bytes(len(piece))
        size += len(piece)
        pieces.append(piece)
        await asyncio.sleep(0)
    if copy.large:
        raise _too_large(most)
    if not (copy.readable and copy.ended):
        return None
    return await run_beside(partial(b"".join, pieces), size=size)


def _too_large(most: int) -> Refusal:
    return Refusal(413, "too_large", f"the request is larger than {most:,} bytes")


class Copy:
    """Decodes a copy of bytes as they pass, until it meets a bomb or nonsense."""

    def __init__(self, encoding: bytes, *, most: int) -> None:
        encoding = encoding.strip().lower()
        window = _WINDOW.get(encoding)
        self.readable = window is not None or encoding in (b"", b"identity")
        self.large = False
        self._left = most
        self._inflate = zlib.decompressobj(window) if window is not None else None

    @property
    def ended(self) -> bool:
        """Whether the data is complete with nothing behind it, which others might read too."""
        return self._inflate is None or (self._inflate.eof and not self._inflate.unused_data)

    def feed(self, chunk: bytes) -> bytes:
        """Decode the next chunk; b"" once the data cannot be read."""
        return self._decode(chunk, self._left + 1)

    def iterate_pieces(self, body: bytes) -> Iterator[bytes]:
        """Decode all of the data, in pieces that take no memory before they are asked for."""
        for at in range(0, len(body), _STEP):
            chunk = body[at : at + _STEP]
            while self.readable:
                most = min(_STEP, self._left + 1)
                piece = self._decode(chunk, most)
                yield piece
                if self._inflate is None or self._inflate.eof:
                    break
                chunk = self._inflate.unconsumed_tail
                if not chunk and len(piece) < most:
                    break
            if self._inflate is not None and self._inflate.eof and at + _STEP < len(body):
                self.readable = False  # others might read what is behind it
            if not self.readable:
                return

    def _decode(self, chunk: bytes, most: int) -> bytes:
        if not self.readable:
            return b""
        try:
            if self._inflate is not None:
                chunk = self._inflate.decompress(chunk, most)
        except zlib.error:
            self.readable = False
            return b""
        self._left -= len(chunk)
        if self._left < 0:
            self.readable, self.large = False, True
            return b""
        return chunk
