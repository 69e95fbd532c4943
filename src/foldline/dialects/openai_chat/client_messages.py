"""A client's own messages: what each is known by, what it says, and how an edit is patched in.

Knows which differences between two requests mean nothing: cache marks, a string for a list with one
text, key order, blanks at the ends, how arguments are written, reasoning. Refuses to know
conversations.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from foldline.core.item import Item
from foldline.core.log import Event, Instructed, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Gap, Media, Native, Part, Text, Thought, Tool, calls_of, text_of
from foldline.dialects.client_messages import (
    MARK,
    Described,
    check_keys,
    digest_of,
    linked,
    replace_content,
    shows_media,
    telling,
    without_query,
)
from foldline.dialects.json_reader import Json, readable, shaped_bytes
from foldline.dialects.json_slices import find_fields, splice
from foldline.dialects.openai_chat.read import event_of, tool_of, written
from foldline.dialects.openai_chat.shapes import ChatMessage
from foldline.dialects.openai_chat.validate import MOST_CALLS
from foldline.dialects.openai_chat.write import DIALECT
from foldline.dialects.openai_chat.write import write_message as write_item
from foldline.errors import WireError

_SYSTEM = ("system", "developer")
EMPTY = Gap("[says nothing]")
"""What stands in a view for a message without words, so that it is counted."""


def describe(raw: bytes) -> Described:
    """What a message is known by; `WireError` where it is none."""
    readable(raw)
    check_keys(raw)
    body = shaped_bytes(raw, dict[str, Any], "an OpenAI message")
    role = body.get("role")
    if not isinstance(role, str):
        raise WireError("a message without a role")
    content = body.get("content")
    marked = isinstance(content, list) and any(
        isinstance(one, dict) and MARK in one for one in cast("list[Any]", content)
    )
    known = "system" if role in _SYSTEM else role
    return Described(known, digest_of(_normal(body)), marked=marked, thinks=False)


def answer_message(body: Mapping[str, Any]) -> bytes:
    """An answer as the message that a client says again."""
    choices: list[Json] = body.get("choices") or [{}]
    message: Json = choices[0].get("message") or {}
    return msgspec.json.encode({**message, "role": "assistant"})


def complete_answer(body: Json, prefill: bytes) -> Json:  # noqa: ARG001 - a port
    """An answer as it is: servers of this dialect answer behind a client's last message."""
    return body


def read_message(raw: bytes, described: Described) -> list[Event]:
    """A message as events; its own JSON is kept only where ours would mean something else."""
    event = event_of(shaped_bytes(raw, ChatMessage, "an OpenAI message"))
    if isinstance(event, Instructed):
        return [msgspec.structs.replace(event, aside=True, link=described.digest)]
    if not isinstance(event, ToolReturned) and not _shows(event.parts):
        event = msgspec.structs.replace(event, parts=(*event.parts, EMPTY))
    few = len(calls_of(event.parts)) <= MOST_CALLS  # else it would be written in pieces
    if not few or digest_of(_normal(written(event))) != described.digest:
        event = msgspec.structs.replace(event, native=Native(DIALECT, raw.decode()))
    return linked([event], described.digest)


def read_instructions(fields: Mapping[str, bytes], leading: Sequence[bytes]) -> Instructed:
    """The leading system messages and the tools of a request."""
    parts: list[Part] = []
    for raw in leading:
        parts += event_of(shaped_bytes(raw, ChatMessage, "an OpenAI message")).parts
    tools: list[Tool] = []
    given = fields.get("tools")
    if given is not None and given != b"null":
        rows = shaped_bytes(given, list[msgspec.Raw], "a list of tools", path="$.tools")
        tools = [tool_of(raw, path=f"$.tools[{at}]") for at, raw in enumerate(rows)]
    return Instructed(tuple(parts), tuple(tools), replaces=True)


def replace_text(raw: bytes, event: Event, item: Item) -> bytes:
    """A message that shows what an item does."""
    if isinstance(event, ModelSaid):
        return msgspec.json.encode(write_item(item))
    content = find_fields(raw).get("content")
    if content is None:
        return raw
    return splice(raw, replace_content(raw, content, text_of(item.parts), media=shows_media(item)))


