"""Commands and buttons that wait in the store until they are carried out, each once.

A command is taken off the list before it begins: a process that is killed in the middle of one does
not repeat it, because an undo made twice would undo two edits.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from foldline.apps.bot.delivery import SPACE
from foldline.stores.base import Name, Store
from foldline.stores.side_values import change_value

Update: TypeAlias = dict[str, Any]
_KEY = "inbox"
_SEEN = 200  # numbers that are remembered


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

    async def _update_entry(self, change: Callable[[_InboxEntry], bool]) -> bool:
        def write(value: bytes | None) -> bytes | None:
            kept = msgspec.json.decode(value or b"{}", type=_InboxEntry)
            return msgspec.json.encode(kept) if change(kept) else value

        return await change_value(self._store, self._name, SPACE, _KEY, write)
