"""The entries of a tenant, in the store's side table.

    index          every name, and how often it was changed by a person
    entry:NAME     one entry; written by compare-and-set alone

Knows how an entry is found and changed while workers change it too. Refuses to know time.
"""

from collections.abc import Callable
from difflib import get_close_matches
from typing import NamedTuple

import msgspec

from foldline.agent.schedule.entry import ScheduleEntry
from foldline.errors import BadInput
from foldline.stores.base import Name, Store

_SPACE, _INDEX = "schedules", "index"
_GONE = 86_400.0  # seconds that a removed entry is remembered: its versions go on counting
_MOST = 10_000  # entries of a tenant


class Seen(NamedTuple):
    """An entry as it was read."""

    entry: ScheduleEntry
    version: int


class Schedules:
    """A tenant's entries."""

    def __init__(self, store: Store, tenant: str) -> None:
        self.store, self.tenant = store, tenant
        self._owner = Name(tenant, "")

    async def index(self) -> dict[str, int]:
        """Every entry's name, and how often people changed it."""
        return (await self._index())[0]

    async def entries(self) -> list[ScheduleEntry]:
        """All of them, by name."""
        seen = [await self.get(name) for name in sorted(await self.index())]
        return [one.entry for one in seen if one is not None]

    async def get(self, name: str) -> Seen | None:
        """One of them."""
        seen = await self._get(name)
        return None if seen is None or seen.entry.removed else seen

    async def named(self, name: str) -> ScheduleEntry:
        """One of them that is there."""
        seen = await self.get(name)
        if seen is None:
            raise await self._none(name)
        return seen.entry

    async def put(self, entry: ScheduleEntry, version: int) -> bool:
        """Write an entry, if nobody else has meanwhile."""
        value = msgspec.json.encode(entry)
        seconds = _GONE if entry.removed else None
        return await self.store.put(
            self._owner, _SPACE, f"entry:{entry.name}", value, version=version, seconds=seconds
        )

    async def add(self, entry: ScheduleEntry) -> None:
        """A new entry; a name that is taken stays as it is."""
        # First the index: a name that has no entry yet is passed over, an entry that no index names
        # would never be found.
        await self._noted(entry.name)
        before = await self._get(entry.name)
        taken = before is not None and not before.entry.removed
        if taken or not await self.put(entry, before.version if before else 0):
            raise BadInput(
                f"there is an entry {entry.name!r} already; `foldline schedule remove "
                f"{entry.name}` takes it away, or choose another name"
            )
        await self._noted(entry.name)

    async def remove(self, name: str) -> ScheduleEntry:
        """Take an entry away; what it has said stays in its session."""
        gone = await self.change(name, lambda entry: msgspec.structs.replace(entry, removed=True))
        while True:
            index, version = await self._index()
            index.pop(name, None)
            if await self._put_index(index, version):
                return gone

    async def change(
        self, name: str, how: Callable[[ScheduleEntry], ScheduleEntry]
    ) -> ScheduleEntry:
        """Change an entry, whatever workers do to it meanwhile; as it is then."""
        while True:
            seen = await self.get(name)
            if seen is None:
                raise await self._none(name)
            changed = how(seen.entry)
            if await self.put(changed, seen.version):
                break
        if not changed.removed:
            await self._noted(name)
        return changed

    async def _get(self, name: str) -> Seen | None:
        found = await self.store.get(self._owner, _SPACE, f"entry:{name}")
        return found and Seen(msgspec.json.decode(found.value, type=ScheduleEntry), found.version)

    async def _noted(self, name: str) -> None:
        while True:
            index, version = await self._index()
            index[name] = index.get(name, 0) + 1
            if len(index) > _MOST:
                raise BadInput(f"{_MOST:,} entries are the most; remove one, or use a tenant more")
            if await self._put_index(index, version):
                return

    async def _index(self) -> tuple[dict[str, int], int]:
        found = await self.store.get(self._owner, _SPACE, _INDEX)
        if found is None:
            return {}, 0
        return msgspec.json.decode(found.value, type=dict[str, int]), found.version

    async def _put_index(self, index: dict[str, int], version: int) -> bool:
        value = msgspec.json.encode(index)
        return await self.store.put(self._owner, _SPACE, _INDEX, value, version=version)

    async def _none(self, name: str) -> BadInput:
        near = get_close_matches(name[:100], await self.index(), n=2, cutoff=0.4)
        hint = (
            f"did you mean {' or '.join(near)}?" if near else "`foldline schedule list` shows all"
        )
        return BadInput(f"there is no entry {name[:100]!r}; {hint}")
