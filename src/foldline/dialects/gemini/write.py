"""Encodes requests as the arguments of `client.models.generate_content`.

The dialect wants two roles that take turns, the results of a step in one content and in the order
of its calls, and a user's content at both ends. Neighbours of one role are joined; parts that came
in this dialect and are shown whole go back as they came, and in their order.

Gemini 3 checks that the first call of each step has the signature that came with it. Calls of other
providers' models have none: they get the value that Google documents for them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from foldline.core.item import Item
from foldline.core.parts import Media, Part, Text, Tool, calls_of
from foldline.core.request import Request
from foldline.dialects import tools as kinds
from foldline.dialects.gemini.content_parts import (
    DIALECT,
    NO_ID,
    SIGNATURE,
    decode_native,
    encode_parts,
    encode_result,
    number_calls,
    read_name,
)
from foldline.dialects.google import LONGEST_NAME, select_functions
from foldline.dialects.json_slices import Json, dict_of, object_of
from foldline.dialects.model_names import strip_google_prefix
from foldline.dialects.tools import (
    Names,
    drop_repeated_tools,
    parse_object_schema,
)

ENCODER = 1
"""Incremented when the same request would be written in other bytes."""
UNSIGNED = "skip_thought_signature_validator"
"""The signature of calls that no Gemini model made."""
_BEGAN: Json = {"text": "[the conversation begins with what the assistant said]"}
_SIGNS_NOTHING = re.compile(r"gemini-(?:1|2)(?:\.|-|$)")
_ALONE = Names({}, LONGEST_NAME, letter_first=True)


def must_sign_calls(model: str) -> bool:
    """Whether a model refuses calls without a signature: all but those before Gemini 3."""
    return _SIGNS_NOTHING.match(strip_google_prefix(model).lower()) is None


def encode_request(request: Request, parameters: Mapping[str, Any]) -> bytes:
    """Encode a request; contents come last, so that one that only grew begins as the one before."""
    _, names = select_functions(request.tools, DIALECT)
    given = parameters.get("config")
    config: Json = {**_decode_config(given)}
    if system := _encode_system(request):
        config["systemInstruction"] = {"parts": system}
    if tools := encode_tools(request.tools, names):
        config["tools"] = tools
    others = {name: one for name, one in parameters.items() if name != "config"}
    body: Json = {"model": strip_google_prefix(request.model), **others}
    if config:
        body["config"] = config
    body["contents"] = [
        {"role": draft.role, "parts": draft.parts} for draft in _build_drafts(request, names)
    ]
    return msgspec.json.encode(body)


def _decode_config(given: Any) -> Mapping[str, Any]:
    if isinstance(given, msgspec.Raw):
        given = msgspec.json.decode(given)
    return given if isinstance(given, Mapping) else {}  # pyright: ignore[reportUnknownVariableType]


def encode_blocks(request: Request) -> list[bytes]:
    """Encode the parts of all contents in order."""
    system = [{"role": "system", "part": part} for part in _encode_system(request)]
    said = [
        {"role": draft.role, "part": part}
        for draft in _build_drafts(request, select_functions(request.tools, DIALECT)[1])
        for part in draft.parts
    ]
    return [msgspec.json.encode(one) for one in (*system, *said)]


def encode_tools(tools: Sequence[Tool], names: Names = _ALONE) -> list[Json]:
    """Write tools: all functions in one list, and those that Google runs beside it."""
    functions: list[Json] = []
    found: list[Json] = []
    for tool in drop_repeated_tools(tools, dialect=DIALECT):
        own = decode_native(tool.native)
        for one in own or [{"functionDeclarations": [write_tool(tool, names)]}]:
            if "functionDeclarations" not in one:
                found.append(one)
                continue
            if not functions:
                found.append({"functionDeclarations": functions})
            functions += one["functionDeclarations"]
    return found


def write_tool(tool: Tool, names: Names = _ALONE) -> Json:
    """Write a function's declaration from its neutral form."""
    words = {"description": tool.description} if tool.description else {}
    shape = {"parametersJsonSchema": parse_object_schema(tool.schema)}
    has_schema = bool(object_of(tool.schema))
    return {"name": names.resolve_name(tool.name), **words, **(shape if has_schema else {})}


