"""Clients of the official SDKs, with their history planned on the way out.

    client = foldline.wrap(OpenAI())        # or AsyncOpenAI(), Anthropic(), AsyncAnthropic()
    http = foldline.http_client()           # for a framework that takes an httpx client

Knows the SDKs' kinds of clients, and what they are refused for. The wrapped client is the SDK's
own, with a transport (`transport`) that sends by the original's. Refuses to know conversations.
"""

import os
import sys
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict, TypeVar, overload

from foldline.errors import BadInput
from foldline.proxy.conversations import Conversations
from foldline.proxy.naming import check_name, current_name, last_asked
from foldline.proxy.transport import (
    OnStoreError,
    Planner,
    make_async_transport,
    make_transport,
)
from foldline.session import arguments
from foldline.session.log_handle import Live
from foldline.session.model_facts import known
from foldline.session.session import AsyncSession, Session
from foldline.stores.base import Store
from foldline.stores.open import store_at

if TYPE_CHECKING:
    from typing import Unpack

    from foldline.core.policy import Policy
    from foldline.models.port import Model
    from foldline.models.summarize import Tellers
    from foldline.session.spending import Caps

C = TypeVar("C")
Summarizer: TypeAlias = "str | Model | Sequence[str | Model] | Tellers | None"
_OTHERS = "Others may use foldline.open(), which plans before the client sends"


class Options(TypedDict, total=False):
    """What `wrap`, `http_client` and `async_http_client` take; `wrap` says what each means."""

    store: str | os.PathLike[str]
    session: str
    window: int | None
    reserve: int | None
    policy: "str | Policy"
    fold_from: int
    summarizer: Summarizer
    caps: "Caps | None"
    on_store_error: OnStoreError


def wrap(client: C, **options: "Unpack[Options]") -> C:
    """The same client; the history that each call sends is kept, and planned to fit the window.

    Takes the clients of `openai` and `anthropic`, sync and async, and gives one of the same class
    that is used as before, streams included. `foldline.session_of(client)` is its conversation:
    its report, its edits, undo and recall. Options:

    - `store`: where logs are kept, as `open` takes it; ":memory:" if not given. In a file or in
      PostgreSQL conversations are found again after a restart.
    - `session`: a name for the conversation of all calls; `with foldline.conversation("name"):` or
      the header `X-Foldline-Session` names that of some. Without a name it is found by its history.
    - `window`, `reserve`, `policy`, `summarizer`, `caps`: as `open` takes them. Without `window`
      the catalogue is asked, and a provider's refusal for length teaches it.
    - `fold_from`: below so many tokens nothing is edited that could be sent as it is.
    - `on_store_error`: "raise" (the SDK's own connection or timeout error) or "pass" (the request
      is sent as it came). Either way the store takes at most half of the client's timeout.
    """
    inner: Any = getattr(client, "_client", None)
    copy: Any = getattr(client, "copy", None)
    kind = type(client).__name__
    if _find_library(inner) is None or copy is None:
        raise BadInput(
            f"wrap() cannot wrap a {kind}; it takes the clients of the packages openai and "
            f"anthropic. {_OTHERS}"
        )
    if reason := _find_obstacle(client):
        raise BadInput(f"wrap() cannot wrap a {kind}: {reason}. {_OTHERS}")
    wrapped: Any = copy(http_client=_wrap_http(inner, options))
    wrapped.__class__ = _with_attribute(wrapped.__class__)
    return wrapped


def http_client(inner: Any = None, **options: "Unpack[Options]") -> Any:
    """An `httpx.Client` that plans what is sent through it, for frameworks that take one.

    ChatOpenAI(model=…, http_client=foldline.http_client(store="chats.db")). Takes what `wrap`
    takes. `inner` is the client to send by; if not given, one as the SDK makes it.
    """
    return _wrap_http(inner or _make_default("DefaultHttpxClient", "Client"), options)


def async_http_client(inner: Any = None, **options: "Unpack[Options]") -> Any:
    """The same for `async` code: an `httpx.AsyncClient`."""
    return _wrap_http(inner or _make_default("DefaultAsyncHttpxClient", "AsyncClient"), options)


class _Closes(Protocol):
    def close(self) -> None: ...


