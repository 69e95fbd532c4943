"""Sessions of Codex: its rollout files, one JSON record a line.

Knows the records, the items of the Responses dialect that they hold, and which records only repeat
them for the screen. Refuses to know requests. An answer is what the model said until a result, a
message or a count came.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from foldline.core.log import (
    Checkpointed,
    Linked,
    ModelSaid,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Call, Gap, Media, Native, Part, Text, Thought
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
    words,
)
from foldline.importers.draft_log import Taking

KIND = "codex"
DIALECT = "openai-responses"
_RECORDS = {"session_meta", "response_item", "event_msg", "turn_context", "compacted"}
_ITEMS = {"reasoning", "function_call", "function_call_output", "local_shell_call"}
_COPIES = {
    *("user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content"),
    *("task_started", "task_complete", "turn_started", "turn_complete", "context_compacted"),
    *("agent_reasoning_section_break", "exec_command_begin", "exec_command_end"),
}
"""Records that repeat an item, or only say that time went by."""
_CLIENT = (
    *("# AGENTS.md instructions", "<user_instructions>", "<environment_context>"),
    *("<turn_aborted>", "<user_shell_command>", "<skill>", "<subagent_notification>"),
)
"""How messages begin that the client wrote in the user's role."""


def claims(body: Json) -> bool:
    """Whether a record is one of Codex's, also of the time before records had payloads."""
    kind = words(body.get("type"))
    return (kind in _RECORDS and isinstance(body.get("payload"), dict)) or (
        kind in _ITEMS and "payload" not in body
    )


def read(records: Sequence[Record], name: str, notes: Notes) -> list[Imported]:
    """The one session of a file."""
    session = _CodexSession(notes)
    for place, body in records:
        session.taking.now = seconds(body.get("timestamp")) or session.taking.now
        session.take(body, place)
    return [session.done(stem(name) or KIND)]


