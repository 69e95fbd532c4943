"""Logs by hand: short names for events, and a conversation that keeps its view and its requests.

Everything here calls the real core; nothing is imitated.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle

from foldline.core import rules
from foldline.core import spine as spines
from foldline.core.edits import fold
from foldline.core.edits.mask import exclude_events as excluded
from foldline.core.edits.undo import undo_edit
from foldline.core.log import (
    Asked,
    Edit,
    Event,
    Logged,
    Masked,
    ModelSaid,
    Opened,
    Speaker,
    ToolReturned,
    UserSaid,
)
from foldline.core.parts import Call, Media, Stub, Text, Thought
from foldline.core.recall import format_handle
from foldline.core.request import render
from foldline.core.spine import Change, Range, Spine
from foldline.core.view import View, load
from foldline.dialects.base import Dialect, list_dialects
from foldline.dialects.openai_chat.dialect import DIALECT as CHAT
from foldline.errors import BadHandle, NotAnEdit, UndoFirst
from foldline.session.planning import say_to_go_on


def user(text: str, *media: Media, speaker: Speaker = "human", author: str = "") -> UserSaid:
    """A message of a person, or of who speaks beside them."""
    return UserSaid((Text(text), *media), speaker=speaker, author=author)


def model(text: str, *media: Media, saw: int | None = None, thought: str = "") -> ModelSaid:
    """An answer, and the signed thought before it."""
    thoughts = (Thought(thought, signature=f"signed {thought}"),) if thought else ()
    return ModelSaid((*thoughts, Text(text), *media), saw=saw)


def calls(
    *ids: str,
    text: str = "",
    saw: int | None = None,
    thought: str = "",
    names: Sequence[str] = ("run",),
) -> ModelSaid:
    """An answer that makes a call for each id, of the named tools in turn."""
    words = (Text(text),) if text else ()
    thoughts = (Thought(thought, signature=f"signed {thought}"),) if thought else ()
    made = (
        Call(one, name, f'{{"n":"{one}"}}') for one, name in zip(ids, cycle(names), strict=False)
    )
    return ModelSaid((*thoughts, *words, *made), saw=saw)


def result(call_id: str, text: str = "done", *media: Media, ok: bool = True) -> ToolReturned:
    """A call's result."""
    return ToolReturned(call_id, (Text(text), *media), ok=ok)


def view_of(events: Iterable[Event]) -> View:
    """The view of a log, event by event."""
    view = load(Spine(), {}, head=-1)
    for event in events:
        view.append(view.head + 1, event)
    return view


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as it was sent, and how many edits and switches lay before it."""

    asked: int
    at: int
    sha256: str
    blocks: tuple[tuple[bytes, ...], ...]
    """What was said, block by block, in each dialect."""
    changes: int


class Conversation:
    """A log that grows, its view, and every request that was sent from it."""

    def __init__(
        self,
        model: str = "test/model",
        *,
        dialect: Dialect = CHAT,
        dialects: Sequence[Dialect] = (),
    ) -> None:
        self.dialect = dialect
        """What its requests are recorded in."""
        self.dialects = tuple(dialects) or tuple(list_dialects())
        """What its requests are compared in."""
        self.events: list[Event] = []
        self.view = view_of(())
        self.sent: list[Sent] = []
        self.changes = 0
        self.add(Opened(model))

    @property
    def log(self) -> list[Logged]:
        """The whole log."""
        return [Logged(seq, event) for seq, event in enumerate(self.events)]

    def add(self, *events: Event) -> None:
        """Append events; an edit that reaches behind the view loads it anew, as a session does."""
        for event in events:
            self.events.append(event)
            if isinstance(event, Edit):
                self.changes += 1
                if not self.view.has_events_for(event.spine):
                    self.view = load(event.spine, dict(self.log), head=len(self.events) - 1)
                    continue
            self.view.append(len(self.events) - 1, event)

    def ask(self) -> Sent:
        """Close what is open, and record what is sent."""
        self.add(*rules.make_closing_events(self.view))
        self.add(*say_to_go_on(self.view, {}, dialect=self.dialect))
        rules.check_view(self.view)
        request = render(self.view)
        body = self.dialect.encode_request(request, {})
        digest = hashlib.sha256(body).hexdigest()
        at = self.view.head
        self.add(Asked(at, self.dialect.name, digest, self.dialect.encoder))
        blocks = tuple(tuple(one.encode_blocks(request)) for one in self.dialects)
        sent = Sent(at + 1, at, digest, blocks, self.changes)
        self.sent.append(sent)
        return sent

    def fold(self, cut: rules.Cut, *, merging: fold.Merging = "all", cap: int = 2_000) -> bool:
        """Fold up to a cut point; False where there is nothing to fold."""
        span = next(fold.up_to(self.view, cut, lo=fold.choose_fold_start(self.view, merging)), None)
        if span is None:
            return False
        wanted = fold.list_events_to_fetch(self.view, span, {})
        material = fold.gather_material(
            self.view, span, {one.lo: self.events[one.lo] for one in wanted}
        )
        self.add(fold.fold_span(self.view, span, fold.build_handoff(span.range, material, cap=cap)))
        return True

    def mask(self, seqs: Sequence[int], *, exclude: bool = False) -> bool:
        """Put stubs over results, or over anything; False where none of them is in sight."""
        if not seqs:
            return False
        if exclude:
            try:
                self.add(excluded(self.view, seqs))
            except (BadHandle, UndoFirst):
                return False
            return True
        stubs = tuple(Stub(seq, f"[result masked]\n[whole: {format_handle(seq)}]") for seq in seqs)
        change = Change(span=Range(min(seqs), max(seqs)), masks_on=(len(self.events),))
        after = spines.apply_spine_change(self.view.spine, change)
        assert after is not None, "a mask takes nothing out"
        self.add(Masked(stubs, change, after))
        return True

    def undo(self, seq: int) -> bool:
        """Take back the edit at a place; False where it does not stand."""
        event = self.events[seq]
        if not isinstance(event, Edit):
            return False
        try:
            self.add(undo_edit(self.view, seq, event))
        except (UndoFirst, NotAnEdit):
            return False
        return True
