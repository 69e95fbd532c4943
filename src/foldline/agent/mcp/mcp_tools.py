"""The tools of MCP servers, for an agent: their names, their intents, their results.

    async with Servers([Server("time", command=["mcp-server-time"])]) as servers:
        await servers.wait_for_start(10)
        servers.provide_tools(agent)   # from here on the agent's tools follow the servers'

Content of an unknown kind, and media that no provider would take, become JSON text: only what is
for the host alone (`_meta`, annotations) is dropped. `mcp_client` keeps each server running.
"""

import asyncio
import base64
import binascii
import json
from collections.abc import Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from foldline.agent.events import Asking, Hook, Moment
from foldline.agent.mcp.mcp_client import Joined, Server
from foldline.agent.tool import Arguments, Intent, Result, Tool
from foldline.core.parts import Media, Part, Text, replace_surrogates
from foldline.dialects.tools import append_digest, make_safe_name
from foldline.errors import BadInput

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock
    from mcp_types import Tool as Theirs

__all__ = ["Server", "Servers", "make_mcp_name"]

_HOSTS = {"_meta", "annotations", "icons"}  # fields for the host, not content
_NOTHING = "[the tool answered with no content]"


def result_of(answer: "CallToolResult") -> Result:
    """Convert a server's answer to a result."""
    parts = [_decode_block(block) for block in answer.content]
    structured = answer.structured_content
    if structured is not None and not _is_repeated(structured, parts):
        parts.append(Text(_encode_json(structured)))
    return Result(tuple(parts) or (Text(_NOTHING),), not answer.is_error)


def _decode_block(block: "ContentBlock") -> Part:
    from mcp_types import (  # noqa: PLC0415 - an extra, slow to import
        AudioContent,
        BlobResourceContents,
        EmbeddedResource,
        ImageContent,
        TextContent,
    )

    match block:
        case TextContent():
            return Text(replace_surrogates(block.text))
        case ImageContent() | AudioContent():
            return _decode_media(block.type, block.mime_type, block.data) or _render_block(block)
        case EmbeddedResource():
            held = block.resource
            mime = held.mime_type or ""
            if isinstance(held, BlobResourceContents):
                return _decode_media(
                    _classify_mime(mime), mime, held.blob, name=held.uri
                ) or _render_block(block)
            title = " ".join(word for word in ("resource", held.uri, mime) if word)
            return Text(replace_surrogates(f"[{title}]\n{held.text}"))
        case _:
            return _render_block(block)


def _classify_mime(mime: str) -> Literal["image", "audio", "file"]:
    kind = mime.partition("/")[0].lower()
    return "image" if kind == "image" else "audio" if kind == "audio" else "file"


def _decode_media(
    form: Literal["image", "audio", "file"], mime: str, data: str, *, name: str = ""
) -> Media | None:
    """Decode a picture, a sound or a file; None if its data is not base64.

    A provider would refuse every later request that has it in its history.
    """
    try:
        whole = base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        return None
    if not whole or (form != "file" and _classify_mime(mime) != form):
        return None
    return Media(
        form,
        mime=replace_surrogates(mime),
        base64=base64.b64encode(whole).decode(),
        name=replace_surrogates(name),
    )


def _render_block(block: "ContentBlock") -> Text:
    body = block.model_dump(mode="json", by_alias=True, exclude_none=True)
    return Text(_encode_json({key: value for key, value in body.items() if key not in _HOSTS}))


def _is_repeated(structured: Any, parts: list[Part]) -> bool:
    """Whether a text has the same content: servers repeat it for older hosts."""
    return any(_parse_json(part.text) == structured for part in parts if isinstance(part, Text))


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _encode_json(body: Any) -> str:
    return replace_surrogates(json.dumps(body, ensure_ascii=False))


_FIRST = "mcp__"
_LONGEST = 64  # characters that every provider takes
_DIGITS = 8


class McpAgent(Protocol):
    """The part of an agent that `Servers` changes."""

    tools: dict[str, Tool]
    hooks: list[Hook]


