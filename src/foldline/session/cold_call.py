"""What a session's next call costs if its cache has expired. Nothing is written."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import time

from foldline.core.budget import estimate_request, measure_budget
from foldline.core.cold_cache import ColdCall, estimate_cache_state, estimate_cold_call
from foldline.core.log import Asked, UsageReported, UserSaid
from foldline.core.parts import Text
from foldline.core.plan import Blocked, Facts, Need, Ready, after
from foldline.core.spine import list_edits
from foldline.core.view import View
from foldline.errors import FoldlineError
from foldline.session import planning
from foldline.session.log_handle import Live

_LEAST_GROWTH = 2_000  # estimated tokens: with fewer a ratio says little


async def preview_cold_call(live: Live, text: str = "") -> ColdCall | None:
    """Preview the price of the next message; None if its cache is there, or little depends on it.

    The message is planned as it will be sent, and once more as if a person had folded first.
    """
    facts, seconds = live.facts, time() - live.touched
    if not _is_cold(live, facts, seconds):
        return None
    said = after(live.view, [UserSaid((Text(text or "?"),))])
    planned = await _compute_plan(live, facts, said)
    if planned is None:
        return None
    return await estimate_planned_call(live, facts, said, planned, seconds=seconds)


async def estimate_planned_call(  # noqa: PLR0913 - a request, its plan, and the pause before it
    live: Live,
    facts: Facts,
    said: View,
    planned: Ready,
    *,
    seconds: float,
    may_fold: bool = True,
) -> ColdCall | None:
    """Estimate a planned call, `seconds` after the last one; None as in `preview_cold_call`.

    `said` shows what was planned, `live` what was before. Where the plan has no edit, and a person
    `may_fold`, a fold is planned for comparison.
    """
    if not _is_cold(live, facts, seconds):
        return None
    whole = measure_budget(said, facts.limits).request
    estimate = partial(
        estimate_cold_call,
        facts.prices,
        tokens=whole,
        sent=count_cached_tokens(live.view),
        seconds=seconds,
        lifetime=facts.lifetime,
    )
    found = estimate()
    if planned.report.edits:
        return estimate(folded=estimate_edited_size(said, whole, planned), is_folded=True)
    if found is None or not may_fold:
        return found
    folded = await _compute_plan(live, replace(facts, now=True), live.view)
    if folded is None or not folded.report.edits:
        return found
    before = measure_budget(live.view, facts.limits).request
    size = estimate_edited_size(live.view, before, folded)
    return estimate(folded=size + whole - before)


def estimate_edited_size(view: View, whole: int, planned: Ready) -> int:
    """Estimate a request after the edits of its plan, as its provider would count it.

    `whole` is its size without them. A plan's own total has one ratio for all that was counted, but
    the system prompt and the tools, which stay, may have another: theirs is what the messages do
    not explain, and these have the ratio by which the counts have grown.
    """
    messages = view.tokens + sum(item.tokens for item in view.waiting)
    fixed = estimate_request(view) - messages
    ratio = _measure_growth(view) or whole / max(fixed + messages, 1)
    front = max(whole - ratio * messages, 0.0)
    return round(front + ratio * max(planned.report.estimate - fixed, 0))


def _measure_growth(view: View) -> float | None:
    """Measure how many tokens the provider counts for an estimated one that is added.

    From the first counted request since the last edit to the newest; None if too little came.
    """
    edited = max(list_edits(view.spine), default=-1)
    counted: list[tuple[int, int]] = []
    asked: Asked | None = None
    for seq, event in view.held.items():
        if isinstance(event, Asked) and seq > edited:
            asked = event
        elif isinstance(event, UsageReported) and asked is not None and event.input:
            counted.append((asked.estimate, event.input))
    if not counted:
        return None
    (first, begun), (last, now) = counted[0], counted[-1]
    return (now - begun) / (last - first) if last - first >= _LEAST_GROWTH else None


def count_cached_tokens(view: View) -> int:
    """Return the provider's count of the last request, as far as it was cached.

    0 if it was not, or was not counted, or if an edit or another model came after it.
    """
    reports = (one for one in reversed(view.held.values()) if isinstance(one, UsageReported))
    used = next(reports, None)
    if used is None or (used.cache_read == 0 and used.cache_write == 0):
        return 0  # some providers cache only what is marked, and nothing was
    return view.learned.reported


def _is_cold(live: Live, facts: Facts, seconds: float) -> bool:
    """Whether a cache that was there has expired: a few comparisons, for every call."""
    if live.view.asked < 0 or not facts.prices.is_known:
        return False
    return estimate_cache_state(seconds, facts.prices, facts.lifetime) == "cold"


async def _compute_plan(live: Live, facts: Facts, view: View) -> Ready | None:
    """Plan a request; None if nothing makes it fit, or what it needs cannot be read.

    Hooks are not asked, as no fold is made.
    """
    prepared = live.prepared if live.prepared and live.prepared.is_valid_for(view.spine) else None
    facts = replace(facts, cache="cold", prepared=prepared)
    with suppress(FoldlineError):  # no request fails because its price is unknown
        while True:
            match await planning.compute_plan(view, facts):
                case Ready() as ready:
                    return ready
                case Blocked():
                    return None
                case Need() as need:
                    facts = await planning.fetch_needed_events(live, facts, need)
    return None
