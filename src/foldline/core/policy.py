"""Presets: the numbers that decide, as data.

Knows names and numbers. Refuses to know how they are used.

The numbers are provisional: the lab earns them on recorded sessions, and changing them is no
breaking change before 1.0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from foldline.errors import BadInput

Start: TypeAlias = Literal["auto", "ask", "manual", "off"]
How: TypeAlias = Literal["head", "tail", "both", "lines", "ends"]
"""How a text is cut: `ends` keeps head and tail, and of the rest the error lines and the names."""


@dataclass(frozen=True, slots=True)
class Clipping:
    """The most that one result may take when it arrives, and how it is cut."""

    tokens: int
    how: How
    """head, tail, both, lines, or `ends`: head and tail, and of the rest error lines and names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """What stays verbatim behind a fold: whole groups until any of these is reached.

    With none of them set, only what is unanswered and the newest group.
    """

    least: int = 0
    """So many groups stay whatever they take: one long read must not push out all the others."""
    groups: int | None = None
    """A group: a model's message with calls, and all their results."""
    messages: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Masking:
    """Results of the current turn that stay: the first and the last; the others become stubs."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """When a fold pays although nothing forces it."""

    tail: Tail
    """What stays verbatim behind such a fold."""
    floor: int = 0
    """No fold below so many tokens."""
    alpha: float = 1.0
    """How much dearer a fold is taken to be: 1 is the cheapest moment, more is later."""
    inside_turn: float = 1.25
    """Inside a turn, so many times later."""
    when_cold: float = 1.2
    """With a cold cache at a turn's end, from so many times what would be left."""
    gain: int = 2_000
    """What a fold must gain at least, in tokens."""
    gain_share: float = 0.20
    """And as a share of the request."""
    ledger: float
    """Facts may take this share of what they replace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One preset. Shares are of room, the part that a conversation may fill, or of the window."""

    name: str
    folds: bool = True
    """Whether it edits at all."""
    of: Literal["room", "window"] = "room"
    """What its shares are of."""
    warn: float = 0.70
    """From here on the report says so, and a narrative is asked for."""
    soft: float | None = None
    """From here on a fold is due at the end of a turn."""
    soft_of: Literal["room", "window"] | None = None
    """What that is a share of, where it is not what the others are of."""
    soft_tokens: int | None = None
    """The same as an absolute number; the smaller one counts."""
    hard: float
    """Above this something is edited at once; for shares of room also above a price step."""
    merging: Literal["rank", "sixth", "all"] = "rank"
    """What a new fold merges with: neighbours of equal rank, only what must not be a sixth, all."""
    overlap: int = 0
    """So many turns before its span are read once more by each fold."""
    narrative: int = 0
    """The most tokens that a model's narrative may take; 0: none is asked for."""
    turns: int | None = None
    """A fold is due after so many turns."""
    fill: int | None = None
    """A fold is due at a turn's end above so many tokens, and leaves that many."""
    start: Start = "auto"
    """Who starts a fold that is due; what is forced is never asked for."""
    rest: float = 0.45
    """What a forced edit brings it down to: far below hard, so that cuts are deep and rare."""
    tail: Tail = Tail()
    """What stays verbatim when a fold was due."""
    form: Literal["handoff", "omitted", "acknowledged"] = "handoff"
    """What stands where it was folded: a handoff, how many were left out, one that is answered."""
    handoff: float = 0.25
    """The most that all handoffs together may take."""
    words: int | None = None
    """The most that one handoff may take, in tokens."""
    reserve: int | None = None
    """Kept free for the answer, where nobody says otherwise."""
    mask: Masking | None = None
    """Before every call."""
    clip: Clipping
    """For every tool; a quarter of room is never exceeded."""
    clips: Mapping[str, Clipping] = field(default_factory=dict[str, Clipping])
    """For single tools, by name."""
    priced: Priced | None = None
    """None: only when forced."""

    def clipping(self, tool: str) -> Clipping:
        """How a result of that tool is cut; whoever serves it, and however it is spelled."""
        plain = tool.rpartition("__")[2].rpartition(".")[2].replace("_", "").lower()
        return self.clips.get(tool) or self.clips.get(plain) or self.clip


# What a person asks to be read in full is what they talk about next: 17 such results held half of
# all result tokens of a recorded session.
_UNCLIPPED = Clipping(1_000_000_000, "ends")  # by the preset: a quarter of room still holds
_READERS = (
    *("cat", "fsread", "notebookread", "open", "openfile", "read", "readfile", "readmanyfiles"),
    *("readmultiplefiles", "readtextfile", "view", "viewfile"),
)
STEADY = Policy(
    name="steady",
    hard=0.92,
    clip=Clipping(2_500, "ends"),
    clips=dict.fromkeys(_READERS, _UNCLIPPED),
    narrative=800,
    priced=Priced(tail=Tail(least=4, groups=7, tokens=5_000), floor=28_000, ledger=0.18),
)
THRIFTY = Policy(
    name="thrifty",
    hard=0.92,
    clip=Clipping(2_500, "ends"),
    priced=Priced(tail=Tail(groups=5, tokens=3_000), inside_turn=1.0, ledger=0.18),
)
# The papers' own numbers: they edit as their papers say, and cost what that costs.
THREE_LAYER = Policy(
    name="three-layer",
    hard=1.0,
    fill=20_000,
    form="omitted",
    merging="all",
    tail=Tail(tokens=20_000),
    clip=Clipping(8_000, "head"),
    mask=Masking(first=2, last=5),
)
CLASSIC = Policy(
    name="classic",
    of="window",
    warn=0.60,
    soft=0.70,
    hard=0.90,
    merging="all",
    narrative=200,
    words=20_500,
    clip=Clipping(8_000, "lines"),
)
SLIDING = Policy(
    name="sliding",
    of="window",
    soft=0.70,
    hard=0.90,
    merging="sixth",
    overlap=2,
    narrative=500,
    turns=5,
    words=500,
    clip=_UNCLIPPED,
)
WINDOW = Policy(
    name="window",
    of="window",
    soft=0.80,
    hard=0.95,
    merging="all",
    narrative=800,
    tail=Tail(messages=20),
    reserve=4_000,
    clip=_UNCLIPPED,
)
CONFIRM = Policy(
    name="confirm",
    of="window",
    soft=0.90,
    hard=0.98,
    start="ask",
    form="acknowledged",
    merging="all",
    narrative=800,
    clip=_UNCLIPPED,
)
OFF = Policy(name="off", folds=False, of="window", warn=0.90, hard=1.0, clip=_UNCLIPPED)
PRESETS = {
    preset.name: preset
    for preset in (STEADY, THRIFTY, THREE_LAYER, CLASSIC, SLIDING, WINDOW, CONFIRM, OFF)
}


def unforced(policy: Policy) -> Policy:
    """The same, folding only where it must."""
    return replace(policy, soft=None, turns=None, fill=None, priced=None)


def named(name: str) -> Policy:
    """The preset of that name."""
    try:
        return PRESETS[name]
    except KeyError:
        known = ", ".join(sorted(PRESETS))
        raise BadInput(f"there is no policy {name!r}; choose one of {known}") from None
