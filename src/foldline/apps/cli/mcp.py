"""`foldline mcp`: give a session's past to an agent host, over the Model Context Protocol.

Sessions are only read, and stdout carries nothing but the protocol.
"""

import asyncio
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from foldline import __version__
from foldline.agent.tool import Arguments
from foldline.apps.cli.context import Desk, make_command, open_named_session, resolve_session_name
from foldline.core.parts import Call, calls_of
from foldline.core.view import View
from foldline.errors import BadInput
from foldline.session.history import FoundMessage
from foldline.session.message_search import search_tenant_messages
from foldline.session.session import AsyncSession
from foldline.stores.base import Store

_TRIES, _PAUSE = 20, 0.1  # seconds


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


@dataclass(frozen=True, slots=True)
class _CallerSearch:
    """Finds which of a gateway's conversations calls a tool: the protocol does not say."""

    shelf: _Shelf
    audit: Path

    async def find_caller(self, tool: str, given: Arguments) -> str:
        """Find the conversation that waits for this call's result; else the newest."""
        names: list[str] = []
        for _ in range(_TRIES):
            names = [*dict.fromkeys(reversed([*_read_audited_sessions(self.audit)]))]
            for name in names:
                if _waits_for_call((await self.shelf.session(name)).live.view, tool, given):
                    return name
            await asyncio.sleep(_PAUSE)  # the answer that calls it may not be recorded yet
        if not names:
            raise BadInput("no conversation went through the gateway yet")
        return names[0]


def _read_audited_sessions(audit: Path) -> Iterator[str]:
    """Yield the sessions that a gateway's audit log names, the oldest request first."""
    for line in audit.read_bytes().splitlines() if audit.exists() else ():
        try:
            name = msgspec.json.decode(line, type=_AuditLine).session
        except msgspec.DecodeError:  # half written
            continue
        if name:
            yield name


class _AuditLine(msgspec.Struct):
    session: str = ""


def _waits_for_call(view: View, tool: str, given: Arguments) -> bool:
    """Whether a conversation's newest answer calls this, and has no result yet."""
    newest = next((item for item in reversed(view.items) if item.role == "model"), None)
    calls = calls_of(newest.parts) if newest is not None and view.open else ()
    return any(call.name.endswith(tool) and _has_arguments(call, given) for call in calls)


def _has_arguments(call: Call, given: Arguments) -> bool:
    try:
        return msgspec.json.decode(call.arguments or "{}") == dict(given)
    except msgspec.DecodeError:
        return False


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
    audit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The session that asks, of those in a gateway's audit log."
        ),
    ] = None,
) -> None:
    """Give a session's past to an agent host, as an MCP server on stdin and stdout.

    Its tools are recall, search_history and context. They only read. A host starts it by command
    "foldline" with the arguments "mcp" and NAME.
    """
    if (name is not None) + every + (audit is not None) != 1:
        raise BadInput(
            "which session? write `foldline mcp NAME`, --all for all of them, or --audit FILE"
        )
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
        find_caller = _CallerSearch(shelf, audit).find_caller if audit is not None else None
        tools = build_history_tools(shelf, only=only, find_caller=find_caller)
        await serve_tools(tools, name="foldline", version=__version__)
