"""Bodies, queries and answers of the session API, as structs.

The OpenAPI document is made from these. A field that is not here is refused, with the name that was
probably meant.
"""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from foldline.core.edits.fold.loss import Loss
from foldline.core.log import Speaker
from foldline.core.policy import PRESETS
from foldline.core.request import Pressure
from foldline.draw.picture import Fold, Prefix, Run, Short
from foldline.draw.picture import InputCost as NextCall
from foldline.session.carry import PARTS
from foldline.session.export_log import Format

LONGEST_NAME = 200
_FAR = 2**53 - 1  # the largest integer that every JSON reader holds exactly
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
    int, Meta(ge=1, le=10**9, description="The model's context window, in tokens.")
]
Key: TypeAlias = Annotated[
    str,
    Meta(min_length=1, max_length=200, description="A message sent twice under it is added once."),
]
Author: TypeAlias = Annotated[str, Meta(max_length=200)]
Json: TypeAlias = dict[str, Any]
Policy: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": sorted(PRESETS)})]
OnDisconnect: TypeAlias = Literal["pause", "continue"]
CarriedPart: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": [*PARTS]})]
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=1000)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=600)]


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client sends."""


class AnswerSchema(msgspec.Struct, frozen=True, kw_only=True):
    """What a client gets."""


class NothingSchema(Shape, frozen=True, kw_only=True):
    """No field at all."""


# Bodies.


class NewSessionSchema(Shape, frozen=True, kw_only=True):
    """A session to make."""

    model: ModelName
    name: SessionName | None = None
    system: str | list[str] | None = None
    tools: list[Json] | None = None
    """In either provider's form; a call of one ends the turn, and the client runs it."""
    window: Window | None = None
    reserve: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    policy: Policy | None = None
    """The preset; by default the operator's setting, else steady."""
    carry: SessionName | None = None
    """An earlier session, whose record opens this one."""
    parts: list[CarriedPart] | None = None
    """What of that record; all by default."""
    on_disconnect: OnDisconnect | None = None
    """What happens to a turn whose client is gone; by default the operator's setting or pause."""


class SaidSchema(Shape, frozen=True, kw_only=True):
    """A message: `text`, or `message` as a provider's JSON; `speaker` and `author` say whose."""

    text: str | None = None
    message: Json | None = None
    speaker: Speaker = "human"
    author: Author = ""
    once: Key | None = None


class MessageSchema(SaidSchema, frozen=True, kw_only=True):
    """A message to answer; without text and message, what is still unanswered is answered."""

    stream: bool = False
    wait: bool = False
    """Whether to wait for a turn that is under way; else the message is queued."""
    on_disconnect: OnDisconnect | None = None


class HappenedSchema(SaidSchema, frozen=True, kw_only=True):
    """What happened, without asking for an answer: results, notices, a provider's answer."""

    messages: list[Json] | None = None


class WantedSchema(Shape, frozen=True, kw_only=True):
    """Parameters of the request beside the conversation."""

    parameters: Json = {}


class FoldingSchema(Shape, frozen=True, kw_only=True):
    """A fold to make now."""

    focus: Annotated[str, Meta(max_length=2000)] = ""
    preview: bool = False


class UndoingSchema(Shape, frozen=True, kw_only=True):
    """An edit to undo: the newest, if none is named."""

    edit: At | None = None


class PinningSchema(Shape, frozen=True, kw_only=True):
    """A message, by its place or its handle."""

    place: At | Annotated[str, Meta(max_length=100)]


class ExcludingSchema(Shape, frozen=True, kw_only=True):
    """Messages, by their places."""

    places: Annotated[list[At], Meta(min_length=1, max_length=1000)]


class InstructingSchema(Shape, frozen=True, kw_only=True):
    """System prompt and tools from here on; what is not given stays."""

    system: str | list[str] | None = None
    tools: list[Json] | None = None


class SwitchingSchema(Shape, frozen=True, kw_only=True):
    """Another model from here on."""

    model: ModelName
    window: Window | None = None


class ForkingSchema(Shape, frozen=True, kw_only=True):
    """A session that begins as this one is, or was at a place."""

    to: SessionName | None = None
    at: At | None = None


