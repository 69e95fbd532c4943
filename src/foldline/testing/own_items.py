"""Events as a provider's own JSON gives them: with ids, sealed reasoning and items of its own.

A log by hand has only what is neutral. What comes from a real provider has more beside it, which
goes back as it came while it can. Here the words of an event are written in a dialect's own form,
with what only that form has, and read again.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from foldline.core.item import Item
from foldline.core.log import ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Call, Part, Text, Thought, text_of
from foldline.dialects.base import GEMINI, Dialect
from foldline.dialects.gemini import parse_message as parse_content
from foldline.dialects.gemini.content_parts import encode_parts
from foldline.dialects.gemini_interactions import DIALECT as INTERACTIONS
from foldline.dialects.gemini_interactions.messages import parse_turn as parse_steps
from foldline.dialects.gemini_interactions.steps import encode_turn
from foldline.dialects.openai_responses import parse_items
from foldline.dialects.openai_responses.write import DIALECT as RESPONSES
from foldline.dialects.openai_responses.write import write_items
from foldline.dialects.tools import wrap_arguments

Said: TypeAlias = UserSaid | ModelSaid | ToolReturned
S = TypeVar("S", bound=Said)
Json: TypeAlias = dict[str, Any]
_SEARCH: Json = {"type": "web_search_call", "status": "completed", "action": {"type": "search"}}


def give_own_items(dialect: Dialect, event: S, *, place: int, a: int, b: int) -> S:
    """Return an event as it would come in a dialect; two small numbers choose what is beside it."""
    write = _OWN.get(dialect.name)
    return event if write is None else cast("S", write(event, place, a, b))


def _write_response_items(event: Said, place: int, a: int, b: int) -> Said:
    if (a + b) % 4 == 3:
        return event  # as a client writes it itself: without ids
    match event:
        case UserSaid():
            if event.author or event.speaker != "human":
                return event  # what a session says of them is in no client's item
            own = _add_fields(Item(0, "user", event.parts, 0), {"type": "message"}, a)
        case ToolReturned():
            own = _add_fields(Item(0, "result", event.parts, 0, call_id=event.call_id), {}, a)
        case ModelSaid():
            read = parse_items([*_write_turn(event, place, a, b)], saw=event.saw)
            answer = read[0] if len(read) == 1 else event
            return answer if isinstance(answer, ModelSaid) else event
    read = parse_items(own)
    native = getattr(read[0], "native", None) if len(read) == 1 else None
    return msgspec.structs.replace(event, native=native)


def _add_fields(item: Item, fields: Mapping[str, Any], a: int) -> list[Json]:
    status: Json = {"status": "completed"} if a % 2 else {}
    return [{**written, **fields, **status} for written in write_items(item)]


def _write_turn(event: ModelSaid, place: int, a: int, b: int) -> list[Json]:
    """Write an answer as the items of a response."""
    # An id comes again where a client sends a turn twice.
    name = "again" if a == b else str(place)
    items: list[Json] = []
    for number, part in enumerate(event.parts):
        items += _write_part(part, f"{name}_{number}", a, b)
    if a % 6 == 5:
        items.insert(0, {**_SEARCH, "id": f"ws_{name}"})
    if (a, b) == (7, 7):
        items.append({"type": "compaction", "id": f"cmp_{name}", "encrypted_content": "sealed"})
    return items or [{**_SEARCH, "id": f"ws_{name}"}]


def _write_part(part: Part, name: str, a: int, b: int) -> list[Json]:
    match part:
        case Thought():
            summary = [{"type": "summary_text", "text": part.text}]
            sealed: Json = {"encrypted_content": part.signature}
            return [{"type": "reasoning", "id": f"rs_{name}", "summary": summary, **sealed}]
        case Call():
            said: Json = {"call_id": part.id, "name": part.name}
            if b % 5 == 4:
                return [{"type": "custom_tool_call", "id": f"ctc_{name}", **said, "input": "x"}]
            own: Json = {"id": f"fc_{name}", "status": "completed"}
            return [{"type": "function_call", **own, **said, "arguments": part.arguments}]
        case Text():
            content: list[Json] = [{"type": "output_text", "text": part.text, "annotations": []}]
            phase: Json = {"phase": "commentary"} if a % 3 else {}
            fields: Json = {"id": f"msg_{name}", "status": "completed", **phase}
            return [{"type": "message", **fields, "role": "assistant", "content": content}]
        case _:
            return write_items(Item(0, "model", (part,), 0))


def _write_contents(event: Said, _place: int, a: int, b: int) -> Said:
    """Write an event as a content of Gemini's: signed, with parts that only it has."""
    if (a + b) % 4 == 3:
        return event  # as a client writes it itself: without signatures
    match event:
        case UserSaid():
            if event.author or event.speaker != "human":
                return event
            parts = encode_parts(event.parts)
            parts = [{**one, "partMetadata": {"a_b": a}} for one in parts] if a % 3 == 1 else parts
        case ToolReturned():
            words = text_of(event.parts)
            said: Json = {"output": words} if event.ok else {"error": words or "failed"}
            said = {"result": words, "exitCode": int(not event.ok)} if a % 3 == 1 else said
            response: Json = {"id": event.call_id, "name": "run" if b % 2 else "read"}
            parts = [{"functionResponse": {**response, "response": said}}]
        case ModelSaid():
            signed: Json = {"role": "model", "parts": _write_signed_parts(event, a, b)}
            read = parse_content(signed, saw=event.saw)
            answer = read[0] if len(read) == 1 else event
            return answer if isinstance(answer, ModelSaid) else event
    read = parse_content({"role": "user", "parts": parts})
    native = getattr(read[0], "native", None) if len(read) == 1 else None
    return msgspec.structs.replace(event, native=native)


