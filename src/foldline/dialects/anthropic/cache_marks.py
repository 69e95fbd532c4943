"""Cache marks: where the provider shall remember the prefix, at most four.

Knows the rules of breakpoints: they are looked for over 20 blocks, and not every block takes one.
Refuses to know the conversation: marks stand at the ends of what changes seldom, and of all.

A client moves its marks with every request. Those in messages are therefore taken out when they are
read, or they would pile up past the limit; those on tools and system go with them, and stay.
Neither putting one on nor taking one off touches any other byte of a block.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from foldline.dialects.anthropic.blocks import Block, Content

MOST = 4
NAME = "cache_control"
_LOOK_BACK = 19  # blocks: a mark finds what an earlier request wrote at most so far behind it
_TAKES = {"text", "image", "document", "tool_use", "tool_result"}
_MARK = b',"cache_control":{"type":"ephemeral"}}'
_ESCAPED = re.compile(rb"\\u00[567]")  # a key may be written with escapes
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def mark(tools: list[Block], system: list[Block], messages: Sequence[list[Block]]) -> None:
    """Put marks on blocks, in place: on the fixed part, on the first message, and on the end.

    The first message holds the folds, which change seldom. The end has two, so that a step of many
    blocks still finds what the request before it wrote. A client that marks its tools or its system
    has said where the fixed part ends: there is none of ours, and fewer behind it.
    """
    theirs = sum(map(is_marked, (*tools, *system)))
    said = [place for place, block in enumerate(system) if _takes(block)]
    if not theirs and said:
        system[said[-1]] = marked(system[said[-1]])
    elif not theirs and tools:
        tools[-1] = marked(tools[-1])
    room = max(0, MOST - max(theirs, 1))
    flat = [(blocks, place) for blocks in messages for place in range(len(blocks))]
    last = len(flat) - 1
    ends = {len(messages[0]) - 1 if messages else -1, last - _LOOK_BACK, last}
    found: set[int | None] = set()
    for end in sorted((end for end in ends if end >= 0), reverse=True)[:room]:
        takes = (at for at in range(end, -1, -1) if _takes(flat[at][0][flat[at][1]]))
        found.add(next(takes, None))
    for blocks, place in (flat[at] for at in found if at is not None):
        blocks[place] = marked(blocks[place])


def marked(block: Block) -> Block:
    """A block with our mark."""
    return Block(block.body[:-1] + _MARK)


def is_marked(block: Block) -> bool:
    """Whether a block has a mark, ours or the client's."""
    return _maybe(block.body) and NAME in block.fields


def bare(content: Content) -> Content:
    """A content without any mark."""
    return Content(tuple(map(unmarked, content.blocks)), content.alone)


def unmarked(block: Block) -> Block:
    """A block without its mark, and without those of the blocks in its content."""
    if block.words or not _maybe(block.body):
        return block
    body = _cut(block.body)
    return block if body is block.body else Block(body)


def _maybe(body: bytes) -> bool:
    """Whether there may be a mark: `in` is ten times as fast as one expression for both."""
    return b"cache_control" in body or (b"\\u00" in body and bool(_ESCAPED.search(body)))


def _cut(body: bytes) -> bytes:
    kept, last = list[bytes](), 0
    for start, end in sorted(_cuts(body)):
        kept.append(body[last:start])
        last = end
    return b"".join((*kept, body[last:])) if kept else body


class _Field(NamedTuple):
    """Where a field of a block lies: the comma before it (of the first: itself), and its ends."""

    key: str
    comma: int
    start: int
    end: int


@dataclass(slots=True)
class _Level:
    """An object or a list that is being read; of a block, its fields so far."""

    block: bool = False
    blocks: bool = False
    """Whether it is a list of blocks."""
    fields: list[_Field] = field(default_factory=list[_Field])
    key: str | None = None
    start: int = 0
    comma: int | None = None

    def ends(self, at: int) -> None:
        """A field has ended, if it is one."""
        if self.key is not None:
            comma = self.start if self.comma is None else self.comma
            self.fields.append(_Field(self.key, comma, self.start, at))
        self.key = None

    def marks(self) -> Iterable[tuple[int, int]]:
        """Where marks are, each with one comma: the one before it, or behind it if it is first."""
        first = True
        for place, one in enumerate(self.fields):
            if one.key != NAME:
                first = False
            elif first and place + 1 < len(self.fields):
                yield one.start, self.fields[place + 1].start
            else:
                yield (one.start if first else one.comma), one.end


def _cuts(body: bytes) -> list[tuple[int, int]]:
    """Where the marks of a block are, and of blocks in its content."""
    found: list[tuple[int, int]] = []
    levels: list[_Level] = []
    end = 0
    for token in _TOKEN.finditer(body):
        sign, above = token[0], levels[-1] if levels else _Level(blocks=True)
        if sign == b"{":
            levels.append(_Level(block=above.blocks))
        elif sign == b"[":
            levels.append(_Level(blocks=above.block and above.key == "content"))
        elif sign in (b"}", b"]", b","):
            above.ends(end)
            above.comma = token.start()
            if sign != b",":
                found += levels.pop().marks()
        elif above.block and above.key is None:
            above.key, above.start = msgspec.json.decode(sign), token.start()
        end = token.end()
    return found


def _takes(block: Block) -> bool:
    return block.kind in _TAKES and (block.kind != "text" or bool(block.fields.get("text")))
