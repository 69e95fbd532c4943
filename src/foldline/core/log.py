"""The event types and their JSON.

Position is identity: an event is named by its place in the session's log and carries neither an
id nor a time. The format is for keeps: fields may be added with a default that means "as before",
and are never renamed, removed or given another default. JSON that others wrote (arguments, schemas,
native messages) is kept as text, so its bytes survive whatever they are.
"""

from typing import Literal, NamedTuple, TypeAlias, TypeGuard

import msgspec

from foldline.core.parts import Clip, Echo, Fact, Line, Native, Part, Proxied, Stub, Tool
from foldline.core.spine import Change, Range, Spine
from foldline.errors import BadInput, FormatError

FORMAT = 1


class _Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    """Something that happened."""


Setting: TypeAlias = str | int | float | bool | None


class Opened(_Event, frozen=True, omit_defaults=True, tag="opened"):
    """A session began, or was forked from another."""

    model: str
    settings: dict[str, Setting] = {}
    """The policy, and window and reserve where they were given."""
    origin: str = ""
    """The session it continues or was forked from: `NAME@PLACE`."""
    format: int = 1
    """Always 1 by default: a writer of a later format states it."""
    carried: tuple[str, ...] = ()
    """The parts of the origin's record that it continues with; empty: all, or it was forked."""


class SettingsChanged(_Event, frozen=True, omit_defaults=True, tag="settings_changed"):
    """These settings hold from here on."""

    settings: dict[str, Setting]
    """All settings of the session, by name."""


class Instructed(_Event, frozen=True, omit_defaults=True, tag="instructed"):
    """The system prompt and the tools, from here on."""

    parts: tuple[Part, ...] = ()
    tools: tuple[Tool, ...] = ()
    """All that the model may call."""
    native: tuple[Native, ...] = ()
    """The client's messages that say this, oldest first, where they are sent back unchanged."""
    replaces: bool = False
    """Whether they replace the fixed part at once: a proxied request states its own. Otherwise
    newer instructions are added behind the conversation until the next fold."""
    aside: bool = False
    """Whether this is a system message inside a client's list: it keeps its place and replaces
    nothing."""
    link: str = ""
    """The digest of that message."""


Speaker: TypeAlias = Literal["human", "notice", "heartbeat", "cron"]


class UserSaid(_Event, frozen=True, omit_defaults=True, tag="user_said"):
    """A message to the model: from a person, or from a program that speaks beside them."""

    parts: tuple[Part, ...]
    speaker: Speaker = "human"
    """Who spoke: a person, a notice of ours, a heartbeat, a cron entry."""
    author: str = ""
    """The name of one of several users, which the model is shown."""
    clip: Clip | None = None
    native: Native | None = None
    link: str = ""
    """The digest of the client's message, normalised; only in proxied conversations."""
    more: bool = False
    """Whether the next message event belongs to the same message of the client."""


Stop: TypeAlias = Literal["done", "length", "refused", "cancelled", "cut", "paused"]


class ModelSaid(_Event, frozen=True, omit_defaults=True, tag="model_said"):
    """The model's words and calls."""

    parts: tuple[Part, ...]
    saw: int | None = None
    """The last event that the model was shown; None: all before. Later ones follow the answer."""
    stop: Stop = "done"
    """How it ended: done, at its length limit, refused, cancelled by a person, cut off, or paused
    by its provider, which continues when the answer is sent back."""
    native: Native | None = None
    link: str = ""
    """The digest of the client's message, normalised; only in proxied conversations."""
    more: bool = False
    """Whether the next message event belongs to the same message of the client."""


class ToolReturned(_Event, frozen=True, omit_defaults=True, tag="tool_returned"):
    """A call's result."""

    call_id: str
    parts: tuple[Part, ...]
    ok: bool = True
    """Whether the tool did what it was asked."""
    clip: Clip | None = None
    native: Native | None = None
    link: str = ""
    """The digest of the client's message, normalised; only in proxied conversations."""
    more: bool = False
    """Whether the next message event belongs to the same message of the client."""


class Interrupted(_Event, frozen=True, omit_defaults=True, tag="interrupted"):
    """A call with an unknown outcome: closed for good, a late result becomes a notice."""

    call_id: str
    reason: str = ""
    """Why, if that is known."""


