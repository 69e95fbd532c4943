"""What happened in a session, for people: turns, past requests, search, what is kept out of sight.

Knows the whole log and reads it in pieces; nothing here is needed to go on talking. Refuses to
decide anything that a plan decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import msgspec

from foldline.core import log
from foldline.core import spine as spines
from foldline.core.edits import fold, mask
from foldline.core.item import Item
from foldline.core.log import (
    Asked,
    Event,
    Folded,
    Logged,
    ModelSaid,
    Undone,
    UsageReported,
)
from foldline.core.parts import retold
from foldline.core.request import Report
from foldline.core.spine import Range
from foldline.core.view import View
from foldline.errors import BadInput, NotAnEdit
from foldline.session import planning
from foldline.session.log_handle import Live, alone
from foldline.session.sync import Face, verb
from foldline.stores import event_log
from foldline.stores.base import Name, Store


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of a person and all that answers it: A-40, A-41."""

    number: int
    """From 1."""
    at: int
    """The place of the message."""
    words: str
    """What was said."""
    time: float
    """When, in seconds since 1970."""
    calls: int = 0
    """How often the model was asked in it."""
    input: int = 0
    """What the provider counted for its last call, or what was believed."""
    output: int = 0
    """What all of its answers took."""
    read: int = 0
    """How much of that its cache held."""
    folded: bool = False
    """Whether a fold was made in it."""
    asked: int = -1
    """Where its last request was recorded."""
    answered: int = -1
    """Where its last answer is."""

    @property
    def saw(self) -> int:
        """The last place that its last call could show; below 0 where none was made."""
        return (self.asked if self.asked >= 0 else self.answered) - 1

    @property
    def total(self) -> int:
        """Input and output of the last call: what the window held when the turn ended."""
        return self.input + self.output


@dataclass(frozen=True, slots=True)
class Found:
    """A message that a search found."""

    session: str
    seq: int
    words: str


@dataclass(frozen=True, slots=True)
class Changed:
    """An item that one request shows and another does not, or not so."""

    how: Literal["added", "removed", "changed"]
    item: Item
    was: Item | None = None
    """The same item in the request before, where it was another."""


class AsyncHistory:
    """The past of a session."""

    def __init__(self, live: Live) -> None:
        self.live = live

    async def sent(self, at: int) -> dict[str, Any]:
        """A past request again, byte for byte: `at` is the place where it was recorded."""
        return msgspec.json.decode(await planning.sent(self.live, at))

    async def events(self, lo: int = 0, hi: int | None = None) -> list[Logged]:
        """A stretch of the log as it was written, both ends included; all of it if not said."""
        return await self.live.events(Range(lo, self.live.view.head if hi is None else hi))

    async def turns(self) -> list[Turn]:
        """Every turn, oldest first."""
        turns: list[Turn] = []
        async for row in event_log.walk(self.live.store, self.live.name, self.live.view.head):
            _count(turns, row.seq, row.time, log.decode(row.body))
        return turns

    async def seen(self, turn: Turn) -> View:
        """What the last call of a turn showed; a request that was recorded is held to its sha256.

        Of a session that another agent sent, what its log had shown up to that answer.
        """
        if turn.saw < 0:
            raise BadInput(f"turn {turn.number} called no model: there is nothing that one saw")
        if turn.asked >= 0:
            await planning.sent(self.live, turn.asked)
        tail = await event_log.tail(self.live.store, self.live.name, at=turn.saw)
        return tail.view()

    async def loss(self, edit: int) -> fold.Loss:
        """What a fold took out of the model's sight: R-38."""
        found = await self.live.events(Range(edit, edit))
        event = found[0].event if found else None
        if not isinstance(event, Folded):
            raise NotAnEdit(f"there is no fold at {edit}")
        tail = await event_log.tail(self.live.store, self.live.name, at=edit - 1)
        return fold.loss(tail.view(), event)

    async def taken_back(self) -> int | None:
        """The newest edit, where it took one back: what to undo for a redo.

        The undoing of an undoing is a redo, and so on.
        """
        head = await self.live.store.head(self.live.name)
        newest = at = -1 if head.edit is None else head.edit.seq
        back = False
        while found := await self.live.events(Range(at, at)) if at >= 0 else []:
            one = found[0].event
            if not isinstance(one, Undone):
                break
            back, at = not back, one.edit
        return newest if back else None

    @alone
    async def exclude(self, *places: int | str) -> int:
        """Take messages out of the model's sight, by their places or handles.

        Gives the place to undo if you want them back.
        """
        from foldline.core import recall  # noqa: PLC0415 - few sessions ask, and it takes a while

        seqs = [recall.place(one) for one in places]

        async def excluding() -> Sequence[Event]:
            return [mask.exclude(self.live.view, seqs)]

        await self.live.decide(excluding)
        return self.live.view.head

    @alone
    async def trim(self, *, keep: int = 0) -> int:
        """Erase for good what was folded away, but its newest `keep` events; how many went.

        Their handles answer "erased" from then on, and requests of that time cannot be rendered.
        """
        if keep < 0:
            raise BadInput(f"{keep} events cannot be kept; give 0 or more")
        view, store = self.live.view, self.live.store
        segments = [one for one in view.spine.segments if isinstance(one, Range)]
        folds = [*view.folds().values()]
        read_again = [seq for one in folds for seq in one.starts]  # by presets with an overlap
        floor = max(min([one.lo for one in segments] + read_again) - keep, 0)
        head = await store.head(self.live.name)
        # What the view is made of, and what its folds quote: the next fold quotes that again.
        quoted = [seq for one in folds for seq in (*one.verbatim, *one.clipped)]
        needed = {*spines.needs(view.spine), *quoted, *view.pins}
        needed |= {head.edit.seq} if head.edit else set()
        return await store.trim(self.live.name, floor, keep=sorted(needed))

    async def search(
        self, words: str, *, everywhere: bool = False, limit: int = 20, owner: str | None = None
    ) -> list[Found]:
        """Messages that hold all of some words, the newest first.

        `everywhere`: in all sessions of the tenant; with `owner` in those of that owner.
        """
        name = self.live.name
        session = None if everywhere else name.session
        return await search(
            self.live.store, name.tenant, words, session=session, limit=limit, owner=owner
        )


