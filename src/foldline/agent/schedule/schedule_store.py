"""A tenant's schedule entries, in the store's side table.

index          every name, and how often people changed it
entry:NAME     one entry; written by compare-and-set only, as workers write it too
"""

from collections.abc import Callable
from difflib import get_close_matches
from typing import NamedTuple

import msgspec

from foldline.agent.schedule.schedule_entry import ScheduleEntry
from foldline.errors import BadInput
from foldline.stores.base import Name, Store
from foldline.stores.side_values import change_value

_SPACE, _INDEX = "schedules", "index"
_GONE = 86_400.0  # seconds a removed entry is kept, so that its version goes on counting
_MOST = 10_000  # entries of a tenant


class Seen(NamedTuple):
    """An entry, and the version that was read."""

    entry: ScheduleEntry
    version: int


class Schedules:
    """A tenant's entries."""

    def __init__(self, store: Store, tenant: str) -> None:
        self.store, self.tenant = store, tenant
        self._owner = Name(tenant, "")

    async def read_index(self) -> dict[str, int]:
        """Return every entry's name, and how often people changed it."""
        found = await self.store.get(self._owner, _SPACE, _INDEX)
        return _decode_index(found.value if found is not None else None)

    async def list_entries(self) -> list[ScheduleEntry]:
        """List all entries, sorted by name."""
        seen = [await self.find_entry(name) for name in sorted(await self.read_index())]
        return [one.entry for one in seen if one is not None]

    async def find_entry(self, name: str) -> Seen | None:
        """Find an entry and its version."""
        seen = await self._find_stored_entry(name)
        return None if seen is None or seen.entry.removed else seen

    async def read_entry(self, name: str) -> ScheduleEntry:
        """Read an entry; raises if there is none."""
        seen = await self.find_entry(name)
        if seen is None:
            raise await self._make_missing_error(name)
        return seen.entry

    async def write_entry(self, entry: ScheduleEntry, version: int) -> bool:
        """Write an entry if its version is still this; returns whether it was."""
        value = msgspec.json.encode(entry)
        seconds = _GONE if entry.removed else None
        return await self.store.put(
            self._owner, _SPACE, f"entry:{entry.name}", value, version=version, seconds=seconds
        )

    async def add_entry(self, entry: ScheduleEntry) -> None:
        """Add an entry; raises if its name is taken."""
        # The index first: a name without an entry is skipped, an entry that the index does not
        # name would never be found.
        await self._record_change(entry.name)
        before = await self._find_stored_entry(entry.name)
        taken = before is not None and not before.entry.removed
        if taken or not await self.write_entry(entry, before.version if before else 0):
            raise BadInput(
                f"there is an entry {entry.name!r} already; `foldline schedule remove "
                f"{entry.name}` takes it away, or choose another name"
            )
        await self._record_change(entry.name)

    async def remove_entry(self, name: str) -> ScheduleEntry:
        """Remove an entry; its messages stay in their session."""
        gone = await self.change_entry(
            name, lambda entry: msgspec.structs.replace(entry, removed=True), seconds=_GONE
        )
        await self._change_index(lambda index: index.pop(name, None))
        return gone

    async def change_entry(
        self,
        name: str,
        how: Callable[[ScheduleEntry], ScheduleEntry],
        *,
        seconds: float | None = None,
    ) -> ScheduleEntry:
        """Change an entry, retrying while workers write it too; returns the new one."""
        changed: ScheduleEntry | None = None

        def write(value: bytes | None) -> bytes | None:
            nonlocal changed
            entry = msgspec.json.decode(value, type=ScheduleEntry) if value else None
            changed = None if entry is None or entry.removed else how(entry)
            return value if changed is None else msgspec.json.encode(changed)

        await change_value(self.store, self._owner, _SPACE, f"entry:{name}", write, seconds=seconds)
        if changed is None:
            raise await self._make_missing_error(name)
        if not changed.removed:
            await self._record_change(name)
        return changed

    async def _find_stored_entry(self, name: str) -> Seen | None:
        found = await self.store.get(self._owner, _SPACE, f"entry:{name}")
        return found and Seen(msgspec.json.decode(found.value, type=ScheduleEntry), found.version)

    async def _record_change(self, name: str) -> None:
        def count_change(index: dict[str, int]) -> None:
            index[name] = index.get(name, 0) + 1
            if len(index) > _MOST:
                raise BadInput(f"{_MOST:,} entries are the most; remove one, or use a tenant more")

        await self._change_index(count_change)

    async def _change_index(self, change: Callable[[dict[str, int]], object]) -> None:
        def write(value: bytes | None) -> bytes:
            index = _decode_index(value)
            change(index)
            return msgspec.json.encode(index)

        await change_value(self.store, self._owner, _SPACE, _INDEX, write)

    async def _make_missing_error(self, name: str) -> BadInput:
        near = get_close_matches(name[:100], await self.read_index(), n=2, cutoff=0.4)
        hint = (
            f"did you mean {' or '.join(near)}?" if near else "`foldline schedule list` shows all"
        )
        return BadInput(f"there is no entry {name[:100]!r}; {hint}")


def _decode_index(value: bytes | None) -> dict[str, int]:
    return msgspec.json.decode(value, type=dict[str, int]) if value else {}
