"""`foldline mcp`: give a session's past to an agent host, over the Model Context Protocol.

Sessions are only read, and stdout carries nothing but the protocol.
"""

import signal
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated

import typer

from foldline import __version__
from foldline.apps.cli.context import Desk, make_command, open_named_session, resolve_session_name
from foldline.errors import BadInput
from foldline.session.history import FoundMessage
from foldline.session.message_search import search_tenant_messages
from foldline.session.session import AsyncSession
from foldline.stores.base import Store


@dataclass(frozen=True, slots=True)
class _Shelf:
    """The sessions of a tenant, opened anew at each call: somebody may be talking in one."""

    store: Store
    tenant: str

    async def session(self, name: str) -> AsyncSession:
        return await open_named_session(self.store, self.tenant, name)

    async def search(self, words: str, *, session: str | None, limit: int) -> list[FoundMessage]:
        only = (
            (await resolve_session_name(self.store, self.tenant, session)).session
            if session
            else None
        )
        return await search_tenant_messages(
            self.store, self.tenant, words, session=only, limit=limit
        )


@make_command
async def mcp(
    desk: Desk,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The session; the beginning of its name is enough."),
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="All sessions; the host's agent names one.")
    ] = False,
) -> None:
    """Give a session's past to an agent host, as an MCP server on stdin and stdout.

    Its tools are recall, search_history and context. They only read. A host starts it by command
    "foldline" with the arguments "mcp" and NAME.
    """
    if (name is None) != every:
        raise BadInput("which session? write `foldline mcp NAME`, or --all for all of them")
    if find_spec("mcp") is None:
        raise BadInput(
            "an MCP server needs 'mcp', which is not installed; pip install 'foldline[mcp]'"
        )
    from foldline.agent.mcp.mcp_server import build_history_tools, serve_tools  # noqa: PLC0415 - after the extra

    async with desk.open_store() as store:
        shelf = _Shelf(store, desk.tenant)
        only = (
            (await resolve_session_name(store, desk.tenant, name)).session
            if name is not None
            else None
        )
        # The SDK reads in a thread that nothing wakes. Nothing is written, so Ctrl-C may kill us.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        await serve_tools(
            build_history_tools(shelf, only=only), name="foldline", version=__version__
        )
