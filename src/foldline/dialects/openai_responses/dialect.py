"""The entry of OpenAI's Responses in the registry."""

from collections.abc import Mapping
from typing import Any

from foldline.core.log import Event
from foldline.dialects.base import Dialect
from foldline.dialects.json_slices import Json, dict_of, list_of
from foldline.dialects.openai import VENDOR
from foldline.dialects.openai_responses import compaction, read, validate, write
from foldline.dialects.openai_responses.client_messages import is_model_item
from foldline.dialects.openai_responses.joined_responses import JoinedResponses
from foldline.dialects.openai_responses.stream import ResponsesAssembly

_PARTS = ("input_", "output_")
_WORDS = ("response.output_text.delta", "response.refusal.delta")
_REASONING = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")


def _is_message(body: Mapping[str, Any]) -> bool:
    """Whether this is an item: it names its type, or has parts that only items have."""
    content, kind = body.get("content"), body.get("type")
    parts = [str(dict_of(part).get("type")) for part in list_of(content)]
    if any(part.startswith(_PARTS) and part != "input_audio" for part in parts):
        return True
    return kind is not None and (kind != "message" or isinstance(content, str))


def _parse_message(body: Mapping[str, Any], saw: int | None) -> list[Event]:
    return read.parse_message(body, saw=saw)


def _parse_answer(body: Mapping[str, Any], saw: int | None, asked: int | None) -> list[Event]:
    return read.parse_response(body, saw=saw, asked=asked)


def _list_faults(body: Mapping[str, Any]) -> list[str]:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else list_of(given)
    return validate.list_faults(items, tools=list_of(body.get("tools")))


def _read_delta(body: Json) -> str:
    said = body.get("delta") if body.get("type") in _WORDS else None
    return said if isinstance(said, str) else ""


def _read_thought(body: Json) -> str:
    said = body.get("delta") if body.get("type") in _REASONING else None
    return said if isinstance(said, str) else ""


DIALECT = Dialect(
    name=write.DIALECT,
    vendor=VENDOR,
    encoder=write.ENCODER,
    encode=write.encode_request,
    assembly=ResponsesAssembly,
    join_answers=JoinedResponses,
    blocks=write.encode_blocks,
    is_silent=write.is_silent,
    parse_message=_parse_message,
    parse_answer=_parse_answer,
    parse_tools=lambda tool: [read.parse_tool(tool)],
    parse_usage=lambda body: read.parse_usage(body, asked=None),
    is_answer=lambda body: body.get("object") == "response" and "output" in body,
    is_message=_is_message,
    is_stream_event=lambda body: str(body.get("type")).startswith("response."),
    is_tool=lambda tool: "type" in tool,
    list_faults=_list_faults,
    read_delta=_read_delta,
    read_thought=_read_thought,
    bounds=("max_output_tokens",),
    sdk_method=("responses", "create"),
    sdk_arguments={"input": []},
    messages="input",
    fixed=("instructions", "tools"),
    is_model_item=is_model_item,
    parse_turn=lambda items, saw: read.parse_items(items, saw=saw),
    write_count=lambda tokens: {"object": "response.input_tokens", "input_tokens": tokens},
    chain_field="previous_response_id",
    compaction=compaction,
)
