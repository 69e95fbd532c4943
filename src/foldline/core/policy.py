"""Policies as data: the presets, and the numbers that decide.

The numbers are provisional: the lab measures them on recorded sessions, and changing them is no
breaking change before 1.0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from foldline.core.tokens import LEAST_MARGIN, MOST_MARGIN, Estimator
from foldline.errors import BadInput

Start: TypeAlias = Literal["auto", "ask", "manual", "off"]
_ASKED = 0.90  # of the window: where a person is asked
How: TypeAlias = Literal["head", "tail", "both", "lines", "ends"]
"""How a text is cut: `ends` keeps head and tail, and of the rest the error lines and the names.

Text of a known kind, such as a log or a test run, is cut by what is in it.
"""


@dataclass(frozen=True, slots=True)
class LineLimits:
    """From which size on a text is cut by lines, and how many lines of both ends stay."""

    bytes: int = 10 * 1024
    """Of the whole text; then of both ends together."""
    lines: int = 256
    head: int = 128
    tail: int = 128


@dataclass(frozen=True, slots=True)
class Clipping:
    """The most tokens that one result may take when it arrives, and how it is cut."""

    tokens: int
    how: How
    """head, tail, both, lines, or `ends`: what matters by its kind, else ends, errors and names."""
    lines: LineLimits = LineLimits()
    """The limits of `lines`, beside its tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """What stays verbatim behind a fold: whole groups until any of these is reached.

    With none of them set, only what is unanswered and the newest group.
    """

    least: int = 0
    """Groups that stay whatever their size: one long read must not push out all the others."""
    groups: int | None = None
    """A group: a model's message with calls, and all their results."""
    messages: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Crowd:
    """How many messages are too many: as many as the input holds of this size, within bounds.

    Ours is reached only by messages of a few words: a chat must not be folded while it fits.
    """

    tokens: int
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Masking:
    """How many of the current turn's first and last results stay; the others become stubs."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """When a fold pays although nothing forces it."""

    tail: Tail
    """What stays verbatim behind such a fold."""
    floor: int = 0
    """The fewest tokens of a request that is folded, at most half the window; once something is
    folded, half of that."""
    inside_turn: float = 1.25
    """A factor on the size at which to fold inside a turn."""
    when_cold: float = 1.2
    """At a turn's end with a cold cache: how many times what would be left the request must be."""
    gain: int = 2_000
    """The fewest tokens that a fold must gain."""
    gain_share: float = 0.20
    """The least share of the request that a fold must gain."""
    ledger: float
    """The share of what they replace that facts may take."""
    handoff: float = 0.25
    """The share that all handoffs together may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One preset. Shares are of room, the part that a conversation may fill, or of the window."""

    name: str
    folds: bool = True
    """Whether it edits at all."""
    of: Literal["room", "window"] = "room"
    """What its shares are of."""
    warn: float = 0.70
    """Above this share the report warns, and a narrative is asked for."""
    soft: float | None = None
    """Above this share a fold is due at the end of a turn; the setting is `compact_threshold`."""
    soft_of: Literal["room", "window"] | None = None
    """What `soft` is a share of, where a user set it: a share of the window delays all folds."""
    soft_tokens: int | None = None
    """`soft` as a number of tokens; the smaller one counts."""
    hard: float
    """Above this share something is edited at once; for shares of room also above a price step.

    Only where folds start by themselves: else when the request cannot be sent."""
    merging: Literal["rank", "sixth", "all"] = "rank"
    """What a new fold merges with: neighbours of equal rank, only what would make a sixth, all."""
    overlap: int = 0
    """The number of turns before its span that each fold reads once more."""
    narrative: int = 0
    """The most tokens that a model's narrative may take; 0: none is asked for."""
    turns: int | None = None
    """The number of turns after which a fold is due."""
    fill: int | None = None
    """The tokens above which a fold is due at a turn's end, and which it leaves."""
    start: Start = "auto"
    """Who starts a fold that is due; unless it is `auto`, nothing else is folded while it fits."""
    rest: float = 0.45
    """What a forced fold brings it down to: below hard, so that cuts are rare."""
    tail: Tail = Tail()
    """What stays verbatim behind a fold at `soft`; `priced` has a tail of its own."""
    form: Literal["handoff", "omitted", "acknowledged"] = "handoff"
    """What replaces a span: a handoff, a count of omitted messages, or a handoff with an answer."""
    handoff: float = 0.25
    """The share that all handoffs together may take."""
    words: int | None = None
    """The most tokens that one handoff may take."""
    newest: int = 0
    """The tokens of the user's newest messages that stay whole in a handoff, where half of room
    allows it; 0: what is said in them decides."""
    reserve: int | None = None
    """The tokens kept free for the answer, unless the user says otherwise; of a small window at
    most an eighth. None: a tenth of the window, and less where a threshold needs the room."""
    crowd: Crowd = Crowd(10, 200, 4_000)
    """From how many messages on a fold is forced, where folds start by themselves."""
    mask: Masking | None = None
    """Which results are masked before every call; None: none."""
    clip: Clipping
    """How results are clipped; none takes more than a quarter of room."""
    clips: Mapping[str, Clipping] = field(default_factory=dict[str, Clipping])
    """How results of single tools are clipped, by name."""
    estimator: Estimator = "classes"
    """How a request is estimated until a provider has counted it."""
    priced: Priced | None = None
    """When a fold pays; None: fold only when due or forced."""

    @property
    def threshold(self) -> float | None:
        """The share of the window from which a fold is due; None without such a number."""
        return self.soft if (self.soft_of or self.of) == "window" else None

    @property
    def margin(self) -> float:
        """The most of the window to keep for the errors of estimates.

        It must not take the room between what the user wrote and what can be sent. The bounds of
        what no provider has counted are kept apart from it.
        """
        return LEAST_MARGIN if self.delays or self.start != "auto" else MOST_MARGIN

    @property
    def delays(self) -> bool:
        """Whether folds that would pay wait for the threshold: the user wrote that number."""
        return self.soft is not None and self.soft_of == "window"

    def clipping(self, tool: str, *, reads: bool = False) -> Clipping:
        """Return how results of a tool are clipped, whatever its server and spelling.

        With `reads`, a call of any tool that only shows files is clipped as a reader's.
        """
        plain = tool.rpartition("__")[2].rpartition(".")[2].replace("_", "").lower()
        own = self.clips.get(tool) or self.clips.get(plain)
        return own or (self.clips.get(_READERS[0]) if reads else None) or self.clip


