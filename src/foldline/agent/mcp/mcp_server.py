"""An MCP server on the standard streams: a session's past for any agent host.

    await serve_tools(build_history_tools(shelf, only="main"), name="foldline")

Its tools `recall`, `search_history` and `context` only read.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from foldline.agent.tool import Arguments, Result, Tool, said
from foldline.core import recall
from foldline.core.parts import Call, Gap, Media, Part, Text, Thought, replace_surrogates
from foldline.draw import build_picture, draw_picture_terminal
from foldline.errors import BadInput, FoldlineError
from foldline.session.history import FoundMessage
from foldline.session.recall_tool import measure_room
from foldline.session.session import AsyncSession

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock
    from mcp_types import Tool as Theirs

MOST = 5_000
"""Tokens of a page of recall; each page ends with the call for the next."""
_HITS, _MOST_HITS = 10, 50
_WIDE = 100
_TOLD = """The past of a conversation kept by Foldline, also what its model no longer sees. \
Where something was cut stands a handle, log:12 or recall("log:12", ...): `recall` gives the \
original; `search_history` finds handles by words; `context` says where the window goes."""


class Shelf(Protocol):
    """Opens and searches sessions."""

    async def session(self, name: str) -> AsyncSession:
        """Open a session by name, as it is now."""
        ...

    async def search(self, words: str, *, session: str | None, limit: int) -> list[FoundMessage]:
        """Find messages that contain all of the words, the newest first."""
        ...


async def serve_tools(tools: Sequence[Tool], *, name: str, version: str = "") -> None:
    """Serve tools on the standard streams until the host closes them."""
    from mcp.server import Server  # noqa: PLC0415 - an extra, slow to import
    from mcp.server.stdio import stdio_server  # noqa: PLC0415
    from mcp_types import ListToolsResult  # noqa: PLC0415

    known = {tool.name: tool for tool in tools}

    async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[_encode_tool(tool) for tool in tools])

    async def call_tool(_context: Any, params: Any) -> "CallToolResult":
        return _encode_result(await _run_tool(known, params.name, params.arguments or {}))

    server = Server(
        name, version=version, instructions=_TOLD, on_list_tools=list_tools, on_call_tool=call_tool
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def _run_tool(known: dict[str, Tool], name: str, arguments: Arguments) -> Result:
    """Run a tool; every error becomes a result that says so."""
    if name not in known:
        return said(
            f"there is no tool {replace_surrogates(name)!r}; there are {', '.join(known)}", ok=False
        )
    try:
        return await known[name].run(arguments)
    except FoldlineError as fault:
        return said(str(fault), ok=False)
    except Exception as fault:  # noqa: BLE001 - reported to the host; the next call may work
        return said(f"{name} failed: {type(fault).__name__} {fault}".rstrip(), ok=False)


def _encode_tool(tool: Tool) -> "Theirs":
    from mcp_types import Tool as Theirs  # noqa: PLC0415 - an extra, slow to import
    from mcp_types import ToolAnnotations  # noqa: PLC0415

    return Theirs(
        name=tool.name,
        description=tool.description,
        input_schema=dict(tool.schema),
        annotations=ToolAnnotations(read_only_hint=tool.beside, open_world_hint=False),
    )


def _encode_result(result: Result) -> "CallToolResult":
    from mcp_types import CallToolResult  # noqa: PLC0415 - an extra, slow to import

    content = [_encode_part(part) for part in result.parts]
    return CallToolResult(content=content, is_error=not result.ok)


def _encode_part(part: Part) -> "ContentBlock":
    from mcp_types import (  # noqa: PLC0415 - an extra, slow to import
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


FindCaller: TypeAlias = Callable[[str, Arguments], Awaitable[str]]
"""Finds the session whose model made a call, by the tool's name and the arguments."""


