"""Presets: the numbers that decide, as data.

Knows names and numbers. Refuses to know how they are used.

The numbers are provisional: the lab earns them on recorded sessions, and changing them is no
breaking change before 1.0.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from foldline.errors import BadInput

How: TypeAlias = Literal["head", "tail", "both", "lines"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One preset. Shares are of room, the part of the window that a conversation may fill."""

    name: str
    folds: bool
    hard: float
    """A request must not be larger than this."""
    rest: float
    """What an edit brings it down to: far below hard, so that cuts are deep and rare."""
    handoff: float
    """The most that all handoffs together may take."""
    clip_tokens: int
    """The most that one result may take when it arrives; also a quarter of room."""
    clip_how: How


STEADY = Policy(
    name="steady",
    folds=True,
    hard=0.92,
    rest=0.45,
    handoff=0.25,
    clip_tokens=2_500,
    clip_how="both",
)
OFF = Policy(
    name="off", folds=False, hard=1.0, rest=1.0, handoff=0.0, clip_tokens=2_500, clip_how="both"
)
PRESETS = {preset.name: preset for preset in (STEADY, OFF)}


def named(name: str) -> Policy:
    """The preset of that name."""
    try:
        return PRESETS[name]
    except KeyError:
        known = ", ".join(sorted(PRESETS))
        raise BadInput(f"there is no policy {name!r}; choose one of {known}") from None
