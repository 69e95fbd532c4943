"""Reads lists of Anthropic messages: request objects, bare lists, and answers among them."""

from collections.abc import Sequence
from typing import Any

from foldline.dialects.json_slices import Json, dict_of, list_of
from foldline.importers import draft_log
from foldline.importers.draft_log import Taking
from foldline.importers.openai_messages import choose_import_name, find_message_list
from foldline.importers.source import Imported, Notes, Record, str_of

KIND = "anthropic-messages"
_OWN = {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "document"}


def can_read(body: Json) -> bool:
    """Whether an object has what only this dialect has."""
    listed = find_message_list(body)
    if listed is None:
        return body.get("type") == "message" and body.get("role") == "assistant"
    tools = list_of(body.get("tools"))
    return (
        "system" in body
        or any("input_schema" in dict_of(one) for one in tools)
        or any(_is_own(dict_of(one)) for one in listed)
    )


def read_sessions(records: Sequence[Record], name: str, notes: Notes) -> list[Imported]:
    """Read one session per object."""
    found: list[Imported] = []
    for number, (place, body) in enumerate(records):
        listed: list[Any] | None = find_message_list(body)
        if listed is None and not can_read(body):
            notes.add_note("record without messages", place)
            continue
        taking = Taking(KIND, notes)
        taking.answered_by(_parse_model(body))
        given = [
            draft_log.parse_tool_definition(dict_of(one)) for one in list_of(body.get("tools"))
        ]
        notes.add_note("tool without a name", place, times=given.count(None))
        system = draft_log.parse_blocks(body.get("system"), notes, place).parts
        taking.add_instructions(system, [one for one in given if one])
        answer = dict_of(body.get("response"))
        for index, one in enumerate([body] if listed is None else [*listed, answer]):
            if one:
                _add_message(taking, dict_of(one), f"{place} messages[{index}]".strip())
        found.append(
            taking.finish_session(choose_import_name(body, name, number, alone=len(records) == 1))
        )
        notes = Notes()  # notes of broken lines belong to the first session only
    return found


def _add_message(taking: Taking, body: Json, place: str) -> None:
    match body.get("role"):
        case "system":
            taking.add_instructions(
                draft_log.parse_blocks(body.get("content"), taking.notes, place).parts
            )
        case "user" | "assistant":
            if body["role"] == "assistant":
                taking.answered_by(_parse_model(body))
            for event in draft_log.parse_events(body, taking.notes, place):
                taking.add_event(event, place)
            taking.record_usage(draft_log.parse_message_usage(body.get("usage")))
        case role:
            taking.notes.add_note(f"message of role {str_of(role) or 'none'}", place)


def _is_own(message: Json) -> bool:
    kinds = [dict_of(block) for block in list_of(message.get("content"))]
    return "stop_reason" in message or any(
        str_of(block.get("type")) in _OWN or "source" in block for block in kinds
    )


def _parse_model(body: Json) -> str:
    model = str_of(body.get("model"))
    return f"anthropic/{model}" if model.startswith("claude") else model
