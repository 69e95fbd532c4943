"""Ask an upstream over HTTP, and read its answer as it comes.

Connections are kept. Headers that belong to one connection are not passed on. A request is sent
again only where the upstream cannot have begun to work on it. Redirects and cookies are left to
the client.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, TypedDict

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from multidict import CIMultiDict
from yarl import URL

from foldline.apps.gateway.error_response import Refusal
from foldline.apps.gateway.network import Network, Proxy
from foldline.apps.gateway.settings import GatewayLimits

Pairs: TypeAlias = Iterable[tuple[bytes, bytes]]
_HOP: Final = frozenset(
    (
        b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer",
        b"transfer-encoding", b"upgrade",
    )
)  # fmt: skip
_INWARD: Final = _HOP | {
    b"host", b"expect", b"proxy-authorization", b"forwarded", b"x-real-ip"
}  # fmt: skip
_OURS: Final = (b"x-foldline-", b"x-forwarded-")
_AUTO: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_BODILESS: Final = (204, 304)
_BUSY: Final = (429, 502, 503, 529)
"""Statuses of an upstream that has not begun; behind a 504 the work may be done."""
_PATIENCE, _PAUSE = 5.0, 0.5  # seconds: the longest wait before asking again, and the usual one
_STALE = 1.0  # seconds: a kept connection that the server had closed fails at once
_SLICE = 262_144  # bytes per write: what the upstream does not take waits here, not in a buffer
_LINE = 65_536  # bytes of an answer's header


class Body(Payload):
    """A request's body; a large one goes out in slices, as fast as it is taken."""

    _default_content_type = "application/octet-stream"  # never sent: the client's own is

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self._size = len(body)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the whole body."""
        body: bytes = self._value
        if len(body) <= _SLICE:
            await writer.write(body)
            return
        view = memoryview(body)
        for at in range(0, len(body), _SLICE):
            await writer.write(view[at : at + _SLICE])

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as text."""
        return self._value.decode(encoding, errors)


class Links:
    """The connections to all upstreams."""

    def __init__(self, limits: GatewayLimits, network: Network | None = None) -> None:
        self._limits, self._network = limits, network or Network()
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Open the client session, inside the event loop that will use it."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=15.0, ssl=self._network.tls or True
            ),
            cookie_jar=aiohttp.DummyCookieJar(),  # clients must not get each other's cookies
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=self._limits.connect_seconds, sock_read=None
            ),
            skip_auto_headers=_AUTO,
            auto_decompress=False,
            max_line_size=_LINE,
            max_field_size=_LINE,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def send_request(
        self, method: str, url: URL, *, headers: CIMultiDict[str], body: bytes, patient: bool
    ) -> "UpstreamAnswer":
        """Return the answer once its headers are there; `patient` asks a busy upstream again."""
        assert self._session is not None  # noqa: S101 - `open` comes first
        loop = asyncio.get_running_loop()
        left, stale = self._limits.retries, 1
        proxy_options = _build_proxy_options(url, headers, self._network.find_proxy(url))
        while True:
            begun = loop.time()
            try:
                response = await self._session.request(
                    method,
                    url,
                    headers=headers,
                    data=Body(body) if body else None,
                    allow_redirects=False,
                    **proxy_options,
                )
            except aiohttp.ClientConnectorCertificateError as fault:
                raise _make_upstream_refusal(fault) from fault
            except aiohttp.ClientConnectorError as fault:
                if left <= 0:
                    raise _make_upstream_refusal(fault) from fault
                left -= 1
                await asyncio.sleep(_PAUSE / 5)
            except aiohttp.ServerTimeoutError as fault:
                raise Refusal(504, "upstream_timeout", "the upstream took no connection") from fault
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as fault:
                if stale <= 0 or loop.time() - begun > _STALE:
                    raise _make_upstream_refusal(fault) from fault
                stale -= 1
            except (aiohttp.ClientError, ValueError) as fault:
                raise _make_upstream_refusal(fault) from fault
            else:
                wait = _find_retry_delay(response) if patient and left > 0 else None
                if wait is None:
                    return UpstreamAnswer(response)
                left -= 1
                response.close()
                await asyncio.sleep(wait)


class _Route(TypedDict, total=False):
    proxy: URL
    proxy_headers: dict[str, str]


def _build_proxy_options(url: URL, headers: CIMultiDict[str], proxy: Proxy | None) -> _Route:
    """Build aiohttp's proxy options; the proxy's login never reaches an upstream."""
    if proxy is None:
        return {}
    address = URL(proxy.address)
    if proxy.login is None:
        return {"proxy": address}
    login = {"Proxy-Authorization": proxy.login.reveal()}
    if url.scheme == "https":  # goes with the tunnel's own CONNECT request
        return {"proxy": address, "proxy_headers": login}
    headers.update(login)
    return {"proxy": address}


