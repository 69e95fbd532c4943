"""Drafts a log from imported events, and parses the Anthropic blocks in session files.

The draft adds what a live session would have written around each event: closed calls when the
conversation goes on, repairs of unpaired results, model switches. Where the neutral form of a block
says less, the message's own JSON is kept beside the event.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from foldline.core import log, rules
from foldline.core.log import (
    Event,
    Instructed,
    ModelSaid,
    ModelSwitched,
    Opened,
    Speaker,
    Stop,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Call, Gap, Media, Native, Part, Text, Thought, Tool
from foldline.core.spine import Spine
from foldline.core.view import load
from foldline.dialects.anthropic import DIALECT
from foldline.dialects.anthropic.blocks import REDACTED
from foldline.dialects.json_slices import Json, dict_of, list_of
from foldline.errors import BadInput
from foldline.importers.source import (
    Imported,
    Mark,
    Notes,
    parse_count,
    str_of,
    sum_counts,
    truncate_label,
)

UNKNOWN = "unknown"


class Taking:
    """The draft of one session, built while its file is read."""

    def __init__(self, kind: str, notes: Notes) -> None:
        self.notes = notes
        self.events: list[Event] = []
        self.times: list[float] = []
        self.marks: list[Mark] = []
        self.now = 0.0
        """The time of the next events, in seconds since 1970; 0 if the file does not say."""
        self.model = ""
        self._life = 0
        self._origin = f"import:{kind}"
        self._view = load(Spine(), {}, head=-1)
        self._newest = self._view.newest
        self._record_event(Opened(UNKNOWN, origin=self._origin))

    def answered_by(self, model: str) -> None:
        """Set the model that answers from here on; the first one opens the session."""
        if not model.strip() or model == self.model:
            return
        if self.model:
            self._record_event(ModelSwitched(model))
        else:
            self.events[0] = Opened(model, origin=self._origin)
        self.model = model

    def add_instructions(self, parts: Iterable[Part], tools: Iterable[Tool] | None = None) -> None:
        """Add to the instructions in force; they are written together before the next event."""
        before = self._newest
        added = tuple(
            part
            for part in parts
            if isinstance(part, Text) and part.text.strip() and part not in before.parts
        )
        standing = before.tools if tools is None else tuple(tools)
        if added or standing != before.tools:
            self._newest = Instructed((*before.parts, *added), standing)

    def add_event(self, event: Event, place: str = "") -> None:
        """Add an event, with the events that a session would add to it."""
        match event:
            case ModelSaid():
                self.add_all(rules.make_closing_events(self._view))
                parts = tuple(self._replace_unsayable_part(part, place) for part in event.parts)
                event = msgspec.structs.replace(event, parts=parts)
            case ToolReturned(parts=()):
                event = msgspec.structs.replace(event, parts=(Text(""),))
            case UserSaid(parts=()):
                return
            case Instructed(parts, tools):
                self.add_instructions(parts, tools or None)
                return
            case _:
                pass
        try:
            log.check_event(event)
        except BadInput:
            self.notes.add_note(f"{log.event_kind_of(event)} that cannot be written down", place)
            return
        self.add_all(rules.list_repairs(self._view, event))
        self._record_event(event)

    def add_all(self, events: Iterable[Event]) -> None:
        """Add events as they are."""
        for event in events:
            self._record_event(event)

    def record_usage(self, usage: UsageReported | None) -> None:
        """Record the usage of the last answer, if known."""
        if usage is not None:
            self._record_event(usage)

    def record_restart(self, sign: str) -> None:
        """Record that another process continues the conversation."""
        self.marks.append(Mark(len(self.events), "restart", sign))

    def record_thinking_level(self, level: str) -> None:
        """Record the thinking level of the requests from here on."""
        if level:
            self.marks.append(Mark(len(self.events), "thinking", level))

    def record_cache_lifetime(self, seconds: int) -> None:
        """Record the cache lifetime of the requests from here on."""
        if seconds != self._life:
            self._life = seconds
            self.marks.append(Mark(len(self.events), "life", str(seconds)))

    def finish_session(self, name: str) -> Imported:
        """Finish the session; calls that are open at its end stay open."""
        self._write_instructions()
        notes = self.notes.render_lines()
        return Imported(name, self.model or UNKNOWN, self.events, notes, self.times, self.marks)

    def _write_instructions(self) -> None:
        if self._newest != self._view.newest:
            self._append_event(self._newest)

    def _record_event(self, event: Event) -> None:
        self._write_instructions()
        self._append_event(event)

    def _append_event(self, event: Event) -> None:
        self.events.append(event)
        self.times.append(self.now)
        self._view.append(self._view.head + 1, event)

    def _replace_unsayable_part(self, part: Part, place: str) -> Part:
        """Replace a part that some dialect does not allow in an answer with a gap."""
        match part:
            case Call(name=name) if not name.strip():
                self.notes.add_note("call without a name", place)
                return Gap("[a call without a name]")
            case Media(form):
                self.notes.add_note(f"{form} in an answer", place)
                return Gap(f"[{form}]")
            case _:
                return part


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
    """Blocks in neutral form, and whether that form loses nothing."""

    parts: tuple[Part, ...]
    whole: bool


def parse_events(
    message: Json, notes: Notes, place: str = "", *, speaker: Speaker = "human"
) -> list[Event]:
    """Parse a message: an answer is one event; results and words are separate events."""
    if message.get("role") == "assistant":
        content = message.get("content")
        read = parse_blocks(content, notes, place)
        native = None if read.whole else _encode_native(_list_blocks(content))
        stop = _STOPS.get(str_of(message.get("stop_reason")), "done")
        return [ModelSaid(read.parts, stop=stop, native=native)]
    events: list[Event] = []
    spoken: list[Any] = []
    for block in _list_blocks(message.get("content")):
        if dict_of(block).get("type") == "tool_result":
            events += [
                *_parse_user_blocks(spoken, notes, place, speaker),
                _parse_tool_result(dict_of(block), notes, place),
            ]
            spoken = []
        else:
            spoken.append(block)
    return [*events, *_parse_user_blocks(spoken, notes, place, speaker)]


def parse_blocks(content: Any, notes: Notes, place: str = "") -> BlocksRead:
    """Parse a content, a string or blocks, into parts."""
    found: list[Part] = []
    whole = True
    for given in _list_blocks(content):
        block = dict_of(given)
        kind = str_of(block.get("type"))
        part = _parse_block(kind, block)
        if part is None:
            notes.add_note(f"block {kind or 'without a type'}", place)
            name = str_of(block.get("name"))
            part = Gap(f"[{truncate_label(f'{kind} {name}') or 'unreadable block'}]")
            whole = False
        found.append(part)
        whole = whole and _says_all(kind, block)
    return BlocksRead(tuple(found), whole)


def parse_tool_definition(given: Json) -> Tool | None:
    """Parse a tool; a provider's own has no schema and goes back as it came."""
    name = str_of(given.get("name"))
    if not name:
        return None
    schema = msgspec.json.encode(dict_of(given.get("input_schema"))).decode()
    known = {"name", "description", "input_schema", "cache_control"}
    native = _encode_native([given]) if given.keys() - known else None
    return Tool(name, str_of(given.get("description")), schema, native)


