"""Presets: the numbers that decide, as data.

Knows names and numbers. Refuses to know how they are used.

The numbers are provisional: the lab earns them on recorded sessions, and changing them is no
breaking change before 1.0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from foldline.errors import BadInput

How: TypeAlias = Literal["head", "tail", "both", "lines", "ends"]
"""How a text is cut: `ends` keeps head and tail, and of the rest the error lines and the names."""


@dataclass(frozen=True, slots=True)
class Clipping:
    """The most that one result may take when it arrives, and how it is cut."""

    tokens: int
    how: How


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """When a fold pays although nothing forces it."""

    alpha: float
    """How much later than the cheapest moment: 1 is the cheapest, more is roomier."""
    groups: int
    """What stays verbatim: so many groups,"""
    tail: int
    """or whole groups until they exceed so many tokens."""
    floor: int
    """No fold below so many tokens, unless the cache is cold."""
    inside_turn: float = 1.5
    """Inside a turn, so many times later."""
    when_cold: float = 1.2
    """With a cold cache, from so many times what would be left."""
    gain: int = 2_000
    gain_share: float = 0.20
    """What a fold must gain at least: so many tokens, and this share of the request."""
    ledger: float = 0.08
    """Facts may take this share of what they replace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One preset. Shares are of room, the part of the window that a conversation may fill."""

    name: str
    folds: bool
    hard: float
    """Above this something is edited; also above a price step."""
    rest: float
    """What an edit brings it down to: far below hard, so that cuts are deep and rare."""
    handoff: float
    """The most that all handoffs together may take."""
    clip: Clipping
    """For every tool; a quarter of room is never exceeded."""
    clips: Mapping[str, Clipping] = field(default_factory=dict[str, Clipping])
    """For single tools, by name."""
    priced: Priced | None = None
    """None: only when forced."""

    def clipping(self, tool: str) -> Clipping:
        """How a result of that tool is cut."""
        return self.clips.get(tool, self.clip)


# What a person asks to be read in full is what they talk about next: 17 such results held half of
# all result tokens of a recorded session.
_READERS = ("cat", "open_file", "read", "read_file", "view", "view_file")
STEADY = Policy(
    name="steady",
    folds=True,
    hard=0.92,
    rest=0.45,
    handoff=0.25,
    clip=Clipping(2_500, "ends"),
    clips={name: Clipping(8_000, "ends") for name in _READERS},
    priced=Priced(alpha=1.5, groups=10, tail=8_000, floor=32_000),
)
THRIFTY = Policy(
    name="thrifty",
    folds=True,
    hard=0.92,
    rest=0.45,
    handoff=0.25,
    clip=Clipping(2_500, "ends"),
    priced=Priced(alpha=1.0, groups=6, tail=4_000, floor=0),
)
OFF = Policy(name="off", folds=False, hard=1.0, rest=1.0, handoff=0.0, clip=Clipping(2_500, "ends"))
PRESETS = {preset.name: preset for preset in (STEADY, THRIFTY, OFF)}


def named(name: str) -> Policy:
    """The preset of that name."""
    try:
        return PRESETS[name]
    except KeyError:
        known = ", ".join(sorted(PRESETS))
        raise BadInput(f"there is no policy {name!r}; choose one of {known}") from None
