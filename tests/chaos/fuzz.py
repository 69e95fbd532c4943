"""Send the gateway requests that nobody would write, and find that it answers each, and tells nobody another's.

    just chaos fuzz                 100,000 requests, some ten minutes
    just chaos fuzz --short         3,000
    just chaos fuzz --seed 7        the same again

The real command on SQLite with keys of its own, an upstream that records, clients of three keys (two of one
tenant) on raw sockets. What is sent: bodies of both dialects whose fields are dropped, doubled, of another type,
nested, huge, not UTF-8; histories that go on, turn off, repeat, with moved cache marks and named sessions; the
session API; odd heads, lengths, chunks, pipelines, compressions, hang-ups. Odd answers come back, too.

No answer is 500, none takes longer than `PATIENCE`, and a good request is answered behind each batch. Each key
has a canary in what it says: no other key's answer holds it, nor does a request upstream hold two. Nothing that is
hidden in a body reaches the upstream as a request, no key of the gateway's does, and the operator's reaches nobody.

The control must be caught: conversations that are found without looking at the key.
"""

import argparse
import asyncio
import gzip
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NoReturn

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / folder) for folder in ("properties", "support")]
from mutants import broken  # noqa: E402 - beside us
from raw_upstream import CUT, Recorded, Upstream, chunk, head  # noqa: E402

from foldline.apps.gateway.api_keys import create_key  # noqa: E402
from foldline.testing.provider import written  # noqa: E402

OPERATORS = "sk-operator-canary-0123456789abcdef"
PATIENCE = 10.0  # seconds
sys.setrecursionlimit(20_000)
BATCH, ABREAST = 500, 8
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
MUTANT = (
    "foldline.proxy.conversations",
    """        key = (scope, len(body), request.hashes[-1])
        flight = self._flights.get(key)
        if flight is not None:  # a client that did not wait: the same request once more
            with suppress(FoldlineError):
                same = await flight
                if same.request.body == body:
""",
    """        key = (ALL, 0, request.hashes[-1])
        flight = self._flights.get(key)
        if flight is not None:
            with suppress(FoldlineError):
                same = await flight
                if same:
""",
)
_CANARY = re.compile(rb"canary-(ann|ben|eve)-[0-9]")
_SHOWN = 400


class Broken(Exception):  # noqa: N818 - named for what was found
    """Something is not as it must be."""


class Leaked(Broken):
    """One key's words came to another."""


class Pairs(list[tuple[str, Any]]):
    """An object whose fields may be there twice."""


@dataclass
class Who:
    """A client: its key, and what it has said."""

    name: str
    tenant: str
    key: str
    histories: list[tuple[str, list[Any]]] = field(default_factory=list[tuple[str, list[Any]]])
    """A dialect's path, and messages."""

    def canary(self, random: Random) -> str:
        """Words that only this key says."""
        return f"canary-{self.name}-{random.randint(0, 9)}"


# What is sent.

_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
_TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {"at": {"type": "integer"}}}}}  # fmt: skip
_PIXEL = "data:image/png;base64,iVBORw0KGgo="
_ODD: list[Any] = [
    None, True, 0, -1, 1.5, 1e308, 10**40, -(10**30), "", "\x00", "\u2028", "𝕏" * 50, [], {}, [[]], [None], {"": None},
    {"type": "text"}, [{"type": "text"}], "x" * 5_000, {"role": "user"}, [{"type": "image"}], "user", "assistant",
]  # fmt: skip
_RAW = [
    b"", b"null", b"[]", b"{}", b'"x"', b"{", b'{"messages":', b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"[" * 5_000, b'{"a":' * 3_000,
    b'{"messages":[' + b"[" * 1_000 + b"]" * 1_000 + b"]}", b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}',
    b'{"model":"m","messages":[{"role":"user","content":"\xff"}]}', b'{"model":1e999,"messages":[]}', b"\x00" * 100,
]  # fmt: skip


