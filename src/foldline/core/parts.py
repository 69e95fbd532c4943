"""What messages and edits are made of.

Knows the pieces of a message, and the small values that edits store. Refuses to know events.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec


class _Part(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    """A piece of a message, in the order the speaker gave it."""


class Text(_Part, frozen=True, omit_defaults=True, tag="text"):
    """Words."""

    text: str


class Gap(_Part, frozen=True, omit_defaults=True, tag="gap"):
    """A place where a clip left something out; `text` is the marker's first line."""

    text: str


class Media(_Part, frozen=True, omit_defaults=True, tag="media"):
    """An image, a sound or a file: by address, or by its base64 text."""

    form: Literal["image", "audio", "file"]
    mime: str = ""
    url: str = ""
    base64: str = ""
    name: str = ""


class Thought(_Part, frozen=True, omit_defaults=True, tag="thought"):
    """A model's reasoning; `signature` binds it to its provider and must never be altered."""

    text: str = ""
    signature: str = ""


class Call(_Part, frozen=True, omit_defaults=True, tag="call"):
    """A model's request to run a tool; `arguments` is what it wrote, valid JSON or not."""

    id: str
    name: str
    arguments: str = "{}"


Part: TypeAlias = Text | Gap | Media | Thought | Call


class Native(msgspec.Struct, frozen=True, omit_defaults=True):
    """A provider's own JSON of a message, kept where the neutral form cannot give it back."""

    dialect: str
    body: str


class Clip(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is shown of an event that was too large, decided once when it arrived."""

    parts: tuple[Part, ...]
    how: str
    whole: int
    shown: int


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool the model may call; `schema` is the JSON Schema of its arguments, as text."""

    name: str
    description: str = ""
    schema: str = "{}"
    native: Native | None = None


class Echo(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer as a client says it again, where that is not how we would write it."""

    seq: int
    native: Native


class Proxied(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of a client's own request: enough to say what changed, and what we changed."""

    body: str
    """The sha256 of the bytes that were sent."""
    chain: str
    """The digest of the client's messages, normalised, one after the other."""
    messages: int = 0
    """How many there were, without system messages."""
    system: str = ""
    tools: str = ""
    fields: str = ""
    """Digests of the system prompt, of the tools, and of all other fields."""
    patches: dict[str, int] = {}
    """How many of each kind: fold, clip, stub, thinking, limit."""
    marks: tuple[int, ...] = ()
    """The messages in which the client had placed a cache mark."""
    same: int = 0
    """How many leading messages had the very bytes of the request before."""


FactKind: TypeAlias = Literal[
    "todo", "file", "test", "call", "error", "command", "decision", "link", "said", "name", "where"
]


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a ledger: what is known of one thing, and the newest event it rests on."""

    seq: int
    kind: FactKind
    key: str
    text: str = ""
    count: int = 1
    """How often it was met."""


class Stub(msgspec.Struct, frozen=True, omit_defaults=True):
    """The text shown in place of one event."""

    seq: int
    text: str


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a narrative: its section, its words, and the events it rests on."""

    section: str
    text: str
    seqs: tuple[int, ...]


def text_of(parts: Iterable[Part]) -> str:
    """The words of some parts, joined by line ends; calls and media are not words."""
    return "\n".join(part.text for part in parts if isinstance(part, Text | Gap | Thought))


def spoken(parts: Iterable[Part]) -> str:
    """The same without thoughts: what was said to somebody."""
    return text_of(part for part in parts if not isinstance(part, Thought))


def retold(parts: Iterable[Part]) -> str:
    """What was said, for a reader who was not there: pictures are named, calls left out."""
    said = (part for part in parts if not isinstance(part, Thought | Call))
    return "\n".join(f"[{p.form}]" if isinstance(p, Media) else text_of((p,)) for p in said)


def sound(text: str) -> str:
    """Text that can be written down: halves of surrogate pairs become the replacement mark."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def calls_of(parts: Iterable[Part]) -> tuple[Call, ...]:
    """The calls among some parts."""
    return tuple(part for part in parts if isinstance(part, Call))
