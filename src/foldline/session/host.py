"""The server that a session's model is asked at: kept in its log, and changed only on request.

    host = choose_host("notes", "gpt-6.1-sol", recorded=recorded_host(view.settings), named=None)
    host.base_url        as the log keeps it: scheme, host, port and path, never a key
    host.given           what an SDK is given; None: its own default

A session goes where its log says: another address in settings or the environment is refused, and
an explicit one moves the session. A log can be a stranger's, and every request carries a key, so an
address that only a log names must have been agreed to in this store.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from foldline.core.log import Setting, SettingsChanged
from foldline.dialects import base
from foldline.dialects.base import Vendor
from foldline.dialects.model_names import is_served_elsewhere
from foldline.errors import BadInput, OtherHost
from foldline.models.clients import (
    client,
    default_address,
    is_same_address,
    normalize_address,
)
from foldline.models.port import Model
from foldline.session.log_handle import Live
from foldline.stores.base import Name, Store

_BASE_URL, _DIALECT = "base_url", "dialect"  # among a session's settings
_AT = "@http"  # between a model's name and its address
_SPACE = "hosts"  # of the side table: addresses that this tenant has agreed to


@dataclass(frozen=True, slots=True)
class Host:
    """A server and its dialect."""

    base_url: str
    """Scheme, host, port and path."""
    dialect: str
    given: str | None = field(default=None, compare=False)
    """The address for an SDK, as a person wrote it; None if it is the SDK's default."""


class Named(NamedTuple):
    """An address from settings, the environment or the command line."""

    base_url: str
    origin: str
    """Where it comes from: a file and its line, a variable, the command line."""
    is_explicit: bool = False
    """Whether it was requested for this session."""


def recorded_host(settings: Mapping[str, Setting]) -> Host | None:
    """Return the host that a session's log names."""
    base_url = settings.get(_BASE_URL)
    return _make_host(base_url, str(settings.get(_DIALECT))) if isinstance(base_url, str) else None


