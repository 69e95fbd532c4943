"""Parses contents, tools and answers into events.

A user's content may hold results and words: each result becomes an event, and the words become one
after them. Where the neutral form would not be written as it came, the parts are kept beside the
event: signatures, thoughts, kinds that are new. Parts that Google would refuse are not kept.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from foldline.core.log import (
    Event,
    Instructed,
    ModelSaid,
    Stop,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Media, Thought, Tool, spoken_text_of
from foldline.dialects.client_messages import EMPTY
from foldline.dialects.gemini.content_parts import (
    encode_parts,
    encode_result,
    is_blank,
    make_native,
    number_calls,
    parse_input_parts,
    parse_model_parts,
    parse_result,
    parts_of,
    rename_fields,
)
from foldline.dialects.gemini.validate import list_faults
from foldline.dialects.gemini.write import write_tool
from foldline.dialects.google import UsageNames, parse_counts
from foldline.dialects.json_slices import Json, convert_to_json, dict_of, encode_json, list_of
from foldline.errors import WireError

ROLES = ("user", "model", "function", "system", "tool")
_MAY_BE_NEW = ("kind", "signature")
"""Rules of `list_faults` that a new kind of part breaks, or that hold for some models only."""
_STOPS: dict[str, Stop] = {
    "MAX_TOKENS": "length",
    **dict.fromkeys(("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "SPII"), "refused"),
    **dict.fromkeys(("PROHIBITED_CONTENT", "IMAGE_SAFETY", "IMAGE_RECITATION"), "refused"),
    **dict.fromkeys(("IMAGE_PROHIBITED_CONTENT", "NO_IMAGE", "IMAGE_OTHER"), "refused"),
    "CUT": "cut",
}
_USAGE = UsageNames(
    prompt="promptTokenCount",
    served="toolUsePromptTokenCount",
    cached="cachedContentTokenCount",
    output="candidatesTokenCount",
    thoughts="thoughtsTokenCount",
)
_HI: Json = {"role": "user", "parts": [{"text": "hi"}]}


def read_role(content: Mapping[str, Any], *, path: str = "$") -> str:
    """Return who says a content; raises `WireError` for an unknown role."""
    role = content.get("role") or "user"
    if role not in ROLES:
        raise WireError(
            f"a content of role {role!r} at {path}.role; known are user and model",
            path=f"{path}.role",
        )
    return "user" if role in ("function", "tool") else role


def decode_content(raw: bytes) -> tuple[str, list[Json]]:
    """Decode a content: who says it, and its parts."""
    content = dict_of(msgspec.json.decode(raw))
    given = content.get("parts")
    parts = parts_of(content)
    if not isinstance(given, list) or len(parts) != len(list_of(given)):
        raise WireError("a content whose parts are no list of objects", path="$.parts")
    return read_role(content), parts


def parse_message(given: Mapping[str, Any], *, saw: int | None = None) -> list[Event]:
    """Parse a content dict into events."""
    role, parts = decode_content(encode_json(given))
    if role == "model":
        return [build_model_event(parts, saw=saw, exact=False)]
    if role == "system":
        return [Instructed(parse_input_parts(parts))]
    return build_user_events(parts, exact=False)


def build_user_events(parts: Sequence[Json], *, exact: bool) -> list[Event]:
    """Build the events of a user's content: its results, then its words.

    `exact` is for a client's own content, which keeps even what Google would refuse, but no ids.
    """
    results = [part for part in parts if "functionResponse" in part]
    ids = number_calls(results, "functionResponse", placed=exact)
    events: list[Event] = [
        _build_result_event(part, call_id, exact=exact)
        for part, call_id in zip(results, ids, strict=True)
    ]
    words = [part for part in parts if "functionResponse" not in part]
    if not exact:
        words = [part for part in words if not is_blank(part)]
    if words or not events:
        said = parse_input_parts(words)
        has_media = any(isinstance(one, Media) for one in said)
        if exact and not has_media and not spoken_text_of(said).strip():
            said = (*said, EMPTY)
        native = make_native(words) if (words or exact) and words != encode_parts(said) else None
        if native and not exact and not _is_accepted({"role": "user", "parts": words}):
            native = None
        events.append(UserSaid(said, native=native))
    return events


def _build_result_event(part: Json, call_id: str, *, exact: bool) -> ToolReturned:
    given = dict_of(part["functionResponse"])
    said, ok = parse_result(given)
    name = str(given.get("name") or "")
    native = None
    if [part] != encode_result(call_id, name, said, ok=ok):
        shown = {"id": given["id"]} if "id" in given else {}
        made: Json = {"functionCall": {**shown, "name": name}}
        call: Json = {"role": "model", "parts": [made]}
        if exact or _is_accepted(_HI, call, {"role": "user", "parts": [part]}):
            native = make_native([part])
    return ToolReturned(call_id, said, ok=ok, native=native)


def build_model_event(
    parts: Sequence[Json], *, saw: int | None = None, exact: bool, stop: Stop = "done"
) -> ModelSaid:
    """Build the event of a model's content."""
    said = parse_model_parts(parts, placed=exact)
    if exact and all(isinstance(one, Thought) for one in said):
        said = (*said, EMPTY)
    kept = [part for part in parts if exact or not is_blank(part)]
    # A thought goes back only as it came, to the provider it came from.
    native = make_native(kept) if (kept or exact) and kept != encode_parts(said) else None
    if native and not exact and not _is_answerable(kept):
        native = None
    return ModelSaid(said, saw=saw, native=native, stop=stop)


