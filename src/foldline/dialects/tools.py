"""Names the tools of a request as its dialect accepts them, and describes media in words.

Also wraps arguments that are no object, for dialects that take nothing else.

A valid name is written as it is. Any other is written in a safe form that ends with a digest of the
name: the same in the tool's definition and in every call. The model calls the tool by its safe
name, so a caller that runs tools must look it up by the name in the request.

Of neutral tools with one name the last is written, in place of the first, as the SDKs' own tool
runners do. Tools that came in the dialect itself stay, even repeated.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from foldline.core.parts import Media, Part, Tool, text_of
from foldline.dialects.json_slices import Json, decode_object, object_of

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


def mime_of(media: Media) -> str:
    """Return the registered media type, without aliases and parameters."""
    mime = media.mime.partition(";")[0].strip().lower()
    return _ALIASES.get(mime, mime)


def decode_text(media: Media) -> str | None:
    """Return a file's text if it is UTF-8, else None."""
    if not mime_of(media).startswith("text/"):
        return None
    try:
        return base64.b64decode(media.base64, validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def describe_media(media: Media) -> str:
    """Describe media in words, for places that accept only text."""
    address = f"at {media.url}" if media.url else ""
    return f"[{' '.join(word for word in (media.form, media.name, address) if word)}]"


def describe_refused_media(media: Media) -> str:
    """Describe media of a type that the model does not accept."""
    address = f"at {media.url}" if media.url else ""
    words = (media.form, media.name, media.mime, address)
    return f"[{' '.join(word for word in words if word)}: this model takes none]"


def render_part(part: Part) -> str:
    """Render a part as text; media are described."""
    return describe_media(part) if isinstance(part, Media) else text_of((part,))


_RAW = "_raw"  # the one key of arguments that are not an object


def wrap_arguments(arguments: str) -> Json:
    """Return a call's arguments as an object; any other text becomes its one field."""
    given = decode_object(arguments)
    return {_RAW: arguments} if given is None else given


def unwrap_arguments(given: Json, written: str | None = None) -> str:
    """Return arguments as the model wrote them; `written` is the object's own text, if known."""
    if list(given) == [_RAW] and isinstance(given[_RAW], str):
        return given[_RAW]
    return msgspec.json.encode(given).decode() if written is None else written


def parse_object_schema(text: str) -> Json | None:
    """Parse a tool's schema, always as an object's; None if the text is no object."""
    if object_of(text) is None:
        return None
    schema = msgspec.json.decode(text)
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}


UNNAMED = "unnamed"
"""Name of a call without one: no provider accepts an empty name."""
_SIGNS = re.compile(r"[a-zA-Z0-9_-]+")
_BEGINS = re.compile(r"[a-zA-Z_]")
_OTHERS = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST = 8


@dataclass(frozen=True, slots=True)
class Names:
    """How the tools of one request are named."""

    written: Mapping[str, str]
    """Each tool's name → the name in its definition."""
    called: int
    """Maximum length of a call's name if it is none of these tools."""
    letter_first: bool = False
    """Whether a name may begin with neither a digit nor a hyphen."""

    def resolve_name(self, name: str) -> str:
        """Return the name that a tool is defined and called by."""
        name = name or UNNAMED
        if written := self.written.get(name):
            return written
        taken = self.written.values()
        return make_safe_name(name, self.called, taken=taken, letter_first=self.letter_first)


def build_tool_names(
    tools: Iterable[Tool], *, dialect: str, longest: int, called: int, letter_first: bool = False
) -> Names:
    """Assign each tool of a request a distinct valid name."""
    found: dict[str, str] = {}
    odd: list[str] = []
    for tool in tools:
        name = tool.name or UNNAMED
        if _came_in(tool, dialect) or _is_safe_name(name, longest, letter_first=letter_first):
            found[name] = name
        else:
            odd.append(name)
    for name in odd:
        taken = found.values()
        safe = make_safe_name(name, longest, taken=taken, letter_first=letter_first)
        found.setdefault(name, safe)
    return Names(found, called, letter_first)


def make_safe_name(
    name: str, longest: int, *, taken: Iterable[str] = (), letter_first: bool = False
) -> str:
    """Return a name that a dialect accepts; the name itself if it is valid."""
    if _is_safe_name(name, longest, letter_first=letter_first):
        return name
    stem = _OTHERS.sub("_", name)
    if letter_first and not _BEGINS.match(stem):
        stem = f"_{stem}"
    return append_digest(stem[: longest - _DIGEST - 1], name, digits=_DIGEST, taken=taken)


def append_digest(stem: str, name: str, *, digits: int, taken: Iterable[str] = ()) -> str:
    """Append a digest of the name to a stem: deterministic, and none of `taken`."""
    used, digest = {*taken}, name
    while True:
        digest = hashlib.sha256(digest.encode()).hexdigest()
        made = f"{stem}_{digest[:digits]}"
        if made not in used:
            return made


def select_tools(
    tools: Iterable[Tool],
    *,
    dialect: str,
    longest: int,
    called: int | None = None,
    letter_first: bool = False,
) -> tuple[list[Tool], Names]:
    """Select the tools to write, and name them; a call's name may be as long as `called`."""
    kept = drop_repeated_tools(tools, dialect=dialect)
    called = called or longest
    names = build_tool_names(
        kept, dialect=dialect, longest=longest, called=called, letter_first=letter_first
    )
    return kept, names


def drop_repeated_tools(tools: Iterable[Tool], *, dialect: str) -> list[Tool]:
    """Return the tools to write, in order and without repeated names."""
    given = [*tools]
    own = {tool.name for tool in given if _came_in(tool, dialect)}
    found: dict[str | int, Tool] = {}
    for place, tool in enumerate(given):
        if _came_in(tool, dialect):
            found[place] = tool
        elif tool.name not in own:
            found[tool.name or UNNAMED] = tool
    return [*found.values()]


def _came_in(tool: Tool, dialect: str) -> bool:
    return tool.native is not None and tool.native.dialect == dialect


def _is_safe_name(name: str, longest: int, *, letter_first: bool) -> bool:
    begins = not letter_first or _BEGINS.match(name) is not None
    return len(name) <= longest and begins and _SIGNS.fullmatch(name) is not None
