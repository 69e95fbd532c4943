"""Chats as lists of OpenAI messages: bare, or in an object of requests, benchmarks and archives.

Knows where such files keep the list, the tools and the answer. Refuses to know the messages
themselves: the wire reads them.
"""

from collections.abc import Sequence
from typing import Any

from foldline.core.parts import Tool
from foldline.dialects import openai_chat
from foldline.errors import BadInput
from foldline.importers.base import Imported, Json, Notes, Record, rows, stem, table, words
from foldline.importers.draft_log import Taking

KIND = "openai-messages"
LISTS = ("messages", "traj", "history")


def claims(body: Json) -> bool:
    """Whether an object holds a list of messages, or is an answer."""
    return messages(body) is not None or isinstance(body.get("choices"), list)


def messages(body: Json) -> list[Any] | None:
    """The list of messages in an object."""
    for key in LISTS:
        found = rows(body.get(key))
        if any(isinstance(table(one).get("role"), str) for one in found):
            return found
    return None


def read(records: Sequence[Record], name: str, notes: Notes) -> list[Imported]:
    """One session for each object."""
    found: list[Imported] = []
    for number, (place, body) in enumerate(records):
        listed = messages(body)
        if listed is None and "choices" not in body:
            notes.take("record without messages", place)
            continue
        taking = Taking(KIND, notes)
        answer = [body] if "choices" in body else [table(body.get("response"))]
        taking.answered_by(words(body.get("model")) or words(answer[0].get("model")))
        taking.instruct((), _tools(body, notes, place))
        for index, message in enumerate((*(listed or ()), *answer)):
            if message:
                take(taking, message, f"{place} messages[{index}]".strip())
        found.append(taking.done(title(body, name, number, alone=len(records) == 1)))
        notes = Notes()  # what the lines above lost is told once
    return found


def title(body: Json, name: str, number: int, *, alone: bool) -> str:
    """What a session is called: by its own id, else by its file and its place there."""
    own = next((words(body[key]) for key in ("id", "session_id") if words(body.get(key))), "")
    return own or (stem(name) or KIND) + ("" if alone else f"-{number}")


def take(taking: Taking, given: Any, place: str) -> None:
    """One message, or one completion, into the log; what cannot be read is noted."""
    body = table(given)
    try:
        if "choices" in body:
            taking.answered_by(words(body.get("model")))
            events = openai_chat.completion(body, saw=None, asked=None)
        else:
            events = [openai_chat.message(body)]
    except (BadInput, AssertionError):
        taking.notes.take(f"message of role {words(body.get('role')) or 'none'}", place)
        return
    for event in events:
        taking.add(event, place)


def _tools(body: Json, notes: Notes, place: str) -> list[Tool]:
    tools: list[Tool] = []
    for given in rows(body.get("tools")):
        try:
            tools.append(openai_chat.tool(table(given)))
        except BadInput:
            notes.take("tool of another kind", place)
    return tools
