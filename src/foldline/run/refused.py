"""What an answer may take, and behind a refusal: whether to ask once more, and with what.

Knows that an edit may heal an overflow, and that an answer may not be longer than what is kept free
for it. Refuses to know who asks: a session, a wrapped client's `Exchange` and `turn.reply` all
stand on this.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from foldline.core.budget import keeping, learned
from foldline.core.log import Asked, WindowLearned
from foldline.core.plan import Facts
from foldline.errors import Overflow
from foldline.run.live import Live
from foldline.wire.dialects import Dialect

if TYPE_CHECKING:
    from foldline.wire.faults import Fault

T = TypeVar("T")
_UNSTREAMED = 20_000  # tokens: Anthropic's SDK takes no more for an answer in one piece
_SMALLER = 0.8  # of a request that was refused without a number: what to try next
Bound = tuple[str, int]
"""How long the answer may be, and what the caller calls that."""


async def healed(live: Live, fault: "Fault", plan: Callable[[Facts], Awaitable[T]]) -> T | None:
    """What to send instead (R-08, R-13); None where no edit heals it."""
    async with live.lock:
        facts = await _smaller(live, fault)
        if facts is None:
            return None
        try:
            return await plan(facts)
        except Overflow:
            return None  # the provider's own words say more


async def _smaller(live: Live, fault: "Fault") -> Facts | None:
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


def bound(dialect: Dialect, parameters: Mapping[str, Any]) -> Bound | None:
    """How long the answer may be, as the parameters say it."""
    for name in dialect.bounds:
        most = parameters.get(name)
        if isinstance(most, msgspec.Raw):
            try:
                most = msgspec.json.decode(most, type=int | None)
            except msgspec.DecodeError:
                continue
        if type(most) is int and most > 0:
            return name, most
    return None


def answerable(
    facts: Facts, dialect: Dialect, parameters: Mapping[str, Any], *, streams: bool = False
) -> tuple[Facts, dict[str, Any]]:
    """Facts that keep free what the parameters let an answer take, and those as they can be kept.

    Where they must say it and do not, it is all that is kept free; less if it comes in one piece.
    """
    kept = facts.limits.reserve
    most = kept if streams or parameters.get("stream") else min(kept, _UNSTREAMED)
    given = dialect.parameters(parameters, most=most)
    stated = bound(dialect, given)
    if stated is not None and stated[1] > kept:
        facts = replace(facts, limits=keeping(facts.limits, stated[1]))
    return facts, within(given, stated, reserve=facts.limits.reserve)


def within(parameters: Mapping[str, Any], stated: Bound | None, *, reserve: int) -> dict[str, Any]:
    """The parameters; what cannot be kept free for the answer cannot be asked for: R-04."""
    if stated is None or reserve >= stated[1]:
        return {**parameters}
    return {**parameters, stated[0]: reserve}
