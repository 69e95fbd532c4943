"""What a provider of this dialect refuses, by its documented rules.

Knows roles, pairs, ids, blocks and marks. Refuses to know where a request came from: it reads only
what is sent. Every finding begins with the name of the rule.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from foldline.wire.anthropic import forms
from foldline.wire.anthropic.forms import blocks_of
from foldline.wire.anthropic.marks import MOST
from foldline.wire.reading import Json

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_BY_USER = {"text", "image", "document", "search_result", "tool_result", "container_upload"}


def faults(messages: Sequence[Mapping[str, Any]], *, fixed: Sequence[Json] = ()) -> list[str]:
    """Everything that is wrong with the messages of a request; `fixed` are its tools and system."""
    found: list[str] = []
    awaited: list[str] = []
    seen: set[str] = set()
    last = ""
    for place, message in enumerate(messages):
        role, at = str(message.get("role")), f"messages.{place}"
        if role not in ("user", "assistant"):
            found.append(f"role: {at} has the role {role!r}")
        if place == 0 and role != "user":
            found.append(f"first: {at} is not the user's")
        content = blocks_of(message.get("content"))
        if not content:
            found.append(f"empty: {at} says nothing")
        if role == last:
            found.append(f"turns: {at} has the role of the message before")
        found += _user(at, content, awaited) if role == "user" else _open(at, awaited)
        awaited = _calls(at, content, seen, found) if role == "assistant" else []
        found += _texts(at, content)
        last = role
    if awaited:
        found.append(f"pairs: the calls {awaited} have no result")
    if last == "assistant":
        found.append("last: the conversation must end with a user message")
    every = [block for message in messages for block in blocks_of(message.get("content"))]
    return found + _marks([*fixed, *every])


def _user(at: str, content: Sequence[Json], awaited: list[str]) -> list[str]:
    found: list[str] = []
    words = False
    open_calls = list(awaited)
    for place, block in enumerate(content):
        kind = forms.kind(block)
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
        else:
            words = True
            if kind not in _BY_USER:
                found.append(f"block: {at}.content.{place} is a {kind!r} of the user")
    return found + _open(at, open_calls)


def _open(at: str, awaited: Sequence[str]) -> list[str]:
    return [f"pairs: {at} has no result of {one!r}" for one in awaited]


def _calls(at: str, content: Sequence[Json], seen: set[str], found: list[str]) -> list[str]:
    ids: list[str] = []
    for place, block in enumerate(content):
        if forms.kind(block) == "tool_result":
            found.append(f"block: {at}.content.{place} is a result of the assistant")
        if forms.kind(block) != "tool_use":
            continue
        one = str(block.get("id"))
        if not _ID.fullmatch(one):
            found.append(f"id: {at}.content.{place} has the id {one!r}")
        if one in seen:
            found.append(f"unique: {at}.content.{place} has the id {one!r} again")
        if not isinstance(block.get("input"), dict) or not block.get("name"):
            found.append(f"call: {at}.content.{place} has no name, or arguments that are no object")
        seen.add(one)
        ids.append(one)
    return ids


def _texts(at: str, content: Sequence[Json]) -> list[str]:
    return [
        f"blank: {at}.content.{place} has no words"
        for place, block in enumerate(content)
        if forms.kind(block) == "text" and not str(block.get("text", "")).strip()
    ]


def _marks(every: Sequence[Json]) -> list[str]:
    marked = [block for block in every if "cache_control" in block]
    found = [f"marks: {len(marked)} cache marks, {MOST} are allowed"] if len(marked) > MOST else []
    wrong = [block for block in marked if forms.kind(block) in ("thinking", "redacted_thinking")]
    return found + ["marks: a cache mark on a thought"] * bool(wrong)
