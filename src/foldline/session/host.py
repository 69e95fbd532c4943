"""Where a session's model is asked: kept in its log, and changed by nobody but who asks for it.

    host = choose_host("notes", "gpt-5", recorded=recorded_host(view.settings), named=None)
    host.base_url        as the log keeps it: scheme, host, port and path, never a key
    host.given           what an SDK is given; None: its own default

Knows that a session goes where its log says: another address in settings or the environment is
refused, one that is asked for moves the session. A log can be a stranger's, and a key is sent along
with every request, so an address that only a log names must have been agreed to in this store.
Refuses to know where addresses are written.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from foldline.core.log import Setting, SettingsChanged
from foldline.errors import BadInput, OtherHost
from foldline.models.addresses import (
    DEFAULTS,
    VARIABLES,
    dialect_of,
    is_same_address,
    normalize_address,
)
from foldline.models.clients import client
from foldline.models.port import Model
from foldline.session.log_handle import Live
from foldline.stores.base import Name, Store

_BASE_URL, _DIALECT = "base_url", "dialect"  # among a session's settings
_SPACE = "hosts"  # of the side table: addresses that this tenant's sessions were asked at
_PROVIDERS = {"openai-chat": "as OpenAI's are", "anthropic": "as Anthropic's are"}


@dataclass(frozen=True, slots=True)
class Host:
    """A server that is asked, and in which dialect."""

    base_url: str
    """Scheme, host, port and path."""
    dialect: str
    given: str | None = field(default=None, compare=False)
    """What an SDK is given: as a person wrote it. None: the SDK's default is this very address."""


class Named(NamedTuple):
    """An address that is named now."""

    base_url: str
    origin: str
    """Who names it: a file and its line, a variable, the command line."""
    is_explicit: bool = False
    """Whether it was asked for, for this session."""


def recorded_host(settings: Mapping[str, Setting]) -> Host | None:
    """Where a session's log says that it is asked."""
    base_url = settings.get(_BASE_URL)
    return _at(base_url, str(settings.get(_DIALECT))) if isinstance(base_url, str) else None


def host_settings(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Of a session's settings, those that say where it is asked."""
    return {key: settings[key] for key in (_BASE_URL, _DIALECT) if key in settings}


def choose_host(session: str, model: str, *, recorded: Host | None, named: Named | None) -> Host:
    """Where a session is asked now; `OtherHost` where that would change without being asked for.

    1. An address that is asked for.
    2. The session's own; refused where another is named, or the model is another provider's.
    3. What is named in settings or the environment, else the SDK's default.
    """
    dialect = dialect_of(model)
    if named is not None:
        host = Host(normalize_address(named.base_url), dialect, named.base_url)
    else:
        host = _at(DEFAULTS[dialect], dialect)
    if recorded is None or (named is not None and named.is_explicit):
        return host
    if recorded.dialect != dialect:
        raise OtherHost(
            f"session {session!r} is asked at {recorded.base_url}, and {model!r} is asked "
            f"{_PROVIDERS[dialect]}; name a model of the same provider, or say where it is asked: "
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
    """What is to be written down of a host; None where the settings say so already."""
    now = recorded_host(settings)
    if now is not None and now.dialect == host.dialect and _is_same(now, host):
        return None
    return SettingsChanged({**settings, _BASE_URL: host.base_url, _DIALECT: host.dialect})


def host_of(model: Model) -> Host | None:
    """Where a client asks; None of a model that is no server's."""
    base_url = getattr(model, "base_url", None)
    return _at(base_url, dialect_of(model.name)) if isinstance(base_url, str) else None


def must_be_asked_at(session: str, settings: Mapping[str, Setting], host: Host | None) -> None:
    """Raise `OtherHost` where a session's log names another host than who would be asked."""
    recorded = recorded_host(settings)
    if recorded is not None and host is not None and record_host(settings, host) is not None:
        raise OtherHost(
            f"session {session!r} is asked at {recorded.base_url}, and here it would be asked "
            "elsewhere; go on with it where it was begun, or begin another"
        )


def make_teller(said: str, host: Host | None, *, api_key: str | None = None) -> Model:
    """A summarizer's client: `MODEL` is asked where its session is, `MODEL@URL` at that address.

    What it is sent is the session's words: they go to no other host than those that were named.
    """
    name, is_named, rest = said.partition("@http")
    if is_named:
        return client(name, base_url=f"http{rest}")
    if host is not None and dialect_of(name) != host.dialect:
        there = DEFAULTS[dialect_of(name)]
        raise OtherHost(
            f"the session is asked at {host.base_url}, and the summarizer {name!r} is asked "
            f"{_PROVIDERS[dialect_of(name)]}; write {name}@{there} to send it there"
        )
    return client(name, base_url=host.given if host else None, api_key=api_key)


async def find_host(live: Live) -> Host | None:
    """Where a session is asked by its log, if it says so and that was agreed to here."""
    host = recorded_host(live.view.settings)
    if host is not None:
        await must_be_agreed(live.store, live.name, host)
    return host


async def agree_to_host(store: Store, name: Name, host: Host) -> None:
    """Remember that a tenant's sessions may be asked there."""
    if not await _is_agreed(store, name, host):
        await store.put(Name(name.tenant, ""), _SPACE, host.base_url, b"")


async def must_be_agreed(store: Store, name: Name, host: Host) -> None:
    """Raise `OtherHost` of an address that nothing was ever sent to from this store."""
    if not await _is_agreed(store, name, host):
        raise OtherHost(
            f"the log of session {name.session!r} says that it is asked at {host.base_url}, where "
            "nothing from here was sent before: it may be a stranger's log; "
            f"--base-url {host.base_url} agrees, --base-url with another moves it"
        )


async def _is_agreed(store: Store, name: Name, host: Host) -> bool:
    if host.base_url == DEFAULTS.get(host.dialect):
        return True  # where it would go anyway
    return await store.get(Name(name.tenant, ""), _SPACE, host.base_url) is not None


def _is_same(one: Host, other: Host) -> bool:
    try:
        return is_same_address(one.base_url, other.base_url)
    except BadInput:  # a log's, which nobody can read: no address is that one
        return False


def _at(base_url: str, dialect: str) -> Host:
    """A host by its address alone."""
    with suppress(BadInput):
        base_url = normalize_address(base_url)
    # A key is wanted for the SDK's default, and none for a server of one's own: so they are told
    # apart by whether an address is given. A variable that is set would win over one that is not.
    default = base_url == DEFAULTS.get(dialect) and VARIABLES[dialect] not in os.environ
    return Host(base_url, dialect, None if default else base_url)