def host_settings(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return those of a session's settings that name its host."""
    return {key: settings[key] for key in (_BASE_URL, _DIALECT) if key in settings}


def choose_host(session: str, model: str, *, recorded: Host | None, named: Named | None) -> Host:
    """Choose a session's host; raises `OtherHost` if it would change without a request.

    1. An explicit address.
    2. The session's own; refused if another is named, or the model is another provider's.
    3. The address in settings or the environment, else the SDK's default.
    """
    asked = recorded.dialect if recorded is not None else None
    known = named or recorded
    address = known.base_url if known is not None else default_address(model)
    speaks = base.choose_dialect(model, asked, address=address)
    dialect, vendor = speaks.name, speaks.vendor
    if named is not None:
        host = Host(normalize_address(named.base_url), dialect, named.base_url)
    else:
        host = _make_host(address or vendor.address, dialect)
    if recorded is None or (named is not None and named.is_explicit):
        return host
    elsewhere = is_served_elsewhere(model, recorded.base_url)
    if _vendor_of(recorded.dialect) != vendor or elsewhere:
        whose = model.partition("/")[0] if elsewhere else vendor.title
        raise OtherHost(
            f"session {session!r} is asked at {recorded.base_url}, and {model!r} is asked as "
            f"{whose}'s are; name a model of the same provider, or say where it is asked: "
            f"--model {model} --base-url URL"
        )
    if named is None:
        return recorded
    if not _is_same(host, recorded):
        raise OtherHost(
            f"session {session!r} is asked at {recorded.base_url}, and {named.origin} names "
            f"{host.base_url}; --base-url {host.base_url} moves it there, "
            f"--base-url {recorded.base_url} leaves it where it is"
        )
    return Host(recorded.base_url, dialect, named.base_url)


def record_host(settings: Mapping[str, Setting], host: Host) -> SettingsChanged | None:
    """Make the event that records a host; None if the settings already name it."""
    now = recorded_host(settings)
    is_same = now is not None and _vendor_of(now.dialect) == _vendor_of(host.dialect)
    if now is not None and is_same and _is_same(now, host):
        return None
    return SettingsChanged({**settings, _BASE_URL: host.base_url, _DIALECT: host.dialect})


def host_of(model: Model) -> Host | None:
    """Return a client's host; None for a model without a server."""
    base_url = getattr(model, "base_url", None)
    own = base.find_client_dialect(model).name
    return _make_host(base_url, own) if isinstance(base_url, str) else None


def must_be_asked_at(session: str, settings: Mapping[str, Setting], host: Host | None) -> None:
    """Raise `OtherHost` if a session's log names another host than this one."""
    recorded = recorded_host(settings)
    if recorded is not None and host is not None and record_host(settings, host) is not None:
        raise OtherHost(
            f"session {session!r} is asked at {recorded.base_url}, and here it would be asked "
            "elsewhere; go on with it where it was begun, or begin another"
        )


def names_address(model: str) -> bool:
    """Whether a model's name says where it is asked, as only the operator's settings may.

    Clients choose the models of their sessions: nothing is sent where such a name says.
    """
    return _AT in model


def make_teller(said: str, host: Host | None, *, api_key: str | None = None) -> Model:
    """Make a summarizer's client: `MODEL` uses its session's host, `MODEL@URL` that address.

    It is sent the session's words, which go to no host that was not named.
    """
    name, is_named, rest = said.partition(_AT)
    if is_named:
        return client(name, base_url=f"http{rest}")
    vendor = base.choose_dialect(name, None, address=host.base_url if host else None).vendor
    if host is not None and vendor != _vendor_of(host.dialect):
        raise OtherHost(
            f"the session is asked at {host.base_url}, and the summarizer {name!r} is asked as "
            f"{vendor.title}'s are; write {name}@{vendor.address} to send it there"
        )
    return client(name, base_url=host.given if host else None, api_key=api_key)


async def find_host(live: Live) -> Host | None:
    """Return the host that a session's log names; raises `OtherHost` if it was not agreed to."""
    host = recorded_host(live.view.settings)
    if host is not None:
        await must_be_agreed(live.store, live.name, host)
    return host


async def agree_to_host(store: Store, name: Name, host: Host) -> None:
    """Remember that a tenant's sessions may use a host."""
    if not await _is_agreed(store, name, host):
        await store.put(Name(name.tenant, ""), _SPACE, host.base_url, b"")


async def must_be_agreed(store: Store, name: Name, host: Host) -> None:
    """Raise `OtherHost` for an address that was not agreed to in this store."""
    if not await _is_agreed(store, name, host):
        raise OtherHost(
            f"the log of session {name.session!r} says that it is asked at {host.base_url}, where "
            "nothing from here was sent before: it may be a stranger's log; "
            f"--base-url {host.base_url} agrees, --base-url with another moves it"
        )


async def _is_agreed(store: Store, name: Name, host: Host) -> bool:
    vendor = _vendor_of(host.dialect)
    if vendor is not None and host.base_url == vendor.address:
        return True  # the default, where it would go anyway
    return await store.get(Name(name.tenant, ""), _SPACE, host.base_url) is not None


def _is_same(one: Host, other: Host) -> bool:
    try:
        return is_same_address(one.base_url, other.base_url)
    except BadInput:  # an unreadable address in a log equals no other
        return False


def _make_host(base_url: str, dialect: str) -> Host:
    with suppress(BadInput):
        base_url = normalize_address(base_url)
    # The SDK's default needs a key and one's own server does not: so only the latter gets an
    # address. If the variable is set, it would replace a missing address, so it is given then too.
    vendor = _vendor_of(dialect)
    default = vendor is not None and base_url == vendor.address
    is_given = not default or (vendor is not None and vendor.variable in os.environ)
    return Host(base_url, dialect, base_url if is_given else None)


def _vendor_of(dialect: str) -> Vendor | None:
    """Return whose dialect a log names; None if it is none that this release knows."""
    return base.get_dialect(dialect).vendor if dialect in base.DIALECTS else None
