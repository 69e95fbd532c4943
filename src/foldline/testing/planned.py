"""A conversation through admission and plan, as a session runs it, without a store or a model.

Everything is kept in lists, so a test can look at every plan that was made.
"""

from collections.abc import Callable
from dataclasses import replace

from foldline.core.log import Asked, Event, Folded, Opened, UsageReported
from foldline.core.plan import Facts, Need, Plan, Ready, admit, plan
from foldline.testing.logs import view_of


class Planned:
    """A log that grows under one policy."""

    def __init__(self, facts: Facts, *events: Event) -> None:
        self.facts = facts
        self.events: list[Event] = [Opened("test/model"), *events]
        self.view = view_of(self.events)

    def append(self, *events: Event) -> None:
        """Into the log and the view, as they are."""
        for event in events:
            self.events.append(event)
            self.view.append(self.view.head + 1, event)

    def add(self, *events: Event) -> None:
        """As a session takes them in: admitted first."""
        for event in events:
            self.append(*admit(self.view, event, self.facts))

    def plan(self, facts: Facts | None = None) -> Plan:
        """What would be sent now; whatever the plan needs is fetched."""
        facts = facts or self.facts
        made = plan(self.view, facts)
        while isinstance(made, Need):
            fetched = {span.lo: self.events[span.lo] for span in made.ranges}
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
