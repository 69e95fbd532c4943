"""Lists what the provider would refuse in a request, by its documented rules.

Checks types, roles, pairs, ids, reasoning, parts and tools. Every fault begins with the name of its
rule. Items may be of types and hold parts that are newer than this list: those faults are of the
rule `kind`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from foldline.dialects.json_slices import dict_of, list_of
from foldline.dialects.openai import LONGEST_NAME, is_picture_address, list_text_faults
from foldline.dialects.openai_responses.items import (
    CALLS,
    KNOWN,
    PLAIN_OUTPUTS,
    call_id_of,
    is_awaited,
    is_hosted_output,
    item_id_of,
    kind_of,
    output_type_of,
    type_of,
)

LONGEST_ID = 64
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{LONGEST_NAME}}}")
_ID = re.compile(rf"[a-zA-Z0-9_-]{{1,{LONGEST_ID}}}")
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "web_search_call": "ws",
}
"""How the ids of items begin, where the provider checks it."""
_INPUT = {"input_text", "input_image", "input_file"}
_PARTS = {
    "user": _INPUT,
    "system": _INPUT,
    "developer": _INPUT,
    "assistant": {"output_text", "refusal"},
}
"""Every role, and the kinds of parts that its content may hold."""
_ALL_PARTS = _INPUT | _PARTS["assistant"]
_TEXTS = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
_FIELDS: dict[str, tuple[str, type]] = {
    "reasoning": ("summary", list),
    "compaction": ("encrypted_content", str),
    "item_reference": ("id", str),
    "additional_tools": ("tools", list),
    "local_shell_call": ("action", dict),
    "shell_call": ("action", dict),
    "apply_patch_call": ("operation", dict),
    "local_shell_call_output": ("output", str),
    "shell_call_output": ("output", list),
    "apply_patch_call_output": ("status", str),
    "computer_call_output": ("output", dict),
    "tool_search_output": ("tools", list),
    "mcp_approval_response": ("approve", bool),
    "program_output": ("result", str),
}
"""The field without which an item of this type says nothing."""
_TOOLS = {
    *("function", "custom", "namespace", "tool_search", "mcp", "programmatic_tool_calling"),
    *("file_search", "web_search", "web_search_2025_08_26", "code_interpreter"),
    *("web_search_preview", "web_search_preview_2025_03_11", "image_generation"),
    *("computer", "computer_use_preview", "local_shell", "shell", "apply_patch"),
}


def list_faults(
    items: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = ()
) -> list[str]:
    """List everything that is wrong with a request's input; nothing if it may be sent."""
    found: list[str] = [] if items else ["empty: there are no items"]
    found += list_item_faults(items)
    found += _list_pair_faults(items)
    for place, item in enumerate(items[:-1]):
        if kind_of(item) == "trigger":
            found.append(f"last: input[{place}] is a compaction trigger before the end")
    return found + _list_tool_faults(tools)


def list_item_faults(items: Sequence[Mapping[str, Any]]) -> list[str]:
    """List what is wrong with items by themselves, without the pairs of calls and outputs."""
    found: list[str] = []
    ids: set[str] = set()
    for place, item in enumerate(items):
        at = f"input[{place}]"
        found += _list_item_faults(at, item)
        if own := item_id_of(item):
            found += [f"unique: {at} has the id {own!r} again"] * (own in ids)
            ids.add(own)
        if type_of(item) == "reasoning":
            after = kind_of(items[place + 1]) if place + 1 < len(items) else "nothing"
            if after not in ("model", "compaction", "reference"):
                found.append(f"reasoning: {at} is followed by {after}, not by its own item")
    return found


def _list_item_faults(at: str, item: Mapping[str, Any]) -> list[str]:
    name = type_of(item)
    if not name:
        return [f"type: {at} has the type {item.get('type')!r}"]
    if name == "message":
        return _list_id_faults(at, item) + _list_message_faults(at, item)
    if name not in KNOWN:
        return [f"kind: {at} is of the type {name!r}, which is not known"]
    found = _list_id_faults(at, item)
    if name in PLAIN_OUTPUTS:
        found += _list_call_faults(at, item)
    elif name in PLAIN_OUTPUTS.values():
        found += _list_output_faults(at, item)
    elif name in _FIELDS:
        field, shape = _FIELDS[name]
        given = item.get(field)
        if not isinstance(given, shape) or given == "":
            found.append(f"field: {at} is of the type {name!r} and has no {field}")
    if is_awaited(item) or (kind_of(item) == "result" and not is_hosted_output(item)):
        call_id = call_id_of(item)
        if not call_id or len(call_id) > LONGEST_ID:
            found.append(f"id: {at} has a call id {call_id!r} that is not 1-{LONGEST_ID} long")
    return found