async def search(  # noqa: PLR0913 - what the store narrows a search by
    store: Store,
    tenant: str,
    words: str,
    *,
    session: str | None = None,
    limit: int = 20,
    owner: str | None = None,
) -> list[Found]:
    """Messages of a tenant that hold all of some words, the newest first."""
    found: list[Found] = []
    for hit in await store.search(tenant, words, session=session, limit=limit, owner=owner):
        rows = await store.read(Name(tenant, hit.session), [(hit.seq, hit.seq)])
        found += (Found(hit.session, hit.seq, event_log.words(row.body)) for row in rows)
    return found


def difference(before: View | None, after: View) -> list[Changed]:
    """What of one view another does not show so: what went, then what came, in their order."""
    old = {(item.seq, item.role): item for item in _shown(before)}
    new = {(item.seq, item.role): item for item in _shown(after)}
    gone = [Changed("removed", item) for key, item in old.items() if key not in new]
    here = [
        Changed("changed" if key in old else "added", item, old.get(key))
        for key, item in new.items()
        if old.get(key) != item
    ]
    return [*gone, *here]


def _shown(view: View | None) -> tuple[Item, ...]:
    return () if view is None else (*view.items, *view.waiting)


def _count(turns: list[Turn], seq: int, time: float, event: Event) -> None:
    """Take one event into the turns so far."""
    if log.by_user(event):
        words = " ".join(retold(event.parts).split())
        turns.append(Turn(len(turns) + 1, seq, words, time))
        return
    if not turns:
        return
    now = turns[-1]
    match event:
        case Asked(tokens=tokens):
            change: dict[str, Any] = {"asked": seq, "input": tokens}
        case ModelSaid():
            change = {"calls": now.calls + 1, "answered": seq}
        case UsageReported():
            change = {
                "input": event.input or now.input,  # a call that broke off is counted as 0
                "output": now.output + (event.output or 0),
                "read": event.cache_read or 0,
            }
        case Folded():
            change = {"folded": True}
        case _:
            return
    turns[-1] = replace(now, **change)


def growth(turns: Sequence[Turn]) -> float:
    """How much a turn adds to the window, on average, where nothing was folded: A-41."""
    counted = [turn for turn in turns if turn.input]  # of the others nothing is known
    grown = [after.total - before.total for before, after in pairwise(counted) if not after.folded]
    grown = [more for more in grown if more > 0]
    return sum(grown) / len(grown) if grown else 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a session fills its window: A-41."""

    growth: int
    """What a turn adds, on average."""
    turns_left: int | None
    """The turns that still fit at that pace; None where it is not known."""
    next_output: int | None
    """How long the next answer may be expected to be."""
    latest: int = 0
    """What the newest turn has added; what it said, where a fold lies between."""


def pace(turns: Sequence[Turn], now: Report) -> Pace:
    """How fast some turns filled the window, and for how long that can go on: A-41."""
    grown = growth(turns)
    free = now.room - (now.total - now.parts["system"] - now.parts["tools"])
    answers = [turn.output for turn in turns if turn.output]
    return Pace(
        round(grown),
        int(max(free, 0) / grown) if grown else None,
        round(sum(answers) / len(answers)) if answers else None,
        _latest(turns),
    )


def _latest(turns: Sequence[Turn]) -> int:
    if not turns:
        return 0
    newest = turns[-1]
    grown = newest.total - (turns[-2].total if len(turns) > 1 else 0)
    return newest.output if newest.folded or grown < 0 else grown


class History(Face[AsyncHistory]):
    """The past of a session, for code without `await`."""

    sent = verb(AsyncHistory.sent)
    events = verb(AsyncHistory.events)
    turns = verb(AsyncHistory.turns)
    seen = verb(AsyncHistory.seen)
    loss = verb(AsyncHistory.loss)
    taken_back = verb(AsyncHistory.taken_back)
    exclude = verb(AsyncHistory.exclude)
    search = verb(AsyncHistory.search)
    trim = verb(AsyncHistory.trim)
