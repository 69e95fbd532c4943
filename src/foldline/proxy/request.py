"""A client's request as bytes: its fields, its messages, and what each message is known by.

Knows where a body keeps its messages. A message that was seen before is not read again: it is known
by the hash of its bytes. Refuses to know whose conversation it is.
"""

import hashlib
import re
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import NamedTuple

import msgspec

from foldline.dialects.base import Dialect
from foldline.dialects.client_messages import STATEFUL, ClientForm, Described, chain_on, short
from foldline.dialects.json_reader import readable
from foldline.dialects.json_slices import Slice, find_fields, find_rest, find_values
from foldline.errors import WireError

_MOST = 50_000  # messages whose description a process remembers
_FIXED = ("system", "tools")
_SMALL = 1_000  # bytes of a field that is simply read again
_read: "OrderedDict[bytes, None]" = OrderedDict()
_SIGN = 400  # bytes by which requests that may begin alike are found
_MOVED = 4  # messages at the end in which a client moves its marks
_LATELY = 8  # messages: an earlier request of the same history ended so near before
_ALIKE = 16  # requests that begin alike, of which the newest are kept
_HELD = 64_000_000  # bytes of all of them
_OPENED = re.compile(rb"\[\s*")
_seen: "OrderedDict[tuple[str, bytes], Described]" = OrderedDict()


class ServerStateError(WireError):
    """A body that refers to what its server keeps: not a whole history."""


@dataclass(frozen=True)
class ClientRequest:
    """A body, and where its parts are."""

    dialect: Dialect
    body: bytes
    fields: dict[str, Slice]
    places: list[Slice]
    """Of all messages."""
    hashes: list[bytes]
    """Of each message's bytes."""
    described: list[Described]
    chained: list[int]
    """Which of the messages are in the chain: all but system messages."""
    digests: list[str]
    """Of these messages, normalised."""
    chain: list[str]
    """The digest of the first of them, of the first two, and so on."""

    @property
    def form(self) -> ClientForm:
        """How this dialect's clients write messages."""
        return self.dialect.form

    def raw(self, message: int) -> bytes:
        """The bytes of a message."""
        return self.body[slice(*self.places[message])]

    def field(self, name: str) -> bytes:
        """The bytes of a field; none where it is absent."""
        place = self.fields.get(name)
        return self.body[slice(*place)] if place else b""

    @cached_property
    def model(self) -> str:
        """Whom the client asks."""
        try:
            return msgspec.json.decode(self.field("model") or b'""', type=str)
        except msgspec.DecodeError as fault:
            raise WireError(f"a model's name that is none: {fault}") from fault

    @property
    def streams(self) -> bool:
        """Whether the answer is to be streamed."""
        return self.field("stream") == b"true"

    @cached_property
    def leading(self) -> list[int]:
        """The system messages that a request begins with."""
        first = self.chained[0] if self.chained else len(self.places)
        return [*range(first)]

    @cached_property
    def asides(self) -> list[int]:
        """The system messages behind the first message of anybody else."""
        inside = {*self.leading, *self.chained}
        return [at for at in range(len(self.places)) if at not in inside]

    @cached_property
    def answers(self) -> list[int]:
        """Which messages of the chain are a model's."""
        said = self.described
        return [n for n, at in enumerate(self.chained) if said[at].role == "assistant"]

    @cached_property
    def fixed(self) -> tuple[str, str]:
        """Digests of what stands before all messages: the system prompt, and the tools."""
        words = [self.field("system"), *(self.raw(at) for at in self.leading)]
        return short(b"\0".join(words)), short(self.field("tools"))

    @cached_property
    def prefill(self) -> bytes:
        """The answer that the client has begun itself, where the dialect has such a thing."""
        last = self.chained[-1] if self.chained else -1
        if not self.dialect.must_bound or self.described[last].role != "assistant":
            return b""
        return self.raw(last)

    @cached_property
    def parameters(self) -> dict[str, msgspec.Raw]:
        """All fields but the messages and what stands before them."""
        return {
            name: msgspec.Raw(self.body[slice(*place)])
            for name, place in self.fields.items()
            if name not in (*_FIXED, "messages")
        }


