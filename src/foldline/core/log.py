"""What happened: the event types and their JSON.

Knows the shape of every event and how it is written down. Refuses to know what a model is shown.

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
    """What it was opened with: the policy, and window and reserve where they were given."""
    origin: str = ""
    """The session it carries on, or was forked from: `NAME@PLACE`."""
    format: int = 1
    """The first format, for ever: a writer of a later one says so."""


class SettingsChanged(_Event, frozen=True, omit_defaults=True, tag="settings_changed"):
    """From here on these settings hold."""

    settings: dict[str, Setting]
    """All that the session is opened with from here on, by name."""


class Instructed(_Event, frozen=True, omit_defaults=True, tag="instructed"):
    """The system's words and the tools, from here on."""

    parts: tuple[Part, ...] = ()
    tools: tuple[Tool, ...] = ()
    """All that the model may call."""
    native: tuple[Native, ...] = ()
    """The messages that say all this, oldest first, where they are to go back as they came."""
    replaces: bool = False
    """Whether they replace the fixed part at once: a proxied request states its own. Otherwise
    newer instructions are added behind the conversation until the next fold."""
    aside: bool = False
    """Whether this is a system message inside a client's list: it stands there and replaces
    nothing."""
    link: str = ""
    """The digest of that message."""


Speaker: TypeAlias = Literal["human", "notice", "heartbeat", "cron"]


class UserSaid(_Event, frozen=True, omit_defaults=True, tag="user_said"):
    """A message to the model: from a person, or from something that speaks beside them."""

    parts: tuple[Part, ...]
    speaker: Speaker = "human"
    """Who spoke: a person, a notice of ours, a heartbeat, a cron entry."""
    author: str = ""
    """Who of several, by name; the model is told."""
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
    """The last event that it was shown; None: all before. What came after is shown behind it."""
    stop: Stop = "done"
    """How it ended: done, at its length, refused, cancelled by a person, cut off, or paused by its
    provider, which goes on with it when it is sent back."""
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
    """A call whose outcome nobody knows: closed for good, a late result becomes a notice."""

    call_id: str
    reason: str = ""
    """Why, as far as it is known."""


class Asked(_Event, frozen=True, omit_defaults=True, tag="asked"):
    """A request was sent, showing the log up to and including `at`."""

    at: int
    """The last event that it shows."""
    dialect: str
    """Whose JSON it is in."""
    sha256: str
    """Of the bytes that our encoder gave."""
    encoder: int
    """The encoder's number: another may write other bytes."""
    parameters: str = "{}"
    """What was asked for besides, as JSON."""
    tokens: int = 0
    """What it was believed to take."""
    estimate: int = 0
    """The same before what reports have taught."""
    relayed: bool = False
    """Whether a client's own bytes were sent: the sha256 is then of its messages, block by block
    and without cache marks."""
    echoes: tuple[Echo, ...] = ()
    """The answers that the client said again in other bytes than ours: so they are said from here
    on."""
    proxied: Proxied | None = None
    """What was sent of a client's own request, where one was: its digests and our patches. The
    sha256 is then of the messages as they can be rendered again, one digest after the other."""


class UsageReported(_Event, frozen=True, omit_defaults=True, tag="usage_reported"):
    """What the provider counted for the request at `asked`; what it did not state is None."""

    asked: int | None = None
    """Where the request was recorded."""
    input: int | None = None
    """All that was sent, cached or not."""
    cache_read: int | None = None
    """What of it came from the cache."""
    cache_write: int | None = None
    """What of it was written to the cache."""
    output: int | None = None
    """What was answered, reasoning included."""
    reasoning: int | None = None
    """What of it was reasoning."""


class Masked(_Event, frozen=True, omit_defaults=True, tag="masked"):
    """Results replaced by stubs, in one batch."""

    stubs: tuple[Stub, ...]
    change: Change
    spine: Spine


