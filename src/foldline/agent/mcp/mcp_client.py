"""An MCP client for one server: start it, list and call its tools, restart it after it died.

Servers fail to start, die during a call, hang, or print garbage; every error names the server. The
SDK's scopes must be left in the task that entered them, so each server runs in a task of its own.

Incoming messages are repaired first, as the SDK drops or raises on three things that servers do:
content of a kind newer than the SDK, JSON too deep for its parser, and results that do not match
the tool's own schema.
"""

import asyncio
import json
import logging
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from importlib import import_module
from pathlib import Path
from re import fullmatch
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast

from foldline.core.parts import replace_surrogates
from foldline.errors import BadInput, FoldlineError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from mcp import Client
    from mcp.shared.message import SessionMessage
    from mcp_types import CallToolResult, Tool

Item: TypeAlias = "SessionMessage | Exception"
Streams: TypeAlias = tuple[Any, Any]
_KNOWN = {"text", "image", "audio", "resource", "resource_link"}
# A response: by its first fields, as the Python SDK writes it, or by its last, as TypeScript does.
_FIRST = re.compile(
    r'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*,\s*"result"\s*:'
)
_RESULT = re.compile(r'\s*\{\s*"result"\s*:')
_LAST = re.compile(r',\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*\}\s*$')
_TAIL = 200  # characters in which the last fields are searched


@asynccontextmanager
async def wrap_transport(
    transport: AbstractAsyncContextManager[Streams],
    *,
    changed: Callable[[], None],
    ended: Callable[[], None],
) -> AsyncGenerator[Streams]:
    """Wrap a transport: repairs messages, and reports changed tools and the end.

    A change is reported before the next message is read, so a result that follows it is up to date.
    """
    async with transport as (read, write):
        try:
            yield McpStream(read, changed, ended), write
        finally:
            ended()


class McpStream:
    """The stream a session reads from; repairs each message."""

    def __init__(self, read: Any, changed: Callable[[], None], ended: Callable[[], None]) -> None:
        self._read, self._changed, self._ended = read, changed, ended

    @property
    def last_context(self) -> Any:
        """The sender's context variables, if the transport has them."""
        return getattr(self._read, "last_context", None)

    async def receive(self) -> Item:
        """Receive the next message."""
        return await self._receive_with(self._read.receive)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._read.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        return await self._receive_with(self._read.__anext__)

    async def __aenter__(self) -> Self:
        await self._read.__aenter__()
        return self

    async def __aexit__(self, *why: object) -> bool | None:
        return await self._read.__aexit__(*why)

    async def _receive_with(self, receive: "Callable[[], Awaitable[Item]]") -> Item:
        try:
            item = await receive()
        except BaseException:
            self._ended()
            raise
        if isinstance(item, Exception):
            return _recover_response(item)
        message: Any = item.message
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self._changed()
        if isinstance(getattr(message, "result", None), dict):
            _repair_result(message.result)
        return item


def _repair_result(result: dict[str, Any]) -> None:
    """Turn unknown content into JSON text, and drop the tools' output schemas.

    The SDK would drop a result that does not match its schema; the model can still use it.
    """
    if isinstance(tools := result.get("tools"), list):
        for tool in cast("list[Any]", tools):
            if isinstance(tool, dict):
                cast("dict[str, Any]", tool).pop("outputSchema", None)
    if "structuredContent" in result:
        result.setdefault("content", [])
    if isinstance(content := result.get("content"), list):
        result["content"] = [_repair_block(block) for block in cast("list[Any]", content)]


def _repair_block(block: Any) -> Any:
    """Return a block the SDK can read, else a text block with its JSON."""
    from mcp_types import CallToolResult  # noqa: PLC0415 - an extra, slow to import

    if isinstance(block, dict) and cast("dict[str, Any]", block).get("type") in _KNOWN:
        try:
            CallToolResult.model_validate({"content": [block]}, by_name=False)
        except ValueError:
            pass
        else:
            return cast("dict[str, Any]", block)
    return _make_text_block(json.dumps(block, ensure_ascii=False))


def _make_text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _recover_response(fault: Exception) -> Item:
    """Carry a response that could not be parsed as text; return any other fault unchanged."""
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
    content = {"content": [_make_text_block(body.strip())]}
    return SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=int(number), result=content))


_NAME = r"[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*"
_LONGEST = 32  # characters of a server's name: half of what a tool's name may have
_LEAVING = 10.0  # seconds for a shutdown: the SDK kills a process within 7
_LISTING = 5.0  # seconds a call waits for the tools it changed
_STOPPING = 0.5  # seconds to tell a server that a call is cancelled
_PAGES = 100  # of a list of tools
_LARGEST = 64 * 2**20  # bytes of one message over HTTP
_LAST_WORDS, _SHOWN = 4_096, 400
_FRESH = 2**20  # bytes after which a log is begun anew


