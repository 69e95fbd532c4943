"""Reads sessions of gemini-cli, one JSON record per line, or one object in older versions.

A record with an `id` is a message, and may be written again when its calls are known; `$set`
changes what stands above, and `$rewindTo` takes messages back. One answer may be spread over
several records, of which one has the counts. The system prompt and the tools are not in these
files.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from foldline.core.log import Checkpointed, ModelSaid, ToolReturned, UsageReported, UserSaid
from foldline.core.parts import Call, Gap, Media, Part, Text, Thought
from foldline.dialects.json_slices import Json, dict_of, list_of
from foldline.importers.draft_log import Taking
from foldline.importers.source import (
    Imported,
    Notes,
    Record,
    parse_count,
    parse_timestamp,
    stem_of,
    str_of,
    sum_counts,
    truncate_label,
)

KIND = "gemini-cli"
_TYPES = {"user", "gemini", "info", "error", "warning"}
_CLIENT = "<session_context>"
"""How a message begins that the client wrote in the user's role."""
_SNAPSHOT = "<state_snapshot>"
"""How the message begins that a compressed history opens with."""


def can_read(body: Json) -> bool:
    """Whether a record is gemini-cli's."""
    if "projectHash" in body:
        return "sessionId" in body
    is_message = isinstance(body.get("id"), str) and str_of(body.get("type")) in _TYPES
    return is_message or "$set" in body or "$rewindTo" in body


def read_sessions(records: Sequence[Record], name: str, notes: Notes) -> list[Imported]:
    """Read the one session of a file."""
    own, messages = _list_messages(records, notes)
    session = _GeminiSession(notes)
    for place, body in messages:
        session.add_record(body, place)
    return [session.finish_session(own or stem_of(name) or KIND)]


def _list_messages(records: Sequence[Record], notes: Notes) -> tuple[str, list[Record]]:
    """List the messages that were not taken back, and the session's name."""
    own = ""
    found: list[Record] = []
    for place, body in records:
        if back := str_of(body.get("$rewindTo")):
            at = next((at for at, one in enumerate(found) if one.body.get("id") == back), 0)
            notes.add_note("record of an abandoned branch", place, times=len(found) - at)
            del found[at:]
        elif "id" in body:
            found.append(Record(place, body))
        else:
            about = dict_of(body.get("$set")) or body
            own = own or str_of(about.get("sessionId"))
            known = {str_of(one.body.get("id")) for one in found}
            listed = map(dict_of, list_of(about.get("messages")))
            new = [Record(place, one) for one in listed if str_of(one.get("id")) not in known]
            # Resumed, it writes the history once more; compressed, it writes another.
            notes.add_note("message of a history written anew", place, times=len(known and new))
            found += new
    return own, found