def _encode_system(request: Request) -> list[Json]:
    own = [parts for native in request.native if (parts := decode_native(native)) is not None]
    if own:
        return [part for parts in own for part in parts]
    return encode_parts(name_media(request.system))


def name_media(parts: Sequence[Part]) -> list[Part]:
    """Name media in words, for the system prompt, which takes none."""
    return [Text(kinds.describe_media(one)) if isinstance(one, Media) else one for one in parts]


@dataclass(slots=True)
class _ContentDraft:
    role: str
    parts: list[Json] = field(default_factory=list[Json])


@dataclass(slots=True)
class _Step:
    """The newest step: the places of its calls by their ids, their names, and its results."""

    places: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    names: list[str] = field(default_factory=list[str])
    results: dict[int, list[Json]] = field(default_factory=dict[int, list[Json]])
    media: list[Json] = field(default_factory=list[Json])


def _build_drafts(request: Request, names: Names) -> list[_ContentDraft]:
    signed = must_sign_calls(request.model)
    drafts: list[_ContentDraft] = []
    step = _Step()

    def append_parts(role: str, parts: list[Json]) -> None:
        if not parts:
            return
        if not drafts and role == "model":
            drafts.append(_ContentDraft("user", [_BEGAN]))
        if not drafts or drafts[-1].role != role:
            drafts.append(_ContentDraft(role))
        drafts[-1].parts += parts

    def append_results() -> None:
        ordered = [part for place in sorted(step.results) for part in step.results[place]]
        append_parts("user", [*ordered, *step.media])
        step.results, step.media = {}, []

    for item in request.items:
        if item.role == "result":
            _take_result(step, item, names)
            continue
        append_results()
        if item.role == "model":
            parts = _write_answer(item, names, signed=signed)
            step = _start_step(item, parts)
            append_parts("model", parts)
        else:
            own = decode_native(item.native) if item.role != "system" else None
            append_parts("user", own or encode_parts(item.parts))
    append_results()
    return drafts


def _start_step(item: Item, parts: Sequence[Json]) -> _Step:
    step = _Step()
    for place, call in enumerate(calls_of(item.parts)):
        step.places.setdefault(call.id, []).append(place)  # a model may give one id twice
    step.names = [
        str(dict_of(part["functionCall"]).get("name")) for part in parts if "functionCall" in part
    ]
    return step


def _take_result(step: _Step, item: Item, names: Names) -> None:
    """Keep a result until all of its step are there: they go in the order of the calls."""
    left = step.places.get(item.call_id)
    place = left.pop(0) if left else len(step.names) + len(step.results)
    known = step.names[place] if place < len(step.names) else ""
    name = known or names.resolve_name(read_name(item.call_id))
    own = decode_native(item.native)
    if own and _answers(own, item.call_id, name):
        step.results[place] = own
        return
    first, *media = encode_result(item.call_id, name, item.parts, ok=item.ok)
    step.results[place] = [first]
    step.media += media


def _answers(own: Sequence[Json], call_id: str, name: str) -> bool:
    """Whether a result that came in this dialect still answers its call."""
    response = dict_of(own[0].get("functionResponse"))
    has_none = call_id.startswith(NO_ID)
    is_same = "id" not in response if has_none else response.get("id") == call_id
    return is_same and response.get("name") == name


def _write_answer(item: Item, names: Names, *, signed: bool) -> list[Json]:
    own = decode_native(item.native)
    ids = [call.id for call in calls_of(item.parts)]
    is_own = own and number_calls(own, "functionCall") == ids
    parts = own if own and is_own else encode_parts(item.parts, names)
    first = next((part for part in parts if "functionCall" in part), None)
    if signed and first is not None and not first.get(SIGNATURE):
        first[SIGNATURE] = UNSIGNED  # also where an older model of Google's made it
    return parts
