"""What a provider of this dialect refuses, by its documented rules.

Knows roles, pairs, ids, parts and tools. Refuses to know where a request came from: it reads only
what is sent. Every finding begins with the name of the rule.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from foldline.dialects.openai_chat.shapes import Json

LONGEST_ID = 40
LONGEST_NAME = 64
MOST_CALLS = 128
_LONGEST_TEXT = 10_485_760
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
"""Every role, and the parts that a list of its content may hold."""


def faults(
    messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = ()
) -> list[str]:
    """Everything that is wrong with the messages of a request; nothing, if it may be sent."""
    found: list[str] = [] if messages else ["empty: there are no messages"]
    called: list[str] = []
    awaited: list[str] = []
    for place, message in enumerate(messages):
        role, at = message.get("role"), f"messages[{place}]"
        found += _content(at, message)
        if role == "tool":
            found += _result(at, message, called, awaited)
            continue
        if awaited:
            found.append(f"pairs: {at} stands before the results of {awaited}")
        called = _calls(at, message, found) if role == "assistant" else []
        awaited = [*called]
        # A result may be empty, also one of the older kind, which has no id to be paired by.
        empty_result = role == "function" and isinstance(message.get("content"), str | list)
        if not empty_result and not _says_something(message):
            found.append(f"empty: {at} says nothing")
    if awaited:
        found.append(f"pairs: the calls {awaited} have no result")
    return found + _tools(tools)


def _content(at: str, message: Mapping[str, Any]) -> list[str]:
    """What is wrong with a role, and with the content that it has."""
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
        return found + _text(at, content)
    if not isinstance(content, list):
        return [*found, f"content: {at} has a content that is neither text nor parts"]
    for part in cast("list[Any]", content):
        shape = cast("Json", part) if isinstance(part, dict) else {}
        kind = str(shape.get("type"))
        if kind not in _PARTS[role]:
            found.append(f"part: {at} has a part {kind!r} of the role {role!r}")
        elif kind in ("text", "refusal"):
            found += _text(at, shape.get(kind))
        else:
            found += _media(at, kind, shape.get(kind))
    return found


def _text(at: str, text: Any) -> list[str]:
    if not isinstance(text, str):
        return [f"part: {at} has a text that is none"]
    return [f"long: {at} has a text of {len(text)} signs"] * (len(text) > _LONGEST_TEXT)


def _media(at: str, kind: str, given: Any) -> list[str]:
    """What is wrong with a picture, a sound or a file: where its bytes are, and of which kind."""
    source = cast("Json", given) if isinstance(given, dict) else {}
    if kind == "image_url":
        url = str(source.get("url"))
        good = url.startswith(("https://", "http://", "data:")) and not url.endswith(";base64,")
    elif kind == "input_audio":
        good = bool(source.get("data")) and source.get("format") in ("wav", "mp3")
    else:
        # Without bytes a data URL ends with its comma.
        held = str(source.get("file_data") or ",")
        good = bool(source.get("file_id")) or not held.endswith(",")
    return [] if good else [f"media: {at} has a part {kind!r} without bytes, or of another kind"]


def _result(
    at: str, message: Mapping[str, Any], called: Sequence[str], awaited: list[str]
) -> list[str]:
    call_id = message.get("tool_call_id")
    if call_id in awaited:
        awaited.remove(call_id)
        return []
    if call_id in called:
        return [f"twice: {at} is a second result of {call_id!r}"]
    return [f"orphan: {at} answers {call_id!r}, which the message before did not call"]


def _calls(at: str, message: Mapping[str, Any], found: list[str]) -> list[str]:
    given = message.get("tool_calls")
    listed = cast("list[Any]", given) if isinstance(given, list) else []
    calls = [cast("Json", call) for call in listed if isinstance(call, dict)]
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
        found += _call(at, called, "input" if call.get("custom") else "arguments")
        ids.append(str(one))
    if message.get("function_call") is not None:
        found += _call(at, message["function_call"], "arguments")
    return ids


def _call(at: str, given: Any, written: str) -> list[str]:
    """What is wrong with a call's name and with what it is called with."""
    called = cast("Json", given) if isinstance(given, dict) else {}
    if not called.get("name") or not isinstance(called.get(written), str):
        return [f"call: {at} has a call without a name or arguments"]
    if not _NAME.fullmatch(str(called["name"])):
        return [f"name: {at} calls {called['name']!r}"]
    return _text(at, called[written])


def _tools(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    found: list[str] = []
    names: set[str] = set()
    for place, tool in enumerate(tools):
        kind = tool.get("type")
        told = cast("Json", tool.get(kind)) if kind in ("function", "custom") else None
        if not isinstance(told, dict):
            found.append(f"tools: tools[{place}] is of the kind {kind!r}, or does not say what")
        elif not isinstance(told.get("name"), str) or not _NAME.fullmatch(told["name"]):
            found.append(f"name: tools[{place}] has the name {told.get('name')!r}")
        elif not isinstance(told.get("parameters", {}), dict):
            found.append(f"tools: tools[{place}] has parameters that are no object")
        elif told["name"] in names:
            found.append(f"unique: tools[{place}] has the name {told['name']!r} again")
        else:
            names.add(told["name"])
    return found


def _says_something(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    if isinstance(content, str):
        content = content.strip()
    return bool(content) or any(message.get(name) for name in _INSTEAD)
