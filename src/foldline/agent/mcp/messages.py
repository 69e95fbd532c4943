"""A server's messages on their way in: what the SDK would refuse is put so that it takes it.

Knows three things that servers do and the SDK drops or raises on: content of a kind that is newer
than it, JSON too deep for its parser, and results that are not what the tool's own schema says.
Refuses to know what a message is for.
"""

import json
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

Item: TypeAlias = "SessionMessage | Exception"
Streams: TypeAlias = tuple[Any, Any]
_KNOWN = {"text", "image", "audio", "resource", "resource_link"}
# A response by its first fields, as Python's SDK writes them, or by its last, as TypeScript's does.
_FIRST = re.compile(
    r'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*,\s*"result"\s*:'
)
_RESULT = re.compile(r'\s*\{\s*"result"\s*:')
_LAST = re.compile(r',\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*\}\s*$')
_TAIL = 200  # characters that the last fields are looked for in


@asynccontextmanager
async def heard(
    transport: AbstractAsyncContextManager[Streams],
    *,
    changed: Callable[[], None],
    ended: Callable[[], None],
) -> AsyncGenerator[Streams]:
    """A transport whose messages come in mended; told at once when tools change and when it ends.

    At once: before the next message is looked at, so a result behind the notice finds it heard.
    """
    async with transport as (read, write):
        try:
            yield McpStream(read, changed, ended), write
        finally:
            ended()


class McpStream:
    """The stream that a session reads from."""

    def __init__(self, read: Any, changed: Callable[[], None], ended: Callable[[], None]) -> None:
        self._read, self._changed, self._ended = read, changed, ended

    @property
    def last_context(self) -> Any:
        """The sender's context variables, where the transport has them."""
        return getattr(self._read, "last_context", None)

    async def receive(self) -> Item:
        """The next message."""
        try:
            item: Item = await self._read.receive()
        except BaseException:
            self._ended()
            raise
        return self._mended(item)

    async def aclose(self) -> None:
        """Hear no more."""
        await self._read.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        try:
            item: Item = await self._read.__anext__()
        except BaseException:
            self._ended()
            raise
        return self._mended(item)

    async def __aenter__(self) -> Self:
        await self._read.__aenter__()
        return self

    async def __aexit__(self, *why: object) -> bool | None:
        return await self._read.__aexit__(*why)

    def _mended(self, item: Item) -> Item:
        if isinstance(item, Exception):
            return _recovered(item)
        message: Any = item.message
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self._changed()
        if isinstance(getattr(message, "result", None), dict):
            _mend(message.result)
        return item


def _mend(result: dict[str, Any]) -> None:
    """Content that the SDK does not know as JSON text; tools without what results must be like.

    A result that is not as its tool's schema says would be dropped: the model may judge it better.
    """
    if isinstance(tools := result.get("tools"), list):
        for tool in cast("list[Any]", tools):
            if isinstance(tool, dict):
                cast("dict[str, Any]", tool).pop("outputSchema", None)
    if "structuredContent" in result:
        result.setdefault("content", [])
    if isinstance(content := result.get("content"), list):
        result["content"] = [_known(block) for block in cast("list[Any]", content)]


def _known(block: Any) -> Any:
    """A block that the SDK reads, or one of words that is its JSON."""
    from mcp_types import CallToolResult  # noqa: PLC0415 - an extra, and it takes a second

    if isinstance(block, dict) and cast("dict[str, Any]", block).get("type") in _KNOWN:
        try:
            CallToolResult.model_validate({"content": [block]}, by_name=False)
        except ValueError:
            pass
        else:
            return cast("dict[str, Any]", block)
    return _words(json.dumps(block, ensure_ascii=False))


def _words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _recovered(fault: Exception) -> Item:
    """A response that could not be parsed, carried as words; else the fault, as it is."""
    from mcp.shared.message import SessionMessage  # noqa: PLC0415 - an extra
    from mcp_types import JSONRPCResponse  # noqa: PLC0415
    from pydantic import ValidationError  # noqa: PLC0415

    line: Any = fault.errors()[0]["input"] if isinstance(fault, ValidationError) else None
    if not isinstance(line, str):
        return fault
    if first := _FIRST.match(line):
        number, body = first[1], line[first.end() :].rstrip().removesuffix("}")
    elif (begun := _RESULT.match(line)) and (last := _LAST.search(line[-_TAIL:])):
        number = last[1]
        body = line[begun.end() : len(line) - len(line[-_TAIL:]) + last.start()]
    else:
        return fault
    content = {"content": [_words(body.strip())]}
    return SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=int(number), result=content))