# Queries.


class PageSchema(Shape, frozen=True, kw_only=True):
    """A page of sessions."""

    after: Annotated[str, Meta(max_length=LONGEST_NAME)] = ""
    limit: Limit = 100


class StretchSchema(Shape, frozen=True, kw_only=True):
    """A stretch of the log, and how long to wait for more of it."""

    after: Annotated[int, Meta(ge=-1, le=_FAR)] | None = None
    limit: Limit = 100
    follow: Seconds = 0.0


class HandleSchema(Shape, frozen=True, kw_only=True):
    """What to recall, whole or in pages of so many tokens."""

    handle: Annotated[str, Meta(min_length=1, max_length=500)]
    most: Annotated[int, Meta(ge=1, le=10**9)] | None = None


class WordsSchema(Shape, frozen=True, kw_only=True):
    """What to search for; in double quotes, exactly these words."""

    words: Annotated[str, Meta(min_length=1, max_length=500)]
    everywhere: bool = False
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class ExportingSchema(Shape, frozen=True, kw_only=True):
    """The form of an export."""

    format: Format = "jsonl"
    sight: bool = False


class WaitingSchema(Shape, frozen=True, kw_only=True):
    """Whether to wait for a turn that is under way."""

    wait: bool = False


# Answers.


class ListedSchema(AnswerSchema, frozen=True, kw_only=True):
    """One session in a list."""

    name: str
    events: int
    bytes: int
    opened: float
    changed: float
    origin: str
    owner: str
    """Who has it: the owner of the key that it was made with; "" if there was none."""


class SessionsSchema(AnswerSchema, frozen=True, kw_only=True):
    """A page of sessions, and the `after` that asks for the next."""

    sessions: list[ListedSchema]
    after: str | None
    shared: list[str] = []
    """On the first page: sessions of others that are shared with the key's owner."""


class SessionSchema(AnswerSchema, frozen=True, kw_only=True):
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
    carried: dict[str, int] | None = None
    """Where it was just made: the tokens of each part that was carried on."""


class SharesSchema(AnswerSchema, frozen=True, kw_only=True):
    """Who may read a session beside its owner."""

    session: str
    shared: list[str]
    """Owners of keys."""


class ReceiptSchema(AnswerSchema, frozen=True, kw_only=True):
    """What was erased."""

    sessions: list[str]
    events: int
    bytes: int
    time: float


class CallSchema(AnswerSchema, frozen=True, kw_only=True):
    """A tool call for the client to run."""

    id: str
    name: str
    arguments: str


class UsageSchema(AnswerSchema, frozen=True, kw_only=True):
    """What the provider counted for the last call; what it did not state is null."""

    input: int | None
    output: int | None
    cache_read: int | None
    cache_write: int | None
    reasoning: int | None


class AnsweredSchema(AnswerSchema, frozen=True, kw_only=True):
    """How a turn ended."""

    ended: Literal["answered", "calls", "rounds", "vetoed", "queued"]
    words: str
    at: int
    """The place of the message."""
    answer: int | None = None
    """The place of the answer."""
    calls: list[CallSchema] = []
    """Tool calls for the client to run; their results go to `events` or `messages`."""
    usage: UsageSchema | None = None
    tokens: int
    window: int
    edits: list[int] = []
    """The edits that were made in this turn."""


class EntrySchema(AnswerSchema, frozen=True, kw_only=True):
    """An event at its place in the log."""

    seq: int
    event: Json


class EventsSchema(AnswerSchema, frozen=True, kw_only=True):
    """A stretch of the log; `after` asks for the next."""

    events: list[EntrySchema]
    after: int
    end: int
    """The place of the newest event."""


class AddedSchema(AnswerSchema, frozen=True, kw_only=True):
    """The place of the last message that was added, and the ids of calls without a result."""

    at: int
    calls: list[str]


class ContextSchema(AnswerSchema, frozen=True, kw_only=True):
    """What the model sees now, and how its window is used."""

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


class TokensSchema(AnswerSchema, frozen=True, kw_only=True):
    """How the window is used, in tokens."""

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


