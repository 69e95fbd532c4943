"""The entry of Google's Interactions in the registry."""

from collections.abc import Mapping
from typing import Any

from foldline.core.log import Event
from foldline.dialects.base import Dialect
from foldline.dialects.gemini_interactions import read, validate, write
from foldline.dialects.gemini_interactions.client_messages import is_content, is_model_item
from foldline.dialects.gemini_interactions.joined_interactions import JoinedInteractions
from foldline.dialects.gemini_interactions.steps import CALL, OUTPUT, RESULT, THOUGHT, USER
from foldline.dialects.gemini_interactions.steps import DIALECT as NAME
from foldline.dialects.gemini_interactions.stream import InteractionsAssembly
from foldline.dialects.google import VENDOR
from foldline.dialects.json_slices import Json, dict_of, list_of

_STEPS = (USER, OUTPUT, RESULT, THOUGHT)


def _is_message(body: Mapping[str, Any]) -> bool:
    """Whether this is a step; a call is told from that of Responses by its arguments."""
    kind = body.get("type")
    return kind in _STEPS or (kind == CALL and isinstance(body.get("arguments"), Mapping))


def _parse_message(body: Mapping[str, Any], saw: int | None) -> list[Event]:
    return read.parse_message(body, saw=saw)


def _parse_answer(body: Mapping[str, Any], saw: int | None, asked: int | None) -> list[Event]:
    return read.parse_answer(body, saw=saw, asked=asked)


def _read_delta(body: Json) -> str:
    delta = dict_of(body.get("delta")) if body.get("event_type") == "step.delta" else {}
    said = delta.get("text") if delta.get("type") == "text" else None
    return said if isinstance(said, str) else ""


def _read_thought(body: Json) -> str:
    delta = dict_of(body.get("delta")) if body.get("event_type") == "step.delta" else {}
    said = dict_of(delta.get("content")).get("text")
    return said if isinstance(said, str) and delta.get("type") == "thought_summary" else ""


DIALECT = Dialect(
    name=NAME,
    vendor=VENDOR,
    encoder=write.ENCODER,
    encode=write.encode_request,
    assembly=InteractionsAssembly,
    join_answers=JoinedInteractions,
    blocks=write.encode_blocks,
    is_silent=write.is_silent,
    parse_message=_parse_message,
    parse_answer=_parse_answer,
    parse_tools=lambda tool: [read.parse_tool(tool)],
    parse_usage=read.parse_usage,
    is_answer=lambda body: "steps" in body and "status" in body,
    is_message=_is_message,
    is_stream_event=lambda body: "event_type" in body,
    is_tool=lambda _tool: False,  # they look like those of Responses
    takes_tool=lambda tool: "type" in tool and "function" not in tool,
    list_faults=lambda body: validate.list_faults(
        body.get("input"),
        tools=list_of(body.get("tools")),
        system=body.get("system_instruction"),
    ),
    read_delta=_read_delta,
    read_thought=_read_thought,
    bounds=("generation_config.max_output_tokens",),
    sdk_method=("interactions", "create"),
    sdk_arguments={"input": []},
    messages="input",
    write_question=lambda text: {"type": USER, "content": [{"type": "text", "text": text}]},
    fixed=("system_instruction", "tools"),
    server_state=(
        *("previous_interaction_id", "background", "cached_content"),
        *("continuation_token", "agent"),
    ),
    must_be_told=write.must_be_told,
    is_model_item=is_model_item,
    is_content=is_content,
    parse_turn=lambda steps, saw: read.parse_turn(steps, saw=saw),
    chain_field="previous_interaction_id",
)
