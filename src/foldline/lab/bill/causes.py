"""Why a call found no cache: what the record says was different since the call before.

Knows what a provider's cache depends on (model, tools, system's words, thinking, the messages, the
time) and where a record shows each. Refuses to know prices.

What is on record is told as a fact. Where a record is silent, what was counted still says
something: if not even the front was found at a person's first call of a turn, the front was another
one, and that is told as a guess.
"""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec

from foldline.core.log import (
    Asked,
    Checkpointed,
    Clipped,
    Event,
    Excluded,
    Folded,
    Instructed,
    Masked,
    ModelSaid,
    ModelSwitched,
    Opened,
    Rewound,
    ToolReturned,
    Undone,
    UserSaid,
    by_user,
)
from foldline.core.tokens import count
from foldline.importers.base import Mark
from foldline.lab.bill.advice import span
from foldline.lab.bill.cache import CacheRules, Cause
from foldline.lab.recorded import Recorded, RecordedCall

_THINKING = ("thinking", "reasoning", "reasoning_effort", "output_config", "effort")
"""Parameters of a request that say how much is thought."""


@dataclass(frozen=True, slots=True)
class RequestState:
    """What a request is made with, beside its messages."""

    model: str = ""
    told: Instructed = field(default_factory=Instructed)
    thinking: str = ""
    life: float = 0.0
    """The seconds that its cache was asked to live; 0: not on record."""


@dataclass(frozen=True, slots=True)
class Around:
    """What happened between a call and the one before that was billed."""

    at: int
    state: RequestState
    before: RequestState
    turn: bool
    """Whether a person spoke."""
    edited: str = ""
    """Which edit was made, if any."""
    wrote: int = 0
    """The tokens that the edits put in place of others, as estimated."""
    restarted: str = ""
    """What the file says of another process."""
    at_once: bool = False
    """Whether the answer followed another with nothing said between: two were running."""


class ColdCause(NamedTuple):
    """The cause of a cold call."""

    cause: Cause
    sure: bool = True
    """Whether the record says so; else it is a guess from what was counted."""
    told: str = ""


def around(recorded: Recorded) -> dict[int, Around]:
    """What preceded every call, by its place; calls that were not billed leave no state."""
    billed = {call.at for call in recorded.calls if call.input or not recorded.counts}
    first = recorded.events[0] if recorded.events else None
    grows = isinstance(first, Opened) and first.origin.startswith("import:")
    walk, found = _LogWalk(grows), dict[int, Around]()
    marks = sorted(recorded.marks, key=lambda mark: mark.at)
    for at, event in enumerate(recorded.events):
        while marks and marks[0].at <= at:
            walk.mark(marks.pop(0))
        if isinstance(event, ModelSaid):
            found[at] = walk.call(at, billed=at in billed)
        else:
            walk.take(event)
    return found


@dataclass(slots=True)
class _LogWalk:
    """Where a walk through a log stands."""

    grows: bool
    """Whether instructions are a file's, which come piece by piece."""
    now: RequestState = field(default_factory=RequestState)
    before: RequestState = field(default_factory=RequestState)
    chosen: str = ""
    """The level of thinking that the next turn takes up."""
    turn: bool = False
    spoken: bool = True
    """Whether anything was said to the model since its last answer."""
    edited: str = ""
    wrote: int = 0
    restarted: str = ""

    def mark(self, mark: Mark) -> None:
        """What the file says beside the events."""
        match mark.kind:
            case "restart":
                self.restarted = mark.told
            case "life":
                self.now = replace(self.now, life=float(mark.told))
            case "thinking":
                self.chosen = mark.told
                self.now = replace(self.now, thinking=mark.told)

    def call(self, at: int, *, billed: bool) -> Around:
        """The model answered."""
        made = Around(
            at,
            self.now,
            self.before,
            self.turn,
            edited=self.edited,
            wrote=self.wrote,
            restarted=self.restarted,
            at_once=not self.spoken,
        )
        self.spoken = False
        if billed:
            self.before, self.turn = self.now, False
            self.edited, self.wrote, self.restarted = "", 0, ""
        return made

    def take(self, event: Event) -> None:
        """Anything else happened."""
        match event:
            case Opened(model) | ModelSwitched(model):
                self.now = replace(self.now, model=model)
            case Instructed() if not event.aside:
                told = _front(self.now.told, event, grows=self.grows)
                self.now = replace(self.now, told=told)
            case Checkpointed("thinking", level):
                self.chosen = level
            case Checkpointed("compaction"):
                self.edited = "a compaction"  # its summary is one of the call's messages
            case Asked():
                self.chosen = _asked(event)
                self.now = replace(self.now, thinking=self.chosen)
            case UserSaid() | ToolReturned():
                self.spoken = True
                if by_user(event):
                    # Agents take up a level with a person's message: changed in the middle of a
                    # turn it leaves that turn's requests as they were.
                    self.turn = True
                    self.now = replace(self.now, thinking=self.chosen)
            case Folded():
                self.edited, self.wrote = "a fold", self.wrote + count(event.text)
            case Masked() | Clipped() | Excluded() | Undone() | Rewound():
                self.edited = "an edit"
            case _:
                pass


