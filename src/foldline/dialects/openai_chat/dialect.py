"""OpenAI's chat completions, as the registry has them: their facts, and the messages of clients.

Two messages have one digest if they differ only in cache marks, a string for a list with one text,
key order, blanks at the ends, the spelling of arguments, or reasoning.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, cast

import msgspec

from foldline.core.item import Item
from foldline.core.log import Event, Instructed, ModelSaid, ToolReturned, UsageReported
from foldline.core.parts import Native, Part, Text, Tool, calls_of, text_of
from foldline.core.request import Request
from foldline.dialects.base import Dialect
from foldline.dialects.client_messages import (
    EMPTY,
    MARK,
    Described,
    append_value,
    check_keys,
    digest_of,
    has_visible_parts,
    link_events,
    normalise_arguments,
    replace_content,
    shows_media,
    strip_empty_fields,
    without_query,
)
from foldline.dialects.json_slices import (
    Json,
    Splice,
    apply_splices,
    check_readable,
    dict_of,
    find_fields,
    list_of,
    shaped_bytes,
    str_of,
)
from foldline.dialects.openai import VENDOR
from foldline.dialects.openai_chat import messages, validate, write
from foldline.dialects.openai_chat.messages import (
    encode_neutral_event,
    event_of,
    parse_usage,
    tool_of,
)
from foldline.dialects.openai_chat.stream import ChatAssembly, JoinedCompletions
from foldline.dialects.openai_chat.validate import MOST_CALLS
from foldline.dialects.openai_chat.write import write_message as write_item
from foldline.errors import WireError


class ChatDialect(Dialect):
    """OpenAI's chat completions, also as llama.cpp, vLLM and Ollama speak them."""

    name = write.DIALECT
    vendor = VENDOR
    encoder = write.ENCODER
    bounds = ("max_completion_tokens", "max_tokens")
    sdk_method = ("chat", "completions", "create")
    sdk_arguments: ClassVar[Mapping[str, Any]] = {"messages": []}
    stream_parameters: ClassVar[Mapping[str, Any]] = {"stream_options": {"include_usage": True}}

    def encode_request(self, request: Request, parameters: Mapping[str, Any]) -> bytes:
        return write.encode_request(request, parameters)

    def encode_blocks(self, request: Request) -> list[bytes]:
        return write.encode_blocks(request)

    def is_silent(self, request: Request) -> bool:
        return write.is_silent(request)

    def list_faults(self, body: Mapping[str, Any]) -> list[str]:
        return validate.list_faults(list_of(body.get("messages")), tools=list_of(body.get("tools")))

    def write_tool(self, tool: Tool) -> bytes:
        return msgspec.json.encode(write.write_tool(tool))

    # What an SDK gives

    def parse_message(self, given: Mapping[str, Any], saw: int | None) -> list[Event]:
        return [messages.parse_message(given, saw=saw)]

    def parse_answer(
        self, given: Mapping[str, Any], saw: int | None, asked: int | None
    ) -> list[Event]:
        return messages.parse_completion(given, saw=saw, asked=asked)

    def parse_tools(self, given: Mapping[str, Any]) -> list[Tool]:
        return [messages.parse_tool(given)]

    def parse_usage(self, body: Json) -> UsageReported | None:
        return parse_usage(body, asked=None)

    def is_answer(self, body: Mapping[str, Any]) -> bool:
        return "choices" in body

    def is_message(self, body: Mapping[str, Any]) -> bool:
        return "tool_calls" in body or body.get("role") in ("tool", "function", "developer")

    def is_tool(self, tool: Mapping[str, Any]) -> bool:
        return "function" in tool or isinstance(tool.get("custom"), Mapping)

    # Answers as they come

    def make_assembly(self) -> ChatAssembly:
        return ChatAssembly()

    def join_answers(self, is_ours: Callable[[str], bool]) -> JoinedCompletions:
        return JoinedCompletions(is_ours)

    def is_stream_event(self, body: Mapping[str, Any]) -> bool:
        return body.get("object") == "chat.completion.chunk"

    def read_delta(self, body: Json) -> str:
        delta = _find_delta(body)
        said = delta.get("content") or delta.get("refusal")
        if isinstance(said, str):
            return said
        # Some servers stream content in parts.
        texts = (part.get("text") or part.get("refusal") for part in map(dict_of, list_of(said)))
        return "".join(words for words in texts if isinstance(words, str))

    def read_thought(self, body: Json) -> str:
        delta = _find_delta(body)
        # Servers that speak as OpenAI does show reasoning under one of these names.
        return str_of(delta.get("reasoning_content") or delta.get("reasoning"))

    # Messages of clients

    def describe_message(self, raw: bytes) -> Described:
        check_readable(raw)
        check_keys(raw, "content")
        body = shaped_bytes(raw, dict[str, Any], "an OpenAI message")
        role = body.get("role")
        if not isinstance(role, str):
            raise WireError("a message without a role")
        if role not in ROLES:
            return Described.describe_opaque(raw)
        content = body.get("content")
        marked = isinstance(content, list) and any(
            isinstance(one, dict) and MARK in one for one in cast("list[Any]", content)
        )
        return Described(
            ROLES[role], digest_of(_normalise_message(body)), marked=marked, thinks=False
        )

    def encode_answer(self, body: Mapping[str, Any]) -> list[bytes]:
        choices: list[Json] = body.get("choices") or [{}]
        message: Json = choices[0].get("message") or {}
        return [msgspec.json.encode({**message, "role": "assistant"})]

    def read_message(self, raw: bytes, described: Described) -> list[Event]:
        event = event_of(raw)
        if isinstance(event, Instructed):
            return [msgspec.structs.replace(event, aside=True, link=described.digest)]
        if not isinstance(event, ToolReturned) and not has_visible_parts(event.parts):
            event = msgspec.structs.replace(event, parts=(*event.parts, EMPTY))
        few = len(calls_of(event.parts)) <= MOST_CALLS  # more would be written in pieces
        if (
            not few
            or digest_of(_normalise_message(encode_neutral_event(event))) != described.digest
        ):
            event = msgspec.structs.replace(event, native=Native(self.name, raw.decode()))
        return link_events([event], described.digest)

    def read_instructions(
        self, fields: Mapping[str, bytes], leading: Sequence[bytes]
    ) -> Instructed:
        parts: list[Part] = []
        for raw in leading:
            parts += event_of(raw).parts
        tools: list[Tool] = []
        given = fields.get("tools")
        if given is not None and given != b"null":
            rows = shaped_bytes(given, list[msgspec.Raw], "a list of tools", path="$.tools")
            tools = [tool_of(raw, path=f"$.tools[{at}]") for at, raw in enumerate(rows)]
        return Instructed(tuple(parts), tuple(tools), replaces=True)

    def replace_text(self, raw: bytes, event: Event, item: Item) -> bytes:
        if isinstance(event, ModelSaid):
            return msgspec.json.encode(write_item(item))
        content = find_fields(raw).get("content")
        if content is None:
            return raw
        return apply_splices(
            raw, replace_content(raw, content, text_of(item.parts), media=shows_media(item))
        )

    def write_handoff(self, items: Sequence[Item], mark: bytes) -> bytes:
        found: list[bytes] = []
        for item in items:
            body = write_item(item)
            if mark and item is items[-1]:
                text = {"type": "text", "text": body["content"], MARK: msgspec.Raw(mark)}
                body = {**body, "content": [text]}
            found.append(msgspec.json.encode(body))
        return b",".join(found)

    def write_message(self, items: Sequence[Item]) -> bytes:
        native = items[0].native
        if native is not None and native.dialect == self.name:
            return native.body.encode()
        return msgspec.json.encode(write_item(items[0]))

    def read_words(self, raw: bytes) -> str:
        event = event_of(raw)
        return text_of(part for part in event.parts if isinstance(part, Text))

    def is_results(self, raw: bytes) -> bool:
        return False

    def add_words(self, raw: bytes, words: str) -> bytes:
        content = find_fields(raw).get("content")
        if content is None:
            return raw
        given = raw[slice(*content)]
        if given.startswith(b'"'):
            put = msgspec.json.encode(f"{msgspec.json.decode(given)}\n\n{words}")
        else:
            put = append_value(given, msgspec.json.encode({"type": "text", "text": words})) or given
        return apply_splices(raw, [Splice(*content, put)])