class Asked(_Event, frozen=True, omit_defaults=True, tag="asked"):
    """A request was sent, showing the log up to and including `at`."""

    at: int
    """The last event that it shows."""
    dialect: str
    """The dialect of its JSON."""
    sha256: str
    """Of the bytes that our encoder wrote."""
    encoder: int
    """The encoder's number: another encoder may write other bytes."""
    parameters: str = "{}"
    """The request's other parameters, as JSON."""
    tokens: int = 0
    """Its estimated size, corrected by what reports have taught."""
    estimate: int = 0
    """Its estimated size before that correction."""
    relayed: bool = False
    """Whether a client's own bytes were sent."""
    echoes: tuple[Echo, ...] = ()
    """The answers that the client repeated in other bytes than ours; its bytes are used from here
    on."""
    proxied: Proxied | None = None
    """The digests of a client's own request and our patches to it, if one was sent. The sha256 is
    then of the messages as they can be rendered again, one digest after the other."""


class UsageReported(_Event, frozen=True, omit_defaults=True, tag="usage_reported"):
    """The tokens that the provider counted for a request; what it did not state is None."""

    asked: int | None = None
    """Where the request was recorded."""
    input: int | None = None
    """All that was sent, cached or not."""
    cache_read: int | None = None
    """The part of the input that came from the cache."""
    cache_write: int | None = None
    """The part of the input that was written to the cache."""
    output: int | None = None
    """The answer, reasoning included."""
    reasoning: int | None = None
    """The part of the output that was reasoning."""
    cache_write_long: int | None = None
    """The part of the cache writes that is kept for an hour, at a higher price."""


class Masked(_Event, frozen=True, omit_defaults=True, tag="masked"):
    """Results replaced by stubs, in one batch."""

    stubs: tuple[Stub, ...]
    change: Change
    spine: Spine


class Folded(_Event, frozen=True, omit_defaults=True, tag="folded"):
    """A span replaced by one handoff, with what the next merge needs."""

    text: str
    """The handoff."""
    change: Change
    spine: Spine
    verbatim: tuple[int, ...] = ()
    """The messages that its text quotes whole."""
    clipped: tuple[int, ...] = ()
    """The messages that its text quotes in part."""
    facts: tuple[Fact, ...] = ()
    """The ledger: what was read of the span without a model."""
    lines: tuple[Line, ...] = ()
    """The verified lines of the narrative."""
    by: str = ""
    """The model that wrote the narrative."""
    focus: str = ""
    """What a person wanted kept above all, in their words."""
    rank: int = 0
    """How often its oldest part was rewritten by merging."""
    reads: Range | None = None
    """What it was written from, where that begins before its span: turns read once more."""
    starts: tuple[int, ...] = ()
    """Where the newest of its turns began."""
    excluded: tuple[int, ...] = ()
    """Events that a person had excluded: no fold reads them again."""
    before: int = 0
    """The tokens of the span."""
    after: int = 0
    """The tokens of the handoff."""
    ratio: float = 1.0
    """The correction of estimates that reports had taught when this was decided."""
    messages: int = 0
    """How many messages it stands for."""
    idle: int = 0
    """Its number in a row of folds with no user message, answer or result between them."""
    system: bool = False
    """Whether the text is sent in the system's role."""
    reply: str = ""
    """The model's answer to it that a preset makes up, if any."""
    errors: tuple[float, ...] = ()
    """The relative errors of the last estimates, from which the margin is computed."""
    why: Literal["", "forced", "full", "pays", "cold", "due"] = ""
    """It was forced, the window was full and nobody had said yes, it pays, the cache was cold, or
    the policy or a person asked for it."""
    pays_after: float | None = None
    """The calls after which it has paid for the cache it broke."""
    upto: int = 0
    """How many of a client's messages, from the first on, end with this span; only in proxied
    conversations."""
    chain: str = ""
    """The digest of these messages, one after the other: a request that begins so may use it."""
    used: UsageReported | None = None
    """What asking for the narrative took, as the provider counted it."""
    client: str = ""
    """The agent whose compaction this is, in an imported session: its text is that agent's summary,
    and nothing of it is ours."""


class Clipped(_Event, frozen=True, omit_defaults=True, tag="clipped"):
    """Messages cut once more, because a provider refused the request that showed them."""

    stubs: tuple[Stub, ...]
    """What is shown of each message."""
    change: Change
    spine: Spine


class Rewound(_Event, frozen=True, omit_defaults=True, tag="rewound"):
    """A client's history shows other messages of this log: the rest is out of sight."""

    spine: Spine
    change: Change
    """Empty: what is out of sight comes back when a request shows it again."""
    compacted: bool = False
    """Whether the client has replaced its history by a summary of its own."""


class Excluded(_Event, frozen=True, omit_defaults=True, tag="excluded"):
    """Messages that a person took out of the model's sight."""

    stubs: tuple[Stub, ...]
    change: Change
    spine: Spine