class ServerFailed(FoldlineError):  # noqa: N818 - named for what happened
    """An MCP server did not start, or did not answer a call."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server of the settings: a program to start, or a URL to connect to."""

    name: str
    _: KW_ONLY
    command: "Sequence[str]" = ()
    """The program and its arguments; it uses its standard streams."""
    env: "Mapping[str, str]" = field(default_factory=dict[str, str])
    """Environment variables besides the few harmless ones it inherits."""
    url: str = ""
    """Its address instead, over streamable HTTP."""
    headers: "Mapping[str, str]" = field(default_factory=dict[str, str])
    tools: "Sequence[str] | None" = None
    """The tools to use, by the server's own names; None uses all."""
    trusted: bool = False
    """Whether its hints are believed about which tools only read."""
    approve: Literal["ask", "never-ask"] = "ask"
    seconds: float = 60.0
    """How long a start or a call may take."""

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
    """One run of a server, from start to end."""

    def __init__(self) -> None:
        self.ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        # Retrieved once: asyncio warns about an exception that was never retrieved.
        self.ready.add_done_callback(lambda ready: ready.exception())
        self.stirred, self.settled = asyncio.Event(), asyncio.Event()
        self.changed = self.ended = self.left = False
        self.busy = True  # starting, or listing tools
        self.task: asyncio.Task[None] | None = None
        self.settled.set()

    def mark_changed(self) -> None:
        self.changed = True
        self.settled.clear()
        self.stirred.set()

    def mark_ended(self) -> None:
        self.ended = True
        self.settled.set()
        self.stirred.set()


