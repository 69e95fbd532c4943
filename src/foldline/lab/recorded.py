"""A recorded session: its events, their times, and what the provider counted.

A session of our own store becomes a record too. Each of its folds becomes a checkpoint of what the
request held after it, so the recorded calls keep their sizes. Masks and exclusions are not carried
over: such a session appears larger than it was.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from statistics import median

from foldline.core.item import make_item
from foldline.core.log import (
    Asked,
    Checkpointed,
    Event,
    Folded,
    Instructed,
    ModelSaid,
    ModelSwitched,
    Opened,
    ToolReturned,
    Undone,
    UsageReported,
    UserSaid,
    select_shown_parts,
)
from foldline.core.spine import FoldAt, Range, Spine
from foldline.core.tokens import MESSAGE, count_parts, count_tokens, count_tools
from foldline.errors import BadInput
from foldline.importers.source import Imported, Mark
from foldline.session.ledger import Ledger
from foldline.stores import event_log
from foldline.stores.base import Name, Store

_MISSED = 0.5  # of what the call before left in the cache: if less was read, it was gone
_ODD = 0.25  # of what is expected: growth below it, or as far above it, has another cause
_LEAST = 500  # tokens between two calls whose counts are used for the ratio


@dataclass(frozen=True)
class Recorded:
    """One recorded session."""

    name: str
    model: str
    events: tuple[Event, ...]
    times: tuple[float, ...] = ()
    marks: tuple[Mark, ...] = ()
    """What the file says about how requests were made, beside the events."""
    is_ours: bool = False
    """Whether it is a log of ours, which holds all that was sent."""
    aside: int = 0
    """Picodollars for the narratives of its folds."""

    @cached_property
    def calls(self) -> tuple["RecordedCall", ...]:
        """Every recorded answer, with the provider's counts."""
        return tuple(_iterate_calls(self.events, self.times, is_ours=self.is_ours))

    @property
    def counts(self) -> bool:
        """Whether the record has the provider's counts."""
        return any(call.input for call in self.calls)

    @cached_property
    def scale(self) -> "Scale":
        """How the provider's counts relate to our estimates; 1:1 without counts."""
        scale = _fit_scale(self.calls)
        return _refine_scale(scale, self.calls) if self.is_ours else scale


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One recorded call."""

    at: int
    """The place of the answer in the log."""
    time: float
    messages: tuple[tuple[int, int], ...]
    """The place and the estimated tokens of each message sent; the newest instructions first, if
    the record has any."""
    input: int | None
    read: int
    write: int
    output: int
    missed: bool
    """Whether the cache that the call before had left was gone."""
    began: float = 0.0
    """When the request was sent: the time of its newest message, if known."""
    write_long: int = 0
    """Of the writes, those that are kept for an hour."""
    is_call: bool = True
    """Whether it was asked for; else a client's own history brought it."""

    @property
    def estimate(self) -> int:
        """The estimated tokens; without system and tools if the file lacks them."""
        return sum(tokens for _, tokens in self.messages)


@dataclass(frozen=True, slots=True)
class Scale:
    """Counted tokens = fixed + ratio · estimate, message by message."""

    fixed: float = 0.0
    ratio: float = 1.0
    ratios: Mapping[int, float] = field(default_factory=dict[int, float])
    """By the place of a message: a ratio of its own, where two calls show it."""

    def ratio_at(self, place: int) -> float:
        """Return the ratio of a message."""
        return self.ratios.get(place, self.ratio)


def convert_imported(session: Imported) -> Recorded:
    """Convert an imported session to a record."""
    events, times, marks = tuple(session.events), tuple(session.times), tuple(session.marks)
    return Recorded(session.name, session.model, events, times, marks)


def estimate_event_tokens(event: Event, *, is_ours: bool = False) -> int:
    """Estimate a message's tokens, as the model saw it then; in a log of ours as a session does."""
    if isinstance(event, Instructed) and event.aside:
        return count_parts(event.parts) + MESSAGE
    if not isinstance(event, UserSaid | ModelSaid | ToolReturned):
        return 0
    parts = select_shown_parts(event)
    if is_ours and parts == event.parts:
        return make_item(0, "user", parts, native=event.native).tokens
    return count_parts(parts) + MESSAGE


def _iterate_calls(
    events: Sequence[Event], times: Sequence[float], *, is_ours: bool
) -> Iterator[RecordedCall]:
    sent: list[tuple[int, int]] = []
    front: list[tuple[int, int]] = []
    cached, heard, ledger = 0, 0.0, Ledger()
    is_proxied = any(isinstance(one, Asked) and one.proxied for one in events)
    for at, event in enumerate(events):
        charge = ledger.apply_event(at, event)
        now = times[at] if at < len(times) else 0.0
        match event:
            case UserSaid() | ToolReturned():
                heard = now
            case Instructed(parts, tools) if not event.aside:
                front = [(at, count_parts(parts) + count_tools(tools))]
            case Checkpointed("compaction", summary):
                sent = [(at, count_tokens(summary) + MESSAGE)]
                cached = 0  # no miss: the cache was there for a policy that had not edited
            case Checkpointed("kept from", first):
                kept = range(int(first), at - 1)
                sent += [(n, estimate_event_tokens(events[n], is_ours=is_ours)) for n in kept]
            case _:
                pass
        if isinstance(event, ModelSaid):
            usage = _find_usage(events, at)
            read, write = usage.cache_read or 0, usage.cache_write or 0
            missed = bool(usage.input) and cached > 0 and read < _MISSED * cached
            yield RecordedCall(
                at=at,
                time=now,
                messages=tuple(one for one in (*front, *sent) if one[1]),
                input=usage.input,
                read=read,
                write=write,
                output=(usage.output or 0) if usage.input else count_parts(event.parts),
                missed=missed,
                began=min(heard, now) or now,
                write_long=usage.cache_write_long or 0,
                is_call=charge is not None or usage.input is not None or not is_proxied,
            )
            heard = 0.0
            cached = read + write if usage.input else cached
        # Agents do not send an answer again that was cut off.
        if not isinstance(event, ModelSaid) or event.stop not in ("cancelled", "cut"):
            sent.append((at, estimate_event_tokens(event, is_ours=is_ours)))