def new(path: str, random: Random, who: Who) -> dict[str, Any]:
    """An ordinary body."""
    words = random.choice(["hello", "hello", "go on", who.canary(random)])
    if path == CHAT:
        made: dict[str, Any] = {"model": random.choice(["m", "gpt-4o", "smollm2"]), "messages": [{"role": "user", "content": words}]}  # fmt: skip
        if random.random() < 0.3:
            made["messages"].insert(0, {"role": "system", "content": "Be brief."})
        if random.random() < 0.3:
            made["tools"] = [_TOOL]
        if random.random() < 0.2:
            made["messages"] += [{"role": "assistant", "content": None, "tool_calls": [_CALL]}, {"role": "tool", "tool_call_id": "c1", "content": "found"}]  # fmt: skip
        if random.random() < 0.1:
            made["messages"][-1]["content"] = [{"type": "text", "text": words}, {"type": "image_url", "image_url": {"url": _PIXEL}}]  # fmt: skip
        if random.random() < 0.2:
            made["response_format"] = {"type": "json_object"}
    else:
        made = {"model": "claude-sonnet-4-5", "max_tokens": random.choice([1, 50, 4_096]), "messages": [{"role": "user", "content": words}]}  # fmt: skip
        if random.random() < 0.3:
            made["system"] = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]  # fmt: skip
        if random.random() < 0.2:
            made["messages"] += [
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "found"}]},
            ]  # fmt: skip
            made["tools"] = [{"name": "look", "input_schema": {"type": "object"}}]
    if random.random() < 0.4:
        made["stream"] = True
    return made


def going_on(path: str, messages: list[Any], random: Random, who: Who) -> dict[str, Any]:
    """A history that is known: longer, the same, cut short, turned off, with other marks."""
    body = new(path, random, who)
    said = deepcopy(messages)
    match random.randint(0, 5):
        case 0:
            pass
        case 1:
            said = said[: random.randint(0, len(said))]
        case 2 if said:
            one = random.choice(said)
            one["content"] = random.choice(["otherwise", who.canary(random), [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]])  # fmt: skip
        case 3 if said and path == MESSAGES and isinstance(said[-1].get("content"), str):
            said[-1]["content"] = [{"type": "text", "text": said[-1]["content"], "cache_control": {"type": "ephemeral"}}]  # fmt: skip
        case _:
            said.append({"role": "user", "content": random.choice(["hello", "go on", who.canary(random)])})  # fmt: skip
    body["messages"] = said
    return body


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a value."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()  # fmt: skip
    for key, one in inner if len(path) < 12 else ():
        yield from places(one, (*path, key))


def changed(body: dict[str, Any], random: Random) -> Any:
    """A body with one place otherwise."""
    path = random.choice([*places(body)])
    at: Any = body
    for key in path[:-1]:
        at = at[key]
    key = path[-1]
    match random.randint(0, 5):
        case 0:
            del at[key]
        case 1 if isinstance(at, list):
            at.insert(key, deepcopy(at[key]))
        case 2:
            deep: Any = at[key]
            for _ in range(random.choice([5, 150, 400])):
                deep = [deep] if random.random() < 0.5 else {"a": deep}
            at[key] = deep
        case 3 if isinstance(at, dict):
            at[random.choice(["messages", "model", "stream", "role", "content", "system", "x"])] = at[key]  # fmt: skip
        case _:
            at[key] = deepcopy(random.choice(_ODD))
    return body


def doubled(body: dict[str, Any], random: Random) -> Pairs:
    """A body with a field twice, the first or the last of them another."""
    pairs = Pairs(body.items())
    name = random.choice([*body, "messages", "model", "stream", "max_tokens"])
    value = random.choice([body.get(name), *_ODD, [{"role": "user", "content": "smuggled"}]])
    pairs.insert(random.randint(0, len(pairs)), (name, value))
    return pairs


def text(value: Any, random: Random) -> str:
    """JSON in one of the ways it may be written."""
    spaces = random.choice([(",", ":"), (", ", ": "), (" ,\n", "\t: ")])
    ascii_only = random.random() < 0.5
    if isinstance(value, Pairs):
        said = [json.dumps(k) + spaces[1] + json.dumps(v, separators=spaces) for k, v in value]
        return "{" + spaces[0].join(said) + "}"
    return json.dumps(value, separators=spaces, ensure_ascii=ascii_only)


