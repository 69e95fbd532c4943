"""One server: started, asked for its tools, called, and started again after it died.

Knows how servers fail: they do not start, die in the middle of a call, hang, print rubbish. Each is
told in words that name the server. The SDK's scopes must be left in the task that entered them, so
a server lives in a task of its own. Refuses to know tools as the agent has them.
"""

import asyncio
import logging
import os
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import KW_ONLY, dataclass, field
from importlib import import_module
from pathlib import Path
from re import fullmatch
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from foldline.agent.mcp.messages import Streams, heard
from foldline.core.parts import sound
from foldline.errors import BadInput, FoldlineError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from mcp import Client
    from mcp_types import CallToolResult, Tool

_NAME = r"[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*"
_LONGEST = 32  # characters of a name: half of what a tool's name may have
_LEAVING = 10.0  # seconds for a goodbye: the SDK ends within 7 what does not end by itself
_LISTING = 5.0  # seconds that a call waits for the tools that it changed
_STOPPING = 0.5  # seconds for telling a server that it need not go on
_PAGES = 100  # of a list of tools
_LARGEST = 64 * 2**20  # bytes of one message over HTTP
_LAST_WORDS, _SHOWN = 4_096, 400
_FRESH = 2**20  # bytes of a log that is begun anew


class ServerFailed(FoldlineError):  # noqa: N818 - named for what happened
    """An MCP server did not do what it was asked for."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server of the settings: a program that is started, or an address that is joined."""

    name: str
    _: KW_ONLY
    command: "Sequence[str]" = ()
    """The program and its arguments; it speaks on its standard streams."""
    env: "Mapping[str, str]" = field(default_factory=dict[str, str])
    """What its environment has besides the few harmless variables of ours."""
    url: str = ""
    """Where it is instead, over streamable HTTP."""
    headers: "Mapping[str, str]" = field(default_factory=dict[str, str])
    tools: "Sequence[str] | None" = None
    """The only tools that are taken, by the server's own names; None takes all."""
    trusted: bool = False
    """Whether its word counts for which tools only read."""
    approve: Literal["ask", "never-ask"] = "ask"
    seconds: float = 60.0
    """How long a start, or a call, may take."""

    def __post_init__(self) -> None:
        if len(self.name) > _LONGEST or not fullmatch(_NAME, self.name):
            raise BadInput(
                f"{self.name!r} cannot be the name of an MCP server; take letters, digits, - and "
                f"single _ between them, at most {_LONGEST}"
            )
        if bool(self.command) == bool(self.url):
            raise BadInput(
                f"the MCP server {self.name!r} needs either a command or a url: "
                'command = ["uvx", "mcp-server-time"]'
            )
        if self.seconds <= 0:
            raise BadInput(f"the MCP server {self.name!r}: seconds = {self.seconds:g} is no time")


class _Run:
    """One life of a server."""

    def __init__(self) -> None:
        self.ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.ready.add_done_callback(lambda one: one.exception())  # else it warns where none asks
        self.stirred, self.settled = asyncio.Event(), asyncio.Event()
        self.changed = self.ended = self.left = False
        self.busy = True  # starting, or asking for tools
        self.task: asyncio.Task[None] | None = None
        self.settled.set()

    def change(self) -> None:
        self.changed = True
        self.settled.clear()
        self.stirred.set()

    def end(self) -> None:
        self.ended = True
        self.settled.set()
        self.stirred.set()


