"""Parses server-sent events from chunks of bytes that may be cut anywhere, and writes them.

Handles CR, LF and CRLF, comments, data over several lines, and a byte order mark.
"""

import re
from typing import NamedTuple

from foldline.errors import WireError

LARGEST = 64_000_000  # bytes of one event: a line that never ends must not fill the memory
_ENDS = re.compile(rb"\r\n|\r|\n")
_MARK = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One event; `whole` is False if the stream ended before its blank line."""

    event: str
    data: str
    whole: bool = True


def write_event(sent: SseEvent) -> bytes:
    """Write an event as a server sends it; one that is called "message" needs no name."""
    name = "" if sent.event == "message" else f"event: {sent.event}\n"
    lines = "".join(f"data: {line}\n" for line in sent.data.split("\n"))
    return f"{name}{lines}\n".encode()


class SseReader:
    """Parses one stream as its bytes arrive."""

    def __init__(self, *, largest: int = LARGEST) -> None:
        self._largest = largest
        self._line = bytearray()  # the unfinished line
        self._after_cr = False  # an LF that comes next belongs to the CR
        self._first = True
        self._event = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Add a chunk and return the events that it completes."""
        if not chunk:
            return []
        if self._after_cr and chunk[0] == ord("\n"):
            chunk = chunk[1:]
        *ended, rest = _ENDS.split(chunk)
        self._after_cr = chunk.endswith(b"\r")
        sent: list[SseEvent] = []
        for end in ended:
            self._append_bytes(end)
            sent += self._parse_line()
        self._append_bytes(rest)
        return sent

    def close(self) -> list[SseEvent]:
        """End the stream and return the event that lacks its blank line, if any."""
        if self._line:
            self._parse_line()
        return [self._dispatch_event(whole=False)] if self._data else []

    def _append_bytes(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._largest:
            raise WireError(f"an event of more than {self._largest:,} bytes; the stream is broken")
        self._line += piece

    def _parse_line(self) -> list[SseEvent]:
        """Parse the line, which is now complete."""
        line = bytes(self._line)
        self._line.clear()
        if self._first:
            self._first, line = False, line.removeprefix(_MARK)
        if not line:
            if self._data:
                return [self._dispatch_event()]
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
                self._size -= len(line)  # a comment, or a field that we ignore
        return []

    def _dispatch_event(self, *, whole: bool = True) -> SseEvent:
        sent = SseEvent(self._event or "message", "\n".join(self._data), whole)
        self._event, self._data, self._size = "", [], 0
        return sent
