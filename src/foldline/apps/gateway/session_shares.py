"""Sessions that are shared: who may read them beside their owner. Nothing is, by default.

    PUT /sessions/{name}/shares/{owner}     foldline share SESSION OWNER

A share lets all keys of another owner of the same tenant read a session; only its owner and admins
change, share or erase it. It is kept beside the session and ends with it. A fork is not shared.

What is shared with an owner is listed beside the tenant. That list only finds sessions: whether one
is shared is asked of the session itself.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from foldline.apps.gateway.api_keys import check_words
from foldline.errors import BadInput
from foldline.stores.base import Name, Store
from foldline.stores.side_values import change_value

MOST: Final = 1_000
"""With how many owners a session is shared, and how many sessions are shared with one."""
_SHARES, _SHARED = "shares", "shared-with"


async def list_readers(store: Store, name: Name) -> list[str]:
    """List the owners that a session is shared with."""
    return await _read_names(store, name, _SHARES, "")


async def is_shared(store: Store, name: Name, owner: str) -> bool:
    """Whether a session is shared with an owner."""
    return bool(owner) and owner in await list_readers(store, name)


async def share_session(store: Store, name: Name, owner: str) -> list[str]:
    """Share a session with an owner; return all that it is shared with then."""
    check_words(owner)
    if owner == (await store.head(name)).owner:
        raise BadInput(f"{owner!r} has this session; share it with others")
    # First where it is found: a list that names too much shows nothing.
    await _change(store, Name(name.tenant, ""), _SHARED, owner, _make_adding(name.session))
    return await _change(store, name, _SHARES, "", _make_adding(owner))


async def unshare_session(store: Store, name: Name, owner: str) -> list[str]:
    """Share a session with an owner no longer; return all that it is still shared with."""
    left = await _change(store, name, _SHARES, "", _make_removing(owner))
    await _change(store, Name(name.tenant, ""), _SHARED, owner, _make_removing(name.session))
    return left


async def list_shared(store: Store, tenant: str, owner: str) -> list[str]:
    """List the sessions of others that are shared with an owner, by name."""
    if not owner:
        return []
    found = await _read_names(store, Name(tenant, ""), _SHARED, owner)
    is_ours = await asyncio.gather(
        *(is_shared(store, Name(tenant, session), owner) for session in found)
    )
    return sorted(session for session, ours in zip(found, is_ours, strict=True) if ours)


def _make_adding(one: str) -> Callable[[list[str]], list[str]]:
    return lambda known: [*(other for other in known if other != one), one]


def _make_removing(one: str) -> Callable[[list[str]], list[str]]:
    return lambda known: [other for other in known if other != one]


async def _change(
    store: Store, name: Name, space: str, key: str, change: Callable[[list[str]], list[str]]
) -> list[str]:
    """Change a list that others may change too; return what it is then."""
    names: list[str] = []

    def write(value: bytes | None) -> bytes | None:
        nonlocal names
        known = _decode_names(value)
        names = change(known)
        if len(names) > MOST:
            raise BadInput(f"more than {MOST:,} are shared there; end some first")
        # Also written if it is empty: a removed entry's versions begin anew.
        return value if names == known else msgspec.msgpack.encode(names)

    await change_value(store, name, space, key, write)
    return names


async def _read_names(store: Store, name: Name, space: str, key: str) -> list[str]:
    entry = await store.get(name, space, key)
    return _decode_names(entry.value if entry is not None else None)


def _decode_names(value: bytes | None) -> list[str]:
    return msgspec.msgpack.decode(value, type=list[str]) if value else []