class _ClosesAsync(Protocol):
    def close(self) -> Awaitable[None]: ...


class _ClosesHttpAsync(Protocol):
    def aclose(self) -> Awaitable[None]: ...


@overload
def session_of(client: _ClosesAsync | _ClosesHttpAsync) -> AsyncSession: ...
@overload
def session_of(client: _Closes) -> Session: ...
def session_of(client: object) -> AsyncSession | Session:
    """The conversation of a wrapped client, or of a client that `http_client` made.

    Inside `with foldline.conversation(name)` it is that one; otherwise the one that this thread or
    task asked last. An `AsyncSession` where the client is async. The store is the client's: leave
    the session open.
    """
    found = getattr(getattr(client, "_client", client), "foldline", None)
    if not isinstance(found, Wrapped):
        raise BadInput(
            f"this {type(client).__name__} was not wrapped: give what foldline.wrap() or "
            "foldline.http_client() gave, or a copy that has the same http_client"
        )
    return found.session


class Wrapped:
    """What passed through a wrapped client: its attribute `foldline`."""

    def __init__(self, planner: Planner, *, is_async: bool) -> None:
        self._planner, self._is_async = planner, is_async

    @property
    def session(self) -> AsyncSession | Session:
        """The conversation of this thread or task: what `foldline.session_of` gives."""
        found = AsyncSession(self._find())
        return found if self._is_async else Session(found)

    def _find(self) -> Live:
        conversations = self._planner.conversations
        name = current_name() or self._planner.session
        own = last_asked(conversations, name)
        if own is not None:
            return conversations.find_newer(own)
        held = conversations.list_held(name)
        if name and held:
            return held[-1]
        if name:
            raise BadInput(f"nothing was asked in the conversation {name!r} yet")
        if len(held) == 1:
            return held[0]
        if not held:
            raise BadInput("nothing was asked through this client yet")
        raise BadInput(
            f"{len(held)} conversations went through this client, and this thread or task asked "
            "in none of them; name yours by `with foldline.conversation(name):`"
        )


def _wrap_http(inner: Any, options: Options) -> Any:
    """A client of the same HTTP library that plans, and sends by `inner`."""
    http: Any = _find_library(inner)
    if http is None:
        raise BadInput(f"a {type(inner).__name__} is no client of httpx")
    _check(options)
    planner = Planner(
        http,
        partial(_make_conversations, options),
        session=options.get("session", ""),
        on_store_error=options.get("on_store_error", "raise"),
    )
    is_async = isinstance(inner, http.AsyncClient)
    make = make_async_transport if is_async else make_transport
    outer = (http.AsyncClient if is_async else http.Client)(
        transport=make(inner, planner),
        headers=inner.headers,
        cookies=inner.cookies,
        params=inner.params,
        timeout=inner.timeout,
    )
    outer.foldline = Wrapped(planner, is_async=is_async)
    return outer


def _check(options: Options) -> None:
    """Refuse wrong options here, in words, and not at the first call."""
    unknown = [name for name in options if name not in Options.__annotations__]
    if unknown:
        allowed = ", ".join(Options.__annotations__)
        raise TypeError(f"unknown option {unknown[0]!r}; there are: {allowed}")
    if "session" in options:
        check_name(options["session"])
    arguments.must_be_tokens(window=options.get("window"), reserve=options.get("reserve"))
    fold_from, mode = options.get("fold_from", 0), options.get("on_store_error", "raise")
    if type(fold_from) is not int or fold_from < 0:
        raise BadInput(f"fold_from={fold_from!r} is no number of tokens; give 0 or more")
    if mode not in ("raise", "pass"):
        raise BadInput(f'on_store_error={mode!r}; give "raise" or "pass"')
    summarizer, caps = options.get("summarizer"), options.get("caps")
    if summarizer == "worker":
        raise BadInput('summarizer="worker" is for foldline.open(); name a model here')
    if summarizer is not None:
        arguments.must_be_summarizer(summarizer)
    if caps is not None:
        from foldline.session.spending import NO_CAP, Caps  # noqa: PLC0415 - few have caps

        if not isinstance(caps, Caps) or caps.user != NO_CAP:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadInput(
                f"caps={caps!r}; give foldline.session.spending.Caps(…), without a cap per user"
            )
    known("m", window=None, reserve=None, policy=options.get("policy", "steady"))