class Servers:
    """The MCP servers of an agent."""

    def __init__(self, servers: Iterable[Server], *, logs: Path | None = None) -> None:
        """Write each server's stderr to a file of its name in the folder `logs`."""
        given = [*servers]
        twice = {one.name for one in given if sum(one.name == two.name for two in given) > 1}
        if twice:
            raise BadInput(f"two MCP servers are called {min(twice)!r}; each needs its own name")
        if given and find_spec("mcp") is None:
            raise BadInput(
                f"the MCP server {given[0].name!r} needs 'mcp', which is not installed; "
                "pip install 'foldline[mcp]'"
            )
        self._joined = [
            Joined(one, log=logs / f"{one.name}.log" if logs else None) for one in given
        ]

    async def __aenter__(self) -> Self:
        for one in self._joined:
            one.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(one.stop() for one in self._joined))

    async def wait_for_start(self, seconds: float) -> None:
        """Wait until all have started or failed, at most `seconds`; late ones join later."""
        await asyncio.gather(*(one.wait_for_start(seconds) for one in self._joined))

    @property
    def faults(self) -> dict[str, str]:
        """The servers that are down, and why."""
        return {one.server.name: one.fault for one in self._joined if one.fault}

    @property
    def tools(self) -> list[Tool]:
        """The servers' current tools; of one that died, its last."""
        taken: set[str] = set()
        found: list[Tool] = []
        for one in self._joined:
            allowed = one.server.tools
            for theirs in one.tools:
                if allowed is None or theirs.name in allowed:
                    name = make_mcp_name(one.server.name, theirs.name, taken=taken)
                    taken.add(name)
                    found.append(_build_tool(one, theirs, name))
        return found

    def provide_tools(self, agent: McpAgent) -> None:
        """Give an agent the tools, now and again before every call of the model."""

        def update_tools(moment: Moment) -> None:
            if isinstance(moment, Asking):
                own = {n: tool for n, tool in agent.tools.items() if not n.startswith(_FIRST)}
                agent.tools = {**own, **{tool.name: tool for tool in self.tools}}

        update_tools(Asking(1))
        agent.hooks.append(update_tools)


def make_mcp_name(server: str, tool: str, *, taken: Iterable[str] = ()) -> str:
    """Make a tool's name for the model: stable, whatever other tools there are.

    A name with characters that providers refuse, or too long, ends with a digest.
    """
    whole, used = f"{_FIRST}{server}__{replace_surrogates(tool)}", {*taken}
    name = make_safe_name(whole, _LONGEST, taken=used)
    if name in used:
        return append_digest(whole[: _LONGEST - _DIGITS - 1], whole, digits=_DIGITS, taken=used)
    return name


def _build_tool(joined: Joined, theirs: "Theirs", name: str) -> Tool:
    server, hints = joined.server, theirs.annotations
    looks = server.trusted and hints is not None and hints.read_only_hint is True
    asked = not looks and server.approve == "ask"
    schema: dict[str, Any] = json.loads(replace_surrogates(json.dumps(theirs.input_schema)))
    return Tool(
        name=name,
        description=replace_surrogates(theirs.description or theirs.title or theirs.name),
        schema=schema,
        run=partial(_run_tool, joined, theirs.name),
        intent=partial(_make_intent, server.name, name) if asked else lambda _: None,
        beside=looks,
    )


async def _run_tool(joined: Joined, tool: str, arguments: Arguments) -> Result:
    return result_of(await joined.call_tool(tool, arguments))


def _make_intent(server: str, name: str, arguments: Arguments) -> Intent:
    """Make the question for the user, with our safe name of the tool.

    The server's own name could be `*`, and a yes to it would allow everything.
    """
    tool = name.removeprefix(f"{_FIRST}{server}__")
    return Intent(
        f"call mcp tool {tool} of server {server}",
        json.dumps(arguments, indent=2, ensure_ascii=False),
        (f"mcp: {server} {tool}", f"mcp: {server} *"),
    )
