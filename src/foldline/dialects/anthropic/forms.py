"""Content blocks ↔ parts: what one block means, and how a part is written as one.

Knows text, media, calls, results and thoughts. Refuses to know messages: who says a block, and what
stands beside it. A block that has no neutral form is named by a gap; its own JSON goes back.
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from foldline.core.parts import Call, Gap, Media, Part, Text, Thought, text_of
from foldline.dialects import media as kinds
from foldline.dialects.anthropic.blocks import Block, Content, text
from foldline.dialects.json_reader import Json
from foldline.dialects.tools import Names

REDACTED = "[redacted thinking]"
LONGEST_NAME = 128
"""Of a tool; a call that is of none of the request's tools may have a longer one."""
LONGEST_CALLED = 200
_ANY = Names({}, LONGEST_CALLED)
_RAW = "_raw"  # the one key of arguments that are no object
_PICTURES = {"image/jpeg", "image/png", "image/gif", "image/webp"}
_PDF = "application/pdf"


def kind(block: Json) -> str:
    """A block's type; whatever else stands there is none that is known."""
    found = block.get("type")
    return found if isinstance(found, str) else ""


def is_blank(block: Json) -> bool:
    """Whether a block is a text without words: no provider takes it."""
    return kind(block) == "text" and not str(block.get("text") or "").strip()


def part(block: Json) -> Part:
    """What a block says."""
    match kind(block):
        case "text":
            return Text(str(block.get("text", "")))
        case "thinking":
            return Thought(str(block.get("thinking", "")), str(block.get("signature") or ""))
        case "redacted_thinking":
            return Thought(REDACTED, str(block.get("data", "")))
        case "image" | "document":
            return _media(block)
        case other:
            return Gap(f"[{other or 'unreadable block'}]")


def spoken(blocks: Sequence[Block]) -> tuple[Part, ...]:
    """What a model says: its calls too, with their arguments as it wrote them."""
    return tuple(
        _call(block) if block.kind == "tool_use" else part(block.fields) for block in blocks
    )


def heard(content: Any) -> tuple[Part, ...]:
    """What a content says that is not the model's: calls and thoughts in it are only named."""
    return tuple(
        Gap(f"[{kind(block)}]") if isinstance(one := part(block), Thought) else one
        for block in blocks_of(content)
    )


def blocks_of(content: Any) -> list[Json]:
    """A content as a list of blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    found = cast("list[Any]", content) if isinstance(content, list) else []
    return [cast("Json", block) for block in found if isinstance(block, dict)]


def worded(some: Iterable[Part]) -> list[Part]:
    """Parts for a place that takes no media, the system or an answer: there they are named."""
    return [Text(kinds.named(one)) if isinstance(one, Media) else one for one in some]


def written(some: Iterable[Part], names: Names = _ANY) -> list[Block]:
    """Parts as blocks, without blank words, and without thoughts: those go back as they came."""
    found: list[Block] = []
    for one in some:
        match one:
            case Text(words) | Gap(words):
                found += [text(msgspec.json.encode(words))] if words.strip() else []
            case Media():
                found.append(_block(_written_media(one)))
            case Call(call_id, name, arguments):
                call = {"type": "tool_use", "id": call_id, "name": names.of(name)}
                found.append(_block({**call, "input": _input(arguments)}))
            case Thought():
                pass
    return found


def content(some: Iterable[Part], names: Names = _ANY) -> Content:
    """Parts as a content: one text alone is written as a string."""
    blocks = tuple(written(some, names))
    return Content(blocks, alone=len(blocks) == 1 and bool(blocks[0].words))


def result(call_id: str, some: tuple[Part, ...], *, ok: bool) -> Block:
    """A call's result as a block; blank words are no content."""
    said: str | list[msgspec.Raw] = text_of(some)
    if any(isinstance(one, Media) for one in some):
        said = [msgspec.Raw(block.body) for block in written(some)]
    block: Json = {"type": "tool_result", "tool_use_id": call_id}
    if isinstance(said, list) or said.strip():
        block["content"] = said
    return _block(block if ok else {**block, "is_error": True})


def _block(given: Json) -> Block:
    return Block(msgspec.json.encode(given))


class _Call(msgspec.Struct):
    id: Any = ""
    name: Any = ""
    input: msgspec.Raw = msgspec.Raw(b"null")


def _call(block: Block) -> Call:
    came = msgspec.json.decode(block.body, type=_Call)
    arguments = bytes(came.input).decode()
    given: Any = msgspec.json.decode(arguments)
    if isinstance(given, dict) and list(cast("Json", given)) == [_RAW]:
        wrote = cast("Json", given)[_RAW]
        arguments = wrote if isinstance(wrote, str) else arguments
    return Call(str(came.id), str(came.name), arguments)


def _input(arguments: str) -> Json:
    """Arguments as the object that this dialect wants."""
    try:
        given = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        given = None
    return cast("Json", given) if isinstance(given, dict) else {_RAW: arguments}


def _media(block: Json) -> Part:
    source = block.get("source")
    given = cast("Json", source) if isinstance(source, dict) else {}
    form = "image" if block["type"] == "image" else "file"
    name = str(block.get("title") or "")
    match given.get("type"):
        case "base64":
            mime, body = str(given.get("media_type", "")), str(given.get("data", ""))
            return Media(form, mime=mime, base64=body, name=name)
        case "url":
            return Media(form, url=str(given.get("url", "")), name=name)
        case "text":
            return Text(str(given.get("data", "")))
        case _:
            return Gap(f"[{block['type']}]")


def _written_media(media: Media) -> Json:
    """Pictures of four kinds, PDFs and texts; any other is named."""
    source = _source(media) if media.form != "audio" else None
    if source is None:
        return {"type": "text", "text": kinds.untaken(media)}
    if media.form == "image":
        return {"type": "image", "source": source}
    title = {"title": media.name} if media.name else {}
    return {"type": "document", "source": source, **title}


def _source(media: Media) -> Json | None:
    kind = kinds.kind(media)
    if media.url:
        return {"type": "url", "url": media.url}
    if media.base64 and (kind in _PICTURES if media.form == "image" else kind == _PDF):
        return {"type": "base64", "media_type": kind, "data": media.base64}
    said = kinds.text(media) if media.form == "file" else None
    if said and said.strip():
        return {"type": "text", "media_type": "text/plain", "data": said}
    return None
