"""Parses steps, tools and interactions into events.

The steps of a model's turn become one event. Where the neutral form would not be written as it
came, the steps are kept beside the event: thoughts with their signatures, Google's own tools. Those
that Google would refuse are not kept, unless they are a client's own (`exact`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from foldline.core.log import Event, ModelSaid, Stop, ToolReturned, UsageReported, UserSaid
from foldline.core.parts import Tool
from foldline.dialects.gemini_interactions.steps import (
    CALL,
    CONTENTS,
    MARK,
    RESULT,
    USER,
    contents_of,
    encode_input,
    encode_result,
    encode_turn,
    is_models,
    make_native,
    must_be_step,
    parse_contents,
    parse_result_parts,
    parse_turn_parts,
    type_of,
)
from foldline.dialects.gemini_interactions.validate import list_faults
from foldline.dialects.google import UsageNames, parse_counts
from foldline.dialects.json_slices import (
    Json,
    convert_to_json,
    dict_of,
    encode_json,
    list_of,
    shaped_bytes,
)
from foldline.errors import WireError

_USAGE = UsageNames(
    prompt="total_input_tokens",
    served="total_tool_use_tokens",
    cached="total_cached_tokens",
    output="total_output_tokens",
    thoughts="total_thought_tokens",
)
_HI: Json = {"type": "user_input", "content": [{"type": "text", "text": "hi"}]}
_STOPS: dict[str, Stop] = {
    **dict.fromkeys(("incomplete", "budget_exceeded"), "length"),
    "requires_continuation": "paused",
    "cancelled": "cancelled",
    "failed": "refused",
    "cut": "cut",
}


def decode_steps(raw: bytes) -> list[Json]:
    """Decode the steps of one message; a text, a content or a list of these is a user's input."""
    if raw.startswith(b'"'):
        text = msgspec.json.decode(raw, type=str)
        return [{"type": USER, "content": [{"type": "text", "text": text}]}]
    if raw.startswith(b"["):
        contents = shaped_bytes(raw, list[Json], "contents of an interaction")
        if not contents or any(type_of(one) not in CONTENTS for one in contents):
            raise WireError("contents and steps in one input")
        return [{"type": USER, "content": contents}]
    steps = shaped_bytes(b"[" + raw + b"]", list[Json], "steps of an interaction")
    if not steps:
        raise WireError("a message without steps")
    return [must_be_step(step) for step in steps]


def parse_message(given: Mapping[str, Any], *, saw: int | None = None) -> list[Event]:
    """Parse one step into an event."""
    step = decode_steps(encode_json(given))[0]
    if is_models(step):
        return [build_turn_event([step], saw=saw, exact=False)]
    return [build_input_event(step, exact=False)]


def parse_turn(given: Sequence[Mapping[str, Any]], *, saw: int | None) -> list[Event]:
    """Parse the steps of one turn of the model."""
    steps = decode_steps(b",".join(map(encode_json, given)))
    return [build_turn_event(steps, saw=saw, exact=False)]


def build_input_event(step: Json, *, exact: bool) -> UserSaid | ToolReturned:
    """Build the event of a user's input, or of a function's result."""
    kind = type_of(step)
    if kind == MARK:
        raise WireError("a step that stands for folded ones is not read as a message")
    if kind == RESULT:
        call_id, name = str(step.get("call_id") or ""), str(step.get("name") or "")
        ok = step.get("is_error") is not True
        said = parse_result_parts(step)
        same = encode_result(call_id, name, said, ok=ok) == step
        call: Json = {"type": CALL, "id": call_id, "name": "f", "arguments": {}}
        keeps = not same and (exact or _is_accepted(_HI, call, step))
        return ToolReturned(call_id, said, ok=ok, native=make_native([step]) if keeps else None)
    content = contents_of(step.get("content")) if kind == "user_input" else [step]
    said = parse_contents(content)
    plain = {"type": "user_input", "content": content}
    keeps = encode_input(said) != [plain] and (exact or _is_accepted(plain))
    return UserSaid(said, native=make_native([plain]) if keeps else None)


def build_turn_event(
    steps: Sequence[Json], *, saw: int | None = None, stop: Stop = "done", exact: bool
) -> ModelSaid:
    """Build the event of a model's turn."""
    said = parse_turn_parts(steps)
    results: list[Json] = [
        {"type": RESULT, "call_id": step.get("id"), "result": "x"}
        for step in steps
        if type_of(step) == CALL
    ]
    native = None
    if steps and [*steps] != encode_turn(said):
        native = make_native(steps) if exact or _is_accepted(_HI, *steps, *results, _HI) else None
    return ModelSaid(said, saw=saw, native=native, stop=stop)


def _is_accepted(*steps: Json) -> bool:
    return not list_faults([*steps])


def parse_answer(given: Mapping[str, Any], *, saw: int | None, asked: int | None) -> list[Event]:
    """Parse an interaction into its message, then its usage."""
    body = convert_to_json(given)
    steps = [dict_of(step) for step in list_of(body.get("steps"))]
    turn = [must_be_step(step, path="$.steps") for step in steps if is_models(step)]
    stop = _STOPS.get(str(body.get("status") or ""), "done")
    usage = parse_counts(dict_of(body.get("usage")), _USAGE, asked=asked)
    said = build_turn_event(turn, saw=saw, stop=stop, exact=False)
    return [said, usage] if usage is not None else [said]


def parse_usage(body: Json) -> UsageReported | None:
    """Return the usage that an answer reports, or None."""
    return parse_counts(dict_of(body.get("usage")), _USAGE, asked=None)


def parse_tool(given: Mapping[str, Any]) -> Tool:
    """Parse a tool: a function, or one that Google runs, which goes back as it came."""
    body = convert_to_json(given)
    kind = body.get("type")
    if not isinstance(kind, str) or not kind:
        raise WireError("a tool without a type", path="$.type")
    if kind != "function":
        return Tool(kind, schema=msgspec.json.encode(body).decode(), native=make_native([body]))
    name = body.get("name")
    if not isinstance(name, str) or not name:
        raise WireError("a function without a name", path="$.name")
    schema: Any = body.get("parameters") or {}
    if not isinstance(schema, dict):
        raise WireError(f"the parameters of {name!r} are no object", path="$.parameters")
    text = msgspec.json.encode(schema).decode() if schema else "{}"
    return Tool(name, str(body.get("description") or ""), text)
