"""Finds logs by the digests of a history, and compares a log with a request.

    user                       → D1  asked and indexed: (session, place of the request in its log)
    user assistant user        → D2  begins with D1, so it may continue that session

A client may say something that it does not repeat (a reminder after its words). So an answer is
also indexed with each of the few messages before it: `pairs`. A process remembers the newest
entries; with a store all processes behind a balancer share them.

    the log shows:   fold (m1…m4) · m5 · reminder · a5
    a request has:   m1 … m4 · m5 · a5 · m6        →  the reminder is dropped, m6 is new
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from foldline.core.log import Event, Folded
from foldline.dialects.client_messages import digest_bytes
from foldline.proxy.client_request import ClientRequest
from foldline.proxy.identity import Scope
from foldline.session.client_row import ClientMessage, FoldedMessages, Piece
from foldline.stores.base import Name, Store
from foldline.stores.beside import run_beside


class Match(NamedTuple):
    """How a request compares with a log's row of messages."""

    common: int
    """How many messages both begin with."""
    fresh: int
    """The index of the request's first message from which all are new to the log."""
    dropped: list[ClientMessage]
    """Messages that the request no longer has."""
    closed: list[int]
    """Folds that the request does not begin with: they must be opened to compare further."""
    asides: list[int]
    """Indexes in the body of new system messages."""
    stable: int
    """The last event that had the same place in an earlier request, or -1."""
    head: int
    """Where the log ended when it was compared: a match holds for that view, and for no later."""
    opened: Mapping[int, Folded] = {}
    """Folds that had to be opened to compare."""
    fetched: Mapping[int, Event] = {}
    """Events that were read for that."""


def match_row(row: Sequence[Piece], request: ClientRequest, *, shown: int, head: int) -> Match:
    """Compare the row of a log up to its `head` with a request.

    `shown` is the last event that any request has shown.
    """
    if (quick := _match_whole(row, request, shown=shown, head=head)) is not None:
        return quick
    digests, at, stable = request.digests, 0, -1
    most = len(digests) + request.ends_folded
    rest: list[ClientMessage] = []
    closed: list[int] = []
    asides = Counter(request.described[one].digest for one in request.asides)
    own = [one for one in row if isinstance(one, ClientMessage) and one.is_aside]
    stale = [one for one in own if not _consume_digest(asides, one.link)]
    for index, piece in enumerate(row):
        if isinstance(piece, FoldedMessages):
            # The newest message is always shown.
            fits = piece.chain and at <= piece.upto < most
            if fits and request.chain[piece.upto - 1] == piece.chain:
                at, stable = piece.upto, piece.last
                continue
        elif piece.is_aside:
            continue
        elif at < len(digests) and piece.link == digests[at]:
            at += 1
            stable = piece.last if piece.last <= shown else stable
            continue
        behind = row[index:]
        closed = [one.edit for one in behind if isinstance(one, FoldedMessages)]
        rest = [one for one in behind if isinstance(one, ClientMessage) and not one.is_aside]
        break
    kept, fresh = _find_in_order(rest, digests, at)
    dropped = [*stale, *(one for place, one in enumerate(rest) if place not in kept)]
    new = [one for one in request.asides if _consume_digest(asides, request.described[one].digest)]
    return Match(at, fresh, dropped, closed, new, stable, head)


def _match_whole(
    row: Sequence[Piece], request: ClientRequest, *, shown: int, head: int
) -> Match | None:
    """Compare quickly if a request only adds messages, as almost all do; else None."""
    at, stable, first = 0, -1, 0
    most = len(request.chain) + request.ends_folded
    while first < len(row) and isinstance(fold := row[first], FoldedMessages):
        fits = fold.chain and at <= fold.upto < most
        if not fits or request.chain[fold.upto - 1] != fold.chain:
            return None
        at, stable, first = fold.upto, fold.last, first + 1
    said = [one for one in row[first:] if isinstance(one, ClientMessage) and not one.is_aside]
    end = at + len(said)
    if request.asides or len(said) < len(row) - first:
        return None
    if [one.link for one in said] != request.digests[at:end]:
        return None
    stable = next((one.last for one in reversed(said) if one.last <= shown), stable)
    return Match(end, end, [], [], [], stable, head)


def _find_in_order(
    rest: Sequence[ClientMessage], digests: Sequence[str], at: int
) -> tuple[set[int], int]:
    """Find the remaining messages that a request repeats, and where its new ones begin."""
    kept: set[int] = set()
    place = 0
    while at < len(digests):
        found = next((n for n in range(place, len(rest)) if rest[n].link == digests[at]), None)
        if found is None:
            break
        kept.add(found)
        place, at = found + 1, at + 1
    return kept, at


def _consume_digest(left: Counter[str], digest: str) -> bool:
    left[digest] -= 1
    return left[digest] >= 0


