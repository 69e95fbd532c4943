"""Plans the fold of another agent's transcript, without a store: how much it would take out.

A transcript has neither the system prompt nor the tools: words of their size stand for them.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from foldline.core.budget import estimate_request, measure_budget
from foldline.core.log import (
    Asked,
    Checkpointed,
    Event,
    Instructed,
    ModelSaid,
    Opened,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Text
from foldline.core.plan import Ready, plan
from foldline.core.policy import STEADY
from foldline.core.spine import Spine
from foldline.core.tokens import count_parts
from foldline.core.view import View, load
from foldline.importers import read
from foldline.session.cold_call import estimate_edited_size
from foldline.session.model_facts import build_facts

_LEAST_SENT = 0.85  # of what the transcript has: with less something was taken out


def estimate_folded_size(path: Path, model: str, prompt: str, *, sent: int) -> int | None:
    """Estimate the next request after a fold; None if none would be made.

    It is planned as by a gateway that had counted every call, after a pause. Also None if less was
    `sent` in the last call than the transcript has: then a gateway has folded it already.
    """
    events = read(path.read_text("utf-8", "replace"), path.name)[0].events
    shown = _select_shown(events)
    fixed = _estimate_fixed(shown)
    view = _build_view(model, shown, fixed=fixed)
    if sent < _LEAST_SENT * (fixed + view.learned.ratio * view.tokens):
        return None
    view.append(view.head + 1, UserSaid((Text(prompt or "?"),)))
    facts = build_facts(model, window=None, reserve=None, policy=STEADY)
    made = plan(view, replace(facts, cache="cold"))
    if not isinstance(made, Ready) or made.folded is None:
        return None
    whole = measure_budget(view, facts.limits).request
    return estimate_edited_size(view, whole, made)


def _select_shown(events: Sequence[Event]) -> list[Event]:
    """Select what the agent still sends: its newest summary, and what came after it."""
    shown: list[Event] = []
    for event in events:
        match event:
            case Checkpointed("compaction", summary):
                shown = [UserSaid((Text(summary),))]
            case Opened() | Checkpointed():
                pass
            case _:
                shown.append(event)
    return shown


def _build_view(model: str, shown: Sequence[Event], *, fixed: int) -> View:
    """Build the view of a conversation, as if each of its calls had been planned."""
    instructed = Instructed((Text("word " * fixed),))
    view = load(Spine(), {0: Opened(model), 1: instructed}, head=1)
    for event in shown:
        if isinstance(event, ModelSaid):
            asked = Asked(view.head, "", "", 0, estimate=estimate_request(view))
            view.append(view.head + 1, asked)
        view.append(view.head + 1, event)
    return view


def _estimate_fixed(shown: Sequence[Event]) -> int:
    """Estimate the system prompt and the tools: what the first call sent beside the messages."""
    said = 0
    for event in shown:
        match event:
            case UserSaid(parts):
                said += count_parts(parts)
            case UsageReported(input=int(sent)):
                return max(sent - said, 0)
            case _:
                pass
    return 0
