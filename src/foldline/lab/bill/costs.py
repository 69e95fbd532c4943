"""A session's bill: its parts, its cold calls by cause, and what else it could have cost.

A cold call pays again for tokens that the call before had sent. If the record has the provider's
counts, they are the bill; if not, the cache is simulated.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from foldline.core.cold_cache import FOLDED
from foldline.core.log import Checkpointed, Opened, UsageReported
from foldline.core.names import format_count
from foldline.core.prices import PICO, Prices, price_tokens, split_usage
from foldline.core.tokens import count_parts, count_tokens, count_tools
from foldline.lab.bill.cache import (
    PROMPT,
    Aside,
    CacheBlock,
    CacheCall,
    CacheRules,
    Cause,
    compute_bills,
    find_longer_rules,
    replace_cache_lifetime,
)
from foldline.lab.bill.causes import (
    CallContext,
    ColdCause,
    Volatile,
    choose_advice,
    collect_call_contexts,
    collect_volatile_places,
    find_cold_cause,
    find_recorded_change,
)
from foldline.lab.policy_run import as_recorded
from foldline.lab.recorded import Recorded, RecordedCall

_SOME, _SHARE = 1_000, 0.1  # tokens, and share of the known ones: with less a call is not cold


class PricedCall(NamedTuple):
    """One billed call: tokens and dollars by how they were paid."""

    number: int
    call: RecordedCall
    gap: float
    read: float
    unread: float
    again: float
    written: float
    """Of the unread tokens, those written to the cache."""
    read_dollars: float
    unread_dollars: float
    output_dollars: float
    rules: CacheRules
    found: ColdCause

    @property
    def again_dollars(self) -> float:
        """Dollars for tokens that had been sent before and were not in the cache."""
        return self.unread_dollars * self.again / self.unread if self.unread else 0.0

    @property
    def lost(self) -> float:
        """How many dollars more they cost than from the cache."""
        prices = self.rules.prices.at(self.read + self.unread)
        return max(self.again_dollars - _price(prices, read=self.again), 0.0)


def _price(prices: Prices, **tokens: float) -> float:
    """Compute the dollars of tokens: none, where the price is not known."""
    return price_tokens(prices, **tokens) / PICO if prices.is_known else 0.0


def list_paid_calls(
    recorded: Recorded, seen: dict[int, CallContext], ruled: Callable[[int], CacheRules]
) -> list[PricedCall]:
    """List every billed call; `ruled` returns the rules for the call at a place."""
    iterate_calls = _iterate_counted_calls if recorded.counts else _iterate_simulated_calls
    return [*iterate_calls(recorded, seen, ruled)]


def _iterate_counted_calls(
    recorded: Recorded, seen: dict[int, CallContext], ruled: Callable[[int], CacheRules]
) -> Iterator[PricedCall]:
    """Yield every call as its provider counted it."""
    writes = any(call.write for call in recorded.calls)
    kept = writes or any(call.read for call in recorded.calls)
    front = next((_estimate_front(recorded, call) for call in recorded.calls if call.input), 0.0)
    before: RecordedCall | None = None
    for number, call in enumerate(recorded.calls, start=1):
        total = call.input
        if not total:
            continue
        rules, now = ruled(call.at), seen[call.at]
        gap = call.began - before.began if before and before.began and call.began else 0.0
        known = _estimate_known_tokens(recorded, call, before, now)
        read = float(min(call.read, total))
        unread = total - read
        again = min(max(known - read, 0.0), unread)
        written = float(min(call.write, unread)) if writes else unread
        prices = rules.prices.at(total)
        counts = UsageReported(
            input=total,
            cache_read=call.read,
            cache_write=call.write,
            cache_write_long=call.write_long,
            output=call.output,
        )
        tokens = split_usage(counts)
        cost = _price(prices, **tokens._asdict())
        paid = _price(prices, read=tokens.read), _price(prices, output=tokens.output)
        found = ColdCause("first") if before is None else ColdCause("")
        if kept and again >= _SOME and again >= _SHARE * known:
            found = find_cold_cause(now, call, before, gap=gap, front=front, rules=rules)
        yield PricedCall(
            number=number,
            call=call,
            gap=gap,
            read=read,
            unread=unread,
            again=again,
            written=written,
            read_dollars=paid[0],
            unread_dollars=max(cost - sum(paid), 0.0),
            output_dollars=paid[1],
            rules=rules,
            found=found,
        )
        before = call


def _estimate_front(recorded: Recorded, call: RecordedCall) -> float:
    """Estimate a call's system prompt and tools: all but its messages; best at the first call."""
    return (call.input or 0) - recorded.scale.ratio * call.estimate