CHAINS, FAMILIES = "conversations", "families"
_MOST = 100_000  # digests that a process remembers
_SEVERAL = 8  # sessions kept per digest, and newest sessions of a family that are compared
_KIN = 64  # sessions of one family in the store
_DAYS = 180 * 86_400.0  # seconds that a conversation may rest
_TRIES = 5
_DIGEST = 200  # bytes that take as long to read as a digest to look up
_LOOKED_FOR = 24  # digests of one history that are looked up in the store


class LogPlace(msgspec.Struct, frozen=True, array_like=True):
    """A session, and where in its log a request or its answer was recorded."""

    session: str
    seq: int


class Index:
    """Digests of histories, and the logs that have them."""

    def __init__(self, store: Store | None = None, *, most: int = _MOST) -> None:
        self._store, self._most = store, most
        self._places: OrderedDict[tuple[str, str], tuple[LogPlace, ...]] = OrderedDict()
        self._families: OrderedDict[tuple[str, str], list[str]] = OrderedDict()

    def remember_history(self, scope: Scope, chain: str, place: LogPlace) -> None:
        """Index a history in this process."""
        key = (scope.tenant, _digest_chain(scope, chain))
        known = self._places.pop(key, ())
        others = tuple(one for one in known if one.session != place.session)
        self._places[key] = (*others, place)[-_SEVERAL:]
        while len(self._places) > self._most:
            self._places.popitem(last=False)

    async def publish_history(self, scope: Scope, chain: str, place: LogPlace) -> None:
        """Index a history for all processes that share the store."""
        self.remember_history(scope, chain, place)
        if self._store is not None:
            await self._add_place(scope, CHAINS, _digest_chain(scope, chain), place)

    async def find_history(
        self, scope: Scope, chain: Sequence[str], *, least: int
    ) -> tuple[int, list[LogPlace]]:
        """Find the longest indexed beginning of more than `least` messages, and its places."""
        at, places = await self._find_first(scope, chain[least:][::-1])
        return (len(chain) - at if places else 0), places

    async def find_pair(self, scope: Scope, pairs: Sequence[str]) -> list[LogPlace]:
        """Find the places of the first pair of message and answer that is indexed."""
        return (await self._find_first(scope, pairs))[1]

    async def _find_first(self, scope: Scope, chains: Sequence[str]) -> tuple[int, list[LogPlace]]:
        """Find the first indexed digest: in this process, then in the store."""
        find = partial(self._find_remembered, scope, chains)
        found = await run_beside(find, size=len(chains) * _DIGEST)
        if found is not None or self._store is None:
            return found or (0, [])
        for at, chain in enumerate(chains[:_LOOKED_FOR]):
            key = _digest_chain(scope, chain)
            entry = await self._store.get(Name(scope.tenant, ""), CHAINS, key)
            if entry is not None:
                return at, msgspec.msgpack.decode(entry.value, type=list[LogPlace])
        return 0, []

    def _find_remembered(
        self, scope: Scope, chains: Sequence[str]
    ) -> tuple[int, list[LogPlace]] | None:
        for at, chain in enumerate(chains):
            if places := self._places.get((scope.tenant, _digest_chain(scope, chain))):
                return at, [*places]
        return None

    async def join_family(self, scope: Scope, session: str) -> None:
        """Add a session to the family that a scope names."""
        if not (scope.session or scope.family):
            return
        known = self._families.setdefault((scope.tenant, scope.label), [])
        if session not in known:
            known.append(session)
        while len(self._families) > self._most:
            self._families.popitem(last=False)
        if self._store is not None:
            await self._add_place(
                scope, FAMILIES, digest_bytes(scope.label.encode()), LogPlace(session, 0), most=_KIN
            )

    async def list_family(self, scope: Scope, *, anew: bool = False) -> list[str]:
        """List the sessions of a scope's family, newest first; none if it names no family.

        `anew` reads the store too: another process may have added one.
        """
        if not (scope.session or scope.family):
            return []
        known = self._families.get((scope.tenant, scope.label), [])
        if self._store is not None and (anew or not known):
            key = digest_bytes(scope.label.encode())
            entry = await self._store.get(Name(scope.tenant, ""), FAMILIES, key)
            if entry is not None:
                found = msgspec.msgpack.decode(entry.value, type=list[LogPlace])
                known = [*dict.fromkeys((*(one.session for one in found), *known))]
                self._families[scope.tenant, scope.label] = known
        return known[: -_SEVERAL - 1 : -1]

    async def _add_place(
        self, scope: Scope, space: str, key: str, value: LogPlace, *, most: int = _SEVERAL
    ) -> None:
        assert self._store is not None  # noqa: S101 - the callers check
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


def _digest_chain(scope: Scope, chain: str) -> str:
    return digest_bytes(f"{scope.label}\0{chain}".encode())
