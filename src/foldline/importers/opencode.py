"""Reads sessions of opencode, as `opencode export` writes them and its database holds them.

A session is one object: `info`, and `messages`, each with `info` and `parts`. An answer ends at the
part `step-finish`, which has its counts. The system prompt and the tools are not in it.
"""

from collections.abc import Sequence

import msgspec

from foldline.core.log import (
    Checkpointed,
    Linked,
    ModelSaid,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Call, Gap, Media, Part, Text, Thought
from foldline.dialects.json_slices import Json, dict_of, list_of
from foldline.importers.draft_log import Taking, make_usage
from foldline.importers.source import (
    Imported,
    Notes,
    Record,
    parse_count,
    stem_of,
    str_of,
    sum_counts,
    truncate_label,
)

KIND = "opencode"
_APART = {"step-start", "snapshot", "patch", "compaction", "agent", "subtask", "retry"}
"""Parts of which the model sees nothing, or nothing else than another part says."""


def can_read(body: Json) -> bool:
    """Whether an object is a session of opencode."""
    listed = list_of(body.get("messages"))
    return "id" in dict_of(body.get("info")) and all("parts" in dict_of(one) for one in listed)


def read_sessions(records: Sequence[Record], name: str, notes: Notes) -> list[Imported]:
    """Read one session per object."""
    found: list[Imported] = []
    for place, body in records:
        if not can_read(body):
            notes.add_note("record that is no session", place)
            continue
        about = dict_of(body.get("info"))
        session = _OpencodeSession(notes)
        if parent := str_of(about.get("parentID")):
            session.taking.add_event(Linked(parent))
        for index, message in enumerate(map(dict_of, list_of(body.get("messages")))):
            session.add_message(message, f"{place} messages[{index}]".strip())
        own = str_of(about.get("id")) or stem_of(name) or KIND
        found.append(session.taking.finish_session(own))
        notes = Notes()  # notes of broken lines belong to the first session only
    return found


class _OpencodeSession:
    """A session's draft, and the answer that is not yet complete."""

    def __init__(self, notes: Notes) -> None:
        self.taking = Taking(KIND, notes)
        self.notes = notes
        self.parts: list[Part] = []
        self.results: list[tuple[str, Json]] = []

    def add_message(self, message: Json, place: str) -> None:
        about = dict_of(message.get("info"))
        parts = [dict_of(one) for one in list_of(message.get("parts"))]
        self._set_time(dict_of(about.get("time")).get("created"))
        match about.get("role"):
            case "user":
                self._add_user_message(parts, place)
            case "assistant" if about.get("summary") is True:
                said = "\n".join(str_of(one.get("text")) for one in parts if one.get("text"))
                self.taking.add_event(Checkpointed("compaction", said), place)
            case "assistant":
                model = str_of(about.get("modelID"))
                maker = str_of(about.get("providerID"))
                self.taking.answered_by(f"{maker}/{model}".strip("/") if model else "")
                self._add_answers(parts, about, place)
            case role:
                self.notes.add_note(f"message of role {str_of(role) or 'none'}", place)

    def _set_time(self, milliseconds: object) -> None:
        if stamp := parse_count(milliseconds):
            self.taking.now = stamp / 1_000

    def _add_user_message(self, parts: Sequence[Json], place: str) -> None:
        said = [one for one in (self._parse_part(part, place) for part in parts) if one]
        by_client = bool(parts) and all(part.get("synthetic") is True for part in parts)
        speaker = "notice" if by_client else "human"
        self.taking.add_event(UserSaid(tuple(said), speaker=speaker), place)

    def _add_answers(self, parts: Sequence[Json], about: Json, place: str) -> None:
        """Add a message's answers: one per step, each followed by the results of its calls."""
        self._set_time(dict_of(about.get("time")).get("completed"))
        for part in parts:
            if part.get("type") == "step-finish":
                self._close_answer(part, place)
            elif part.get("type") == "tool":
                self._add_call(part)
            elif said := self._parse_part(part, place):
                self.parts.append(said)
        if self.parts:  # broken off before its end
            self._close_answer(about, place)

    def _add_call(self, part: Json) -> None:
        call_id, state = str_of(part.get("callID")), dict_of(part.get("state"))
        arguments = msgspec.json.encode(state.get("input", {})).decode()
        self.parts.append(Call(call_id, str_of(part.get("tool")), arguments))
        self.results.append((call_id, state))

    def _close_answer(self, counted: Json, place: str) -> None:
        parts, results = self.parts, self.results
        self.parts, self.results = [], []
        stop = "cancelled" if counted.get("error") else "done"
        self.taking.add_event(ModelSaid(tuple(parts), stop=stop), place)
        self.taking.record_usage(_parse_usage(dict_of(counted.get("tokens"))))
        for call_id, state in results:
            if state.get("status") not in ("completed", "error"):
                continue  # it has no result
            ok = state.get("status") == "completed"
            text = str_of(state.get("output" if ok else "error"))
            self.taking.add_event(ToolReturned(call_id, (Text(text),), ok=ok), place)
            if state.get("attachments"):
                self.notes.add_note("attachment of a result", place)

    def _parse_part(self, part: Json, place: str) -> Part | None:
        """Parse a part that is no call; None if the model sees nothing of it."""
        match str_of(part.get("type")):
            case "text":
                text = str_of(part.get("text"))
                return Text(text) if text and part.get("ignored") is not True else None
            case "reasoning":
                return Thought(str_of(part.get("text")))
            case "file":
                return _parse_file(part)
            case kind if kind in _APART:
                return None
            case kind:
                self.notes.add_note(f"part {kind or 'without a type'}", place)
                return Gap(f"[{truncate_label(kind) or 'unreadable part'}]")


def _parse_file(part: Json) -> Part:
    mime, url = str_of(part.get("mime")), str_of(part.get("url"))
    form = "image" if mime.startswith("image/") else "file"
    name = str_of(part.get("filename"))
    if url.startswith("data:"):
        return Media(form, mime=mime, base64=url.partition(";base64,")[2], name=name)
    return Media(form, mime=mime, url=url, name=name) if url else Gap(f"[{form}]")


def _parse_usage(counts: Json) -> UsageReported | None:
    """Parse the counts of a call: its input excludes the cache, its output the reasoning."""
    cache = dict_of(counts.get("cache"))
    reasoning = parse_count(counts.get("reasoning"))
    found = make_usage(
        fresh=counts.get("input"),
        read=cache.get("read"),
        write=cache.get("write"),
        output=sum_counts(parse_count(counts.get("output")), reasoning),
    )
    return found and msgspec.structs.replace(found, reasoning=reasoning)
