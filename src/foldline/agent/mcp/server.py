"""Tools of ours for any agent host: an MCP server on the standard streams.

    await serve(past(shelf, only="main"), name="foldline")

Knows how a tool is offered and its result told, and the tools that look into a session's past:
`recall`, `search_history`, `context`. They only read. Refuses to know stores and commands.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from foldline.agent.tool import Arguments, Result, Tool, said
from foldline.core import recall
from foldline.core.parts import Call, Gap, Media, Part, Text, Thought, sound
from foldline.draw import picture, terminal
from foldline.errors import BadInput, FoldlineError
from foldline.session.history import Found
from foldline.session.session import AsyncSession

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock
    from mcp_types import Tool as Theirs

MOST = 5_000
"""Tokens of an answer to recall; what is behind them comes by the call that it ends with."""
_HITS, _MOST_HITS = 10, 50
_BEFORE, _BEHIND = 60, 200  # characters around what was found
_WIDE = 100
_TOLD = """The past of a conversation kept by Foldline, also what its model no longer sees. \
Where something was cut stands a handle, log:12 or recall("log:12", ...): `recall` gives the \
original; `search_history` finds handles by words; `context` says where the window goes."""


class Shelf(Protocol):
    """Where sessions are."""

    async def session(self, name: str) -> AsyncSession:
        """The session of a name, as it is now."""
        ...

    async def search(self, words: str, *, session: str | None, limit: int) -> list[Found]:
        """Messages that hold all of some words, the newest first."""
        ...


async def serve(tools: Sequence[Tool], *, name: str, version: str = "") -> None:
    """Offer tools on the standard streams until the host hangs up."""
    from mcp.server import Server  # noqa: PLC0415 - an extra, and it takes a second
    from mcp.server.stdio import stdio_server  # noqa: PLC0415
    from mcp_types import ListToolsResult  # noqa: PLC0415

    known = {tool.name: tool for tool in tools}

    async def listed(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[_offered(tool) for tool in tools])

    async def called(_context: Any, params: Any) -> "CallToolResult":
        return _answer(await _called(known, params.name, params.arguments or {}))

    server = Server(
        name, version=version, instructions=_TOLD, on_list_tools=listed, on_call_tool=called
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def _called(known: dict[str, Tool], name: str, arguments: Arguments) -> Result:
    """What a call came to; whatever is wrong with it is told."""
    if name not in known:
        return said(f"there is no tool {sound(name)!r}; there are {', '.join(known)}", ok=False)
    try:
        return await known[name].run(arguments)
    except FoldlineError as fault:
        return said(str(fault), ok=False)
    except Exception as fault:  # noqa: BLE001 - a host is told of it; the next call may work
        return said(f"{name} failed: {type(fault).__name__} {fault}".rstrip(), ok=False)


def _offered(tool: Tool) -> "Theirs":
    from mcp_types import Tool as Theirs  # noqa: PLC0415 - an extra, and it takes a second
    from mcp_types import ToolAnnotations  # noqa: PLC0415

    hints = ToolAnnotations(read_only_hint=tool.beside, open_world_hint=False)
    schema = dict(tool.schema)
    return Theirs(
        name=tool.name, description=tool.description, input_schema=schema, annotations=hints
    )


def _answer(result: Result) -> "CallToolResult":
    from mcp_types import CallToolResult  # noqa: PLC0415 - an extra, and it takes a second

    return CallToolResult(content=[_block(part) for part in result.parts], is_error=not result.ok)


def _block(part: Part) -> "ContentBlock":
    from mcp_types import (  # noqa: PLC0415 - an extra, and it takes a second
        AudioContent,
        BlobResourceContents,
        EmbeddedResource,
        ImageContent,
        TextContent,
    )

    match part:
        case Text(text) | Gap(text) | Thought(text):
            return TextContent(text=text)
        case Call(_, name, arguments):
            return TextContent(text=f"{name} {arguments}")
        case Media(url=url, base64="") if url:
            return TextContent(text=f"[{part.form} {url}]")
        case Media(form="image"):
            return ImageContent(data=part.base64, mime_type=part.mime)
        case Media(form="audio"):
            return AudioContent(data=part.base64, mime_type=part.mime)
        case Media():
            held = BlobResourceContents(
                uri=part.name or "file:", mime_type=part.mime, blob=part.base64
            )
            return EmbeddedResource(resource=held)


def past(shelf: Shelf, *, only: str | None, most: int = MOST) -> list[Tool]:
    """The tools that look into the past: of one session, or of the one that a call names."""

    def of(given: Arguments) -> str:
        name = only if only is not None else _words(given, "session")
        if not name:
            raise BadInput('which session? write session="NAME"; search_history names them')
        return name

    async def recalled(given: Arguments) -> Result:
        session = await shelf.session(of(given))
        return said(await session.recall(_asked(given), most=most))

    async def searched(given: Arguments) -> Result:
        words = _words(given, "words")
        if not words.strip():
            raise BadInput('search for which words? write words="parser error"')
        name = only if only is not None else _words(given, "session") or None
        limit = min(max(_number(given, "limit") or _HITS, 1), _MOST_HITS)
        found = await shelf.search(words, session=name, limit=limit)
        return said(_hits(found, words, limit, titled=only is None))

    async def drawn(given: Arguments) -> Result:
        live = (await shelf.session(of(given))).live
        return said(terminal(picture(live.view, live.facts), _WIDE, colour=False))

    which: dict[str, Any] = {} if only is not None else {"session": _named("The session's name.")}
    everywhere = {} if only is not None else {"session": _named("Only this one; else all.")}
    needed = [*which]
    return [
        Tool(
            name="recall",
            description='The original of a handle, log:12 or log:12-40, or of a whole recall("log:'
            '12", ...) as it stands in the conversation. Long ones come in pages: the first line '
            "says how to go on.",
            schema=_schema({"handle": _named("log:12"), **_WAYS, **which}, "handle", *needed),
            run=recalled,
            beside=True,
        ),
        Tool(
            name="search_history",
            description="Messages that hold all of some words, the newest first, with handles.",
            schema=_schema({"words": _named("parser error"), **_LIMIT, **everywhere}, "words"),
            run=searched,
            beside=True,
        ),
        Tool(
            name="context",
            description="Where the window of the conversation's model goes: parts, tiers, cost.",
            schema=_schema(which, *needed),
            run=drawn,
            beside=True,
        ),
    ]


def _named(told: str) -> dict[str, Any]:
    return {"type": "string", "description": told}


def _schema(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required]}


_LIMIT: dict[str, Any] = {"limit": {"type": "integer", "minimum": 1, "maximum": _MOST_HITS}}
_WAYS: dict[str, Any] = {
    "head": {"type": "integer", "description": "Its first lines."},
    "tail": {"type": "integer", "description": "Its last lines."},
    "lines": {
        "type": "array",
        "items": {"type": "integer"},
        "description": "From one line to another: [1, 20].",
    },
    "start": {"type": "integer", "description": "With lines: a character of the first."},
    "grep": {"type": "string", "description": "The lines that match, a regular expression."},
    "around": {"type": "integer", "description": "With grep: lines around each."},
    "skip": {"type": "integer", "description": "With grep: matches to pass over."},
}


def _asked(given: Arguments) -> str:
    """The question to recall; with a way to look as arguments, the call that says so."""
    handle = _words(given, "handle")
    ways: dict[str, Any] = {
        key: _number(given, key) for key in ("head", "tail", "start", "around", "skip")
    }
    ways["grep"] = _words(given, "grep") or None
    ways["lines"] = _pair(given)
    if all(way is None for way in ways.values()):
        return handle
    return recall.call(recall.look(handle, **ways))


def _words(given: Arguments, key: str) -> str:
    value = given.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadInput(f"{key} is a text, not {value!r}")
    return sound(value)


def _number(given: Arguments, key: str) -> int | None:
    value = given.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise BadInput(f"{key} is a whole number, not {value!r}")


def _pair(given: Arguments) -> tuple[int, int] | None:
    match given.get("lines"):
        case None:
            return None
        case [int(first), int(last)]:
            return first, last
        case other:
            raise BadInput(f"lines is two whole numbers, [1, 20], not {other!r}")


def _hits(found: list[Found], words: str, limit: int, *, titled: bool) -> str:
    if not found:
        return f"nothing holds all of: {words}"
    lines = [
        f"{f'{one.session} ' if titled else ''}log:{one.seq}: {_snippet(one.words, words)}"
        for one in found
    ]
    more = f"\n[the newest {limit}; there may be more: say other words]"
    return "\n".join(lines) + (more if len(found) == limit else "")


def _snippet(text: str, words: str) -> str:
    """What stands around the first of the words."""
    text = " ".join(text.split())
    longest = sorted({*re.findall(r"\w+", words)}, key=len, reverse=True)
    hit = re.search("|".join(map(re.escape, longest)), text, re.IGNORECASE) if longest else None
    at = max(hit.start() - _BEFORE, 0) if hit else 0
    end = at + _BEFORE + _BEHIND
    return f"{'…' if at else ''}{text[at:end]}{'…' if end < len(text) else ''}"
