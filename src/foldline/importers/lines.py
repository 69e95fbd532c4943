"""A file's text as records.

Knows JSON and JSON lines, and that either may be broken. Refuses to know who wrote them.
"""

import json
import re
from typing import Any

import msgspec

from foldline.core.parts import sound
from foldline.dialects.json_reader import Json, plain
from foldline.errors import WireError
from foldline.importers.base import Notes, Record, rows, table

# Agents written in JavaScript cut texts between the halves of a pair, and write the half escaped.
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_SPACE = " \t\r\n\ufeff"


def records(text: str, notes: Notes) -> list[Record]:
    """The records of a file; a line that cannot be read is left out and noted."""
    text = sound(text).strip(_SPACE)
    if not text:
        raise WireError("an empty file holds no session", path="line 1")
    try:
        return _of_value(value(text))
    except WireError as whole:
        # By line ends alone: JSON's strings may hold the other characters that end a line.
        found = _of_lines(text.split("\n"), notes)
        if not found:
            raise WireError(
                f"line 1 begins neither a JSON document nor JSON lines: {whole}", path="line 1"
            ) from whole
        return _one_chat(found)


def value(text: str) -> Any:
    """The JSON value that a text is, with no half characters and not too deep."""
    try:
        try:
            found = msgspec.json.decode(text)
        except msgspec.DecodeError:
            if not _HALF.search(text):
                raise
            found = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise WireError(f"not JSON: {fault}") from fault
    return plain({"value": found})["value"]


def _of_value(found: Any) -> list[Record]:
    if isinstance(found, dict):
        return [Record("", table(found))]
    bodies = [(f"[{place}]", one) for place, one in enumerate(rows(found))]
    if any(_is_message(one) for _, one in bodies):
        return [Record("", {"messages": [one for _, one in bodies]})]
    return [Record(place, table(one)) for place, one in bodies if isinstance(one, dict)]


def _of_lines(lines: list[str], notes: Notes) -> list[Record]:
    found: list[Record] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip(_SPACE):
            continue
        try:
            body = value(line.strip(_SPACE))
        except WireError:
            body = None
        if isinstance(body, dict):
            found.append(Record(f"line {number}", table(body)))
        else:
            notes.take("broken line", f"line {number}")
    return found


def _one_chat(found: list[Record]) -> list[Record]:
    """Lines that are messages themselves make one conversation."""
    messages: list[Json] = [one.body for one in found if _is_message(one.body)]
    return [Record("", {"messages": messages})] if len(messages) * 2 > len(found) else found


def _is_message(body: Any) -> bool:
    """Whether something is a chat message: it names its speaker, and is no record of an agent's."""
    body = table(body)
    kind = body.get("type")
    return isinstance(body.get("role"), str) and (kind is None or "id" in body)