def _estimate_known_tokens(
    recorded: Recorded, call: RecordedCall, before: RecordedCall | None, now: CallContext
) -> float:
    """Estimate the tokens of a call that the call before had sent too."""
    if before is None:
        return 0.0
    most = float(min(before.input or 0, call.input or 0))
    if not now.edited:
        return most
    old = {at for at, _ in before.messages}
    kept = sum(tokens for at, tokens in call.messages if at in old)
    scale = recorded.scale
    front = max(scale.fixed, 0.0)
    return min(front + kept * scale.ratio, max(most - now.wrote * scale.ratio, 0.0))


def _iterate_simulated_calls(
    recorded: Recorded, seen: dict[int, CallContext], ruled: Callable[[int], CacheRules]
) -> Iterator[PricedCall]:
    """Yield every call as a provider would have billed it."""
    if not recorded.calls:
        return
    rules = ruled(recorded.calls[-1].at)
    before: RecordedCall | None = None
    billed = compute_bills(sent_with_fronts(recorded, seen), rules)
    for number, (call, one) in enumerate(zip(recorded.calls, billed, strict=True), start=1):
        gap = call.began - before.began if before and before.began and call.began else 0.0
        prices = rules.prices.at(one.input)
        found = find_recorded_change(seen[call.at])
        cold = one.again >= _SOME and one.again >= _SHARE * (one.again + one.read)
        yield PricedCall(
            number=number,
            call=call,
            gap=gap,
            read=one.read,
            unread=one.written,
            again=one.again,
            written=one.written,
            read_dollars=_price(prices, read=one.read),
            unread_dollars=_price(prices, write=one.written),
            output_dollars=_price(prices, output=one.output),
            rules=rules,
            found=found if found.cause and cold else ColdCause(one.cause if cold else ""),
        )
        before = call


def sent_with_fronts(recorded: Recorded, seen: dict[int, CallContext]) -> list[CacheCall]:
    """Return the calls as they were made, each with its system prompt and tools."""
    made: list[CacheCall] = []
    for call, sent in zip(recorded.calls, as_recorded(recorded), strict=True):
        instructed = seen[call.at].state.instructed
        tokens = count_parts(instructed.parts) + count_tools(instructed.tools)
        front = CacheBlock(
            ("front", instructed), float(tokens), len(instructed.parts) + len(instructed.tools)
        )
        found = find_recorded_change(seen[call.at]).cause if made else ""
        known = found if found in ("model", "thinking", "restart") else ""
        blocks = [front, *sent.blocks[sent.front :]]
        made.append(replace(sent, time=call.began, blocks=blocks, front=1, changed=known))
    return made


@dataclass(frozen=True, slots=True)
class ColdCallCost:
    """A call that paid again for what the call before it had sent."""

    call: int
    """Its number in the session, from 1."""
    at: int
    time: float
    gap: float
    """Seconds since the call before was sent."""
    tokens: int
    """The tokens paid for again."""
    dollars: float
    """How many dollars more they cost than from the cache."""
    cause: Cause
    sure: bool
    """Whether the record says so; else it is a guess from the counts."""
    told: str


@dataclass(frozen=True, slots=True)
class CauseTotal:
    """All cold calls of one cause."""

    cause: Cause
    sure: bool
    calls: int
    tokens: int
    dollars: float
    advice: str


@dataclass(frozen=True, slots=True)
class LifetimeEstimate:
    """What an alternative would have cost, and what was paid."""

    dollars: float
    paid: float
    calls: int = 0
    """How many calls it would have changed."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CostReport:
    """A session's bill; `total` is the sum of its five parts."""

    name: str
    model: str
    calls: int
    unbilled: int
    """Calls that were cancelled before anything was counted."""
    counted: bool
    """Whether these are the provider's counts; else they are simulated."""
    assumed: bool
    """Whether any price is a guess."""
    total: float
    new: float
    """Dollars for input that had not been sent before."""
    read: float
    """Dollars for input from the cache."""
    again: float
    """Dollars for input that had been sent before and was not in the cache."""
    output: float
    aside: float
    """Dollars for calls beside the conversation."""
    seconds: float
    """The cache lifetime that is assumed."""
    cold: tuple[ColdCallCost, ...]
    causes: tuple[CauseTotal, ...]
    """The most expensive first."""
    volatile: tuple[Volatile, ...]
    longer: LifetimeEstimate | None
    """The whole session with the longer lifetime that the provider offers."""
    folded: LifetimeEstimate | None
    """The cold calls, had each begun with a fold to `FOLDED` tokens."""
    notes: tuple[str, ...] = ()

    @property
    def lost(self) -> float:
        """How many dollars more all cold calls cost."""
        return sum(one.dollars for one in self.cold)