def _find_usage(events: Sequence[Event], at: int) -> UsageReported:
    for event in events[at + 1 : at + 4]:
        if isinstance(event, UsageReported):
            return event
        if isinstance(event, ModelSaid):
            break
    return UsageReported()


def _fit_scale(calls: Sequence[RecordedCall]) -> Scale:
    """Fit a line by the median of many slopes (Theil-Sen): outliers do not bend it."""
    known = [(call.estimate, call.input) for call in calls if call.input]
    step = max(len(known) // 100, 1)
    some = known[::step]
    slopes = [
        (b[1] - a[1]) / (b[0] - a[0])
        for index, a in enumerate(some)
        for b in some[index + 1 :]
        if abs(b[0] - a[0]) >= _LEAST
    ]
    if not slopes:
        return Scale()
    ratio = median(slopes)
    return Scale(median(counted - ratio * estimate for estimate, counted in known), ratio)


def _refine_scale(scale: Scale, calls: Sequence[RecordedCall]) -> Scale:
    """Give messages the counts by which two calls differ, so that each call has its own count."""
    counted = [call for call in calls if call.input]
    ratios: dict[int, float] = {}
    for before, call in pairwise(counted):
        old, new = len(before.messages), call.messages[len(before.messages) :]
        estimate = sum(tokens for _, tokens in new) * scale.ratio
        growth = (call.input or 0) - (before.input or 0)
        if call.messages[:old] == before.messages and _ODD * estimate < growth < estimate / _ODD:
            ratios |= dict.fromkeys((at for at, _ in new), scale.ratio * growth / estimate)
    if not ratios:
        return scale
    fine = Scale(scale.fixed, scale.ratio, ratios)
    sums = (sum(tokens * fine.ratio_at(at) for at, tokens in call.messages) for call in counted)
    rests = ((call.input or 0) - known for call, known in zip(counted, sums, strict=True))
    return Scale(median(rests), scale.ratio, ratios)


_PIECE = 2_000  # events read at a time


async def load_stored_session(store: Store, name: Name) -> Recorded:
    """Load a session of the store with its times; raises if events were erased."""
    head = (await store.head(name)).seq
    times = [row.time async for row in event_log.iterate_rows(store, name, head)]
    events: list[Event] = []
    for lo in range(0, head + 1, _PIECE):
        span = Range(lo, min(lo + _PIECE - 1, head))
        events += [event for _, event in await event_log.read_events(store, name, span)]
    if len(events) != head + 1 or not events:
        raise BadInput(
            f"session {name.session!r} holds {len(events):,} of its {head + 1:,} events, the rest "
            "was erased; only whole logs are replayed"
        )
    ledger = Ledger()
    for seq, event in enumerate(events):
        ledger.apply_event(seq, event)
    aside = ledger.sum_charges("narrative").pico
    return replace(convert_log(name.session, events, times), is_ours=True, aside=aside)


def convert_log(name: str, events: Sequence[Event], times: Sequence[float] = ()) -> Recorded:
    """Convert our own log to a record, with its folds as compactions."""
    kept: list[Event] = []
    dates: list[float] = []
    places: list[int] = []
    model = ""
    for seq, event in enumerate(events):
        places.append(len(kept))
        if isinstance(event, Opened | ModelSwitched):
            model = event.model
        converted: list[Event] = [event]
        if isinstance(event, Folded) and event.client:
            converted = []  # the checkpoint before it says the same
        elif isinstance(event, Folded | Undone):
            converted = _make_checkpoints(event.spine, events, places)
        elif isinstance(event, Checkpointed) and event.label == "kept from":
            first = int(event.body)
            converted = [Checkpointed("kept from", str(places[min(first, seq)]))]
        kept += converted
        dates += [times[seq] if seq < len(times) else 0.0] * len(converted)
    return Recorded(name, model, tuple(kept), tuple(dates))


def _make_checkpoints(spine: Spine, events: Sequence[Event], places: Sequence[int]) -> list[Event]:
    """Make checkpoints of what an edit leaves: the handoffs, and where full text begins."""
    folds = [events[one.edit] for one in spine.segments if isinstance(one, FoldAt)]
    texts = [fold.text for fold in folds if isinstance(fold, Folded)]
    shown = [one.lo for one in spine.segments if isinstance(one, Range) and one.lo < len(places)]
    first = places[max(shown)] if texts and shown else 0
    whole = Checkpointed("compaction", "\n\n".join(texts))
    return [whole, Checkpointed("kept from", str(first if shown else places[-1]))]