class _GeminiSession:
    """A session's draft, and the answer that is not yet complete."""

    def __init__(self, notes: Notes) -> None:
        self.taking = Taking(KIND, notes)
        self.notes = notes
        self.seen: set[str] = set()
        self.parts: list[Part] = []
        self.usage: UsageReported | None = None
        self.begun = ""
        self.open: dict[str, Any] = {}
        """Calls without a result yet, with what their own record says of it."""
        self.answered: set[str] = set()

    def add_record(self, body: Json, place: str) -> None:
        self.taking.now = parse_timestamp(body.get("timestamp")) or self.taking.now
        own = str_of(body.get("id"))
        is_new, kind = own not in self.seen, body.get("type")
        self.seen.add(own)
        if kind == "gemini":
            self._add_answer(body, place, is_new=is_new)
        elif kind == "user" and is_new:
            self._add_user_message(body.get("content"), place)
        elif kind != "user":
            self.notes.add_note(f"record {str_of(kind) or 'without a type'}", place)

    def finish_session(self, name: str) -> Imported:
        self._close_answer()
        self._close_calls()
        return self.taking.finish_session(name)

    def _add_answer(self, body: Json, place: str, *, is_new: bool) -> None:
        counts = dict_of(body.get("tokens"))
        if is_new and counts:
            self._close_answer()
            self._close_calls()
            self.usage = _parse_usage(counts)
        if is_new:
            model = str_of(body.get("model"))
            self.taking.answered_by(f"google/{model}" if model.startswith("gemini") else model)
            thoughts = map(dict_of, list_of(body.get("thoughts")))
            self.parts += [Thought(_render_thought(one)) for one in thoughts]
            self.parts += self._parse_blocks(_list_blocks(body.get("content")), place)
        for call in map(dict_of, list_of(body.get("toolCalls"))):
            own = str_of(call.get("id"))
            if own in self.seen:
                continue
            self.seen.add(own)
            arguments = msgspec.json.encode(call.get("args", {})).decode()
            self.parts.append(Call(own, str_of(call.get("name")), arguments))
            self.open[own] = call.get("result")
        self.begun = self.begun or place

    def _add_user_message(self, content: Any, place: str) -> None:
        self._close_answer()
        said: list[Json] = []
        for block in _list_blocks(content):
            if answer := dict_of(block.get("functionResponse")):
                self._add_result(str_of(answer.get("id")), answer, place)
            else:
                said.append(block)
        if not said:
            return
        self._close_calls()
        if (snapshot := str_of(said[0].get("text"))).startswith(_SNAPSHOT):
            self.taking.add_event(Checkpointed("compaction", snapshot), place)
            return
        client = snapshot.startswith(_CLIENT)
        parts = tuple(self._parse_blocks(said, place))
        self.taking.add_event(UserSaid(parts, speaker="notice" if client else "human"), place)

    def _add_result(self, call_id: str, answer: Json, place: str) -> None:
        if call_id in self.answered:  # a resumed session repeats results
            return
        self.answered.add(call_id)
        self.open.pop(call_id, None)
        response = dict_of(answer.get("response"))
        output: Any = response.get("output", response.get("error", response))
        text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
        ok = "error" not in response
        self.taking.add_event(ToolReturned(call_id, (Text(text),), ok=ok), place)

    def _close_answer(self) -> None:
        """Add the pending answer to the draft, if there is one."""
        parts, usage, place = self.parts, self.usage, self.begun
        self.parts, self.usage, self.begun = [], None, ""
        if parts or usage:
            self.taking.add_event(ModelSaid(tuple(parts)), place)
            self.taking.record_usage(usage)

    def _close_calls(self) -> None:
        """Add the results that only the calls' own records hold."""
        for call_id, result in [*self.open.items()]:
            for block in _list_blocks(result):
                if answer := dict_of(block.get("functionResponse")):
                    self._add_result(call_id, answer, "")
        self.open.clear()

    def _parse_blocks(self, blocks: Sequence[Json], place: str) -> list[Part]:
        parts: list[Part] = []
        for block in blocks:
            data = dict_of(block.get("inlineData"))
            if isinstance(block.get("text"), str):
                text = block["text"]
                parts += [Thought(text) if block.get("thought") is True else Text(text)]
            elif data:
                mime = str_of(data.get("mimeType"))
                form = "image" if mime.startswith("image/") else "file"
                parts.append(Media(form, mime=mime, base64=str_of(data.get("data"))))
            else:
                kind = truncate_label(next(iter(block), "")) or "block without a type"
                self.notes.add_note(f"block {kind}", place)
                parts.append(Gap(f"[{kind}]"))
        return [part for part in parts if not isinstance(part, Text) or part.text]


def _list_blocks(content: Any) -> list[Json]:
    if isinstance(content, str):
        return [{"text": content}]
    return [{"text": one} if isinstance(one, str) else dict_of(one) for one in list_of(content)]


def _render_thought(thought: Json) -> str:
    said = (str_of(thought.get("subject")), str_of(thought.get("description")))
    return ": ".join(filter(None, said))


def _parse_usage(counts: Json) -> UsageReported:
    """Parse the counts of a call; thoughts are billed as output."""
    tokens = {name: parse_count(counts.get(name)) for name in (*counts,)}
    return UsageReported(
        input=sum_counts(tokens.get("input"), tokens.get("tool")),
        cache_read=tokens.get("cached"),
        output=sum_counts(tokens.get("output"), tokens.get("thoughts")),
        reasoning=tokens.get("thoughts"),
    )
