"""Where sessions are: the store's address, and one session in it by what a person calls it.

Knows the user's data folder and how a session is looked at through other facts. Refuses to know
commands, and to write: a session is opened as it was left, whatever it is looked at through.
"""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from shlex import quote

from foldline.apps.cli.exit_codes import NothingFound, Unusable
from foldline.core.log import ModelSwitched, Setting
from foldline.core.parts import sound
from foldline.core.plan import Facts, after
from foldline.core.view import View
from foldline.errors import BadInput, FormatError
from foldline.session.model_facts import of_session
from foldline.session.session import AsyncSession
from foldline.session.session_list import listed
from foldline.stores.base import Name, Store
from foldline.stores.open import store_at

MEMORY = ":memory:"
_LISTED = 6  # names that a message offers
_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Other facts to look at a session through; None is as the session says."""

    policy: str | None = None
    window: int | None = None
    model: str | None = None


AS_IT_IS = Look()


def default() -> Path:
    """The file in the user's data folder."""
    folder = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(folder) / "foldline" / "sessions.db"


def there(address: str) -> str:
    """What a command is given to work with the same store."""
    if address == str(default()):
        return ""
    return f" --store {'ADDRESS' if '://' in address else quote(address)}"


def making(address: str) -> str:
    """Which commands make a store that is not there."""
    return f"`foldline import FILE{there(address)}` or `foldline chat{there(address)}` makes one"


@asynccontextmanager
async def opened(address: str, *, make: bool = False) -> AsyncGenerator[Store]:
    """The store at an address; one that is not there is made only where that is wanted."""
    try:
        store = store_at(_found(address, make=make))
    except (BadInput, FormatError) as fault:
        raise Unusable(str(fault)) from fault
    except UnicodeEncodeError as fault:
        raise Unusable(f"{sound(address)!r} is no path that SQLite can open") from fault
    try:
        yield store
    finally:
        await store.close()


def _found(address: str, *, make: bool) -> str:
    """The path of a file that is there; a new one only its owner reads: sessions are private."""
    if address == MEMORY or "://" in address:
        return address
    path = Path(address).expanduser()
    if path.exists():
        return str(path)
    if not make:
        raise Unusable(
            f"there is no store at {address}; {making(address)}, "
            "--store or FOLDLINE_STORE names another"
        )
    try:
        if path == default():
            path.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        path.touch(mode=_PRIVATE_FILE)
    except OSError as fault:
        raise Unusable(f"no store can be made at {path}: {fault.strerror}") from fault
    return str(path)


async def named(store: Store, tenant: str, given: str) -> Name:
    """The session of that name, or the only one whose name begins so."""
    given = sound(given)
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
    # By as much of each name as was written: a beginning is enough, also a mistyped one.
    most = len(given) + 2
    every = {one.session[:most]: one.session async for one in listed(store, tenant)}
    near = [every[one] for one in get_close_matches(given[:100], every, n=3)]
    hint = f"did you mean {' or '.join(near)}?" if near else "`foldline sessions` lists them"
    raise NothingFound(f"there is no session {given!r} here; {hint}")


def sight(seen: AsyncSession, look: Look = AS_IT_IS) -> tuple[View, Facts]:
    """What a session shows now, and what is decided under, through other facts."""
    view = seen.live.view
    if look.model and look.model != view.model:
        view = after(view, [ModelSwitched(look.model)])
    return view, _facts(view.model, view.settings, look)


def _facts(model: str, settings: Mapping[str, Setting], look: Look) -> Facts:
    """What a session names, but what the look says; another model has a window of its own."""
    if look.window is not None and look.window < 1:
        raise BadInput(f"a window of {look.window} tokens holds nothing; write --window 128000")
    own = settings if look.model is None else {"policy": settings.get("policy")}
    given = {"window": look.window, "policy": look.policy}
    return of_session(
        look.model or model, {**own, **{key: one for key, one in given.items() if one}}
    )
