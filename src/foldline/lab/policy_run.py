"""The contenders of a replay: one of our policies, or the record itself.

`Planned` runs a conversation through admission and plan as a session does, without a store or a
model. `Ours` replays a record that way: folds are made without a model, or with a narrative by a
scripted teller, and each request is counted as the record's provider would count it. `AsRecorded`
sends what was sent then, the agent's own compactions included.

The scripted teller need not be good: the lab measures what is lost whatever a summary says.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import msgspec

from foldline.core.cold_cache import estimate_cache_state
from foldline.core.edits import fold
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
    UsageReported,
    UserSaid,
    select_shown_parts,
)
from foldline.core.parts import Line, spoken_text_of
from foldline.core.plan import Blocked, Facts, Need, Ready, admit, plan
from foldline.core.policy import limit_to_forced_folds
from foldline.core.request import Report, Request
from foldline.core.spine import Change, Range, Spine, places_of
from foldline.core.tokens import count_parts, count_tokens, count_tools
from foldline.core.view import load
from foldline.dialects.json_slices import dict_of
from foldline.lab.bill.cache import PROMPT, Aside, CacheCall
from foldline.lab.kept_names import words_of
from foldline.lab.recorded import Recorded
from foldline.lab.replay import Offer, ReplayPiece, replay_session

_OPENED = Opened("test/model")


_SECTION = "Decisions and outcomes"
_WIDTH = 200


@dataclass(frozen=True, slots=True)
class Teller:
    """Summarizes spans in at most `tokens`, and forgets the share `loss` of the lines."""

    tokens: int
    loss: float = 0.0
    seed: int = 0

    def make_narrative(self, ask: fold.Ask, events: Sequence[Event]) -> fold.Prepared:
        """Make a narrative of the events' first lines, evenly over the span."""
        lo, hi = ask.range.lo, ask.range.hi
        assert hi is not None, "only closed spans are summarized"  # noqa: S101
        random = Random(f"{self.seed}:{lo}:{hi}")  # noqa: S311 - reproducible, not secret
        said = [(seq, line) for seq in range(lo, hi + 1) if (line := _find_first_line(events[seq]))]
        room = min(self.tokens, ask.tokens)
        step = max(sum(count_tokens(line) for _, line in said) / max(room, 1), 1.0)
        lines: list[Line] = []
        for place in range(int(len(said) / step)):
            seq, line = said[int(place * step)]
            room -= count_tokens(line)
            if room >= 0 and random.random() >= self.loss:
                lines.append(Line(_SECTION, line, (seq,)))
        return fold.Prepared(ask.base, ask.range, tuple(lines), by="scripted")

    def make_aside(self, prepared: fold.Prepared, *, prefix: float) -> Aside:
        """Make the call's bill: it reads the conversation's own prefix from the cache."""
        return Aside(prefix, PROMPT, sum(count_tokens(line.text) for line in prepared.lines))


def _find_first_line(event: Event) -> str:
    if not isinstance(event, UserSaid | ModelSaid | ToolReturned):
        return ""
    lines = spoken_text_of(event.parts).strip().splitlines()
    return " ".join(lines[0].split())[:_WIDTH] if lines else ""


class Planned:
    """A log that grows under one policy."""

    def __init__(self, facts: Facts, *events: Event, opened: Opened = _OPENED) -> None:
        self.facts = facts
        self.events: list[Event] = []
        self.view = load(Spine(), {}, head=-1)
        self.append(opened, *events)

    def append(self, *events: Event) -> None:
        """Append events to the log and the view, unchanged."""
        for event in events:
            self.events.append(event)
            self.view.append(self.view.head + 1, event)

    def add(self, *events: Event) -> None:
        """Admit events as a session does, and append them."""
        for event in events:
            self.append(*admit(self.view, event, self.facts))

    def plan(self, facts: Facts | None = None) -> Ready | Blocked:
        """Plan the next request, fetching whatever the plan needs."""
        facts = facts or self.facts
        made = plan(self.view, facts)
        while isinstance(made, Need):
            fetched = {seq: self.events[seq] for span in made.ranges for seq in places_of(span)}
            facts = replace(facts, fetched={**facts.fetched, **fetched})
            made = plan(self.view, facts)
        return made

    def ask(self, made: Ready, *, counted: Callable[[Ready], int] | None = None) -> None:
        """Record a planned request as sent; `counted` returns the provider's count of it."""
        at = self.view.head + len(made.events)
        seen = made.report
        self.append(*made.events, Asked(at, "", "", 0, tokens=seen.total, estimate=seen.estimate))
        if counted is not None:
            # As answers are recorded: a count from before an edit says nothing behind it.
            self.append(UsageReported(asked=self.view.asked, input=counted(made)))

    def folds(self) -> list[Folded]:
        """List every fold so far."""
        return [event for event in self.events if isinstance(event, Folded)]


