"""SWE-agent's runs: `history`, what was said, and `trajectory`, what was done.

Knows how a step of one becomes a call of a shell and its result. Refuses to know shells. A run
that has no trajectory is read from its history, where calls may or may not be recorded.
"""

from collections.abc import Sequence

import msgspec

from foldline.core.log import ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Call, Part, Text
from foldline.importers.base import Imported, Json, Notes, Record, rows, table, words
from foldline.importers.draft_log import Taking
from foldline.importers.openai_messages import take, title

KIND = "swe-agent"
TOOL = "bash"


def claims(body: Json) -> bool:
    """Whether an object is a run."""
    return isinstance(body.get("trajectory"), list)


def read(records: Sequence[Record], name: str, notes: Notes) -> list[Imported]:
    """One session for each run."""
    found: list[Imported] = []
    for number, (place, body) in enumerate(records):
        if not claims(body):
            notes.take("record that is no run", place)
            continue
        taking = Taking(KIND, notes)
        history = [table(one) for one in rows(body.get("history"))]
        steps = [table(one) for one in rows(body.get("trajectory"))]
        told = [one for one in history if not one.get("is_demo")]
        notes.take("demonstration in the history", place, times=len(history) - len(told))
        start = next((i for i, m in enumerate(told) if m.get("role") == "assistant"), len(told))
        for index, message in enumerate(told[:start] if steps else told):
            _say(taking, message, f"{place} history[{index}]".strip())
        if steps:
            notes.take("history beside the trajectory", place, times=len(told) - start)
        for index, step in enumerate(steps):
            _do(taking, step, index, f"{place} trajectory[{index}]".strip())
        if table(table(body.get("info")).get("model_stats")):
            notes.take("usage of the whole run", place)
        found.append(taking.done(title(body, name, number, alone=len(records) == 1)))
        notes = Notes()  # what the lines above lost is told once
    return found


def _say(taking: Taking, message: Json, place: str) -> None:
    """A message of the history; an observation whose call was not recorded is a notice."""
    ids = rows(message.get("tool_call_ids"))
    given = {key: message[key] for key in ("role", "content", "tool_calls") if key in message}
    if message.get("role") != "tool":
        take(taking, given, place)
    elif ids:
        take(taking, {**given, "tool_call_id": words(ids[0])}, place)
    else:
        taking.notes.take("observation without a call", place)
        said = Text(words(message.get("content")))
        taking.add(UserSaid((said,), speaker="notice", author="tool"), place)


def _do(taking: Taking, step: Json, index: int, place: str) -> None:
    """A step: what the model thought and did, and what came of it."""
    thought, action = words(step.get("thought")), words(step.get("action"))
    said: list[Part] = [Text(thought)] if thought else []
    call_id = f"step_{index}"
    if action:
        said.append(Call(call_id, TOOL, msgspec.json.encode({"command": action}).decode()))
    elif not thought:
        said.append(Text(words(step.get("response"))))
    taking.add(ModelSaid(tuple(said)), place)
    observed = Text(words(step.get("observation")))
    if action:
        taking.add(ToolReturned(call_id, (observed,)), place)
    elif observed.text:
        taking.add(UserSaid((observed,), speaker="notice", author="environment"), place)