def _make_conversations(options: Options) -> Conversations:
    policy = options.get("policy", "steady")
    facts_of = partial(
        known, window=options.get("window"), reserve=options.get("reserve"), policy=policy
    )
    fold_from = options.get("fold_from", 0)
    address = options.get("store", ":memory:")
    store = store_at(address)
    return Conversations(
        store,
        lambda model: replace(facts_of(model), fold_from=fold_from),
        shared=str(address) != ":memory:",
        prepare=_make_preparation(store, options.get("summarizer"), options.get("caps")),
    )


def _make_preparation(store: Store, summarizer: Summarizer, caps: "Caps | None") -> Any:
    """What is done with each log that is opened: its caps, and who tells its folds."""
    if summarizer is None and caps is None:
        return None

    tellers: list[Tellers] = []

    async def prepare(live: Live) -> None:
        if caps is not None:
            from foldline.session.spending import Spending  # noqa: PLC0415 - few have caps

            live.spending = Spending(store, live.name, live.facts.prices, caps)
        if summarizer is not None:
            from foldline.session.summaries import Preparing, preparing  # noqa: PLC0415 - few have one

            if not tellers:
                tellers.append((await preparing(summarizer)).tellers)
            live.narrator = Preparing(tellers[0], live.spending)

    return prepare


def _find_obstacle(client: object) -> str:
    """Why a client of an SDK cannot be wrapped; "" where it can."""
    kinds = [base.__name__ for base in type(client).__mro__]
    if _is_signing(client):
        return (
            "it signs every request with AWS credentials, and an edited request would not match "
            "its signature. Use one that sends an API key"
        )
    if any(kind.endswith("AnthropicBedrock") for kind in kinds):
        return (
            "it speaks Bedrock's InvokeModel, whose answers come in a form of their own. "
            "AnthropicBedrockMantle with an API key can be wrapped"
        )
    if any(kind.endswith("AnthropicVertex") for kind in kinds):
        return (
            "it speaks Vertex' rawPredict, which names the model in the address and not in the "
            "request"
        )
    return ""


def _is_signing(client: object) -> bool:
    """Whether an SDK's client signs the body of each request before its transport sees it."""
    uses_aws = getattr(client, "_use_sigv4", None)  # Anthropic's: of classes that can do both
    if uses_aws is None:
        uses_aws = getattr(client, "_uses_aws_auth", None)  # OpenAI's
        uses_aws = uses_aws() if callable(uses_aws) else uses_aws
    if uses_aws is not None:
        return bool(uses_aws)
    prepare = getattr(getattr(client, "_provider_runtime", None), "prepare_request", None)
    if "SigV4" in type(getattr(prepare, "__self__", None)).__name__:  # OpenAI(provider=bedrock())
        return True
    if getattr(client, "api_key", None):
        return False
    names = [f"{base.__module__}.{base.__name__}".lower() for base in type(client).__mro__]
    return any("bedrock" in name or ".aws." in name for name in names)


@cache
def _with_attribute(kind: type) -> type:
    """A kind of client with the attribute `foldline`; copies of such a client have it too."""

    def read(client: Any) -> Wrapped:
        return client._client.foldline  # noqa: SLF001 - the one way to what a copy is given

    said = {"foldline": property(read), "__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind,), said)


def _make_default(made: str, else_made: str) -> Any:
    """An HTTP client as the SDK that is installed makes it."""
    for name in ("openai", "anthropic"):
        try:
            return getattr(import_module(name), made)()
        except ImportError:
            continue
    for name in ("httpx2", "httpx"):
        try:
            return getattr(import_module(name), else_made)()
        except ImportError:
            continue
    raise BadInput("no HTTP library is there to make a client of; install openai or httpx")


def _find_library(inner: Any) -> ModuleType | None:
    """The HTTP library that a client stands on: it differs between releases of the SDKs."""
    for base in type(inner).__mro__:
        name = base.__module__.partition(".")[0]
        if name in ("httpx", "httpx2"):
            return sys.modules[name]
    return None
