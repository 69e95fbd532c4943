"""Reads a provider's counts from an answer's bytes as they pass.

    reader = UsageReader(dialect.parse_usage)
    reader.feed(chunk)          # each chunk, cut anywhere, streamed or not
    reader.close()              # a UsageReported, or None

Of a stream only those lines are decoded that name usage, so that this costs next to nothing beside
relaying them.
"""

from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from foldline.core.log import UsageReported
from foldline.dialects.json_slices import Json
from foldline.errors import WireError

_MOST: Final = 16_000_000  # bytes of a body that is no stream, or of one line
_MARK: Final = b"\xef\xbb\xbf"


class _Counts(msgspec.Struct, omit_defaults=True):
    """The fields that may hold counts, as all dialects call them; others are skipped."""

    usage: Any = None
    usageMetadata: Any = None  # noqa: N815 - as Gemini writes it
    timings: Any = None
    x_groq: Any = None
    prompt_eval_count: Any = None
    eval_count: Any = None


class _Report(_Counts, omit_defaults=True):
    """An answer, or an event of a stream: in some events the answer holds the counts."""

    message: _Counts | None = None
    response: _Counts | None = None
    interaction: _Counts | None = None


_decode_report = msgspec.json.Decoder(_Report).decode
_decode_many = msgspec.json.Decoder(list[_Report]).decode


class UsageReader:
    """Reads one answer."""

    def __init__(self, parse: Callable[[Json], UsageReported | None]) -> None:
        self._parse = parse
        self.events = 0
        """The lines of a stream so far: about one for each token of the answer."""
        self._is_stream: bool | None = None
        self._pieces: list[bytes] = []  # of a body, or of a line that is not complete
        self._size = 0
        self._found: Json = {}

    def feed(self, chunk: bytes) -> None:
        """Read the next bytes."""
        if self._is_stream is None:
            begin = chunk.removeprefix(_MARK).lstrip()[:1]
            if not begin:
                return
            self._is_stream = begin not in (b"{", b"[")
        if not self._is_stream:
            self._hold(chunk)
            return
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._hold(chunk)
            return
        self.events += chunk.count(b"data:")
        if self._pieces:
            lines = b"".join((*self._pieces, chunk[:end]))
            self._pieces.clear()
            self._size = 0
        else:
            lines = chunk if end == len(chunk) else chunk[:end]
        if end < len(chunk):
            self._hold(chunk[end:])
        if b"usage" in lines or b"timings" in lines:  # every field of counts has one in its name
            self._read_lines(lines)

    def close(self) -> UsageReported | None:
        """Return the counts; None if there are none, or they cannot be read."""
        rest = b"".join(self._pieces)
        self._pieces.clear()
        if self._is_stream:
            self._read_lines(rest)
        elif rest:
            self._read_body(rest)
        if not self._found:
            return None
        try:
            return self._parse(self._found)
        except WireError:
            return None

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= _MOST:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def _read_lines(self, lines: bytes) -> None:
        for line in lines.splitlines():
            if line.startswith(b"data:") and (b"usage" in line or b"timings" in line):
                self._read_body(line[5:])

    def _read_body(self, body: bytes) -> None:
        body = body.removeprefix(_MARK).strip()
        try:
            reports = _decode_many(body) if body.startswith(b"[") else [_decode_report(body)]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        for one in reports:
            for counts in (one.message, one.response, one.interaction, one):
                if counts is not None:
                    self._merge(counts)

    def _merge(self, counts: _Counts) -> None:
        """Keep the newest of each count: some streams tell some first, and the rest at the end."""
        for name in _Counts.__struct_fields__:
            given = getattr(counts, name)
            if given is None:
                continue
            before = self._found.get(name)
            if isinstance(given, dict) and isinstance(before, dict):
                more = cast("Json", given)
                known = {key: value for key, value in more.items() if value is not None}
                self._found[name] = cast("Json", before) | known
            else:
                self._found[name] = given
