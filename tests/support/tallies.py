"""The counts of limits, as the processes of a gateway share them."""

from collections.abc import Mapping

from foldline.apps.gateway.allowances import Tally
from foldline.apps.gateway.limit_counters import EVERYBODY, SPACE, decode_tallies
from foldline.stores.base import Name, Store


async def read_tallies(store: Store, tenant: str, subject: str) -> Mapping[str, Tally]:
    """Read the counts of a subject from the store, by the names of their measures."""
    entry = await store.get(Name(tenant or EVERYBODY, ""), SPACE, subject)
    return decode_tallies(entry.value) if entry else {}


def count_taken(tally: Tally) -> int:
    """All that no other process may take."""
    return tally.spent + sum(one.held for one in tally.leases.values())
