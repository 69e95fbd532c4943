"""Bodies and answers of the session API, as structs: what is read, what is written, what is told.

Knows the form of everything. Refuses to know where it comes from. The OpenAPI document is made from
these; a field that is not here is refused, with the name that was probably meant.
"""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from foldline.core.edits.fold.loss import Loss
from foldline.core.log import Speaker
from foldline.core.policy import PRESETS
from foldline.core.request import Pressure
from foldline.draw.picture import Cost as NextCall
from foldline.draw.picture import Fold, Prefix, Run, Short
from foldline.session.export import Format

LONGEST_NAME = 200
_FAR = 2**53 - 1  # what every JSON reader has exactly
At: TypeAlias = Annotated[int, Meta(ge=0, le=_FAR)]
SessionName: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST_NAME,
        description="Neither control characters nor slashes; not '.', '..' or 'openapi.json'.",
    ),
]
ModelName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
Window: TypeAlias = Annotated[
    int, Meta(ge=1, le=10**9, description="Tokens that the model takes in all.")
]
Key: TypeAlias = Annotated[
    str,
    Meta(min_length=1, max_length=200, description="What is sent twice under it is there once."),
]
Author: TypeAlias = Annotated[str, Meta(max_length=200)]
Json: TypeAlias = dict[str, Any]
Policy: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": sorted(PRESETS)})]
OnDisconnect: TypeAlias = Literal["pause", "continue"]
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=1000)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=600)]


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client sends."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a client is given."""


class Nothing(Shape, frozen=True, kw_only=True):
    """No field at all."""


# What is sent.


class NewSession(Shape, frozen=True, kw_only=True):
    """A session to be made."""

    model: ModelName
    name: SessionName | None = None
    system: str | list[str] | None = None
    tools: list[Json] | None = None
    """In either provider's form; a call of one ends the turn, and the client runs it."""
    window: Window | None = None
    reserve: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    policy: Policy = "steady"
    carry: SessionName | None = None
    """An earlier session, whose record opens this one."""
    on_disconnect: OnDisconnect = "pause"
    """What becomes of a turn whose client has gone."""


class Said(Shape, frozen=True, kw_only=True):
    """A message: `text`, or `message` as a provider's JSON; `speaker` and `author` say whose."""

    text: str | None = None
    message: Json | None = None
    speaker: Speaker = "human"
    author: Author = ""
    once: Key | None = None


class Message(Said, frozen=True, kw_only=True):
    """A message that is to be answered; with neither text nor message, what stands is."""

    stream: bool = False
    wait: bool = False
    """Whether to wait for a turn that is under way; else the message is queued."""
    on_disconnect: OnDisconnect | None = None


class Happened(Said, frozen=True, kw_only=True):
    """What happened, without asking for an answer: results, notices, a provider's answer."""

    messages: list[Json] | None = None


class Wanted(Shape, frozen=True, kw_only=True):
    """What is sent beside the conversation."""

    parameters: Json = {}


class Folding(Shape, frozen=True, kw_only=True):
    """A fold to be made now."""

    focus: Annotated[str, Meta(max_length=2000)] = ""
    preview: bool = False


class Undoing(Shape, frozen=True, kw_only=True):
    """An edit to be taken back: the newest, if none is named."""

    edit: At | None = None


class Pinning(Shape, frozen=True, kw_only=True):
    """A message, by its place or its handle."""

    place: At | Annotated[str, Meta(max_length=100)]


class Excluding(Shape, frozen=True, kw_only=True):
    """Messages, by their places."""

    places: Annotated[list[At], Meta(min_length=1, max_length=1000)]


class Instructing(Shape, frozen=True, kw_only=True):
    """System's words and tools from here on; what is not given stays."""

    system: str | list[str] | None = None
    tools: list[Json] | None = None


class Switching(Shape, frozen=True, kw_only=True):
    """Another model from here on."""

    model: ModelName
    window: Window | None = None


class Forking(Shape, frozen=True, kw_only=True):
    """A session that begins as this one is, or was at a place."""

    to: SessionName | None = None
    at: At | None = None


# What is asked for in the address.


class Page(Shape, frozen=True, kw_only=True):
    """A page of sessions."""

    after: Annotated[str, Meta(max_length=LONGEST_NAME)] = ""
    limit: Limit = 100


class Stretch(Shape, frozen=True, kw_only=True):
    """A stretch of the log, and how long to wait for more of it."""

    after: Annotated[int, Meta(ge=-1, le=_FAR)] | None = None
    limit: Limit = 100
    follow: Seconds = 0.0


class Handle(Shape, frozen=True, kw_only=True):
    """What to recall, whole or in pages of so many tokens."""

    handle: Annotated[str, Meta(min_length=1, max_length=500)]
    most: Annotated[int, Meta(ge=1, le=10**9)] | None = None


class Words(Shape, frozen=True, kw_only=True):
    """What to search for."""

    words: Annotated[str, Meta(min_length=1, max_length=500)]
    everywhere: bool = False
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class Exporting(Shape, frozen=True, kw_only=True):
    """In which form."""

    format: Format = "jsonl"
    sight: bool = False


class Waiting(Shape, frozen=True, kw_only=True):
    """Whether to wait for a turn that is under way."""

    wait: bool = False


# What is answered.


class Listed(Answer, frozen=True, kw_only=True):
    """One session in a list."""

    name: str
    events: int
    bytes: int
    opened: float
    changed: float
    origin: str
    owner: str
    """The name of the key that it was made with; "" where it was made without one."""


