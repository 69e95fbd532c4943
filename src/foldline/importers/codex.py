"""Reads Codex's rollout files, one JSON record per line.

Records hold items of the Responses dialect, and some only repeat them for the screen. An answer is
all that the model said until a result, a message or a token count.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from foldline.core.log import Checkpointed, Linked, ModelSaid, ToolReturned, UsageReported, UserSaid
from foldline.core.parts import Call, Gap, Media, Native, Part, Text, Thought, text_of
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
    truncate_label,
)

KIND = "codex"
DIALECT = "openai-responses"
_RECORDS = {"session_meta", "response_item", "event_msg", "turn_context", "compacted"}
_ITEMS = {"reasoning", "function_call", "function_call_output", "local_shell_call"}
_COPIES = {
    *("user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content"),
    *("task_started", "task_complete", "turn_started", "turn_complete", "context_compacted"),
    *("agent_reasoning_section_break", "exec_command_begin", "exec_command_end"),
}
"""Records that repeat an item, or only mark progress."""
_CLIENT = (
    *("# AGENTS.md instructions", "<user_instructions>", "<environment_context>"),
    *("<turn_aborted>", "<user_shell_command>", "<skill>", "<subagent_notification>"),
)
"""Beginnings of messages that the client wrote in the user's role."""


def can_read(body: Json) -> bool:
    """Whether a record is Codex's, also an old one without a payload."""
    kind = str_of(body.get("type"))
    return (kind in _RECORDS and isinstance(body.get("payload"), dict)) or (
        kind in _ITEMS and "payload" not in body
    )


def read_sessions(records: Sequence[Record], name: str, notes: Notes) -> list[Imported]:
    """Read the one session of a file."""
    session = _CodexSession(notes)
    for place, body in records:
        session.taking.now = parse_timestamp(body.get("timestamp")) or session.taking.now
        session.add_record(body, place)
    return [session.finish_session(stem_of(name) or KIND)]


