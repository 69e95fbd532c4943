"""Lists what Google would refuse in an interaction, by its documented rules.

Every fault begins with the name of its rule.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from foldline.dialects.gemini_interactions.steps import (
    CALL,
    CONTENTS,
    MARK,
    OUTPUT,
    RESULT,
    USER,
    contents_of,
    is_models,
    type_of,
)
from foldline.dialects.google import FUNCTION_NAME, list_function_faults
from foldline.dialects.json_slices import Json, dict_of, list_of


def list_faults(given: Any, *, tools: Sequence[Any] = (), system: Any = None) -> list[str]:
    """List everything that is wrong with an input; nothing if it may be sent."""
    if isinstance(given, str):
        return [] if given.strip() else ["blank: the input has no words"]
    rows: list[Any] = [given] if isinstance(given, dict) else list_of(given)
    steps = [dict_of(step) for step in rows]
    found: list[str] = [] if steps else ["count: no input"]
    is_contents = [type_of(step) in CONTENTS for step in steps]
    if any(is_contents):
        mixed = ["mixed: contents and steps in one input"] if not all(is_contents) else []
        return found + mixed + _list_content_faults("input", steps) + _list_tool_faults(tools)
    awaited: list[str] = []
    seen: set[str] = set()
    for place, step in enumerate(steps):
        at, kind = f"input[{place}]", type_of(step)
        if not kind or kind == MARK:
            found.append(f"type: {at} is of the type {kind!r}")
        if kind in (USER, OUTPUT):
            content = contents_of(step.get("content"))
            found += [] if content else [f"empty: {at} says nothing"]
            found += _list_content_faults(at, content)
        if kind == RESULT:
            found += _list_result_faults(at, step, awaited)
        elif kind == USER and awaited:
            found.append(f"pairs: {at} comes before the results of {awaited}")
        if kind == CALL:
            found += _list_call_faults(at, step, seen)
            awaited.append(str(step.get("id")))
    if awaited:
        found.append(f"pairs: the calls {awaited} have no result")
    if steps and is_models(steps[-1]) and not awaited:
        found.append("last: the conversation must end with the user")
    if system is not None and not isinstance(system, str):
        found.append("system: the system instruction is no text")
    return found + _list_tool_faults(tools)


def _list_call_faults(at: str, step: Json, seen: set[str]) -> list[str]:
    found: list[str] = []
    call_id, name = step.get("id"), step.get("name")
    if not isinstance(call_id, str) or not call_id:
        found.append(f"id: {at} is a call without an id")
    elif call_id in seen:
        found.append(f"unique: {at} has the id {call_id!r} again")
    seen.add(str(call_id))
    if not isinstance(name, str) or not FUNCTION_NAME.fullmatch(name):
        found.append(f"name: {at} calls {name!r}")
    if not isinstance(step.get("arguments"), dict):
        found.append(f"object: {at} has arguments that are no object")
    return found


def _list_result_faults(at: str, step: Json, awaited: list[str]) -> list[str]:
    call_id, found = str(step.get("call_id")), list[str]()
    if call_id in awaited:
        awaited.remove(call_id)
    else:
        found.append(f"orphan: {at} answers {call_id!r}, which is not awaited")
    if "result" not in step:
        found.append(f"result: {at} has none")
    elif isinstance(step["result"], list):
        found += _list_content_faults(at, contents_of(step["result"]))
    return found


def _list_content_faults(at: str, contents: Sequence[Mapping[str, Any]]) -> list[str]:
    found: list[str] = []
    for content in contents:
        kind = type_of(content)
        if kind == "text" and not isinstance(content.get("text"), str):
            found.append(f"text: {at} has a text that is not a string")
        elif kind == "text" and not str(content["text"]).strip():
            found.append(f"blank: {at} has a text without words")
        elif kind in CONTENTS[1:] and not (content.get("data") or content.get("uri")):
            found.append(f"media: {at} has a {kind} from nowhere")
    return found


def _list_tool_faults(tools: Sequence[Any]) -> list[str]:
    found: list[str] = []
    names: set[str] = set()
    for place, given in enumerate(tools):
        tool = dict_of(given)
        if not type_of(tool):
            found.append(f"tools: tools[{place}] has no type")
        if type_of(tool) == "function":
            found += list_function_faults(f"tools[{place}]", tool, "parameters", names)
    return found
