"""Changes a side value that other processes may change at the same time.

def count_up(value: bytes | None) -> bytes | None:
return b"%d" % (int(value or 0) + 1)

is_changed = await change_value(store, name, "visits", "alice", count_up)
"""

import asyncio
from collections.abc import Callable
from random import uniform
from typing import Protocol

from foldline.errors import StoreFailed
from foldline.stores.base import Entry, Name

_TRIES = 1_000  # each failure means that another process succeeded
_PAUSE = 0.002  # seconds; grows with every try
_LONGEST_PAUSE = 0.05


class SideTable(Protocol):
    """The part of a store that has side values."""

    async def get(self, name: Name, space: str, key: str) -> Entry | None:
        """Return a value."""
        ...

    async def put(  # noqa: PLR0913 - a side table is a table
        self,
        name: Name,
        space: str,
        key: str,
        value: bytes | None,
        *,
        version: int | None = None,
        seconds: float | None = None,
    ) -> bool:
        """Write a value if that version is the current one; 0 for none."""
        ...


async def change_value(  # noqa: PLR0913 - a side table is a table
    store: SideTable,
    name: Name,
    space: str,
    key: str,
    change: Callable[[bytes | None], bytes | None],
    *,
    seconds: float | None = None,
) -> bool:
    """Change a side value; False if `change` returned the same value.

    `change` gets None where there is no value, and returns None to remove it. It is called again
    with the newer value whenever another process was faster.
    """
    for tried in range(_TRIES):
        entry = await store.get(name, space, key)
        value, version = (entry.value, entry.version) if entry is not None else (None, 0)
        new = change(value)
        if new == value:
            return False
        if await store.put(name, space, key, new, version=version, seconds=seconds):
            return True
        pause = min(_PAUSE * tried, _LONGEST_PAUSE)
        await asyncio.sleep(uniform(pause / 2, pause))  # noqa: S311 - no secret
    raise StoreFailed(f"{space}/{key} of {name.tenant!r} is written by too many at once; try again")
