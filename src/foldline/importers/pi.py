"""Sessions of the `pi` agent, one JSON record a line.

Knows its records of both kinds: in a row, or as a tree whose newest branch is the conversation.
Refuses to know what pi did with them. Its thinking levels are kept apart, as are its compactions.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from foldline.core.log import (
    Checkpointed,
    ModelSaid,
    Stop,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Call, Gap, Media, Part, Text, Thought
from foldline.importers.base import (
    Imported,
    Json,
    Notes,
    Record,
    brief,
    count,
    rows,
    seconds,
    stem,
    table,
    total,
    words,
)
from foldline.importers.draft_log import Taking

KIND = "pi"
_TYPES = {"message", "session", "model_change", "thinking_level_change", "compaction"}
_STOPS: dict[str, Stop] = {"length": "length", "aborted": "cancelled", "error": "cut"}
_APART = {"label", "custom"}
"""Records for pi's own screen."""


def claims(body: Json) -> bool:
    """Whether a record is one of pi's."""
    match words(body.get("type")):
        case "session":
            return "cwd" in body
        case "message":
            return isinstance(table(body.get("message")).get("role"), str)
        case kind:
            return kind in _TYPES and "timestamp" in body


def read(records: Sequence[Record], name: str, notes: Notes) -> list[Imported]:
    """The one session of a file."""
    taking = Taking(KIND, notes)
    title = ""
    began: list[int] = []  # where in the log each record's events begin
    for place, body in _branch(records, notes):
        began.append(len(taking.events))
        taking.now = seconds(body.get("timestamp")) or taking.now
        match words(body.get("type")):
            case "session":
                if title:
                    taking.restarted("another session record")
                title = title or words(body.get("id"))
                taking.answered_by(_model(body.get("provider"), body.get("modelId")))
                _level(taking, body)
            case "message":
                _message(taking, table(body.get("message")), place)
            case "model_change":
                taking.answered_by(_model(body.get("provider"), body.get("modelId")))
            case "thinking_level_change":
                _level(taking, body)
            case "compaction":
                taking.add(Checkpointed("compaction", words(body.get("summary"))), place)
                kept = count(body.get("firstKeptEntryIndex"))
                if kept is not None and kept < len(began):
                    taking.add(Checkpointed("kept from", str(began[kept])), place)
            case "branch_summary":
                said = Text(words(body.get("summary")))
                taking.add(UserSaid((said,), speaker="notice", author="branch"), place)
            case "custom_message":
                parts = _parts(taking, body.get("content"), place)
                author = words(body.get("customType"))
                taking.add(UserSaid(parts, speaker="notice", author=author), place)
            case "session_info":
                taking.add(Checkpointed("title", words(body.get("name"))), place)
            case kind:
                own = "record for the screen" if kind in _APART else "record"
                notes.take(f"{own} {kind or 'without a type'}", place)
    return [taking.done(title or stem(name) or KIND)]


def _branch(records: Sequence[Record], notes: Notes) -> list[Record]:
    """The records of the newest branch; where a parent is missing, the one before is taken."""
    places = {words(body.get("id")): at for at, (_, body) in enumerate(records) if "id" in body}
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
        at = places.get(words(parent), at - 1)
    live |= {at for at, (_, body) in enumerate(records) if body.get("type") == "session"}
    notes.take("record of an abandoned branch", times=len(records) - len(live))
    return [record for at, record in enumerate(records) if at in live]


def _message(taking: Taking, body: Json, place: str) -> None:
    match body.get("role"):
        case "user":
            taking.add(UserSaid(_parts(taking, body.get("content"), place)), place)
        case "assistant":
            taking.answered_by(_model(body.get("provider"), body.get("model")))
            stop = _STOPS.get(words(body.get("stopReason")), "done")
            parts = _parts(taking, body.get("content"), place)
            taking.add(ModelSaid(parts, stop=stop), place)
            taking.used(_usage(table(body.get("usage"))))
            if table(body.get("usage")).get("cost"):
                taking.notes.take("price of a call", place)
            if words(body.get("errorMessage")):
                taking.notes.take("error message of a call", place)
        case "toolResult":
            if body.get("details"):
                taking.notes.take("details of a result", place)
            parts = _parts(taking, body.get("content"), place)
            ok = body.get("isError") is not True
            taking.add(ToolReturned(words(body.get("toolCallId")), parts, ok=ok), place)
        case "bashExecution":
            if body.get("excludeFromContext") is True:
                taking.notes.take("command kept from the model", place)
                return
            said = UserSaid((Text(_ran(body)),), speaker="notice", author="shell")
            taking.add(said, place)
        case role:
            taking.notes.take(f"message of role {words(role) or 'none'}", place)


def _parts(taking: Taking, content: Any, place: str) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(content),)
    parts: list[Part] = []
    for block in map(table, rows(content)):
        match block.get("type"):
            case "text":
                parts.append(Text(words(block.get("text"))))
            case "thinking":
                signature = words(block.get("thinkingSignature"))
                parts.append(Thought(words(block.get("thinking")), signature))
            case "toolCall":
                arguments = msgspec.json.encode(block.get("arguments", {})).decode()
                name = words(block.get("name"))
                parts.append(Call(words(block.get("id")), name, arguments))
            case "image":
                data, mime = words(block.get("data")), words(block.get("mimeType"))
                parts.append(Media("image", mime=mime, base64=data))
            case kind:
                taking.notes.take(f"block {words(kind) or 'without a type'}", place)
                parts.append(Gap(f"[{brief(words(kind)) or 'unreadable block'}]"))
    return tuple(parts)


def _usage(body: Json) -> UsageReported | None:
    """What was counted; here `input` is what was neither read from the cache nor written to it."""
    fresh, output = count(body.get("input")), count(body.get("output"))
    read, write = count(body.get("cacheRead")), count(body.get("cacheWrite"))
    if fresh is None and output is None:
        return None
    return UsageReported(
        input=total(fresh, read, write), cache_read=read, cache_write=write, output=output
    )


def _level(taking: Taking, body: Json) -> None:
    if level := words(body.get("thinkingLevel")):
        taking.add(Checkpointed("thinking", level))


def _model(provider: Any, model: Any) -> str:
    return f"{words(provider)}/{words(model)}".strip("/") if words(model) else ""


def _ran(body: Json) -> str:
    """A command that the user ran, in the words in which pi tells it to the model."""
    output = words(body.get("output"))
    said = f"Ran `{words(body.get('command'))}`\n" + (
        f"```\n{output}\n```" if output else "(no output)"
    )
    if body.get("cancelled") is True:
        said += "\n\n(command cancelled)"
    elif code := count(body.get("exitCode")):
        said += f"\n\nCommand exited with code {code}"
    if body.get("truncated") is True and words(body.get("fullOutputPath")):
        said += f"\n\n[Output truncated. Full output: {words(body.get('fullOutputPath'))}]"
    return said
