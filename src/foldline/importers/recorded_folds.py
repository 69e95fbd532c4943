"""Folds that other agents have made: a recorded compaction hides what its agent sent no more.

    draft = LogDraft.of_stored(stored)     # the log in the store; none for a new session
    new = draft.add_session(imported)      # what to append; None if it is another session

Behind each recorded compaction stands a fold whose text is the agent's own summary and whose
`client` names the agent. It is undone like any other. If an agent went back and took another way,
what it left is put out of sight, and the new way follows; so a file is the same session for as long
as it begins with the same words.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

import msgspec

from foldline.core.edits.fold import fold_span, up_to
from foldline.core.edits.fold.handoff import Handoff
from foldline.core.edits.undo import rewind_view
from foldline.core.log import (
    Asked,
    Checkpointed,
    Edit,
    Event,
    Folded,
    ModelSwitched,
    Opened,
    Pinned,
    Rewound,
    Unpinned,
    UserSaid,
    WindowLearned,
)
from foldline.core.rules import Cut
from foldline.core.spine import Range, Spine
from foldline.core.view import View, load
from foldline.errors import BrokenView
from foldline.importers.draft_log import UNKNOWN
from foldline.importers.source import Imported

COMPACTION, KEPT_FROM = "compaction", "kept from"
_ORIGIN = "import:"
_NAMED = ("claude-code", "codex", "gemini-cli", "opencode", "pi")
"""Agents whose files name their session: two files of one name are two states of it."""


@dataclass(slots=True)
class LogDraft:
    """The log of an imported session, and what is to be appended to it."""

    events: list[Event] = field(default_factory=list[Event])
    times: list[float] = field(default_factory=list[float])
    file_events: list[Event] = field(default_factory=list[Event])
    """The log's events as the file has them: no folds, and places as in the file."""
    places: list[int] = field(default_factory=list[int])
    """Where each of these is in the log."""
    is_used: bool = False
    """Whether a model was asked in it since: it is no copy of the file any more."""
    _view: View = field(default_factory=lambda: load(Spine(), {}, head=-1))

    @classmethod
    def of_stored(cls, stored: Sequence[Event]) -> "LogDraft":
        """Begin with the events of a session in the store."""
        draft = cls(events=[*stored], times=[0.0] * len(stored))
        spine, first = Spine(), stored[0] if stored else None
        unnamed = isinstance(first, Opened) and first.model == UNKNOWN
        for seq, event in enumerate(stored):
            spine = event.spine if isinstance(event, Edit) else spine
            if isinstance(event, Rewound):
                last = max(
                    (one.hi or 0 for one in spine.segments if isinstance(one, Range)), default=0
                )
                while draft.places and last < draft.places[-1] < seq:
                    draft.places.pop()
                    draft.file_events.pop()
            elif isinstance(event, Asked):
                draft.is_used = True
            elif unnamed and isinstance(event, ModelSwitched):
                unnamed = False  # ours: the file has named its model since
            elif not isinstance(event, Edit | Pinned | Unpinned | WindowLearned):
                draft._note_place(seq, event)
        draft._view = load(spine, dict(enumerate(stored)), head=len(stored) - 1)
        return draft

    def add_session(self, session: Imported) -> list[Event] | None:
        """Add what is new in a file; None if the log is of another session."""
        before, coming, times = len(self.events), session.events, _fill_times(session)
        if session.is_log:
            return self._add_exported(coming, times)
        same = _count_same(self.file_events, coming)
        if same < min(len(self.file_events), len(coming)) and not self._rewind(same, coming):
            return None
        kind = _get_kind(coming)
        if kind and not self.is_used and same == len(self.file_events):
            self._catch_up_folds(kind)
        first = coming[0] if coming else None
        if (
            self.file_events
            and isinstance(first, Opened)
            and self._view.model == UNKNOWN != first.model
        ):
            self._append(ModelSwitched(first.model), self.times[-1])  # nobody had answered yet
        for at in range(max(same, len(self.file_events)), len(coming)):
            self._append(self._place_in_log(coming[at]), times[at])
            self.file_events.append(coming[at])
            self.places.append(len(self.events) - 1)
            following = coming[at + 1] if at + 1 < len(coming) else None
            if kind and (following is None or _read_kept(following) is None):
                self._fold_compaction(kind, times[at])
        return self.events[before:]

    def _add_exported(self, coming: Sequence[Event], times: Sequence[float]) -> list[Event] | None:
        """Add what is new in a log of ours: one of the two begins with all of the other."""
        before = len(self.events)
        if list(coming[:before]) != self.events[: len(coming)]:
            return None
        for event, time in zip(coming[before:], times[before:], strict=True):
            self._append(event, time)
        return self.events[before:]

    def _note_place(self, seq: int, event: Event) -> None:
        """Note an event of the file: places in it are those of the file again."""
        if (first := _read_kept(event)) is not None and first in self.places:
            event = Checkpointed(KEPT_FROM, str(self.places.index(first)))
        self.file_events.append(event)
        self.places.append(seq)

    def _place_in_log(self, event: Event) -> Event:
        first = _read_kept(event)
        if first is None or first >= len(self.places):
            return event
        return Checkpointed(KEPT_FROM, str(self.places[first]))

    def _append(self, event: Event, time: float) -> None:
        self.events.append(event)
        self.times.append(time)
        head = len(self.events) - 1
        if isinstance(event, Edit):
            self._view = load(event.spine, dict(enumerate(self.events)), head=head)
        else:
            self._view.append(head, event)

    def _rewind(self, same: int, coming: Sequence[Event]) -> bool:
        """Put out of sight what the agent left; False if it is another session."""
        begun = any(isinstance(one, UserSaid) for one in coming[:same])
        if self.is_used or not begun or _get_kind(coming) not in _NAMED:
            return False
        first, head = self.places[same], len(self.events) - 1
        folds = self._view.list_folds()
        opened = {at: one for at, one in folds.items() if (one.change.span.hi or 0) >= first}
        self._append(
            rewind_view(self._view, dropped=[Range(first, head)], opened=opened), self.times[-1]
        )
        del self.file_events[same:], self.places[same:]
        return True

    def _catch_up_folds(self, kind: str) -> None:
        """Fold the newest compaction of a log that an earlier release imported without."""
        own = [at for at, one in enumerate(self.events) if isinstance(one, Folded)]
        last = max(
            (at for at, one in enumerate(self.events) if _is_checkpoint(one, COMPACTION)),
            default=-1,
        )
        if not own and last >= 0:
            self._fold_compaction(kind, 0.0, at=last)

    def _fold_compaction(self, kind: str, time: float, *, at: int | None = None) -> None:
        """Fold what the compaction at a place, or at the end of the log, has replaced."""
        end = len(self.events) - 1
        last = end if at is None else min(at + 1, end)
        kept = _read_kept(self.events[last])
        if kept is None:
            last = end if at is None else at
        checkpoint = self.events[last if kept is None else last - 1]
        if not _is_checkpoint(checkpoint, COMPACTION) or not checkpoint.body.strip():
            return
        first = last + 1 if kept is None else kept
        view = self._view
        covered = max((one.change.span.hi or 0 for one in view.list_folds().values()), default=-1)
        cut = _find_cut(view, max(first, covered + 1))
        span = next(up_to(view, cut, lo=0), None)
        if span is None:
            return
        words = [item.seq for item in span.items if isinstance(view.held.get(item.seq), UserSaid)]
        try:
            made = fold_span(view, span, Handoff(checkpoint.body, clipped=tuple(words)))
        except BrokenView:  # no place to cut: the compaction stays a note
            return
        self._append(msgspec.structs.replace(made, client=kind, why="", pays_after=None), time)


