"""The kinds of content blocks, and their conversion to parts and back.

The kinds are named as the SDK's types name them: who says each, and what it is. A kind that is
missing here holds its place and goes back as it came; where it is folded it is gone. A test
compares the table with the types of the SDK, and fails when these have more.

A `Block` keeps its own bytes; its kind and ids are decoded only when asked for. A block without a
neutral form becomes a gap that names it, and its own JSON goes back.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec

from foldline.core.parts import Call, Gap, Media, Native, Part, Text, Thought, text_of
from foldline.dialects import tools as kinds
from foldline.dialects.json_slices import Json, dict_of, list_of, shaped_bytes
from foldline.dialects.tools import Names
from foldline.errors import WireError

Meaning: TypeAlias = Literal[
    "words", "media", "thought", "call", "result", "served", "summary", "state"
]
"""`served` is a call of the provider's own tools, or its result. A `summary` is the provider's, of
all that came before it. Later requests depend on `state`: where it is folded it is carried behind
the handoff."""


class BlockKind(NamedTuple):
    """The meaning of a block, and its places: in a message of a role, or in a tool's result."""

    meaning: Meaning
    places: tuple[str, ...]


_SAID, _SHOWN, _ANSWERED = ("user", "assistant", "system"), ("user", "result"), ("assistant",)
BLOCKS: Final[dict[str, BlockKind]] = {
    "text": BlockKind("words", (*_SAID, "result")),
    "image": BlockKind("media", _SHOWN),
    "document": BlockKind("media", _SHOWN),
    "search_result": BlockKind("media", _SHOWN),
    "browser_state": BlockKind("media", ("result",)),
    "thinking": BlockKind("thought", _ANSWERED),
    "redacted_thinking": BlockKind("thought", _ANSWERED),
    "tool_use": BlockKind("call", _ANSWERED),
    "tool_result": BlockKind("result", ("user",)),
    "tool_reference": BlockKind("state", ("result",)),
    "tool_search_tool_result": BlockKind("state", _ANSWERED),
    "tool_addition": BlockKind("state", ("system",)),
    "tool_removal": BlockKind("state", ("system",)),
    "container_upload": BlockKind("state", ("user", "assistant")),
    "compaction": BlockKind("summary", _ANSWERED),
    **dict.fromkeys(
        (
            *("server_tool_use", "mcp_tool_use", "mcp_tool_result", "mcp_tool_listing"),
            *("web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result"),
            *("bash_code_execution_tool_result", "text_editor_code_execution_tool_result"),
            *("advisor_tool_result", "fallback"),
        ),
        BlockKind("served", _ANSWERED),
    ),
}
MESSAGE_FIELDS: Final[dict[str, Literal["words", "state"]]] = {
    **dict.fromkeys(("role", "content", "clear_at"), "words"),
    "output_config": "state",
}
"""The fields of a message; those that are missing here are carried as state."""


def _find_meanings(meaning: Meaning) -> frozenset[str]:
    return frozenset(name for name, kind in BLOCKS.items() if kind.meaning == meaning)


def find_kinds(place: str) -> frozenset[str]:
    """Find the kinds of blocks that a place may hold."""
    return frozenset(name for name, kind in BLOCKS.items() if place in kind.places)


CALLS: Final = _find_meanings("call")
STATE: Final = _find_meanings("state")
SERVED_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})
"""Calls that the provider runs; it may pause there, and go on when the answer is sent back."""
SUMMARIES: Final = _find_meanings("summary")
THOUGHTS: Final = {"thinking": "signature", "redacted_thinking": "data"}
"""The blocks of thinking, and the field without which the provider takes none."""


REDACTED = "[redacted thinking]"
LONGEST_NAME = 128
"""Of a tool; a call to a tool that is not in the request may have a longer name."""
LONGEST_CALLED = 200
_ANY = Names({}, LONGEST_CALLED)
_PICTURES = {"image/jpeg", "image/png", "image/gif", "image/webp"}
_PDF = "application/pdf"


