"""Encodes requests as the arguments of `client.interactions.create`.

The whole history is in the input, step by step: nothing is left to the server. A turn that came in
this dialect and is shown whole is written as it came; any other without its thoughts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from foldline.core.item import Item
from foldline.core.parts import Call, Media, Tool, calls_of, text_of
from foldline.core.request import Request
from foldline.dialects.gemini_interactions.steps import (
    CALL,
    DIALECT,
    decode_native,
    encode_input,
    encode_result,
    encode_turn,
    type_of,
)
from foldline.dialects.google import LONGEST_NAME, select_functions
from foldline.dialects.json_slices import Json, object_of
from foldline.dialects.model_names import strip_google_prefix
from foldline.dialects.tools import (
    Names,
    append_digest,
    describe_media,
    parse_object_schema,
)

ENCODER = 1
"""Incremented when the same request would be written in other bytes."""
_ALONE = Names({}, LONGEST_NAME, letter_first=True)


def encode_request(request: Request, parameters: Mapping[str, Any]) -> bytes:
    """Encode a request; the input comes last, so that one that only grew begins as before."""
    tools, names = select_functions(request.tools, DIALECT)
    body: Json = {"model": strip_google_prefix(request.model), **parameters}
    system = "\n".join(
        describe_media(part) if isinstance(part, Media) else text_of((part,))
        for part in request.system
    )
    if system.strip():
        body["system_instruction"] = system
    if tools:
        body["tools"] = [write_tool(tool, names) for tool in tools]
    body["input"] = _build_steps(request, names)
    return msgspec.json.encode(body)


def encode_blocks(request: Request) -> list[bytes]:
    """Encode the steps of the input, each in its own bytes."""
    return [
        msgspec.json.encode(step)
        for step in _build_steps(request, select_functions(request.tools, DIALECT)[1])
    ]


def write_tool(tool: Tool, names: Names = _ALONE) -> Json:
    """Write a tool, as it came if it has a form of its own."""
    own = decode_native(tool.native)
    if own:
        return own[0]
    words = {"description": tool.description} if tool.description else {}
    has_schema = bool(object_of(tool.schema))
    shape = {"parameters": parse_object_schema(tool.schema)} if has_schema else {}
    return {"type": "function", "name": names.resolve_name(tool.name), **words, **shape}


def _build_steps(request: Request, names: Names) -> list[Json]:
    steps: list[Json] = []
    used: set[str] = set()
    awaited: dict[str, list[Json]] = {}  # of the newest turn: the id shown → its calls as written
    for item in request.items:
        if item.role == "model":
            own = decode_native(item.native)
            ids = _choose_ids(item, used)
            turn = own if own and _has_ids(own, ids) else _write_turn(item, ids, names)
            calls = [step for step in turn if type_of(step) == CALL]
            awaited = {}
            for call, step in zip(calls_of(item.parts), calls, strict=False):
                awaited.setdefault(call.id, []).append(step)  # a model may give one id twice
            steps += turn
        elif item.role == "result":
            left = awaited.get(item.call_id)
            steps.append(_write_result(item, left.pop(0) if left else {}))
        else:
            own = decode_native(item.native) if item.role != "system" else None
            steps += own or encode_input(item.parts)
    return steps


def _has_ids(own: Sequence[Json], ids: Sequence[str]) -> bool:
    """Whether a turn that came in this dialect has the ids that are written."""
    return [str(step.get("id") or "") for step in own if type_of(step) == CALL] == [*ids]


def _write_turn(item: Item, ids: Sequence[str], names: Names) -> list[Json]:
    new = iter(ids)
    parts = [
        Call(next(new), part.name, part.arguments) if isinstance(part, Call) else part
        for part in item.parts
    ]
    return encode_turn(parts, names)


def _write_result(item: Item, call: Json) -> Json:
    call_id, name = (str(call.get(key) or "") for key in ("id", "name"))
    own = decode_native(item.native)
    if own and own[0].get("call_id") == call_id:
        return own[0]
    return encode_result(call_id or item.call_id, name, item.parts, ok=item.ok)


def _choose_ids(item: Item, used: set[str]) -> list[str]:
    """Choose ids for a turn's calls: their own, if these are unique in the request."""
    ids: list[str] = []
    for call in calls_of(item.parts):
        own = call.id
        if not own or own in used:
            own = append_digest(own or "call", f"{call.id} {item.seq}", digits=8, taken=used)
        used.add(own)
        ids.append(own)
    return ids
