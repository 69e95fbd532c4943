"""The gateway's keys in the store, where all its processes find them.

    shards       `keys`, 256 of them by the beginning of a digest: each key's record
    names        `names`, by tenant and name: the digests of the keys that are called so
    generation   `generation`: how often each shard was changed
    last use     `used`, 16 of them by the beginning of a digest: when each key was seen
    removed      `removed`, by digest: what was revoked or rotated away, and cannot be imported

All of it is kept under a tenant that no key can have. A key is stored as its digest.

Each process reads the generation twice a second and then the shards that have changed. So it knows
all keys of a shard, also that a key is in none: unknown keys cause no reads of their own. A change
is in force everywhere within a second. While the store is away known keys stay valid for `lasting`
seconds, and others are answered with 503.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import suppress
from random import uniform
from time import monotonic, time
from typing import Final, NamedTuple

import msgspec

from foldline.apps.gateway.api_keys import PREFIX, Client, Role, check_words, digest_of
from foldline.errors import BadInput, FoldlineError, StoreFailed
from foldline.session.stored_session import cancel_tasks
from foldline.stores.base import Name, Store
from foldline.stores.side_values import change_value

RESERVED: Final = "foldline gateway keys"
"""The tenant under which keys are kept; that of a key is one word."""
SHARDS: Final = tuple(f"{number:02x}" for number in range(256))
LASTING: Final = 900.0
"""Seconds for which known keys are valid while the store is away."""
_PLACE = Name(RESERVED, "")
_KEYS, _NAMES, _GENERATION, _USED = "keys", "names", "generation", "used"
_REMOVED = "removed"
_LOOK = 0.5  # seconds between two looks at the generation
_WHOLE = 600.0  # seconds between two readings of all shards: a change may have been cut off
_SOONEST = 0.2  # seconds between two looks, if unknown keys are shown
_PATIENCE = 5.0  # seconds for the store to answer a look: a new key waits, and is not refused
_ENDING = 1.0  # seconds for the last uses to be noted at the end
_AWAY = 3.0  # seconds without a look after which the store is said to be away
_NOTED = 60.0  # seconds between two notes of last uses
_FORGOTTEN = 400 * 86_400.0  # seconds after which a last use is dropped
_AT_ONCE = 16  # shards that are read at once
_log = logging.getLogger("foldline.gateway")


class KeyRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key as the store has it."""

    digest: str
    tenant: str
    name: str
    owner: str
    role: Role = "client"
    created: float = 0.0
    expires: float | None = None
    """When it stops being valid, in seconds since 1970."""
    models: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()

    def is_valid(self, now: float) -> bool:
        """Whether it has not expired."""
        return self.expires is None or now < self.expires

    def make_client(self) -> Client:
        """Return the client that shows this key."""
        return Client(
            self.tenant, self.digest, self.name, self.owner, self.role, self.models, self.routes
        )


_Shard = tuple[KeyRecord, ...]


class ImportedKeys(NamedTuple):
    """What came of an import."""

    imported: int
    known: int
    """Keys that were here already."""
    removed: int
    """Keys that were revoked here, or rotated away: they stay so."""


