"""Parses a client's request into fields, messages and their digests.

A message that was seen before is not parsed again: it is known by the hash of its bytes.
"""

import hashlib
import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Lock
from typing import NamedTuple

import msgspec

from foldline.core.cold_cache import LONG_LIFETIME
from foldline.core.log import Event, Instructed
from foldline.core.parts import Text
from foldline.dialects.base import Dialect, PathFacts
from foldline.dialects.client_messages import (
    Described,
    FoldMark,
    chain_on,
    digest_bytes,
)
from foldline.dialects.json_slices import Slice, check_readable, find_fields, find_rest, find_values
from foldline.errors import WireError
from foldline.stores.beside import LARGE, run_beside

_MOST = 50_000  # messages whose description a process remembers
_LONGEST = 1_000_000  # messages of one history
OBJECT = 400
"""Bytes that take as long to read as an object, or as a message that was seen before."""
_SMALL = 1_000  # bytes: a smaller field is simply read again
_read: "OrderedDict[bytes, None]" = OrderedDict()
_SIGN = 400  # leading bytes by which requests that may begin alike are found
_MOVED = 4  # last messages in which a client may move its cache marks
_LATELY = 8  # messages: an earlier request of the same history ended at most this far before
_ALIKE = 16  # requests with the same leading bytes that are kept
_HELD = 64_000_000  # bytes of all kept requests
_OPENED = re.compile(rb"\[\s*")
_HOUR_MARK = re.compile(rb'"cache_control"\s*:\s*\{[^{}]*"ttl"\s*:\s*"1h"')
_DAY = 86_400.0  # seconds
_seen: "OrderedDict[tuple[str, bytes], Described]" = OrderedDict()


class ServerStateError(WireError):
    """A body that refers to state its server keeps, so it is not a whole history."""

    def __init__(self, field: str) -> None:
        super().__init__(f"a request that refers to what its server keeps: {field!r}")
        self.field = field


@dataclass(frozen=True)
class ClientRequest:
    """A body, and where its parts are."""

    dialect: Dialect
    body: bytes
    fields: dict[str, Slice]
    places: list[Slice]
    """The slices of all messages."""
    hashes: list[bytes]
    """The hashes of all messages' bytes."""
    described: list[Described]
    chained: list[int]
    """The indexes of the messages in the chain: all but system messages."""
    digests: list[str]
    """The digests of these messages, normalised."""
    chain: list[str]
    """The digest of the first of them, of the first two, and so on. Messages that a fold mark
    replaces have no digests of their own, and all are at its index."""
    sealed: int = -1
    """The index of the last compaction, ours or a provider's; -1 if there is none."""
    original: bytes = b""
    """The client's body, if it names history that is in a log, and that is written out here."""
    log: str = ""
    """The session of that log."""
    is_relayed: bool = False
    """Whether the client's body is sent all the same: its server keeps the history."""
    path: PathFacts | None = None
    """What the request's path says, where the body does not."""

    @property
    def ends_folded(self) -> bool:
        """Whether a mark replaces the newest message."""
        return self.sealed >= 0 and self.chained[-1:] == [self.sealed]

    @property
    def mark(self) -> FoldMark | None:
        """The history that our last compaction item names, if the request has one."""
        if self.sealed < 0 or self.described[self.sealed].role != "fold":
            return None
        return FoldMark.parse(self.described[self.sealed].digest)

    def extract_message(self, message: int) -> bytes:
        """Return the bytes of a message."""
        return self.body[slice(*self.places[message])]

    def read_message(self, message: int) -> list[Event]:
        """Read a message as events; one of an unknown role as it is."""
        raw, described = self.extract_message(message), self.described[message]
        if described.is_opaque:
            instructed = Instructed((Text(raw.decode()),), aside=True, link=described.digest)
            return [instructed]
        return self.dialect.read_message(raw, described)

    def read_words(self, messages: Sequence[int]) -> list[str]:
        """Return the texts of each of some messages."""
        return [self.dialect.read_words(self.extract_message(at)) for at in messages]

    def extract_field(self, name: str) -> bytes:
        """Return the bytes of a field; b"" if it is absent."""
        place = self.fields.get(name)
        return self.body[slice(*place)] if place else b""

    @cached_property
    def model(self) -> str:
        """The model's name."""
        if self.path is not None:
            return self.path.model
        try:
            return msgspec.json.decode(self.extract_field("model") or b'""', type=str)
        except msgspec.DecodeError as fault:
            raise WireError(f"a model's name that is none: {fault}") from fault

    def read_instructions(self) -> Instructed:
        """Read the system prompt and the tools."""
        # What is written out here is kept nowhere else, whatever `store` says now.
        names = (*self.dialect.fixed, *(() if self.log else ("store",)))
        fields = {name: field for name in names if (field := self.extract_field(name))}
        known = [at for at in self.leading if not self.described[at].is_opaque]
        instructed = self.dialect.read_instructions(
            fields, [self.extract_message(at) for at in known]
        )
        opaque = (self.extract_message(at) for at in self.leading if at not in known)
        parts = (*instructed.parts, *(Text(raw.decode()) for raw in opaque))
        return msgspec.structs.replace(instructed, parts=parts)

    @property
    def streams(self) -> bool:
        """Whether the answer is to be streamed."""
        if self.path is not None:
            return self.path.streams
        return self.extract_field("stream") == b"true"

    @cached_property
    def cache_lifetime(self) -> float | None:
        """How many seconds the client asks its provider to keep the prompt, if it says."""
        if self.extract_field("prompt_cache_retention") == b'"24h"':
            return _DAY
        marked = next((at for at in reversed(self.chained) if self.described[at].marked), None)
        raw = self.body if marked is None else self.extract_message(marked)
        return LONG_LIFETIME if _HOUR_MARK.search(raw) else None

    @cached_property
    def leading(self) -> list[int]:
        """The indexes of the system messages that a request begins with."""
        first = self.chained[0] if self.chained else len(self.places)
        return [*range(first)]

    @cached_property
    def asides(self) -> list[int]:
        """The indexes of the system messages after the first other message."""
        described = self.described
        first = len(self.leading)
        return [at for at in range(first, len(described)) if described[at].role == "system"]

    @cached_property
    def answers(self) -> list[int]:
        """The positions in the chain of the model's messages."""
        described = self.described
        return [n for n, at in enumerate(self.chained) if described[at].role == "assistant"]

    @cached_property
    def fixed(self) -> tuple[str, str]:
        """The digests of the system prompt and of the tools."""
        system, tools = self.dialect.fixed
        words = [self.extract_field(system), *(self.extract_message(at) for at in self.leading)]
        return digest_bytes(b"\0".join(words)), digest_bytes(self.extract_field(tools))

    @cached_property
    def prefill(self) -> bytes:
        """The answer that the client has begun itself, if the dialect allows it."""
        last = self.chained[-1] if self.chained else -1
        if not self.dialect.allows_prefill or self.described[last].role != "assistant":
            return b""
        return self.extract_message(last)

    @cached_property
    def parameters(self) -> dict[str, msgspec.Raw]:
        """All fields but the messages, the system prompt and the tools."""
        return {
            name: msgspec.Raw(self.body[slice(*place)])
            for name, place in self.fields.items()
            if name not in (*self.dialect.fixed, self.dialect.messages)
        }