class Ours(Planned):
    """A session under one of our policies."""

    def __init__(self, recorded: Recorded, facts: Facts, *, teller: Teller | None = None) -> None:
        first = recorded.events[0] if recorded.events else None
        opened = first if isinstance(first, Opened) else Opened(recorded.model)
        super().__init__(facts, opened=opened)
        self._scale = recorded.scale
        self._is_ours = recorded.is_ours
        self._places = {id(event): at for at, event in enumerate(recorded.events)}
        self._ratios: dict[int, float] = {}  # by the places of our own log
        self._teller = teller
        self._asides: list[Aside] = []
        self._texts: dict[Hashable, str] = {}
        self._loops = [*_iterate_thinking_loops(recorded.events)]
        self._budgets = [*_iterate_thinking_budgets(recorded.events)]
        self._is_lowered, self._offers = False, 0
        self._answers = 0

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.facts.policy.name

    def take(self, event: Event) -> None:
        """Add a recorded event as a session would; the model saw what this policy shows."""
        first = self.view.head + 1
        self._take(event)
        ratio = self._scale.ratio_at(self._places[id(event)])
        self._ratios |= dict.fromkeys(range(first, self.view.head + 1), ratio)

    def _take(self, event: Event) -> None:
        match event:
            case Opened() | ModelSwitched():
                self.append(event)
            case ModelSaid():
                self._answers += 1
                native = event.native if self._is_ours else None
                self.add(msgspec.structs.replace(event, saw=None, native=native))
            case UserSaid() | ToolReturned() if event.clip is not None:
                self.add(msgspec.structs.replace(event, clip=None))  # this policy clips anew
            case _:
                self.add(event)

    def offer(self, *, seconds: float, missed: bool) -> Offer | None:
        """Plan a request, and count it as the provider would; None if it cannot fit."""
        found = estimate_cache_state(seconds, self.facts.prices, self.facts.lifetime)
        cache = "cold" if missed else found
        facts = replace(self.facts, cache=cache)
        if self._loops[self._answers]:  # as in proxied conversations
            facts = replace(facts, policy=limit_to_forced_folds(facts.policy))
        made = self.plan(facts)
        if not isinstance(made, Ready):
            return None
        pieces = list(self._iterate_pieces(made.request))
        total = sum(piece.tokens for piece in pieces)
        self.ask(made, counted=lambda _: round(total))
        asides, self._asides = tuple(self._asides), []
        folds = tuple(event for event in made.events if isinstance(event, Folded))
        if folds:
            self.facts = replace(self.facts, prepared=None)
        if made.ask and self._teller:
            narrative = self._teller.make_narrative(made.ask, self.events)
            self.facts = replace(self.facts, prepared=narrative)
            self._asides.append(self._teller.make_aside(narrative, prefix=total))
        folded = sum(item.state == "folded" for item in made.request.items)
        before, self._is_lowered = self._is_lowered, self._lowers_budget(made.report)
        changed = "thinking" if before != self._is_lowered and self._offers else ""
        self._offers += 1
        return Offer(  # with marks as our encoder makes them
            pieces, marks=(1 + folded,), folds=folds, asides=asides, changed=changed
        )

    def _lowers_budget(self, report: Report) -> bool:
        """Whether a proxied request has no room for the thinking budget that its client asked for.

        Anthropic forgets the cached messages where the budget changes.
        """
        limit, budget = self._budgets[self._answers]
        if not budget or report.total + limit <= report.window or report.total >= report.window:
            return False
        room = report.window - report.total - report.margin
        return budget >= max(room, min(report.reserve, limit))

    def _iterate_pieces(self, request: Request) -> Iterator[ReplayPiece]:
        """Yield a request as the cache sees it: the front, then item by item."""
        scale = self._scale
        fixed = count_parts(request.system) + count_tools(request.tools)
        front = ("front", request.system, request.tools)
        size = scale.fixed + fixed * scale.ratio
        yield ReplayPiece(front, max(size, 0), words_of(request.system))
        short = min(size, 0)  # the record holds more than was sent: take it off the first
        for item in request.items:
            key = (item.seq, item.state, item.role, item.tokens)
            if key not in self._texts:  # each is sent many times
                self._texts[key] = words_of(item.parts)
            ratio = self._ratios.get(item.seq, scale.ratio)  # what a plan has added has none
            yield ReplayPiece(key, max(item.tokens * ratio + short, 0), self._texts[key])
            short = 0


