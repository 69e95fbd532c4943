"""What a server answers, as parts of a message: the one way in for all of it (R-57).

Knows every kind of content. What it does not know, and media that no provider would take, is
carried as JSON: nothing is dropped, but what is for the host alone (`_meta`, annotations).
"""

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any, Literal

from foldline.agent.tool import Result
from foldline.core.parts import Media, Part, Text, sound

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

_HOSTS = {"_meta", "annotations", "icons"}  # fields that are no content
_NOTHING = "[the tool answered with no content]"


def result_of(answer: "CallToolResult") -> Result:
    """What a call came to."""
    parts = [_part(block) for block in answer.content]
    structured = answer.structured_content
    if structured is not None and not _said(structured, parts):
        parts.append(Text(_json(structured)))
    return Result(tuple(parts) or (Text(_NOTHING),), not answer.is_error)


def _part(block: "ContentBlock") -> Part:
    from mcp_types import (  # noqa: PLC0415 - an extra, and it takes a second
        AudioContent,
        BlobResourceContents,
        EmbeddedResource,
        ImageContent,
        TextContent,
    )

    match block:
        case TextContent():
            return Text(sound(block.text))
        case ImageContent() | AudioContent():
            return _media(block.type, block.mime_type, block.data) or _carried(block)
        case EmbeddedResource():
            held = block.resource
            mime = held.mime_type or ""
            if isinstance(held, BlobResourceContents):
                return _media(_form(mime), mime, held.blob, name=held.uri) or _carried(block)
            title = " ".join(word for word in ("resource", held.uri, mime) if word)
            return Text(sound(f"[{title}]\n{held.text}"))
        case _:
            return _carried(block)


def _form(mime: str) -> Literal["image", "audio", "file"]:
    kind = mime.partition("/")[0].lower()
    return "image" if kind == "image" else "audio" if kind == "audio" else "file"


def _media(
    form: Literal["image", "audio", "file"], mime: str, data: str, *, name: str = ""
) -> Media | None:
    """A picture, a sound or a file; None where its data is no base64: a provider would refuse it.

    A request with it would be refused for good, whatever is said next.
    """
    try:
        whole = base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        return None
    if not whole or (form != "file" and _form(mime) != form):
        return None
    return Media(form, mime=sound(mime), base64=base64.b64encode(whole).decode(), name=sound(name))


def _carried(block: "ContentBlock") -> Text:
    """A block as its JSON."""
    body = block.model_dump(mode="json", by_alias=True, exclude_none=True)
    return Text(_json({key: value for key, value in body.items() if key not in _HOSTS}))


def _said(structured: Any, parts: list[Part]) -> bool:
    """Whether a text says the same: servers repeat structured content for older hosts."""
    return any(_read(part.text) == structured for part in parts if isinstance(part, Text))


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json(body: Any) -> str:
    return sound(json.dumps(body, ensure_ascii=False))
