"""What all commands share: `--store`, `--tenant` and `--json`, the store, and sessions by name.

The shared options may stand before a command or behind its name. Looking at a session through
another model, window or policy (`Look`) writes nothing.
"""

import asyncio
import inspect
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from foldline.apps.cli.exit_codes import STOPPED, NothingFound, Unusable
from foldline.apps.cli.output import print_json, print_lines, print_remark
from foldline.core.log import ModelSwitched, Setting
from foldline.core.parts import replace_surrogates
from foldline.core.plan import Facts, after
from foldline.core.view import View
from foldline.errors import BadInput, FormatError
from foldline.session.model_facts import of_session
from foldline.session.session import AsyncSession
from foldline.session.stored_session import iterate_sessions, open_stored_session
from foldline.stores.base import Name, Store, without_secrets
from foldline.stores.open_store import store_at

MEMORY = ":memory:"
_LISTED = 6  # names in a message
_MOST = 200  # names that a shell is offered
_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Facts to look at a session through; None is the session's own."""

    policy: str | None = None
    window: int | None = None
    model: str | None = None


AS_IT_IS = Look()


def resolve_default_store() -> Path:
    """Return the path of the store in the user's data folder."""
    folder = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(folder) / "foldline" / "sessions.db"


def find_checkpoints(desk: "Desk", session: str) -> Path:
    """Return the folder of a session's checkpoints, in the user's data folder."""
    key = f"{desk.address}\0{desk.tenant}\0{session}".encode(errors="surrogatepass")
    return resolve_default_store().parent / "checkpoints" / sha256(key).hexdigest()[:32]


def format_store_option(address: str) -> str:
    """Return the option that names the same store in a command; "" for the default one."""
    if address == str(resolve_default_store()):
        return ""
    return f" --store {'ADDRESS' if '://' in address else quote(address)}"


def explain_missing_store(address: str) -> str:
    """Say which commands create a missing store."""
    option = format_store_option(address)
    return f"`foldline import FILE{option}` or `foldline chat{option}` makes one"


@asynccontextmanager
async def open_store(address: str, *, make: bool = False) -> AsyncGenerator[Store]:
    """Open the store at an address; a missing one is created only with `make`."""
    try:
        store = store_at(_prepare_store_path(address, make=make))
    except (BadInput, FormatError) as fault:
        raise Unusable(str(fault)) from fault
    except UnicodeEncodeError as fault:
        raise Unusable(
            f"{replace_surrogates(address)!r} is no path that SQLite can open"
        ) from fault
    try:
        yield store
    finally:
        await store.close()


def _prepare_store_path(address: str, *, make: bool) -> str:
    """Return the path of the file; a new one is readable by its owner only."""
    if address == MEMORY or "://" in address:
        return address
    path = Path(address).expanduser()
    if path.exists():
        return str(path)
    if not make:
        raise Unusable(
            f"there is no store at {address}; {explain_missing_store(address)}, "
            "--store or FOLDLINE_STORE names another"
        )
    try:
        if path == resolve_default_store():
            path.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        path.touch(mode=_PRIVATE_FILE)
    except OSError as fault:
        raise Unusable(f"no store can be made at {path}: {fault.strerror}") from fault
    return str(path)


async def resolve_session_name(store: Store, tenant: str, given: str) -> Name:
    """Find the session of that name, or the only one whose name begins so."""
    given = replace_surrogates(given)
    exact = Name(tenant, given)
    if given and (await store.head(exact)).seq >= 0:
        return exact
    page = await store.sessions(tenant, after=given, limit=_LISTED)
    found = [one.session for one in page if given and one.session.startswith(given)]
    if len(found) == 1:
        return Name(tenant, found[0])
    if found:
        more = ", …" if len(found) == _LISTED else ""
        raise BadInput(f"{given!r} begins several names: {', '.join(found)}{more}; write more")
    # Compare with as much of each name as was written: a mistyped beginning should match, too.
    most = len(given) + 2
    every = {one.session[:most]: one.session async for one in iterate_sessions(store, tenant)}
    near = [every[one] for one in get_close_matches(given[:100], every, n=3)]
    hint = f"did you mean {' or '.join(near)}?" if near else "`foldline sessions` lists them"
    raise NothingFound(f"there is no session {given!r} here; {hint}")


async def open_named_session(store: Store, tenant: str, given: str) -> AsyncSession:
    """Open a session by its name, or by the beginning of it."""
    return await open_stored_session(store, await resolve_session_name(store, tenant, given))