def _list_id_faults(at: str, item: Mapping[str, Any]) -> list[str]:
    """List the faults of the item's own id, which is optional almost everywhere."""
    given, name = item.get("id"), type_of(item)
    if given is None or name == "local_shell_call_output":
        return []
    if not isinstance(given, str) or not _ID.fullmatch(given):
        return [f"prefix: {at} has an id {given!r} that the provider did not make"]
    begins = _PREFIXES.get(name, "")
    if not given.startswith(begins):
        return [f"prefix: {at} has an id {given!r} that does not begin with {begins!r}"]
    return []


def _list_message_faults(at: str, item: Mapping[str, Any]) -> list[str]:
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str) or role not in _PARTS:
        return [f"role: {at} has the role {role!r}"]
    if isinstance(content, str):
        empty = [f"empty: {at} says nothing"] * (not content.strip())
        return empty + list_text_faults(at, content)
    if not isinstance(content, list):
        return [f"content: {at} has a content that is neither text nor parts"]
    found = [f"empty: {at} says nothing"] * (not content)
    return found + _list_part_faults(at, list_of(content), _PARTS[role])


def _list_part_faults(at: str, parts: list[Any], allowed: set[str]) -> list[str]:
    found: list[str] = []
    for part in parts:
        shape = dict_of(part)
        kind = shape.get("type")
        if not isinstance(kind, str) or (kind in _ALL_PARTS and kind not in allowed):
            found.append(f"part: {at} has a part {kind!r}; it may hold {sorted(allowed)}")
        elif kind not in _ALL_PARTS:
            found.append(f"kind: {at} has a part {kind!r}, which is not known")
        elif kind in _TEXTS:
            found += list_text_faults(at, shape.get(_TEXTS[kind]))
        else:
            found += _list_media_faults(at, kind, shape)
    return found


def _list_media_faults(at: str, kind: str, shape: Mapping[str, Any]) -> list[str]:
    """List the faults of an image or a file: missing bytes, or a wrong kind of address."""
    good = bool(shape.get("file_id"))
    if kind == "input_image":
        url = str(shape.get("image_url"))
        good = good or is_picture_address(url)
    else:
        # A data URL without bytes ends with its comma.
        held = str(shape.get("file_data") or ",")
        good = good or not held.endswith(",") or is_picture_address(str(shape.get("file_url")))
    return [] if good else [f"media: {at} has a part {kind!r} without bytes, or of another kind"]


def _list_call_faults(at: str, item: Mapping[str, Any]) -> list[str]:
    """List the faults of a call's name and of what the model wrote."""
    written = item.get("input" if type_of(item) == "custom_tool_call" else "arguments")
    name = item.get("name")
    if not name or not isinstance(written, str):
        return [f"call: {at} has no name or arguments"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return [f"name: {at} calls {name!r}"]
    return list_text_faults(at, written)


def _list_output_faults(at: str, item: Mapping[str, Any]) -> list[str]:
    output = item.get("output")
    if isinstance(output, str):
        return list_text_faults(at, output)
    if not isinstance(output, list):
        return [f"content: {at} has an output that is neither text nor parts"]
    return _list_part_faults(at, cast("list[Any]", output), _INPUT)


def _list_pair_faults(items: Sequence[Mapping[str, Any]]) -> list[str]:
    """List calls without an output, and outputs without a call before them.

    A reference may replace a call, so an output behind one may have no call in sight.
    """
    found: list[str] = []
    calls: dict[str, str] = {}
    awaited: dict[str, str] = {}
    referred = False
    for place, item in enumerate(items):
        name, call_id, at = type_of(item), call_id_of(item), f"input[{place}]"
        referred = referred or kind_of(item) == "reference"
        if kind_of(item) == "result":
            if not call_id:
                continue
            if awaited.get(call_id) == name:
                del awaited[call_id]
            elif calls.get(call_id) == name:
                found.append(f"twice: {at} is a second output of {call_id!r}")
            elif not referred:
                found.append(f"orphan: {at} answers {call_id!r}, which no item before it called")
        elif is_awaited(item) or name == "program":
            if call_id and call_id in calls:
                found.append(f"unique: {at} has the call id {call_id!r} again")
            calls[call_id] = awaited[call_id] = output_type_of(name)
    due = {output_type_of(name) for name in CALLS}
    if open_calls := [one for one, output in awaited.items() if output in due]:
        found.append(f"pairs: the calls {open_calls} have no output")
    return found


def _list_tool_faults(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    found: list[str] = []
    names: set[str] = set()
    for place, tool in enumerate(tools):
        kind, name, at = tool.get("type"), tool.get("name"), f"tools[{place}]"
        if not isinstance(kind, str) or kind not in _TOOLS:
            found.append(f"tools: {at} is of the kind {kind!r}")
        elif kind not in ("function", "custom", "namespace"):
            continue
        elif not isinstance(name, str) or not _NAME.fullmatch(name):
            found.append(f"name: {at} has the name {name!r}")
        elif not isinstance(tool.get("parameters") or {}, dict):
            found.append(f"tools: {at} has parameters that are no object")
        elif name in names:
            found.append(f"unique: {at} has the name {name!r} again")
        else:
            names.add(name)
    return found