class Undone(_Event, frozen=True, omit_defaults=True, tag="undone"):
    """An edit taken back; undoing this event is the redo."""

    edit: int
    """The place of the edit."""
    change: Change
    spine: Spine


class Pinned(_Event, frozen=True, omit_defaults=True, tag="pinned"):
    """An event that survives every fold verbatim."""

    seq: int
    """The place of the pinned event."""


class Unpinned(_Event, frozen=True, omit_defaults=True, tag="unpinned"):
    """A pin is lifted."""

    seq: int
    """The place of the event that was pinned."""


class Repaired(_Event, frozen=True, omit_defaults=True, tag="repaired"):
    """Input broke a rule, and the view repairs it."""

    rule: str
    """What was broken."""
    note: str
    """What is shown instead."""


class ServerTruncated(_Event, frozen=True, omit_defaults=True, tag="server_truncated"):
    """The provider counted far less than was sent: it cut the prompt silently."""

    estimated: int
    """The tokens that were sent, by our estimate."""
    reported: int
    """The tokens that the provider counted."""


class WindowLearned(_Event, frozen=True, omit_defaults=True, tag="window_learned"):
    """A provider stated the model's window in an error."""

    model: str
    window: int
    """In tokens."""
    source: str = ""
    """Who stated it."""
    count: int = 0
    """How many tokens the refused request had, if the error stated that too."""
    most: int = 0
    """How many it had at most, as far as we knew; above that, all bounds are too small."""


class ModelSwitched(_Event, frozen=True, omit_defaults=True, tag="model_switched"):
    """Another model answers from here on."""

    model: str


class Linked(_Event, frozen=True, omit_defaults=True, tag="linked"):
    """A sub-agent's session belongs to this one."""

    session: str
    """The sub-agent's session."""
    call_id: str = ""


class Checkpointed(_Event, frozen=True, omit_defaults=True, tag="checkpointed"):
    """A snapshot of the world outside, kept for the user and never sent."""

    label: str
    """The snapshot's name."""
    body: str = ""
    """The snapshot, or where it is."""


Edit: TypeAlias = Masked | Folded | Clipped | Excluded | Undone | Rewound
Hiding: TypeAlias = Masked | Clipped | Excluded
"""The edits that replace single messages by stubs."""
Event: TypeAlias = (
    Opened
    | SettingsChanged
    | Instructed
    | UserSaid
    | ModelSaid
    | ToolReturned
    | Interrupted
    | Asked
    | UsageReported
    | Masked
    | Folded
    | Clipped
    | Rewound
    | Undone
    | Pinned
    | Unpinned
    | Excluded
    | Repaired
    | ServerTruncated
    | WindowLearned
    | ModelSwitched
    | Linked
    | Checkpointed
)


class Logged(NamedTuple):
    """An event at its place."""

    seq: int
    event: Event


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode_event(event: Event) -> bytes:
    """Encode an event as the JSON bytes that every store keeps unchanged."""
    return _encoder.encode(event)


def check_event(event: Event) -> None:
    """Raise `BadInput` if an event could not be read back: constructors check no arguments."""
    try:
        _decoder.decode(_encoder.encode(event))
    except (msgspec.ValidationError, TypeError, UnicodeEncodeError) as fault:
        raise BadInput(
            f"a {event_kind_of(event)} event that could not be read back: {fault}"
        ) from fault


def decode_event(body: bytes) -> Event:
    """Decode an event; `encode_event(decode_event(body)) == body` for every body we wrote."""
    try:
        event = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise FormatError(
            f"not an event of format {FORMAT}: {fault}; a newer release may have written it"
        ) from fault
    if isinstance(event, Opened) and event.format > FORMAT:
        raise FormatError(
            f"the log is of format {event.format}, this release reads {FORMAT}: upgrade foldline"
        )
    return event


def by_user(event: Event | None) -> TypeGuard[UserSaid]:
    """Whether a person said this: not a notice, a heartbeat or a cron job."""
    return isinstance(event, UserSaid) and event.speaker == "human"


def begins_turn(event: Event | None) -> TypeGuard[UserSaid]:
    """Whether a turn begins here: a person, a heartbeat or a cron entry spoke, not a notice."""
    return isinstance(event, UserSaid) and event.speaker != "notice"


def select_shown_parts(event: UserSaid | ModelSaid | ToolReturned) -> tuple[Part, ...]:
    """Select the parts of a message that a model saw when it came, without what was clipped."""
    clip = None if isinstance(event, ModelSaid) else event.clip
    return event.parts if clip is None else clip.parts


def event_kind_of(event: Event) -> str:
    """The event's name in its JSON."""
    return str(event.__struct_config__.tag)
