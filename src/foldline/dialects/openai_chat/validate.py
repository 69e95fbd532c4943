"""Lists what the provider would refuse in a request, by its documented rules.

Checks roles, pairs, ids, parts and tools. Every fault begins with the name of its rule.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from foldline.dialects.json_slices import dict_of, list_of
from foldline.dialects.openai import LONGEST_NAME, is_picture_address, list_text_faults

LONGEST_ID = 40
MOST_CALLS = 128
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{LONGEST_NAME}}}")
_INSTEAD = ("tool_calls", "function_call", "refusal", "audio")
_PARTS = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
    "function": set[str](),
}
"""Every role, and the kinds of parts that its content may hold."""


def list_faults(
    messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = ()
) -> list[str]:
    """List everything that is wrong with a request; nothing if it may be sent."""
    found: list[str] = [] if messages else ["empty: there are no messages"]
    called: list[str] = []
    awaited: list[str] = []
    for place, message in enumerate(messages):
        role, at = message.get("role"), f"messages[{place}]"
        found += _list_content_faults(at, message)
        if role == "tool":
            found += _list_result_faults(at, message, called, awaited)
            continue
        if awaited:
            found.append(f"pairs: {at} stands before the results of {awaited}")
        called = _collect_call_ids(at, message, found) if role == "assistant" else []
        awaited = [*called]
        # A result may be empty, also one of a legacy call, which has no id to pair it by.
        empty_result = role == "function" and isinstance(message.get("content"), str | list)
        if not empty_result and not _says_something(message):
            found.append(f"empty: {at} says nothing")
    if awaited:
        found.append(f"pairs: the calls {awaited} have no result")
    return found + _list_tool_faults(tools)


def _list_content_faults(at: str, message: Mapping[str, Any]) -> list[str]:
    """List the faults of a message's role and content."""
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or role not in _PARTS:
        return [f"role: {at} has the role {role!r}"]
    found: list[str] = []
    named = message.get("name") if role == "function" else "named"
    if not isinstance(named, str) or not _NAME.fullmatch(named):
        found.append(f"name: {at} is the result of {named!r}")
    if content is None and role in ("assistant", "function"):
        return found
    if isinstance(content, str):
        return found + list_text_faults(at, content)
    if not isinstance(content, list):
        return [*found, f"content: {at} has a content that is neither text nor parts"]
    for part in cast("list[Any]", content):
        shape = dict_of(part)
        kind = str(shape.get("type"))
        if kind not in _PARTS[role]:
            found.append(f"part: {at} has a part {kind!r} of the role {role!r}")
        elif kind in ("text", "refusal"):
            found += list_text_faults(at, shape.get(kind))
        else:
            found += _list_media_faults(at, kind, shape.get(kind))
    return found


def _list_media_faults(at: str, kind: str, given: Any) -> list[str]:
    """List the faults of an image, audio or file: missing bytes, or a wrong kind."""
    source = dict_of(given)
    if kind == "image_url":
        url = str(source.get("url"))
        good = is_picture_address(url)
    elif kind == "input_audio":
        good = bool(source.get("data")) and source.get("format") in ("wav", "mp3")
    else:
        # A data URL without bytes ends with its comma.
        held = str(source.get("file_data") or ",")
        good = bool(source.get("file_id")) or not held.endswith(",")
    return [] if good else [f"media: {at} has a part {kind!r} without bytes, or of another kind"]


def _list_result_faults(
    at: str, message: Mapping[str, Any], called: Sequence[str], awaited: list[str]
) -> list[str]:
    call_id = message.get("tool_call_id")
    if call_id in awaited:
        awaited.remove(call_id)
        return []
    if call_id in called:
        return [f"twice: {at} is a second result of {call_id!r}"]
    return [f"orphan: {at} answers {call_id!r}, which the message before did not call"]


def _collect_call_ids(at: str, message: Mapping[str, Any], found: list[str]) -> list[str]:
    given = message.get("tool_calls")
    listed = list_of(given)
    calls = [dict_of(call) for call in listed if isinstance(call, dict)]
    if given is not None and not 1 <= len(calls) == len(listed) <= MOST_CALLS:
        found.append(f"calls: {at} does not have 1-{MOST_CALLS} calls in its list")
    ids: list[str] = []
    for call in calls:
        one = call.get("id")
        if not isinstance(one, str) or not one or len(one) > LONGEST_ID:
            found.append(f"id: {at} has a call id {one!r} that is not 1-{LONGEST_ID} long")
        elif one in ids:
            found.append(f"unique: {at} has the call id {one!r} twice")
        called = call.get("function") or call.get("custom")
        found += _list_call_faults(at, called, "input" if call.get("custom") else "arguments")
        ids.append(str(one))
    if message.get("function_call") is not None:
        found += _list_call_faults(at, message["function_call"], "arguments")
    return ids


def _list_call_faults(at: str, given: Any, written: str) -> list[str]:
    """List the faults of a call's name and arguments."""
    called = dict_of(given)
    if not called.get("name") or not isinstance(called.get(written), str):
        return [f"call: {at} has a call without a name or arguments"]
    if not _NAME.fullmatch(str(called["name"])):
        return [f"name: {at} calls {called['name']!r}"]
    return list_text_faults(at, called[written])


def _list_tool_faults(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    found: list[str] = []
    names: set[str] = set()
    for place, tool in enumerate(tools):
        kind = tool.get("type")
        given = tool.get(kind) if kind in ("function", "custom") else None
        schema = dict_of(given)
        if not isinstance(given, dict):
            found.append(f"tools: tools[{place}] is of the kind {kind!r}, or does not say what")
        elif not isinstance(schema.get("name"), str) or not _NAME.fullmatch(schema["name"]):
            found.append(f"name: tools[{place}] has the name {schema.get('name')!r}")
        elif not isinstance(schema.get("parameters", {}), dict):
            found.append(f"tools: tools[{place}] has parameters that are no object")
        elif schema["name"] in names:
            found.append(f"unique: tools[{place}] has the name {schema['name']!r} again")
        else:
            names.add(schema["name"])
    return found


def _says_something(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    if isinstance(content, str):
        content = content.strip()
    return bool(content) or any(message.get(name) for name in _INSTEAD)
