"""Check what strangers send: a request's path, its size, and the size it decompresses to."""

import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes

from foldline.apps.gateway.error_response import Refusal

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
_GZIP = 16 + zlib.MAX_WBITS
_WINDOW = {b"gzip": _GZIP, b"x-gzip": _GZIP, b"deflate": zlib.MAX_WBITS}
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


class Room:
    """The bytes that all requests under way may hold in memory."""

    def __init__(self, most: int) -> None:
        self.most, self.taken = most, 0


class Share:
    """One request's share of the room."""

    __slots__ = ("_room", "_size")

    def __init__(self, room: Room) -> None:
        self._room, self._size = room, 0

    def reserve_bytes(self, size: int) -> None:
        """Take some more bytes, or refuse the request."""
        if self._room.taken + size > self._room.most:
            raise Refusal(503, "full", "too many large requests are here; come back", retry=1)
        self._room.taken += size
        self._size += size

    def release_bytes(self) -> None:
        """Give all bytes back."""
        self._room.taken -= self._size
        self._size = 0


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
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def decode_body(body: bytes, encoding: bytes, *, most: int) -> bytes | None:
    """Decompress a body; None if only the upstream may know how to read it."""
    copy = Copy(encoding, most=most)
    decoded = copy.feed(body)
    if copy.large:
        raise _too_large(most)
    return decoded if copy.readable and copy.ended else None


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
        if not self.readable:
            return b""
        try:
            if self._inflate is not None:
                chunk = self._inflate.decompress(chunk, self._left + 1)
        except zlib.error:
            self.readable = False
            return b""
        self._left -= len(chunk)
        if self._left < 0:
            self.readable, self.large = False, True
            return b""
        return chunk