class Joined:
    """A server that is kept running."""

    def __init__(self, server: Server, *, log: Path | None = None) -> None:
        self.server, self.log = server, log
        self.tools: tuple[Tool, ...] = ()
        """What it offered last; kept while it is down."""
        self.fault = ""
        """Why it is down."""
        self._run: _Run | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: set[asyncio.Task[CallToolResult]] = set()

    def start(self) -> None:
        """Start it, or join it, in a task of its own; nothing is waited for."""
        run = self._run = _Run()
        name = f"MCP server {self.server.name}"
        run.task = task = asyncio.get_running_loop().create_task(self._live(run), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def begun(self, seconds: float) -> None:
        """Wait until it has started or failed, or for so long."""
        if self._run is not None:
            await asyncio.wait({self._run.ready}, timeout=seconds)

    async def call(self, tool: str, arguments: dict[str, Any]) -> "CallToolResult":
        """Call a tool; a server that is down is started again first, once."""
        from mcp import MCPError  # noqa: PLC0415 - an extra, and it takes a second
        from mcp_types import (  # noqa: PLC0415
            CONNECTION_CLOSED,
            INTERNAL_ERROR,
            INVALID_REQUEST,
            REQUEST_TIMEOUT,
        )

        run, client = await self._running()
        limit = self.server.seconds
        try:
            answer = await self._answer(
                client.call_tool(tool, arguments, read_timeout_seconds=limit)
            )
        except TimeoutError as fault:
            raise self._failed(f"takes nothing in, for {limit:g} s now") from fault
        except MCPError as fault:
            if run.ended or fault.code == CONNECTION_CLOSED:
                run.end()
                raise self._failed(
                    "ended in the middle of the call; what it has done is unknown. "
                    "It is started again at the next call"
                ) from fault
            if fault.code == REQUEST_TIMEOUT:
                raise self._failed(f"gave no answer within {limit:g} s; it was told so") from fault
            if self.server.url and fault.code in (INVALID_REQUEST, INTERNAL_ERROR):
                run.end()  # it may have forgotten us, or be another by now: joined anew next time
            raise self._failed(f"refused: {sound(fault.message)}") from fault
        except Exception as fault:
            raise self._failed(f"gave no answer that MCP knows: {_told(fault)}") from fault
        with suppress(TimeoutError):
            await asyncio.wait_for(run.settled.wait(), _LISTING)
        return answer

    async def _answer(self, call: "Coroutine[Any, Any, CallToolResult]") -> "CallToolResult":
        """What a call comes to. Stopped, it ends at once, also where a server does not read."""
        task = asyncio.get_running_loop().create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        task.add_done_callback(lambda one: one.cancelled() or one.exception())  # else it warns
        try:
            done, _ = await asyncio.wait({task}, timeout=self.server.seconds + _STOPPING)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=_STOPPING)
        if not done:
            raise TimeoutError
        return task.result()

    async def leave(self) -> None:
        """Let it go; what does not end by itself is ended."""
        run = self._run
        if run is not None:
            run.left = True
            if run.task is not None and run.busy and not run.ended:
                run.task.cancel()  # not while it ends: that would break off the SDK's own goodbye
            run.end()
        if self._tasks:
            await asyncio.wait({*self._tasks}, timeout=_LEAVING)

    async def _running(self) -> "tuple[_Run, Client]":
        if self._run is None or self._run.ended:
            self.start()
        run = self._run
        assert run is not None  # noqa: S101 - start() made it
        done, _ = await asyncio.wait({run.ready}, timeout=self.server.seconds)
        if not done:
            raise self._failed(f"did not start within {self.server.seconds:g} s")
        if run.ready.exception() is not None:
            raise self._failed(f"did not start: {self.fault}")
        return run, run.ready.result()

    async def _live(self, run: _Run) -> None:
        """From its start to its end; what goes wrong is kept as words."""
        with self._stderr() as errors:
            try:
                await asyncio.to_thread(_imported)
                await self._talk(run, errors)
            except Exception as fault:  # noqa: BLE001 - whatever a server's start may raise
                why = f"nothing within {self.server.seconds:g} s"
                why = why if isinstance(fault, TimeoutError) else _told(fault)
                self.fault = f"{why}{_last_words(errors)}"
            finally:
                run.end()
                if not run.ready.done():
                    run.ready.set_exception(ServerFailed(self.fault))

    async def _talk(self, run: _Run, errors: IO[str]) -> None:
        from mcp import Client  # noqa: PLC0415 - an extra, and it takes a second

        async with AsyncExitStack() as stack:
            # Not anyio's: a scope of its own would have to outlive those that are entered in it.
            async with asyncio.timeout(self.server.seconds):
                transport = await self._transport(stack, errors)
                way = heard(transport, changed=run.change, ended=run.end)
                client = await stack.enter_async_context(
                    Client(way, read_timeout_seconds=self.server.seconds, cache=None)
                )
                self.tools = await _listed(client)
                await _listen(client, stack)
            self.fault = ""
            run.ready.set_result(client)
            while not run.ended:
                run.busy = False
                await run.stirred.wait()
                run.busy = True
                run.stirred.clear()
                if run.changed and not run.ended:
                    run.changed = False
                    with suppress(Exception):  # the tools that were stay; a call will tell
                        self.tools = await _listed(client)
                    if not run.changed:
                        run.settled.set()
            self.fault = "" if run.left else f"it ended{_last_words(errors)}"

    async def _transport(
        self, stack: AsyncExitStack, errors: IO[str]
    ) -> AbstractAsyncContextManager[Streams]:
        if not self.server.url:
            from mcp import StdioServerParameters, stdio_client  # noqa: PLC0415 - an extra

            program, *arguments = self.server.command
            how = StdioServerParameters(
                command=program,
                args=arguments,
                env=dict(self.server.env),
                encoding_error_handler="replace",
            )
            return stdio_client(how, errlog=errors)  # type: ignore[arg-type]
        import httpx2  # noqa: PLC0415 - the SDK's
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

        limits = httpx2.Timeout(30.0, read=max(self.server.seconds, 300.0))
        web = httpx2.AsyncClient(headers=dict(self.server.headers), timeout=limits)
        await stack.enter_async_context(web)
        return streamable_http_client(self.server.url, http_client=web, max_sse_event_size=_LARGEST)

    def _stderr(self) -> IO[str]:
        """Where its complaints go: a log, or a file without a name; never a terminal."""
        if self.log is not None:
            with suppress(OSError):
                self.log.parent.mkdir(parents=True, exist_ok=True)
                large = self.log.exists() and self.log.stat().st_size > _FRESH
                return self.log.open("w+" if large else "a+", errors="replace")
        return TemporaryFile("w+", errors="replace")

    def _failed(self, what: str) -> ServerFailed:
        return ServerFailed(f"the MCP server {self.server.name!r} {what}")


