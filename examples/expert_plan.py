"""The pure core without a session: events in, a decision out. No store, no clock, no network.

Start it:   pip install foldline
            python examples/expert_plan.py

For those who keep their own log: `plan` says what to send and which events to append; the same
events and facts give the same bytes on any machine.
"""

from dataclasses import replace

from foldline.core.budget import limits
from foldline.core.log import Event, Instructed, ModelSaid, Opened, UserSaid
from foldline.core.parts import Text
from foldline.core.plan import Blocked, Facts, Need, Ready, plan
from foldline.core.policy import named
from foldline.core.spine import Spine, places_of
from foldline.core.view import load
from foldline.dialects.base import choose_model_dialect

facts = Facts(limits(4_000, 500), named("steady"))
log: list[Event] = [Opened("gpt-6-luna"), Instructed((Text("Be brief."),))]
view = load(Spine(), {}, head=-1)
for seq, event in enumerate(log):
    view.append(seq, event)


def take(*events: Event) -> None:
    """Append to the log, and to the view of it."""
    for event in events:
        log.append(event)
        view.append(view.head + 1, event)


def decide() -> Ready:
    """What to send now."""
    made = plan(view, facts)
    while isinstance(made, Need):  # events that the view does not hold: we fetch them
        fetched = {seq: log[seq] for span in made.ranges for seq in places_of(span)}
        made = plan(view, replace(facts, fetched=fetched))
    if isinstance(made, Blocked):
        raise SystemExit(f"nothing makes it fit {made.limit}: {made.parts}")
    return made


for turn in range(40):
    take(UserSaid((Text(f"Question {turn}: " + "what about this part of the plan? " * 8),)))
    ready = decide()
    take(*ready.events)
    for event in ready.events:
        print(f"turn {turn}:", type(event).__name__, "before the request")
    if turn == 39:
        body = choose_model_dialect(view.model).encode_request(ready.request, {})
        print(f"{len(body):,} bytes to send: {ready.report}")
    take(ModelSaid((Text("Yes."),)))
print(f"{len(log)} events, {len(view.items)} items in the view")
