"""What a provider of this dialect refuses, by its documented rules.

Knows roles, pairs and ids. Refuses to know where a request came from: it reads only what is sent.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from foldline.wire.openai_chat.shapes import Json

LONGEST_ID = 40
_ROLES = {"system", "developer", "user", "assistant", "tool", "function"}
_INSTEAD = ("tool_calls", "function_call", "refusal", "audio")


def faults(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Everything that is wrong with the messages of a request; nothing, if it may be sent."""
    found: list[str] = []
    awaited: list[str] = []
    for place, message in enumerate(messages):
        role = message.get("role")
        if role not in _ROLES:
            found.append(f"messages[{place}] has the role {role!r}")
        if role == "tool":
            found += _result(place, message, awaited)
            continue
        if awaited:
            found.append(f"messages[{place}] stands before the results of {awaited}")
        awaited = []
        if role == "assistant":
            awaited = _calls(place, message, found)
        # A result may be empty, also one of the older kind, which has no id to be paired by.
        empty_result = role == "function" and isinstance(message.get("content"), str | list)
        if not empty_result and not _says_something(message):
            found.append(f"messages[{place}] says nothing")
    if awaited:
        found.append(f"the calls {awaited} have no result")
    return found


def _result(place: int, message: Mapping[str, Any], awaited: list[str]) -> list[str]:
    call_id = message.get("tool_call_id")
    if call_id not in awaited:
        return [f"messages[{place}] answers {call_id!r}, which the message before did not call"]
    awaited.remove(call_id)
    if not isinstance(message.get("content"), str | list):
        return [f"messages[{place}] has no content"]
    return []


def _calls(place: int, message: Mapping[str, Any], found: list[str]) -> list[str]:
    calls = cast("list[Json]", message.get("tool_calls") or [])
    ids: list[str] = []
    for call in calls:
        one = call.get("id")
        if not isinstance(one, str) or not one or len(one) > LONGEST_ID:
            found.append(f"messages[{place}] has a call id {one!r} that is not 1-{LONGEST_ID} long")
        elif one in ids:
            found.append(f"messages[{place}] has the call id {one!r} twice")
        called = cast("Json", call.get("function") or call.get("custom") or {})
        wrote = called.get("input" if call.get("custom") else "arguments")
        if not called.get("name") or not isinstance(wrote, str):
            found.append(f"messages[{place}] has a call without a name or arguments")
        ids.append(str(one))
    return ids


def _says_something(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    if isinstance(content, str):
        content = content.strip()
    return bool(content) or any(message.get(name) for name in _INSTEAD)
