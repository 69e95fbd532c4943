"""What a session cost, and what of it was paid for calls that found no cache.

Knows the parts of a bill, the cold calls by cause, and what else could have been done. Refuses to
know how it is shown.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from foldline.core.log import Checkpointed, Opened
from foldline.core.tokens import count
from foldline.lab.bill.advice import advice
from foldline.lab.bill.cache import PROMPT, Aside, CacheRules, Cause, bill
from foldline.lab.bill.causes import Around, around
from foldline.lab.bill.paid import Paid, paid, sent_with_fronts
from foldline.lab.bill.providers import lasting, living
from foldline.lab.bill.volatile import Volatile, volatile
from foldline.lab.recorded import Recorded

FOLDED = 20_000
"""The tokens that a fold is assumed to leave, where the report says what one would have cost."""


@dataclass(frozen=True, slots=True)
class Cold:
    """A call that paid again for what the call before it had sent."""

    call: int
    """Its number in the session, the first is 1."""
    at: int
    time: float
    gap: float
    """Seconds since the call before was sent."""
    tokens: int
    """What was paid for again."""
    dollars: float
    """What that cost more than reading it from the cache."""
    cause: Cause
    sure: bool
    """Whether the record says so; else it is a guess from what was counted."""
    told: str


@dataclass(frozen=True, slots=True)
class Summed:
    """All cold calls of one cause."""

    cause: Cause
    sure: bool
    calls: int
    tokens: int
    dollars: float
    advice: str


@dataclass(frozen=True, slots=True)
class Instead:
    """What something else would have cost: dollars then, and what was paid."""

    dollars: float
    paid: float
    calls: int = 0
    """The calls that it would have changed."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CostReport:
    """A session's bill; `total` is the sum of its five parts."""

    name: str
    model: str
    calls: int
    unbilled: int
    """Calls that were broken off before anything was counted."""
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
    """How long the cache is taken to live."""
    cold: tuple[Cold, ...]
    causes: tuple[Summed, ...]
    """Dearest first."""
    volatile: tuple[Volatile, ...]
    longer: Instead | None
    """The whole session with the longer life that the provider offers."""
    folded: Instead | None
    """The cold calls, had each begun with a fold to `FOLDED` tokens."""
    notes: tuple[str, ...] = ()

    @property
    def lost(self) -> float:
        """What all cold calls cost more."""
        return sum(one.dollars for one in self.cold)


def costs(
    recorded: Recorded, rules: CacheRules, *, by_model: Callable[[str], CacheRules] | None = None
) -> CostReport:
    """A session's bill; `by_model` has the rules of each model where several answered."""
    seen = around(recorded) if recorded.events else {}

    def ruled(at: int) -> CacheRules:
        state = seen[at].state
        found = by_model(state.model) if by_model else rules
        return living(found, state.life) if state.life else found

    rows = paid(recorded, seen, ruled)
    cold = tuple(_cold(row) for row in rows if row.found.cause not in ("", "first"))
    summed = _longer(rows) if recorded.counts else _simulated_longer(recorded, seen, rules)
    parts = {
        "new": sum(row.unread_dollars - row.again_dollars for row in rows),
        "read": sum(row.read_dollars for row in rows),
        "again": sum(row.again_dollars for row in rows),
        "output": sum(row.output_dollars for row in rows),
        "aside": 0.0,
    }
    return CostReport(
        name=recorded.name,
        model=recorded.model,
        calls=len(recorded.calls),
        unbilled=len(recorded.calls) - len(rows),
        counted=recorded.counts,
        assumed=any(row.rules.prices.assumed for row in rows),
        total=sum(parts.values()),
        **parts,
        seconds=rules.seconds,
        cold=cold,
        causes=_summed(cold, summed, rules),
        volatile=volatile(recorded.events),
        longer=summed,
        folded=_folded(rows),
        notes=tuple(_notes(recorded, seen, rows)),
    )


def _cold(row: Paid) -> Cold:
    return Cold(
        call=row.number,
        at=row.call.at,
        time=row.call.began,
        gap=row.gap,
        tokens=round(row.again),
        dollars=row.lost,
        cause=row.found.cause,
        sure=row.found.sure,
        told=row.found.told,
    )