def apply_look(seen: AsyncSession, look: Look = AS_IT_IS) -> tuple[View, Facts]:
    """Return a session's view and facts, changed by the look."""
    view = seen.live.view
    if look.model and look.model != view.model:
        view = after(view, [ModelSwitched(look.model)])
    return view, _resolve_facts(view.model, view.settings, look)


def _resolve_facts(model: str, settings: Mapping[str, Setting], look: Look) -> Facts:
    """Build the session's facts, changed by the look; another model has a window of its own."""
    if look.window is not None and look.window < 1:
        raise BadInput(f"a window of {look.window} tokens holds nothing; write --window 128000")
    own = settings if look.model is None else {"policy": settings.get("policy")}
    given = {"window": look.window, "policy": look.policy}
    return of_session(
        look.model or model, {**own, **{key: one for key, one in given.items() if one}}
    )


P = ParamSpec("P")
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="ADDRESS",
        help="Where sessions are kept: a file's path. [env: FOLDLINE_STORE]",
        show_default=False,
    ),
]
TenantOption = Annotated[
    str | None,
    typer.Option("--tenant", metavar="NAME", help="Whose sessions: 'local' if not said."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]
SHARED: dict[str, Any] = {
    "store_": (StoreOption, None),
    "tenant_": (TenantOption, None),
    "json_": (JsonOption, False),
}


@dataclass(frozen=True, slots=True)
class Desk:
    """What a command works with: the store's address, the tenant, the form of the answer."""

    address: str
    tenant: str = "local"
    json: bool = False
    given: bool = False
    """Whether a person named the store."""

    @property
    def where(self) -> str:
        """The store's address, without a password."""
        return without_secrets(self.address)

    def open_store(self, *, make: bool = False) -> AbstractAsyncContextManager[Store]:
        """Open the store."""
        return open_store(self.address, make=make)

    def print_answer(self, body: Any, lines: Callable[[], list[str]]) -> None:
        """Print the answer: one JSON document, or lines for a person."""
        if self.json:
            print_json(body)
        else:
            print_lines(*lines())


def make_desk(
    *, store: str | None = None, tenant: str | None = None, json: bool = False, under: Any = None
) -> Desk:
    """Combine options behind the command with those before it (`under`) and the environment."""
    before = under if isinstance(under, Desk) else Desk("")
    named = store or (before.address if before.given else "") or os.environ.get("FOLDLINE_STORE")
    return Desk(
        named or str(resolve_default_store()),
        replace_surrogates(tenant or before.tenant),
        json or before.json,
        given=bool(named),
    )


def make_command(
    work: Callable[Concatenate[Desk, P], Coroutine[Any, Any, int | None]],
) -> Callable[..., None]:
    """Make a command of an async function: add the shared options, exit with its code."""

    @wraps(work)
    def run_work(ctx: typer.Context, **given: Any) -> None:
        store, tenant, json = (given.pop(name) for name in SHARED)
        desk = make_desk(store=store, tenant=tenant, json=json, under=ctx.obj)
        try:
            code = asyncio.run(work(desk, **given))  # type: ignore[call-arg]
        except KeyboardInterrupt:
            print_remark("interrupted; what was written before stays")
            code = STOPPED
        raise typer.Exit(code or 0)

    own = [*inspect.signature(work).parameters.values()][1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter(name, keyword, default=value, annotation=option)
        for name, (option, value) in SHARED.items()
    ]
    context = inspect.Parameter("ctx", keyword, annotation=typer.Context)
    named = [one.replace(kind=keyword) for one in own]
    faced: Any = run_work
    faced.__signature__ = inspect.Signature([context, *named, *shared])
    faced.__annotations__ = {one.name: one.annotation for one in (context, *named, *shared)}
    return run_work


def complete_session_name(incomplete: str) -> Iterator[str]:
    """Yield the sessions of the usual store whose names begin so; none if it cannot be read."""

    async def list_names() -> list[str]:
        desk = make_desk()
        store = store_at(desk.address)
        try:
            page = await store.sessions(desk.tenant, after=incomplete[:-1], limit=_MOST)
        finally:
            await store.close()
        return [one.session for one in page]

    try:
        names = asyncio.run(list_names())
    except Exception:  # noqa: BLE001 - a shell that completes shows no errors
        return
    yield from (name for name in names if name.startswith(incomplete))