def bent(body: bytes, random: Random) -> bytes:
    """Bytes with a few otherwise."""
    if not body:
        return body
    made = bytearray(body)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(made) or 1)
        match random.randint(0, 4):
            case 0:
                made[at : at + 1] = random.randbytes(1)
            case 1:
                del made[at : at + random.randint(1, 20)]
            case 2:
                made[at:at] = random.choice([b"\xff", b"\xc3", b'"', b"}", b"\\u0000", b"\\ud83d", b"1" * 400])  # fmt: skip
            case 3:
                made = made[: at + 1]
            case _:
                made[at:at] = made[at : at + 50]
    return bytes(made)


@dataclass(frozen=True)
class Shot:
    """What is written on a connection."""

    who: Who
    wire: bytes
    framed: bool
    """Whether one answer comes, and the connection lives on."""
    api: bool = False
    keep: tuple[str, list[Any]] | None = None
    """The history that an answer is added to."""


def shot(random: Random, clients: list[Who], names: list[str]) -> Shot:
    """Any request at all."""
    who = random.choice(clients)
    kind = random.random()
    if kind < 0.12:
        return session_call(random, who, names)
    path = random.choice([CHAT, CHAT, MESSAGES])
    if who.histories and random.random() < 0.6:
        path, messages = random.choice(who.histories)
        body: Any = going_on(path, messages, random, who)
    else:
        body = new(path, random, who)
    keep = None
    roll = random.random()
    if roll < 0.35:
        keep = (path, body["messages"])
    elif roll < 0.65:
        for _ in range(random.randint(1, 3)):
            if isinstance(body, dict) and body:
                body = changed(body, random)
    elif roll < 0.75:
        body = doubled(body, random)
    try:
        raw = text(body, random).encode()
    except (UnicodeEncodeError, RecursionError):
        raw = b"{}"
    if 0.75 <= roll < 0.9:
        raw = bent(raw, random)
    elif roll >= 0.97:
        raw = random.choice(_RAW)
    if random.random() < 0.05:
        path = random.choice(["/v1/messages/count_tokens", "/v1/models", "/x", "/v1/embeddings", "//", "/%2e%2e/x", "/v1/chat/completions/"])  # fmt: skip
    return Shot(who, *framed(random, who, path, raw, names), keep=keep)


def session_call(random: Random, who: Who, names: list[str]) -> Shot:
    """A call of the session API, often for another's session."""
    name = random.choice([*names, "none", "..%2f", "a%00", "%ff"]) if names else "none"
    rest = random.choice(
        ["", "/events", "/context", "/messages", "/fork", "/undo", "/report", "/../x", "?after=x"]
    )
    method = random.choice(["GET", "GET", "GET", "POST", "PATCH", "PUT"])
    body = b"" if method == "GET" else random.choice([b"{}", b"[]", b'{"text":"hi"}', b'{"name":"fork","at":1}', b"{", b"\xff"])  # fmt: skip
    target = random.choice([f"/sessions/{name}{rest}", "/sessions", "/sessions?limit=1000", "/sessions/search?q=canary", "/sessions/openapi.json", "/sessions//"])  # fmt: skip
    top = [f"{method} {target} HTTP/1.1", "Host: g", f"Authorization: Bearer {who.key}"]
    if body or method != "GET":
        top += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return Shot(who, ("\r\n".join(top) + "\r\n\r\n").encode() + body, framed=True, api=True)


_HIDDEN = b"POST /smuggled HTTP/1.1\r\nHost: g\r\nContent-Length: 0\r\n\r\n"
_HEADERS = [
    b"X-Odd: \xff\xfe", b"Accept-Encoding: br, zstd", b"Accept-Encoding: gzip", b"Expect: 100-continue", b"Connection: x-api-key, content-length",
    b"X-Forwarded-Host: evil.example", b"Forwarded: host=evil.example", b"X-Foldline-On-Disconnect: nonsense", b"X-Foldline-Session: \xff",
    b"X-Foldline-Session: " + b"s" * 300, b"Content-Type: text/plain", b"TE: trailers", b"X-Stainless-Retry-Count: 1", b"anthropic-version: 1",
    b"Content-Encoding: br", b"Content-Encoding: nonsense", b"Cookie: a=b", b"Range: bytes=0-1", b"X-Long: " + b"x" * 30_000, b"X-Empty:",
]  # fmt: skip