def read_request(dialect: Dialect, body: bytes, path: PathFacts | None = None) -> ClientRequest:
    """Find the parts of a body; raises `WireError` if it cannot be planned."""
    fields = _find_named_fields(dialect, body)
    listed = dialect.messages
    if listed not in fields:
        raise WireError("a request without messages", path=f"$.{listed}")
    for name in dialect.server_state:
        if name in fields and body[slice(*fields[name])] not in (b"null", b"false"):
            raise ServerStateError(name)
    for name, place in fields.items():
        if name != listed:
            _check_field(body[slice(*place)])
    begun = _find_begun(dialect, body, fields[listed])
    places, known = begun.places, begun.known
    hashes, described = known.hashes, known.described
    chained, digests, chain = known.chained, known.digests, known.chain
    last, sealed = chain[-1] if chain else "", known.sealed
    for at in range(len(hashes), len(places)):
        raw = body[slice(*places[at])]
        hashed = hashlib.sha256(raw).digest()
        one = _describe_message(dialect, raw, hashed)
        hashes.append(hashed)
        described.append(one)
        if one.role in ("compaction", "fold"):
            # The conversation begins here: what was before is the provider's, or in a log of ours.
            mark = FoldMark.parse(one.digest) if one.role == "fold" else None
            if mark is None or sealed < 0 or chained[-1:] != [sealed]:
                chained, digests, chain = [], [], []
            last, sealed = mark.chain if mark else "", at
            if mark is not None:
                _check_count(mark, len(chain))
                more = mark.messages - len(chain)
                chained += [at] * more
                digests += [""] * more
                chain += [*[""] * (more - 1), last]
        elif one.role != "system":
            last = chain_on(last, one.digest)
            chained.append(at)
            digests.append(one.digest)
            chain.append(last)
    if not chained:
        raise WireError("a request without anything said")
    request = ClientRequest(
        dialect, body, fields, places, hashes, described, chained, digests, chain, sealed, path=path
    )
    _recent.remember_request(begun.key, request)
    return request


def _find_named_fields(dialect: Dialect, body: bytes) -> dict[str, Slice]:
    """Find a body's fields by their usual names; raises `WireError` if one is repeated."""
    fields = find_fields(body)
    if dialect.aliases.keys().isdisjoint(fields):
        return fields
    found: dict[str, Slice] = {}
    for name, place in fields.items():
        usual = dialect.aliases.get(name, name)
        if usual in found:
            raise WireError(f"the field {usual!r} stands twice")
        found[usual] = place
    return found


class _DescribedMessages(NamedTuple):
    """The first messages of a request as an earlier one had them."""

    hashes: list[bytes]
    described: list[Described]
    chained: list[int]
    digests: list[str]
    chain: list[str]
    sealed: int = -1


