"""What stands around a gateway in its bench: an upstream, a bare pass-through, clients.

Knows just enough HTTP/1.1 for all three, so that they take as little as can be of the cores that they share
with the gateway. The bare pass-through is of the gateway's own stack: uvicorn and aiohttp.

    gateway_load.py upstream PORT         gateway_load.py bare PORT UPSTREAM
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvloop

ANSWER = b'{"id":"c","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":25000,"completion_tokens":1,"total_tokens":25001}}'
MESSAGE = b'{"id":"m","type":"message","role":"assistant","model":"bench","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":25000,"output_tokens":1}}'
PIECE = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"bench","choices":[{"index":0,"delta":{"role":"assistant","content":"piece %d "},"finish_reason":null}]}\n\n'
LAST = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"bench","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
EVERY = 0.5  # seconds between the pieces of a slow stream


# An upstream.


class Upstream(asyncio.Protocol):
    """One connection: takes all of a request, answers at once, or slowly where a stream is asked."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._length = -1
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: Any) -> None:
        """Somebody comes."""
        self._transport = transport

    def connection_lost(self, _exc: Exception | None) -> None:
        """And goes."""
        for task in self._tasks:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        self._buffer += data
        while True:
            if self._length < 0:
                end = self._buffer.find(b"\r\n\r\n")
                if end < 0:
                    return
                self._head = bytes(self._buffer[:end]).lower()
                del self._buffer[: end + 4]
                at = self._head.find(b"content-length:")
                self._length = int(self._head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._buffer) < self._length:
                return
            slow = b'"stream":true' in self._buffer[:200]
            del self._buffer[: self._length]
            self._length = -1
            if slow:
                pieces = int(self._head.partition(b"x-pieces:")[2].split(b"\r\n", 1)[0])
                task = asyncio.ensure_future(self._slowly(pieces))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                body = MESSAGE if b"/v1/messages" in self._head[:100] else ANSWER
                head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
                self._transport.write(b"%s%d\r\n\r\n%s" % (head, len(body), body))

    async def _slowly(self, pieces: int) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        self._transport.write(head + b"transfer-encoding: chunked\r\n\r\n")
        for at in range(pieces):
            piece = PIECE % at
            self._transport.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await asyncio.sleep(EVERY)
        self._transport.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(LAST), LAST))


