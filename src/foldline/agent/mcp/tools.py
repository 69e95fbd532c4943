"""The tools of MCP servers, as an agent has them.

    async with Servers([Server("time", command=["mcp-server-time"])]) as servers:
        await servers.begun(10)
        servers.join(agent)          # from here on its tools are as the servers have them

Knows how a server's tool is named, what a person is asked before it runs, and when lists are taken
up. Refuses to know how a server is kept running: that is `connection`.
"""

import asyncio
import json
from collections.abc import Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from foldline.agent.events import Asking, Hook, Moment
from foldline.agent.mcp.connection import Joined, Server
from foldline.agent.mcp.results import result_of
from foldline.agent.tool import Arguments, Intent, Result, Tool
from foldline.core.parts import sound
from foldline.dialects.tools import marked, safe
from foldline.errors import BadInput

if TYPE_CHECKING:
    from mcp_types import Tool as Theirs

__all__ = ["Server", "Servers", "named"]
_FIRST = "mcp__"
_LONGEST = 64  # characters that every provider takes
_DIGITS = 8


class McpAgent(Protocol):
    """What is joined: an agent."""

    tools: dict[str, Tool]
    hooks: list[Hook]


class Servers:
    """The MCP servers of an agent."""

    def __init__(self, servers: Iterable[Server], *, logs: Path | None = None) -> None:
        """With `logs`, a folder, each server's complaints are in a file of its name there."""
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
        await asyncio.gather(*(one.leave() for one in self._joined))

    async def begun(self, seconds: float) -> None:
        """Wait until all have started or failed, or for so long; the rest is taken up later."""
        await asyncio.gather(*(one.begun(seconds) for one in self._joined))

    @property
    def faults(self) -> dict[str, str]:
        """Which servers are down, and why."""
        return {one.server.name: one.fault for one in self._joined if one.fault}

    @property
    def tools(self) -> list[Tool]:
        """The tools that the servers have now, or had when they died."""
        taken: set[str] = set()
        found: list[Tool] = []
        for one in self._joined:
            allowed = one.server.tools
            for theirs in one.tools:
                if allowed is None or theirs.name in allowed:
                    name = named(one.server.name, theirs.name, taken=taken)
                    taken.add(name)
                    found.append(_tool(one, theirs, name))
        return found

    def join(self, agent: McpAgent) -> None:
        """Give an agent the tools, now and whenever they are others when a model is asked."""

        def taking_up(moment: Moment) -> None:
            if isinstance(moment, Asking):
                own = {n: tool for n, tool in agent.tools.items() if not n.startswith(_FIRST)}
                agent.tools = {**own, **{tool.name: tool for tool in self.tools}}

        taking_up(Asking(1))
        agent.hooks.append(taking_up)


def named(server: str, tool: str, *, taken: Iterable[str] = ()) -> str:
    """A tool's name before a model: the same for the same tool, whatever else there is.

    A name of other signs, or too long, ends with a digest of it.
    """
    whole, used = f"{_FIRST}{server}__{sound(tool)}", {*taken}
    name = safe(whole, _LONGEST, taken=used)
    if name in used:
        return marked(whole[: _LONGEST - _DIGITS - 1], whole, digits=_DIGITS, taken=used)
    return name


def _tool(joined: Joined, theirs: "Theirs", name: str) -> Tool:
    server, hints = joined.server, theirs.annotations
    looks = server.trusted and hints is not None and hints.read_only_hint is True
    asked = not looks and server.approve == "ask"
    schema: dict[str, Any] = json.loads(sound(json.dumps(theirs.input_schema)))
    return Tool(
        name=name,
        description=sound(theirs.description or theirs.title or theirs.name),
        schema=schema,
        run=partial(_run, joined, theirs.name),
        intent=partial(_intent, server.name, name) if asked else _unasked,
        beside=looks,
    )


async def _run(joined: Joined, tool: str, arguments: Arguments) -> Result:
    return result_of(await joined.call(tool, arguments))


def _intent(server: str, name: str, arguments: Arguments) -> Intent:
    """What a person is asked; by our name of the tool, whose signs are harmless.

    A server's own could be `*`, and a yes to it one to all.
    """
    tool = name.removeprefix(f"{_FIRST}{server}__")
    return Intent(
        f"call mcp tool {tool} of server {server}",
        json.dumps(arguments, indent=2, ensure_ascii=False),
        (f"mcp: {server} {tool}", f"mcp: {server} *"),
    )


def _unasked(_: Arguments) -> None:
    return None
