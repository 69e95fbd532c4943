"""How many tokens a picture, a sound or a file is: by rule, never as text.

Knows where formats write their size. Refuses to decode anything else. The rules are the dearest
of the providers' published ones: pictures by patches of 28 pixels, sound by the second, files by
pages.
"""

import base64
import binascii
from math import ceil, sqrt

from foldline.core.parts import Media

_PATCH = 28
_LARGEST_SIDE = 2_576
_MOST_PATCHES = 4_784
_UNKNOWN_PICTURE = 1_600
_SOUND_BYTES, _SOUND_TOKENS = 16_000, 32  # a second of mp3
_PAGE_BYTES, _PAGE_TOKENS = 50_000, 3_000


def media_tokens(part: Media) -> int:
    """What a provider would charge for it, or a bit more."""
    size = len(part.base64) * 3 // 4
    match part.form:
        case "image":
            dimensions = _dimensions(part.base64)
            return _picture(*dimensions) if dimensions else _UNKNOWN_PICTURE
        case "audio":
            return max(ceil(size / _SOUND_BYTES), 1) * _SOUND_TOKENS
        case "file":
            return max(ceil(size / _PAGE_BYTES), 1) * _PAGE_TOKENS


def _picture(width: int, height: int) -> int:
    scale = min(1.0, _LARGEST_SIDE / max(width, height, 1))
    patches = (width * scale / _PATCH) * (height * scale / _PATCH)
    scale *= min(1.0, sqrt(_MOST_PATCHES / max(patches, 1)))
    return max(ceil(width * scale / _PATCH) * ceil(height * scale / _PATCH), 1)


def _dimensions(text: str) -> tuple[int, int] | None:
    """Width and height from the first bytes of a PNG, GIF, JPEG or WebP."""
    try:
        head = base64.b64decode(text[:65_536], validate=False)
    except (binascii.Error, ValueError):
        return None
    if head.startswith(b"\x89PNG") and len(head) >= 24:  # noqa: PLR2004
        return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    if head.startswith(b"GIF8") and len(head) >= 10:  # noqa: PLR2004
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    if head.startswith(b"RIFF") and head[8:15] == b"WEBPVP8" and len(head) >= 30:  # noqa: PLR2004
        return _webp(head)
    return _jpeg(head) if head.startswith(b"\xff\xd8") else None


def _webp(head: bytes) -> tuple[int, int]:
    match head[15:16]:
        case b"X":
            width, height = head[24:27], head[27:30]
            return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
        case b"L":
            bits = int.from_bytes(head[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case _:
            width, height = head[26:28], head[28:30]
            return int.from_bytes(width, "little") & 0x3FFF, int.from_bytes(
                height, "little"
            ) & 0x3FFF


def _jpeg(head: bytes) -> tuple[int, int] | None:
    """The frame header, found by hopping from segment to segment."""
    at = 2
    while at + 9 < len(head) and head[at] == 0xFF:  # noqa: PLR2004
        marker, length = head[at + 1], int.from_bytes(head[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # noqa: PLR2004
            height, width = head[at + 5 : at + 7], head[at + 7 : at + 9]
            return int.from_bytes(width, "big"), int.from_bytes(height, "big")
        at += 2 + length
    return None
