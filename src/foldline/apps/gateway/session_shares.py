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
from foldline.errors import BadInput, StoreFailed
from foldline.stores.base import Entry, Name, Store

MOST: Final = 1_000
"""With how many owners a session is shared, and how many sessions are shared with one."""
_SHARES, _SHARED = "shares", "shared-with"
_TRIES = 20  # to write what others write, too


async def list_readers(store: Store, name: Name) -> list[str]:
    """List the owners that a session is shared with."""
    return _decode_names(await store.get(name, _SHARES, ""))


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
    found = _decode_names(await store.get(Name(tenant, ""), _SHARED, owner))
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
    for _ in range(_TRIES):
        entry = await store.get(name, space, key)
        known = _decode_names(entry)
        names = change(known)
        if len(names) > MOST:
            raise BadInput(f"more than {MOST:,} are shared there; end some first")
        value = msgspec.msgpack.encode(names)  # also of none: a removed entry's versions begin anew
        version = entry.version if entry else 0
        if names == known or await store.put(name, space, key, value, version=version):
            return names
        await asyncio.sleep(0.01)
    raise StoreFailed("others keep changing what is shared; try again")


def _decode_names(entry: Entry | None) -> list[str]:
    return msgspec.msgpack.decode(entry.value, type=list[str]) if entry else []