class Folded(_Event, frozen=True, omit_defaults=True, tag="folded"):
    """A span replaced by one handoff; beside it what the next merge needs."""

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
    """The narrative, as far as it was proven."""
    by: str = ""
    """The model that wrote the narrative."""
    focus: str = ""
    """What a person wanted to be kept above all, in their words."""
    rank: int = 0
    """How often the oldest of it was written anew by merging."""
    reads: Range | None = None
    """What it was written from, where that begins before its span: turns read once more."""
    starts: tuple[int, ...] = ()
    """Where the newest of its turns began."""
    excluded: tuple[int, ...] = ()
    """What a person had taken out of sight: never read again by a fold."""
    before: int = 0
    """What the span took, in tokens."""
    after: int = 0
    """What the handoff takes."""
    ratio: float = 1.0
    """What reports had taught of the model when this was decided."""
    messages: int = 0
    """How many messages it stands for."""
    idle: int = 0
    """Which it is in a row of folds with no person's word, answer or result between them."""
    system: bool = False
    """Whether the text is said in the system's role."""
    reply: str = ""
    """What the model is made to have answered to it, if anything."""
    errors: tuple[float, ...] = ()
    """How far the last estimates were off, as shares: what the margin is made of."""
    why: Literal["", "forced", "pays", "cold", "due"] = ""
    """It had to be, it pays, the cache was cold, or the policy or a person asked for it."""
    pays_after: float | None = None
    """The calls after which it has paid for the cache it broke."""
    upto: int = 0
    """How many of a client's messages, from the first on, end with this span; only in proxied
    conversations."""
    chain: str = ""
    """The digest of these messages, one after the other: a request that begins so may use it."""


class Clipped(_Event, frozen=True, omit_defaults=True, tag="clipped"):
    """Messages cut once more, because a provider refused the request that showed them."""

    stubs: tuple[Stub, ...]
    """What is shown of each."""
    change: Change
    spine: Spine


class Rewound(_Event, frozen=True, omit_defaults=True, tag="rewound"):
    """A client's history shows other messages of this log: the rest is out of sight."""

    spine: Spine
    change: Change
    """Nothing: what is out of sight comes back when a request shows it again."""
    compacted: bool = False
    """Whether the client has replaced its history by a summary of its own."""


class Excluded(_Event, frozen=True, omit_defaults=True, tag="excluded"):
    """Items that a person took out of the model's sight."""

    stubs: tuple[Stub, ...]
    change: Change
    spine: Spine


class Undone(_Event, frozen=True, omit_defaults=True, tag="undone"):
    """An edit taken back; undoing this one is the redo."""

    edit: int
    """Which."""
    change: Change
    spine: Spine


class Pinned(_Event, frozen=True, omit_defaults=True, tag="pinned"):
    """An event that is to survive every fold verbatim."""

    seq: int
    """Which."""


class Unpinned(_Event, frozen=True, omit_defaults=True, tag="unpinned"):
    """A pin is lifted."""

    seq: int
    """From which event."""


class Repaired(_Event, frozen=True, omit_defaults=True, tag="repaired"):
    """Input was broken: which rule, and what the view does about it."""

    rule: str
    """What was broken."""
    note: str
    """What is shown instead."""


class ServerTruncated(_Event, frozen=True, omit_defaults=True, tag="server_truncated"):
    """The provider counted far less than was sent: it cut the prompt silently."""

    estimated: int
    """What was sent, as far as we know."""
    reported: int
    """What the provider counted."""


class WindowLearned(_Event, frozen=True, omit_defaults=True, tag="window_learned"):
    """A provider stated the model's window in an error."""

    model: str
    window: int
    """In tokens."""
    source: str = ""
    """What said so."""


class ModelSwitched(_Event, frozen=True, omit_defaults=True, tag="model_switched"):
    """From here on another model answers."""

    model: str


class Linked(_Event, frozen=True, omit_defaults=True, tag="linked"):
    """A sub-agent's session belongs to this one."""

    session: str
    """Its name."""
    call_id: str = ""


class Checkpointed(_Event, frozen=True, omit_defaults=True, tag="checkpointed"):
    """A snapshot of the world outside, kept for the user and never sent."""

    label: str
    """What it is called."""
    body: str = ""
    """The snapshot, or where it is."""


Edit: TypeAlias = Masked | Folded | Clipped | Excluded | Undone | Rewound
Hiding: TypeAlias = Masked | Clipped | Excluded
"""The edits that show a text of ours in place of single messages."""
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


def encode(event: Event) -> bytes:
    """Write an event down: the bytes that every store keeps as they are."""
    return _encoder.encode(event)


def check(event: Event) -> None:
    """Raise where an event could not be read back: constructors do not look at their arguments."""
    try:
        _decoder.decode(_encoder.encode(event))
    except (msgspec.ValidationError, TypeError, UnicodeEncodeError) as fault:
        raise BadInput(f"a {kind(event)} event that could not be read back: {fault}") from fault


def decode(body: bytes) -> Event:
    """Read an event back; `encode(decode(body)) == body` for every body we wrote."""
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


def shown(event: UserSaid | ModelSaid | ToolReturned) -> tuple[Part, ...]:
    """What a model saw of a message when it came: what was clipped away is not in it."""
    clip = None if isinstance(event, ModelSaid) else event.clip
    return event.parts if clip is None else clip.parts


def kind(event: Event) -> str:
    """The event's name in its JSON."""
    return str(event.__struct_config__.tag)
