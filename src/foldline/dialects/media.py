"""Pictures, sounds and files: of which kind they are, and the words that stand for them.

Knows kinds by their names, and text in base64. Refuses to know which kinds a dialect takes.
"""

import base64
import binascii

from foldline.core.parts import Media, Part, text_of

_ALIASES = {
    "image/jpg": "image/jpeg",
    "audio/mp3": "audio/mpeg",
    "audio/x-mp3": "audio/mpeg",
    "audio/x-mpeg": "audio/mpeg",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "application/x-pdf": "application/pdf",
}


def kind(media: Media) -> str:
    """Its kind by the one name that it is registered under."""
    given = media.mime.partition(";")[0].strip().lower()
    return _ALIASES.get(given, given)


def text(media: Media) -> str | None:
    """What a file says, if it is a text in UTF-8."""
    if not kind(media).startswith("text/"):
        return None
    try:
        return base64.b64decode(media.base64, validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def named(media: Media) -> str:
    """What stands for it where there may be only words."""
    address = f"at {media.url}" if media.url else ""
    return f"[{' '.join(word for word in (media.form, media.name, address) if word)}]"


def untaken(media: Media) -> str:
    """What stands for it where its kind is not taken."""
    address = f"at {media.url}" if media.url else ""
    told = (media.form, media.name, media.mime, address)
    return f"[{' '.join(word for word in told if word)}: this model takes none]"


def words(part: Part) -> str:
    """A part where there may be only words."""
    return named(part) if isinstance(part, Media) else text_of((part,))
