"""The calls of a session: found near a place of its log, each with what it showed and what it cost.

A place is all that is needed: the rows around it are read, never the whole log. A session of
another agent records no requests; its answers then take their place.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from foldline.core import log
from foldline.core.budget import measure_budget
from foldline.core.fold_selection import Facts
from foldline.core.log import (
    Asked,
    Event,
    Instructed,
    UsageReported,
    UserSaid,
    by_user,
)
from foldline.core.names import format_count
from foldline.core.spine import Range, Spine
from foldline.core.view import View, load
from foldline.lab.bill.cache import rules_for
from foldline.lab.bill.causes import (
    CallContext,
    RequestState,
    find_cold_cause,
    format_duration,
    parse_thinking_parameters,
)
from foldline.lab.recorded import RecordedCall
from foldline.session.history import Changed
from foldline.stores import event_log
from foldline.stores.base import Name, Row, Store

_NEAR = 64  # rows read on each side of a place, doubled until there are calls
_FAR = 8_192
_BEFORE = 16  # rows in which the request of an answer is looked for
_HELD = 3_000  # events of a view that is loaded whole
_OPENING = 4  # events that begin a log
NEWEST = 1_000  # events that are loaded of a larger one
_TELLING = frozenset(("asked", "model_said", "usage_reported"))
_EDITS = frozenset(("masked", "folded", "clipped", "excluded", "undone", "rewound"))
_FRONT = frozenset(("opened", "settings_changed", "model_switched", "instructed"))
_SOME, _SHARE = 1_000, 0.1  # tokens, and share: with less read again, a call is no miss


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """One call of a model, as its session's log has it."""

    at: int
    """Where its request was recorded; without one, its answer."""
    shown: int
    """The last event that it shows."""
    time: float
    asked: Asked | None = None
    answered: int = -1
    """The place of its answer; -1 if there is none."""
    usage: UsageReported | None = None

    @property
    def tokens(self) -> int:
        """Its input, as the provider counted it, or estimated."""
        counted = self.usage.input if self.usage else None
        return counted if counted is not None else self.asked.tokens if self.asked else 0

    @property
    def is_reported(self) -> bool:
        """Whether that is the provider's count."""
        return self.usage is not None and self.usage.input is not None


@dataclass(frozen=True, slots=True)
class NearbyCalls:
    """A call, its neighbours, and the edits around it."""

    calls: tuple[LoggedCall, ...]
    """All that were read, in order."""
    index: int
    """Which of them was asked for; -1 if there is none."""
    rows: tuple[Row, ...]

    @property
    def current(self) -> LoggedCall | None:
        """The call that was asked for."""
        return self.calls[self.index] if self.index >= 0 else None

    @property
    def before(self) -> LoggedCall | None:
        """The call before it."""
        return self.calls[self.index - 1] if self.index > 0 else None

    @property
    def following(self) -> LoggedCall | None:
        """The call after it."""
        return self.calls[self.index + 1] if 0 <= self.index < len(self.calls) - 1 else None

    def changed_front(self, lo: int, hi: int) -> bool:
        """Whether edits, models or instructions changed between two places."""
        return any(lo <= row.seq <= hi and row.kind in _FRONT | _EDITS for row in self.rows)

    def list_edits(self, lo: int, hi: int) -> list[Row]:
        """List the edits between two places, both included."""
        return [row for row in self.rows if lo <= row.seq <= hi and row.kind in _EDITS]


async def find_calls(store: Store, name: Name, at: int, *, head: int) -> NearbyCalls:
    """Find the last call at or before a place, else the first, and those around it."""
    near = _NEAR
    while True:
        lo, hi = max(at - near, 0), min(at + near, head)
        rows = await store.read(name, [(max(lo - _BEFORE, 0), hi)])
        calls = [one for one in _collect_calls(rows) if one.at >= lo]
        past = sum(one.at <= at for one in calls)
        whole = (lo == 0 and hi == head) or near >= _FAR
        if whole or ((past > 1 or lo == 0) and (past < len(calls) or hi == head)):
            break
        near *= 2
    index = past - 1 if past else 0 if calls else -1
    return NearbyCalls(tuple(calls), index, tuple(rows))