def kind_of_block(block: Json) -> str:
    """Return a block's type, "" if it is not a string."""
    found = block.get("type")
    return found if isinstance(found, str) else ""


def is_blank(block: Json) -> bool:
    """Whether a block is a text without words, which no provider accepts."""
    return kind_of_block(block) == "text" and not str(block.get("text") or "").strip()


def parse_block(block: Json) -> Part:
    """Convert a block to a part."""
    match kind_of_block(block):
        case "text":
            return Text(str(block.get("text", "")))
        case "thinking":
            return Thought(str(block.get("thinking", "")), str(block.get("signature") or ""))
        case "redacted_thinking":
            return Thought(REDACTED, str(block.get("data", "")))
        case "image" | "document":
            return _parse_media(block)
        case other:
            return Gap(f"[{other or 'unreadable block'}]")


class _Head(msgspec.Struct):
    type: Any = None
    text: Any = None
    tool_use_id: Any = None


@dataclass(frozen=True, slots=True)
class Block:
    """A block's JSON; `words` is the JSON of its text if it has nothing else."""

    body: bytes
    words: bytes = b""

    @property
    def fields(self) -> Json:
        """The decoded block."""
        return dict_of(msgspec.json.decode(self.body))

    @property
    def kind(self) -> str:
        """Its type, "" if it is not a string."""
        found = self._head.type
        return found if isinstance(found, str) else ""

    @property
    def answers(self) -> str:
        """The id of the call that a result answers."""
        found = self._head.tool_use_id
        return found if isinstance(found, str) else ""

    @property
    def blank(self) -> bool:
        """Whether it is a text without words, which no provider accepts."""
        head = self._head
        return head.type == "text" and not str(head.text or "").strip()

    @property
    def _head(self) -> _Head:
        if not self.body.startswith(b"{"):
            return _Head()  # an old log may hold anything
        return msgspec.json.decode(self.body, type=_Head)


def parse_model_blocks(blocks: Sequence[Block]) -> tuple[Part, ...]:
    """Convert a model's blocks; calls keep their arguments as written."""
    return tuple(
        _parse_call(block) if block.kind == "tool_use" else parse_block(block.fields)
        for block in blocks
    )


def parse_input_content(content: Any) -> tuple[Part, ...]:
    """Convert a content that is not the model's; calls and thoughts in it are only named."""
    return tuple(
        Gap(f"[{kind_of_block(block)}]") if isinstance(one := parse_block(block), Thought) else one
        for block in blocks_of(content)
    )


def blocks_of(content: Any) -> list[Json]:
    """Return a content as a list of blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [cast("Json", block) for block in list_of(content) if isinstance(block, dict)]


def replace_media_parts(some: Iterable[Part]) -> list[Part]:
    """Name media in words, for the system prompt and answers, which accept none."""
    return [Text(kinds.describe_media(one)) if isinstance(one, Media) else one for one in some]


def encode_parts(some: Iterable[Part], names: Names = _ANY) -> list[Block]:
    """Encode parts as blocks; skip blank words, and thoughts, which go back only as they came."""
    found: list[Block] = []
    for one in some:
        match one:
            case Text(words) | Gap(words):
                found += [make_text_block(msgspec.json.encode(words))] if words.strip() else []
            case Media():
                found.append(_encode_block(_written_media(one)))
            case Call(call_id, name, arguments):
                call = {"type": "tool_use", "id": call_id, "name": names.resolve_name(name)}
                found.append(_encode_block({**call, "input": kinds.wrap_arguments(arguments)}))
            case Thought():
                pass
    return found


@dataclass(frozen=True, slots=True)
class Content:
    """The blocks of a message, a system or a tool; `alone` if they are one string."""

    blocks: tuple[Block, ...]
    alone: bool = False

    @property
    def body(self) -> bytes:
        """Its JSON: one string, or the list of its blocks."""
        if self.alone:
            return self.blocks[0].words
        return b"[" + b",".join(block.body for block in self.blocks) + b"]"

    def make_native(self) -> Native:
        """Return its JSON, to be kept beside an event."""
        return Native(DIALECT, self.body.decode())


def encode_content(some: Iterable[Part], names: Names = _ANY) -> Content:
    """Encode parts as a content; a single text becomes a string."""
    blocks = tuple(encode_parts(some, names))
    return Content(blocks, alone=len(blocks) == 1 and bool(blocks[0].words))


def encode_result(call_id: str, some: tuple[Part, ...], *, ok: bool) -> Block:
    """Encode a call's result as a block; blank words are left out."""
    said: str | list[msgspec.Raw] = text_of(some)
    if any(isinstance(one, Media) for one in some):
        said = [msgspec.Raw(block.body) for block in encode_parts(some)]
    block: Json = {"type": "tool_result", "tool_use_id": call_id}
    if isinstance(said, list) or said.strip():
        block["content"] = said
    return _encode_block(block if ok else {**block, "is_error": True})


