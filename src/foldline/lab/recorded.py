"""A session that happened: its events, when, and what the provider counted.

Knows how the recorded counts relate to our estimate, and which calls found no cache. Refuses to
know policies.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from foldline.core.log import (
    Checkpointed,
    Event,
    Instructed,
    ModelSaid,
    Opened,
    ToolReturned,
    UsageReported,
    UserSaid,
    shown,
)
from foldline.core.tokens import MESSAGE, count, count_parts, count_tools
from foldline.importers.base import Imported, Mark

_MISSED = 0.5  # of what the call before left in the cache: less was read, so it was gone
_LEAST = 500  # tokens between two calls whose counts say something of the ratio


@dataclass(frozen=True)
class Recorded:
    """One session."""

    name: str
    model: str
    events: tuple[Event, ...]
    times: tuple[float, ...] = ()
    marks: tuple[Mark, ...] = ()
    """What the file says of how requests were made, beside the events."""

    @cached_property
    def calls(self) -> tuple["RecordedCall", ...]:
        """Every answer that was recorded, with what the provider counted."""
        return tuple(_calls(self.events, self.times))

    @property
    def counts(self) -> bool:
        """Whether the record says what was counted."""
        return any(call.input for call in self.calls)

    @cached_property
    def scale(self) -> "Scale":
        """How the provider counts what we estimate: 1 where nothing was reported."""
        return _fitted(self.calls)


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call as it was recorded."""

    at: int
    """The place of the answer."""
    time: float
    messages: tuple[tuple[int, int], ...]
    """What it was sent: the place of each message, and what that is estimated at; the newest
    instructions first, where the record has any."""
    input: int | None
    read: int
    write: int
    output: int
    missed: bool
    """Whether the cache that the call before had left was not found."""
    began: float = 0.0
    """When the request was sent, as far as it is known: with the newest message in it."""

    @property
    def estimate(self) -> int:
        """All of it; where a file does not tell system and tools, without those."""
        return sum(tokens for _, tokens in self.messages)


@dataclass(frozen=True, slots=True)
class Scale:
    """Counted tokens = fixed + ratio · estimate."""

    fixed: float = 0.0
    ratio: float = 1.0


def imported(session: Imported) -> Recorded:
    """A session of another agent."""
    events, times, marks = tuple(session.events), tuple(session.times), tuple(session.marks)
    return Recorded(session.name, session.model, events, times, marks)


def size(event: Event) -> int:
    """What a message is estimated at, as it was shown then."""
    if isinstance(event, UserSaid | ModelSaid | ToolReturned):
        return count_parts(shown(event)) + MESSAGE
    return 0


def _calls(events: Sequence[Event], times: Sequence[float]) -> Iterator[RecordedCall]:
    sent: list[tuple[int, int]] = []
    front: list[tuple[int, int]] = []
    cached, heard = 0, 0.0
    for at, event in enumerate(events):
        now = times[at] if at < len(times) else 0.0
        match event:
            case UserSaid() | ToolReturned():
                heard = now
            case Instructed(parts, tools):
                front = [(at, count_parts(parts) + count_tools(tools))]
            case Checkpointed("compaction", summary):
                sent = [(at, count(summary) + MESSAGE)]
                cached = 0  # little is found then, but for the record alone: others did not edit
            case Checkpointed("kept from", first):
                sent += [(n, size(events[n])) for n in range(int(first), at - 1)]
            case _:
                pass
        if isinstance(event, ModelSaid):
            usage = _usage(events, at)
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
            )
            heard = 0.0
            cached = read + write if usage.input else cached
        if not isinstance(event, ModelSaid) or event.stop not in ("cancelled", "cut"):
            sent.append((at, size(event)))  # agents do not send again what was broken off


def _usage(events: Sequence[Event], at: int) -> UsageReported:
    for event in events[at + 1 : at + 4]:
        if isinstance(event, UsageReported):
            return event
        if isinstance(event, ModelSaid):
            break
    return UsageReported()


def _fitted(calls: Sequence[RecordedCall]) -> Scale:
    """The line through what was counted, by the median of many slopes: outliers do not bend it."""
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


def joined(name: str, sessions: Sequence[Recorded]) -> Recorded:
    """Several sessions as one: each one's first message is a new turn of the user."""
    first, *rest = sessions
    more = (
        event
        for session in rest
        for event in session.events
        if not isinstance(event, Opened | Instructed)
    )
    return Recorded(name, first.model, (*first.events, *more))
