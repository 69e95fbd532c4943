r"""Bytes that go along with a message: from a pipe, a file or a command.

    attach_bytes("standard input", body)   →  Attachment(parts, note)

Each has a heading that names it and its size. Bytes that are not UTF-8 are written as `\xNN`, so
that nothing is lost; a picture becomes a picture. What is too large for the window is clipped by
the session as every message is, with a handle to the whole.
"""

import base64
from collections.abc import Sequence
from typing import NamedTuple

from foldline.agent.tools.read_files import detect_picture_type
from foldline.apps.cli.exit_codes import TooMuch
from foldline.core.names import format_count
from foldline.core.parts import Media, Part, Text, replace_surrogates
from foldline.core.tokens import count_parts

LARGEST = 16_000_000
"""Bytes that are taken from one source; the rest would only be stored."""


class Attachment(NamedTuple):
    """What is added to a message."""

    name: str
    parts: tuple[Part, ...]
    size: int
    """Its bytes."""
    note: str = ""
    """What was changed on the way, for the person; "" if nothing was."""

    @property
    def tokens(self) -> int:
        """How much of the window it would take whole."""
        return count_parts(self.parts)


def attach_bytes(name: str, body: bytes) -> Attachment:
    """Turn bytes into parts of a message, under a heading with their name."""
    if len(body) > LARGEST:
        raise TooMuch(name, LARGEST)
    shown = replace_surrogates(name)
    if mime := detect_picture_type(body[:16]):
        about = Text(f"[{shown}: {mime}, {len(body):,} bytes]")
        picture = Media("image", mime, base64=base64.b64encode(body).decode(), name=shown)
        return Attachment(shown, (about, picture), len(body))
    text, note = _decode_whole(body)
    if len(text) > 4 * LARGEST:  # only escapes can make it so long
        raise TooMuch(name, LARGEST)
    lines = body.count(b"\n") + (not body.endswith(b"\n") and bool(body))
    size = f"{len(body):,} bytes, {format_count(lines, 'line')}"
    heading = f"[{shown}: {size}{f'; {note}' if note else ''}]"
    return Attachment(shown, (Text(f"{heading}\n{text}"),), len(body), note)


def join_message(words: str, attached: Sequence[Attachment]) -> tuple[Part, ...]:
    """Build a message: the person's words first, which a clip keeps, then what goes along."""
    texts, media = [replace_surrogates(words)] if words.strip() else [], list[Part]()
    for one in attached:
        texts += [part.text for part in one.parts if isinstance(part, Text)]
        media += [part for part in one.parts if not isinstance(part, Text)]
    return (Text("\n\n".join(texts)), *media)


def _decode_whole(body: bytes) -> tuple[str, str]:
    r"""Decode bytes without losing any: what is not UTF-8 is written as `\xNN`."""
    try:
        return body.decode(), ""
    except UnicodeDecodeError:
        pass
    if body[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            text = body.decode("utf-16")
        except UnicodeDecodeError:
            pass
        else:
            if text.encode("utf-16-le" if body[:1] == b"\xff" else "utf-16-be") == body[2:]:
                return text, "it was UTF-16"
    text = body.decode(errors="backslashreplace")
    strange = len(body) - len(body.decode(errors="ignore").encode())
    return text, rf"{format_count(strange, 'byte')} that are not UTF-8 are written as \xNN"
