"""The past of a session, for people: turns, past requests, search, exclusion, trimming.

It reads the whole log in batches; nothing here is needed to continue a conversation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from foldline.core import log
from foldline.core import spine as spines
from foldline.core.edits import fold, mask
from foldline.core.edits.undo import rewind_view
from foldline.core.item import Item, format_speaker_tag
from foldline.core.log import (
    Asked,
    Event,
    Folded,
    Logged,
    ModelSaid,
    Speaker,
    Undone,
    UsageReported,
)
from foldline.core.names import format_handle
from foldline.core.own_words import read_own_words
from foldline.core.parts import calls_of, render_parts
from foldline.core.plan import offers_recall
from foldline.core.request import Report
from foldline.core.spine import Range
from foldline.core.view import View
from foldline.errors import BadInput, NotAnEdit
from foldline.session import planning
from foldline.session.ledger import Ledger
from foldline.session.log_handle import Live, run_locked
from foldline.session.sync import Face, make_sync
from foldline.stores import event_log

if TYPE_CHECKING:
    from foldline.session.fold_records import FoldRecord


@dataclass(frozen=True, slots=True)
class Turn:
    """A message, from a person or scheduled, and everything that answers it."""

    number: int
    """From 1."""
    at: int
    """The place of the message."""
    words: str
    """What was said; scheduled words stand behind a tag that says so."""
    time: float
    """When, in seconds since 1970."""
    calls: int = 0
    """How often the model was called."""
    input: int = 0
    """Input tokens of the last call, as reported or estimated."""
    output: int = 0
    """Output tokens of all calls."""
    read: int = 0
    """Input tokens of the last call that came from the cache."""
    folded: bool = False
    """Whether a fold was made in it."""
    asked: int = -1
    """The place of its last request."""
    answered: int = -1
    """The place of its last answer."""
    speaker: Speaker = "human"
    """Who began it."""

    @property
    def saw(self) -> int:
        """The last place that its last call could show; below 0 if there was no call."""
        return (self.asked if self.asked >= 0 else self.answered) - 1

    @property
    def total(self) -> int:
        """Input and output: what the window held when the turn ended."""
        return self.input + self.output


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message found by a search."""

    session: str
    seq: int
    words: str
    score: float = 0.0
    """How well it fits; only comparable with the other messages of the same search."""
    same: int = 0
    """How many other messages, found too, have the same words."""
    snippet: str = ""
    """The passage with most of what was asked for, on one line."""

    @property
    def handle(self) -> str:
        """The handle by which `recall` gives the whole message."""
        return format_handle(self.seq)


@dataclass(frozen=True, slots=True)
class Changed:
    """An item that differs between two requests."""

    how: Literal["added", "removed", "changed"]
    item: Item
    was: Item | None = None
    """The item in the earlier request, if it changed."""


