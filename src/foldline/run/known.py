"""Which conversation a history goes on with: what was asked before, by the hash of all of it.

    [system] user                       → D1  asked, noted: (session, place of the last message)
    [system] user assistant user        → D2  begins with D1, so it goes on with that session

Knows digests and places. A process remembers the newest ones; with a store the others are there
too, so that any process behind a balancer goes on with what another began. Refuses to know what a
message says, and to choose: two sessions that were asked the same are told apart by nobody.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import NamedTuple

import msgspec

from foldline.store.base import Name, Store
from foldline.wire.chain import Link

SPACE = "chains"
_MOST = 100_000  # digests that a process remembers
_SEVERAL = 8  # sessions that began alike and are told apart by their answers
_DAYS = 180 * 86_400.0  # seconds: how long a conversation may rest
_TRIES = 5


class Scope(NamedTuple):
    """Whose conversations: nothing of one scope is ever found from another."""

    tenant: str = "local"
    key: str = ""
    """A digest of the client's key."""
    session: str = ""
    """The session that the client names, if it does."""
    owner: str = ""
    """Whose new sessions are; "" where owners are not told apart."""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A session, and where in its log a history ends."""

    session: str
    seq: int


class Trail:
    """A history, message by message: what it is known by behind each."""

    def __init__(self, scope: Scope) -> None:
        self._running = hashlib.sha256(f"{scope.key}\0{scope.session}".encode())
        self.length = 0
        """How many messages it has."""

    def copy(self) -> "Trail":
        """A trail of its own that has come as far."""
        other = copy(self)
        other._running = self._running.copy()  # noqa: SLF001 - its own kind
        return other

    @property
    def digest(self) -> bytes:
        """What it is known by here."""
        return self._running.digest()[:20]

    def walk(self, links: Iterable[Link]) -> list[bytes]:
        """Go on; what it is known by behind each message."""
        found: list[bytes] = []
        for link in links:
            self._running.update(link[0])
            self.length += 1
            found.append(self.digest)
        return found


def follow(digest: bytes, link: Link) -> Iterator[bytes]:
    """What that history is known by with one more message, in each way a client may say it.

    Only within a process: a trail comes by other digests.
    """
    for one in link:
        yield hashlib.sha256(digest + one).digest()[:20]


class Known:
    """What histories were asked, and where they ended."""

    def __init__(self, store: Store | None = None, *, most: int = _MOST) -> None:
        self._store, self._most = store, most
        self._places: OrderedDict[tuple[str, bytes], tuple[Place, ...]] = OrderedDict()

    def here(self, tenant: str, digest: bytes) -> tuple[Place, ...]:
        """The sessions that this process has seen a history in."""
        return self._places.get((tenant, digest), ())

    def noted(self, tenant: str, digest: bytes, place: Place) -> None:
        """Remember it in this process."""
        known = self._places.pop((tenant, digest), ())
        others = tuple(one for one in known if one.session != place.session)
        self._places[tenant, digest] = (*others, place)[-_SEVERAL:]
        while len(self._places) > self._most:
            self._places.popitem(last=False)

    async def anywhere(self, tenant: str, several: Sequence[bytes]) -> tuple[int, list[Place]]:
        """The first of several histories that any process has seen: which, and where."""
        if self._store is not None:
            for at, digest in enumerate(several):
                entry = await self._store.get(Name(tenant, ""), SPACE, digest.hex())
                if entry is not None:
                    return at, msgspec.msgpack.decode(entry.value, type=list[Place])
        return -1, []

    async def note(self, tenant: str, digest: bytes, place: Place) -> None:
        """Let every process know, where they share a store."""
        self.noted(tenant, digest, place)
        if self._store is None:
            return
        owner, key = Name(tenant, ""), digest.hex()
        places, version = [place], 0
        for _ in range(_TRIES):
            body = msgspec.msgpack.encode(places)
            if await self._store.put(owner, SPACE, key, body, version=version, seconds=_DAYS):
                return
            entry = await self._store.get(owner, SPACE, key)
            known = msgspec.msgpack.decode(entry.value, type=list[Place]) if entry else []
            if place in known or len(known) >= _SEVERAL:
                return
            others = [one for one in known if one.session != place.session]
            places, version = [*others, place], entry.version if entry else 0