def _front(before: Instructed, now: Instructed, *, grows: bool) -> Instructed:
    """The front from here on; a file whose instructions only grow sends the new ones further on."""
    same = now.tools == before.tools and now.parts[: len(before.parts)] == before.parts
    return before if grows and before.parts and same else now


def _asked(event: Asked) -> str:
    """What a request of ours said of thinking."""
    try:
        given = msgspec.json.decode(event.parameters, type=dict[str, Any])
    except msgspec.DecodeError:
        return ""
    told = {key: given[key] for key in _THINKING if key in given}
    return msgspec.json.encode(told, order="sorted").decode() if told else "none"


def cause(  # noqa: PLR0913 - everything that a cache depends on
    now: Around,
    call: RecordedCall,
    before: RecordedCall | None,
    *,
    gap: float,
    front: float,
    rules: CacheRules,
) -> ColdCause:
    """Why a call that should have found a cache did not: what explains all of it comes first.

    `front` is what its system prompt and tools take, as far as it is known.
    """
    if before is None:
        return ColdCause("first")
    on_record = changed(now)
    if on_record.cause:
        return on_record
    if now.edited:
        return ColdCause("edit", told=now.edited)
    if gap > rules.seconds:
        return ColdCause("expired", told=f"a cache lives {span(rules.seconds)}")
    if (before.input or 0) < rules.least:
        return ColdCause("too short", told=f"{before.input or 0:,} of {rules.least:,} tokens")
    return _guessed(now, call, before, front=front, rules=rules)


def changed(now: Around) -> ColdCause:
    """What the record itself says was changed at the front."""
    old, new = now.before, now.state
    if old.model and new.model != old.model:
        return ColdCause("model", told=f"{_last(old.model)} → {_last(new.model)}")
    if new.told.tools != old.told.tools:
        return ColdCause("tools")
    if (new.told.parts, new.told.native) != (old.told.parts, old.told.native):
        return ColdCause("system")
    if now.restarted:
        return ColdCause("restart", told=now.restarted)
    if old.thinking and new.thinking != old.thinking:
        return ColdCause("thinking", told=_levels(old.thinking, new.thinking))
    return ColdCause("")


def _guessed(
    now: Around, call: RecordedCall, before: RecordedCall, *, front: float, rules: CacheRules
) -> ColdCause:
    """What counts say where the record says nothing."""
    if now.at_once:
        return ColdCause("restart", sure=False, told="two processes at once")
    if (call.input or 0) < (before.input or 0):
        if call.read >= rules.least:
            return ColdCause("edit", sure=False, told="less was sent than before")
        return ColdCause("restart", sure=False, told="an older state was sent")
    if call.read < rules.least:
        if now.turn:
            alone = front >= rules.least  # then it would have been found without the messages
            told = "not even the front was found" if alone else "nothing was found"
            return ColdCause("system", sure=False, told=told)
        return ColdCause("missed", told="nothing found, inside a turn")
    return ColdCause("missed", told=f"{call.read:,} of {before.input or 0:,} tokens found")


def _levels(old: str, new: str) -> str:
    plain = all(len(one) <= 12 for one in (old, new))  # noqa: PLR2004 - a level, not parameters
    return f"{old} → {new}" if plain else "other parameters"


def _last(model: str) -> str:
    return model.rpartition("/")[2]
