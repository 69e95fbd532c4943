"""Implements the model port with the official SDKs, and normalizes server addresses.

    model = client("anthropic/claude-sonnet-5-5")                     # ANTHROPIC_API_KEY
    model = client("gpt-6.1-sol")                                     # OPENAI_API_KEY
    model = client("gemini-3.8-flash")                                # GEMINI_API_KEY
    model = client("openrouter/openai/gpt-6-luna")                    # OPENROUTER_API_KEY
    model = client("ollama/llama3.2")                                 # http://127.0.0.1:11434/v1
    model = client("smollm2", base_url="http://127.0.0.1:8080/v1")    # any OpenAI chat server

The SDKs send exactly what we encoded. Their own retries are off; `retries` does them. A cancelled
call closes its connection.
"""

import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, cast
from urllib.parse import SplitResult, urljoin, urlsplit

from foldline.dialects import base
from foldline.dialects.base import Dialect, Vendor
from foldline.dialects.json_slices import parse_object
from foldline.dialects.model_names import (
    ModelProvider,
    find_address_provider,
    needs_cloud_client,
    split_provider,
    strip_google_prefix,
    write_model_name,
)
from foldline.dialects.provider_errors import Fault, of_exception
from foldline.dialects.sse import SseReader
from foldline.errors import BadInput, ModelFailed, WireError
from foldline.models.port import AnswerListener, Heard, Json, Model

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PORTS = {"http": 80, "https": 443}


def dialect_of(model: str, address: str | None = None) -> str:
    """Return the name of a model's usual dialect: `openai-chat`, `anthropic` or `gemini`."""
    return base.choose_dialect(model, None, address=address).name


def environment_address(vendor: Vendor, env: Mapping[str, str] = os.environ) -> str | None:
    """Return the address that the environment sets for a vendor's SDK."""
    return env.get(vendor.variable) or None


def normalize_address(url: str) -> str:
    """Return scheme, host, port and path in one spelling, without credentials and query."""
    found = _parse_url(url)
    host = _host_of(found)
    shown = f"[{host}]" if ":" in host else host
    port = "" if found.port in (None, _PORTS[found.scheme]) else f":{found.port}"
    return f"{found.scheme}://{shown}{port}{found.path.rstrip('/')}"


def is_same_address(one: str, other: str) -> bool:
    """Whether two addresses are the same server; all names of this machine are equal."""
    return _make_comparison_key(one) == _make_comparison_key(other)


def _make_comparison_key(url: str) -> tuple[str, str, int, str]:
    found = _parse_url(url)
    host = _host_of(found)
    port = _PORTS[found.scheme] if found.port is None else found.port
    return found.scheme, "localhost" if host in _LOOPBACK else host, port, found.path.rstrip("/")


def _host_of(found: SplitResult) -> str:
    return (found.hostname or "").rstrip(".")


def _parse_url(url: str) -> SplitResult:
    try:
        found = urlsplit(url)
        known = found.scheme in _PORTS and bool(_host_of(found)) and found.port != 0
    except ValueError:
        found, known = urlsplit(""), False
    if not known or not url.isprintable() or " " in url:
        shown = url.rpartition("@")[2]  # the part before may be a password
        raise BadInput(f"{shown!r} is no address; write --base-url http://127.0.0.1:8080/v1")
    return found