def read_request(dialect: Dialect, body: bytes) -> ClientRequest:
    """Find the parts of a body; `WireError` where it cannot be planned."""
    fields = find_fields(body)
    if "messages" not in fields:
        raise WireError("a request without messages", path="$.messages")
    for name in STATEFUL:
        if name in fields and body[slice(*fields[name])] not in (b"null", b"false"):
            raise ServerStateError(f"a request that refers to what its server keeps: {name!r}")
    for name, place in fields.items():
        if name != "messages":
            _check(body[slice(*place)])
    begun = _find_begun(dialect, body, fields["messages"])
    places, known = begun.places, begun.known
    hashes, described = known.hashes, known.described
    chained, digests, chain = known.chained, known.digests, known.chain
    last = chain[-1] if chain else ""
    for at in range(len(hashes), len(places)):
        raw = body[slice(*places[at])]
        hashed = hashlib.sha256(raw).digest()
        one = _describe(dialect, raw, hashed)
        hashes.append(hashed)
        described.append(one)
        if one.role != "system":
            last = chain_on(last, one.digest)
            chained.append(at)
            digests.append(one.digest)
            chain.append(last)
    if not chained:
        raise WireError("a request in which nobody says anything")
    request = ClientRequest(
        dialect, body, fields, places, hashes, described, chained, digests, chain
    )
    _recent.keep(begun.key, request)
    return request


class _Known(NamedTuple):
    """What is known of the messages that a request begins with."""

    hashes: list[bytes]
    described: list[Described]
    chained: list[int]
    digests: list[str]
    chain: list[str]


class _Begun(NamedTuple):
    """Where the messages of a request are, and what is known of the first of them."""

    key: tuple[str, bytes]
    places: list[Slice]
    known: _Known


class _Recent:
    """The newest requests, by how their messages begin.

    A client repeats its history with every call and adds a few messages: what it repeats byte for
    byte is compared as one, and not looked at again.
    """

    def __init__(self) -> None:
        self._requests: OrderedDict[tuple[str, bytes], list[ClientRequest]] = OrderedDict()
        self._size = 0
        self._lock = Lock()  # large requests are read in threads

    def find(self, key: tuple[str, bytes], body: bytes, start: int) -> tuple[ClientRequest, int]:
        """The request with which a body has most messages in common, and how many."""
        best: tuple[ClientRequest, int] | None = None
        for request in self._requests.get(key, ()):
            first, most = request.places[0].start, len(request.places)
            for count in range(most, max(most - _MOVED, best[1] if best else 0), -1):
                said = memoryview(request.body)[first : request.places[count - 1].end]
                if body.startswith(said, start):
                    best = (request, count)
                    break
        if best is None:
            raise KeyError(key)
        return best

    def keep(self, key: tuple[str, bytes], request: "ClientRequest") -> None:
        """Remember a request, and forget the oldest."""
        with self._lock:
            several = self._requests.setdefault(key, [])
            same = [one for one in several if one.chain[0] == request.chain[0]]
            for old in [one for one in same if one.chain[-1] in request.chain[-_LATELY:]]:
                several.remove(old)
                self._size -= len(old.body)
            several.append(request)
            self._size += len(request.body)
            if len(several) > _ALIKE:
                self._size -= len(several.pop(0).body)
            self._requests.move_to_end(key)
            while self._size > _HELD and self._requests:
                _, gone = self._requests.popitem(last=False)
                self._size -= sum(len(one.body) for one in gone)


def _find_begun(dialect: Dialect, body: bytes, messages: Slice) -> _Begun:
    """Where a request's messages are, as far as possible from what an earlier one began with."""
    opened = _OPENED.match(body, messages.start, messages.end)
    start = opened.end() if opened else messages.start
    key = (dialect.name, body[start : start + _SIGN])
    try:
        request, count = _recent.find(key, body, start)
    except KeyError:
        return _Begun(key, find_values(body, messages), _Known([], [], [], [], []))
    shift = start - request.places[0].start
    places = request.places[:count]
    if shift:
        places = [Slice(one.start + shift, one.end + shift) for one in places]
    said = bisect_left(request.chained, count)
    known = _Known(
        request.hashes[:count],
        request.described[:count],
        request.chained[:said],
        request.digests[:said],
        request.chain[:said],
    )
    return _Begun(key, [*places, *find_rest(body, messages, places[-1].end)], known)


def _check(field: bytes) -> None:
    """Raise where a field cannot be read; tools and instructions are read once."""
    key = hashlib.sha256(field).digest() if len(field) > _SMALL else b""
    if key in _read:
        return
    readable(field)
    if key:
        _read[key] = None
        while len(_read) > _MOST:
            _read.popitem(last=False)


def _describe(dialect: Dialect, raw: bytes, known: bytes) -> Described:
    key = (dialect.name, known)
    found = _seen.get(key)
    if found is None:
        found = _seen[key] = dialect.form.describe(raw)
        while len(_seen) > _MOST:
            _seen.popitem(last=False)
    else:
        _seen.move_to_end(key)
    return found


_recent = _Recent()