class _CodexSession:
    """One session in the making, and the answer that is not yet complete."""

    def __init__(self, notes: Notes) -> None:
        self.taking = Taking(KIND, notes)
        self.notes = notes
        self.name = ""
        self.provider = ""
        self.items: list[Json] = []
        self.begun = ""
        self.counted: Json = {}

    def take(self, body: Json, place: str) -> None:
        payload = table(body.get("payload"))
        match body.get("type"):
            case "session_meta":
                self._opened(payload)
            case "turn_context":
                self._switch(words(payload.get("model")))
                self.taking.thinks(words(payload.get("effort")))
            case "response_item":
                self._item(payload, place)
            case "event_msg":
                self._event(payload, place)
            case "compacted":
                self._compacted(payload, place)
            case str() if "payload" not in body:
                self._item(body, place)
            case kind:
                self.notes.take(f"record {words(kind) or 'without a type'}", place)

    def done(self, name: str) -> Imported:
        self._close()
        return self.taking.done(self.name or name)

    def _opened(self, payload: Json) -> None:
        if self.name:
            self.notes.take("session_meta of the session it was forked from")
            return
        self.name, self.provider = words(payload.get("id")), words(payload.get("model_provider"))
        told = words(table(payload.get("base_instructions")).get("text"))
        self.taking.instruct([Text(told or words(payload.get("instructions")))])
        for key in ("forked_from_id", "parent_thread_id"):
            if origin := words(payload.get(key)):
                self.taking.add(Linked(origin))

    def _switch(self, model: str) -> None:
        self._close()
        maker = self.provider or "openai"
        self.taking.answered_by(f"{maker}/{model}" if model else "")

    def _item(self, item: Json, place: str) -> None:
        match item.get("type"):
            case "message" if item.get("role") != "assistant":
                self._close()
                self._message(item, place)
            case "function_call_output" | "custom_tool_call_output":
                self._close()
                self._result(item, place)
            case "ghost_snapshot" | "compaction_trigger":
                self.notes.take(f"item {item['type']}", place)
            case str():
                self.begun = self.begun or place
                self.items.append(item)
            case _:
                self.notes.take("item without a type", place)

    def _message(self, item: Json, place: str) -> None:
        parts, whole = _contents(item.get("content"), self.notes, place)
        match item.get("role"):
            case "developer" | "system":
                self.taking.instruct(parts)
            case "user":
                texts = [part.text.lstrip() for part in parts if isinstance(part, Text)]
                client = bool(texts) and all(text.startswith(_CLIENT) for text in texts)
                self.taking.add(
                    UserSaid(
                        parts,
                        speaker="notice" if client else "human",
                        native=None if whole else _native([item]),
                    ),
                    place,
                )
            case role:
                self.notes.take(f"message of role {words(role) or 'none'}", place)

    def _result(self, item: Json, place: str) -> None:
        output: Any = item.get("output")
        ok = True
        if isinstance(output, dict):
            ok, output = table(output).get("success") is not False, table(output).get("content")
        parts, whole = _contents(output, self.notes, place)
        native = None if whole else _native([item])
        call_id = words(item.get("call_id"))
        self.taking.add(ToolReturned(call_id, parts, ok=ok, native=native), place)

    def _event(self, payload: Json, place: str) -> None:
        match words(payload.get("type")):
            case "token_count":
                self._counted(table(payload.get("info")))
            case "turn_aborted":
                self._close(aborted=True)
            case kind if kind not in _COPIES:
                self.notes.take(f"event_msg {kind or 'without a type'}", place)
            case _:
                pass

    def _counted(self, told: Json) -> None:
        """What the answer before cost; the same count may be told again, and is not another."""
        self._close()
        total, last = table(told.get("total_token_usage")), table(told.get("last_token_usage"))
        if not last or (total and total == self.counted):
            return
        self.counted = total
        self.taking.used(
            UsageReported(
                input=count(last.get("input_tokens")),
                cache_read=count(last.get("cached_input_tokens")),
                cache_write=count(last.get("cache_write_input_tokens")),
                output=count(last.get("output_tokens")),
                reasoning=count(last.get("reasoning_output_tokens")),
            )
        )

    def _compacted(self, payload: Json, place: str) -> None:
        self._close()
        self.taking.add(Checkpointed("compaction", words(payload.get("message"))), place)
        if payload.get("replacement_history"):
            self.notes.take("history that a compaction put in place of the old", place)

    def _close(self, *, aborted: bool = False) -> None:
        """Write down the answer, if one was begun."""
        items, place = self.items, self.begun
        self.items, self.begun = [], ""
        if not items:
            return
        parts: list[Part] = []
        whole = True
        for item in items:
            said = self._said(item, place)
            whole = whole and said is not None
            name = f"{words(item.get('type'))} {words(item.get('name'))}"
            parts += [Gap(f"[{brief(name)}]")] if said is None else said
        self.taking.add(
            ModelSaid(
                tuple(parts),
                stop="cancelled" if aborted else "done",
                native=None if whole else _native(items),
            ),
            place,
        )

    def _said(self, item: Json, place: str) -> list[Part] | None:
        """One item of an answer; None where it has no neutral form."""
        call_id = words(item.get("call_id")) or words(item.get("id"))
        name = words(item.get("name"))
        match item.get("type"):
            case "message":
                if item.get("phase"):
                    self.notes.take("phase of an answer", place)
                return [*_contents(item.get("content"), self.notes, place)[0]]
            case "reasoning":
                told = map(table, rows(item.get("summary")) or rows(item.get("content")))
                text = "\n".join(words(one.get("text")) for one in told)
                return [Thought(text, words(item.get("encrypted_content")))]
            case "function_call":
                return [Call(call_id, name, words(item.get("arguments")) or "{}")]
            case "custom_tool_call":
                return [Call(call_id, name, words(item.get("input")))]
            case "local_shell_call":
                action = msgspec.json.encode(table(item.get("action"))).decode()
                return [Call(call_id, "local_shell", action)]
            case kind:
                self.notes.take(f"item {words(kind)}", place)
                return None


def _contents(content: Any, notes: Notes, place: str) -> tuple[tuple[Part, ...], bool]:
    """The parts of a message or an output, and whether they say all of it."""
    if isinstance(content, str):
        return (Text(content),), True
    parts: list[Part] = []
    whole = True
    for block in map(table, rows(content)):
        kind = words(block.get("type"))
        url = words(block.get("image_url"))
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
            notes.take(f"block {kind or 'without a type'}", place)
            parts.append(Gap(f"[{brief(kind) or 'unreadable block'}]"))
            whole = False
    return tuple(parts), whole


def _native(items: list[Json]) -> Native:
    """The items of one event in their own JSON."""
    return Native(DIALECT, msgspec.json.encode(items).decode())