def build_cost_report(
    recorded: Recorded, rules: CacheRules, *, by_model: Callable[[str], CacheRules] | None = None
) -> CostReport:
    """Compute a session's bill; `by_model` returns the rules of each model, if several."""
    seen = collect_call_contexts(recorded) if recorded.events else {}

    def choose_rules(at: int) -> CacheRules:
        state = seen[at].state
        found = by_model(state.model) if by_model else rules
        return replace_cache_lifetime(found, state.life) if state.life else found

    # What stands before a fork's opening was paid by the session that it copies.
    first = max(
        (at for at, one in enumerate(recorded.events) if isinstance(one, Opened)), default=0
    )
    calls = [call for call in recorded.calls if call.at >= first]
    rows = [row for row in list_paid_calls(recorded, seen, choose_rules) if row.call.at >= first]
    cold = tuple(_make_cold_call(row) for row in rows if row.found.cause not in ("", "first"))
    longer = (
        _estimate_longer_life(rows) if recorded.counts else _simulated_longer(recorded, seen, rules)
    )
    used = [row.rules.prices for row in rows]
    parts = {
        "new": sum(row.unread_dollars - row.again_dollars for row in rows),
        "read": sum(row.read_dollars for row in rows),
        "again": sum(row.again_dollars for row in rows),
        "output": sum(row.output_dollars for row in rows),
        "aside": recorded.aside / PICO,
    }
    return CostReport(
        name=recorded.name,
        model=recorded.model,
        calls=len(calls),
        unbilled=len(calls) - len(rows),
        counted=recorded.counts,
        assumed=any(prices.is_known and prices.assumed for prices in used),
        total=sum(parts.values()),
        **parts,
        seconds=rules.seconds,
        cold=cold,
        causes=_sum_by_cause(cold, longer, rules),
        volatile=collect_volatile_places(recorded.events),
        longer=longer,
        folded=_estimate_folded(rows),
        notes=tuple(_iterate_notes(recorded, seen, rows)),
    )


def _make_cold_call(row: PricedCall) -> ColdCallCost:
    return ColdCallCost(
        call=row.number,
        at=row.call.at,
        time=row.call.began,
        gap=row.gap,
        tokens=round(row.again),
        dollars=row.lost,
        cause=row.found.cause,
        sure=row.found.sure,
        told=row.found.detail,
    )


def _estimate_longer_life(rows: Sequence[PricedCall]) -> LifetimeEstimate | None:
    """Estimate the longer lifetime: what had expired is read, every write costs more."""
    if not rows or (longer := find_longer_rules(rows[-1].rules)) is None:
        return None
    dollars, calls = 0.0, 0
    for row in rows:
        prices = row.rules.prices.at(row.read + row.unread)
        dearer = (find_longer_rules(row.rules) or row.rules).prices.at(row.read + row.unread)
        late = row.found.cause == "expired" and row.gap <= longer.seconds
        moved = min(row.again, row.written) if late else 0.0
        calls += late
        fresh = _price(prices, fresh=row.unread - row.written)
        written = (row.unread_dollars - fresh) * dearer.write / prices.write
        kept = (row.written - moved) / row.written if row.written else 0.0
        dollars += _price(prices, read=moved) + fresh + written * kept
        dollars += row.read_dollars + row.output_dollars
    paid = sum(row.read_dollars + row.unread_dollars + row.output_dollars for row in rows)
    return LifetimeEstimate(dollars, paid, calls, longer.seconds)