def _longer(rows: Sequence[Paid]) -> Instead | None:
    """The same calls with the longer life: what had expired is read, every write costs more."""
    if not rows or (longer := lasting(rows[-1].rules)) is None:
        return None
    dollars, calls = 0.0, 0
    for row in rows:
        prices = row.rules.prices.at(row.read + row.unread)
        dearer = (lasting(row.rules) or row.rules).prices.at(row.read + row.unread)
        late = row.found.cause == "expired" and row.gap <= longer.seconds
        moved = min(row.again, row.written) if late else 0.0
        calls += late
        fresh = (row.unread - row.written) * prices.input / 1e6
        written = (row.unread_dollars - fresh) * dearer.write / prices.write
        kept = (row.written - moved) / row.written if row.written else 0.0
        dollars += moved * prices.read / 1e6 + fresh + written * kept
        dollars += row.read_dollars + row.output_dollars
    paid = sum(row.read_dollars + row.unread_dollars + row.output_dollars for row in rows)
    return Instead(dollars, paid, calls, longer.seconds)


def _simulated_longer(
    recorded: Recorded, seen: dict[int, Around], rules: CacheRules
) -> Instead | None:
    longer = lasting(rules)
    if longer is None or not recorded.calls:
        return None
    sent = sent_with_fronts(recorded, seen)
    usual, long = bill(sent, rules), bill(sent, longer)
    late = sum(a.cause == "expired" != b.cause for a, b in zip(usual, long, strict=True))
    dollars, paid = (sum(one.dollars for one in each) for each in (long, usual))
    return Instead(dollars, paid, late, longer.seconds)


def _folded(rows: Sequence[Paid]) -> Instead | None:
    """What the cold calls paid for old tokens, and what they had paid for those of a fold."""
    large = [
        row for row in rows if row.found.cause not in ("", "first", "edit") and row.again > FOLDED
    ]
    dollars = sum(FOLDED * row.again_dollars / row.again for row in large)
    paid = sum(row.again_dollars for row in large)
    return Instead(dollars, paid, len(large)) if large else None


def _summed(cold: Sequence[Cold], longer: Instead | None, rules: CacheRules) -> tuple[Summed, ...]:
    kinds: dict[tuple[Cause, bool], list[Cold]] = {}
    for one in cold:
        kinds.setdefault((one.cause, one.sure), []).append(one)
    found = [
        Summed(
            cause=kind,
            sure=sure,
            calls=len(ones),
            tokens=sum(one.tokens for one in ones),
            dollars=sum(one.dollars for one in ones),
            advice=advice(
                kind,
                sure=sure,
                seconds=rules.seconds,
                longer=(longer.seconds, longer.paid - longer.dollars) if longer else None,
            ),
        )
        for (kind, sure), ones in kinds.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.dollars))


def _notes(recorded: Recorded, seen: dict[int, Around], rows: Sequence[Paid]) -> Iterator[str]:
    """What else the record says, and what it cannot tell."""
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
            asked = Aside(last.read + last.unread, PROMPT, float(count(summary)))
            asides += asked.dollars(last.rules.prices)
    if asides:
        many = f"{len(summaries)} compactions" if len(summaries) > 1 else "a compaction"
        yield (
            f"the calls that wrote the summaries of {many} are not in the record; "
            f"about ${asides:.2f} more if they read the cache"
        )
    yield from _turns(seen, rows)
    if recorded.counts and not any(row.call.read or row.call.write for row in rows):
        yield (
            "no call of this record read or wrote a cache: either it was off, and all that was "
            "sent again was paid in full, or it was not counted"
        )
    if not any(one.state.told.parts or one.state.told.tools for one in seen.values()):
        yield (
            "the record holds neither system prompt nor tools: which of their bytes changed cannot "
            "be shown"
        )
    if not recorded.counts:
        yield "the record has no counts: tokens are estimated, and the cache is simulated"
    if any(not row.gap for row in rows[1:]) and not any(recorded.times):
        yield "the record has no times: no expiry can be seen"


def _turns(seen: dict[int, Around], rows: Sequence[Paid]) -> Iterator[str]:
    """How guesses are borne out: by where in a turn nothing was found."""
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
