"""Chats as lists of Anthropic messages: a request's object, a bare list, answers among them.

Knows where such files keep the list, the system's words and the tools. Refuses to know the blocks.
"""

from collections.abc import Sequence
from typing import Any

from foldline.importers import blocks
from foldline.importers.base import Imported, Json, Notes, Record, rows, table, words
from foldline.importers.draft_log import Taking
from foldline.importers.openai_messages import messages, title

KIND = "anthropic-messages"
_OWN = {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "document"}


def claims(body: Json) -> bool:
    """Whether an object's messages have what only this dialect has."""
    listed = messages(body)
    if listed is None:
        return body.get("type") == "message" and body.get("role") == "assistant"
    tools = rows(body.get("tools"))
    return (
        "system" in body
        or any("input_schema" in table(one) for one in tools)
        or any(_is_own(table(one)) for one in listed)
    )


def read(records: Sequence[Record], name: str, notes: Notes) -> list[Imported]:
    """One session for each object."""
    found: list[Imported] = []
    for number, (place, body) in enumerate(records):
        listed: list[Any] | None = messages(body)
        if listed is None and not claims(body):
            notes.take("record without messages", place)
            continue
        taking = Taking(KIND, notes)
        taking.answered_by(_model(body))
        given = [blocks.tool(table(one)) for one in rows(body.get("tools"))]
        notes.take("tool without a name", place, times=given.count(None))
        system = blocks.parts(body.get("system"), notes, place).parts
        taking.instruct(system, [one for one in given if one])
        answer = table(body.get("response"))
        for index, one in enumerate([body] if listed is None else [*listed, answer]):
            if one:
                _take(taking, table(one), f"{place} messages[{index}]".strip())
        found.append(taking.done(title(body, name, number, alone=len(records) == 1)))
        notes = Notes()  # what the lines above lost is told once
    return found


def _take(taking: Taking, body: Json, place: str) -> None:
    match body.get("role"):
        case "system":
            taking.instruct(blocks.parts(body.get("content"), taking.notes, place).parts)
        case "user" | "assistant":
            if body["role"] == "assistant":
                taking.answered_by(_model(body))
            for event in blocks.said(body, taking.notes, place):
                taking.add(event, place)
            taking.used(blocks.usage(body.get("usage")))
        case role:
            taking.notes.take(f"message of role {words(role) or 'none'}", place)


def _is_own(message: Json) -> bool:
    kinds = [table(block) for block in rows(message.get("content"))]
    return "stop_reason" in message or any(
        words(block.get("type")) in _OWN or "source" in block for block in kinds
    )


def _model(body: Json) -> str:
    model = words(body.get("model"))
    return f"anthropic/{model}" if model.startswith("claude") else model