class KeyTable:
    """The keys in a store, for those who change them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add_key(self, record: KeyRecord) -> str:
        """Add a key for a record without a digest, and return it."""
        key = PREFIX + secrets.token_urlsafe(32)
        await self.add_records([msgspec.structs.replace(record, digest=digest_of(key))])
        return key

    async def add_records(self, records: Sequence[KeyRecord]) -> None:
        """Add keys whose names are free."""
        for record in records:
            check_words(record.name, record.tenant, record.owner)
        for at in range(0, len(records), _AT_ONCE):
            await asyncio.gather(*map(self._take_name, records[at : at + _AT_ONCE]))
        await self._add_to_shards(records)

    async def import_records(self, records: Sequence[KeyRecord]) -> "ImportedKeys":
        """Add keys that were made elsewhere; several may have one name, if they have one owner.

        Those that are here stay as they are, and those that were removed here stay removed.
        """
        known = await self.list_records()
        owners = {(one.tenant, one.name): one.owner for one in known}
        here = {one.digest for one in known}
        new: dict[str, KeyRecord] = {}
        for record in records:
            check_words(record.name, record.tenant, record.owner)
            same = new.get(record.digest)
            if same is not None and same != record:
                raise BadInput(f"{same.name!r} and {record.name!r} are one key; leave one of them")
            if record.digest in here:
                continue
            place = record.tenant, record.name
            if owners.setdefault(place, record.owner) != record.owner:
                raise BadInput(
                    f"keys {record.name!r} of {record.tenant!r} have two owners, "
                    f"{owners[place]!r} and {record.owner!r}; give one of them another name"
                )
            new[record.digest] = record
        gone = [one for one in new if await self._store.get(_PLACE, _REMOVED, one) is not None]
        added = [record for digest, record in new.items() if digest not in gone]
        for record in added:
            await self._change_name(
                record.tenant,
                record.name,
                lambda names, digest=record.digest: dict.fromkeys((digest, *names)),
            )
        await self._add_to_shards(added)
        return ImportedKeys(len(added), len(records) - len(new), len(gone))

    async def _add_to_shards(self, records: Sequence[KeyRecord]) -> None:
        by_shard: dict[str, list[KeyRecord]] = {}
        for record in records:
            by_shard.setdefault(record.digest[:2], []).append(record)
        for shard, added in by_shard.items():
            new = {one.digest for one in added}
            await self._change_shard(
                shard,
                lambda known, added=added, new=new: (
                    *(one for one in known if one.digest not in new),
                    *added,
                ),
            )
        await self._raise_generation(by_shard)

    async def rotate_key(
        self, tenant: str, name: str, *, grace: float, expires: float | None = None
    ) -> tuple[str, KeyRecord]:
        """Make another key of a name for the same owner; those before end after `grace` seconds."""
        now = time()
        before = await self.find_keys(tenant, name)
        newest = before[0]
        key = PREFIX + secrets.token_urlsafe(32)
        record = msgspec.structs.replace(
            newest, digest=digest_of(key), created=now, expires=expires
        )
        await self._change_name(tenant, name, lambda known: (record.digest, *known))
        await self._add_to_shards([record])
        ending = [
            msgspec.structs.replace(one, expires=min(one.expires or now + grace, now + grace))
            for one in before
            if one.is_valid(now)
        ]
        await self._add_to_shards(ending)
        gone = [one.digest for one in before if not one.is_valid(now)]
        await self._remove_digests(tenant, name, gone)
        return key, record

    async def revoke_keys(self, tenant: str, name: str, *, beginning: str = "") -> int:
        """Remove the keys of a name, or those whose digests begin so; return how many.

        Called again after a failure, it finishes what was begun.
        """
        digests = [one for one in await self._list_named(tenant, name) if one.startswith(beginning)]
        if not digests:
            raise _make_no_key(tenant, name)
        await self._remove_digests(tenant, name, digests)
        return len(digests)

    async def find_keys(self, tenant: str, name: str) -> list[KeyRecord]:
        """Return the keys of a name, newest first; raises `BadInput` if there are none."""
        found: list[KeyRecord] = []
        for digest in await self._list_named(tenant, name):
            shard = await self.read_shard(digest[:2])
            found += [one for one in shard if one.digest == digest]
        if not found:
            raise _make_no_key(tenant, name)
        return found

    async def _list_named(self, tenant: str, name: str) -> list[str]:
        """List the digests of the keys of a name, newest first."""
        entry = await self._store.get(_PLACE, _NAMES, _format_name(tenant, name))
        return msgspec.msgpack.decode(entry.value, type=list[str]) if entry else []

    async def list_records(self) -> list[KeyRecord]:
        """List all keys, by tenant and name."""
        found = [record async for _, shard in self.iterate_shards(SHARDS) for record in shard]
        return sorted(found, key=lambda one: (one.tenant, one.name, -one.created))

    async def list_last_uses(self) -> dict[str, float]:
        """Return when keys were used last, by the beginnings of their digests."""
        found: dict[str, float] = {}
        for shard in "0123456789abcdef":
            entry = await self._store.get(_PLACE, _USED, shard)
            found |= _decode_uses(entry.value) if entry else {}
        return found

    async def iterate_shards(self, names: Iterable[str]) -> AsyncGenerator[tuple[str, _Shard]]:
        """Read shards, some at once."""
        waiting = [*names]
        for at in range(0, len(waiting), _AT_ONCE):
            batch = waiting[at : at + _AT_ONCE]
            read = await asyncio.gather(*map(self.read_shard, batch))
            for pair in zip(batch, read, strict=True):
                yield pair

    async def read_shard(self, shard: str) -> _Shard:
        """Read one shard."""
        entry = await self._store.get(_PLACE, _KEYS, shard)
        return _decode_shard(entry.value) if entry else ()

    async def read_generation(self) -> dict[str, int]:
        """Return how often each shard was changed."""
        entry = await self._store.get(_PLACE, _GENERATION, "")
        return msgspec.msgpack.decode(entry.value, type=dict[str, int]) if entry else {}

    async def note_uses(self, uses: dict[str, float]) -> None:
        """Note when keys were used last; what others noted within a minute is left as it is."""
        by_shard: dict[str, dict[str, float]] = {}
        for digest, when in uses.items():
            by_shard.setdefault(digest[0], {})[shorten_digest(digest)] = when
        now = time()
        for shard, seen in by_shard.items():

            def merge(value: bytes | None, seen: dict[str, float] = seen) -> bytes | None:
                known = _decode_uses(value) if value else {}
                new = {one: at for one, at in seen.items() if known.get(one, 0.0) < at - _NOTED}
                kept = {one: at for one, at in known.items() if at > now - _FORGOTTEN}
                return msgspec.msgpack.encode(kept | new) if new else value

            await change_value(self._store, _PLACE, _USED, shard, merge)

    async def _take_name(self, record: KeyRecord) -> None:
        """Take a free name; one whose keys were never written, or are removed, is free."""
        place = _format_name(record.tenant, record.name)
        entry = await self._store.get(_PLACE, _NAMES, place)
        if entry is not None:
            known = msgspec.msgpack.decode(entry.value, type=list[str])
            shards = [(digest, await self.read_shard(digest[:2])) for digest in known]
            if any(digest in {one.digest for one in shard} for digest, shard in shards):
                raise BadInput(
                    f"{record.tenant!r} has a key {record.name!r} already; rotate or revoke it, "
                    "or take another name"
                )
        value = msgspec.msgpack.encode([record.digest])
        version = entry.version if entry else 0
        if not await self._store.put(_PLACE, _NAMES, place, value, version=version):
            raise BadInput(f"another key {record.name!r} was just made; take another name")

    async def _change_name(
        self, tenant: str, name: str, change: Callable[[list[str]], Iterable[str]]
    ) -> None:
        def write(value: bytes | None) -> bytes:
            known = msgspec.msgpack.decode(value, type=list[str]) if value else []
            return msgspec.msgpack.encode([*change(known)])

        await change_value(self._store, _PLACE, _NAMES, _format_name(tenant, name), write)

    async def _remove_digests(self, tenant: str, name: str, digests: Sequence[str]) -> None:
        gone = {*digests}
        for digest in gone:
            await self._store.put(_PLACE, _REMOVED, digest, b"")
        for shard in {digest[:2] for digest in gone}:
            await self._change_shard(
                shard, lambda known: [one for one in known if one.digest not in gone]
            )
        await self._raise_generation({digest[:2] for digest in gone})
        await self._change_name(
            tenant, name, lambda known: [one for one in known if one not in gone]
        )

    async def _change_shard(
        self, shard: str, change: Callable[[_Shard], Iterable[KeyRecord]]
    ) -> None:
        def write(value: bytes | None) -> bytes:
            return msgspec.msgpack.encode([*change(_decode_shard(value) if value else ())])

        await change_value(self._store, _PLACE, _KEYS, shard, write)

    async def _raise_generation(self, shards: Iterable[str]) -> None:
        changed = [*shards]
        if not changed:
            return

        def write(value: bytes | None) -> bytes:
            known = msgspec.msgpack.decode(value, type=dict[str, int]) if value else {}
            return msgspec.msgpack.encode(
                known | {shard: known.get(shard, 0) + 1 for shard in changed}
            )

        await change_value(self._store, _PLACE, _GENERATION, "", write)


class StoredKeys:
    """The keys of a store as a process knows them, for those who check them."""

    def __init__(self, store: Store, *, lasting: float = LASTING, owns_store: bool = False) -> None:
        self._table, self._lasting = KeyTable(store), lasting
        self._owned = store if owns_store else None
        self._shards: dict[str, dict[str, KeyRecord]] = {}
        self._generation: dict[str, int] | None = None
        self._looked = -_LOOK  # when the last look began
        self._fresh: float | None = None  # when the last look that was answered began
        self._whole = -_WHOLE  # when all shards were read
        self._look: asyncio.Task[None] | None = None
        self._used: dict[str, float] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._is_away = False

    @property
    def tenants(self) -> set[str]:
        """The tenants that have keys."""
        return {one.tenant for shard in self._shards.values() for one in shard.values()}

    def describe(self) -> str:
        """Say in words which keys these are."""
        return "of the gateway's own, in the store"

    @property
    def trouble(self) -> str:
        """What is wrong with the keys, in words; "" if nothing is."""
        if not self._is_away:
            return ""
        age = self._age
        if age is None or age > self._lasting:
            return "the keys cannot be read"
        return f"the keys cannot be read; known ones are valid for {self._lasting - age:.0f} s more"

    async def start(self) -> None:
        """Read all keys, and go on looking for changes."""
        with suppress(FoldlineError, OSError, TimeoutError):
            await self._wait_for_look()
        self._tasks = [
            asyncio.create_task(work()) for work in (self._keep_looking, self._keep_uses)
        ]

    async def close(self) -> None:
        """Stop looking, and note the last uses."""
        await cancel_tasks(*self._tasks, *([] if self._look is None else [self._look]))
        with suppress(FoldlineError, OSError, TimeoutError):
            async with asyncio.timeout(_ENDING):
                await self._flush_uses()
        if self._owned is not None:
            await self._owned.close()

    async def identify(self, digest: str, *, anew: bool = False) -> Client | None:
        """Return the client whose key has this digest; raises `StoreFailed` if nobody can tell."""
        age = self._age
        found = self._shards.get(digest[:2], {}).get(digest)
        if found is None or age is None or age > (_LOOK if anew else self._lasting):
            try:
                await self._wait_for_look()
            except (FoldlineError, OSError, TimeoutError) as fault:
                if found is None or age is None or age > self._lasting:
                    raise StoreFailed("the gateway's keys cannot be read now; ask again") from fault
            found = self._shards.get(digest[:2], {}).get(digest)
        if found is None or not found.is_valid(now := time()):
            return None
        self._used[digest] = now
        return found.make_client()

    @property
    def _age(self) -> float | None:
        """Seconds since the keys were known to be current."""
        return None if self._fresh is None else monotonic() - self._fresh

    async def _wait_for_look(self) -> None:
        """Wait for a look that begins now or later: all who wait share one."""
        asked = monotonic()
        while True:
            if self._look is None or self._look.done():
                self._look = asyncio.create_task(self._look_for_changes())
                # Whoever waits for it may be gone: its fault is taken in any case.
                self._look.add_done_callback(lambda done: done.cancelled() or done.exception())
            look = self._look
            await asyncio.shield(look)
            if self._looked >= asked:
                return

    async def _look_for_changes(self) -> None:
        """Read the generation, and the shards that have changed."""
        pause = _SOONEST - (monotonic() - self._looked)
        if pause > 0:
            await asyncio.sleep(pause)
        begun = self._looked = monotonic()
        try:
            async with asyncio.timeout(_PATIENCE):
                generation = await self._table.read_generation()
            whole = begun - self._whole > _WHOLE
            before = {} if whole or self._generation is None else self._generation
            either = generation.keys() | before.keys()
            changed = [one for one in either if before.get(one) != generation.get(one)]
            async with asyncio.timeout(_PATIENCE + len(changed) / 10):
                async for shard, records in self._table.iterate_shards(changed):
                    self._shards[shard] = {one.digest: one for one in records}
        except (FoldlineError, OSError, TimeoutError) as fault:
            self._report_away(fault)
            raise
        self._generation, self._fresh = generation, begun
        self._whole = begun if whole else self._whole
        if self._is_away:
            self._is_away = False
            _log.warning("the keys can be read again")

    def _report_away(self, fault: Exception) -> None:
        age = self._age
        if not self._is_away and (age is None or age > _AWAY):
            self._is_away = True
            _log.warning(
                "the keys cannot be read (%s): known ones stay valid for %d s",
                type(fault).__name__, 0 if age is None else max(self._lasting - age, 0),
            )  # fmt: skip

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            with suppress(FoldlineError, OSError, TimeoutError):
                await self._wait_for_look()

    async def _keep_uses(self) -> None:
        while True:
            await asyncio.sleep(_NOTED * uniform(0.8, 1.2))  # noqa: S311 - no secret
            with suppress(FoldlineError, OSError):
                await self._flush_uses()

    async def _flush_uses(self) -> None:
        uses, self._used = self._used, {}
        await self._table.note_uses(uses)


def _make_no_key(tenant: str, name: str) -> BadInput:
    return BadInput(f"{tenant!r} has no key {name!r}; `foldline keys list` shows them")


def shorten_digest(digest: str) -> str:
    """Return the beginning of a digest by which people and the notes of uses name a key."""
    return digest[:12]


def _format_name(tenant: str, name: str) -> str:
    return f"{tenant} {name}"


def _decode_shard(value: bytes) -> _Shard:
    return msgspec.msgpack.decode(value, type=_Shard)


def _decode_uses(value: bytes) -> dict[str, float]:
    return msgspec.msgpack.decode(value, type=dict[str, float])
