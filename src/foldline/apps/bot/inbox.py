"""Commands and buttons that came in: kept in the store until they are worked off, each once.

Knows updates by their number. Refuses to know what they say. A command is taken off the list before
it is begun: whoever is killed in the middle of one does not do it again, for an undo that was made
twice would be two.
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
    """One session's."""

    def __init__(self, store: Store, name: Name) -> None:
        self._store, self._name = store, name

    async def put(self, number: int, update: Update) -> bool:
        """Keep an update; False where it came before."""

        def put(kept: _InboxEntry) -> bool:
            if number in kept.seen:
                return False
            kept.seen = [*kept.seen, number][-_SEEN:]
            kept.waiting.append(update)
            return True

        return await self._change(put)

    async def take(self) -> Update | None:
        """The oldest update, which is ours from now on."""
        taken: list[Update] = []

        def take(kept: _InboxEntry) -> bool:
            taken[:] = kept.waiting[:1]
            kept.waiting = kept.waiting[1:]
            return bool(taken)

        return taken[0] if await self._change(take) else None

    async def _change(self, change: "Any") -> bool:
        for tried in range(_TRIES):
            entry = await self._store.get(self._name, SPACE, _KEY)
            kept = (
                _InboxEntry()
                if entry is None
                else msgspec.json.decode(entry.value, type=_InboxEntry)
            )
            if not change(kept):
                return False
            body, version = msgspec.json.encode(kept), entry.version if entry else 0
            if await self._store.put(self._name, SPACE, _KEY, body, version=version):
                return True
            await asyncio.sleep(0.002 * tried)
        raise StoreFailed(f"the inbox of {self._name.session!r} is written by too many at once")
