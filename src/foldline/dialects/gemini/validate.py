"""Lists what Google would refuse in a request, by its documented rules and its error messages.

Every fault begins with the name of its rule.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from foldline.dialects.gemini.content_parts import (
    SIGNATURE,
    find_kind,
    is_blank,
    rename_fields,
)
from foldline.dialects.google import FUNCTION_NAME, list_function_faults
from foldline.dialects.json_slices import Json, dict_of, list_of

_BESIDE = {"thought", SIGNATURE, "videoMetadata", "mediaResolution", "partMetadata"}


def list_faults(
    contents: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    system: Mapping[str, Any] | None = None,
    signed: bool = False,
) -> list[str]:
    """List everything that is wrong with a request; nothing if it may be sent.

    With `signed`, the first call of each step must have a signature: Gemini 3's rule.
    """
    found: list[str] = [] if contents else ["count: no contents"]
    awaited: list[Json] = []
    last = ""
    for place, content in enumerate(contents):
        at, role = f"contents[{place}]", str(content.get("role", "user"))
        given = content.get("parts")
        parts: list[Json] = [
            rename_fields(part) for part in list_of(given) if isinstance(part, dict)
        ]
        if role not in ("user", "model"):
            found.append(f"role: {at} has the role {role!r}")
        if place == 0 and role != "user":
            found.append(f"first: {at} is not the user's")
        if not parts or len(parts) != len(list_of(given)):
            found.append(f"empty: {at} has no parts, or one that is no object")
        found += [fault for part in parts for fault in _list_part_faults(at, part, role)]
        calls = _collect(parts, "functionCall")
        results = _collect(parts, "functionResponse")
        if awaited and role != "user":
            found.append(f"pairs: {at} comes before the results of {len(awaited)} calls")
        elif awaited or results:
            found += _list_pair_faults(at, awaited, results)
        if calls and last == "model":
            found.append(f"turns: {at} calls right after the model")
        found += _list_signature_faults(at, parts) if signed else []
        awaited, last = calls, role
    if awaited:
        found.append(f"pairs: the last {len(awaited)} calls have no result")
    if last == "model":
        found.append("last: the conversation must end with the user")
    return found + _list_tool_faults(tools) + _list_system_faults(system)


def _collect(parts: Sequence[Json], kind: str) -> list[Json]:
    return [dict_of(part[kind]) for part in parts if kind in part]


def _list_part_faults(at: str, part: Json, role: str) -> list[str]:
    kind = find_kind(part)
    if not kind:
        return [f"kind: {at} has a part of an unknown kind: {sorted(part)}"]
    found: list[str] = []
    if more := part.keys() - _BESIDE - {kind}:
        found.append(f"kind: {at} has a part with {sorted(more)} beside {kind}")
    value = part[kind]
    match kind:
        case "text" if not isinstance(value, str):
            found.append(f"text: {at} has a text that is not a string")
        case "text" if is_blank(part):
            found.append(f"blank: {at} has a text without words")
        case "inlineData" if not (dict_of(value).get("mimeType") and dict_of(value).get("data")):
            found.append(f"media: {at} has data without a type, or a type without data")
        case "fileData" if not dict_of(value).get("fileUri"):
            found.append(f"media: {at} has a file from nowhere")
        case "functionCall":
            found += [f"role: {at} is a call of the user"] * (role != "model")
            found += _list_call_faults(at, dict_of(value), "args")
        case "functionResponse":
            found += [f"role: {at} is a result of the model"] * (role == "model")
            found += _list_call_faults(at, dict_of(value), "response")
        case _:
            pass
    if SIGNATURE in part and not isinstance(part[SIGNATURE], str):
        found.append(f"text: {at} has a signature that is not a string")
    return found


def _list_call_faults(at: str, call: Json, field: str) -> list[str]:
    found: list[str] = []
    if not isinstance(call.get("name"), str) or not FUNCTION_NAME.fullmatch(call["name"]):
        found.append(f"name: {at} has the name {call.get('name')!r}")
    if not isinstance(call.get(field, {}), dict) or (field == "response" and field not in call):
        found.append(f"object: {at} has {field} that are no object")
    if not isinstance(call.get("id", ""), str):
        found.append(f"id: {at} has an id that is no text")
    return found


def _list_pair_faults(at: str, calls: Sequence[Json], results: Sequence[Json]) -> list[str]:
    """Compare calls and results: as many, and each by its id, or by name and place."""
    if len(calls) != len(results):
        return [f"pairs: {at} has {len(results)} results for {len(calls)} calls"]
    wrong = [
        f"pairs: {at} answers {result.get('id') or result.get('name')!r} in place of "
        f"{call.get('id') or call.get('name')!r}"
        for call, result in zip(calls, results, strict=True)
        if (call.get("id", ""), call.get("name")) != (result.get("id", ""), result.get("name"))
    ]
    return wrong[:1]


def _list_signature_faults(at: str, parts: Sequence[Json]) -> list[str]:
    first = next((part for part in parts if "functionCall" in part), None)
    if first is None or first.get(SIGNATURE):
        return []
    return [f"signature: {at} calls first without a {SIGNATURE}"]


def _list_tool_faults(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    found: list[str] = []
    names: set[str] = set()
    for place, given in enumerate(tools):
        tool = rename_fields(dict(given))
        for one in list_of(tool.get("functionDeclarations")):
            at, schema = f"tools[{place}]", "parametersJsonSchema"
            found += list_function_faults(at, dict_of(one), schema, names)
    return found


def _list_system_faults(system: Mapping[str, Any] | None) -> list[str]:
    if system is None:
        return []
    parts = list_of(system.get("parts"))
    wrong = [part for part in parts if not isinstance(dict_of(part).get("text"), str)]
    return ["system: the system prompt has parts that are no text"] if wrong or not parts else []