class AsyncHistory:
    """The past of a session."""

    def __init__(self, live: Live) -> None:
        self.live = live

    async def sent(self, at: int) -> dict[str, Any]:
        """Return a past request, byte for byte; `at` is the place where it was recorded."""
        return msgspec.json.decode(await planning.rebuild_request(self.live, at))

    async def events(self, lo: int = 0, hi: int | None = None) -> list[Logged]:
        """Return a stretch of the log, both ends included; all of it by default."""
        return await self.live.read_events(Range(lo, self.live.view.head if hi is None else hi))

    async def turns(self) -> list[Turn]:
        """Return all turns, oldest first."""
        turns, ledger = list[Turn](), Ledger()
        async for row in event_log.iterate_rows(
            self.live.store, self.live.name, self.live.view.head
        ):
            event = log.decode_event(row.body)
            charge = ledger.apply_event(row.seq, event)
            _count_event(turns, row.seq, row.time, event, calls=charge.calls if charge else 0)
        return turns

    async def folds(self) -> "list[FoldRecord]":
        """Return the record of every fold, oldest first, in force or not."""
        from foldline.session.fold_records import read_fold_records  # noqa: PLC0415 - seldom needed

        return await read_fold_records(self.live, await self.turns())

    async def seen(self, turn: Turn) -> View:
        """Return what the last call of a turn showed, checked against the request's sha256.

        For a session of another agent, without requests: what its log showed up to that answer.
        """
        if turn.saw < 0:
            raise BadInput(f"turn {turn.number} called no model: there is nothing that one saw")
        if turn.asked >= 0:
            await planning.rebuild_request(self.live, turn.asked)
        tail = await event_log.read_tail(self.live.store, self.live.name, at=turn.saw)
        return await tail.load_view()

    async def loss(self, edit: int) -> fold.Loss:
        """Return what a fold took out of the model's sight."""
        found = await self.live.read_events(Range(edit, edit))
        event = found[0].event if found else None
        if not isinstance(event, Folded):
            raise NotAnEdit(f"there is no fold at {edit}")
        tail = await event_log.read_tail(self.live.store, self.live.name, at=edit - 1)
        return fold.measure_loss(tail.build_view(), event)

    async def taken_back(self) -> int | None:
        """Return the newest edit if it is an undo: undo it for a redo.

        The undo of an undo is a redo, and so on.
        """
        head = await self.live.store.head(self.live.name)
        newest = at = -1 if head.edit is None else head.edit.seq
        back = False
        while found := await self.live.read_events(Range(at, at)) if at >= 0 else []:
            one = found[0].event
            if not isinstance(one, Undone):
                break
            back, at = not back, one.edit
        return newest if back else None

    @run_locked
    async def exclude(self, *places: int | str) -> int:
        """Hide messages from the model, by their places or handles.

        Returns the place to undo if you want them back.
        """
        from foldline.core import recall  # noqa: PLC0415 - few sessions ask, and it takes a while

        seqs = [recall.parse_place(one) for one in places]

        async def decide_exclusion() -> Sequence[Event]:
            return [
                mask.exclude_events(
                    self.live.view, seqs, recall=offers_recall(self.live.view, self.live.facts)
                )
            ]

        await self.live.append_decision(decide_exclusion)
        return self.live.view.head

    @run_locked
    async def withdraw_answer(self) -> int | None:
        """Take the newest answer out of the model's sight, so that another one can replace it.

        Returns its place; None if something else is newest. The log keeps it.
        """
        items = self.live.view.items
        last = items[-1] if items else None
        if last is None or last.role != "model" or calls_of(last.parts):
            return None

        async def decide_rewind() -> Sequence[Event]:
            return [rewind_view(self.live.view, dropped=[Range(last.seq, last.seq)])]

        await self.live.append_decision(decide_rewind)
        return last.seq

    @run_locked
    async def trim(self, *, keep: int = 0) -> int:
        """Erase for good what was folded, except its newest `keep` events; return how many.

        Their handles answer "erased" from then on, and requests of that time cannot be rebuilt.
        """
        if keep < 0:
            raise BadInput(f"{keep} events cannot be kept; give 0 or more")
        view, store = self.live.view, self.live.store
        segments = [one for one in view.spine.segments if isinstance(one, Range)]
        folds = [*view.list_folds().values()]
        read_again = [seq for one in folds for seq in one.starts]  # by policies with an overlap
        floor = max(min([one.lo for one in segments] + read_again) - keep, 0)
        head = await store.head(self.live.name)
        # What the view is made of, and what its folds quote: the next fold quotes it again.
        quoted = [seq for one in folds for seq in (*one.verbatim, *one.clipped)]
        needed = {*spines.list_needed_events(view.spine), *quoted, *view.pins}
        needed |= {head.edit.seq} if head.edit else set()
        return await store.trim(self.live.name, floor, keep=sorted(needed))

    async def search(
        self, words: str, *, everywhere: bool = False, limit: int = 20, owner: str | None = None
    ) -> list[FoundMessage]:
        """Find messages with any of the words, best first.

        `everywhere` searches all sessions of the tenant, with `owner` only that owner's. A query
        in double quotes finds only messages with exactly these words.
        """
        from foldline.session.message_search import search_tenant_messages  # noqa: PLC0415 - seldom needed

        name = self.live.name
        spoken = [item.seq for item in _list_shown_items(self.live.view) if item.role == "user"]
        return await search_tenant_messages(
            self.live.store,
            name.tenant,
            words,
            session=None if everywhere else name.session,
            limit=limit,
            owner=owner,
            asked=None if everywhere else max(spoken, default=None),
        )