def _iterate_thinking_loops(events: Iterable[Event]) -> Iterator[bool]:
    """Yield for each answer whether it was asked for with thinking, by a tool's result.

    Words of the user behind the result, such as a client's reminder, do not end the loop. Only our
    own logs hold the parameters of requests.
    """
    thinks = in_loop = False
    for event in events:
        match event:
            case Asked():
                parameters = dict_of(msgspec.json.decode(event.parameters))
                thinks = dict_of(parameters.get("thinking")).get("type") == "enabled"
            case ToolReturned():
                in_loop = True
            case ModelSaid():
                yield thinks and in_loop
                in_loop = False
            case _:
                pass


def _iterate_thinking_budgets(events: Iterable[Event]) -> Iterator[tuple[int, int]]:
    """Yield for each answer the limit and the thinking budget it was asked for with; 0: none."""
    limit = budget = 0
    for event in events:
        match event:
            case Asked():
                parameters = dict_of(msgspec.json.decode(event.parameters))
                found = parameters.get("max_tokens"), dict_of(parameters.get("thinking"))
                limit = found[0] if isinstance(found[0], int) else 0
                asked = found[1].get("budget_tokens")
                budget = asked if isinstance(asked, int) else 0
            case ModelSaid():
                yield limit, budget
            case _:
                pass


RECORDED = "as recorded"


def as_recorded(recorded: Recorded) -> list[CacheCall]:
    """Return the calls as they were made, from the events alone."""
    return [step.sent for step in replay_session(recorded, AsRecorded(recorded)).steps]


class AsRecorded:
    """The record itself: what was sent then, the agent's own compactions included."""

    name = RECORDED

    def __init__(self, recorded: Recorded) -> None:
        self._events = recorded.events
        self._scale = recorded.scale
        billed = (one for one in recorded.calls if one.input or not recorded.counts)
        self._calls = iter(list(billed))
        self._last: tuple[tuple[int, int], ...] = ()
        self._texts: dict[int, str] = {}

    def take(self, event: Event) -> None:
        """Do nothing: the record is known already."""

    def offer(self, *, seconds: float, missed: bool) -> Offer:
        """Return the next request of the record."""
        del seconds, missed
        scale, call = self._scale, next(self._calls)
        short = min(scale.fixed, 0.0)  # the record holds more than was sent: off the first message
        pieces = [ReplayPiece("front", max(scale.fixed, 0.0), "")]
        for at, tokens in call.messages:
            pieces.append(
                ReplayPiece(
                    at, max(tokens * scale.ratio_at(at) + short, 0.0), self._render_message(at)
                )
            )
            short = 0.0
        has_system = bool(call.messages) and isinstance(
            self._events[call.messages[0][0]], Instructed
        )
        folds, self._last = self._find_compactions(call.messages), call.messages
        return Offer(pieces, front=1 + has_system, folds=folds)

    def _render_message(self, at: int) -> str:
        if at not in self._texts:  # each is sent many times
            self._texts[at] = self._render_event(self._events[at])
        return self._texts[at]

    @staticmethod
    def _render_event(event: Event) -> str:
        if isinstance(event, UserSaid | ModelSaid | ToolReturned):
            return words_of(select_shown_parts(event))
        if isinstance(event, Instructed):
            return words_of(event.parts)
        return event.body if isinstance(event, Checkpointed) else ""

    def _find_compactions(self, now: Sequence[tuple[int, int]]) -> tuple[Folded, ...]:
        """Return the compaction that this request begins with, if it is new."""
        before = {at for at, _ in self._last}
        new = [one for one in now if isinstance(self._events[one[0]], Checkpointed)]
        if not self._last or not new or new[0][0] in before:
            return ()
        gone = [one for one in self._last if one[0] not in {at for at, _ in now}]
        if all(isinstance(self._events[at], Checkpointed) for at, _ in gone):
            return ()  # an edit was undone: only its own text is gone
        compaction = Folded(
            "",
            Change(Range(0, 0)),
            Spine(),
            before=round(sum(tokens for _, tokens in gone) * self._scale.ratio),
            after=round(new[0][1] * self._scale.ratio),
            messages=len(gone),
        )
        return (compaction,)