def _is_answerable(parts: Sequence[Json]) -> bool:
    """Whether Google would accept a model's content, between a question and its results."""
    calls = [dict_of(part["functionCall"]) for part in parts if "functionCall" in part]
    results: list[Json] = [
        {"functionResponse": {**{k: v for k, v in call.items() if k != "args"}, "response": {}}}
        for call in calls
    ]
    answer: Json = {"role": "user", "parts": results or [{"text": "go on"}]}
    return _is_accepted(_HI, {"role": "model", "parts": [*parts]}, answer)


def _is_accepted(*contents: Json) -> bool:
    return all(fault.startswith(_MAY_BE_NEW) for fault in list_faults(contents))


def parse_answer(given: Mapping[str, Any], *, saw: int | None, asked: int | None) -> list[Event]:
    """Parse an answer into its message, then its usage.

    A prompt that was blocked has no candidates: then nothing was said, and it was refused.
    """
    body = rename_fields(convert_to_json(given))
    candidates = list_of(body.get("candidates"))
    blocked = bool(dict_of(body.get("promptFeedback")).get("blockReason"))
    if not candidates and not blocked:
        raise WireError("an answer without candidates; nothing was answered", path="$.candidates")
    candidate = dict_of(candidates[0]) if candidates else {}
    stop = _STOPS.get(str(candidate.get("finishReason") or ""), "done")
    parts = parts_of(dict_of(candidate.get("content")))
    said = build_model_event(
        parts, saw=saw, exact=False, stop="refused" if not candidates else stop
    )
    usage = parse_counts(dict_of(body.get("usageMetadata")), _USAGE, asked=asked)
    return [said, usage] if usage is not None else [said]


def parse_usage(body: Json) -> UsageReported | None:
    """Return the usage that an answer reports, or None."""
    return parse_counts(dict_of(body.get("usageMetadata")), _USAGE, asked=None)


def parse_tools(given: Mapping[str, Any]) -> list[Tool]:
    """Parse a tool dict: one declaration, a list of them, or a tool that Google runs."""
    body = rename_fields(convert_to_json(given))
    if "name" in body:
        return [_parse_declaration(body)]
    found: list[Tool] = []
    for kind, value in body.items():
        if kind == "functionDeclarations":
            found += [_parse_declaration(dict_of(one)) for one in list_of(value)]
        else:
            found.append(Tool(kind, native=make_native([{kind: value}])))
    if not found:
        raise WireError("a tool that declares nothing")
    return found


def _parse_declaration(body: Json) -> Tool:
    name = body.get("name")
    if not isinstance(name, str) or not name:
        raise WireError("a function without a name", path="$.functionDeclarations")
    schema = body.get("parametersJsonSchema")
    if schema is None:
        schema = _lower_types(body.get("parameters") or {})
    if not isinstance(schema, dict):
        raise WireError(f"the parameters of {name!r} are no object", path="$.parameters")
    text = msgspec.json.encode(schema).decode() if schema else "{}"
    neutral = Tool(name, str(body.get("description") or ""), text)
    if write_tool(neutral) == body:
        return neutral
    tools = [{"functionDeclarations": [body]}]
    if list_faults([_HI], tools=tools):
        return neutral
    return msgspec.structs.replace(neutral, native=make_native(tools))


def _lower_types(schema: Any) -> Any:
    """Write Google's own schema as a JSON Schema: types in lower case, names in camelCase."""
    if isinstance(schema, list):
        return [_lower_types(one) for one in schema]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(schema, dict):
        return schema
    found: Json = {}
    for name, value in schema.items():  # pyright: ignore[reportUnknownVariableType]
        if name == "type" and isinstance(value, str):
            found[name] = value.lower()
        elif name == "properties":
            found[name] = {key: _lower_types(one) for key, one in dict_of(value).items()}
        elif name in ("items", "anyOf", "any_of", "prefixItems"):
            found["anyOf" if name == "any_of" else name] = _lower_types(value)
        else:
            found[str(name)] = value  # pyright: ignore[reportUnknownArgumentType]
    return found
