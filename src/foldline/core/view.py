"""The items that a model would see, built from the log.

Any log gives a view that can be sent once its open calls are closed, however broken the log is: a
result without a call becomes a notice, a call that nobody answered is closed where the conversation
went on, ids are made unique in their group. Views are made by `load` alone. Plain events are
appended in O(1); an edit rebuilds the view from the events it holds.

    arrives:   user 1 · user 2 · model (saw 1, calls c) · user 4 · result c
    is shown:  user 1 · model (calls c) · result c · user 2 · user 4
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TypeVar, assert_never, cast

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

BINDS_THINKING = "binds_thinking"
"""The setting that names the model which refused its thinking behind an edit."""
_E = TypeVar("_E", bound=Event)


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
    strains: dict[str, float]
    """By model: how far a refused request was above what we knew to be its most."""
    asked: int
    """Where the newest request was recorded, or -1."""
    counted: int
    """The last event that a provider has counted, as the view shows it; -1 after an edit."""
    awaited: bool
    """Whether that request is still unanswered."""
    idle_folds: int
    """The folds since a user message, an answer or a result."""

    def __init__(self, spine: Spine, events: Mapping[int, Event], head: int) -> None:
        self._bounds, self.binds_thinking = {}, False
        self._build_from_spine(spine, events, head)

    def append(self, seq: int, event: Event) -> None:
        """Append the next event; for an edit, every event of its spine must be held."""
        if seq != self.head + 1:
            raise BrokenView(f"event {seq} was appended to a view that ends at {self.head}")
        self.held[seq] = event
        if isinstance(event, Edit):
            self._build_from_spine(event.spine, self.held, seq)
        else:
            self._apply_event(seq, event)
            self.head = seq
            self._apply_binding()

    def copy(self) -> "View":
        """Return an independent view over the same events."""
        other = View.__new__(View)
        fields = vars(other)
        for name, value in vars(self).items():
            is_own = isinstance(value, list | dict | set)
            fields[name] = cast("list[object]", value).copy() if is_own else value
        fields["_bounds"] = self._bounds
        return other

    def has_events_for(self, spine: Spine) -> bool:
        """Whether the view holds every event that the next event's spine needs."""
        ranges = (segment for segment in spine.segments if isinstance(segment, Range))
        live = (seq for one in ranges for seq in range(one.lo, _find_last_seq(one, self.head) + 1))
        coming = self.head + 1
        return all(
            seq in self.held or seq == coming
            for seq in chain(live, spines.list_needed_events(spine))
        )

    def list_folds(self) -> dict[int, Folded]:
        """List the standing folds, by their place."""
        segments = (s.edit for s in self.spine.segments if isinstance(s, FoldAt))
        return {at: self.fold_at(at) for at in segments}

    def fold_at(self, edit: int) -> Folded:
        """Return the fold at a place of the spine."""
        event = self.held[edit]
        if not isinstance(event, Folded):
            raise BrokenView(f"the spine shows a fold at {edit}, where the log holds none")
        return event

    def find_reported_request(self, event: UsageReported) -> Asked | None:
        """Find the request that a usage report belongs to, if the view holds it."""
        asked = self.held.get(self.asked if event.asked is None else event.asked)
        return asked if isinstance(asked, Asked) else None

    def list_standing_events(self) -> tuple[int, ...]:
        """List the events that stay in force whatever is folded."""
        return tuple(sorted({*self._state.values()}))

    @property
    def instructed(self) -> int | None:
        """Where the newest instructions are."""
        return self._state.get("instructed")

    def _build_from_spine(self, spine: Spine, events: Mapping[int, Event], head: int) -> None:
        """Build the view: masks and standing events first, then the spine's segments in order."""
        self.spine, self.head = spine, head
        self._clear_items()
        self.held, self.model, self.settings = {}, "", {}
        self.asked, self.counted, self.awaited, self.idle_folds = -1, -1, False, 0
        self.learned = Learned()
        self.instructions = self.newest = Instructed()
        self.pins, self.windows, self.strains = {}, {}, {}
        self._state: dict[str, int] = {}
        # Before a model first speaks, the fixed part is simply the newest instructions.
        self._spoken, self._told = False, Instructed()
        try:
            for seq in spine.masks:
                mask = self.held[seq] = events[seq]
                if isinstance(mask, Hiding):
                    self._stubs.update((stub.seq, stub.text) for stub in mask.stubs)
                    self._breaks.append((min(stub.seq for stub in mask.stubs), seq))
            self._breaks += [(span.lo - 1, _find_last_seq(span, head) + 1) for span in spine.turned]
            for seq in spine.standing:
                self.held[seq] = events[seq]
                self._remember_event(seq, events[seq])
            if spine.base is not None:
                self.held[spine.base] = events[spine.base]
                self._set_instructions(events[spine.base])
            for segment in spine.segments:
                match segment:
                    case FoldAt(edit):
                        self.held[edit], self._spoken = events[edit], True
                        fold = self.fold_at(edit)
                        self._breaks.append((fold.change.span.lo, edit))
                        self.learned = Learned(ratio=fold.ratio, errors=fold.errors)
                        self.idle_folds = fold.idle
                        # A fold that was undone may have left calls here that a newer one closes.
                        self._close_calls(fold.change.span.lo - 1)
                        for item in items.make_handoff_items(edit, fold):
                            self._append_item(item, last=fold.change.span.hi)
                    case Range(lo):
                        for seq in range(lo, _find_last_seq(segment, head) + 1):
                            self.held[seq] = events[seq]
                            self._apply_event(seq, events[seq])
        except KeyError as missing:
            raise BrokenView(
                f"the spine at {head} needs event {missing}, which is not here; read the tail again"
            ) from missing
        self._apply_binding()

    def _apply_binding(self) -> None:
        """Rebuild the view if the model in force treats thoughts behind an edit differently."""
        binds = self.settings.get(BINDS_THINKING) == self.model
        if binds is not self.binds_thinking:
            self.binds_thinking = binds
            self._build_from_spine(self.spine, self.held, self.head)

    def _apply_event(self, seq: int, event: Event) -> None:
        match event:
            case UserSaid():
                self.idle_folds = 0 if event.speaker == "human" else self.idle_folds
                self._add_or_defer_item(items.make_user_item(seq, event, self._stubs.get(seq)))
            case ModelSaid():
                self._spoken, self.awaited, self.idle_folds = True, False, 0
                self._add_answer(seq, event)
            case ToolReturned():
                self.idle_folds = 0
                self._add_result(seq, event)
            case Interrupted(call_id):
                self._close_interrupted_call(seq, call_id)
            case Instructed() if event.aside:
                self._add_or_defer_item(items.make_item(seq, "system", event.parts))
            case Instructed():
                self._apply_instructions(seq, event)
            case Asked(at):
                self.asked, self.shown = seq, max(self.shown, at)
                self.awaited = self._spoken = True
                for echo in event.echoes:
                    self._replace_native(echo.seq, echo.native)
            case Opened() | SettingsChanged() | ModelSwitched() | WindowLearned():
                self._remember_event(seq, event)
            case Pinned() | Unpinned():
                self._remember_event(seq, event)
            case Masked() | Folded() | Clipped() | Excluded() | Undone() | Rewound():
                # An edit shows through the spine, not here.
                self.learned, self.counted = self.learned.reset_after_edit(), -1
                self.idle_folds = event.idle if isinstance(event, Folded) else self.idle_folds
            case UsageReported():
                self._record_usage(event)
            case Repaired() | ServerTruncated() | Linked() | Checkpointed():
                pass  # recorded for people and plans, never sent
            case _:
                assert_never(event)

    def _remember_event(self, seq: int, event: Event) -> None:
        """Remember an event that stays in force until a newer one of its kind."""
        match event:
            case Opened(model, settings):
                self._switch_model(seq, model)
                self.settings = settings if self._update_newest("settings", seq) else self.settings
            case ModelSwitched(model):
                self._switch_model(seq, model)
            case SettingsChanged(settings) if self._update_newest("settings", seq):
                self.settings = settings
            case WindowLearned(model, window) if self._update_newest(f"window {model}", seq):
                self.windows[model] = window
                self.strains[model] = event.count / event.most if event.most else 1.0
            case Instructed() if self._update_newest("instructed", seq):
                self.newest = event
            case Pinned(pinned) if self._update_newest(f"pin {pinned}", seq):
                self.pins[pinned] = seq
            case Unpinned(pinned) if self._update_newest(f"pin {pinned}", seq):
                self.pins.pop(pinned, None)
            case _:
                pass

    def _switch_model(self, seq: int, model: str) -> None:
        if self._update_newest("model", seq) and model != self.model:
            self.model, self.learned, self.counted = model, Learned(), -1

    def _record_usage(self, event: UsageReported) -> None:
        asked = self.find_reported_request(event)
        # A count of what was sent before an edit says nothing of what is sent after it.
        is_late = event.asked is not None and event.asked < max(
            spines.list_edits(self.spine), default=-1
        )
        if asked is not None and event.input is not None and not is_late:
            learned = self.learned.add_report(asked.estimate, event.input)
            if learned is not self.learned:
                self.learned, self.counted = learned, asked.at

    def iterate_newest(self, *kinds: type[_E]) -> Iterator[tuple[int, _E]]:
        """Yield the held events of some kinds, the newest first."""
        for seq in sorted(self.held, reverse=True):
            event = self.held[seq]
            if isinstance(event, kinds):
                yield seq, event

    def _replace_native(self, seq: int, native: Native) -> None:
        """Show an answer in a client's bytes from here on, if it is shown whole."""
        said = self.held.get(seq)
        for at in range(len(self.items) - 1, -1, -1):
            item = self.items[at]
            if item.seq > seq:
                continue
            if isinstance(said, ModelSaid) and (item.seq, item.parts) == (seq, said.parts):
                self._update_totals(item, -1)
                self._summed = None
                self.items[at] = items.make_item(seq, item.role, item.parts, native=native)
                self._update_totals(self.items[at], 1)
            return

    def _update_newest(self, kind: str, seq: int) -> bool:
        """Note an event and return True, unless a newer one of its kind already stands."""
        if seq < self._state.get(kind, seq):
            return False
        self._state[kind] = seq
        return True

    def _apply_instructions(self, seq: int, event: Instructed) -> None:
        self._remember_event(seq, event)
        if self.spine.base is not None and seq <= self.spine.base:
            return  # the fixed part says this, or something newer
        # Instructions in a message of their own stay at that message's place.
        stands = bool(event.native) and bool(self.items or self.waiting)
        if event.replaces or (not self._spoken and not stands):
            self._set_instructions(event)
        elif (event.parts, event.native) != (self._told.parts, self._told.native):
            self._add_or_defer_item(items.make_instruction_item(seq, event, self._told.parts))
            self._told = event

    def _set_instructions(self, event: Event) -> None:
        if isinstance(event, Instructed):
            self.instructions = self._told = event


def load(spine: Spine, events: Mapping[int, Event], *, head: int) -> View:
    """Make a view of the events up to `head` that a spine names."""
    return View(spine, events, head)


def shape(view: View) -> str:
    """Render one line per item: place, role, first words, state."""
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


def _find_last_seq(segment: Range, head: int) -> int:
    return head if segment.hi is None else min(segment.hi, head)