async def answering(port: int) -> None:
    """An upstream, for ever."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "127.0.0.1", port, backlog=2_048)
    await server.serve_forever()


# What a gateway is beside: as little as the stack allows.


class Bare:
    """A pass-through: reads, asks, streams back; no key, no limit, no clock, no count."""

    def __init__(self, upstream: str) -> None:
        self.upstream, self.session = upstream, None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""
        import aiohttp  # noqa: PLC0415 - only where it runs

        if self.session is None:
            self.session = aiohttp.ClientSession(
                auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)
            )
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = [
            (n.decode(), v.decode())
            for n, v in scope["headers"]
            if n not in (b"host", b"content-length")
        ]
        url = self.upstream + scope["raw_path"].decode()
        async with self.session.request(scope["method"], url, data=body, headers=headers) as answer:
            kept = [
                (n, v)
                for n, v in answer.raw_headers
                if n.lower() not in (b"transfer-encoding", b"connection")
            ]
            await send({"type": "http.response.start", "status": answer.status, "headers": kept})
            async for chunk in answer.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


# Clients.


def _said(role: bytes, text: bytes) -> bytes:
    return b'{"role":"%s","content":"%s"}' % (role, text)


def _marked(text: bytes) -> bytes:
    mark = b',"cache_control":{"type":"ephemeral"}'
    return b'{"role":"user","content":[{"type":"text","text":"%s"%s}]}' % (text, mark)


def _blocks(role: bytes, text: bytes) -> bytes:
    return b'{"role":"%s","content":[{"type":"text","text":"%s"}]}' % (role, text)


@dataclass
class Talk:
    """A client's conversation: all of it is sent with each call, and it grows by a small exchange."""

    name: str
    messages: int = 100
    size: int = 980
    """The letters of each, at the beginning."""
    coding: bool = False
    """As Claude Code sends it: in Anthropic's dialect, cache marks on the system and the last message."""
    _past: list[bytes] = field(default_factory=list[bytes])
    _steps: int = 0

    def body(self, *, stream: bool = False) -> bytes:
        """The next request."""
        write = _blocks if self.coding else _said
        if not self._past:
            words = b"word " * (self.size // 5)
            roles = (b"user", b"assistant")
            self._past = [
                write(roles[at % 2], b"%s %d %s" % (self.name.encode(), at, words))
                for at in range(self.messages)
            ]
        text = b"step %d of it: what is next?" % self._steps
        self._now, self._steps = write(b"user", text), self._steps + 1
        if self.coding:
            last, mark = _marked(text), b',"cache_control":{"type":"ephemeral"}'
            head = (
                b'{"model":"claude-bench","max_tokens":1000,"system":[{"type":"text","text":"Be brief."%s}]'
                % mark
            )
        else:
            last, head = self._now, b'{"model":"bench"'
        flow = b',"stream":true' if stream else b""
        return b'%s%s,"messages":[%s]}' % (head, flow, b",".join([*self._past, last]))

    def answered(self) -> None:
        """It goes on from the answer."""
        write = _blocks if self.coding else _said
        self._past += (self._now, write(b"assistant", b"ok"))


class Client:
    """One connection that waits for each answer."""

    def __init__(
        self,
        port: int,
        headers: str = "",
        path: str = "/v1/chat/completions",
        *,
        method: str = "POST",
    ) -> None:
        self.port = port
        self._head = (
            f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer none\r\n"
            f"content-type: application/json\r\n{headers}"
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Client"]:
        """Connected."""
        self._in, self._out = await asyncio.open_connection("127.0.0.1", self.port, limit=2**20)
        try:
            yield self
        finally:
            self._out.close()

    async def ask(self, body: bytes, piece: Callable[[], None] | None = None) -> bytes:
        """The answer; `piece` is told of each chunk as it comes."""
        head = f"{self._head}content-length: {len(body)}\r\n\r\n".encode()
        self._out.write(head + body)
        answer = (await self._in.readuntil(b"\r\n\r\n")).lower()
        status = int(answer[9:12])
        if b"transfer-encoding: chunked" in answer:
            found = b""
            while size := int(await self._in.readuntil(b"\r\n"), 16):
                found += (await self._in.readexactly(size + 2))[:-2]
                if piece is not None:
                    piece()
            await self._in.readexactly(2)
        else:
            at = answer.find(b"content-length:") + 15
            found = await self._in.readexactly(int(answer[at:].split(b"\r\n", 1)[0]))
        assert status == 200, (status, found[:500])
        return found


@dataclass
class Load:
    """What some clients saw."""

    rate: float
    """Requests a second."""
    took: list[float]
    largest: int
    """Bytes of the last request of the longest conversation."""


async def load(
    clients: list[tuple[Client, Talk]],
    *,
    seconds: float,
    warmed: Callable[[], Awaitable[None]] | None = None,
) -> Load:
    """Let some clients ask for some seconds, behind a first request of each that is not counted."""
    took: list[float] = []
    sizes = [0]
    ready, go = asyncio.Semaphore(0), asyncio.Event()

    async def one(client: Client, talk: Talk) -> None:
        async with client.open():
            for _ in range(2):  # the whole of it, and once behind it
                assert b"ok" in await client.ask(talk.body())
                talk.answered()
            ready.release()
            await go.wait()
            while (begun := time.perf_counter()) < end:
                body = talk.body()
                found = await client.ask(body)
                took.append(time.perf_counter() - begun)
                assert b'"ok"' in found
                talk.answered()
            sizes.append(len(body))

    tasks = [asyncio.create_task(one(*pair)) for pair in clients]
    for _ in tasks:
        first = asyncio.create_task(ready.acquire())
        await asyncio.wait([first, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    if warmed is not None:
        await warmed()
    begun = time.perf_counter()
    end = begun + seconds
    go.set()
    await asyncio.gather(*tasks)
    return Load(len(took) / (time.perf_counter() - begun), took, max(sizes))


def main() -> None:
    """Be one of them, in this process."""
    what, port, *rest = sys.argv[1:]
    if what == "upstream":
        uvloop.run(answering(int(port)))
        return
    import uvicorn  # noqa: PLC0415 - only where it runs

    uvicorn.run(Bare(rest[0]), port=int(port), log_level="error", lifespan="off", access_log=False)


if __name__ == "__main__":
    main()
