"""The entry of OpenAI chat completions in the registry."""

from collections.abc import Mapping, Sequence
from typing import Any

from foldline.core.log import Event
from foldline.dialects.base import Dialect
from foldline.dialects.json_slices import Json, dict_of, list_of
from foldline.dialects.openai import VENDOR
from foldline.dialects.openai_chat import read, validate, write
from foldline.dialects.openai_chat.joined_completions import JoinedCompletions
from foldline.dialects.openai_chat.stream import ChatAssembly
from foldline.dialects.openai_chat.usage import parse_usage


def _is_message(body: Mapping[str, Any]) -> bool:
    return "tool_calls" in body or body.get("role") in ("tool", "function", "developer")


def _parse_message(body: Mapping[str, Any], saw: int | None) -> list[Event]:
    return [read.parse_message(body, saw=saw)]


def _parse_answer(body: Mapping[str, Any], saw: int | None, asked: int | None) -> list[Event]:
    return read.parse_completion(body, saw=saw, asked=asked)


def _read_delta(body: Json) -> str:
    choice = dict_of(next(iter(list_of(body.get("choices"))), None))
    delta = dict_of(choice.get("delta"))
    said = delta.get("content") or delta.get("refusal")
    if choice.get("index"):
        return ""
    return said if isinstance(said, str) else _join_part_texts(list_of(said))


def _join_part_texts(parts: Sequence[Any]) -> str:
    """Join the texts of content in parts, which is what some servers stream."""
    said = (part.get("text") or part.get("refusal") for part in map(dict_of, parts))
    return "".join(words for words in said if isinstance(words, str))


def _read_thought(body: Json) -> str:
    choice = dict_of(next(iter(list_of(body.get("choices"))), None))
    delta = dict_of(choice.get("delta"))
    # Servers that speak as OpenAI does show reasoning under one of these names.
    said = delta.get("reasoning_content") or delta.get("reasoning")
    return said if isinstance(said, str) and not choice.get("index") else ""


DIALECT = Dialect(
    name=write.DIALECT,
    vendor=VENDOR,
    encoder=write.ENCODER,
    encode=write.encode_request,
    assembly=ChatAssembly,
    join_answers=JoinedCompletions,
    blocks=write.encode_blocks,
    is_silent=write.is_silent,
    parse_message=_parse_message,
    parse_answer=_parse_answer,
    parse_tools=lambda tool: [read.parse_tool(tool)],
    parse_usage=lambda body: parse_usage(body, asked=None),
    is_answer=lambda body: "choices" in body,
    is_message=_is_message,
    is_stream_event=lambda body: body.get("object") == "chat.completion.chunk",
    is_tool=lambda tool: "function" in tool or isinstance(tool.get("custom"), Mapping),
    list_faults=lambda body: validate.list_faults(
        list_of(body.get("messages")), tools=list_of(body.get("tools"))
    ),
    read_delta=_read_delta,
    read_thought=_read_thought,
    bounds=("max_completion_tokens", "max_tokens"),
    sdk_method=("chat", "completions", "create"),
    sdk_arguments={"messages": []},
    stream_parameters={"stream_options": {"include_usage": True}},
)
