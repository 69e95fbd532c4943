"""Reads sessions of the `pi` agent, one JSON record per line.

Records are a list, or a tree whose newest branch is the conversation. Thinking levels and
compactions become checkpoints.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from foldline.core.log import Checkpointed, ModelSaid, Stop, ToolReturned, UserSaid
from foldline.core.parts import Call, Gap, Media, Part, Text, Thought
from foldline.dialects.json_slices import Json, dict_of, list_of
from foldline.importers.draft_log import Taking, make_usage
from foldline.importers.source import (
    Imported,
    Notes,
    Record,
    parse_count,
    parse_timestamp,
    stem_of,
    str_of,
    truncate_label,
)

KIND = "pi"
_TYPES = {"message", "session", "model_change", "thinking_level_change", "compaction"}
_STOPS: dict[str, Stop] = {"length": "length", "aborted": "cancelled", "error": "cut"}
_APART = {"label", "custom"}
"""Records for pi's own screen."""


def can_read(body: Json) -> bool:
    """Whether a record is one of pi's."""
    match str_of(body.get("type")):
        case "session":
            return "cwd" in body
        case "message":
            return isinstance(dict_of(body.get("message")).get("role"), str)
        case kind:
            return kind in _TYPES and "timestamp" in body


def read_sessions(records: Sequence[Record], name: str, notes: Notes) -> list[Imported]:
    """Read the one session of a file."""
    taking = Taking(KIND, notes)
    title = ""
    began: list[int] = []  # where in the log each record's events begin
    named: dict[str, int] = {}  # the same, by the record's id
    for place, body in _select_newest_branch(records, notes):
        began.append(len(taking.events))
        if own := str_of(body.get("id")):
            named[own] = len(taking.events)
        taking.now = parse_timestamp(body.get("timestamp")) or taking.now
        match str_of(body.get("type")):
            case "session":
                if title:
                    taking.record_restart("another session record")
                title = title or str_of(body.get("id"))
                taking.answered_by(_format_model(body.get("provider"), body.get("modelId")))
                _add_thinking_level(taking, body)
            case "message":
                _add_message(taking, dict_of(body.get("message")), place)
            case "model_change":
                taking.answered_by(_format_model(body.get("provider"), body.get("modelId")))
            case "thinking_level_change":
                _add_thinking_level(taking, body)
            case "compaction":
                taking.add_event(Checkpointed("compaction", str_of(body.get("summary"))), place)
                kept = parse_count(body.get("firstKeptEntryIndex"))
                first = began[kept] if kept is not None and kept < len(began) else None
                first = named.get(str_of(body.get("firstKeptEntryId")), first)
                if first is not None:
                    taking.add_event(Checkpointed("kept from", str(first)), place)
            case "branch_summary":
                said = Text(str_of(body.get("summary")))
                taking.add_event(UserSaid((said,), speaker="notice", author="branch"), place)
            case "custom_message":
                parts = _parse_content(taking, body.get("content"), place)
                author = str_of(body.get("customType"))
                taking.add_event(UserSaid(parts, speaker="notice", author=author), place)
            case "session_info":
                taking.add_event(Checkpointed("title", str_of(body.get("name"))), place)
            case kind:
                own = "record for the screen" if kind in _APART else "record"
                notes.add_note(f"{own} {kind or 'without a type'}", place)
    return [taking.finish_session(title or stem_of(name) or KIND)]


def _select_newest_branch(records: Sequence[Record], notes: Notes) -> list[Record]:
    """Select the newest branch; if a parent is missing, the record before takes its place."""
    places = {str_of(body.get("id")): at for at, (_, body) in enumerate(records) if "id" in body}
    if not any("parentId" in body for _, body in records):
        return list(records)
    live: set[int] = set()
    at = len(records) - 1
    while at >= 0 and at not in live:
        live.add(at)
        body = records[at].body
        parent = body.get("parentId")
        if "parentId" in body and parent is None:
            break
        at = places.get(str_of(parent), at - 1)
    live |= {at for at, (_, body) in enumerate(records) if body.get("type") == "session"}
    notes.add_note("record of an abandoned branch", times=len(records) - len(live))
    return [record for at, record in enumerate(records) if at in live]


