"""Whether a client's history goes on with one that is known.

Knows what makes two messages the same: what was said, called and returned, not how it was written,
and neither thoughts nor instructions. Refuses to know sessions.

What the neutral form cannot hold (a file by its id, a picture's detail) is in a message's own JSON,
so that counts too. A client says again what was answered in its own words: other spacing, other
JSON of the same arguments, the text beside calls left out. Each of these is the answer that was
given.
"""

import hashlib
from typing import TypeAlias

import msgspec

from foldline.core.log import Event, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Call, Media, Text, calls_of, text_of

Link: TypeAlias = tuple[bytes, ...]
"""One message of a chain: the digests that a client may give it."""


def link(event: Event) -> Link:
    """What an event is known by; nothing, if it is no message."""
    match event:
        case UserSaid():
            return (_digest("user", event.author, (event.parts, event.native)),)
        case ToolReturned():
            return (_digest("tool", event.call_id, (event.parts, event.ok, event.native)),)
        case ModelSaid():
            calls = [(call.id, call.name, _arguments(call)) for call in calls_of(event.parts)]
            media = [part for part in event.parts if isinstance(part, Media)]
            words = " ".join(text_of(p for p in event.parts if isinstance(p, Text)).split())
            said = _digest("model", words, (calls, media))
            return (said, _digest("model", "", (calls, media))) if calls and words else (said,)
        case _:
            return ()


def known(chain: list[Link], given: list[Link]) -> int:
    """How many messages of a chain a client's history begins with."""
    same = 0
    for mine, theirs in zip(chain, given, strict=False):
        if theirs[0] not in mine:
            break
        same += 1
    return same


def _digest(role: str, name: str, rest: object) -> bytes:
    return hashlib.sha256(msgspec.json.encode((role, name, rest))).digest()[:16]


def _arguments(call: Call) -> object:
    """Arguments by what they say: a client may write the same object in other bytes."""
    try:
        found = msgspec.json.decode(call.arguments or "{}")
        return msgspec.json.encode(found, order="sorted").decode()
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return call.arguments