def _fill_times(session: Imported) -> list[float]:
    """Date events whose record has no time by the next that has one, else by the one before."""
    times = [*session.times] or [0.0] * len(session.events)
    for at in range(len(times) - 2, -1, -1):
        times[at] = times[at] or times[at + 1]
    for at in range(1, len(times)):
        times[at] = times[at] or times[at - 1]
    return times


def _find_cut(view: View, seq: int) -> Cut:
    """Find the cut before an event; a result stays with its call."""
    items = view.items
    later = (at for at, one in enumerate(items) if one.seq >= seq and one.state != "folded")
    index = next(later, len(items))
    while 0 < index < len(items) and items[index].role == "result":
        index -= 1
        seq = min(seq, items[index].seq)
    return Cut(index, seq)


def _count_same(one: Sequence[Event], two: Sequence[Event]) -> int:
    pairs = zip(one, two, strict=False)
    return next(
        (at for at, (a, b) in enumerate(pairs) if not _is_same(a, b)), min(len(one), len(two))
    )


def _is_same(kept: Event, coming: Event) -> bool:
    """Whether an event is the same; a session that nobody had answered in knew no model."""
    if isinstance(kept, Opened) and isinstance(coming, Opened) and kept.model == UNKNOWN:
        return kept.origin == coming.origin
    return kept == coming


def _read_kept(event: Event) -> int | None:
    """Return the place from which on a compaction kept what was said; None for other events."""
    if isinstance(event, Checkpointed) and event.label == KEPT_FROM and event.body.isdecimal():
        return int(event.body)
    return None


def _is_checkpoint(event: Event | None, label: str) -> TypeGuard[Checkpointed]:
    return isinstance(event, Checkpointed) and event.label == label


def _get_kind(events: Sequence[Event]) -> str:
    """Return the agent that a file is of; "" if its log is one of ours."""
    first = events[0] if events else None
    if not isinstance(first, Opened) or not first.origin.startswith(_ORIGIN):
        return ""
    return first.origin.removeprefix(_ORIGIN)
