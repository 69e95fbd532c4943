"""Reads lists of OpenAI messages: bare, or in objects of requests, benchmarks and archives."""

from collections.abc import Sequence
from typing import Any

from foldline.core.parts import Tool
from foldline.dialects import openai_chat
from foldline.dialects.json_slices import Json, dict_of, list_of
from foldline.errors import BadInput
from foldline.importers.draft_log import Taking
from foldline.importers.source import Imported, Notes, Record, stem_of, str_of

KIND = "openai-messages"
LISTS = ("messages", "traj", "history")


def can_read(body: Json) -> bool:
    """Whether an object holds a list of messages, or is an answer."""
    return find_message_list(body) is not None or isinstance(body.get("choices"), list)


def find_message_list(body: Json) -> list[Any] | None:
    """Return the list of messages in an object."""
    for key in LISTS:
        found = list_of(body.get(key))
        if any(isinstance(dict_of(one).get("role"), str) for one in found):
            return found
    return None


def read_sessions(records: Sequence[Record], name: str, notes: Notes) -> list[Imported]:
    """Read one session per object."""
    found: list[Imported] = []
    for number, (place, body) in enumerate(records):
        listed = find_message_list(body)
        if listed is None and "choices" not in body:
            notes.add_note("record without messages", place)
            continue
        taking = Taking(KIND, notes)
        answer = [body] if "choices" in body else [dict_of(body.get("response"))]
        taking.answered_by(str_of(body.get("model")) or str_of(answer[0].get("model")))
        taking.add_instructions((), _parse_tools(body, notes, place))
        for index, message in enumerate((*(listed or ()), *answer)):
            if message:
                add_chat_message(taking, message, f"{place} messages[{index}]".strip())
        found.append(
            taking.finish_session(choose_import_name(body, name, number, alone=len(records) == 1))
        )
        notes = Notes()  # notes of broken lines belong to the first session only
    return found


def choose_import_name(body: Json, name: str, number: int, *, alone: bool) -> str:
    """Name a session by its own id, else by its file and its number there."""
    own = next((str_of(body[key]) for key in ("id", "session_id") if str_of(body.get(key))), "")
    return own or (stem_of(name) or KIND) + ("" if alone else f"-{number}")


def add_chat_message(taking: Taking, given: Any, place: str) -> None:
    """Add a message or a completion to the draft; note it if it cannot be read."""
    body = dict_of(given)
    try:
        if "choices" in body:
            taking.answered_by(str_of(body.get("model")))
            events = openai_chat.parse_completion(body, saw=None, asked=None)
        else:
            events = [openai_chat.parse_message(body)]
    except (BadInput, AssertionError):
        taking.notes.add_note(f"message of role {str_of(body.get('role')) or 'none'}", place)
        return
    for event in events:
        taking.add_event(event, place)


def _parse_tools(body: Json, notes: Notes, place: str) -> list[Tool]:
    tools: list[Tool] = []
    for given in list_of(body.get("tools")):
        try:
            tools.append(openai_chat.parse_tool(dict_of(given)))
        except BadInput:
            notes.add_note("tool of another kind", place)
    return tools