def build_history_tools(
    shelf: Shelf,
    *,
    only: str | None = None,
    find_caller: FindCaller | None = None,
    most: int = MOST,
) -> list[Tool]:
    """Build the tools for the past: of session `only`, of the caller's, or of one it names."""

    async def choose_session_name(tool: str, given: Arguments) -> str:
        if find_caller is not None:
            return await find_caller(tool, given)
        name = only if only is not None else _parse_text(given, "session")
        if not name:
            raise BadInput('which session? write session="NAME"; search_history names them')
        return name

    async def run_recall(given: Arguments) -> Result:
        session = await shelf.session(await choose_session_name("recall", given))
        # Only the caller's own window is about to hold the answer.
        room = most if find_caller is None else min(most, measure_room(session))
        return said(await session.recall(_build_recall_query(given), most=room))

    async def run_search(given: Arguments) -> Result:
        words = _parse_text(given, "words")
        if not words.strip():
            raise BadInput('search for which words? write words="parser error"')
        name = only if only is not None else _parse_text(given, "session") or None
        if find_caller is not None:
            name = await find_caller("search_history", given)
        limit = min(max(_parse_number(given, "limit") or _HITS, 1), _MOST_HITS)
        found = await shelf.search(words, session=name, limit=limit)
        return said(_render_hits(found, words, limit, titled=is_everywhere))

    async def run_context(given: Arguments) -> Result:
        live = (await shelf.session(await choose_session_name("context", given))).live
        return said(
            draw_picture_terminal(build_picture(live.view, live.facts), _WIDE, colour=False)
        )

    is_everywhere = only is None and find_caller is None
    which: dict[str, Any] = {}
    everywhere: dict[str, Any] = {}
    if is_everywhere:
        which = {"session": _make_string_schema("The session's name.")}
        everywhere = {"session": _make_string_schema("Only this one; else all.")}
    return [
        Tool(
            name="recall",
            description='The original of a handle, log:12 or log:12-40, or of a whole recall("log:'
            '12", ...) as it stands in the conversation. Long ones come in pages: the first line '
            "says how to go on.",
            schema=_make_object_schema(
                {"handle": _make_string_schema("log:12"), **_WAYS, **which}, "handle", *which
            ),
            run=run_recall,
            beside=True,
        ),
        Tool(
            name="search_history",
            description="Messages that hold some of the words, the best match first, with handles.",
            schema=_make_object_schema(
                {"words": _make_string_schema("parser error"), **_LIMIT, **everywhere}, "words"
            ),
            run=run_search,
            beside=True,
        ),
        Tool(
            name="context",
            description="Where the window of the conversation's model goes: parts, tiers, cost.",
            schema=_make_object_schema(which, *which),
            run=run_context,
            beside=True,
        ),
    ]


def _make_string_schema(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _make_object_schema(properties: dict[str, Any], *required: str) -> dict[str, Any]:
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


def _build_recall_query(given: Arguments) -> str:
    """Build recall's query: the handle, or a call with the other arguments."""
    handle = _parse_text(given, "handle")
    ways: dict[str, Any] = {
        key: _parse_number(given, key) for key in ("head", "tail", "start", "around", "skip")
    }
    ways["grep"] = _parse_text(given, "grep") or None
    ways["lines"] = _parse_line_range(given)
    if all(way is None for way in ways.values()):
        return handle
    return recall.render_call(recall.build_query(handle, **ways))


def _parse_text(given: Arguments, key: str) -> str:
    value = given.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadInput(f"{key} is a text, not {value!r}")
    return replace_surrogates(value)


def _parse_number(given: Arguments, key: str) -> int | None:
    value = given.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise BadInput(f"{key} is a whole number, not {value!r}")


def _parse_line_range(given: Arguments) -> tuple[int, int] | None:
    match given.get("lines"):
        case None:
            return None
        case [int(first), int(last)]:
            return first, last
        case other:
            raise BadInput(f"lines is two whole numbers, [1, 20], not {other!r}")


def _render_hits(found: list[FoundMessage], words: str, limit: int, *, titled: bool) -> str:
    if not found:
        return f"nothing holds any of: {words}"
    lines = [
        f"{f'{one.session} ' if titled else ''}{one.handle}: {one.snippet}"
        f"{f' [and {one.same} more alike]' if one.same else ''}"
        for one in found
    ]
    more = f"\n[the best {limit}; there may be more: say other words]"
    return "\n".join(lines) + (more if len(found) == limit else "")
