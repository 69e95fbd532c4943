"""The record of every fold: when it was made, which turns it covers, what it saved and cost.

The event has the sizes, the store has the times, the catalogue has the prices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foldline.core import log
from foldline.core.log import Folded, UsageReported
from foldline.core.prices import PICO
from foldline.session.ledger import Ledger
from foldline.session.log_handle import Live
from foldline.stores import event_log

if TYPE_CHECKING:
    from foldline.session.history import Turn


@dataclass(frozen=True, slots=True)
class FoldRecord:
    """One fold of a session, in force or not. Times are in seconds since 1970."""

    at: int
    """The place of the fold; `recall` by it gives the handoff's text."""
    time: float
    """When it was made."""
    lo: int
    """The first event that it covers."""
    hi: int
    """The last event that it covers."""
    start_time: float | None
    """When the first of these was recorded; None if it was erased."""
    end_time: float | None
    """When the last of these was recorded; None if it was erased."""
    first_turn: int | None
    """The number of the first turn that it covers; None if no turn had begun."""
    last_turn: int | None
    """The number of the last turn that it covers."""
    messages: int
    """How many messages it stands for."""
    before: int
    """The tokens of what it covers."""
    after: int
    """The tokens of the handoff."""
    why: str
    """It was forced, it pays, the cache was cold, or the policy or a person asked for it: due."""
    quoted: int
    """How many messages the handoff quotes, whole or in part."""
    facts: int
    """How many facts it keeps."""
    model: str = ""
    """Who wrote the narrative; "" if there is none."""
    used: UsageReported | None = None
    """What asking for the narrative took, as the provider counted it; None if unknown."""
    dollars: float | None = None
    """What that cost at today's prices; None if unknown."""
    pays_after: float | None = None
    """The calls after which it has paid for the cache it broke."""
    client: str = ""
    """The agent whose own compaction it is, in an imported session; "" if it is ours."""
    standing: bool = True
    """Whether it is in force: not undone, and not merged into a later fold."""

    @property
    def ratio(self) -> float:
        """Tokens before ÷ after."""
        return self.before / self.after if self.after else 0.0


async def read_fold_records(live: Live, turns: Sequence["Turn"]) -> list[FoldRecord]:
    """Read the record of every fold of a session, oldest first."""
    store, name = live.store, live.name
    made = [
        (row.seq, row.time, event)
        async for row in event_log.iterate_rows(store, name, live.view.head)
        if row.kind == "folded" and isinstance(event := log.decode_event(row.body), Folded)
    ]
    ends = sorted({seq for _, _, one in made for seq in _ends_of(one)})
    rows = await store.read(name, [(seq, seq) for seq in ends]) if ends else []
    times = {row.seq: row.time for row in rows}
    standing = live.view.list_folds()
    return [
        _build_record(seq, time, event, turns=turns, times=times, standing=seq in standing)
        for seq, time, event in made
    ]


def _build_record(  # noqa: PLR0913 - an event, and what others know of it
    seq: int,
    time: float,
    event: Folded,
    *,
    turns: Sequence["Turn"],
    times: dict[int, float],
    standing: bool,
) -> FoldRecord:
    lo, hi = _ends_of(event)
    charge = Ledger().apply_event(seq, event)
    covered = [one.number for one, after in _pair_with_next(turns) if one.at <= hi and after > lo]
    return FoldRecord(
        at=seq,
        time=time,
        lo=lo,
        hi=hi,
        start_time=times.get(lo),
        end_time=times.get(hi),
        first_turn=covered[0] if covered else None,
        last_turn=covered[-1] if covered else None,
        messages=event.messages,
        before=event.before,
        after=event.after,
        why=event.why,
        quoted=len(event.verbatim) + len(event.clipped),
        facts=len(event.facts),
        model=event.by,
        used=event.used,
        dollars=charge.amount / PICO if charge and charge.amount is not None else None,
        pays_after=event.pays_after,
        client=event.client,
        standing=standing,
    )


def _ends_of(event: Folded) -> tuple[int, int]:
    span = event.change.span
    return span.lo, span.lo if span.hi is None else span.hi


def _pair_with_next(turns: Sequence["Turn"]) -> list[tuple["Turn", float]]:
    """Pair each turn with the place where the next one begins."""
    starts = [*(float(one.at) for one in turns[1:]), float("inf")]
    return [*zip(turns, starts, strict=False)]
