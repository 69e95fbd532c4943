# pyright: basic, reportMissingImports=false
"""Writes pydantic-ai's messages as OpenAI's chat has them, and builds its messages of a plan.

A request of pydantic-ai's has several parts, and each is a message of its own in a chat.
"""

from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext

from foldline.proxy.follow import FollowPlan, PlannedMessage


class MessagePiece(NamedTuple):
    """One message of a request as it is written, and what it is written from."""

    written: dict[str, Any]
    message: int | None = None
    """Which message of the history; None for the instructions, which pydantic-ai sends itself."""
    part: Any = None
    """The part of a request; None for a response, which is one piece."""


def list_pieces(context: ModelRequestContext) -> list[MessagePiece]:
    """List the messages of a request as OpenAI's chat has them, the instructions first."""
    instructions = context.model_request_parameters.instruction_parts or ()
    words = "\n\n".join(part.content for part in instructions)
    pieces = [MessagePiece({"role": "system", "content": words})] if words else []
    for at, own in enumerate(context.messages):
        if isinstance(own, ModelResponse):
            pieces.append(MessagePiece(_write_response(own), at))
        else:
            pieces += [MessagePiece(_write_part(part), at, part) for part in own.parts]
    return pieces


def write_request(context: ModelRequestContext, pieces: list[MessagePiece]) -> dict[str, Any]:
    """Write a request as OpenAI's chat has it."""
    parameters = context.model_request_parameters
    body: dict[str, Any] = {"model": context.model.model_name}
    body["messages"] = [one.written for one in pieces]
    if most := (context.model_settings or {}).get("max_tokens"):
        body["max_tokens"] = most
    for tool in (*parameters.function_tools, *parameters.output_tools):
        function = {"name": tool.name, "description": tool.description or ""}
        function["parameters"] = tool.parameters_json_schema
        body.setdefault("tools", []).append({"type": "function", "function": function})
    return body


def _write_response(response: ModelResponse) -> dict[str, Any]:
    written: dict[str, Any] = {"role": "assistant", "content": response.text}
    thoughts = [part for part in response.parts if isinstance(part, ThinkingPart)]
    if thoughts:  # sent with the rest, sealed or not, so they are counted
        texts = (part.content + (part.signature or "") for part in thoughts)
        written["reasoning_content"] = "".join(texts)
    for call in response.tool_calls:
        function = {"name": call.tool_name, "arguments": call.args_as_json_str()}
        made = {"id": call.tool_call_id, "type": "function", "function": function}
        written.setdefault("tool_calls", []).append(made)
    return written


def _write_part(part: Any) -> dict[str, Any]:
    """Write a part of a request: what the user says, a result, or a word of the framework's."""
    content = getattr(part, "content", None)
    if isinstance(part, UserPromptPart):
        blocks = content if isinstance(content, str) else [*map(_write_block, part.content)]
        return {"role": "user", "content": blocks}
    tell = getattr(part, "model_response_str", None) or getattr(part, "model_response", None)
    if tell is None:  # what it says, if anything, is an instruction
        words = content if isinstance(content, str) else f"[{part.part_kind}]"
        return {"role": "system", "content": words}
    if getattr(part, "tool_name", None):
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": tell()}
    return {"role": "user", "content": tell()}


def _write_block(one: Any) -> dict[str, Any]:
    text = one if isinstance(one, str) else getattr(one, "content", None)
    address = getattr(one, "url", None) or getattr(one, "data_uri", None)
    if not isinstance(text, str) and address and one.kind in ("image-url", "binary"):
        return {"type": "image_url", "image_url": {"url": address}}
    return {"type": "text", "text": text if isinstance(text, str) else f"[{type(one).__name__}]"}


def read_messages(
    given: list[ModelMessage], pieces: list[MessagePiece], plan: FollowPlan
) -> list[ModelMessage]:
    """Build what is sent: pydantic-ai's own messages wherever nothing was edited."""

    def find_message(shown: PlannedMessage) -> int | None:
        return None if shown.place is None else pieces[shown.place].message

    messages: list[ModelMessage] = []
    for at, run in groupby(plan.shown, key=find_message):
        if at is None:
            messages += [_read_written(one.message) for one in run if one.place is None]
            continue
        own = given[at]
        if isinstance(own, ModelRequest):
            parts = [_read_part(pieces[one.place or 0].part, one) for one in run]
            own = own if parts == [*own.parts] else replace(own, parts=parts)
        messages.append(own)
    return messages


def _read_part(part: Any, shown: PlannedMessage) -> Any:
    return part if shown.same else replace(part, content=shown.message["content"])


def _read_written(written: dict[str, Any]) -> ModelMessage:
    """Read a message that Foldline wrote: a handoff, or the model's word that it has read it."""
    words = str(written.get("content") or "")
    is_said = written["role"] == "assistant"
    return ModelResponse([TextPart(words)]) if is_said else ModelRequest([UserPromptPart(words)])