def _make_upstream_refusal(fault: Exception) -> Refusal:
    match fault:
        case aiohttp.ClientConnectorCertificateError():
            words = "the upstream's certificate is not trusted; its operator may give --ca FILE"
            return Refusal(502, "upstream_untrusted", words)
        case aiohttp.ClientProxyConnectionError():
            words = "the proxy before the upstream cannot be reached"
            return Refusal(502, "proxy_away", words, retry=1)
        case aiohttp.ClientHttpProxyError():
            words = f"the proxy before the upstream let nothing through ({fault.status})"
            return Refusal(502, "proxy_refused", words)
        case aiohttp.ClientConnectorError():
            return Refusal(502, "upstream_away", "the upstream cannot be reached", retry=1)
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError():
            return Refusal(502, "upstream_left", "the upstream hung up without an answer")
        case _:
            return Refusal(502, "upstream_garbled", "what the upstream answered is no HTTP")


def _find_retry_delay(response: aiohttp.ClientResponse) -> float | None:
    """Return the seconds to wait for a busy upstream, or None to take its answer."""
    if response.status not in _BUSY:
        return None
    stated = response.headers.get("retry-after")
    if stated is None:
        return None if response.status == 429 else _PAUSE  # noqa: PLR2004 - too many requests
    try:
        seconds = float(stated)
    except ValueError:
        return None  # a date: too far away
    return seconds if 0 <= seconds <= _PATIENCE else None


class UpstreamAnswer:
    """An upstream's answer, read as it comes."""

    __slots__ = ("_content", "_response", "cut", "listen", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._content = response.content
        self.status = response.status
        self.cut = False
        """Whether the answer broke off."""
        self.listen: Callable[[bytes], None] | None = None
        """Called with all bytes that are read."""

    @property
    def encoding(self) -> bytes:
        """The body's content encoding."""
        return self._response.headers.get("content-encoding", "").encode()

    @property
    def over(self) -> bool:
        """Whether what was read is all there is."""
        return self._content.at_eof()

    def filter_headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers without those of our connection to the upstream."""
        raw = self._response.raw_headers
        dropped = _HOP | _collect_hop_headers(raw)
        if self.status in _BODILESS:
            dropped |= {b"content-length"}
        return [(name, value) for name, value in raw if name.lower() not in dropped]

    async def read_chunk(self) -> bytes:
        """Wait for bytes and return them; b"" at the end, or where the answer is cut."""
        chunk = await self._read_bytes()
        if chunk and self.listen is not None:
            self.listen(chunk)
        return chunk

    async def _read_bytes(self) -> bytes:
        # aiohttp drops what came before a fault, so that is read from its buffer directly.
        content: Any = self._content
        try:
            if content.exception() is None:
                return await content.readany()
        except (aiohttp.ClientError, OSError):
            pass
        self.cut = True
        return content._read_nowait(-1) if content._buffer else b""  # noqa: SLF001

    def close(self) -> None:
        """Return the connection to the pool if the answer is over, else close it."""
        if self._content.at_eof() and not self.cut:
            self._response.release()
        else:
            self._response.close()


def build_upstream_headers(
    pairs: Pairs, length: int, *, readable: bool, decoded: bool
) -> CIMultiDict[str]:
    """Build the upstream's headers from the client's, in their order.

    `readable`: accept only answers in an encoding that we can decode.
    `decoded`: the body is no longer encoded.
    """
    headers: CIMultiDict[str] = CIMultiDict()
    listed: frozenset[bytes] | None = None
    for name, value in pairs:
        if name in _INWARD:
            if name == b"connection" and value.lower() not in (b"keep-alive", b"close"):
                listed = _collect_hop_headers(pairs)
            continue
        if name.startswith(_OURS):
            continue
        text = _decode_header(value)
        if name == b"content-length":
            text = str(length)
        elif name == b"content-encoding" and decoded:
            continue
        elif name == b"accept-encoding" and readable:
            text = _keep_readable(text)
        headers.add(name.decode("ascii", "replace"), text)
    for name in listed or ():
        headers.popall(name.decode("ascii", "replace"), None)
    return headers


def _keep_readable(accepted: str) -> str:
    kept = [
        encoding.strip()
        for encoding in accepted.split(",")
        if encoding.partition(";")[0].strip().lower() in ("gzip", "deflate", "identity")
    ]
    return ", ".join(kept) or "identity"


def _decode_header(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:  # aiohttp writes UTF-8 and nothing else
        return value.decode("latin-1")


def _collect_hop_headers(pairs: Pairs) -> frozenset[bytes]:
    """Return the names that a message's `Connection` header keeps to its connection."""
    listed = b",".join(value for name, value in pairs if name.lower() == b"connection")
    names = {name.strip().lower() for name in listed.split(b",")}
    return frozenset(names - {b"content-length", b"authorization", b"content-encoding"})
