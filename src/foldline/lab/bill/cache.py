"""What a provider bills for a session's calls: the prompt cache, simulated.

Knows that a prefix is found again block by block, for how long, from which size on, how far a
provider looks back for it, and what reading and writing cost. Refuses to know why a request is as
it is, and which provider has which rules.

A call reads the longest run of blocks that it shares with the call before it and that is not too
old; the rest is written. Every token that was not read has a cause, so that nothing is lost between
the lines: new, edited, or cold (expired, changed at the front, out of reach, too short to be kept,
or missed in the record).
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from foldline.core.prices import Prices

Cause: TypeAlias = Literal[
    "",
    "first",
    "model",
    "system",
    "tools",
    "thinking",
    "restart",
    "expired",
    "edit",
    "too short",
    "out of reach",
    "missed",
]
"""Why a call could not read what the call before had left: nothing, if it could."""
_PART = ("", "edit", "system", "thinking")  # causes that leave something to be found


class CacheBlock(NamedTuple):
    """A piece of a request; equal keys are equal bytes."""

    key: Hashable
    tokens: float
    pieces: int = 1
    """How many content blocks the provider sees in it."""


PROMPT = 250
"""Tokens of the question that asks for a summary, behind the conversation's own prefix."""


class Aside(NamedTuple):
    """A call beside the conversation, such as one that asks for a summary."""

    read: float
    """Tokens of a prefix that is in the cache."""
    fresh: float
    """Tokens that are not, and are not kept either."""
    output: float

    def dollars(self, prices: Prices) -> float:
        """What it costs."""
        at = prices.at(self.read + self.fresh)
        return (self.read * at.read + self.fresh * at.input + self.output * at.output) / 1e6


@dataclass(frozen=True, slots=True)
class CacheCall:
    """One call: what was sent, in order, and what came back."""

    at: int
    time: float
    blocks: Sequence[CacheBlock]
    output: float
    front: int = 0
    """How many of the blocks are the system's words and the tools."""
    missed: bool = False
    """Whether the record says that the cache was not found."""
    asides: tuple[Aside, ...] = ()
    """Calls that were made beside it, before it."""
    marks: tuple[int, ...] = ()
    """Behind how many of the blocks there is a mark, besides the front's and the end's."""
    changed: Cause = ""
    """What was changed since the call before, where it is known and the blocks do not show it."""


@dataclass(frozen=True, slots=True)
class CacheRules:
    """A provider's cache."""

    prices: Prices
    least: int = 1_024
    """Tokens from which on a prefix is kept at all."""
    seconds: float = 300.0
    """How long, since it was last read."""
    grain: int = 1
    """Reads are multiples of so many tokens."""
    lookback: int | None = None
    """Where prefixes are kept only at marks: how many content blocks are looked at from a mark
    backwards, its own the first. None: kept anywhere."""
    longer: float | None = None
    """How long a prefix can be kept instead, where that is offered."""
    dearer: float = 1.0
    """What a write costs then, times what input costs."""


@dataclass(frozen=True, slots=True)
class Billed:
    """One call's bill; tokens by how they were paid."""

    at: int
    time: float
    read: float
    written: float
    again: float
    """Of what was written: tokens that the call before had sent too."""
    output: float
    dollars: float
    lost: float
    """Dollars that the tokens written again cost more than reading them would have."""
    cause: Cause = ""
    beside: float = 0.0
    """Dollars for the calls beside it; `dollars` has them too."""

    @property
    def input(self) -> float:
        """All that was sent."""
        return self.read + self.written


def bill(calls: Iterable[CacheCall], rules: CacheRules) -> list[Billed]:
    """Every call's bill."""
    cache = _Cache(rules)
    return [cache.take(call) for call in calls]


