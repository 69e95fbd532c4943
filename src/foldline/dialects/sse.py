"""Server-sent events out of bytes that were cut anywhere.

Knows the standard's lines and fields: CR, LF and CRLF, comments, data over several lines, a byte
order mark. Refuses to know what an event's data means, and where the bytes come from.
"""

import re
from typing import NamedTuple

from foldline.errors import WireError

LARGEST = 64_000_000  # bytes of one event: a stream that never ends a line must not take the memory
_ENDS = re.compile(rb"\r\n|\r|\n")
_MARK = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One event; `whole` is False where the stream ended before the blank line behind it."""

    event: str
    data: str
    whole: bool = True


class SseReader:
    """The events of one stream, as its bytes arrive."""

    def __init__(self, *, largest: int = LARGEST) -> None:
        self._largest = largest
        self._line = bytearray()  # what has come of a line without its end
        self._after_cr = False  # an LF that comes next belongs to it
        self._first = True
        self._event = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Take in what was read; gives the events that are complete with it."""
        if not chunk:
            return []
        if self._after_cr and chunk[0] == ord("\n"):
            chunk = chunk[1:]
        *ended, rest = _ENDS.split(chunk)
        self._after_cr = chunk.endswith(b"\r")
        sent: list[SseEvent] = []
        for end in ended:
            self._grow(end)
            sent += self._take()
        self._grow(rest)
        return sent

    def close(self) -> list[SseEvent]:
        """The stream has ended: what it left without a blank line behind it."""
        if self._line:
            self._take()
        return [self._dispatch(whole=False)] if self._data else []

    def _grow(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._largest:
            raise WireError(f"an event of more than {self._largest:,} bytes; the stream is broken")
        self._line += piece

    def _take(self) -> list[SseEvent]:
        """One line, which is whole now."""
        line = bytes(self._line)
        self._line.clear()
        if self._first:
            self._first, line = False, line.removeprefix(_MARK)
        if not line:
            if self._data:
                return [self._dispatch()]
            self._event, self._size = "", 0
            return []
        name, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        match name:
            case b"data":
                self._data.append(text)
            case b"event":
                self._event = text
            case _:
                self._size -= len(line)  # a comment, or a field that says nothing to us
        return []

    def _dispatch(self, *, whole: bool = True) -> SseEvent:
        sent = SseEvent(self._event or "message", "\n".join(self._data), whole)
        self._event, self._data, self._size = "", [], 0
        return sent