_CONNECT = 10.0  # seconds to connect; the caller limits the time for an answer
_UNREACHED = ("ConnectError", "ConnectTimeout")  # httpx errors: no request was sent
_REDIRECTS = 3  # hundreds of an HTTP status
_SDKS = {
    "openai": ("OpenAI", ("OPENAI_API_KEY",)),
    "anthropic": ("Anthropic", ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")),
}
_NO_KEY = "none"  # a local server needs no key, but the SDKs insist on one


def client(  # noqa: PLR0913 - a name, and options
    name: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    dialect: str | None = None,
) -> Model:
    """Make a model client; address and key default to the SDK's environment variables.

    `anthropic/…` and `claude…` use the anthropic SDK, `gemini-…` Google's, all others openai's. A
    prefix that names a provider, as in `groq/…`, also names its address and key. `dialect` is the
    one to speak, where a vendor has several: "openai-responses". Raises `BadInput` with the extra
    to install or the key that is missing. `tls` replaces the SDK's own certificate check.
    """
    base_url = base_url or default_address(name)
    speaks = base.choose_dialect(name, dialect, address=base_url)
    if api_key is None and headers is None:
        api_key = _find_provider_key(name, base_url)
    make = _BUILDERS[speaks.vendor.name]
    options: Json = {"base_url": base_url, "api_key": api_key, "default_headers": headers}
    return make(name, speaks, {key: one for key, one in options.items() if one is not None}, tls)


def default_address(model: str, env: Mapping[str, str] = os.environ) -> str | None:
    """Return the address that a model's prefix names; None if the vendor's SDK knows where.

    The environment's address of the vendor goes first. Raises `BadInput` where only the user knows
    the address.
    """
    provider, _ = split_provider(model)
    vendor = base.choose_model_dialect(model).vendor
    if environment_address(vendor, env):
        return None
    if provider is not None and "azure" in provider.prefixes:
        if not (endpoint := env.get("AZURE_OPENAI_ENDPOINT")):
            raise BadInput(
                f"where is {model!r}? set AZURE_OPENAI_ENDPOINT, or write --base-url "
                "https://RESOURCE.openai.azure.com/openai/v1"
            )
        return f"{endpoint.rstrip('/').removesuffix('/openai/v1')}/openai/v1"
    if provider is not None and provider.address:
        return provider.address
    if needs_cloud_client(model):
        raise BadInput(
            f"{model!r} is asked with a cloud's own sign-in: send request() by that cloud's SDK, "
            "such as AnthropicBedrock, or write --base-url of a gateway that serves it"
        )
    return None


def _find_provider_key(model: str, address: str | None) -> str | None:
    """Find the key of the provider that is asked; raises `BadInput` if its prefix needs one.

    Another provider's key is never sent to one that the prefix names.
    """
    named, _ = split_provider(model)
    served: ModelProvider | None = find_address_provider(address) if address else None
    if named is not None and named.is_local and address == named.address:
        return _NO_KEY
    if served is None or not served.variable:
        return None
    key = os.environ.get(served.variable)
    if not key and served == named:
        raise _make_missing_key_error(model, served.variable)
    return key


def _build_sdk_client(
    name: str, dialect: Dialect, options: Json, tls: ssl.SSLContext | None
) -> Model:
    """Build a client of openai or anthropic, whose SDKs have the same options."""
    vendor = dialect.vendor
    kind, keys = _SDKS[vendor.name]
    try:  # an extra, and half a second to import
        module: Any = import_module(vendor.name)
    except ImportError as fault:
        raise _make_missing_extra_error(name, vendor.name, fault) from fault
    own = bool(options.get("base_url") or os.environ.get(vendor.variable))
    if own and not any(map(os.environ.get, keys)):
        options = {"api_key": _NO_KEY, **options}
    wire = module.DefaultAsyncHttpxClient(**_choose_wire_options(tls))
    timeout = module.Timeout(None, connect=_CONNECT)
    try:
        sdk: Any = getattr(module, f"Async{kind}")(
            **options, http_client=wire, max_retries=0, timeout=timeout
        )
    except getattr(module, f"{kind}Error") as fault:
        if vendor.name == "openai":
            raise _make_missing_key_error(name, keys[0]) from fault
        raise BadInput(f"no client for {name!r}: {fault}") from fault
    if vendor.name == "anthropic":  # it misses a key only at the first call
        found = (sdk.api_key, sdk.auth_token, sdk.credentials, options.get("default_headers"))
        if not any(found) and "ANTHROPIC_CUSTOM_HEADERS" not in os.environ:
            raise _make_missing_key_error(name, keys[0])
    where = _describe_address(sdk.base_url, own=own)
    return _Client(name, dialect, _make_sender(sdk, dialect), sdk.close, where=where)


def _choose_wire_options(tls: ssl.SSLContext | None) -> Json:
    """Follow no redirect: a conversation goes to the address that was set, and to no other."""
    return {"follow_redirects": False, **({"verify": tls} if tls is not None else {})}


def _build_google_client(
    name: str, dialect: Dialect, sdk_options: Json, tls: ssl.SSLContext | None
) -> Model:
    try:
        from google import genai  # noqa: PLC0415 - an extra, and half a second to import
    except ImportError as fault:
        raise _make_missing_extra_error(name, "google", fault) from fault
    http: Any = _import_http_library()
    address = sdk_options.get("base_url") or os.environ.get(dialect.vendor.variable)
    has_key = any(map(os.environ.get, ("GEMINI_API_KEY", "GOOGLE_API_KEY")))
    key = sdk_options.get("api_key") or (_NO_KEY if address and not has_key else None)
    wire = http.AsyncClient(
        timeout=http.Timeout(None, connect=_CONNECT), **_choose_wire_options(tls)
    )
    options: Any = {"retry_options": {"attempts": 1}, "httpx_async_client": wire}
    options |= (
        {"headers": sdk_options["default_headers"]} if "default_headers" in sdk_options else {}
    )
    options |= {"base_url": address} if address else {}
    try:
        sdk: Any = genai.Client(api_key=key, http_options=options)
    except ValueError as fault:
        raise _make_missing_key_error(name, "GEMINI_API_KEY") from fault
    where = _describe_address(address or dialect.vendor.address, own=bool(address))
    return _Client(name, dialect, partial(_send_to_google, sdk.aio, dialect), wire.aclose, where)


def _import_http_library() -> Any:
    """Import the HTTP library of Google's SDK: it differs between releases."""
    try:
        return import_module("httpx2")
    except ImportError:
        return import_module("httpx")


@asynccontextmanager
async def _send_to_google(
    sdk: Any, dialect: Dialect, request: Json
) -> AsyncGenerator["_GoogleAnswer"]:
    """Send a body by Google's SDK, which gives answers only as objects of its own."""
    streams = bool(request["stream"])
    request = {**request, "model": strip_google_prefix(request["model"])}
    if dialect.name != base.GEMINI:
        yield _GoogleAnswer(partial(sdk.interactions.create, **request), streams=streams)
        return
    config = {**request.get("config", {})}
    # `extra_body` is sent as it is and overrides the arguments, whatever the SDK knows.
    body = {name: config.pop(name) for name in ("systemInstruction", "tools") if name in config}
    body["contents"] = request["contents"]
    config["http_options"] = {"extra_body": body}
    ask = sdk.models.generate_content_stream if streams else sdk.models.generate_content
    asked = partial(ask, model=request["model"], contents="", config=config)
    yield _GoogleAnswer(asked, streams=streams)


class _GoogleAnswer:
    """An answer of Google's SDK, as the bytes that its server sent."""

    def __init__(self, ask: Callable[[], Awaitable[Any]], *, streams: bool) -> None:
        self._ask, self._streams = ask, streams

    async def iter_bytes(self) -> AsyncGenerator[bytes]:
        """Yield the answer: one object, or events."""
        answer = await self._ask()
        if not self._streams:
            yield _dump_google(answer)
            return
        async for chunk in answer:
            yield b"data: " + _dump_google(chunk) + b"\n\n"


def _dump_google(answer: Any) -> bytes:
    body = answer.model_dump_json(
        by_alias=True, exclude_none=True, exclude={"sdk_http_response", "parsed"}
    )
    return body.encode()


_BUILDERS = {
    "openai": _build_sdk_client,
    "anthropic": _build_sdk_client,
    "google": _build_google_client,
}
"""How each vendor's SDK is set up."""


def _make_sender(sdk: Any, dialect: Dialect) -> Callable[[Json], AbstractAsyncContextManager[Any]]:
    """Return a function that sends a body by the SDK's method for a dialect."""
    api = sdk
    for name in dialect.sdk_method[:-1]:
        api = getattr(api, name)
    create, address = api.with_streaming_response.create, str(sdk.base_url)

    def send_request(request: Json) -> AbstractAsyncContextManager[Any]:
        body = {**request, "model": write_model_name(request["model"], address)}
        for field, wanted in (dialect.stream_parameters or {}).items() if body["stream"] else ():
            body[field] = {**wanted, **cast("Json", body.get(field) or {})}
        # `extra_body` is sent as it is and overrides the arguments, whatever the SDK knows.
        return create(model="", **dialect.sdk_arguments, stream=body["stream"], extra_body=body)

    return send_request


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Client:
    """A model behind one SDK."""

    name: str
    dialect: Dialect
    send: Callable[[Json], AbstractAsyncContextManager[Any]]
    close_sdk: Callable[[], Any]
    where: tuple[str, str]
    """The server's address, and what to do if it cannot be reached."""

    def __repr__(self) -> str:
        return f"<client of {self.name!r}>"

    @property
    def base_url(self) -> str:
        """The server's address, without credentials and query."""
        return self.where[0]

    async def say(self, request: Json, *, heard: Heard | None = None) -> Json:
        """Return the whole answer to a request; streams it to `heard` if given."""
        body = {"model": self.name, **request, "stream": heard is not None}
        call = _CallUnderWay(self.name, self.send(body), self.where)
        if heard is None:
            return await call.read_response()
        return await call.read_stream(self.dialect, heard)

    async def close(self) -> None:
        """Close the connections."""
        await self.close_sdk()


@dataclass(slots=True)
class _CallUnderWay:
    """One call in progress."""

    model: str
    sending: AbstractAsyncContextManager[Any]
    where: tuple[str, str]
    begun: bool = False

    async def read_response(self) -> Json:
        """Read an answer that is not streamed."""
        async with aclosing(self._iterate_chunks()) as chunks:
            body = b"".join([chunk async for chunk in chunks])
        try:
            answer = parse_object(body)
        except WireError as fault:
            raise self._make_model_error(fault) from fault
        if answer.get("error") and not any(
            map(answer.get, ("choices", "output", "candidates", "steps"))
        ):
            raise self._make_body_error(answer)
        return answer

    async def read_stream(self, dialect: Dialect, heard: Heard) -> Json:
        """Read a streamed answer, passing each text to `heard`."""
        lines, assembly = SseReader(), dialect.make_assembly()
        async with aclosing(self._iterate_chunks()) as chunks:
            async for chunk in chunks:
                try:
                    events = [sent.data for sent in lines.feed(chunk)]
                    for event in events:
                        assembly.add_event(event)
                except WireError as fault:
                    raise self._make_model_error(fault) from fault
                if assembly.fault is not None:
                    raise self._make_body_error(assembly.fault)
                for event in events:
                    self._pass_on(dialect, event, heard)
        for sent in lines.close():
            assembly.add_event(sent.data, whole=False)
        if assembly.fault is not None:
            raise self._make_body_error(assembly.fault)
        if not assembly.done:
            cut = Fault("overloaded", "the stream ended before the answer did")
            raise ModelFailed(self.model, cut, begun=self.begun)
        return assembly.build_body()

    def _pass_on(self, dialect: Dialect, event: str, heard: Heard) -> None:
        """Pass on what an event of the stream adds to the answer, or to its reasoning."""
        if '"delta"' not in event and '"text"' not in event:
            return
        body = parse_object(event)
        if isinstance(heard, AnswerListener) and (thought := dialect.read_thought(body)):
            heard.thoughts(thought)
        if words := dialect.read_delta(body):
            self.begun = True
            heard(words)

    async def _iterate_chunks(self) -> AsyncGenerator[bytes]:
        """Yield the answer's bytes; any error here is the provider's or the network's."""
        try:
            async with self.sending as response:
                async for chunk in response.iter_bytes():
                    yield chunk
        except Exception as fault:
            raise self._make_model_error(fault) from fault

    def _make_body_error(self, body: Json) -> ModelFailed:
        """Make the failure for an error in the body of a successful response."""
        said = _Said(body)
        failed = self._make_model_error(said)
        failed.__cause__ = said
        return failed

    def _make_model_error(self, fault: Exception) -> ModelFailed:
        return ModelFailed(self.model, _translate_error(fault, self.where), begun=self.begun)


class _Said(Exception):  # noqa: N818 - carries a body, as the SDKs' errors do
    """An error in the body of an answer."""

    def __init__(self, body: Json) -> None:
        super().__init__(str(body)[:200])
        self.body = body


def _describe_address(address: Any, *, own: bool) -> tuple[str, str]:
    """Return the address to show, and what to do if it cannot be reached."""
    way = "start it, or correct --base-url" if own else "is there a network?"
    return normalize_address(str(address)), way


def _translate_error(fault: Exception, where: tuple[str, str]) -> Fault:
    """Translate an SDK's or the network's exception into a fault."""
    if type(fault.__cause__).__name__ in _UNREACHED:
        address, way = where
        why = str(fault.__cause__) or "no answer in time"
        return Fault("unreachable", f"{address} cannot be reached ({why}); {way}")
    if moved := _find_redirect(fault, where[0]):
        why = "it is not followed; if you trust that address, give it as --base-url"
        return Fault("other", f"{where[0]} answers that it has moved to {moved}: {why}")
    meant = of_exception(fault)
    below = type(fault).__module__.partition(".")[0].startswith("httpx")
    if meant.kind == "other" and (below or isinstance(fault, OSError)):
        meant = replace(meant, kind="overloaded")  # the connection broke: a retry may help
    words = meant.message or type(fault).__name__
    if "connection" in words.lower() and fault.__cause__ is not None:
        words = f"{words} {fault.__cause__}".strip()
    return replace(meant, message=words)


def _find_redirect(fault: Exception, address: str) -> str | None:
    """Find the address that an answer redirects to; None if it is another answer."""
    response: Any = getattr(fault, "response", None)
    status, headers = getattr(response, "status_code", 0), getattr(response, "headers", None)
    if not isinstance(status, int) or status // 100 != _REDIRECTS or headers is None:
        return None
    try:
        return normalize_address(urljoin(f"{address}/", str(headers.get("location", ""))))
    except (BadInput, ValueError):
        return "another address"


def _make_missing_extra_error(name: str, extra: str, fault: ImportError) -> BadInput:
    return BadInput(
        f"{name!r} needs the extra `{extra}`: pip install 'foldline[{extra}]' ({fault})"
    )


def _make_missing_key_error(name: str, variable: str) -> BadInput:
    return BadInput(
        f"no key for {name!r}: set {variable}; for a server of your own say --base-url, "
        "in Python api_key= or base_url="
    )