def framed(random: Random, who: Who, path: str, body: bytes, names: list[str]) -> tuple[bytes, bool]:  # fmt: skip
    """A request of HTTP, mostly a good one."""
    credential = random.choice([f"Authorization: Bearer {who.key}", f"X-Api-Key: {who.key}", f"X-Foldline-Key: {who.key}"])  # fmt: skip
    top = [f"POST {path} HTTP/1.1".encode(), b"Host: g", credential.encode(), b"X-Stainless-Retry-Count: 0"]  # fmt: skip
    if random.random() < 0.15:
        named = random.choice(["mine", "s", *names[:50]])
        top.append(b"X-Foldline-Session: " + named.encode())
    if random.random() < 0.1:
        top.append(random.choice(_HEADERS))
    how = random.random()
    if how < 0.05:
        body = gzip.compress(body, 1) + random.choice([b"", b"", b"more", gzip.compress(b" ")])
        top.append(b"Content-Encoding: gzip")
    length = b"Content-Length: %d" % len(body)
    if how < 0.85:
        return b"\r\n".join([*top, length]) + b"\r\n\r\n" + body, True
    pieces = [body[at : at + 700] for at in range(0, len(body), 700)]
    chunks = b"".join(map(chunk, pieces)) + b"0\r\n\r\n"
    if how < 0.90:
        return b"\r\n".join([*top, b"Transfer-Encoding: chunked"]) + b"\r\n\r\n" + chunks, True
    lengths: list[bytes] = random.choice([
        [length, b"Transfer-Encoding: chunked"], [b"Transfer-Encoding: chunked", length], [length, b"Content-Length: 0"],
        [length, length], [b"Content-Length: -1"], [b"Content-Length: 1e3"], [b"Content-Length: +%d" % len(body)],
        [b"Content-Length: " + b"9" * 5_000], [b"Content-Length: %d" % (len(body) + 7)], [b"Content-Length: %d" % max(len(body) - 7, 0)],
        [b"Transfer-Encoding: identity"], [b"Transfer-Encoding: chunked, chunked"], [b"Transfer-Encoding : chunked"],
        [b"Transfer-Encoding: \x0bchunked"], [b"Content-Length : %d" % len(body)], [],
    ])  # fmt: skip
    wire = b"\r\n".join([*top, *lengths]) + b"\r\n\r\n"
    wire += random.choice([body, chunks, b"0\r\n\r\n" + _HIDDEN, body + _HIDDEN, b"5\r\nab", b"fffffffffffffffff\r\n"])  # fmt: skip
    if random.random() < 0.2:  # pipelined
        good = b"\r\n".join([*top, length]) + b"\r\n\r\n" + body
        wire = good * random.randint(2, 5)
    if random.random() < 0.1:
        wire = bent(wire, random)
    return wire, False


# What is answered.