@dataclass(slots=True)
class _Cache:
    """What a provider has kept."""

    rules: CacheRules
    before: CacheCall | None = None
    names: dict[tuple[int, Hashable], int] = field(default_factory=dict[tuple[int, Hashable], int])
    """Every prefix by the one that it continues and its last block."""
    used: dict[int, float] = field(default_factory=dict[int, float])
    """When each marked prefix was last read or written."""

    def take(self, call: CacheCall) -> Billed:
        """One more call."""
        old = self.before.blocks if self.before else ()
        shared, place = _shared(old, call.blocks)
        cause = _cause(call, self.before, place=place, rules=self.rules)
        read = self._read(call, cause, shared)
        if not cause and read < shared:
            if shared < self.rules.least:
                cause = "too short"
            elif self.rules.lookback is not None and read + self.rules.grain <= shared:
                cause = "out of reach"
        known = {block.key for block in old}
        seen = sum(block.tokens for block in call.blocks if block.key in known)
        self.before = call
        return _billed(call, self.rules.prices, read=read, seen=seen, cause=cause)

    def _read(self, call: CacheCall, cause: Cause, shared: float) -> float:
        """The tokens that are found again; and what this call leaves is kept."""
        rules = self.rules
        if rules.lookback is not None:
            found = self._marked(call, cause, rules.lookback)
        elif cause in _PART and not call.missed:
            found = shared if cause != "thinking" else _tokens(call.blocks[: call.front])
        else:
            found = 0.0
        found = found - found % rules.grain if rules.grain > 1 else found
        return found if found >= rules.least else 0.0

    def _marked(self, call: CacheCall, cause: Cause, lookback: int) -> float:
        """What is found from the marks of a call backwards, the longest first."""
        chain, at = [0], 0
        for block in call.blocks:
            at = self.names.setdefault((at, block.key), len(self.names) + 1)
            chain.append(at)
        every = {call.front, *call.marks, len(call.blocks)}
        ends = {call.front} if cause == "thinking" else every
        place = 0
        if cause in _PART and not call.missed:
            place = max(self._found(call, chain, end, lookback) for end in ends)
        for mark in (place, *every):
            self.used[chain[mark]] = call.time
        return _tokens(call.blocks[:place])

    def _found(self, call: CacheCall, chain: Sequence[int], end: int, lookback: int) -> int:
        """The longest kept prefix that a mark at `end` sees."""
        far = 0
        for place in range(end, 0, -1):
            used = self.used.get(chain[place])
            if used is not None and not _late(used, call.time, self.rules.seconds):
                return place
            far += call.blocks[place - 1].pieces
            if far >= lookback:
                break
        return 0


def _billed(call: CacheCall, prices: Prices, *, read: float, seen: float, cause: Cause) -> Billed:
    total = _tokens(call.blocks)
    at = prices.at(total)
    again = max(seen - read, 0.0)
    paid = read * at.read + (total - read) * at.write + call.output * at.output
    beside = sum(aside.dollars(prices) for aside in call.asides)
    return Billed(
        at=call.at,
        time=call.time,
        read=read,
        written=total - read,
        again=again,
        output=call.output,
        dollars=paid / 1e6 + beside,
        lost=again * (at.write - at.read) / 1e6,
        cause=cause,
        beside=beside,
    )


def _tokens(blocks: Iterable[CacheBlock]) -> float:
    return sum(block.tokens for block in blocks)


def _shared(before: Sequence[CacheBlock], now: Sequence[CacheBlock]) -> tuple[float, int]:
    """The tokens of the common beginning, and the place where it ends."""
    tokens, place = 0.0, 0
    for old, new in zip(before, now, strict=False):
        if old.key != new.key:
            break
        tokens, place = tokens + new.tokens, place + 1
    return tokens, place


def _late(then: float, now: float, seconds: float) -> bool:
    return bool(then and now) and now - then > seconds


def _cause(call: CacheCall, before: CacheCall | None, *, place: int, rules: CacheRules) -> Cause:
    """Why not all of the call before is found again."""
    if before is None:
        return "first"
    if call.changed:
        return call.changed
    if call.missed:
        return "missed"
    if _late(before.time, call.time, rules.seconds):
        return "expired"
    if place == len(before.blocks):
        return ""
    return "system" if place < call.front else "edit"
