"""Changes a side value that other processes may change at the same time.

def count_up(value: bytes | None) -> bytes | None:
    return b"%d" % (int(value or 0) + 1)

await change_value(store, name, "visits", "alice", count_up)
"""

import asyncio
from collections.abc import Callable
from random import uniform

from foldline.errors import StoreFailed
from foldline.stores.base import Name, Store

_TRIES = 1_000  # each failure means that somebody else succeeded
_PAUSE = 0.002  # seconds; grows with every try
_LONGEST_PAUSE = 0.05


async def change_value(  # noqa: PLR0913 - a side table is a table
    store: Store,
    name: Name,
    space: str,
    key: str,
    change: Callable[[bytes | None], bytes | None],
    *,
    seconds: float | None = None,
) -> bool:
    """Change a side value; False if `change` returned what it was given.

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