_UNCLIPPED = Clipping(1_000_000_000, "ends")  # a quarter of room is still the limit
_READERS = (
    *("cat", "fsread", "notebookread", "open", "openfile", "read", "readfile", "readmanyfiles"),
    *("readmultiplefiles", "readtextfile", "view", "viewfile"),
)
# What a model has asked for it shall see: a result is whole unless it fills the window.
_WHOLE = Clipping(25_000, "ends")
_FILES = dict.fromkeys(_READERS, _UNCLIPPED)
STEADY = Policy(
    name="steady",
    hard=1.0,
    handoff=0.55,
    clip=_WHOLE,
    clips=_FILES,
    narrative=800,
    priced=Priced(tail=Tail(least=4, groups=7, tokens=5_000), floor=48_000, ledger=0.18),
)
THRIFTY = Policy(
    name="thrifty",
    hard=1.0,
    handoff=0.55,
    clip=_WHOLE,
    clips=_FILES,
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
    crowd=Crowd(100, 100, 2_000),
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
    newest=20_000,
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
    reserve=2_000,
    clip=_UNCLIPPED,
)
CONFIRM = Policy(
    name="confirm",
    of="window",
    soft=_ASKED,
    hard=1.0,
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


def limit_to_forced_folds(policy: Policy) -> Policy:
    """Return the policy without its own rules: it folds only when forced, and never in doubt."""
    return replace(policy, soft=None, turns=None, fill=None, priced=None, start="ask")


def named(name: str) -> Policy:
    """Return the preset of that name; raises `BadInput` if there is none."""
    try:
        return PRESETS[name]
    except KeyError:
        known = ", ".join(sorted(PRESETS))
        raise BadInput(f"there is no policy {name!r}; choose one of {known}") from None
