"""Reads SWE-agent's runs: `history`, what was said, and `trajectory`, what was done.

A step becomes a shell call and its result. A run without steps is read from its history, where
calls may or may not be recorded.
"""

from collections.abc import Sequence

import msgspec

from foldline.core.log import ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Call, Part, Text
from foldline.dialects.json_slices import Json, dict_of, list_of
from foldline.importers.draft_log import Taking
from foldline.importers.openai_messages import add_chat_message, choose_import_name
from foldline.importers.source import Imported, Notes, Record, str_of

KIND = "swe-agent"
TOOL = "bash"


def can_read(body: Json) -> bool:
    """Whether an object is a run of SWE-agent."""
    return isinstance(body.get("trajectory"), list)


def read_sessions(records: Sequence[Record], name: str, notes: Notes) -> list[Imported]:
    """Read one session per run."""
    found: list[Imported] = []
    for number, (place, body) in enumerate(records):
        if not can_read(body):
            notes.add_note("record that is no run", place)
            continue
        taking = Taking(KIND, notes)
        history = [dict_of(one) for one in list_of(body.get("history"))]
        steps = [dict_of(one) for one in list_of(body.get("trajectory"))]
        spoken = [one for one in history if not one.get("is_demo")]
        notes.add_note("demonstration in the history", place, times=len(history) - len(spoken))
        start = next((i for i, m in enumerate(spoken) if m.get("role") == "assistant"), len(spoken))
        for index, message in enumerate(spoken[:start] if steps else spoken):
            _add_history_message(taking, message, f"{place} history[{index}]".strip())
        if steps:
            notes.add_note("history beside the trajectory", place, times=len(spoken) - start)
        for index, step in enumerate(steps):
            _add_step(taking, step, index, f"{place} trajectory[{index}]".strip())
        if dict_of(dict_of(body.get("info")).get("model_stats")):
            notes.add_note("usage of the whole run", place)
        found.append(
            taking.finish_session(choose_import_name(body, name, number, alone=len(records) == 1))
        )
        notes = Notes()  # notes of broken lines belong to the first session only
    return found


def _add_history_message(taking: Taking, message: Json, place: str) -> None:
    """Add a message; an observation whose call was not recorded becomes a notice."""
    ids = list_of(message.get("tool_call_ids"))
    given = {key: message[key] for key in ("role", "content", "tool_calls") if key in message}
    if message.get("role") != "tool":
        add_chat_message(taking, given, place)
    elif ids:
        add_chat_message(taking, {**given, "tool_call_id": str_of(ids[0])}, place)
    else:
        taking.notes.add_note("observation without a call", place)
        said = Text(str_of(message.get("content")))
        taking.add_event(UserSaid((said,), speaker="notice", author="tool"), place)


def _add_step(taking: Taking, step: Json, index: int, place: str) -> None:
    """Add a step: the model's thought and action, then the observation."""
    thought, action = str_of(step.get("thought")), str_of(step.get("action"))
    said: list[Part] = [Text(thought)] if thought else []
    call_id = f"step_{index}"
    if action:
        said.append(Call(call_id, TOOL, msgspec.json.encode({"command": action}).decode()))
    elif not thought:
        said.append(Text(str_of(step.get("response"))))
    taking.add_event(ModelSaid(tuple(said)), place)
    observed = Text(str_of(step.get("observation")))
    if action:
        taking.add_event(ToolReturned(call_id, (observed,)), place)
    elif observed.text:
        taking.add_event(UserSaid((observed,), speaker="notice", author="environment"), place)
