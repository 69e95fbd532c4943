"""Real models behind the port, through the official SDKs.

    model = client("anthropic/claude-sonnet-5.5")                     # ANTHROPIC_API_KEY
    model = client("gpt-5")                                           # OPENAI_API_KEY
    model = client("smollm2", base_url="http://127.0.0.1:8080/v1")    # whoever speaks OpenAI chat

Knows which SDK a name means, how it is made to send what we encoded and nothing else, and what each
of its errors means. Refuses to know retries and how long is waited: those are `retries`'s, and the
SDKs' own are off. A call that is cancelled closes its connection.
"""

import os
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace
from typing import Any, cast

from foldline.dialects import base
from foldline.dialects.base import OPENAI, Dialect
from foldline.dialects.json_reader import parse
from foldline.dialects.provider_errors import Fault, of_exception
from foldline.dialects.sse import SseReader
from foldline.errors import BadInput, ModelFailed, WireError
from foldline.models.addresses import normalize_address
from foldline.models.port import Heard, Json, Model

_CONNECT = 10.0  # seconds to be connected in; how long an answer may take is the caller's to say
_NOBODY = ("ConnectError", "ConnectTimeout")  # below the SDKs: no request went out
_NO_KEY = "none"  # servers on one's own machine want none, the SDKs want some