def _collect_calls(rows: Sequence[Row]) -> list[LoggedCall]:
    calls: list[LoggedCall] = []
    for row in rows:
        if row.kind not in _TELLING:
            continue
        event = log.decode_event(row.body)
        last = calls[-1] if calls else None
        match event:
            case Asked():
                calls.append(LoggedCall(row.seq, event.at, row.time, event))
            case log.ModelSaid() if last and last.asked and last.answered < 0:
                calls[-1] = _replace_call(last, answered=row.seq)
            case log.ModelSaid():
                saw = row.seq - 1 if event.saw is None else event.saw
                calls.append(LoggedCall(row.seq, saw, row.time, answered=row.seq))
            case UsageReported() if last and last.usage is None:
                calls[-1] = _replace_call(last, usage=event)
            case _:
                pass
    return calls


def _replace_call(
    call: LoggedCall, *, answered: int | None = None, usage: UsageReported | None = None
) -> LoggedCall:
    return LoggedCall(
        call.at,
        call.shown,
        call.time,
        call.asked,
        call.answered if answered is None else answered,
        usage or call.usage,
    )


@dataclass(frozen=True, slots=True)
class BoundedView:
    """What a model saw at a place; of a view too large to be shown at once, only a part."""

    view: View
    left_out: int = 0
    """How many events of the view were not loaded."""
    first: int = 0
    """The first place of the part; 0 if nothing before it was left out."""
    last: int = -1
    """The last place of the part; -1 if nothing after it was left out."""


async def load_view(store: Store, name: Name, at: int, *, until: int | None = None) -> BoundedView:
    """Load the view at a place, in time that does not depend on the log's length.

    Of one that is too large, the newest events are loaded, or those up to `until`.
    """
    head = await store.head(name, at=at)
    spine = _SPINES.decode(head.edit.body).spine if head.edit else Spine()
    live = event_log.list_live_spans(spine, head.seq)
    held = sum(max(_end_of(one) - one.lo + 1, 0) for one in live)
    first, last = 0, -1
    if held > _HELD:
        end = head.seq if until is None else max(min(until, head.seq), 0)
        first, last = max(end - NEWEST + 1, 0), end if end < head.seq else -1
        spine = _narrow_spine(spine, first, end)
        live = event_log.list_live_spans(spine, head.seq)
    events = dict(await event_log.read_events(store, name, *live))
    view = load(spine, events, head=head.seq)
    return BoundedView(view, max(held - len(events), 0), first, last)


def _narrow_spine(spine: Spine, first: int, end: int) -> Spine:
    """Keep one part of a spine, and the model and the instructions."""
    kept = [
        Range(max(one.lo, first), end if one.hi is None else min(one.hi, end))
        if isinstance(one, Range)
        else one
        for one in spine.segments
        if not isinstance(one, Range) or (one.lo <= end and (one.hi is None or one.hi >= first))
    ]
    opening = () if spine.standing else range(min(_OPENING, first))
    standing = tuple(sorted({*spine.standing, *opening}))
    return msgspec.structs.replace(spine, segments=tuple(kept), standing=standing)


def _end_of(span: Range) -> int:
    return span.lo if span.hi is None else span.hi


@dataclass(frozen=True, slots=True)
class CacheFinding:
    """What a call found in its provider's cache."""

    kind: str
    """hit, part, miss, first or unknown."""
    words: str
    share: float | None = None
    """The part of the input that was read from the cache."""


_CAUSES = {
    "model": "another model was asked, and a cache belongs to one model",
    "system": "the system prompt changed",
    "tools": "the tools changed",
    "thinking": "the level of thinking changed",
    "restart": "another process went on with the session",
    "expired": "more time had passed than the cache lives",
    "edit": "an edit changed what had been sent",
    "too short": "what had been sent is shorter than the provider keeps",
    "out of reach": "the mark was too far away",
    "missed": "nothing in the log explains it: the provider had dropped it",
}


def explain_cache(near: NearbyCalls, view: View, past: View | None, facts: Facts) -> CacheFinding:
    """Say what the current call found in the cache, and why not more."""
    call, before = near.current, near.before
    used = call.usage if call else None
    if call is None or used is None or not used.input:
        return CacheFinding("unknown", "the provider has not said what it counted")
    read = min(used.cache_read or 0, used.input)
    share = read / used.input
    if before is None or past is None:
        if used.cache_read:
            return CacheFinding("hit", "read from the cache of an earlier conversation", share)
        return CacheFinding("first", "it is the first: there was nothing to be found", share)
    if used.cache_read is None and used.cache_write is None:
        return CacheFinding("unknown", "the provider says nothing about a cache")
    known = min(before.usage.input or 0 if before.usage else 0, used.input)
    again = max(known - read, 0)
    if again < _SOME or again < _SHARE * known:
        if not read:
            return CacheFinding("miss", "what had been sent before is too little to be kept", 0.0)
        return CacheFinding("hit", "all but what is new was read from the cache", share)
    cause, sure, detail = find_cold_cause(
        _describe_surroundings(near, call, before, view, past),
        _record_call(call),
        _record_call(before),
        gap=max(call.time - before.time, 0.0),
        front=float(_measure_front(view, facts)),
        rules=rules_for(view.model, facts.prices),
    )
    said = _CAUSES.get(cause, cause)
    if cause == "expired":
        said += f": {format_duration(call.time - before.time)} since the request before; {detail}"
    elif detail and cause != "missed":
        said += f" ({detail})"
    doubt = "" if sure else "; this is a guess from the counts"
    words = f"{again:,} tokens were sent again: {said}{doubt}"
    return CacheFinding("part" if read else "miss", words, share)


