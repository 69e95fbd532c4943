"""Behind a refusal: whether to ask once more, and with what.

Knows that an edit may heal an overflow. Refuses to know who asks: a wrapped client's `Exchange` and
`turn.reply` both stand on this.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from foldline.core.budget import learned
from foldline.core.log import Asked, WindowLearned
from foldline.core.plan import Facts
from foldline.errors import Overflow
from foldline.session.log_handle import Live

if TYPE_CHECKING:
    from foldline.dialects.provider_errors import Fault

T = TypeVar("T")
_SMALLER = 0.8  # of a request that was refused without a number: what to try next


async def healed(live: Live, fault: "Fault", plan: Callable[[Facts], Awaitable[T]]) -> T | None:
    """What to send instead (R-08, R-13); None where no edit heals it."""
    async with live.lock:
        facts = await find_smaller(live, fault)
        if facts is None:
            return None
        try:
            return await plan(facts)
        except Overflow:
            return None  # the provider's own words say more


async def find_smaller(live: Live, fault: "Fault") -> Facts | None:
    """The facts to ask again under, with what was learned; None if no edit heals it."""
    asked = live.view.held.get(live.view.asked)
    if fault.kind not in ("tokens", "bytes") or not isinstance(asked, Asked):
        return None
    stated = fault.limit if fault.kind == "tokens" and not fault.suspected else None
    if stated is None:
        most = asked.tokens * _SMALLER
    else:
        await _learn(live, stated, fault.message)
        # In the measure of our own estimate, which a larger count shows to be too small.
        most = min(stated * min(asked.tokens / (fault.count or 1), 1.0), asked.tokens)
    return replace(live.facts, limits=learned(live.facts.limits, int(most)))


async def _learn(live: Live, window: int, source: str) -> None:
    model = live.view.model
    known = learned(live.facts.limits, live.view.windows.get(model)).window
    if window < known:
        await live.record(WindowLearned(model, window, source[:200]))


def filled(live: Live) -> float | None:
    """The share of the window that the newest request is believed to take."""
    return live.report.total / live.report.window if live.report else None
