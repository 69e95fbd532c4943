"""Lists the faults of a request that the provider refuses, by its documented rules.

Checks roles, pairs, ids, blocks, tools and marks. Every fault begins with the name of its rule.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from foldline.dialects.anthropic.blocks import THOUGHTS, blocks_of, find_kinds, kind_of_block
from foldline.dialects.anthropic.write import MOST, find_thoughtless_loop
from foldline.dialects.json_slices import Json, dict_of, list_of

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_CALLED = re.compile(r"[a-zA-Z0-9_-]{1,200}")
_MOST_MESSAGES = 100_000
_BY_USER, _IN_RESULT = find_kinds("user"), find_kinds("result")
_SERVED = "_tool_result"  # how the type of a server tool's result ends
_MIMES = {
    "image": {"image/jpeg", "image/png", "image/gif", "image/webp"},
    "document": {"application/pdf"},
}


def list_faults(
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    system: str | Sequence[Mapping[str, Any]] = (),
    prefill: bool = False,
    thinks: bool = False,
) -> list[str]:
    """List everything that is wrong with a request; nothing if it may be sent.

    With `prefill` the request may end with an answer, which the model continues. With `thinks` it
    asks for manual thinking, with which a tool loop must begin.
    """
    found: list[str] = []
    if not 1 <= len(messages) <= _MOST_MESSAGES:
        found.append(f"count: {len(messages)} messages, 1-{_MOST_MESSAGES} are allowed")
    awaited: list[str] = []
    seen: set[str] = set()
    last = ""
    for place, message in enumerate(messages):
        role, at = str(message.get("role")), f"messages.{place}"
        if role not in ("user", "assistant"):
            found.append(f"role: {at} has the role {role!r}")
        if place == 0 and role != "user":
            found.append(f"first: {at} is not the user's")
        elif role == last:
            found.append(f"turns: {at} has the role of the message before")
        content = blocks_of(message.get("content"))
        if not content:
            found.append(f"empty: {at} says nothing")
        found += (
            _list_user_faults(at, content, awaited)
            if role == "user"
            else _list_unanswered_faults(at, awaited)
        )
        awaited = _collect_call_ids(at, content, seen, found) if role == "assistant" else []
        found += _list_block_faults(at, message.get("content"))
        last = role
    if awaited:
        found.append(f"pairs: the calls {awaited} have no result")
    if last == "assistant" and not prefill:
        found.append("last: the conversation must end with a user message")
    if thinks and (at := find_thoughtless_loop(messages)) is not None:
        found.append(f"thinking: messages.{at} begins a tool loop and not with thinking")
    every = [block for message in messages for block in blocks_of(message.get("content"))]
    system_blocks = [] if isinstance(system, str) else [dict(block) for block in system]
    marked = [*map(dict[str, Any], tools), *system_blocks, *every]
    return (
        found
        + _list_tool_faults(tools)
        + _list_system_faults(system_blocks)
        + _list_mark_faults(marked)
    )


def _list_user_faults(at: str, content: Sequence[Json], awaited: list[str]) -> list[str]:
    found: list[str] = []
    words = False
    open_calls = list(awaited)
    for place, block in enumerate(content):
        kind = kind_of_block(block)
        if kind == "tool_result":
            call_id = block.get("tool_use_id")
            if call_id in open_calls and not words:
                open_calls.remove(call_id)
            elif call_id in awaited and words:
                found.append(f"order: {at}.content.{place} is a result behind words")
                open_calls = [one for one in open_calls if one != call_id]
            elif call_id in awaited:
                found.append(f"twice: {at}.content.{place} is a second result of {call_id!r}")
            else:
                found.append(f"orphan: {at}.content.{place} answers {call_id!r}, never called")
            found += _list_result_faults(f"{at}.content.{place}", block)
        else:
            words = True
            if kind not in _BY_USER:
                found.append(f"block: {at}.content.{place} is a {kind!r} of the user")
    return found + _list_unanswered_faults(at, open_calls)


def _list_result_faults(at: str, block: Json) -> list[str]:
    content = block.get("content")
    if content is not None and not isinstance(content, str | list):
        return [f"block: {at} has a content that is neither text nor blocks"]
    inner = blocks_of(content) if isinstance(content, list) else []
    kinds = {kind_of_block(one) for one in inner}
    found = [f"block: {at} holds a {one!r}" for one in sorted(kinds - _IN_RESULT)]
    if not isinstance(block.get("is_error", False), bool):
        found.append(f"block: {at} has an is_error that is neither true nor false")
    return found + _list_text_faults(at, inner) + _list_source_faults(at, inner)


def _list_unanswered_faults(at: str, awaited: Sequence[str]) -> list[str]:
    return [f"pairs: {at} has no result of {one!r}" for one in awaited]


def _collect_call_ids(
    at: str, content: Sequence[Json], seen: set[str], found: list[str]
) -> list[str]:
    ids: list[str] = []
    for place, block in enumerate(content):
        kind, here = kind_of_block(block), f"{at}.content.{place}"
        if kind == "tool_result":
            found.append(f"block: {here} is a result of the assistant")
        elif kind in _MIMES:
            found.append(f"media: {here} is a {kind!r} of the assistant")
        elif kind in THOUGHTS and not block.get(THOUGHTS[kind]):
            found.append(f"thought: {here} has no {THOUGHTS[kind]}")
        elif kind == "server_tool_use":
            seen.add(str(block.get("id")))
        elif kind.endswith(_SERVED) and str(block.get("tool_use_id")) not in seen:
            found.append(f"server: {here} answers {block.get('tool_use_id')!r}, never called")
        if kind != "tool_use":
            continue
        one = str(block.get("id"))
        if not _ID.fullmatch(one):
            found.append(f"id: {here} has the id {one!r}")
        if one in seen:
            found.append(f"unique: {here} has the id {one!r} again")
        if not isinstance(block.get("input"), dict) or not block.get("name"):
            found.append(f"call: {here} has no name, or arguments that are no object")
        elif not _CALLED.fullmatch(str(block["name"])):
            found.append(f"name: {here} calls {block['name']!r}")
        seen.add(one)
        ids.append(one)
    return ids


def _list_block_faults(at: str, content: Any) -> list[str]:
    """List the faults of blocks that any role may have."""
    blocks = blocks_of(content)
    odd = isinstance(content, list) and len(list_of(content)) != len(blocks)
    found = [f"block: {at} has a block that is no object"] * odd
    return found + _list_text_faults(at, blocks) + _list_source_faults(at, blocks)


def _list_text_faults(at: str, content: Sequence[Json]) -> list[str]:
    found: list[str] = []
    for place, block in enumerate(content):
        text = block.get("text")
        if kind_of_block(block) == "text" and not isinstance(text, str):
            found.append(f"block: {at}.content.{place} has a text that is not a string")
        elif kind_of_block(block) == "text" and not str(text).strip():
            found.append(f"blank: {at}.content.{place} has no words")
    return found


def _list_source_faults(at: str, content: Sequence[Json]) -> list[str]:
    """List the faults of images and documents; only some media types are accepted."""
    found: list[str] = []
    for block in content:
        kind, source = kind_of_block(block), dict_of(block.get("source"))
        if kind not in _MIMES:
            continue
        if source.get("type") not in ("base64", "url", "file", "text", "content"):
            found.append(f"media: {at} has a {kind} from nowhere")
        elif source["type"] == "base64" and str(source.get("media_type")) not in _MIMES[kind]:
            found.append(f"media: {at} has a {kind} {source.get('media_type')!r}")
        elif source["type"] in ("base64", "text") and not source.get("data"):
            found.append(f"media: {at} has a {kind} without bytes")
    return found


def _list_tool_faults(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    found: list[str] = []
    names: set[str] = set()
    for place, tool in enumerate(tools):
        name, schema = tool.get("name"), tool.get("input_schema")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            found.append(f"name: tools.{place} has the name {name!r}")
        elif name in names:
            found.append(f"unique: tools.{place} has the name {name!r} again")
        if tool.get("type", "custom") == "custom" and dict_of(schema).get("type") != "object":
            found.append(f"tools: tools.{place} has an input_schema that is not of an object")
        names.add(str(name))
    return found


def _list_system_faults(blocks: Sequence[Json]) -> list[str]:
    wrong = [block for block in blocks if kind_of_block(block) != "text"]
    found = [f"system: {len(wrong)} blocks of system are no text"] * bool(wrong)
    return found + _list_text_faults("system", blocks)


def _list_mark_faults(every: Sequence[Json]) -> list[str]:
    marked = [block for block in every if block.get("cache_control") is not None]
    found = [f"marks: {len(marked)} cache marks, {MOST} are allowed"] if len(marked) > MOST else []
    for block in marked:
        if kind_of_block(block) in THOUGHTS:
            found.append("marks: a cache mark on a thought")
        elif kind_of_block(block) == "text" and not block.get("text"):
            found.append("marks: a cache mark on an empty text")
    lives = [*_iterate_mark_lifetimes(marked)]
    if not {*lives} <= {"5m", "1h"}:
        found.append(f"marks: a cache mark of another kind among {lives}")
    elif lives != sorted(lives):  # "1h" sorts before "5m"
        found.append("marks: a mark that lives 1h behind one that lives 5m")
    return found


def _iterate_mark_lifetimes(marked: Sequence[Json]) -> Iterator[str]:
    for block in marked:
        mark = dict_of(block["cache_control"])
        yield str(mark.get("ttl", "5m")) if mark.get("type") == "ephemeral" else "unknown"