def answering(asked: Recorded) -> list[Any]:
    """An answer in the dialect, with the canary of who asked; or an odd one."""
    random = Random(asked.body)
    try:
        given = json.loads(asked.body)
    except (ValueError, RecursionError):
        given = {}
    given = given if isinstance(given, dict) else {}
    canaries = _CANARY.findall(asked.body)
    words = f"ok canary-{canaries[-1].decode()}-0" if canaries else "ok"
    dialect = "anthropic" if asked.target.startswith(b"/v1/messages") else "openai"
    whole, events = written(dialect, {"model": "m"}, {"content": words}, 9)
    roll = random.random()
    if roll < 0.05:
        status = random.choice([400, 401, 404, 413, 429, 503, 529])
        told = random.choice([b"{}", b"", b"no", b'{"error":{"message":"maximum context length is 10 tokens"}}', b'{"error":null}'])  # fmt: skip
        return [head(status, length=len(told), more=b"retry-after: 0\r\n") + told]
    if roll < 0.10:
        odd = random.choice([b"[]", b"null", b"{}", b'{"choices":[]}', b'{"choices":[{}]}', b'{"choices":[{"message":null}]}', b'{"choices":[{"message":{"role":"assistant","content":5}}]}', b'{"type":"message","content":[]}', b'{"type":"message","content":[5]}', b'{"type":"message","role":"x","content":"y"}', b'{"usage":{"prompt_tokens":-1}}', b"\xff\xfe", b"[" * 3_000])  # fmt: skip
        return [head(length=len(odd)) + odd]
    if roll < 0.13:
        odd = random.choice([b"data: {}\n\n", b"data: [1]\n\n", b'data: {"choices":[{"delta":5}]}\n\n', b"data: \xff\n\n", b'data: {"type":"content_block_delta","index":9}\n\n', b"event: x\n\n", b'data: {"error":{"message":"m"}}\n\n'])  # fmt: skip
        return [head() + chunk(odd) + chunk(b"")]
    streams = given.get("stream") is True
    if roll < 0.16:
        return [head() + chunk(b"".join(one.encode() for one in events)[:150]), CUT]
    if streams:
        return [head() + b"".join(chunk(one.encode()) for one in events) + chunk(b"")]
    said = json.dumps(whole).encode()
    return [head(length=len(said)) + said]


# The campaign.