class Sessions(Answer, frozen=True, kw_only=True):
    """A page of sessions, and what the next is asked for with."""

    sessions: list[Listed]
    after: str | None


class Session(Answer, frozen=True, kw_only=True):
    """A session as it is."""

    name: str
    model: str
    policy: str
    on_disconnect: OnDisconnect
    at: int
    """The place of its newest event."""
    tokens: int
    window: int
    edits: list[int]
    pins: list[int]
    calls: list[str]
    """Ids of calls that wait for a result."""
    busy: bool
    """Whether a turn is under way here."""


class Receipt(Answer, frozen=True, kw_only=True):
    """What was erased."""

    sessions: list[str]
    events: int
    bytes: int
    time: float


class Call(Answer, frozen=True, kw_only=True):
    """A call that the client is to run."""

    id: str
    name: str
    arguments: str


class Usage(Answer, frozen=True, kw_only=True):
    """What the provider counted for the last call; what it did not state is null."""

    input: int | None
    output: int | None
    cache_read: int | None
    cache_write: int | None
    reasoning: int | None


class Answered(Answer, frozen=True, kw_only=True):
    """How a turn ended."""

    ended: Literal["answered", "calls", "rounds", "vetoed", "queued"]
    words: str
    at: int
    """The place of the message."""
    answer: int | None = None
    """The place of the answer."""
    calls: list[Call] = []
    """What the client is to run; their results go to `events` or `messages`."""
    usage: Usage | None = None
    tokens: int
    window: int
    edits: list[int] = []
    """The edits that were made in this turn."""


class Entry(Answer, frozen=True, kw_only=True):
    """An event at its place in the log."""

    seq: int
    event: Json


class Events(Answer, frozen=True, kw_only=True):
    """A stretch of the log; `after` asks for the next."""

    events: list[Entry]
    after: int
    end: int
    """The place of the newest event."""


class Added(Answer, frozen=True, kw_only=True):
    """Where what was added ends, and the ids of calls that still wait for a result."""

    at: int
    calls: list[str]


class Context(Answer, frozen=True, kw_only=True):
    """What the model sees now, and where its window goes."""

    session: str
    model: str
    policy: str
    window: int
    source: str
    reserve: int
    margin: int
    room: int
    most: int
    counted: Literal["reported", "estimated"]
    pressure: Pressure
    runs: list[Run]
    shorts: list[Short]
    folds: list[Fold]
    tiers: list[tuple[Pressure, int]]
    prefix: Prefix
    cost: NextCall | None
    warnings: list[str]
    total: int
    percent: float
    level: Literal["green", "yellow", "red"]
    over: int
    spaces: dict[str, int]
    parts: dict[str, int]


class Tokens(Answer, frozen=True, kw_only=True):
    """Where the window goes, in tokens."""

    session: str
    line: str
    """For people."""
    total: int
    window: int
    percent: float
    level: Literal["green", "yellow", "red"]
    pressure: Pressure
    counted: Literal["reported", "estimated"]
    window_source: str
    reserve: int
    margin: int
    room: int
    parts: dict[str, int]


class Folded(Answer, frozen=True, kw_only=True):
    """What a fold took out of sight, or would."""

    folded: bool
    preview: bool
    edit: int | None
    before: int
    after: int
    loss: Loss | None


class Undone(Answer, frozen=True, kw_only=True):
    """What was taken back, and what to undo if it is wanted again."""

    undone: int
    redo: int
    edits: list[int]
    before: int
    after: int


class Pins(Answer, frozen=True, kw_only=True):
    """The places that are pinned."""

    pins: list[int]


class Excluded(Answer, frozen=True, kw_only=True):
    """The edit to undo if what was excluded is wanted again."""

    edit: int
    before: int
    after: int


class Recalled(Answer, frozen=True, kw_only=True):
    """The original of something."""

    handle: str
    text: str


class Hit(Answer, frozen=True, kw_only=True):
    """A message that was found."""

    session: str
    handle: str
    snippet: str


class Found(Answer, frozen=True, kw_only=True):
    """Messages that hold all of some words, the newest first."""

    words: str
    found: list[Hit]


class Turn(Answer, frozen=True, kw_only=True):
    """A message of a person and all that answers it."""

    number: int
    at: int
    words: str
    time: float
    calls: int
    input: int
    output: int
    read: int
    folded: bool
    asked: int
    """The place of its last request, for `requests`; -1 where none was made."""
    answered: int


class History(Answer, frozen=True, kw_only=True):
    """Every turn, and how fast the window fills."""

    turns: list[Turn]
    used: int
    window: int
    growth: int
    turns_left: int | None
    next_output: int | None


class Tool(Answer, frozen=True, kw_only=True):
    """A tool as the model is told of it."""

    name: str
    description: str
    parameters: Any


class Instructions(Answer, frozen=True, kw_only=True):
    """What holds now."""

    system: list[str]
    tools: list[Tool]


class Cost(Answer, frozen=True, kw_only=True):
    """What the calls of a session took, as their provider counted, at today's prices."""

    calls: int
    uncounted: int
    """Requests of which nothing was reported: they are not in the sums."""
    input: int
    cache_read: int
    cache_write: int
    output: int
    dollars: float
    assumed: bool
    """Whether any price is a guess."""
    next_call: NextCall | None


class Fault(Answer, frozen=True, kw_only=True):
    """What went wrong, and what to do about it."""

    kind: str
    message: str
    way_out: str = ""


class Refusal(Answer, frozen=True, kw_only=True):
    """Every error has this form."""

    error: Fault
