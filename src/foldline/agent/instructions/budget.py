"""How much of each file is told: R-59.

Room goes to the nearest file first, whatever order they are shown in; what does not fit is cut at a
character, with a notice (A-23). Both limits hold at once: tokens, and bytes. Knows texts and sizes.
Refuses to know files.
"""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from foldline.core import truncate
from foldline.core.tokens import count

TOKENS = 8_000
BYTES = 32 * 1024
NOTICE = "[instructions truncated to fit limit]"
_JOINERS = {"\u200d", "\ufe0e", "\ufe0f"}
_SKIN = range(0x1F3FB, 0x1F400)  # modifiers that change the emoji before them


class FilePiece(NamedTuple):
    """A file's words, and how they are to be told."""

    head: str
    """The line above them."""
    text: str
    size: int
    """Bytes of the whole file; more than the text's where it was not read to its end."""
    near: tuple[int, ...] = ()
    """The smaller, the nearer."""
    newest: bool = False
    """Whether its end is kept, and not its beginning."""
    whole: bool = True
    """Whether the file was read to its end."""


class Fit(NamedTuple):
    """What is told of a piece: None where there is no room even for a notice."""

    text: str | None
    tokens: int
    whole: bool


class RoomLeft(NamedTuple):
    """What is left."""

    tokens: int
    size: int

    def holds(self, text: str) -> bool:
        """Whether a text fits."""
        return len(text.encode()) <= self.size and count(text) <= self.tokens

    def without(self, text: str) -> "RoomLeft":
        """What a text leaves."""
        return RoomLeft(self.tokens - count(text), self.size - len(text.encode()))


def fitted(pieces: Sequence[FilePiece], room: RoomLeft) -> list[Fit]:
    """What is told of each piece, in the order given; the nearest has had its room first."""
    found: dict[int, Fit] = {}
    for at in sorted(range(len(pieces)), key=lambda at: pieces[at].near):
        fit = fitting(pieces[at], room)
        room = room.without(fit.text) if fit.text is not None else room
        found[at] = fit
    return [found[at] for at in range(len(pieces))]


def fitting(piece: FilePiece, room: RoomLeft) -> Fit:
    """As much of a piece as a room holds."""
    whole = f"{piece.head}\n{piece.text}"
    if piece.whole and room.holds(whole):
        return Fit(whole, count(whole), whole=True)
    kept = piece.text
    left = room.without(_told(piece, ""))
    if left.tokens < 0 or left.size < 0:
        return Fit(None, 0, whole=False)
    while True:
        kept = _cut(kept, left, newest=piece.newest)
        text = _told(piece, kept)
        if room.holds(text) or not kept:
            # The notice alone was found to fit with other figures in it.
            return Fit(text, count(text), whole=False) if room.holds(text) else Fit(None, 0, False)  # noqa: FBT003
        # A part may weigh more than in its whole, and the notice's figures grow.
        left = RoomLeft(min(left.tokens, count(kept)) - 1, min(left.size, len(kept.encode())) - 1)


def _told(piece: FilePiece, kept: str) -> str:
    notice = f"{NOTICE}\n{len(kept.encode()):,} of {piece.size:,} bytes"
    parts = (piece.head, notice, kept) if piece.newest else (piece.head, kept, notice)
    return "\n".join(part for part in parts if part)


def _cut(text: str, room: RoomLeft, *, newest: bool) -> str:
    if room.tokens <= 0 or room.size <= 0:
        return ""
    if newest:
        end = text.encode()[-room.size :].decode(errors="ignore")
        return truncate.tail(end, room.tokens).strip("\n")
    start = text.encode()[: room.size].decode(errors="ignore")
    return _unjoined(text, truncate.head(start, room.tokens)).rstrip("\n")


def _unjoined(text: str, kept: str) -> str:
    """The same without a letter whose accents or joined parts were cut off."""
    end = len(kept)
    while 0 < end < len(text) and (_joins(text[end]) or text[end - 1] == "\u200d"):
        end -= 1
    return text[:end]


def _joins(letter: str) -> bool:
    return bool(unicodedata.combining(letter)) or letter in _JOINERS or ord(letter) in _SKIN
