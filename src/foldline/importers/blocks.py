"""Anthropic's content blocks as events, as session files hold them.

Knows the blocks and what the neutral form of each leaves out. Refuses to know requests and streams:
those are the wire's. Where the neutral form says less, the message's own JSON stands beside it.
"""

from typing import Any, NamedTuple

import msgspec

from foldline.core.log import (
    Event,
    ModelSaid,
    Speaker,
    Stop,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Call, Gap, Media, Native, Part, Text, Thought, Tool
from foldline.dialects.anthropic import DIALECT
from foldline.dialects.anthropic.forms import REDACTED
from foldline.importers.base import Json, Notes, brief, count, rows, table, total, words

_STOPS: dict[str, Stop] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
_FIELDS = {
    "text": {"text"},
    "image": {"source"},
    "document": {"source", "title"},
    "tool_use": {"id", "name", "input"},
    "tool_result": {"tool_use_id", "content", "is_error"},
}
_SAYS_NOTHING: tuple[Any, ...] = (None, [], {"type": "direct"})


class BlocksRead(NamedTuple):
    """Blocks in neutral form, and whether that form says all of them."""

    parts: tuple[Part, ...]
    whole: bool


def said(
    message: Json, notes: Notes, place: str = "", *, speaker: Speaker = "human"
) -> list[Event]:
    """A message as events: an answer is one; results and words to the model are each their own."""
    if message.get("role") == "assistant":
        content = message.get("content")
        read = parts(content, notes, place)
        native = None if read.whole else _native(_blocks(content))
        stop = _STOPS.get(words(message.get("stop_reason")), "done")
        return [ModelSaid(read.parts, stop=stop, native=native)]
    events: list[Event] = []
    spoken: list[Any] = []
    for block in _blocks(message.get("content")):
        if table(block).get("type") == "tool_result":
            events += [*_user(spoken, notes, place, speaker), _result(table(block), notes, place)]
            spoken = []
        else:
            spoken.append(block)
    return [*events, *_user(spoken, notes, place, speaker)]


def parts(content: Any, notes: Notes, place: str = "") -> BlocksRead:
    """The parts of a content, be it a string or blocks."""
    found: list[Part] = []
    whole = True
    for given in _blocks(content):
        block = table(given)
        kind = words(block.get("type"))
        part = _part(kind, block)
        if part is None:
            notes.take(f"block {kind or 'without a type'}", place)
            name = words(block.get("name"))
            part = Gap(f"[{brief(f'{kind} {name}') or 'unreadable block'}]")
            whole = False
        found.append(part)
        whole = whole and _says_all(kind, block)
    return BlocksRead(tuple(found), whole)


def tool(given: Json) -> Tool | None:
    """One tool; a provider's own has no schema and goes back as it came."""
    name = words(given.get("name"))
    if not name:
        return None
    schema = msgspec.json.encode(table(given.get("input_schema"))).decode()
    known = {"name", "description", "input_schema", "cache_control"}
    native = _native([given]) if given.keys() - known else None
    return Tool(name, words(given.get("description")), schema, native)


def usage(given: Any) -> UsageReported | None:
    """What was counted; here the cached tokens stand beside the input, not in it."""
    body = table(given)
    fresh, output = count(body.get("input_tokens")), count(body.get("output_tokens"))
    read = count(body.get("cache_read_input_tokens"))
    write = count(body.get("cache_creation_input_tokens"))
    if fresh is None and output is None:
        return None
    return UsageReported(
        input=total(fresh, read, write), cache_read=read, cache_write=write, output=output
    )


def life(given: Any) -> int:
    """How many seconds the cache lives that a call wrote; 0 where its usage does not say."""
    written = table(table(given).get("cache_creation"))
    hour, minutes = (
        count(written.get(f"ephemeral_{name}_input_tokens")) or 0 for name in ("1h", "5m")
    )
    return 3_600 if hour > minutes else 300 if minutes else 0


def _blocks(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [{"type": "text", "text": one} if isinstance(one, str) else one for one in rows(content)]


def _user(blocks: list[Any], notes: Notes, place: str, speaker: Speaker) -> list[Event]:
    if not blocks:
        return []
    read = parts(blocks, notes, place)
    native = None if read.whole else _native(blocks)
    return [UserSaid(read.parts, speaker=speaker, native=native)]


def _result(block: Json, notes: Notes, place: str) -> ToolReturned:
    read = parts(block.get("content"), notes, place)
    whole = read.whole and _says_all("tool_result", block)
    return ToolReturned(
        words(block.get("tool_use_id")),
        read.parts,
        ok=block.get("is_error") is not True,
        native=None if whole else _native([block]),
    )


def _part(kind: str, block: Json) -> Part | None:
    """One block; None where it has no neutral form."""
    match kind:
        case "text" if isinstance(block.get("text"), str):
            return Text(block["text"])
        case "thinking":
            return Thought(words(block.get("thinking")), words(block.get("signature")))
        case "redacted_thinking":
            return Thought(REDACTED, words(block.get("data")))
        case "tool_use":
            return Call(
                words(block.get("id")),
                words(block.get("name")),
                msgspec.json.encode(block.get("input", {})).decode(),
            )
        case "image" | "document":
            return _media(kind, table(block.get("source")), words(block.get("title")))
        case _:
            return None


def _media(kind: str, source: Json, title: str) -> Part | None:
    form = "image" if kind == "image" else "file"
    mime = words(source.get("media_type"))
    match source.get("type"):
        case "base64" if words(source.get("data")):
            return Media(form, mime=mime, base64=words(source.get("data")), name=title)
        case "url" if words(source.get("url")):
            return Media(form, mime=mime, url=words(source.get("url")), name=title)
        case "text":
            return Text(words(source.get("data")))
        case _:
            return None


def _says_all(kind: str, block: Json) -> bool:
    """Whether the neutral form would be written as this block again."""
    if table(block.get("source")).get("type") == "text" or kind not in _FIELDS:
        return False
    extra = block.keys() - _FIELDS[kind] - {"type", "cache_control"}
    return all(block[key] in _SAYS_NOTHING for key in extra)


def _native(blocks: list[Any]) -> Native:
    return Native(DIALECT, msgspec.json.encode(blocks).decode())
