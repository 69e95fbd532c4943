"""Retention on a schedule: a process that runs for long erases old sessions from time to time.

    async with run_retention(store, lambda: ["local"], lambda _: settings.retention, notify=print):
        ...                                     # at once, then every `every_hours`

Off unless a limit is set. Of all processes on a store one erases at a time: it moves the time of
the next run, in the tenant's side table, by compare-and-set. If it dies meanwhile, the next run
finishes what it began.
"""

from asyncio import create_task, sleep, wait
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from time import monotonic, time

from foldline.errors import FoldlineError
from foldline.settings.tree import RetentionSettings
from foldline.stores.base import Name, Receipt, Retention, Store

_SPACE, _KEY = "retention", "next"
_DAY, _HOUR = 86_400.0, 3_600.0
_LOOK = 60.0  # seconds between two looks at whether it is time
_QUIET = 900.0  # seconds without a look at a tenant whose time has not come
_ENDING = 5.0  # seconds to wait for an erasure that is under way when the process ends
_AGAIN = 600.0  # seconds until the next try after a failure


@asynccontextmanager
async def run_retention(
    store: Store,
    tenants: Callable[[], Collection[str]],
    rule_of: RetentionSettings | Callable[[str], RetentionSettings],
    *,
    notify: Callable[[str], None],
    look: float = _LOOK,
) -> AsyncGenerator[None]:
    """Apply the rule that is set while the block runs: first at its start, then when it is time.

    `rule_of` gives a tenant's rule, which may change meanwhile; one rule alone is for all.
    """
    if not callable(rule_of) and not _is_limited(rule_of):
        yield
        return

    async def look_for_ever() -> None:
        while True:
            await look_at_tenants()
            await sleep(look)

    quiet: dict[tuple[str, RetentionSettings], float] = {}  # until when others need no look

    async def look_at_tenants() -> None:
        for tenant in sorted(tenants()):
            said = rule_of(tenant) if callable(rule_of) else rule_of
            if not _is_limited(said) or quiet.get((tenant, said), 0.0) > monotonic():
                continue
            try:
                receipt = await apply_retention_when_due(store, tenant, said)
            except FoldlineError as fault:
                notify(f"retention of {tenant} failed and is tried again: {fault}")
                continue
            if receipt is None:  # with thousands of tenants a look a minute at each is too many
                quiet[tenant, said] = monotonic() + min(_QUIET, said.every_hours * _HOUR)
            elif receipt.sessions:
                notify(describe_receipt(tenant, receipt))

    task = create_task(look_for_ever(), name="retention")
    try:
        yield
    finally:
        task.cancel()
        await wait([task], timeout=_ENDING)


async def apply_retention_when_due(
    store: Store, tenant: str, said: RetentionSettings, *, now: float | None = None
) -> Receipt | None:
    """Erase what exceeds the rule; None if it is not time, or if another process does it."""
    now = time() if now is None else now
    place = Name(tenant, "")
    entry = await store.get(place, _SPACE, _KEY)
    if entry is not None and float(entry.value) > now:
        return None
    later = b"%d" % (now + said.every_hours * _HOUR)
    if not await store.put(place, _SPACE, _KEY, later, version=entry.version if entry else 0):
        return None
    rule = Retention(
        seconds=None if said.days is None else said.days * _DAY, sessions=said.sessions
    )
    try:
        return await store.retain(tenant, rule)
    except FoldlineError:
        await store.put(place, _SPACE, _KEY, b"%d" % (now + _AGAIN))
        raise


def _is_limited(said: RetentionSettings) -> bool:
    return said.days is not None or said.sessions is not None


def describe_receipt(tenant: str, receipt: Receipt) -> str:
    """Say what retention erased."""
    some = ", ".join(receipt.sessions[:5]) + (", …" if receipt.sessions[5:] else "")
    return (
        f"retention erased {len(receipt.sessions)} sessions of {tenant} "
        f"({receipt.events:,} events, {receipt.size:,} bytes): {some}"
    )
