"""Whether a client's history goes on with one that is known.

Knows what makes two messages the same: what was said, called and returned, not how it was written,
and neither thoughts nor instructions. Refuses to know sessions.

What the neutral form cannot hold (a file by its id, a picture's detail) is in a message's own JSON,
so that counts too. A client says again what was answered in its own words: other spacing, other
JSON of the same arguments, the text beside calls left out. Each of these is the answer that was
given.
"""

import hashlib
from typing import Any, TypeAlias, cast

import msgspec

from foldline.core.log import Event, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Call, Media, Text, Thought, calls_of, text_of

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


def known(chain: list[Link], given: list[Link], *, exactly: bool = False) -> int:
    """How many messages of a chain a client's history begins with.

    With `exactly` the text beside calls counts too: only who is known otherwise may leave it out.
    """
    same = 0
    for mine, theirs in zip(chain, given, strict=False):
        if theirs[0] not in (mine[:1] if exactly else mine):
            break
        same += 1
    return same


def strings_of(event: ModelSaid) -> set[str]:
    """Every string that an answer would show: its words, its thoughts, and all of its own JSON."""
    found = {part.text for part in event.parts if isinstance(part, Text | Thought)}
    found |= {part.signature for part in event.parts if isinstance(part, Thought)}
    values: list[Any] = [msgspec.json.decode(event.native.body)] if event.native else []
    values += [_arguments(call) for call in calls_of(event.parts)]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values += cast("dict[str, Any]", value).values()
        elif isinstance(value, list):
            values += cast("list[Any]", value)
        elif isinstance(value, str):
            try:  # arguments: a client may write them in other bytes
                inner = msgspec.json.decode(value) if value[:1] in ("{", "[") else value
            except (msgspec.DecodeError, RecursionError):
                inner = value
            if isinstance(inner, str):
                found.add(inner)
            else:
                values.append(inner)
    return {" ".join(text.split()) for text in found} - {""}


def _digest(role: str, name: str, rest: object) -> bytes:
    return hashlib.sha256(msgspec.json.encode((role, name, rest))).digest()[:16]


def _arguments(call: Call) -> object:
    """Arguments by what they say: a client may write the same object in other bytes."""
    try:
        found = msgspec.json.decode(call.arguments or "{}")
        return msgspec.json.encode(found, order="sorted").decode()
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return call.arguments