def client(
    name: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Model:
    """The model of a name; without an address and a key, those of the SDK's own environment.

    `anthropic/…` and `claude…` are asked through the anthropic SDK, all others through openai's;
    `BadInput` says which extra to install, or which key is missing. `tls` is what certificates
    are checked with, instead of the SDK's own.
    """
    dialect = base.speaking(name)
    make = _openai if dialect is OPENAI else _anthropic
    given: Json = {"base_url": base_url, "api_key": api_key, "default_headers": headers}
    return make(name, dialect, {key: one for key, one in given.items() if one is not None}, tls)


def _openai(name: str, dialect: Dialect, given: Json, tls: ssl.SSLContext | None) -> Model:
    try:
        import openai  # noqa: PLC0415 - an extra, and half a second
    except ImportError as fault:
        raise _missing(name, "openai", fault) from fault
    own = bool(given.get("base_url") or os.environ.get("OPENAI_BASE_URL"))
    if own and not os.environ.get("OPENAI_API_KEY"):
        given = {"api_key": _NO_KEY, **given}
    if tls is not None:
        given = {**given, "http_client": openai.DefaultAsyncHttpxClient(verify=tls)}
    try:
        sdk = openai.AsyncOpenAI(
            **given, max_retries=0, timeout=openai.Timeout(None, connect=_CONNECT)
        )
    except openai.OpenAIError as fault:
        raise _keyless(name, "OPENAI_API_KEY") from fault
    create: Any = sdk.chat.completions.with_streaming_response.create
    host = sdk.base_url.host

    def send(request: Json) -> AbstractAsyncContextManager[Any]:
        body = {**request, "model": wired(request["model"], host)}
        if body["stream"]:
            asked = cast("Json", body.get("stream_options") or {})
            body["stream_options"] = {"include_usage": True, **asked}
        return create(model="", messages=[], stream=body["stream"], extra_body=body)

    return _Client(name, dialect, send, sdk.close, where=_where(sdk.base_url, own=own))


def _anthropic(name: str, dialect: Dialect, given: Json, tls: ssl.SSLContext | None) -> Model:
    try:
        import anthropic  # noqa: PLC0415 - an extra, and half a second
    except ImportError as fault:
        raise _missing(name, "anthropic", fault) from fault
    own = bool(given.get("base_url") or os.environ.get("ANTHROPIC_BASE_URL"))
    if own and not any(map(os.environ.get, ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"))):
        given = {"api_key": _NO_KEY, **given}
    if tls is not None:
        given = {**given, "http_client": anthropic.DefaultAsyncHttpxClient(verify=tls)}
    try:
        sdk = anthropic.AsyncAnthropic(
            **given, max_retries=0, timeout=anthropic.Timeout(None, connect=_CONNECT)
        )
    except anthropic.AnthropicError as fault:
        raise BadInput(f"no client for {name!r}: {fault}") from fault
    # It asks for a key at the first call only; one may be in a profile, and in headers.
    keys = (sdk.api_key, sdk.auth_token, sdk.credentials, given.get("default_headers"))
    if not any(keys) and "ANTHROPIC_CUSTOM_HEADERS" not in os.environ:
        raise _keyless(name, "ANTHROPIC_API_KEY")
    create: Any = sdk.messages.with_streaming_response.create

    def send(request: Json) -> AbstractAsyncContextManager[Any]:
        body = {**request, "model": wired(request["model"])}
        return create(
            model="", messages=[], max_tokens=0, stream=body["stream"], extra_body=body
        )  # all of it is in `extra_body`, which goes out as it is, whatever the SDK knows of it

    return _Client(name, dialect, send, sdk.close, where=_where(sdk.base_url, own=own))


def wired(name: str, host: str = "") -> str:
    """A name as its provider knows it; other hosts know "openai/…" by all of it."""
    ours = f".{host}".endswith(".openai.com")
    return name.removeprefix("openai/") if ours else name.removeprefix("anthropic/")


class _Client:
    """One model, by one SDK."""

    def __init__(
        self,
        name: str,
        dialect: Dialect,
        send: Callable[[Json], AbstractAsyncContextManager[Any]],
        close: Callable[[], Any],
        *,
        where: tuple[str, str],
    ) -> None:
        self._name, self._dialect = name, dialect
        self._send, self._close = send, close
        self._where = where

    @property
    def name(self) -> str:
        """As the catalogue knows it."""
        return self._name

    def __repr__(self) -> str:
        return f"<client of {self._name!r}>"

    @property
    def base_url(self) -> str:
        """Where it asks, without a user's name, a key or a query."""
        return self._where[0]

    async def say(self, request: Json, *, heard: Heard | None = None) -> Json:
        """The whole answer to a request; streamed, where somebody listens."""
        body = {"model": self._name, **request, "stream": heard is not None}
        call = _CallUnderWay(self._name, self._send(body), self._where)
        if heard is None:
            return await call.whole()
        return await call.streamed(self._dialect, heard)

    async def close(self) -> None:
        """Let go of connections."""
        await self._close()


class _CallUnderWay:
    """One call under way."""

    def __init__(
        self, model: str, sending: AbstractAsyncContextManager[Any], where: tuple[str, str]
    ) -> None:
        self._model, self._sending, self._where = model, sending, where
        self._begun = False

    async def whole(self) -> Json:
        """The answer that comes at once."""
        async with aclosing(self._chunks()) as chunks:
            body = b"".join([chunk async for chunk in chunks])
        try:
            answer = parse(body)
        except WireError as fault:
            raise self._failed(fault) from fault
        if answer.get("error") and not answer.get("choices"):
            raise self._told(answer)
        return answer

    async def streamed(self, dialect: Dialect, heard: Heard) -> Json:
        """The answer that comes piece by piece."""
        lines, assembly = SseReader(), dialect.assembly()
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                try:
                    events = [sent.data for sent in lines.feed(chunk)]
                    for event in events:
                        assembly.take(event)
                except WireError as fault:
                    raise self._failed(fault) from fault
                if assembly.fault is not None:
                    raise self._told(assembly.fault)
                for words in filter(None, map(_words, events)):
                    self._begun = True
                    heard(words)
        for sent in lines.close():
            assembly.take(sent.data, whole=False)
        if assembly.fault is not None:
            raise self._told(assembly.fault)
        if not assembly.done:
            cut = Fault("overloaded", "the stream ended before the answer did")
            raise ModelFailed(self._model, cut, begun=self._begun)
        return assembly.body()

    async def _chunks(self) -> AsyncGenerator[bytes]:
        """The bytes of the answer; whatever goes wrong here is the provider's or the network's."""
        try:
            async with self._sending as response:
                async for chunk in response.iter_bytes():
                    yield chunk
        except Exception as fault:
            raise self._failed(fault) from fault

    def _told(self, body: Json) -> ModelFailed:
        """The failure that an answer tells of, which began as if all were well."""
        said = _Said(body)
        failed = self._failed(said)
        failed.__cause__ = said
        return failed

    def _failed(self, fault: Exception) -> ModelFailed:
        return ModelFailed(self._model, _meaning(fault, self._where), begun=self._begun)


class _Said(Exception):  # noqa: N818 - it carries an error that was told, as SDKs' errors do
    """An error in the body of an answer."""

    def __init__(self, body: Json) -> None:
        super().__init__(str(body)[:200])
        self.body = body


def _where(address: Any, *, own: bool) -> tuple[str, str]:
    """Where requests go, as people may read it, and what to do where nobody is there."""
    way = "start it, or correct --base-url" if own else "is there a network?"
    return normalize_address(str(address)), way


def _meaning(fault: Exception, where: tuple[str, str]) -> Fault:
    """What went wrong: as the provider says it, or the network."""
    if type(fault.__cause__).__name__ in _NOBODY:
        address, way = where
        why = str(fault.__cause__) or "nobody answered in time"
        return Fault("unreachable", f"{address} cannot be reached ({why}); {way}")
    meant = of_exception(fault)
    below = type(fault).__module__.partition(".")[0].startswith("httpx")
    if meant.kind == "other" and (below or isinstance(fault, OSError)):
        meant = replace(meant, kind="overloaded")  # the connection broke: another one may hold
    words = meant.message or type(fault).__name__
    if "connection" in words.lower() and fault.__cause__ is not None:
        words = f"{words} {fault.__cause__}".strip()
    return replace(meant, message=words)


def _words(event: str) -> str:
    """The text of one event of a stream, in either dialect."""
    if '"text' not in event and '"content"' not in event:
        return ""
    body = parse(event)
    choices = cast("list[Json]", body.get("choices") or [])
    delta = cast("Json", (choices[0] if choices else body).get("delta") or {})
    said: Any = delta.get("content") if choices else delta.get("text")
    return said if isinstance(said, str) and not (choices and choices[0].get("index")) else ""


def _missing(name: str, extra: str, fault: ImportError) -> BadInput:
    return BadInput(
        f"{name!r} needs the extra `{extra}`: pip install 'foldline[{extra}]' ({fault})"
    )


def _keyless(name: str, variable: str) -> BadInput:
    return BadInput(
        f"no key for {name!r}: set {variable}; for a server of your own say --base-url, "
        "in Python api_key= or base_url="
    )
