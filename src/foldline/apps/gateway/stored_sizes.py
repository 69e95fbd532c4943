"""How many bytes tenants and owners have stored, measured once a minute for limits on them.

    sizes = StoredSizes(store)
    sizes.find_size("acme", "alice")        # as known; None before the first measurement

One process measures for all: it lists the tenant's sessions and writes the sums into the side
table. A tenant whose list takes long is measured less often. So a limit on stored bytes holds to
what is written in a minute.
"""

import asyncio
import logging
from collections.abc import Callable
from time import monotonic, time
from typing import Final

import msgspec

from foldline.errors import FoldlineError
from foldline.session.stored_session import cancel_tasks
from foldline.stores.base import Name, Store

SPACE: Final = "limits"
_KEY = "stored"
_EVERY = 60.0  # seconds between two measurements of a tenant
_SHARE = 50  # of its time, the part that a process measures at most: one of so many
_PAGE = 1_000  # sessions that are listed at a time
_log = logging.getLogger("foldline.limits")


class TenantSizes(msgspec.Struct, array_like=True, frozen=True):
    """What a tenant has stored."""

    due: float = 0.0
    """When it is to be measured again."""
    total: int = 0
    owners: dict[str, int] = {}


class StoredSizes:
    """What tenants have stored, as one process knows it."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time) -> None:
        self._store, self._clock = store, clock
        self._known: dict[str, TenantSizes] = {}
        self._looked: dict[str, float] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def find_size(self, tenant: str, owner: str = "") -> int | None:
        """Return what a tenant, or one of its owners, has stored; None if that is not known."""
        if self._clock() - self._looked.get(tenant, 0.0) > _EVERY:
            self._looked[tenant] = self._clock()
            task = self._tasks[tenant] = asyncio.create_task(self._renew_sizes(tenant))
            task.add_done_callback(_take_fault)
        known = self._known.get(tenant)
        if known is None:
            return None
        return known.owners.get(owner, 0) if owner else known.total

    async def stop_measuring(self) -> None:
        """Stop measuring."""
        await cancel_tasks(*self._tasks.values())

    async def _renew_sizes(self, tenant: str) -> None:
        """Read what was measured; measure anew if that is due and no other process does it."""
        place = Name(tenant, "")
        entry = await self._store.get(place, SPACE, _KEY)
        sizes = msgspec.msgpack.decode(entry.value, type=TenantSizes) if entry else TenantSizes()
        if entry is not None:
            self._known[tenant] = sizes
        if self._clock() < sizes.due:
            return
        claimed = msgspec.structs.replace(sizes, due=self._clock() + _EVERY)
        version = entry.version if entry else 0
        body = msgspec.msgpack.encode(claimed)
        if not await self._store.put(place, SPACE, _KEY, body, version=version):
            return  # another process measures
        begun = monotonic()
        measured = await self.measure_tenant(tenant)
        pause = max((monotonic() - begun) * _SHARE, _EVERY)
        self._known[tenant] = msgspec.structs.replace(measured, due=self._clock() + pause)
        await self._store.put(place, SPACE, _KEY, msgspec.msgpack.encode(self._known[tenant]))

    async def measure_tenant(self, tenant: str) -> TenantSizes:
        """Sum the sizes of a tenant's sessions."""
        total, owners, after = 0, dict[str, int](), ""
        while listed := await self._store.sessions(tenant, after=after, limit=_PAGE):
            for one in listed:
                total += one.size
                owners[one.owner] = owners.get(one.owner, 0) + one.size
            after = listed[-1].session
            await asyncio.sleep(0)
        return TenantSizes(0.0, total, owners)


def _take_fault(task: "asyncio.Task[None]") -> None:
    fault = None if task.cancelled() else task.exception()
    if fault is not None and not isinstance(fault, FoldlineError | OSError):
        _log.error("stored bytes were not measured", exc_info=fault)
