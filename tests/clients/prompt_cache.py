"""What a provider has cached of a request, for the scripted provider.

OpenAI and Google cache any common beginning, in units of 128 tokens. Anthropic caches only what stands before a
`cache_control` mark, and looks for it from each mark of the next request, 20 content blocks back. A block is a tool, a
piece of the system prompt, or a piece of a message. Another model has another cache, and another `thinking` or
`tool_choice` leaves only tools and system prompt.
"""

import hashlib
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from comparison import find_common

_UNIT, _LEAST = (
    128,
    1_024,
)  # OpenAI caches so many tokens at a time; nobody caches less than the least
_LOOKBACK = 20  # blocks, the marked one included
_KEPT = 64  # requests


@dataclass(frozen=True)
class CacheUse:
    """The tokens of a request that came from the cache, and those that were written to it."""

    read: int = 0
    written: int = 0


@dataclass(frozen=True)
class Block:
    """One content block of a request to Anthropic."""

    key: str
    """All that the model reads of it, without its mark."""
    end: int
    """The tokens of the request up to its end."""
    is_marked: bool


class PrefixCache:
    """The cache of a provider that keeps any beginning."""

    def __init__(self) -> None:
        self._requests: deque[list[tuple[str, int]]] = deque(maxlen=_KEPT)

    def use(self, pieces: list[tuple[str, int]]) -> CacheUse:
        """Look a request up by its pieces and their tokens, and keep it."""
        cached = max((count_common(pieces, one) for one in self._requests), default=0)
        self._requests.append(pieces)
        return CacheUse(cached // _UNIT * _UNIT if cached >= _LEAST else 0)

    def clear(self) -> None:
        """Forget everything."""
        self._requests.clear()


def count_common(pieces: list[tuple[str, int]], others: list[tuple[str, int]]) -> int:
    """The tokens of the beginning that two requests share; of the piece that differs, by its letters."""
    tokens = 0
    for (text, size), (other, _) in zip(pieces, others, strict=False):
        if text != other:
            return tokens + size * find_common(text, other) // max(len(text), 1)
        tokens += size
    return tokens


class MarkCache:
    """The cache of a provider that keeps what stands before marks."""

    def __init__(self) -> None:
        self._kept: set[bytes] = set()

    def use(self, model: str, blocks: list[Block]) -> CacheUse:
        """Look a request up, and keep what stands before its marks."""
        chain, digest = [], hashlib.sha256(model.encode())
        for block in blocks:
            digest.update(f"\x1e{block.key}".encode())
            chain.append(digest.digest())
        marks = [at for at, block in enumerate(blocks) if block.is_marked]
        seen = (at for mark in marks for at in range(max(mark - _LOOKBACK + 1, 0), mark + 1))
        found = max((at for at in seen if chain[at] in self._kept), default=None)
        written = [at for at in marks if blocks[at].end >= _LEAST]
        self._kept |= {chain[at] for at in written}
        read = 0 if found is None else blocks[found].end
        return CacheUse(read, max(blocks[written[-1]].end - read, 0) if written else 0)

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()


def has_mark(block: dict[str, Any]) -> bool:
    """Whether a block has a mark, or a result a piece with one."""
    inner = block.get("content")
    pieces = inner if isinstance(inner, list) else ()
    return "cache_control" in block or any("cache_control" in piece for piece in pieces)


def iterate_raw_blocks(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the blocks of a body in the order of the cache, each with where it stands."""
    for tool in body.get("tools") or ():
        yield "tools", tool
    system = body.get("system") or ()
    for block in [{"type": "text", "text": system}] if isinstance(system, str) else system:
        yield "system", block
    for message in body["messages"]:
        content, role = message["content"], message["role"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            yield f"{role} message", block  # there are messages of the system too


def write_key(block: dict[str, Any]) -> str:
    """Write a block without its marks."""
    plain = {name: value for name, value in block.items() if name != "cache_control"}
    if isinstance(plain.get("content"), list):
        plain["content"] = [
            {name: value for name, value in piece.items() if name != "cache_control"}
            for piece in plain["content"]
        ]
    return json.dumps(plain, sort_keys=True)
