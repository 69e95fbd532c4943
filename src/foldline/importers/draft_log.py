"""A log in the making.

Knows what a live session would have written down around each event: calls closed when the
conversation goes on, repairs of what does not pair, switches of the model. Refuses to know files.
"""

from collections.abc import Iterable

import msgspec

from foldline.core import log, rules
from foldline.core.log import (
    Event,
    Instructed,
    ModelSaid,
    ModelSwitched,
    Opened,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Call, Gap, Media, Part, Text, Tool
from foldline.core.spine import Spine
from foldline.core.view import load
from foldline.errors import BadInput
from foldline.importers.base import Imported, Mark, Notes

UNKNOWN = "unknown"


class Taking:
    """The events of one session, as they are taken from a file."""

    def __init__(self, kind: str, notes: Notes) -> None:
        self.notes = notes
        self.events: list[Event] = []
        self.times: list[float] = []
        self.marks: list[Mark] = []
        self.now = 0.0
        """When what is taken happened, as far as the file says."""
        self.model = ""
        self._life = 0
        self._origin = f"import:{kind}"
        self._view = load(Spine(), {}, head=-1)
        self._told = self._view.newest
        self._take(Opened(UNKNOWN, origin=self._origin))

    def answered_by(self, model: str) -> None:
        """From here on this model answers; the first that is named opened the session."""
        if not model.strip() or model == self.model:
            return
        if self.model:
            self._take(ModelSwitched(model))
        else:
            self.events[0] = Opened(model, origin=self._origin)
        self.model = model

    def instruct(self, parts: Iterable[Part], tools: Iterable[Tool] | None = None) -> None:
        """Further instructions: a file's come piece by piece, all hold, and are written at once."""
        told = self._told
        added = tuple(
            part
            for part in parts
            if isinstance(part, Text) and part.text.strip() and part not in told.parts
        )
        standing = told.tools if tools is None else tuple(tools)
        if added or standing != told.tools:
            self._told = Instructed((*told.parts, *added), standing)

    def add(self, event: Event, place: str = "") -> None:
        """One event, with what a session adds to it."""
        match event:
            case ModelSaid():
                self.add_all(rules.closing(self._view))
                parts = tuple(self._sayable(part, place) for part in event.parts)
                event = msgspec.structs.replace(event, parts=parts)
            case ToolReturned(parts=()):
                event = msgspec.structs.replace(event, parts=(Text(""),))
            case UserSaid(parts=()):
                return
            case Instructed(parts, tools):
                self.instruct(parts, tools or None)
                return
            case _:
                pass
        try:
            log.check(event)
        except BadInput:
            self.notes.take(f"{log.kind(event)} that cannot be written down", place)
            return
        self.add_all(rules.repairs(self._view, event))
        self._take(event)

    def add_all(self, events: Iterable[Event]) -> None:
        """Some events, as they are."""
        for event in events:
            self._take(event)

    def used(self, usage: UsageReported | None) -> None:
        """What the provider counted for the answer before, where the file says so."""
        if usage is not None:
            self._take(usage)

    def restarted(self, told: str) -> None:
        """The agent began anew: another process goes on with the conversation."""
        self.marks.append(Mark(len(self.events), "restart", told))

    def thinks(self, level: str) -> None:
        """From here on requests ask for so much thinking."""
        if level:
            self.marks.append(Mark(len(self.events), "thinking", level))

    def keeps(self, seconds: int) -> None:
        """From here on requests ask for a cache that lives so long."""
        if seconds != self._life:
            self._life = seconds
            self.marks.append(Mark(len(self.events), "life", str(seconds)))

    def done(self, name: str) -> Imported:
        """The session as far as the file goes; calls that are open at its end stay open."""
        self._write_instructions()
        told = self.notes.told()
        return Imported(name, self.model or UNKNOWN, self.events, told, self.times, self.marks)

    def _write_instructions(self) -> None:
        if self._told != self._view.newest:
            self._append(self._told)

    def _take(self, event: Event) -> None:
        self._write_instructions()
        self._append(event)

    def _append(self, event: Event) -> None:
        self.events.append(event)
        self.times.append(self.now)
        self._view.append(self._view.head + 1, event)

    def _sayable(self, part: Part, place: str) -> Part:
        """A part that a model's message may hold in every dialect."""
        match part:
            case Call(name=name) if not name.strip():
                self.notes.take("call without a name", place)
                return Gap("[a call without a name]")
            case Media(form):
                self.notes.take(f"{form} in an answer", place)
                return Gap(f"[{form}]")
            case _:
                return part