def parse_message_usage(given: Any) -> UsageReported | None:
    """Parse a usage; Anthropic's input count excludes the cached tokens, ours includes them."""
    body = dict_of(given)
    return make_usage(
        fresh=body.get("input_tokens"),
        read=body.get("cache_read_input_tokens"),
        write=body.get("cache_creation_input_tokens"),
        output=body.get("output_tokens"),
        long=dict_of(body.get("cache_creation")).get("ephemeral_1h_input_tokens"),
    )


def make_usage(
    *, fresh: Any, read: Any, write: Any, output: Any, long: Any = None
) -> UsageReported | None:
    """Make a usage from foreign counts, where `fresh` input excludes the cache."""
    counts = parse_count(fresh), parse_count(read), parse_count(write)
    written = parse_count(output)
    if counts[0] is None and written is None:
        return None
    return UsageReported(
        input=sum_counts(*counts),
        cache_read=counts[1],
        cache_write=counts[2],
        cache_write_long=parse_count(long) or None,
        output=written,
    )


def parse_cache_lifetime(given: Any) -> int:
    """Return how many seconds a call's cache lives; 0 if its usage does not say."""
    written = dict_of(dict_of(given).get("cache_creation"))
    hour, minutes = (
        parse_count(written.get(f"ephemeral_{name}_input_tokens")) or 0 for name in ("1h", "5m")
    )
    return 3_600 if hour > minutes else 300 if minutes else 0


def _list_blocks(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [
        {"type": "text", "text": one} if isinstance(one, str) else one for one in list_of(content)
    ]


def _parse_user_blocks(
    blocks: list[Any], notes: Notes, place: str, speaker: Speaker
) -> list[Event]:
    if not blocks:
        return []
    read = parse_blocks(blocks, notes, place)
    native = None if read.whole else _encode_native(blocks)
    return [UserSaid(read.parts, speaker=speaker, native=native)]


def _parse_tool_result(block: Json, notes: Notes, place: str) -> ToolReturned:
    read = parse_blocks(block.get("content"), notes, place)
    whole = read.whole and _says_all("tool_result", block)
    return ToolReturned(
        str_of(block.get("tool_use_id")),
        read.parts,
        ok=block.get("is_error") is not True,
        native=None if whole else _encode_native([block]),
    )


def _parse_block(kind: str, block: Json) -> Part | None:
    """Parse a block; None if it has no neutral form."""
    match kind:
        case "text" if isinstance(block.get("text"), str):
            return Text(block["text"])
        case "thinking":
            return Thought(str_of(block.get("thinking")), str_of(block.get("signature")))
        case "redacted_thinking":
            return Thought(REDACTED, str_of(block.get("data")))
        case "tool_use":
            return Call(
                str_of(block.get("id")),
                str_of(block.get("name")),
                msgspec.json.encode(block.get("input", {})).decode(),
            )
        case "image" | "document":
            return _parse_media(kind, dict_of(block.get("source")), str_of(block.get("title")))
        case _:
            return None


def _parse_media(kind: str, source: Json, title: str) -> Part | None:
    form = "image" if kind == "image" else "file"
    mime = str_of(source.get("media_type"))
    match source.get("type"):
        case "base64" if str_of(source.get("data")):
            return Media(form, mime=mime, base64=str_of(source.get("data")), name=title)
        case "url" if str_of(source.get("url")):
            return Media(form, mime=mime, url=str_of(source.get("url")), name=title)
        case "text":
            return Text(str_of(source.get("data")))
        case _:
            return None


def _says_all(kind: str, block: Json) -> bool:
    """Whether the neutral form would be written back as this block."""
    if dict_of(block.get("source")).get("type") == "text" or kind not in _FIELDS:
        return False
    extra = block.keys() - _FIELDS[kind] - {"type", "cache_control"}
    return all(block[key] in _SAYS_NOTHING for key in extra)


def _encode_native(blocks: list[Any]) -> Native:
    return Native(DIALECT, msgspec.json.encode(blocks).decode())
