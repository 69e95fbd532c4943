"""The log folded into the items that a model would see.

Knows where each event is placed and what of it is shown. Refuses to know sizes that are allowed,
prices and providers.

Any log gives a view that can be sent once its open calls are closed, however broken the log is: a
result without a call becomes a notice, a call that nobody answered is closed where the conversation
went on, ids are made unique in their group. A view is made one way, by `load`; plain events are
appended in O(1), and an edit lays the view anew from the events it holds.

    arrives:   user 1 · user 2 · model (saw 1, calls c) · user 4 · result c
    is shown:  user 1 · model (calls c) · result c · user 2 · user 4
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import assert_never, cast

from foldline.core import item as items
from foldline.core import spine as spines
from foldline.core.log import (
    Asked,
    Checkpointed,
    Clipped,
    Edit,
    Event,
    Excluded,
    Folded,
    Hiding,
    Instructed,
    Interrupted,
    Linked,
    Logged,
    Masked,
    ModelSaid,
    ModelSwitched,
    Opened,
    Pinned,
    Repaired,
    Rewound,
    ServerTruncated,
    Setting,
    SettingsChanged,
    ToolReturned,
    Undone,
    Unpinned,
    UsageReported,
    UserSaid,
    WindowLearned,
)
from foldline.core.parts import Native, calls_of, text_of
from foldline.core.row import ItemRow
from foldline.core.spine import FoldAt, Range, Spine
from foldline.core.tokens import Learned
from foldline.errors import BrokenView


class View(ItemRow):
    """The items in force at `head`, and the events they were made of."""

    spine: Spine
    head: int
    held: dict[int, Event]
    learned: Learned
    model: str
    settings: dict[str, Setting]
    instructions: Instructed
    """The fixed part; newer instructions are items until the next fold, unless they replace it."""
    newest: Instructed
    pins: dict[int, int]
    """Pinned event → the event that pinned it."""
    windows: dict[str, int]
    asked: int
    """Where the newest request was recorded, or -1."""
    awaited: bool
    """Whether that request is still to be answered."""
    idle_folds: int
    """The folds since a person spoke, or anything was answered or returned."""

    def __init__(self, spine: Spine, events: Mapping[int, Event], head: int) -> None:
        self._lay(spine, events, head)

    def append(self, seq: int, event: Event) -> None:
        """Take in the next event; for an edit, every event of its spine must be held."""
        if seq != self.head + 1:
            raise BrokenView(f"event {seq} was appended to a view that ends at {self.head}")
        self.held[seq] = event
        if isinstance(event, Edit):
            self._lay(event.spine, self.held, seq)
        else:
            self._take(seq, event)
            self.head = seq

    def copy(self) -> "View":
        """A view of its own over the same events."""
        other = View.__new__(View)
        fields = vars(other)
        for name, value in vars(self).items():
            is_own = isinstance(value, list | dict | set)
            fields[name] = cast("list[object]", value).copy() if is_own else value
        return other

    def holds(self, spine: Spine) -> bool:
        """Whether all that the next event's spine needs is here; else it comes from a tail."""
        ranges = (segment for segment in spine.segments if isinstance(segment, Range))
        live = (seq for one in ranges for seq in range(one.lo, _last(one, self.head) + 1))
        coming = self.head + 1
        return all(seq in self.held or seq == coming for seq in chain(live, spines.needs(spine)))

    def folds(self) -> dict[int, Folded]:
        """The folds that stand, by their place."""
        segments = (s.edit for s in self.spine.segments if isinstance(s, FoldAt))
        return {at: self.fold_at(at) for at in segments}

    def fold_at(self, edit: int) -> Folded:
        """The fold at a place of the spine."""
        event = self.held[edit]
        if not isinstance(event, Folded):
            raise BrokenView(f"the spine shows a fold at {edit}, where the log holds none")
        return event

    def counted(self, event: UsageReported) -> Asked | None:
        """The request that a report is of, where it is in sight."""
        asked = self.held.get(self.asked if event.asked is None else event.asked)
        return asked if isinstance(asked, Asked) else None

    def standing(self) -> tuple[int, ...]:
        """The events that stay in force whatever is folded."""
        return tuple(sorted({*self._state.values()}))

    @property
    def instructed(self) -> int | None:
        """Where the newest instructions are."""
        return self._state.get("instructed")

    # How a view is laid: standing events, then segment by segment, each event by `_take`.

    def _lay(self, spine: Spine, events: Mapping[int, Event], head: int) -> None:
        self.spine, self.head = spine, head
        self._clear()
        self.held, self.model, self.settings = {}, "", {}
        self.asked, self.awaited, self.idle_folds = -1, False, 0
        self.learned = Learned()
        self.instructions = self.newest = Instructed()
        self.pins, self.windows = {}, {}
        self._state: dict[str, int] = {}
        # Before the first word of a model the fixed part is simply the newest instructions.
        self._spoken, self._told = False, Instructed()
        try:
            for seq in spine.masks:
                mask = self.held[seq] = events[seq]
                if isinstance(mask, Hiding):
                    self._stubs.update((stub.seq, stub.text) for stub in mask.stubs)
                    self._breaks.append((min(stub.seq for stub in mask.stubs), seq))
            self._breaks += [(span.lo - 1, _last(span, head) + 1) for span in spine.turned]
            for seq in spine.standing:
                self.held[seq] = events[seq]
                self._keep(seq, events[seq])
            if spine.base is not None:
                self.held[spine.base] = events[spine.base]
                self._fix(events[spine.base])
            for segment in spine.segments:
                match segment:
                    case FoldAt(edit):
                        self.held[edit], self._spoken = events[edit], True
                        fold = self.fold_at(edit)
                        self._breaks.append((fold.change.span.lo, edit))
                        self.learned = Learned(ratio=fold.ratio, errors=fold.errors)
                        self.idle_folds = fold.idle
                        for item in items.handoff(edit, fold):
                            self._place(item, last=fold.change.span.hi)
                    case Range(lo):
                        for seq in range(lo, _last(segment, head) + 1):
                            self.held[seq] = events[seq]
                            self._take(seq, events[seq])
        except KeyError as missing:
            raise BrokenView(
                f"the spine at {head} needs event {missing}, which is not here; read the tail again"
            ) from missing

    def _take(self, seq: int, event: Event) -> None:
        match event:
            case UserSaid():
                self.idle_folds = 0 if event.speaker == "human" else self.idle_folds
                self._arrive(items.user(seq, event, self._stubs.get(seq)))
            case ModelSaid():
                self._spoken, self.awaited, self.idle_folds = True, False, 0
                self._answer(seq, event)
            case ToolReturned():
                self.idle_folds = 0
                self._result(seq, event)
            case Interrupted(call_id):
                self._interrupt(seq, call_id)
            case Instructed() if event.aside:
                self._arrive(items.make(seq, "system", event.parts))
            case Instructed():
                self._instruct(seq, event)
            case Asked(at):
                self.asked, self.shown = seq, max(self.shown, at)
                self.awaited = self._spoken = True
                for echo in event.echoes:
                    self._echo(echo.seq, echo.native)
            case Opened() | SettingsChanged() | ModelSwitched() | WindowLearned():
                self._keep(seq, event)
            case Pinned() | Unpinned():
                self._keep(seq, event)
            case Masked() | Folded() | Clipped() | Excluded() | Undone() | Rewound():
                self.learned = self.learned.edited()  # it shows through the spine, not here
                self.idle_folds = event.idle if isinstance(event, Folded) else self.idle_folds
            case UsageReported():
                self._learn(event)
            case Repaired() | ServerTruncated() | Linked() | Checkpointed():
                pass  # recorded for people and plans, never sent
            case _:
                assert_never(event)

    def _keep(self, seq: int, event: Event) -> None:
        """Remember an event that is in force until a newer one of its kind."""
        match event:
            case Opened(model, settings):
                self._switch(seq, model)
                self.settings = settings if self._newer("settings", seq) else self.settings
            case ModelSwitched(model):
                self._switch(seq, model)
            case SettingsChanged(settings) if self._newer("settings", seq):
                self.settings = settings
            case WindowLearned(model, window) if self._newer(f"window {model}", seq):
                self.windows[model] = window
            case Instructed() if self._newer("instructed", seq):
                self.newest = event
            case Pinned(pinned) if self._newer(f"pin {pinned}", seq):
                self.pins[pinned] = seq
            case Unpinned(pinned) if self._newer(f"pin {pinned}", seq):
                self.pins.pop(pinned, None)
            case _:
                pass

    def _switch(self, seq: int, model: str) -> None:
        if self._newer("model", seq) and model != self.model:
            self.model, self.learned = model, Learned()

    def _learn(self, event: UsageReported) -> None:
        asked = self.counted(event)
        if asked is not None and event.input is not None:
            self.learned = self.learned.report(asked.estimate, event.input)

    def _echo(self, seq: int, native: Native) -> None:
        """Show an answer in other bytes from here on, where nothing of it is left out."""
        said = self.held.get(seq)
        for at in range(len(self.items) - 1, -1, -1):
            item = self.items[at]
            if item.seq > seq:
                continue
            if isinstance(said, ModelSaid) and (item.seq, item.parts) == (seq, said.parts):
                self._count(item, -1)
                self.items[at] = items.make(seq, item.role, item.parts, native=native)
                self._count(self.items[at], 1)
            return

    def _newer(self, kind: str, seq: int) -> bool:
        """Whether this is the newest of its kind: a range may hold older ones than what stands."""
        if seq < self._state.get(kind, seq):
            return False
        self._state[kind] = seq
        return True

    def _instruct(self, seq: int, event: Instructed) -> None:
        self._keep(seq, event)
        if self.spine.base is not None and seq <= self.spine.base:
            return  # the fixed part says this, or something newer
        # What came in a message of its own stays where that stood.
        stands = bool(event.native) and bool(self.items or self.waiting)
        if event.replaces or (not self._spoken and not stands):
            self._fix(event)
        elif (event.parts, event.native) != (self._told.parts, self._told.native):
            self._arrive(items.note(seq, event, self._told.parts))
            self._told = event

    def _fix(self, event: Event) -> None:
        if isinstance(event, Instructed):
            self.instructions = self._told = event


def load(spine: Spine, events: Mapping[int, Event], *, head: int) -> View:
    """Make a view of the events up to `head` that a spine names. There is no other way."""
    return View(spine, events, head)


def spine_at(events: Iterable[Logged], at: int) -> Spine:
    """The spine in force at a place in the log: that of the newest edit up to there."""
    spine = Spine()
    for seq, event in events:
        if seq <= at and isinstance(event, Edit):
            spine = event.spine
    return spine


def shape(view: View) -> str:
    """One line an item: place, role, first words, state."""
    lines: list[str] = []
    for item in (*view.items, *view.waiting):
        words = " ".join(text_of(item.parts).split())[:40]
        calls = " ".join(f"{call.name}({call.id})" for call in calls_of(item.parts))
        state = "" if item.state == "whole" else item.state
        place = str(item.seq)
        if item.state == "folded":
            span = view.fold_at(item.seq).change.span
            place, words = f"{span.lo}-{span.hi}", ""
        fields = (place, item.role, item.call_id, words, calls, state)
        lines.append(" ".join(field for field in fields if field))
    return "\n".join(lines)


def _last(segment: Range, head: int) -> int:
    return head if segment.hi is None else min(segment.hi, head)