def drop_thinking(raw: bytes) -> bytes:
    """A message as it is: nothing in it is signed."""
    return raw


def write_handoff(items: Sequence[Item], mark: bytes) -> bytes:
    """A handoff as messages, with the cache mark that stood in what it replaces."""
    found: list[bytes] = []
    for item in items:
        body = write_item(item)
        if mark and item is items[-1]:
            text = {"type": "text", "text": body["content"], MARK: msgspec.Raw(mark)}
            body = {**body, "content": [text]}
        found.append(msgspec.json.encode(body))
    return b",".join(found)


def write_message(items: Sequence[Item]) -> bytes:
    """The message that an item is, in our own words."""
    native = items[0].native
    if native is not None and native.dialect == DIALECT:
        return native.body.encode()
    return msgspec.json.encode(write_item(items[0]))


def words_of(raw: bytes) -> str:
    """The texts of a message."""
    return text_of(
        part
        for part in event_of(shaped_bytes(raw, ChatMessage, "an OpenAI message")).parts
        if isinstance(part, Text)
    )


def is_results(raw: bytes) -> bool:  # noqa: ARG001 - a port
    """Whether a user's message is of results: here those have a role of their own."""
    return False


def item_of(event: Event) -> Item:
    """A message's event as it came, to be written."""
    match event:
        case ToolReturned():
            return Item(0, "result", event.parts, 0, call_id=event.call_id, native=event.native)
        case ModelSaid():
            return Item(0, "model", event.parts, 0, native=event.native)
        case UserSaid():
            return Item(0, "user", event.parts, 0, native=event.native)
        case _:
            raise WireError("an event that nobody said")


def _shows(parts: tuple[Part, ...]) -> bool:
    """Whether a view would show these parts."""
    if calls_of(parts) or any(isinstance(part, Media) for part in parts):
        return True
    return bool(text_of(part for part in parts if not isinstance(part, Thought)).strip())


def _normal(body: Mapping[str, Any]) -> Json:
    role = body.get("role")
    found = telling(body, "content", "tool_calls", "function_call")
    if role == "assistant":
        found = {key: found[key] for key in ("role", "refusal", "name") if key in found}
        audio = body.get("audio")
        if isinstance(audio, dict):
            found["audio"] = cast("Json", audio).get("id")
    if role == "developer":
        found["role"] = "system"
    if content := _content(body.get("content")):
        found["content"] = content
    if calls := body.get("tool_calls"):
        if not isinstance(calls, list):
            raise WireError("tool calls that are no list")
        found["tool_calls"] = [_call(call) for call in cast("list[Any]", calls)]
    if call := body.get("function_call"):
        found["function_call"] = _function(call)
    return found


def _content(content: Any) -> list[Json]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if content is None:
        return []
    if not isinstance(content, list):
        raise WireError("a message's content is neither a text nor a list")
    found: list[Json] = []
    for block in cast("list[Any]", content):
        if not isinstance(block, dict):
            raise WireError("a block is no object")
        said = telling(cast("Json", block))
        if isinstance(text := cast("Json", block).get("text"), str):
            if not text.strip():
                continue
            said["text"] = text.strip()
        image = said.get("image_url")
        if isinstance(image, dict):
            url = without_query(cast("Json", image).get("url"))
            said["image_url"] = {**cast("Json", image), "url": url}
        if said.get("type") not in ("thinking", "reasoning"):
            found.append(said)
    return found


def _call(call: Any) -> Json:
    if not isinstance(call, dict):
        raise WireError("a tool call is no object")
    found = telling(cast("Json", call), "index", "function", "type")
    if "function" in call:
        found["function"] = _function(cast("Json", call)["function"])
    return found


def _function(function: Any) -> Json:
    if not isinstance(function, dict):
        raise WireError("a call's function is no object")
    body = cast("Json", function)
    arguments = body.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments or "{}")
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            arguments = arguments.strip()
    return {"name": body.get("name"), "arguments": {} if arguments is None else arguments}