def diff_views(before: View | None, after: View) -> list[Changed]:
    """List what differs between two views: first what was removed, then what is new or changed."""
    old = {(item.seq, item.role): item for item in _list_shown_items(before)}
    new = {(item.seq, item.role): item for item in _list_shown_items(after)}
    gone = [Changed("removed", item) for key, item in old.items() if key not in new]
    here = [
        Changed("changed" if key in old else "added", item, old.get(key))
        for key, item in new.items()
        if old.get(key) != item
    ]
    return [*gone, *here]


def _list_shown_items(view: View | None) -> tuple[Item, ...]:
    return () if view is None else (*view.items, *view.waiting)


def _count_event(turns: list[Turn], seq: int, time: float, event: Event, *, calls: int) -> None:
    if log.begins_turn(event):
        words = read_own_words(event.parts) or " ".join(render_parts(event.parts).split())
        if not log.by_user(event):
            words = f"{format_speaker_tag(event, words)} {words}"
        turns.append(Turn(len(turns) + 1, seq, words, time, speaker=event.speaker))
        return
    if not turns:
        return
    now = turns[-1]
    match event:
        case Asked(tokens=tokens):
            change: dict[str, Any] = {"asked": seq, "input": tokens}
        case ModelSaid():
            change = {"calls": now.calls + calls, "answered": seq}
        case UsageReported():
            change = {
                "calls": now.calls + calls,
                "input": event.input or now.input,  # a call that broke off is counted as 0
                "output": now.output + (event.output or 0),
                "read": event.cache_read or 0,
            }
        case Folded():
            change = {"folded": True}
        case _:
            return
    turns[-1] = replace(now, **change)


def measure_growth(turns: Sequence[Turn]) -> float:
    """Return the tokens that a turn without a fold adds to the window, on average."""
    counted = [turn for turn in turns if turn.input]  # the others have no counts
    grown = [after.total - before.total for before, after in pairwise(counted) if not after.folded]
    grown = [more for more in grown if more > 0]
    return sum(grown) / len(grown) if grown else 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a session fills its window, in tokens."""

    growth: int
    """What a turn adds, on average."""
    turns_left: int | None
    """The turns that still fit at that pace; None if unknown."""
    next_output: int | None
    """The expected length of the next answer."""
    latest: int = 0
    """What the newest turn added; only its output if it made a fold."""


def measure_pace(turns: Sequence[Turn], now: Report) -> Pace:
    """Measure how fast turns filled the window, and how many more fit."""
    grown = measure_growth(turns)
    free = now.room - (now.total - now.parts["system"] - now.parts["tools"])
    answers = [turn.output for turn in turns if turn.output]
    return Pace(
        round(grown),
        int(max(free, 0) / grown) if grown else None,
        round(sum(answers) / len(answers)) if answers else None,
        _measure_latest_growth(turns),
    )


def _measure_latest_growth(turns: Sequence[Turn]) -> int:
    if not turns:
        return 0
    newest = turns[-1]
    grown = newest.total - (turns[-2].total if len(turns) > 1 else 0)
    return newest.output if newest.folded or grown < 0 else grown


class History(Face[AsyncHistory]):
    """The past of a session, for sync code."""

    sent = make_sync(AsyncHistory.sent)
    events = make_sync(AsyncHistory.events)
    turns = make_sync(AsyncHistory.turns)
    folds = make_sync(AsyncHistory.folds)
    seen = make_sync(AsyncHistory.seen)
    loss = make_sync(AsyncHistory.loss)
    taken_back = make_sync(AsyncHistory.taken_back)
    exclude = make_sync(AsyncHistory.exclude)
    withdraw_answer = make_sync(AsyncHistory.withdraw_answer)
    search = make_sync(AsyncHistory.search)
    trim = make_sync(AsyncHistory.trim)
