"""An MCP server made with the official SDK: python sdk_server.py [PORT], over HTTP with a port."""

import asyncio
import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("changing")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def look(words: str) -> str:
    """Say it again."""
    return f"looked at {words}"


@server.tool()
async def slow(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "waited"


@server.tool()
async def large(size: int) -> str:
    """A long text."""
    return "abcdefg\n" * (size // 8)


@server.tool()
async def learn(ctx: Context, name: str) -> str:
    """Have one more tool from here on."""

    async def learned() -> str:
        return f"{name} works"

    server.add_tool(learned, name=name)
    await ctx.notify_tools_changed()
    return "learned"


if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run()