@dataclass
class Line:
    """A connection that is kept while it may be."""

    port: int
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None

    async def say(self, wire: bytes) -> None:
        """Write; on a new connection where there is none."""
        if (
            self.writer is None
            or self.writer.is_closing()
            or (self.reader and self.reader.at_eof())
        ):
            self.drop()
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)  # fmt: skip
        self.writer.write(wire)
        await self.writer.drain()

    def drop(self) -> None:
        """Hang up at once; nothing waits in the kernel."""
        if self.writer is not None:
            one = self.writer.get_extra_info("socket")
            if one is not None and one.fileno() >= 0:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.writer.transport.abort()
        self.reader = self.writer = None

    async def answer(self) -> tuple[int, bytes, bytes]:
        """Status, head and body of one answer."""
        assert self.reader is not None
        top = await self.reader.readuntil(b"\r\n\r\n")
        status = int(top.split(b" ")[1])
        if status == 100:
            return await self.answer()
        lower = top.lower()
        if b"transfer-encoding: chunked" in lower:
            body = b""
            while size := int((await self.reader.readuntil(b"\r\n"))[:-2], 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readexactly(2)
        else:
            found = re.search(rb"content-length: (\d+)", lower)
            body = await self.reader.readexactly(int(found[1])) if found else b""
        if b"connection: close" in lower:
            self.drop()
        return status, top, body


@dataclass
class Campaign:
    """One gateway under fire."""

    port: int
    upstream: Upstream
    clients: list[Who]
    said: Path
    """What the gateway writes on standard error."""
    told: Counter[int] = field(default_factory=Counter[int])
    names: list[str] = field(default_factory=list[str])
    owners: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """Whose each session is."""
    slowest: tuple[float, bytes] = (0.0, b"")
    """Seconds, and how that request began."""

    async def fire(self, random: Random, line: Line) -> None:
        """One shot, and what comes of it."""
        one = shot(random, self.clients, self.names)
        begun = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE):
                got = await (self._framed(one, line) if one.framed else self._odd(one))
        except TimeoutError:
            raise Broken(f"no answer in {PATIENCE:.0f} s: {one.wire[:_SHOWN]!r}") from None
        self.slowest = max(self.slowest, (time.monotonic() - begun, one.wire[:60]))
        for status, top, body in got:
            self.judge(one, status, top, body)
            if one.keep and status == 200 and random.random() < 0.5:
                self.learn(one, body, random)
            for found in re.findall(rb"x-foldline-session: ([^\r]+)", top):
                name = found.decode(errors="replace")
                if self.owners.setdefault((one.who.tenant, name), one.who.name) != one.who.name:
                    raise Leaked(f"the session {name} is of two keys: {one.wire[:_SHOWN]!r}")
                self.names = [*self.names[-300:], name]

    async def _framed(self, one: Shot, line: Line) -> list[tuple[int, bytes, bytes]]:
        try:
            await line.say(one.wire)
            return [await line.answer()]
        except (asyncio.IncompleteReadError, ConnectionError):
            line.drop()  # an answer that the upstream cut, or one that was refused before its end
            return []

    async def _odd(self, one: Shot) -> list[tuple[int, bytes, bytes]]:
        line = Line(self.port)
        try:
            await line.say(one.wire)
            assert line.writer is not None
            assert line.reader is not None
            await asyncio.sleep(0.01)
            line.writer.write_eof()
            got = await line.reader.read(-1)
        except (ConnectionError, OSError):
            got = b""
        finally:
            line.drop()
        return [
            (int(found[1]), got, got) for found in re.finditer(rb"HTTP/1\.1 (\d{3}) ", got)
        ]  # fmt: skip

    def judge(self, one: Shot, status: int, top: bytes, body: bytes) -> None:
        """Whether an answer may be."""
        self.told[status] += 1
        if status == 500:
            raise Broken(f"500: {body[:200]!r} to {one.wire[:_SHOWN]!r}")
        whose = {found.decode() for found in _CANARY.findall(top + body)}
        allowed = {who.name for who in self.clients if who is one.who or (one.api and who.tenant == one.who.tenant)}  # fmt: skip
        if whose - allowed:
            raise Leaked(f"{one.who.name} was told of {whose - allowed}: {one.wire[:_SHOWN]!r}")
        if OPERATORS.encode() in top + body:
            raise Broken(f"the operator's key was told: {one.wire[:_SHOWN]!r}")

    def learn(self, one: Shot, body: bytes, random: Random) -> None:
        """Keep a history with its answer, as a loop would."""
        assert one.keep is not None
        path, messages = one.keep
        try:
            found = json.loads(body)
            said = found["choices"][0]["message"] if path == CHAT else {"role": "assistant", "content": found["content"]}  # fmt: skip
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            said = {"role": "assistant", "content": "ok"}
        if len(messages) < 40 and isinstance(said, dict):
            one.who.histories.append((path, [*messages, said]))
            if len(one.who.histories) > 100:
                one.who.histories.pop(random.randrange(100))

    def seen(self) -> int:
        """Look at what reached the upstream."""
        asked, self.upstream.asked = self.upstream.asked, []
        for one in asked:
            wire = one.line + b"".join(name + value for name, value in one.headers) + one.body
            if len(set(_CANARY.findall(wire))) > 1:
                raise Leaked(f"two keys' words in one request: {one.body[:1000]!r}")
            if one.target.startswith(b"/smuggled"):
                raise Broken(f"a request that was hidden in a body went upstream: {one.line!r}")
            if any(who.key.encode() in wire for who in self.clients):
                raise Broken("a key of the gateway's own went upstream")
            if b"evil.example" in wire.split(b"{")[0]:
                raise Broken("a forwarded host went upstream")
        return len(asked)

    async def good(self) -> None:
        """An ordinary request is answered."""
        line, who = Line(self.port), self.clients[0]
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello, are you there?"}]})  # fmt: skip
        top = f"POST {CHAT} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {who.key}\r\nContent-Length: {len(body)}\r\n\r\n"  # fmt: skip
        async with asyncio.timeout(PATIENCE):
            await line.say((top + body).encode())
            status, _, got = await line.answer()
        line.drop()
        if status != 200 or b"choices" not in got:
            raise Broken(f"a good request is answered {status}: {got[:200]!r}")

    async def run(self, count: int, random: Random) -> int:
        """So many shots; how many went upstream."""
        passed = 0
        lines = [Line(self.port) for _ in range(ABREAST)]
        for start in range(0, count, BATCH):
            todo = min(BATCH, count - start)

            async def some(line: Line, seed: int, many: int) -> None:
                mine = Random(seed)
                for _ in range(many):
                    await self.fire(mine, line)

            share = [todo // ABREAST + (at < todo % ABREAST) for at in range(ABREAST)]
            await asyncio.gather(*(some(line, random.getrandbits(64), many) for line, many in zip(lines, share, strict=True)))  # fmt: skip
            await self.good()
            passed += self.seen()
            if b"Traceback" in (said := self.said.read_bytes()) or b"fault of the gateway" in said:
                raise Broken(f"the gateway says: {said[-1500:].decode(errors='replace')}")
        for line in lines:
            line.drop()
        if not await asyncio.to_thread(self.upstream.closed):
            raise Broken(f"{self.upstream.open} upstream calls are still open")
        return passed


def resident(process: int) -> float:
    """Megabytes of memory."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1_024 if found else 0.0


@contextmanager
def serving(upstream: str, folder: Path, *, mutant: bool) -> Iterator[tuple[int, "subprocess.Popen[bytes]"]]:  # fmt: skip
    """The real command, on a free port."""
    program = [sys.executable, __file__, "--mutant"] if mutant else [str(Path(sys.executable).with_name("foldline"))]  # fmt: skip
    given = ["serve", "--upstream", upstream, "--port", "0", "--store", str(folder / "s.db"), "--keys", str(folder / "keys"), "--audit", str(folder / "audit"), "--drain", "2"]  # fmt: skip
    environment = {"FOLDLINE_UPSTREAM_KEY": OPERATORS, "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    with (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            [*program, *given], stdout=subprocess.PIPE, stderr=err, env=environment
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        found = re.search(r"http://[^:]+:(\d+)", line)
        if found is None:
            raise Broken(f"it does not start: {line}{(folder / 'err').read_text()}")
        yield int(found[1]), process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def part(count: int, seed: int, *, mutant: bool = False) -> bool:
    """One campaign; whether all was as it must be."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as made, Upstream(answering) as upstream:
        folder = Path(made)
        clients = [Who(name, tenant, create_key(folder / "keys", name, tenant=tenant)) for name, tenant in (("ann", "acme"), ("ben", "acme"), ("eve", "evil"))]  # fmt: skip
        with serving(upstream.url, folder, mutant=mutant) as (port, process):
            campaign = Campaign(port, upstream, clients, folder / "err")
            first = resident(process.pid)
            try:
                passed = asyncio.run(campaign.run(count, Random(seed)))
            except Broken as fault:
                caught = mutant and isinstance(fault, Leaked)
                print(f"  {'caught' if caught else 'BROKEN'} after {sum(campaign.told.values()):,} answers: {fault}")  # fmt: skip
                if not caught:
                    print((folder / "err").read_text(errors="replace")[-3_000:])
                return caught
            memory = resident(process.pid)
            kept = (folder / "audit").read_bytes()
            if any(who.key.encode() in kept for who in clients) or OPERATORS.encode() in kept:
                print("  BROKEN: a key is in the audit log")
                return False
    told = " ".join(f"{status}:{many:,}" for status, many in sorted(campaign.told.items()))
    print(f"  {count:,} requests in {time.monotonic() - begun:.0f} s, {passed:,} went upstream; answers {told}; slowest {campaign.slowest[0]:.1f} s ({campaign.slowest[1]!r}); memory {first:.0f} → {memory:.0f} MB")  # fmt: skip
    return not mutant


def run_mutant() -> NoReturn:
    """The command, with one rule taken out."""
    from foldline.apps.cli.app import run_command  # noqa: PLC0415 - behind the mutation

    with broken(*MUTANT):
        sys.exit(run_command(sys.argv[2:]))


def main() -> int:
    """Both campaigns."""
    if sys.argv[1:2] == ["--mutant"]:
        run_mutant()
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    count = args.count or (3_000 if args.short else 100_000)
    print(f"fuzzed requests, seed {args.seed}", flush=True)
    good = part(count, args.seed)
    print("control: requests that end alike share a plan, whoever asks", flush=True)
    good &= part(20_000, args.seed, mutant=True)
    print("all as it must be" if good else "BROKEN")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