class _FoundMessages(NamedTuple):
    """The slices of a request's messages, and what is known of the first ones."""

    key: tuple[str, bytes]
    places: list[Slice]
    known: _DescribedMessages


class _RecentRequests:
    """The newest requests, by their leading bytes.

    A client repeats its history with every call and adds a few messages: what it repeats byte for
    byte is compared at once, and not parsed again.
    """

    def __init__(self) -> None:
        self._requests: OrderedDict[tuple[str, bytes], list[ClientRequest]] = OrderedDict()
        self._size = 0
        self._lock = Lock()  # large requests are read in threads

    def find_request(
        self, key: tuple[str, bytes], body: bytes, start: int
    ) -> tuple[ClientRequest, int] | None:
        """Find the request that shares most messages with a body, and how many."""
        best: tuple[ClientRequest, int] | None = None
        for request in self._requests.get(key, ()):
            first, most = request.places[0].start, len(request.places)
            least = max(most - _MOVED, best[1] if best else 0, request.sealed + 1)
            for count in range(most, least, -1):
                messages = memoryview(request.body)[first : request.places[count - 1].end]
                if body.startswith(messages, start):
                    best = (request, count)
                    break
        return best

    def remember_request(self, key: tuple[str, bytes], request: "ClientRequest") -> None:
        """Remember a request in place of its shorter predecessors; forget the oldest."""
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


def _find_begun(dialect: Dialect, body: bytes, messages: Slice) -> _FoundMessages:
    """Find a request's messages, as far as possible from an earlier request."""
    opened = _OPENED.match(body, messages.start, messages.end)
    start = opened.end() if opened else messages.start
    key = (dialect.name, body[start : start + _SIGN])
    earlier = _recent.find_request(key, body, start) if opened else None
    if earlier is None:
        return _FoundMessages(
            key, _find_messages(dialect, body, messages), _DescribedMessages([], [], [], [], [])
        )
    request, count = earlier
    if dialect.has_turns and request.described[count - 1].role == "assistant":
        count -= 1  # the turn may go on
        if count <= max(request.sealed, 0):
            return _FoundMessages(
                key, _find_messages(dialect, body, messages), _DescribedMessages([], [], [], [], [])
            )
    shift = start - request.places[0].start
    places = request.places[:count]
    if shift:
        places = [Slice(one.start + shift, one.end + shift) for one in places]
    said = bisect_left(request.chained, count)
    known = _DescribedMessages(
        request.hashes[:count],
        request.described[:count],
        request.chained[:said],
        request.digests[:said],
        request.chain[:said],
        request.sealed,
    )
    rest = _join_turns(dialect, body, find_rest(body, messages, places[-1].end))
    return _FoundMessages(key, [*places, *rest], known)


def _find_messages(dialect: Dialect, body: bytes, messages: Slice) -> list[Slice]:
    """Locate all messages; where the dialect has turns of several items, one may stand alone."""
    if dialect.has_turns and body.startswith((b'"', b"{"), messages.start):
        return [messages]
    places = find_values(body, messages)
    if places and dialect.is_content(body[slice(*places[0])]):
        return [messages]
    return _join_turns(dialect, body, places)


def _join_turns(dialect: Dialect, body: bytes, places: list[Slice]) -> list[Slice]:
    """Join neighbouring items of the model, where the dialect's turns have several."""
    if not dialect.has_turns:
        return places
    joined: list[Slice] = []
    goes_on = False
    for place in places:
        is_model = dialect.is_model_item(body[slice(*place)])
        if is_model and goes_on:
            joined[-1] = Slice(joined[-1].start, place.end)
        else:
            joined.append(place)
        goes_on = is_model
    return joined


def _check_count(mark: FoldMark, before: int) -> None:
    """Raise if a mark names more messages than any history has, or none."""
    if not before < mark.messages <= _LONGEST:
        raise WireError(f"a fold of {mark.messages:,} messages, behind {before:,}")


def _check_field(field: bytes) -> None:
    """Raise if a field cannot be read; large fields are checked once."""
    key = hashlib.sha256(field).digest() if len(field) > _SMALL else b""
    if key in _read:
        return
    check_readable(field)
    if key:
        _read[key] = None
        while len(_read) > _MOST:
            _read.popitem(last=False)


def _describe_message(dialect: Dialect, raw: bytes, hashed: bytes) -> Described:
    key = (dialect.name, hashed)
    described = _seen.get(key)
    if described is None:
        described = _seen[key] = dialect.describe_message(raw)
        while len(_seen) > _MOST:
            _seen.popitem(last=False)
    else:
        _seen.move_to_end(key)
    return described


_recent = _RecentRequests()


async def read_beside(
    dialect: Dialect, body: bytes, path: PathFacts | None = None
) -> ClientRequest:
    """Find the parts of a body as `read_request` does, in a thread if they are large or many."""
    objects = body.count(b"{") if len(body) < LARGE else 0
    work = partial(read_request, dialect, body, path)
    return await run_beside(work, size=len(body) + objects * OBJECT)


def weigh_request(request: ClientRequest) -> int:
    """Say how many bytes take as long as a request whose messages are known."""
    return len(request.body) + len(request.places) * OBJECT
