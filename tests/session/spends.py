"""A process that spends at a shared cap: `spends.py ADDRESS SESSION`; prints what it was allowed."""

import asyncio
import contextlib
import sys

from foldline.core.log import UsageReported
from foldline.core.prices import Prices
from foldline.errors import Spent
from foldline.session.spending import Cap, Caps, Spending
from foldline.stores.base import Name
from foldline.stores.open_store import store_at

PRICES = Prices(3.0, 0.3, 3.75, 15.0)
EACH, CALLS, MOST = 30, 20, 1_000


async def spends(address: str, session: str) -> int:
    """Calls of 30 tokens, one after another, as far as the day's cap allows."""
    store = store_at(address)
    caps = Caps(day=Cap(tokens=MOST))
    purse = Spending(store, Name("local", session), PRICES, caps, today=lambda: "2026-11-15")
    await purse.read_spent()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)  # so that all of them begin together
    allowed = 0
    for _ in range(CALLS):
        with contextlib.suppress(Spent):
            reserved = await purse.reserve_call(EACH, 0)
            await purse.settle_call(reserved, UsageReported(input=EACH, output=0))
            allowed += EACH
    await store.close()
    return allowed


if __name__ == "__main__":
    print(asyncio.run(spends(*sys.argv[1:])))
