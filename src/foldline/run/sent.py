"""A client's request as bytes: its fields, its messages, and whether it may go out as it came.

Knows where a body keeps its messages, without reading them. A body goes out as it came for as long
as our own encoder would say the same, piece by piece: that is found out for what is new, and
carried on. Refuses to know whose conversation it is.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from foldline.core.item import Item
from foldline.core.log import Asked
from foldline.core.parts import Echo
from foldline.core.plan import Ready
from foldline.core.request import Request
from foldline.core.spine import Spine
from foldline.core.view import View
from foldline.run.asking import Relay, Relayed
from foldline.wire.dialects import Dialect
from foldline.wire.reading import each_once, shaped_bytes

_NEAR = 64  # messages: what a client adds between two requests is hardly ever more
_FIXED = ("system", "tools")
_AS_IT_CAME = Spine()


class _Role(msgspec.Struct):
    role: Any = None


@dataclass(frozen=True)
class Sent:
    """A body, and where its parts are."""

    body: bytes
    fields: dict[str, msgspec.Raw]
    """All but the messages."""
    messages: list[msgspec.Raw]
    unmarked: Callable[[bytes], bytes] = bytes
    """A message as it is known again: without the marks that a client moves."""
    clear: bool = True
    """Whether each field is there once: else an upstream may read another than we do."""

    @property
    def fixed(self) -> tuple[bytes, ...]:
        """What stands before all messages."""
        return tuple(bytes(self.fields.get(name, b"")) for name in _FIXED)

    @cached_property
    def beginnings(self) -> list[tuple[int, bytes]]:
        """How many messages, and what their bytes are known by: all of them first, then fewer."""
        near = max(len(self.messages) - _NEAR, 0)
        said = [self.unmarked(bytes(raw)) for raw in self.messages]
        running = hashlib.sha256(b"".join(said[:near]))
        found = [(near, running.digest())] if near else []
        for count, one in enumerate(said[near:], near + 1):
            running.update(one)
            found.append((count, running.digest()))
        return found[::-1]

    def rest(self, count: int) -> bytes:
        """A body of the messages behind so many, and of nothing else."""
        return b'{"messages":[' + b",".join(map(bytes, self.messages[count:])) + b"]}"


def split(body: bytes, dialect: Dialect) -> Sent:
    """Find the parts of a body; what is in them is looked at by nobody yet."""
    fields = shaped_bytes(body, dict[str, msgspec.Raw], "a request")
    clear = each_once(body, fields)
    raw = fields.pop("messages", msgspec.Raw(b"[]"))
    messages = shaped_bytes(raw, list[msgspec.Raw], "a list of messages", path="$.messages")
    return Sent(body, fields, messages, dialect.unmarked, clear)


def _is_clear(message: msgspec.Raw) -> bool:
    fields = shaped_bytes(message, dict[str, msgspec.Raw], "a message")
    return each_once(bytes(message), fields)


class _Step(NamedTuple):
    """How far a conversation has gone out as it came."""

    running: Any  # a hash of hashlib's
    items: int


@dataclass(slots=True)
class Plain:
    """A conversation that has gone out as it came until now."""

    running: Any = field(default_factory=hashlib.sha256)
    """The hash of what has gone out."""
    items: int = 0
    """How many items have gone out."""
    messages: int = 0
    """And in how many of the client's messages."""
    _step: _Step | None = None

    def relaying(self, dialect: Dialect, sent: Sent) -> Relay:
        """What decides whether a body goes out as it came."""
        return lambda view, ready: self._relay(dialect, sent, view, ready)

    def _relay(self, dialect: Dialect, sent: Sent, view: View, ready: Ready) -> Relayed | None:
        """The client's own bytes, if they say what would be sent."""
        self._step = None
        if not sent.clear or ready.events or view.spine != _AS_IT_CAME or view.waiting:
            return None
        messages = sent.messages[self.messages :]
        if not all(map(_is_clear, messages)):
            return None
        theirs = dialect.sent(sent.fields if not self.items else {}, messages)
        echoes: tuple[Echo, ...] = ()
        if self._said(dialect, view.items, ready.request) != theirs:
            echoes = _echoes(dialect, view.items[self.items :], messages)
            if not echoes or self._said(dialect, _echoed(view, echoes), ready.request) != theirs:
                return None
        running = self.running.copy()
        for block in theirs:
            running.update(block)
        relayed = Relayed(sent.body, running.hexdigest(), echoes)
        self._step = _Step(running, len(view.items))
        return relayed

    def _said(self, dialect: Dialect, items: Sequence[Item], whole: Request) -> list[bytes]:
        """What our own encoder says of the items that have not gone out."""
        if not self.items:
            return dialect.blocks(replace(whole, items=tuple(items)))
        # Behind the last that has: a dialect may write what a request begins with otherwise.
        before, *_ = near = items[self.items - 1 :]
        bare = replace(whole, system=(), native=())
        said = dialect.blocks(replace(bare, items=tuple(near)))
        return said[len(dialect.blocks(replace(bare, items=(before,)))) :]

    def went(self, sent: Sent) -> bool:
        """The request was recorded; whether it went out as it came."""
        if self._step is None:
            return False
        self.running, self.items = self._step
        self.messages = len(sent.messages)
        return True


def _echoes(
    dialect: Dialect, items: Sequence[Item], messages: Sequence[msgspec.Raw]
) -> tuple[Echo, ...]:
    """The answers among some items, each in the bytes of the message that says it again."""
    answers = [item for item in items if item.role == "model"]
    said = [raw for raw in messages if msgspec.json.decode(raw, type=_Role).role == "assistant"]
    if len(answers) != len(said):
        return ()
    pairs = zip(answers, said, strict=True)
    return tuple(Echo(item.seq, dialect.own(bytes(raw))) for item, raw in pairs)


def _echoed(view: View, echoes: tuple[Echo, ...]) -> list[Item]:
    """The items as they are shown once a request has said them so."""
    work = view.copy()
    work.append(view.head + 1, Asked(view.head, "", "", 0, echoes=echoes))
    return work.items
