"""What a provider bills for a session's calls: the prompt cache, simulated.

Knows that a prefix is found again block by block, for how long, from which size on, and what
reading and writing cost. Refuses to know why a request is as it is.

A call reads the longest run of blocks that it shares with the call before it and that is not too
old; the rest is written. Every token that was not read has a cause, so that nothing is lost between
the lines: new, edited, or cold (expired, changed at the front, or missed in the record).
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from foldline.core.prices import Prices

Cause: TypeAlias = Literal["", "first", "expired", "missed", "front", "edit"]
"""Why a call could not read what the call before had left: nothing, if it could."""


class Block(NamedTuple):
    """A piece of a request; equal keys are equal bytes."""

    key: Hashable
    tokens: float


class Aside(NamedTuple):
    """A call beside the conversation, such as one that asks for a summary."""

    read: float
    """Tokens of a prefix that is in the cache."""
    fresh: float
    """Tokens that are not, and are not kept either."""
    output: float

    def dollars(self, prices: Prices) -> float:
        """What it costs."""
        paid = self.read * prices.read + self.fresh * prices.input + self.output * prices.output
        return paid / 1e6


@dataclass(frozen=True, slots=True)
class Sent:
    """One call: what was sent, in order, and what came back."""

    at: int
    time: float
    blocks: Sequence[Block]
    output: float
    front: int = 0
    """How many of the blocks are the system's words and the tools."""
    missed: bool = False
    """Whether the record says that the cache was not found."""
    asides: tuple[Aside, ...] = ()
    """Calls that were made beside it, before it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """A provider's cache."""

    prices: Prices
    least: int = 1_024
    """Tokens from which on a prefix is kept at all."""
    seconds: float = 300.0
    """How long, since it was last read."""


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


def bill(calls: Iterable[Sent], rules: Rules) -> list[Billed]:
    """Every call's bill."""
    billed: list[Billed] = []
    before: Sent | None = None
    for call in calls:
        billed.append(_billed(call, before, rules))
        before = call
    return billed


def _billed(call: Sent, before: Sent | None, rules: Rules) -> Billed:
    prices = rules.prices
    old = before.blocks if before else ()
    shared, place = _shared(old, call.blocks)
    cause = _cause(call, before, place=place, rules=rules)
    found = cause in ("", "edit", "front") and shared >= rules.least
    total = sum(block.tokens for block in call.blocks)
    read = shared if found else 0.0
    known = {block.key for block in old}
    seen = sum(block.tokens for block in call.blocks if block.key in known)
    again = max(seen - read, 0.0)
    paid = read * prices.read + (total - read) * prices.write + call.output * prices.output
    more = again * (prices.write - prices.read)
    beside = sum(aside.dollars(prices) for aside in call.asides)
    return Billed(
        at=call.at,
        time=call.time,
        read=read,
        written=total - read,
        again=again,
        output=call.output,
        dollars=paid / 1e6 + beside,
        lost=more / 1e6,
        cause=cause,
        beside=beside,
    )


def _shared(before: Sequence[Block], now: Sequence[Block]) -> tuple[float, int]:
    """The tokens of the common beginning, and the place where it ends."""
    tokens, place = 0.0, 0
    for old, new in zip(before, now, strict=False):
        if old.key != new.key:
            break
        tokens, place = tokens + new.tokens, place + 1
    return tokens, place


def _cause(call: Sent, before: Sent | None, *, place: int, rules: Rules) -> Cause:
    """Why not all of the call before is found again."""
    if before is None:
        return "first"
    if call.missed:
        return "missed"
    if call.time and before.time and call.time - before.time > rules.seconds:
        return "expired"
    if place == len(before.blocks):
        return ""
    return "front" if place < call.front else "edit"
