"""Splits a file into records, detects which agent wrote it, and reads its sessions.

Files are JSON or JSON lines, and either may be broken.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from foldline.core.parts import replace_surrogates
from foldline.dialects.json_slices import Json, convert_to_json, dict_of, list_of
from foldline.errors import WireError
from foldline.importers import (
    anthropic_messages,
    claude_code,
    codex,
    foldline_jsonl,
    gemini_cli,
    openai_messages,
    opencode,
    pi,
    swe_agent,
)
from foldline.importers.source import Imported, Notes, Record, Source, stem_of

# Agents in JavaScript cut texts between the halves of a surrogate pair, and escape the half.
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_SPACE = " \t\r\n\ufeff"


def parse_records(text: str, notes: Notes) -> list[Record]:
    """Split a file into records; a line that cannot be read is skipped and noted."""
    text = replace_surrogates(text).strip(_SPACE)
    if not text:
        raise WireError("an empty file holds no session", path="line 1")
    try:
        return _of_value(parse_json_value(text))
    except WireError as whole:
        # Not `splitlines`: JSON strings may hold the other characters that end a line.
        found = _of_lines(text.split("\n"), notes)
        if not found:
            raise WireError(
                f"line 1 begins neither a JSON document nor JSON lines: {whole}", path="line 1"
            ) from whole
        return _one_chat(found)


def parse_json_value(text: str) -> Any:
    """Decode a JSON value; repair lone surrogates, and refuse deep nesting."""
    try:
        try:
            found = msgspec.json.decode(text)
        except msgspec.DecodeError:
            if not _HALF.search(text):
                raise
            found = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise WireError(f"not JSON: {fault}") from fault
    return convert_to_json({"value": found})["value"]


def _of_value(found: Any) -> list[Record]:
    if isinstance(found, dict):
        return [Record("", dict_of(found))]
    bodies = [(f"[{place}]", one) for place, one in enumerate(list_of(found))]
    if any(_is_message(one) for _, one in bodies):
        return [Record("", {"messages": [one for _, one in bodies]})]
    return [Record(place, dict_of(one)) for place, one in bodies if isinstance(one, dict)]


def _of_lines(lines: list[str], notes: Notes) -> list[Record]:
    found: list[Record] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip(_SPACE):
            continue
        try:
            body = parse_json_value(line.strip(_SPACE))
        except WireError:
            body = None
        if isinstance(body, dict):
            found.append(Record(f"line {number}", dict_of(body)))
        else:
            notes.add_note("broken line", f"line {number}")
    return found


def _one_chat(found: list[Record]) -> list[Record]:
    """Join lines into one conversation if most of them are messages."""
    messages: list[Json] = [one.body for one in found if _is_message(one.body)]
    return [Record("", {"messages": messages})] if len(messages) * 2 > len(found) else found


def _is_message(body: Any) -> bool:
    """Whether a value is a chat message: it has a role, and is not an agent's record."""
    body = dict_of(body)
    kind = body.get("type")
    return isinstance(body.get("role"), str) and (kind is None or "id" in body)


# The most specific first: sessions of several agents also hold a list of messages.
SOURCES: tuple[Source, ...] = (
    codex,
    claude_code,
    pi,
    gemini_cli,
    opencode,
    swe_agent,
    anthropic_messages,
    openai_messages,
    foldline_jsonl,
)
_NAMES: tuple[tuple[str, Source], ...] = (
    ("rollout-", codex),
    (".traj", swe_agent),
    (".claude/", claude_code),
    (".pi/", pi),
)


def detect(text: str, name: str = "") -> str:
    """Return the kind of a session file by its content; the name decides a tie."""
    return _choose_source(parse_records(text, Notes()), name).KIND


def read(text: str, name: str = "") -> list[Imported]:
    """Read the sessions in a file's text; `name` is the file's, and helps to name them.

    The kind is detected by content: Claude Code, Codex, pi, gemini-cli, opencode, SWE-agent, OpenAI
    or Anthropic messages, or our own log. A broken line is skipped and noted; raises `WireError` if
    nothing can be read.
    """
    notes = Notes()
    found = parse_records(text, notes)
    source = _choose_source(found, name)
    return source.read_sessions(found, name, notes)


def _choose_source(found: Sequence[Record], name: str) -> Source:
    """Choose the source that most records look like."""
    votes = [sum(source.can_read(record.body) for record in found) for source in SOURCES]
    most = max(votes)
    if not most:
        place = found[0].place or "line 1" if found else "line 1"
        known = ", ".join(source.KIND for source in SOURCES)
        raise WireError(
            f"{place} of {stem_of(name) or 'the file'} is no record of {known}", path=place
        )
    named = [source for part, source in _NAMES if part in name]
    likely = [source for source, count in zip(SOURCES, votes, strict=True) if count == most]
    return next((source for source in named if source in likely), likely[0])
