"""One content block and one content, each in its own bytes.

Knows where a content has its blocks, and of a block its kind and ids: those are decoded only where
somebody asks. Refuses to know what a block says (`forms`) and who says it (`read`, `write`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from foldline.core.parts import Native
from foldline.dialects.json_reader import Json, shaped_bytes
from foldline.errors import WireError

DIALECT = "anthropic"


class _Head(msgspec.Struct):
    type: Any = None
    text: Any = None
    tool_use_id: Any = None


@dataclass(frozen=True, slots=True)
class Block:
    """A block's JSON; `words` is the JSON of its text, where it has nothing else."""

    body: bytes
    words: bytes = b""

    @property
    def fields(self) -> Json:
        """The block as values."""
        found: Any = msgspec.json.decode(self.body)
        return cast("Json", found) if isinstance(found, dict) else {}

    @property
    def kind(self) -> str:
        """Its type; whatever else stands there is none that is known."""
        found = self._head.type
        return found if isinstance(found, str) else ""

    @property
    def answers(self) -> str:
        """The id of the call that a result answers."""
        found = self._head.tool_use_id
        return found if isinstance(found, str) else ""

    @property
    def blank(self) -> bool:
        """Whether it is a text without words: no provider takes it."""
        head = self._head
        return head.type == "text" and not str(head.text or "").strip()

    @property
    def _head(self) -> _Head:
        if not self.body.startswith(b"{"):
            return _Head()  # an old log may hold anything
        return msgspec.json.decode(self.body, type=_Head)


@dataclass(frozen=True, slots=True)
class Content:
    """The blocks of a message, a system or a tool; `alone` where they are one text as a string."""

    blocks: tuple[Block, ...]
    alone: bool = False

    @property
    def body(self) -> bytes:
        """Its JSON: one string, or the list of exactly its blocks."""
        return self.blocks[0].words if self.alone else listed(self.blocks)

    def native(self) -> Native:
        """Its JSON, to be kept beside an event."""
        return Native(DIALECT, self.body.decode())


def text(words: bytes) -> Block:
    """The block that a text is, from the JSON of its words."""
    return Block(b'{"type":"text","text":' + words + b"}", words)


def listed(blocks: Iterable[Block]) -> bytes:
    """Blocks as one list."""
    return b"[" + b",".join(block.body for block in blocks) + b"]"


def content_of(raw: bytes | msgspec.Raw, *, path: str = "$") -> Content:
    """A content as it came: a text, or a list of objects."""
    if bytes(raw).startswith(b'"'):
        return Content((text(bytes(raw)),), alone=True)
    rows = shaped_bytes(raw, list[msgspec.Raw], "a list of blocks", path=path)
    for place, row in enumerate(rows):
        if not bytes(row).startswith(b"{"):
            where = f"{path}[{place}]"
            raise WireError(f"not a block: an object was expected at {where}", path=where)
    return Content(tuple(Block(bytes(row)) for row in rows))


def opened(native: Native | None) -> Content | None:
    """What is kept beside an event, if it is of this dialect."""
    if native is None or native.dialect != DIALECT:
        return None
    body = native.body.encode()
    if body.startswith(b'"'):
        return Content((text(body),), alone=True)
    rows = msgspec.json.decode(body, type=list[msgspec.Raw])
    return Content(tuple(Block(bytes(row)) for row in rows))
