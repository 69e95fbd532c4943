"""Wraps clients of the official SDKs, so that their history is planned on the way out.

    client = foldline.wrap(OpenAI())        # or AsyncOpenAI(), Anthropic(), genai.Client(), …
    http = foldline.http_client()           # for a framework that takes an httpx client

A wrapped client is a copy of the SDK's client whose `transport` sends through the original's.
"""

import os
import sys
from collections.abc import Awaitable
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar, overload

from foldline.errors import BadInput
from foldline.proxy import google_client
from foldline.proxy.conversations import Conversations
from foldline.proxy.identity import check_name, current_name, last_asked
from foldline.proxy.transport import OnStoreError, Planner, make_async_transport, make_transport
from foldline.session import arguments
from foldline.session.log_handle import Live
from foldline.session.model_facts import build_facts, remember_facts
from foldline.session.open import Summarizer
from foldline.session.session import AsyncSession, Session
from foldline.stores.base import Store
from foldline.stores.open_store import store_at

if TYPE_CHECKING:
    from typing import Unpack

    from foldline.core.plan import Facts
    from foldline.core.policy import Policy
    from foldline.models.summarize import Tellers
    from foldline.session.spending import Caps
    from foldline.settings.tree import Settings

C = TypeVar("C")
_OTHERS = "Others may use foldline.open(), which plans before the client sends"


class Options(TypedDict, total=False):
    """Options of `wrap`, `http_client` and `async_http_client`; see `wrap`."""

    store: str | os.PathLike[str]
    session: str
    window: int | None
    reserve: int | None
    policy: "str | Policy"
    fold_from: int
    summarizer: Summarizer
    caps: "Caps | None"
    on_store_error: OnStoreError
    own_history: bool
    recall: bool
    context: float | None
    settings: "Settings"


def wrap(client: C, **options: "Unpack[Options]") -> C:
    """Return a client of the same class whose calls are recorded and planned to fit the window.

    Takes the clients of `openai`, `anthropic` and `google.genai`, sync and async. The returned one
    is used as before, streams included; calls of the given one still go out unplanned.
    `foldline.session_of(client)` is its conversation: its report, its edits, undo and recall.
    Options:

    - `store`: where logs are kept, as in `open`; ":memory:" by default. In a file or in PostgreSQL
      conversations are found again after a restart.
    - `session`: a name for the conversation of all calls; `with foldline.conversation("name"):` or
      the header `X-Foldline-Session` names that of some. Without a name it is found by its history.
    - `window`, `reserve`, `policy`, `summarizer`, `caps`: as in `open`. Without `window` the
      catalogue's is used, and a smaller one is learned when a provider refuses a request's length.
    - `fold_from`: below this many tokens nothing is edited that could be sent as it is.
    - `own_history`: write out a request that only names an earlier answer (`previous_response_id`):
      the whole history is sent from the log and fits, and the server is asked to keep nothing.
      Without it such a request is recorded, and sent as it came.
    - `recall`: offer the model the tool `recall` once something was cut or folded, and answer its
      calls from the log, streams included. The client sees none of it. Not offered to a client that
      has such a tool itself.
    - `context`: tell the model how full its window is, in a line at the end of the newest message,
      once this share of it is in use (0.5: from half on). The line is in no later request.
    - `settings`: a file's settings, from `foldline.settings.layers.load_settings(Path.cwd())`:
      policy, window, reserve, caps and summarizer are taken from them where no option says
      otherwise. No file is read unless you do.
    - `on_store_error`: "raise" (the SDK's own connection or timeout error) or "pass" (the request
      is sent with the edits in force). Either way the store takes at most half of the client's
      timeout.
    """
    if google_client.is_google(client):
        return google_client.wrap_google(client, lambda inner: _wrap_http(inner, options))
    inner: Any = getattr(client, "_client", None)
    make_copy: Any = getattr(client, "copy", None)
    kind = type(client).__name__
    if _find_library(inner) is None or make_copy is None:
        raise BadInput(
            f"wrap() cannot wrap a {kind}; it takes the clients of the packages openai, anthropic "
            f"and google-genai. {_OTHERS}"
        )
    if reason := _find_obstacle(client):
        raise BadInput(f"wrap() cannot wrap a {kind}: {reason}. {_OTHERS}")
    wrapped: Any = make_copy(http_client=_wrap_http(inner, options))
    wrapped.__class__ = _with_attribute(wrapped.__class__)
    return wrapped


def http_client(inner: Any = None, **options: "Unpack[Options]") -> Any:
    """Return an `httpx.Client` that plans what is sent through it, for frameworks that take one.

    ChatOpenAI(model=…, http_client=foldline.http_client(store="chats.db")). Takes the options of
    `wrap`. `inner` is the client to send through; by default one as the SDK makes it.
    """
    return _wrap_http(inner or _make_default("DefaultHttpxClient", "Client"), options)


def async_http_client(inner: Any = None, **options: "Unpack[Options]") -> Any:
    """Return an `httpx.AsyncClient` that plans what is sent through it, like `http_client`."""
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
    """Return the conversation of a wrapped client, or of a client that `http_client` made.

    Inside `with foldline.conversation(name)` it is that one; otherwise the one that this thread or
    task used last. It is an `AsyncSession` if the client is async. The store belongs to the
    client: leave the session open.
    """
    wrapped = getattr(getattr(client, "_client", client), "foldline", None)
    if not isinstance(wrapped, Wrapped):
        raise BadInput(
            f"this {type(client).__name__} was not wrapped: give what foldline.wrap() or "
            "foldline.http_client() gave, or a copy that has the same http_client"
        )
    return wrapped.session


