"""Refusals for length: what they teach, and the smaller request that is sent instead.

    try:
        answer = client.chat.completions.create(**s.request())
    except openai.BadRequestError as error:
        answer = client.chat.completions.create(**s.heal(error))

A refusal often states the window and how many tokens were sent. Both are recorded: from a count
above what we knew to be the most, all bounds are larger for the rest of the session.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from foldline.core.budget import apply_learned_window, measure_budget
from foldline.core.edits.clip import clip_newest_messages
from foldline.core.log import Asked, SettingsChanged, WindowLearned
from foldline.core.plan import Facts, build_blocked, offers_recall
from foldline.core.view import BINDS_THINKING
from foldline.dialects.provider_errors import Fault, of_exception
from foldline.errors import Overflow
from foldline.session.log_handle import Live
from foldline.session.log_lines import log_heal

T = TypeVar("T")
_NOTHING_ASKED = Asked(at=-1, dialect="", sha256="", encoder=0)
_BINDING = "bound to a different conversation"
_SMALLER = 0.8  # the next try's share of a request that was refused without stating a limit


async def heal_refusal(live: Live, fault: Fault, plan: Callable[[Facts], Awaitable[T]]) -> T | None:
    """Plan under smaller limits after a refusal, with the newest messages cut once more if needed.

    After a refusal of thinking behind an edit, plan without it. None if the fault is about
    something else. Raises `Overflow` if nothing makes it smaller.
    """
    async with live.lock:
        if await learn_binding(live, fault):
            return await plan(live.facts)
        refused, facts = _find_newest_request(live), await find_smaller(live, fault)
        if facts is None:
            return None
        # Without a count it is unknown how far the newest messages alone are too large.
        first = not fault.count
        for cuts in (first, not first):
            tried = await _cut_newest_messages(live) if cuts else facts
            with suppress(Overflow):
                planned = await plan(tried) if tried else None
                sent = _find_newest_request(live)
                if planned is not None and sent.sha256 != refused.sha256:
                    log_heal(live.name, refused.tokens, sent.tokens)
                    return planned
        blocked = build_blocked(live.view, measure_budget(live.view, facts.limits))
        raise Overflow(blocked.parts, blocked.limit)


async def learn_binding(live: Live, fault: Fault) -> bool:
    """Record that the model binds its thinking to the words before it, if a refusal says so.

    False if that was known: then no thinking behind an edit was sent.
    """
    view = live.view
    if _BINDING not in fault.message or view.binds_thinking or live.facts.binds_thinking:
        return False
    await live.record_events(SettingsChanged({**view.settings, BINDS_THINKING: view.model}))
    return True


async def _cut_newest_messages(live: Live) -> Facts | None:
    """Cut the newest messages once more, and return what is then known; None if they are small."""
    clipped = clip_newest_messages(
        live.view, live.facts.limits, recall=offers_recall(live.view, live.facts)
    )
    if clipped is None:
        return None
    event, limits = clipped
    await live.record_events(event)
    return replace(live.facts, limits=limits)


async def find_smaller(live: Live, fault: Fault) -> Facts | None:
    """Return facts with a smaller window, learned from a refusal; None if no edit helps."""
    asked = live.view.held.get(live.view.asked)
    if fault.kind not in ("tokens", "bytes") or not isinstance(asked, Asked):
        return None
    stated = fault.limit if fault.kind == "tokens" and not fault.suspected else None
    if stated is None:
        most = asked.tokens * _SMALLER
    else:
        strains = await _record_window(live, stated, fault)
        if strains and live.facts.policy.start == "auto":
            return live.facts  # larger bounds say how much smaller the request must be
        # In our own estimate's scale, which the provider's larger count shows to be too small.
        most = min(stated * min(asked.tokens / (fault.count or 1), 1.0), asked.tokens)
    return replace(live.facts, limits=apply_learned_window(live.facts.limits, int(most)))


async def _record_window(live: Live, window: int, fault: Fault) -> bool:
    """Record what a refusal states; return whether it was above what we knew to be its most."""
    model = live.view.model
    known = apply_learned_window(live.facts.limits, live.view.windows.get(model)).window
    most = live.report.total + live.report.doubt if live.report else 0
    strains = bool(most) and (fault.count or 0) > most
    if window < known or strains:
        counts = {"count": fault.count or 0, "most": most} if strains else {}
        await live.record_events(
            WindowLearned(model, min(window, known), fault.message[:200], **counts)
        )
    return strains


def classify_refusal(live: Live, error: Exception) -> Fault:
    """Classify what an SDK raised, knowing how full the window was."""
    return of_exception(error, filled=measure_fill(live))


def measure_fill(live: Live) -> float | None:
    """Return the share of the window that the newest request takes, by our estimate."""
    return live.report.total / live.report.window if live.report else None


def _find_newest_request(live: Live) -> Asked:
    asked = live.view.held.get(live.view.asked)
    return asked if isinstance(asked, Asked) else _NOTHING_ASKED