def _describe_surroundings(
    near: NearbyCalls, call: LoggedCall, before: LoggedCall, view: View, past: View
) -> CallContext:
    edited, spoke, heard = "", False, False
    for row in near.rows:
        if not before.at < row.seq <= call.shown + 1:
            continue
        if row.kind in _EDITS:
            edited = "a fold" if row.kind == "folded" else edited or "an edit"
        elif row.kind in ("user_said", "tool_returned"):
            heard = True
            event = log.decode_event(row.body) if row.kind == "user_said" else None
            spoke = spoke or (isinstance(event, UserSaid) and by_user(event))
    return CallContext(
        call.at,
        _describe_request(call, view),
        _describe_request(before, past),
        spoke,
        edited=edited,
        at_once=not heard and not edited,
    )


def _describe_request(call: LoggedCall, view: View) -> RequestState:
    instructed = Instructed(view.instructions.parts, view.newest.tools)
    thinking = parse_thinking_parameters(call.asked) if call.asked else ""
    return RequestState(model=view.model, instructed=instructed, thinking=thinking)


def _record_call(call: LoggedCall) -> RecordedCall:
    used = call.usage or UsageReported()
    return RecordedCall(
        at=call.at,
        time=call.time,
        messages=(),
        input=used.input,
        read=used.cache_read or 0,
        write=used.cache_write or 0,
        output=used.output or 0,
        missed=False,
        began=call.time,
    )


def _measure_front(view: View, facts: Facts) -> int:
    budget = measure_budget(view, facts.limits)
    return budget.system + budget.tools


class EditSummary(msgspec.Struct, frozen=True):
    """What is said of an edit in a list: decoding all of a fold would take longer."""

    kind: str
    messages: int = 0
    before: int = 0
    after: int = 0
    edit: int = 0
    stubs: tuple[msgspec.Raw, ...] = ()

    def describe(self) -> str:
        """Name the edit in a few words."""
        stubs = len(self.stubs)
        match self.kind:
            case "folded":
                sizes = f"{self.before:,} → {self.after:,} tokens"
                return f"fold of {format_count(self.messages, 'message')}, {sizes}"
            case "masked":
                return f"mask of {format_count(stubs, 'result')}"
            case "clipped":
                return f"clip of {format_count(stubs, 'message')} after a refusal"
            case "excluded":
                return f"{format_count(stubs, 'message')} taken out of sight"
            case "undone":
                return f"edit {self.edit:,} taken back"
            case "rewound":
                return "the client's history shows other messages"
            case _:
                return self.kind


class _SpineAlone(msgspec.Struct, frozen=True):
    """Of an edit, the spine after it."""

    spine: Spine


_SUMMARIES = msgspec.json.Decoder(EditSummary)
_SPINES = msgspec.json.Decoder(_SpineAlone)


async def list_newest_edits(
    store: Store, name: Name, *, head: int, most: int
) -> list[tuple[int, EditSummary]]:
    """List the newest edits of a log, the newest first; one read each."""
    found: list[tuple[int, EditSummary]] = []
    at = head
    while at >= 0 and len(found) < most:
        edit = (await store.head(name, at=at)).edit
        if edit is None:
            break
        found.append((edit.seq, _SUMMARIES.decode(edit.body)))
        at = edit.seq - 1
    return found


def summarise_edit(event: Event) -> EditSummary:
    """Summarise an edit."""
    return _SUMMARIES.decode(log.encode_event(event))


def list_added(view: View, since: int) -> list[Changed]:
    """List what a view shows that is newer than a place, where nothing was edited since."""
    return [Changed("added", item) for item in (*view.items, *view.waiting) if item.seq > since]