DIALECT = ChatDialect()


ROLES: Final[dict[str, str]] = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("assistant", "model"), "assistant"),
    "user": "user",
    **dict.fromkeys(("tool", "function"), "tool"),
}


"""Who speaks in a message of each role."""


_CONTEXT = re.compile(
    r"(?:\s*<system-reminder>(?:(?!</system-reminder>).)*</system-reminder>)+\s*", re.DOTALL
)


_QWEN = "This is the Qwen Code. We are setting up the context for our chat."


"""The context of qwen before the user's first words, in blocks or a message of its own: the date,
and the files that are there. When a conversation is continued it is written anew, or left out."""


def _normalise_message(body: Mapping[str, Any]) -> Json:
    role = body.get("role")
    found = strip_empty_fields(body, "content", "tool_calls", "function_call")
    if role == "assistant":
        found = {key: found[key] for key in ("role", "refusal", "name") if key in found}
        audio = body.get("audio")
        if isinstance(audio, dict):
            found["audio"] = cast("Json", audio).get("id")
    if role == "developer":
        found["role"] = "system"
    if content := _normalise_content(body.get("content")):
        found["content"] = _without_context(content) if role == "user" else content
    if calls := body.get("tool_calls"):
        if not isinstance(calls, list):
            raise WireError("tool calls that are no list")
        found["tool_calls"] = [_normalise_call(call) for call in cast("list[Any]", calls)]
    if call := body.get("function_call"):
        found["function_call"] = _normalise_function(call)
    return found


def _without_context(content: list[Json]) -> list[Json] | str:
    """Leave out what a client tells beside its user's words."""
    own = [part for part in content if not _CONTEXT.fullmatch(str(part.get("text")))]
    if not own and any(_QWEN in str(part.get("text")) for part in content):
        return "context"
    return own or content


def _normalise_content(content: Any) -> list[Json]:
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
        said = strip_empty_fields(cast("Json", block))
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


def _normalise_call(call: Any) -> Json:
    if not isinstance(call, dict):
        raise WireError("a tool call is no object")
    found = strip_empty_fields(cast("Json", call), "index", "function", "type")
    if "function" in call:
        found["function"] = _normalise_function(cast("Json", call)["function"])
    return found


def _normalise_function(function: Any) -> Json:
    if not isinstance(function, dict):
        raise WireError("a call's function is no object")
    body = cast("Json", function)
    return {"name": body.get("name"), "arguments": normalise_arguments(body.get("arguments"))}


def _find_delta(body: Json) -> Json:
    """Find what a chunk adds to the first of several answers."""
    choice = dict_of(next(iter(list_of(body.get("choices"))), None))
    return {} if choice.get("index") else dict_of(choice.get("delta"))
