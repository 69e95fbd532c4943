"""A conversation through admission and plan, as a session runs it, without a store or a model.

Knows the order of a session's steps. Refuses to know where events come from: a replay gives it
recorded ones, a test its own. Everything is kept in lists, so that both can look at every plan.
"""

from collections.abc import Callable
from dataclasses import replace

from foldline.core.log import Asked, Event, Folded, Opened, UsageReported
from foldline.core.plan import Blocked, Facts, Need, Ready, admit, plan
from foldline.core.spine import Spine, places
from foldline.core.view import load

_OPENED = Opened("test/model")


class Planned:
    """A log that grows under one policy."""

    def __init__(self, facts: Facts, *events: Event, opened: Opened = _OPENED) -> None:
        self.facts = facts
        self.events: list[Event] = []
        self.view = load(Spine(), {}, head=-1)
        self.append(opened, *events)

    def append(self, *events: Event) -> None:
        """Into the log and the view, as they are."""
        for event in events:
            self.events.append(event)
            self.view.append(self.view.head + 1, event)

    def add(self, *events: Event) -> None:
        """As a session takes them in: admitted first."""
        for event in events:
            self.append(*admit(self.view, event, self.facts))

    def plan(self, facts: Facts | None = None) -> Ready | Blocked:
        """What would be sent now; whatever the plan needs is fetched."""
        facts = facts or self.facts
        made = plan(self.view, facts)
        while isinstance(made, Need):
            fetched = {seq: self.events[seq] for span in made.ranges for seq in places(span)}
            facts = replace(facts, fetched={**facts.fetched, **fetched})
            made = plan(self.view, facts)
        return made

    def ask(self, made: Ready, *, counted: Callable[[Ready], int] | None = None) -> None:
        """Send what was planned; `counted` is the model's own count, reported back."""
        at = self.view.head + len(made.events)
        seen = made.report
        self.append(*made.events, Asked(at, "", "", 0, tokens=seen.total, estimate=seen.estimate))
        if counted is not None:
            self.append(UsageReported(input=counted(made)))

    def folds(self) -> list[Folded]:
        """Every fold so far."""
        return [event for event in self.events if isinstance(event, Folded)]
