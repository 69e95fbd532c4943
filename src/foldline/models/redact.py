"""Secrets taken out of a text before it goes where it need not: to a summariser, into a log.

Knows how a found secret is marked, and how log records are cleaned. Refuses to know which shapes
there are (`credential_patterns`), and to fail: a secret that is found changes the text and stops
nothing.

    redact('push with ghp_…')  →  'push with [redacted: github token]', 1 github token

The log itself keeps every byte; what is taken out of a summary is one recall away.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from foldline.models.credential_patterns import PARTS, SHAPES, CredentialPattern, compiled

_OWN = frozenset(vars(logging.makeLogRecord({})))
_FORMATTER = logging.Formatter()


class FoundSecret(NamedTuple):
    """What was found, never the secret itself."""

    kind: str
    times: int


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without its secrets, and what was taken out of it."""

    text: str
    found: tuple[FoundSecret, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything was found."""
        return bool(self.found)


def redact(text: str, *, shapes: Iterable[CredentialPattern] = SHAPES) -> Redacted:
    """The text with a mark for each secret; all else stays as it is. Twice is as once."""
    found: Counter[str] = Counter()
    small = _small(text)
    for shape in shapes:
        if spans := _secrets(text, shape, small=small):
            text = _marked(text, spans, kind=shape.kind)
            small = _small(text)
            found[shape.kind] += len(spans)
    return Redacted(text, tuple(FoundSecret(kind, times) for kind, times in found.items()))


def mark(kind: str) -> str:
    """What stands in a secret's place: the same for the same secret."""
    return f"[redacted: {kind}]"


def _small(text: str) -> str:
    """In small letters, each at its place: one letter alone becomes two."""
    return text.replace("\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}", "I").lower()


def _secrets(text: str, shape: CredentialPattern, *, small: str) -> list[tuple[int, int]]:
    """Where secrets of one shape stand, in order, none inside another."""
    looked = small if shape.small else text
    words = [word for word in shape.words if word in looked]
    if not words:
        return []  # the usual case, for most shapes in most texts
    spans: list[tuple[int, int]] = []
    end = 0
    for span in sorted(span for word in words for span in _from(looked, text, word, shape)):
        if span[0] >= end:
            spans.append(span)
            end = span[1]
    return spans


def _from(looked: str, text: str, word: str, shape: CredentialPattern) -> Iterator[tuple[int, int]]:
    try_at, at = compiled(shape.pattern).match, looked.find(word)
    while at >= 0:
        match = try_at(text, at - shape.back) if at >= shape.back else None
        if match is not None and (shape.judge is None or shape.judge(match)):
            yield _place(match)
            at = looked.find(word, match.end())
        else:
            at = looked.find(word, at + 1)


def _place(match: "re.Match[str]") -> tuple[int, int]:
    """Where in a match the secret stands: what the shape says, or all of it."""
    parts = match.re.groupindex
    return next((match.span(name) for name in PARTS if name in parts and match[name]), match.span())


def _marked(text: str, spans: list[tuple[int, int]], *, kind: str) -> str:
    pieces: list[str] = []
    at = 0
    for start, end in spans:
        pieces += (text[at:start], mark(kind))
        at = end
    return "".join((*pieces, text[at:]))


class Redacting(logging.Filter):
    """Cleans what is logged: message and arguments, the exception's text, the stack, extra fields.

    Put it on handlers: a logger's own filters do not see what its children log.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Clean the record in place, and let it pass, always."""
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - arguments that do not fit: logging says so itself
            message = f"{record.msg} {record.args}"
        if clean := redact(message):
            record.msg, record.args = clean.text, None
        if record.exc_info and not record.exc_text:
            said = _FORMATTER.formatException(record.exc_info)
            if redact(said):
                # The exception itself still holds the secret: only its cleaned text goes on.
                record.exc_text, record.exc_info = said, None
        if record.exc_text:
            record.exc_text = redact(record.exc_text).text
        if record.stack_info:
            record.stack_info = redact(record.stack_info).text
        for name, value in vars(record).items():
            if name not in _OWN and isinstance(value, str):
                setattr(record, name, redact(value).text)
        return True