def _add_message(taking: Taking, body: Json, place: str) -> None:
    match body.get("role"):
        case "user":
            taking.add_event(UserSaid(_parse_content(taking, body.get("content"), place)), place)
        case "assistant":
            taking.answered_by(_format_model(body.get("provider"), body.get("model")))
            stop = _STOPS.get(str_of(body.get("stopReason")), "done")
            parts = _parse_content(taking, body.get("content"), place)
            taking.add_event(ModelSaid(parts, stop=stop), place)
            usage = dict_of(body.get("usage"))
            taking.record_usage(
                make_usage(
                    fresh=usage.get("input"),
                    read=usage.get("cacheRead"),
                    write=usage.get("cacheWrite"),
                    output=usage.get("output"),
                )
            )
            if usage.get("cost"):
                taking.notes.add_note("price of a call", place)
            if str_of(body.get("errorMessage")):
                taking.notes.add_note("error message of a call", place)
        case "toolResult":
            if body.get("details"):
                taking.notes.add_note("details of a result", place)
            parts = _parse_content(taking, body.get("content"), place)
            ok = body.get("isError") is not True
            taking.add_event(ToolReturned(str_of(body.get("toolCallId")), parts, ok=ok), place)
        case "bashExecution":
            if body.get("excludeFromContext") is True:
                taking.notes.add_note("command kept from the model", place)
                return
            said = UserSaid((Text(_render_shell_command(body)),), speaker="notice", author="shell")
            taking.add_event(said, place)
        case role:
            taking.notes.add_note(f"message of role {str_of(role) or 'none'}", place)


def _parse_content(taking: Taking, content: Any, place: str) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(content),)
    parts: list[Part] = []
    for block in map(dict_of, list_of(content)):
        match block.get("type"):
            case "text":
                parts.append(Text(str_of(block.get("text"))))
            case "thinking":
                signature = str_of(block.get("thinkingSignature"))
                parts.append(Thought(str_of(block.get("thinking")), signature))
            case "toolCall":
                arguments = msgspec.json.encode(block.get("arguments", {})).decode()
                name = str_of(block.get("name"))
                parts.append(Call(str_of(block.get("id")), name, arguments))
            case "image":
                data, mime = str_of(block.get("data")), str_of(block.get("mimeType"))
                parts.append(Media("image", mime=mime, base64=data))
            case kind:
                taking.notes.add_note(f"block {str_of(kind) or 'without a type'}", place)
                parts.append(Gap(f"[{truncate_label(str_of(kind)) or 'unreadable block'}]"))
    return tuple(parts)


def _add_thinking_level(taking: Taking, body: Json) -> None:
    if level := str_of(body.get("thinkingLevel")):
        taking.add_event(Checkpointed("thinking", level))


def _format_model(provider: Any, model: Any) -> str:
    return f"{str_of(provider)}/{str_of(model)}".strip("/") if str_of(model) else ""


def _render_shell_command(body: Json) -> str:
    """Render a command that the user ran as pi shows it to the model."""
    output = str_of(body.get("output"))
    said = f"Ran `{str_of(body.get('command'))}`\n" + (
        f"```\n{output}\n```" if output else "(no output)"
    )
    if body.get("cancelled") is True:
        said += "\n\n(command cancelled)"
    elif code := parse_count(body.get("exitCode")):
        said += f"\n\nCommand exited with code {code}"
    if body.get("truncated") is True and str_of(body.get("fullOutputPath")):
        said += f"\n\n[Output truncated. Full output: {str_of(body.get('fullOutputPath'))}]"
    return said
