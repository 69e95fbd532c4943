"""Which logs a history may go on with: what was asked before, by the digest of all of it.

    user                       → D1  asked, noted: (session, place of that request in its log)
    user assistant user        → D2  begins with D1, so it may go on with that session

A client may say something that it does not repeat (a reminder behind its words). So an answer is
also noted by the few messages before it, each alone: `pairs`.

Knows digests, places and families. A process remembers the newest ones; with a store the others are
there too, so that any process behind a balancer goes on with what another began. Refuses to choose.
"""

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from foldline.dialects.client_messages import short
from foldline.proxy.identity import Scope
from foldline.stores.base import Name, Store

CHAINS, FAMILIES = "conversations", "families"
_MOST = 100_000  # digests that a process remembers
_SEVERAL = 8  # sessions that began alike; or of one family, the newest that are looked at
_KIN = 64  # sessions of one family that a store knows of
_DAYS = 180 * 86_400.0  # seconds: how long a conversation may rest
_TRIES = 5
_LOOKED_FOR = 24  # beginnings of a history that a store is asked for


class LogPlace(msgspec.Struct, frozen=True, array_like=True):
    """A session, and where in its log a request or its answer was recorded."""

    session: str
    seq: int


class Index:
    """What histories were asked, and where."""

    def __init__(self, store: Store | None = None, *, most: int = _MOST) -> None:
        self._store, self._most = store, most
        self._places: OrderedDict[tuple[str, str], tuple[LogPlace, ...]] = OrderedDict()
        self._families: OrderedDict[tuple[str, str], list[str]] = OrderedDict()

    def remember(self, scope: Scope, chain: str, place: LogPlace) -> None:
        """Note a history in this process."""
        key = (scope.tenant, _key(scope, chain))
        known = self._places.pop(key, ())
        others = tuple(one for one in known if one.session != place.session)
        self._places[key] = (*others, place)[-_SEVERAL:]
        while len(self._places) > self._most:
            self._places.popitem(last=False)

    async def note(self, scope: Scope, chain: str, place: LogPlace) -> None:
        """Note a history for every process, where they share a store."""
        self.remember(scope, chain, place)
        if self._store is not None:
            await self._put(scope, CHAINS, _key(scope, chain), place)

    async def find(
        self, scope: Scope, chain: Sequence[str], *, least: int
    ) -> tuple[int, list[LogPlace]]:
        """The longest noted beginning of a history, of more than `least` messages, and where."""
        for count in range(len(chain), least, -1):
            if places := self._places.get((scope.tenant, _key(scope, chain[count - 1]))):
                return count, [*places]
        if self._store is None:
            return 0, []
        for count in [*range(len(chain), least, -1)][:_LOOKED_FOR]:
            key = _key(scope, chain[count - 1])
            entry = await self._store.get(Name(scope.tenant, ""), CHAINS, key)
            if entry is not None:
                return count, msgspec.msgpack.decode(entry.value, type=list[LogPlace])
        return 0, []

    async def find_pair(self, scope: Scope, pairs: Sequence[str]) -> list[LogPlace]:
        """Where an answer was given behind a message, by the first such pair that is noted."""
        for pair in pairs:
            if places := self._places.get((scope.tenant, _key(scope, pair))):
                return [*places]
        if self._store is not None:
            for pair in pairs:
                entry = await self._store.get(Name(scope.tenant, ""), CHAINS, _key(scope, pair))
                if entry is not None:
                    return msgspec.msgpack.decode(entry.value, type=list[LogPlace])
        return []

    async def join_family(self, scope: Scope, session: str) -> None:
        """Note that a session is of the family that a scope names."""
        if not (scope.session or scope.family):
            return
        known = self._families.setdefault((scope.tenant, scope.label), [])
        if session not in known:
            known.append(session)
        while len(self._families) > self._most:
            self._families.popitem(last=False)
        if self._store is not None:
            await self._put(
                scope, FAMILIES, short(scope.label.encode()), LogPlace(session, 0), most=_KIN
            )

    async def family(self, scope: Scope, *, anew: bool = False) -> list[str]:
        """The sessions of a scope's family, the newest first; none where it names none.

        `anew` asks the store too: another process may have begun one.
        """
        if not (scope.session or scope.family):
            return []
        known = self._families.get((scope.tenant, scope.label), [])
        if self._store is not None and (anew or not known):
            key = short(scope.label.encode())
            entry = await self._store.get(Name(scope.tenant, ""), FAMILIES, key)
            if entry is not None:
                found = msgspec.msgpack.decode(entry.value, type=list[LogPlace])
                known = [*dict.fromkeys((*(one.session for one in found), *known))]
                self._families[scope.tenant, scope.label] = known
        return known[: -_SEVERAL - 1 : -1]

    async def _put(
        self, scope: Scope, space: str, key: str, value: LogPlace, *, most: int = _SEVERAL
    ) -> None:
        """Add a place to a list of the store's side table."""
        assert self._store is not None  # noqa: S101 - whoever calls has looked
        owner = Name(scope.tenant, "")
        places, version = [value], 0
        for _ in range(_TRIES):
            body = msgspec.msgpack.encode(places)
            if await self._store.put(owner, space, key, body, version=version, seconds=_DAYS):
                return
            entry = await self._store.get(owner, space, key)
            known = msgspec.msgpack.decode(entry.value, type=list[LogPlace]) if entry else []
            if value in known:
                return
            others = [one for one in known if one.session != value.session]
            places, version = [*others, value][-most:], entry.version if entry else 0


def _key(scope: Scope, chain: str) -> str:
    return short(f"{scope.label}\0{chain}".encode())