class Joined:
    """A server that is kept running."""

    def __init__(self, server: Server, *, log: Path | None = None) -> None:
        self.server, self.log = server, log
        self.tools: tuple[Tool, ...] = ()
        """The tools it listed last; kept while it is down."""
        self.fault = ""
        """Why it is down."""
        self._run: _Run | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: set[asyncio.Task[CallToolResult]] = set()

    def start(self) -> None:
        """Start the server, or connect to it, in a task of its own; does not wait."""
        run = self._run = _Run()
        name = f"MCP server {self.server.name}"
        run.task = task = asyncio.get_running_loop().create_task(self._run_server(run), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait_for_start(self, seconds: float) -> None:
        """Wait until it has started or failed, at most `seconds`."""
        if self._run is not None:
            await asyncio.wait({self._run.ready}, timeout=seconds)

    async def call_tool(self, tool: str, arguments: dict[str, Any]) -> "CallToolResult":
        """Call a tool; a server that is down is restarted first, once."""
        from mcp import MCPError  # noqa: PLC0415 - an extra, slow to import
        from mcp_types import (  # noqa: PLC0415
            CONNECTION_CLOSED,
            INTERNAL_ERROR,
            INVALID_REQUEST,
            REQUEST_TIMEOUT,
        )

        run, client = await self._wait_for_client()
        limit = self.server.seconds
        try:
            answer = await self._wait_for_answer(
                client.call_tool(tool, arguments, read_timeout_seconds=limit)
            )
        except TimeoutError as fault:
            raise self._make_failure(f"takes nothing in, for {limit:g} s now") from fault
        except MCPError as fault:
            if run.ended or fault.code == CONNECTION_CLOSED:
                run.mark_ended()
                raise self._make_failure(
                    "ended in the middle of the call; what it has done is unknown. "
                    "It is started again at the next call"
                ) from fault
            if fault.code == REQUEST_TIMEOUT:
                raise self._make_failure(
                    f"gave no answer within {limit:g} s; it was notified"
                ) from fault
            if self.server.url and fault.code in (INVALID_REQUEST, INTERNAL_ERROR):
                run.mark_ended()  # it may have forgotten our session: connect again
            raise self._make_failure(f"refused: {replace_surrogates(fault.message)}") from fault
        except Exception as fault:
            raise self._make_failure(
                f"gave no answer that MCP knows: {_describe_fault(fault)}"
            ) from fault
        with suppress(TimeoutError):
            await asyncio.wait_for(run.settled.wait(), _LISTING)
        return answer

    async def _wait_for_answer(
        self, call: "Coroutine[Any, Any, CallToolResult]"
    ) -> "CallToolResult":
        """Wait for a call's result; a cancelled call ends at once, even if the server hangs."""
        task = asyncio.get_running_loop().create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        # Retrieved once: asyncio warns about an exception that was never retrieved.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            done, _ = await asyncio.wait({task}, timeout=self.server.seconds + _STOPPING)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=_STOPPING)
        if not done:
            raise TimeoutError
        return task.result()

    async def stop(self) -> None:
        """Stop the server; the SDK kills a process that does not end by itself."""
        run = self._run
        if run is not None:
            run.left = True
            if run.task is not None and run.busy and not run.ended:
                run.task.cancel()  # not while it ends: that would interrupt the SDK's shutdown
            run.mark_ended()
        if self._tasks:
            await asyncio.wait({*self._tasks}, timeout=_LEAVING)

    async def _wait_for_client(self) -> "tuple[_Run, Client]":
        if self._run is None or self._run.ended:
            self.start()
        run = self._run
        assert run is not None  # noqa: S101 - start() made it
        done, _ = await asyncio.wait({run.ready}, timeout=self.server.seconds)
        if not done:
            raise self._make_failure(f"did not start within {self.server.seconds:g} s")
        if run.ready.exception() is not None:
            raise self._make_failure(f"did not start: {self.fault}")
        return run, run.ready.result()

    async def _run_server(self, run: _Run) -> None:
        """Run the server from start to end; a failure is kept in `fault`."""
        with self._open_error_log() as errors:
            try:
                await asyncio.to_thread(_import_sdk)
                await self._run_connection(run, errors)
            except Exception as fault:  # noqa: BLE001 - whatever a server's start may raise
                why = f"nothing within {self.server.seconds:g} s"
                why = why if isinstance(fault, TimeoutError) else _describe_fault(fault)
                self.fault = f"{why}{_last_words(errors)}"
            finally:
                run.mark_ended()
                if not run.ready.done():
                    run.ready.set_exception(ServerFailed(self.fault))

    async def _run_connection(self, run: _Run, errors: IO[str]) -> None:
        from mcp import Client  # noqa: PLC0415 - an extra, slow to import

        async with AsyncExitStack() as stack:
            # Not anyio's timeout: its scope would have to outlive those entered in it.
            async with asyncio.timeout(self.server.seconds):
                transport = await self._open_transport(stack, errors)
                way = wrap_transport(transport, changed=run.mark_changed, ended=run.mark_ended)
                client = await stack.enter_async_context(
                    Client(way, read_timeout_seconds=self.server.seconds, cache=None)
                )
                self.tools = await _list_tools(client)
                await _subscribe_to_changes(client, stack)
            self.fault = ""
            run.ready.set_result(client)
            while not run.ended:
                run.busy = False
                await run.stirred.wait()
                run.busy = True
                run.stirred.clear()
                if run.changed and not run.ended:
                    run.changed = False
                    with suppress(Exception):  # keeps the old tools; the next call reports it
                        self.tools = await _list_tools(client)
                    if not run.changed:
                        run.settled.set()
            self.fault = "" if run.left else f"it ended{_last_words(errors)}"

    async def _open_transport(
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

    def _open_error_log(self) -> IO[str]:
        """Open the file for its stderr: a log or a temporary file, never the terminal."""
        if self.log is not None:
            with suppress(OSError):
                self.log.parent.mkdir(parents=True, exist_ok=True)
                large = self.log.exists() and self.log.stat().st_size > _FRESH
                return self.log.open("w+" if large else "a+", errors="replace")
        return TemporaryFile("w+", errors="replace")

    def _make_failure(self, what: str) -> ServerFailed:
        return ServerFailed(f"the MCP server {self.server.name!r} {what}")


def _import_sdk() -> None:
    """Import the SDK (in a thread: a user may be typing), and keep its log off the terminal."""
    import_module("mcp")
    for logger in (logging.getLogger("mcp"), logging.getLogger("client")):
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())


async def _list_tools(client: "Client") -> "tuple[Tool, ...]":
    found: list[Tool] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tuple(found)


async def _subscribe_to_changes(client: "Client", stack: AsyncExitStack) -> None:
    """Subscribe to changes of the tools: newer servers report them only to subscribers."""
    from mcp.client.subscriptions import ListenNotSupportedError  # noqa: PLC0415 - an extra

    tools = client.server_capabilities.tools
    if tools is not None and tools.list_changed:
        with suppress(ListenNotSupportedError):
            await stack.enter_async_context(client.listen(tools_list_changed=True))


def _describe_fault(fault: BaseException) -> str:
    """Describe a fault in one line; of a group, its first."""
    if isinstance(fault, BaseExceptionGroup):
        return _describe_fault(cast("BaseExceptionGroup[BaseException]", fault).exceptions[0])
    words = " ".join(str(fault).split())
    return replace_surrogates(words)[:_SHOWN] or type(fault).__name__


def _last_words(errors: IO[str]) -> str:
    """Return the last line the server wrote to stderr."""
    with suppress(OSError, ValueError):
        end = os.fstat(errors.fileno()).st_size
        last = os.pread(errors.fileno(), _LAST_WORDS, max(end - _LAST_WORDS, 0))
        lines = [line for one in last.decode(errors="replace").split("\n") if (line := one.strip())]
        if lines:
            return f"; its last words: {lines[-1][:_SHOWN]}"
    return ""
