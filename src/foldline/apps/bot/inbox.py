"""Commands and buttons that wait in the store until they are carried out, each once.

A command is taken off the list before it begins: a process that is killed in the middle of one does
not repeat it, because an undo made twice would undo two edits.
"""

import asyncio
from typing import Any, TypeAlias

import msgspec

from foldline.apps.bot.delivery import SPACE
from foldline.errors import StoreFailed
from foldline.stores.base import Name, Store

Update: TypeAlias = dict[str, Any]
_KEY = "inbox"
_SEEN = 200  # numbers that are remembered
_TRIES = 50


class _InboxEntry(msgspec.Struct):
    seen: list[int] = []
    waiting: list[Update] = []


class Inbox:
    """The waiting commands of one session."""

    def __init__(self, store: Store, name: Name) -> None:
        self._store, self._name = store, name

    async def put(self, number: int, update: Update) -> bool:
        """Store an update; False if it came before."""

        def add_update(kept: _InboxEntry) -> bool:
            if number in kept.seen:
                return False
            kept.seen = [*kept.seen, number][-_SEEN:]
            kept.waiting.append(update)
            return True

        return await self._update_entry(add_update)

    async def take(self) -> Update | None:
        """Remove and return the oldest update."""
        taken: list[Update] = []

        def remove_oldest(kept: _InboxEntry) -> bool:
            taken[:] = kept.waiting[:1]
            kept.waiting = kept.waiting[1:]
            return bool(taken)

        return taken[0] if await self._update_entry(remove_oldest) else None

    async def _update_entry(self, change: "Any") -> bool:
        for tried in range(_TRIES):
            entry = await self._store.get(self._name, SPACE, _KEY)
            value = b"{}" if entry is None else entry.value
            kept = msgspec.json.decode(value, type=_InboxEntry)
            if not change(kept):
                return False
            body, version = msgspec.json.encode(kept), entry.version if entry else 0
            if await self._store.put(self._name, SPACE, _KEY, body, version=version):
                return True
            await asyncio.sleep(0.002 * tried)
        raise StoreFailed(f"the inbox of {self._name.session!r} is written by too many at once")
