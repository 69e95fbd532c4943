"""`foldline mcp`: a session's past for any agent host, over the Model Context Protocol.

Knows which sessions are given. Refuses to change them, and to write anything but the protocol to
where the host reads.
"""

import signal
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated

import typer

from foldline import __version__
from foldline.apps.cli.context import Desk, command
from foldline.apps.cli.store_location import named
from foldline.errors import BadInput
from foldline.session import history
from foldline.session.history import Found
from foldline.session.session import AsyncSession
from foldline.session.stored_session import left
from foldline.stores.base import Store


@dataclass(frozen=True, slots=True)
class _Shelf:
    """The sessions of a tenant, each opened anew for a look: somebody may be talking in it."""

    store: Store
    tenant: str

    async def session(self, name: str) -> AsyncSession:
        return await left(self.store, await named(self.store, self.tenant, name))

    async def search(self, words: str, *, session: str | None, limit: int) -> list[Found]:
        only = (await named(self.store, self.tenant, session)).session if session else None
        return await history.search(self.store, self.tenant, words, session=only, limit=limit)


@command
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
    from foldline.agent.mcp.server import past, serve  # noqa: PLC0415 - after the extra

    async with desk.store() as store:
        shelf = _Shelf(store, desk.tenant)
        only = (await named(store, desk.tenant, name)).session if name is not None else None
        # The SDK reads in a thread that nothing wakes; we change nothing, so Ctrl-C just ends us.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        await serve(past(shelf, only=only), name="foldline", version=__version__)
