"""The parts of messages, and the small values that edits store.

Media tokens follow the dearest of the providers' published rules: pictures by patches of 28 pixels,
sound by the second, files by pages. Of media only the image size is decoded.
"""

import base64
import binascii
from collections.abc import Iterable
from math import ceil, sqrt
from typing import Literal, TypeAlias

import msgspec

_PATCH = 28
_LARGEST_SIDE = 2_576
_MOST_PATCHES = 4_784
_UNKNOWN_PICTURE = 1_600
_SOUND_BYTES, _SOUND_TOKENS = 16_000, 32  # a second of mp3
_PAGE_BYTES, _PAGE_TOKENS = 50_000, 3_000


class _Part(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    """A piece of a message, in the order the speaker gave it."""


class Media(_Part, frozen=True, omit_defaults=True, tag="media"):
    """An image, a sound or a file: by address, or by its base64 text."""

    form: Literal["image", "audio", "file"]
    mime: str = ""
    url: str = ""
    base64: str = ""
    name: str = ""


def media_tokens(part: Media) -> int:
    """Estimate what a provider would charge for media, or a bit more."""
    size = len(part.base64) * 3 // 4
    match part.form:
        case "image":
            dimensions = _parse_image_size(part.base64)
            return _count_picture_tokens(*dimensions) if dimensions else _UNKNOWN_PICTURE
        case "audio":
            return max(ceil(size / _SOUND_BYTES), 1) * _SOUND_TOKENS
        case "file":
            return max(ceil(size / _PAGE_BYTES), 1) * _PAGE_TOKENS


def _count_picture_tokens(width: int, height: int) -> int:
    scale = min(1.0, _LARGEST_SIDE / max(width, height, 1))
    patches = (width * scale / _PATCH) * (height * scale / _PATCH)
    scale *= min(1.0, sqrt(_MOST_PATCHES / max(patches, 1)))
    return max(ceil(width * scale / _PATCH) * ceil(height * scale / _PATCH), 1)


def _parse_image_size(text: str) -> tuple[int, int] | None:
    """Parse width and height from the first bytes of a PNG, GIF, JPEG or WebP."""
    try:
        head = base64.b64decode(text[:65_536], validate=False)
    except (binascii.Error, ValueError):
        return None
    if head.startswith(b"\x89PNG") and len(head) >= 24:  # noqa: PLR2004
        return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    if head.startswith(b"GIF8") and len(head) >= 10:  # noqa: PLR2004
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    if head.startswith(b"RIFF") and head[8:15] == b"WEBPVP8" and len(head) >= 30:  # noqa: PLR2004
        return _parse_webp_size(head)
    return _parse_jpeg_size(head) if head.startswith(b"\xff\xd8") else None


def _parse_webp_size(head: bytes) -> tuple[int, int]:
    match head[15:16]:
        case b"X":
            width, height = head[24:27], head[27:30]
            return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
        case b"L":
            bits = int.from_bytes(head[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case _:
            width, height = (int.from_bytes(head[at : at + 2], "little") for at in (26, 28))
            return width & 0x3FFF, height & 0x3FFF


def _parse_jpeg_size(head: bytes) -> tuple[int, int] | None:
    """Parse the frame header, found by hopping from segment to segment."""
    at = 2
    while at + 9 < len(head) and head[at] == 0xFF:  # noqa: PLR2004
        marker, length = head[at + 1], int.from_bytes(head[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # noqa: PLR2004
            height, width = head[at + 5 : at + 7], head[at + 7 : at + 9]
            return int.from_bytes(width, "big"), int.from_bytes(height, "big")
        at += 2 + length
    return None


class Text(_Part, frozen=True, omit_defaults=True, tag="text"):
    """Words."""

    text: str


class Gap(_Part, frozen=True, omit_defaults=True, tag="gap"):
    """A place where a clip left something out; `text` is the marker's first line."""

    text: str


class Thought(_Part, frozen=True, omit_defaults=True, tag="thought"):
    """A model's reasoning; `signature` binds it to its provider and must never be altered."""

    text: str = ""
    signature: str = ""
    free: bool = False
    """Whether the signature binds it to its provider alone, and not to the words before it."""


class Call(_Part, frozen=True, omit_defaults=True, tag="call"):
    """A model's request to run a tool; `arguments` is what it wrote, valid JSON or not."""

    id: str
    name: str
    arguments: str = "{}"


Part: TypeAlias = Text | Gap | Media | Thought | Call


class Native(msgspec.Struct, frozen=True, omit_defaults=True):
    """A provider's own JSON of a message, kept where the neutral form would lose something."""

    dialect: str
    body: str


class Clip(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is shown of an event that was too large, decided once when it arrived."""

    parts: tuple[Part, ...]
    how: str
    whole: int
    shown: int
    recall: bool = True
    """Whether the model had a tool that gives the whole back, so that the marker points to it."""


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool the model may call; `schema` is the JSON Schema of its arguments, as text."""

    name: str
    description: str = ""
    schema: str = "{}"
    native: Native | None = None
    deferred: bool = False
    """Whether the provider shows it to the model only where the conversation refers to it."""


class Echo(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer in the bytes in which a client repeats it, where ours would differ."""

    seq: int
    native: Native


class Proxied(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of a client's own request: enough to see what it changed and what we changed."""

    body: str
    """The sha256 of the bytes that were sent."""
    chain: str
    """The digest of the client's messages, normalised, one after the other."""
    messages: int = 0
    """The number of messages, without system messages."""
    system: str = ""
    tools: str = ""
    fields: str = ""
    """Digests of the system prompt, of the tools, and of all other fields."""
    patches: dict[str, int] = {}
    """The number of our patches by kind: fold, clip, stub, thinking, limit, budget."""
    marks: tuple[int, ...] = ()
    """The messages in which the client placed a cache mark."""
    same: int = 0
    """How many leading messages had the same bytes as in the request before."""

    @property
    def lowers_budget(self) -> bool:
        """Whether we lowered its thinking budget: a change of it empties Anthropic's cache."""
        return "budget" in self.patches


FactKind: TypeAlias = Literal[
    "todo", "file", "test", "call", "error", "command", "decision", "link", "said", "found", "name",
    "where",
]  # fmt: skip


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a ledger: what is known of one thing, and the newest event it rests on."""

    seq: int
    kind: FactKind
    key: str
    text: str = ""
    count: int = 1
    """How often it occurred."""
    weight: float = 0
    """How much it says for each of its tokens, among all that was said; for what was said or
    found."""


class Stub(msgspec.Struct, frozen=True, omit_defaults=True):
    """The text shown in place of one event."""

    seq: int
    text: str


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a narrative: its section, its words, and the events it rests on.

    A sentence that cites nothing rests on the whole span: `seqs` are its two ends.
    """

    section: str
    text: str
    seqs: tuple[int, ...]


def text_of(parts: Iterable[Part]) -> str:
    """Join the words of parts by line ends; calls and media are not words."""
    return "\n".join(part.text for part in parts if isinstance(part, Text | Gap | Thought))


def spoken_text_of(parts: Iterable[Part]) -> str:
    """Join the words of parts by line ends, without thoughts."""
    return text_of(part for part in parts if not isinstance(part, Thought))


def render_parts(parts: Iterable[Part]) -> str:
    """Render what was said for a reader: media are named, thoughts and calls left out."""
    said = (part for part in parts if not isinstance(part, Thought | Call))
    return "\n".join(f"[{p.form}]" if isinstance(p, Media) else text_of((p,)) for p in said)


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded, by the replacement character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def calls_of(parts: Iterable[Part]) -> tuple[Call, ...]:
    """Select the calls among parts."""
    return tuple(part for part in parts if isinstance(part, Call))