def _imported() -> None:
    """Import the SDK, in a thread: a person may be typing. What it logs is not for the terminal."""
    import_module("mcp")
    for one in (logging.getLogger("mcp"), logging.getLogger("client")):
        if not one.handlers:
            one.addHandler(logging.NullHandler())


async def _listed(client: "Client") -> "tuple[Tool, ...]":
    """All of its tools, page by page."""
    found: list[Tool] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tuple(found)


async def _listen(client: "Client", stack: AsyncExitStack) -> None:
    """Have changes told to us: servers of 2026 and later tell only those who ask."""
    from mcp.client.subscriptions import ListenNotSupportedError  # noqa: PLC0415 - an extra

    tools = client.server_capabilities.tools
    if tools is not None and tools.list_changed:
        with suppress(ListenNotSupportedError):
            await stack.enter_async_context(client.listen(tools_list_changed=True))


def _told(fault: BaseException) -> str:
    """A fault in a line; of a group, its first."""
    if isinstance(fault, BaseExceptionGroup):
        return _told(cast("BaseExceptionGroup[BaseException]", fault).exceptions[0])
    words = " ".join(str(fault).split())
    return sound(words)[:_SHOWN] or type(fault).__name__


def _last_words(errors: IO[str]) -> str:
    """What it wrote last where programs complain."""
    with suppress(OSError, ValueError):
        end = os.fstat(errors.fileno()).st_size
        last = os.pread(errors.fileno(), _LAST_WORDS, max(end - _LAST_WORDS, 0))
        lines = [line for one in last.decode(errors="replace").split("\n") if (line := one.strip())]
        if lines:
            return f"; its last words: {lines[-1][:_SHOWN]}"
    return ""