def _write_signed_parts(event: ModelSaid, a: int, b: int) -> list[Json]:
    parts: list[Json] = []
    signature: Json = {"thoughtSignature": f"c2lnbmVk{chr(65 + a % 26)}A=="}
    is_signed = b % 5 == 4
    for part in event.parts:
        match part:
            case Thought():
                parts.append({"text": part.text, "thought": True})
            case Call():
                call: Json = {"id": part.id, "name": part.name}
                call["args"] = wrap_arguments(part.arguments)
                parts.append({"functionCall": call, **({} if is_signed else signature)})
                is_signed = True
            case Text():
                parts.append({"text": part.text, **(signature if a % 5 == 1 else {})})
            case _:
                parts += encode_parts((part,))
    if not parts or a % 6 == 5:
        parts.insert(0, {"executableCode": {"language": "PYTHON", "code": "1"}})
    if not is_signed and b % 3 == 1:
        parts.append({"text": "", **signature})
    return parts


def _write_own_steps(event: Said, place: int, a: int, b: int) -> Said:
    """Write an event as steps of an interaction, with thoughts and Google's own tools."""
    if (a + b) % 4 == 3 or not isinstance(event, ModelSaid):
        return event
    name = "again" if a == b else str(place)
    steps: list[Json] = []
    for part in event.parts:
        if isinstance(part, Thought):
            summary = [{"type": "text", "text": part.text}] if part.text else []
            steps.append({"type": "thought", "signature": "c2lnbmVk", "summary": summary})
        else:
            steps += encode_turn((part,))
    if not steps or a % 6 == 5:
        found: Json = {"id": f"s_{name}", "arguments": {"queries": ["x"]}}
        steps.insert(0, {"type": "google_search_call", **found})
    read = parse_steps(steps, saw=event.saw)
    answer = read[0] if len(read) == 1 else event
    return answer if isinstance(answer, ModelSaid) else event


_OWN: dict[str, Callable[[Said, int, int, int], Said]] = {
    RESPONSES: _write_response_items,
    GEMINI: _write_contents,
    INTERACTIONS: _write_own_steps,
}