class _CodexSession:
    """A session's draft, and the answer that is not yet complete."""

    def __init__(self, notes: Notes) -> None:
        self.taking = Taking(KIND, notes)
        self.notes = notes
        self.name = ""
        self.provider = ""
        self.items: list[Json] = []
        self.begun = ""
        self.counted: Json = {}

    def add_record(self, body: Json, place: str) -> None:
        payload = dict_of(body.get("payload"))
        match body.get("type"):
            case "session_meta":
                self._handle_session_meta(payload)
            case "turn_context":
                self._switch_model(str_of(payload.get("model")))
                self.taking.record_thinking_level(str_of(payload.get("effort")))
            case "response_item":
                self._add_item(payload, place)
            case "event_msg":
                self._handle_event(payload, place)
            case "compacted":
                self._add_compaction(payload, place)
            case str() if "payload" not in body:
                self._add_item(body, place)
            case kind:
                self.notes.add_note(f"record {str_of(kind) or 'without a type'}", place)

    def finish_session(self, name: str) -> Imported:
        self._close_answer()
        return self.taking.finish_session(self.name or name)

    def _handle_session_meta(self, payload: Json) -> None:
        if self.name:
            self.notes.add_note("session_meta of the session it was forked from")
            return
        self.name, self.provider = str_of(payload.get("id")), str_of(payload.get("model_provider"))
        text = str_of(dict_of(payload.get("base_instructions")).get("text"))
        self.taking.add_instructions([Text(text or str_of(payload.get("instructions")))])
        for key in ("forked_from_id", "parent_thread_id"):
            if origin := str_of(payload.get(key)):
                self.taking.add_event(Linked(origin))

    def _switch_model(self, model: str) -> None:
        self._close_answer()
        maker = self.provider or "openai"
        self.taking.answered_by(f"{maker}/{model}" if model else "")

    def _add_item(self, item: Json, place: str) -> None:
        match item.get("type"):
            case "message" if item.get("role") != "assistant":
                self._close_answer()
                self._add_message(item, place)
            case "function_call_output" | "custom_tool_call_output":
                self._close_answer()
                self._add_tool_result(item, place)
            case "ghost_snapshot":
                # Not part of an answer: one that is under way goes on behind it.
                kept = {key: value for key, value in item.items() if key != "type"}
                body = msgspec.json.encode(kept).decode()
                self.taking.add_event(Checkpointed("ghost_snapshot", body), place)
            case "compaction_trigger":
                self.notes.add_note("item compaction_trigger", place)
            case str():
                self.begun = self.begun or place
                self.items.append(item)
            case _:
                self.notes.add_note("item without a type", place)

    def _add_message(self, item: Json, place: str) -> None:
        parts, whole = _parse_content(item.get("content"), self.notes, place)
        match item.get("role"):
            case "developer" | "system":
                self.taking.add_instructions(parts)
            case "user":
                texts = [part.text.lstrip() for part in parts if isinstance(part, Text)]
                client = bool(texts) and all(text.startswith(_CLIENT) for text in texts)
                self.taking.add_event(
                    UserSaid(
                        parts,
                        speaker="notice" if client else "human",
                        native=None if whole else _encode_native([item]),
                    ),
                    place,
                )
            case role:
                self.notes.add_note(f"message of role {str_of(role) or 'none'}", place)

    def _add_tool_result(self, item: Json, place: str) -> None:
        output: Any = item.get("output")
        ok = True
        if isinstance(output, dict):
            ok, output = dict_of(output).get("success") is not False, dict_of(output).get("content")
        parts, whole = _parse_content(output, self.notes, place)
        native = None if whole else _encode_native([item])
        call_id = str_of(item.get("call_id"))
        self.taking.add_event(ToolReturned(call_id, parts, ok=ok, native=native), place)

    def _handle_event(self, payload: Json, place: str) -> None:
        match str_of(payload.get("type")):
            case "token_count":
                self._record_usage(dict_of(payload.get("info")))
            case "turn_aborted":
                self._close_answer(aborted=True)
            case kind if kind not in _COPIES:
                self.notes.add_note(f"event_msg {kind or 'without a type'}", place)
            case _:
                pass

    def _record_usage(self, counts: Json) -> None:
        """Record the last answer's usage; a repeated count is ignored."""
        self._close_answer()
        total, last = (
            dict_of(counts.get("total_token_usage")),
            dict_of(counts.get("last_token_usage")),
        )
        if not last or (total and total == self.counted):
            return
        self.counted = total
        self.taking.record_usage(
            UsageReported(
                input=parse_count(last.get("input_tokens")),
                cache_read=parse_count(last.get("cached_input_tokens")),
                cache_write=parse_count(last.get("cache_write_input_tokens")),
                output=parse_count(last.get("output_tokens")),
                reasoning=parse_count(last.get("reasoning_output_tokens")),
            )
        )

    def _add_compaction(self, payload: Json, place: str) -> None:
        self._close_answer()
        instead = [
            text_of(_parse_content(item.get("content"), self.notes, place)[0])
            for item in map(dict_of, list_of(payload.get("replacement_history")))
            if item.get("type") == "message"
        ]
        summary = "\n\n".join(instead) or str_of(payload.get("message"))
        self.taking.add_event(Checkpointed("compaction", summary), place)
        if payload.get("replacement_history"):
            self.notes.add_note("history that a compaction put in place of the old", place)

    def _close_answer(self, *, aborted: bool = False) -> None:
        """Add the pending answer to the draft, if there is one."""
        items, place = self.items, self.begun
        self.items, self.begun = [], ""
        if not items:
            return
        parts: list[Part] = []
        whole = True
        for item in items:
            said = self._parse_answer_item(item, place)
            whole = whole and said is not None
            name = f"{str_of(item.get('type'))} {str_of(item.get('name'))}"
            parts += [Gap(f"[{truncate_label(name)}]")] if said is None else said
        self.taking.add_event(
            ModelSaid(
                tuple(parts),
                stop="cancelled" if aborted else "done",
                native=None if whole else _encode_native(items),
            ),
            place,
        )

    def _parse_answer_item(self, item: Json, place: str) -> list[Part] | None:
        """Parse one item of an answer; None if it has no neutral form."""
        call_id = str_of(item.get("call_id")) or str_of(item.get("id"))
        name = str_of(item.get("name"))
        match item.get("type"):
            case "message":
                if item.get("phase"):
                    self.notes.add_note("phase of an answer", place)
                return [*_parse_content(item.get("content"), self.notes, place)[0]]
            case "reasoning":
                pieces = map(dict_of, list_of(item.get("summary")) or list_of(item.get("content")))
                text = "\n".join(str_of(one.get("text")) for one in pieces)
                return [Thought(text, str_of(item.get("encrypted_content")))]
            case "function_call":
                return [Call(call_id, name, str_of(item.get("arguments")) or "{}")]
            case "custom_tool_call":
                return [Call(call_id, name, str_of(item.get("input")))]
            case "local_shell_call":
                action = msgspec.json.encode(dict_of(item.get("action"))).decode()
                return [Call(call_id, "local_shell", action)]
            case kind:
                self.notes.add_note(f"item {str_of(kind)}", place)
                return None


def _parse_content(content: Any, notes: Notes, place: str) -> tuple[tuple[Part, ...], bool]:
    """Parse the parts of a message or an output, and whether they lose nothing."""
    if isinstance(content, str):
        return (Text(content),), True
    parts: list[Part] = []
    whole = True
    for block in map(dict_of, list_of(content)):
        kind = str_of(block.get("type"))
        url = str_of(block.get("image_url"))
        if isinstance(block.get("text"), str):
            parts.append(Text(block["text"]))
        elif isinstance(block.get("refusal"), str):
            parts.append(Text(block["refusal"]))
        elif url:
            mime, found, data = url.removeprefix("data:").partition(";base64,")
            inside = bool(found) and url.startswith("data:")
            parts.append(
                Media("image", mime=mime, base64=data) if inside else Media("image", url=url)
            )
        else:
            notes.add_note(f"block {kind or 'without a type'}", place)
            parts.append(Gap(f"[{truncate_label(kind) or 'unreadable block'}]"))
            whole = False
    return tuple(parts), whole


def _encode_native(items: list[Json]) -> Native:
    return Native(DIALECT, msgspec.json.encode(items).decode())
