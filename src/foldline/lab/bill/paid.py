"""Each call of a record as it was paid, and which of its tokens were paid for again.

Knows how counts become dollars, and what a call shares with the one before it. Refuses to sum them
up. Where a record has the provider's counts they are the bill; where it has none, the cache is
simulated.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from foldline.core.tokens import count_parts, count_tools
from foldline.lab.bill.cache import CacheBlock, CacheCall, CacheRules, bill
from foldline.lab.bill.causes import Around, ColdCause, cause, changed
from foldline.lab.recorded import Recorded, RecordedCall
from foldline.lab.recorded_run import as_recorded

_SOME, _SHARE = 1_000, 0.1  # tokens, and share of what was there: less is no cold call


class Paid(NamedTuple):
    """One billed call, tokens and dollars by how they were paid."""

    number: int
    call: RecordedCall
    gap: float
    read: float
    unread: float
    again: float
    written: float
    """Of the unread tokens: what was written to the cache."""
    read_dollars: float
    unread_dollars: float
    output_dollars: float
    rules: CacheRules
    found: ColdCause

    @property
    def again_dollars(self) -> float:
        """What the tokens cost that had been sent before and were not in the cache."""
        return self.unread_dollars * self.again / self.unread if self.unread else 0.0

    @property
    def lost(self) -> float:
        """What they cost more than from the cache."""
        prices = self.rules.prices.at(self.read + self.unread)
        return max(self.again_dollars - self.again * prices.read / 1e6, 0.0)


def paid(
    recorded: Recorded, seen: dict[int, Around], ruled: Callable[[int], CacheRules]
) -> list[Paid]:
    """Every call that was billed; `ruled` has the rules for the call at a place."""
    return [*(_counted if recorded.counts else _simulated)(recorded, seen, ruled)]


def _counted(
    recorded: Recorded, seen: dict[int, Around], ruled: Callable[[int], CacheRules]
) -> Iterator[Paid]:
    """Every call as its provider counted it."""
    writes = any(call.write for call in recorded.calls)
    kept = writes or any(call.read for call in recorded.calls)
    front = next((_front(recorded, call) for call in recorded.calls if call.input), 0.0)
    before: RecordedCall | None = None
    for number, call in enumerate(recorded.calls, start=1):
        total = call.input
        if not total:
            continue
        rules, now = ruled(call.at), seen[call.at]
        gap = call.began - before.began if before and before.began and call.began else 0.0
        known = _known(recorded, call, before, now)
        read = float(min(call.read, total))
        unread = total - read
        again = min(max(known - read, 0.0), unread)
        written = float(min(call.write, unread)) if writes else unread
        prices = rules.prices.at(total)
        each = prices.write if writes else prices.input
        found = ColdCause("first") if before is None else ColdCause("")
        if kept and again >= _SOME and again >= _SHARE * known:
            found = cause(now, call, before, gap=gap, front=front, rules=rules)
        yield Paid(
            number=number,
            call=call,
            gap=gap,
            read=read,
            unread=unread,
            again=again,
            written=written,
            read_dollars=read * prices.read / 1e6,
            unread_dollars=(written * each + (unread - written) * prices.input) / 1e6,
            output_dollars=call.output * prices.output / 1e6,
            rules=rules,
            found=found,
        )
        before = call


def _front(recorded: Recorded, call: RecordedCall) -> float:
    """What a call's system prompt and tools take: all but its messages; best at the first call."""
    return (call.input or 0) - recorded.scale.ratio * call.estimate


def _known(
    recorded: Recorded, call: RecordedCall, before: RecordedCall | None, now: Around
) -> float:
    """The tokens of a call that the call before had sent too."""
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


def _simulated(
    recorded: Recorded, seen: dict[int, Around], ruled: Callable[[int], CacheRules]
) -> Iterator[Paid]:
    """Every call as a provider would have billed it."""
    if not recorded.calls:
        return
    rules = ruled(recorded.calls[-1].at)
    before: RecordedCall | None = None
    billed = bill(sent_with_fronts(recorded, seen), rules)
    for number, (call, one) in enumerate(zip(recorded.calls, billed, strict=True), start=1):
        gap = call.began - before.began if before and before.began and call.began else 0.0
        prices = rules.prices.at(one.input)
        found = changed(seen[call.at])
        cold = one.again >= _SOME and one.again >= _SHARE * (one.again + one.read)
        yield Paid(
            number=number,
            call=call,
            gap=gap,
            read=one.read,
            unread=one.written,
            again=one.again,
            written=one.written,
            read_dollars=one.read * prices.read / 1e6,
            unread_dollars=one.written * prices.write / 1e6,
            output_dollars=one.output * prices.output / 1e6,
            rules=rules,
            found=found if found.cause and cold else ColdCause(one.cause if cold else ""),
        )
        before = call


def sent_with_fronts(recorded: Recorded, seen: dict[int, Around]) -> list[CacheCall]:
    """The calls as they were made, each with the front that was in force."""
    made: list[CacheCall] = []
    for call, sent in zip(recorded.calls, as_recorded(recorded), strict=True):
        told = seen[call.at].state.told
        tokens = count_parts(told.parts) + count_tools(told.tools)
        front = CacheBlock(("front", told), float(tokens), len(told.parts) + len(told.tools))
        found = changed(seen[call.at]).cause if made else ""
        known = found if found in ("model", "thinking", "restart") else ""
        blocks = [front, *sent.blocks[sent.front :]]
        made.append(replace(sent, time=call.began, blocks=blocks, front=1, changed=known))
    return made