class Wrapped:
    """The attribute `foldline` of a wrapped client."""

    def __init__(self, planner: Planner, *, is_async: bool) -> None:
        self._planner, self._is_async = planner, is_async

    @property
    def session(self) -> AsyncSession | Session:
        """The conversation of this thread or task, as `foldline.session_of` returns it."""
        session = AsyncSession(self._choose_log())
        return session if self._is_async else Session(session)

    def _choose_log(self) -> Live:
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
    """Make a client of the same HTTP library that plans, and sends through `inner`."""
    http: Any = _find_library(inner)
    if http is None:
        raise BadInput(f"a {type(inner).__name__} is no client of httpx")
    check_options(options)
    planner = Planner(
        http,
        partial(make_conversations, options),
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


def check_options(options: Options) -> None:
    """Raise on wrong options now, not at the first call."""
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
    for name in ("own_history", "recall"):
        if type(given := options.get(name, False)) is not bool:
            raise BadInput(f"{name}={given!r}; give True or False")
    context = options.get("context")
    if context is not None and not (type(context) in (int, float) and 0 <= context <= 1):
        raise BadInput(f"context={context!r}; give a share of the window, as 0.5")
    summarizer, caps = options.get("summarizer"), options.get("caps")
    if summarizer == "worker":
        raise BadInput('summarizer="worker" is for foldline.open(); name a model here')
    if summarizer is not None:
        arguments.must_be_summarizer(summarizer)
    if caps is not None:
        from foldline.session.spending import NO_CAP  # noqa: PLC0415 - few have caps

        arguments.must_be_caps(caps)
        if caps.user != NO_CAP:
            raise BadInput("wrap() does not know users; give caps without a cap per user")
    if "settings" in options:
        arguments.must_be_settings(options["settings"])
    build_facts("m", window=None, reserve=None, policy=options.get("policy", "steady"))


def _build_option_facts(options: Options, model: str) -> "Facts":
    """Build a model's facts: options go before the settings."""
    settings = options.get("settings")
    window, reserve, policy = (options.get(key) for key in ("window", "reserve", "policy"))
    if settings is not None:
        from foldline.session.session_settings import resolve_session_settings  # noqa: PLC0415 - few have any

        own = resolve_session_settings(settings, model, {})
        window = window or own.model.max_input_tokens
        reserve, policy = reserve or own.model.max_output_tokens, policy or own.policy
    return build_facts(model, window=window, reserve=reserve, policy=policy or "steady")


def make_conversations(options: Options) -> Conversations:
    """Open the store of some options, for the conversations that are kept there."""
    facts_of = remember_facts(partial(_build_option_facts, options))
    fold_from = options.get("fold_from", 0)
    address = options.get("store", ":memory:")
    store = store_at(address)
    return Conversations(
        store,
        lambda model: replace(facts_of(model), fold_from=fold_from),
        shared=str(address) != ":memory:",
        prepare=_make_preparation(store, options),
        own_history=options.get("own_history", False),
        recall=options.get("recall", False),
        context=options.get("context"),
    )


def _make_preparation(store: Store, options: Options) -> Any:
    """Make the function that gives each opened log its caps and its narrator."""
    summarizer, caps, settings = (options.get(key) for key in ("summarizer", "caps", "settings"))
    narrate = None
    if settings is not None:
        from foldline.session.host import make_teller  # noqa: PLC0415 - few have any
        from foldline.session.session_settings import make_preparation  # noqa: PLC0415
        from foldline.session.use_settings import build_caps  # noqa: PLC0415

        # The cap of a user is left out: nobody says here who that is.
        caps = caps or build_caps(settings, but=("user",))
        narrate = make_preparation(settings, cache(partial(make_teller, host=None)))
    if summarizer is None and caps is None and narrate is None:
        return None
    tellers: list[Tellers] = []

    async def prepare_log(live: Live) -> None:
        if caps is not None:
            from foldline.session.spending import Spending  # noqa: PLC0415 - few have caps

            live.spending = Spending(store, live.name, live.facts.prices, caps)
        if summarizer is not None:
            from foldline.session.summaries import Preparing, make_narrator  # noqa: PLC0415 - few have one

            if not tellers:
                tellers.append((await make_narrator(summarizer)).tellers)
            live.narrator = Preparing(tellers[0], live.spending)
        elif narrate is not None:
            await narrate(live)

    return prepare_log


def _find_obstacle(client: object) -> str:
    """Explain why a client of an SDK cannot be wrapped; "" if it can."""
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
    uses_aws = getattr(client, "_use_sigv4", None)  # Anthropic's, in classes that can do both
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
    """Subclass a client with the attribute `foldline`; copies of such a client have it too."""

    def read_wrapped(client: Any) -> Wrapped:
        return client._client.foldline  # noqa: SLF001 - a copy has no other link to it

    attributes = {
        "foldline": property(read_wrapped),
        "__module__": kind.__module__,
        "__doc__": kind.__doc__,
    }
    return type(kind.__name__, (kind,), attributes)


def _make_default(made: str, else_made: str) -> Any:
    """Make an HTTP client as the installed SDK makes it, or else a plain one."""
    kinds = {"openai": made, "anthropic": made, "httpx2": else_made, "httpx": else_made}
    for name, kind in kinds.items():
        try:
            return getattr(import_module(name), kind)()
        except ImportError:
            continue
    raise BadInput("no HTTP library is there to make a client of; install openai or httpx")


def _find_library(inner: Any) -> ModuleType | None:
    """Find the HTTP library of a client: it differs between releases of the SDKs."""
    for base in type(inner).__mro__:
        name = base.__module__.partition(".")[0]
        if name in ("httpx", "httpx2"):
            return sys.modules[name]
    return None