def _simulated_longer(
    recorded: Recorded, seen: dict[int, CallContext], rules: CacheRules
) -> LifetimeEstimate | None:
    longer = find_longer_rules(rules)
    if longer is None or not recorded.calls:
        return None
    sent = sent_with_fronts(recorded, seen)
    usual, long = compute_bills(sent, rules), compute_bills(sent, longer)
    late = sum(a.cause == "expired" != b.cause for a, b in zip(usual, long, strict=True))
    dollars, paid = (sum(one.dollars for one in each) for each in (long, usual))
    return LifetimeEstimate(dollars, paid, late, longer.seconds)


def _estimate_folded(rows: Sequence[PricedCall]) -> LifetimeEstimate | None:
    """Estimate what the cold calls would have paid, had each begun with a fold."""
    large = [
        row for row in rows if row.found.cause not in ("", "first", "edit") and row.again > FOLDED
    ]
    dollars = sum(FOLDED * row.again_dollars / row.again for row in large)
    paid = sum(row.again_dollars for row in large)
    return LifetimeEstimate(dollars, paid, len(large)) if large else None


def _sum_by_cause(
    cold: Sequence[ColdCallCost], longer: LifetimeEstimate | None, rules: CacheRules
) -> tuple[CauseTotal, ...]:
    kinds: dict[tuple[Cause, bool], list[ColdCallCost]] = {}
    for one in cold:
        kinds.setdefault((one.cause, one.sure), []).append(one)
    found = [
        CauseTotal(
            cause=kind,
            sure=sure,
            calls=len(ones),
            tokens=sum(one.tokens for one in ones),
            dollars=sum(one.dollars for one in ones),
            advice=choose_advice(
                kind,
                sure=sure,
                seconds=rules.seconds,
                longer=(longer.seconds, longer.paid - longer.dollars) if longer else None,
            ),
        )
        for (kind, sure), ones in kinds.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.dollars))


def _iterate_notes(
    recorded: Recorded, seen: dict[int, CallContext], rows: Sequence[PricedCall]
) -> Iterator[str]:
    """Yield what else the record shows, and what it cannot show."""
    first = recorded.events[0] if recorded.events else None
    own = isinstance(first, Opened) and not first.origin.startswith("import:")
    summaries = [
        (at, event.body)
        for at, event in enumerate(recorded.events)
        if isinstance(event, Checkpointed) and event.label == "compaction"
        if not own  # our own handoffs are mostly written without a model
    ]
    asides = 0.0
    for at, summary in summaries:
        last = next((row for row in reversed(rows) if row.call.at < at), None)
        if last is not None:
            asked = Aside(last.read + last.unread, PROMPT, float(count_tokens(summary)))
            asides += asked.compute_dollars(last.rules.prices)
    if asides:
        many = f"{len(summaries)} compactions" if len(summaries) > 1 else "a compaction"
        yield (
            f"the calls that wrote the summaries of {many} are not in the record; "
            f"about ${asides:.2f} more if they read the cache"
        )
    yield from _iterate_turn_notes(seen, rows)
    if recorded.counts and not any(row.call.read or row.call.write for row in rows):
        yield (
            "no call of this record read or wrote a cache: either it was off, and all that was "
            "sent again was paid in full, or it was not counted"
        )
    if not any(one.state.instructed.parts or one.state.instructed.tools for one in seen.values()):
        yield (
            "the record holds neither system prompt nor tools: which of their bytes changed cannot "
            "be shown"
        )
    unpriced = sum(not row.rules.prices.is_known for row in rows)
    if unpriced:
        calls = format_count(unpriced, "call")
        yield f"the bill is without {calls} of unknown price; --prices sets one"
    if not recorded.counts:
        yield "the record has no counts: tokens are estimated, and the cache is simulated"
    if any(not row.gap for row in rows[1:]) and not any(recorded.times):
        yield "the record has no times: no expiry can be seen"


def _iterate_turn_notes(seen: dict[int, CallContext], rows: Sequence[PricedCall]) -> Iterator[str]:
    """Show how well guesses hold: by where in a turn the cold calls are."""
    guessed = {row.call.at for row in rows if row.found.cause and not row.found.sure}
    if not guessed:
        return
    opened = [row.call.at for row in rows if seen[row.call.at].turn and row.found.cause != "first"]
    within = [row.call.at for row in rows if not seen[row.call.at].turn]
    cold = [len(guessed.intersection(some)) for some in (opened, within)]
    yield (
        f"cold for a guessed cause: {cold[0]:,} of {len(opened):,} calls that opened a turn, "
        f"{cold[1]:,} of {len(within):,} inside one"
    )