def _encode_block(given: Json) -> Block:
    return Block(msgspec.json.encode(given))


class _Call(msgspec.Struct):
    id: Any = ""
    name: Any = ""
    input: msgspec.Raw = msgspec.Raw(b"null")


def _parse_call(block: Block) -> Call:
    came = msgspec.json.decode(block.body, type=_Call)
    arguments = bytes(came.input).decode()
    given = dict_of(msgspec.json.decode(arguments))
    return Call(str(came.id), str(came.name), kinds.unwrap_arguments(given, arguments))


def _parse_media(block: Json) -> Part:
    source = dict_of(block.get("source"))
    form = "image" if block["type"] == "image" else "file"
    name = str(block.get("title") or "")
    match source.get("type"):
        case "base64":
            mime, body = str(source.get("media_type", "")), str(source.get("data", ""))
            return Media(form, mime=mime, base64=body, name=name)
        case "url":
            return Media(form, url=str(source.get("url", "")), name=name)
        case "text":
            return Text(str(source.get("data", "")))
        case _:
            return Gap(f"[{block['type']}]")


def _written_media(media: Media) -> Json:
    """Write images of four kinds, PDFs and texts; name any other."""
    source = _encode_source(media) if media.form != "audio" else None
    if source is None:
        return {"type": "text", "text": kinds.describe_refused_media(media)}
    if media.form == "image":
        return {"type": "image", "source": source}
    title = {"title": media.name} if media.name else {}
    return {"type": "document", "source": source, **title}


def _encode_source(media: Media) -> Json | None:
    kind = kinds.mime_of(media)
    if media.url:
        return {"type": "url", "url": media.url}
    if media.base64 and (kind in _PICTURES if media.form == "image" else kind == _PDF):
        return {"type": "base64", "media_type": kind, "data": media.base64}
    said = kinds.decode_text(media) if media.form == "file" else None
    if said and said.strip():
        return {"type": "text", "media_type": "text/plain", "data": said}
    return None


DIALECT = "anthropic"


def make_text_block(words: bytes) -> Block:
    """Make a text block from the JSON of its words."""
    return Block(b'{"type":"text","text":' + words + b"}", words)


def content_of(raw: bytes | msgspec.Raw, *, path: str = "$") -> Content:
    """Split a content, a string or a list of objects, into blocks."""
    if bytes(raw).startswith(b'"'):
        return Content((make_text_block(bytes(raw)),), alone=True)
    rows = shaped_bytes(raw, list[msgspec.Raw], "a list of blocks", path=path)
    for place, row in enumerate(rows):
        if not bytes(row).startswith(b"{"):
            where = f"{path}[{place}]"
            raise WireError(f"not a block: an object was expected at {where}", path=where)
    return Content(tuple(Block(bytes(row)) for row in rows))


def decode_native(native: Native | None) -> Content | None:
    """Return the content kept beside an event, if it is of this dialect."""
    if native is None or native.dialect != DIALECT:
        return None
    body = native.body.encode()
    if body.startswith(b'"'):
        return Content((make_text_block(body),), alone=True)
    rows = msgspec.json.decode(body, type=list[msgspec.Raw])
    return Content(tuple(Block(bytes(row)) for row in rows))