class FoldedSchema(AnswerSchema, frozen=True, kw_only=True):
    """What a fold took out of sight, or would."""

    folded: bool
    preview: bool
    edit: int | None
    before: int
    after: int
    ratio: float | None
    """What was folded ÷ its handoff, in tokens; null if nothing was."""
    summary: str
    """The narrative that now stands, as the model reads it; "" if there is none."""
    left_out: int
    """How many lines of the summarizer's answer were left out; `loss.left_out` says why."""
    no_summary: str
    """Why the summarizer told nothing; "" if it did, or was not asked."""
    loss: Loss | None


class UndoneSchema(AnswerSchema, frozen=True, kw_only=True):
    """What was undone, and the edit to undo to redo it."""

    undone: int
    redo: int
    edits: list[int]
    before: int
    after: int


class PinsSchema(AnswerSchema, frozen=True, kw_only=True):
    """The places that are pinned."""

    pins: list[int]


class ExcludedSchema(AnswerSchema, frozen=True, kw_only=True):
    """The edit that excluded the messages: undo it to bring them back."""

    edit: int
    before: int
    after: int


class RecalledSchema(AnswerSchema, frozen=True, kw_only=True):
    """The original of something."""

    handle: str
    text: str


class HitSchema(AnswerSchema, frozen=True, kw_only=True):
    """A message that was found."""

    session: str
    handle: str
    score: float
    """How well it fits, beside the others that were found."""
    same: int
    """How many other messages, found too, have the same words."""
    snippet: str
    """The passage with most of what was asked for."""


class FoundSchema(AnswerSchema, frozen=True, kw_only=True):
    """Messages that hold any of some words, the best match first."""

    words: str
    found: list[HitSchema]


class TurnSchema(AnswerSchema, frozen=True, kw_only=True):
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
    speaker: Speaker
    """Who began it."""


class FoldRecordSchema(AnswerSchema, frozen=True, kw_only=True):
    """One fold: when it was made, which turns it covers, what it saved and what it cost."""

    at: int
    """The place of the fold; `recall` by it gives the handoff's text."""
    time: float
    lo: int
    hi: int
    start_time: float | None
    """When its first event was recorded; null if that was erased."""
    end_time: float | None
    """When its last event was recorded; null if that was erased."""
    first_turn: int | None
    last_turn: int | None
    messages: int
    before: int
    after: int
    ratio: float
    """Tokens before ÷ after."""
    why: str
    quoted: int
    facts: int
    model: str
    """Who wrote the narrative; "" if there is none."""
    used: UsageSchema | None
    """What asking for the narrative took."""
    dollars: float | None
    pays_after: float | None
    standing: bool
    """Whether it is in force: not undone, and not merged into a later fold."""


class HistorySchema(AnswerSchema, frozen=True, kw_only=True):
    """Every turn and every fold, and how fast the window fills."""

    turns: list[TurnSchema]
    folds: list[FoldRecordSchema]
    used: int
    window: int
    growth: int
    turns_left: int | None
    next_output: int | None


class ToolSchema(AnswerSchema, frozen=True, kw_only=True):
    """A tool as the model sees it."""

    name: str
    description: str
    parameters: Any


class InstructionsSchema(AnswerSchema, frozen=True, kw_only=True):
    """The current system prompt and tools."""

    system: list[str]
    tools: list[ToolSchema]


class CostSchema(AnswerSchema, frozen=True, kw_only=True):
    """What a session's calls cost, as the provider counted, at today's prices."""

    calls: int
    uncounted: int
    """Answers without reported usage: they are not in the sums."""
    unpriced: int
    """Calls without a known price: they are not in the dollars."""
    input: int
    cache_read: int
    cache_write: int
    output: int
    dollars: float | None
    """None if no call has a known price."""
    assumed: bool
    """Whether any price is a guess."""
    next_call: NextCall | None


class FaultSchema(AnswerSchema, frozen=True, kw_only=True):
    """What went wrong, and what to do about it."""

    kind: str
    message: str
    way_out: str = ""


class RefusalSchema(AnswerSchema, frozen=True, kw_only=True):
    """Every error has this form."""

    error: FaultSchema
