"""The entry of Anthropic's messages in the registry."""

from collections.abc import Mapping
from typing import Any

from foldline.core.log import Event
from foldline.dialects.anthropic import read, validate, write
from foldline.dialects.anthropic.joined_messages import JoinedMessages
from foldline.dialects.anthropic.stream import MessagesAssembly
from foldline.dialects.base import Dialect, Vendor
from foldline.dialects.json_slices import Json, dict_of, list_of

_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "document", "image")
_OTHERS = ("input_", "output_", "refusal")  # how blocks of other dialects' messages are called
_FLAT = {"parameters", "format"}  # what tools of other dialects have beside their name
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def encode_error(status: int, _code: str, message: str) -> Json:
    """Write an error as Anthropic's SDK reads it."""
    kind = _ERRORS.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def _kinds_of(body: Mapping[str, Any]) -> list[str]:
    return [str(dict_of(block).get("type")) for block in list_of(body.get("content"))]


def _is_answer(body: Mapping[str, Any]) -> bool:
    if body.get("type") != "message" or "content" not in body:
        return False
    return not any(kind.startswith(_OTHERS) for kind in _kinds_of(body))


_STREAM_EVENTS = (
    *("message_start", "message_delta", "message_stop", "ping"),
    *("content_block_start", "content_block_delta", "content_block_stop"),
)


def _is_message(body: Mapping[str, Any]) -> bool:
    return any(kind in _BLOCKS for kind in _kinds_of(body))


def _parse_message(body: Mapping[str, Any], saw: int | None) -> list[Event]:
    return read.parse_message(body, saw=saw)


def _parse_answer(body: Mapping[str, Any], saw: int | None, asked: int | None) -> list[Event]:
    return read.parse_answer(body, saw=saw, asked=asked)


def _list_faults(body: Mapping[str, Any]) -> list[str]:
    return validate.list_faults(
        list_of(body.get("messages")),
        tools=list_of(body.get("tools")),
        system=body.get("system") or (),
        thinks=write.thinks_manually(body),
    )


def _read_delta(body: Json) -> str:
    said = dict_of(body.get("delta")).get("text")
    return said if isinstance(said, str) else ""


def _read_thought(body: Json) -> str:
    said = dict_of(body.get("delta")).get("thinking")
    return said if isinstance(said, str) else ""


VENDOR = Vendor(
    name="anthropic",
    title="Anthropic",
    address="https://api.anthropic.com",
    variable="ANTHROPIC_BASE_URL",
    key_header=(b"x-api-key", ""),
    encode_error=encode_error,
    routes=("/v1/messages",),
    marks=(b"anthropic-version",),
)
DIALECT = Dialect(
    name=write.DIALECT,
    vendor=VENDOR,
    encoder=write.ENCODER,
    encode=write.encode_request,
    assembly=MessagesAssembly,
    join_answers=JoinedMessages,
    blocks=write.encode_blocks,
    is_silent=write.is_silent,
    parse_message=_parse_message,
    parse_answer=_parse_answer,
    parse_tools=lambda tool: [read.parse_tool(tool)],
    parse_usage=read.parse_usage,
    is_answer=_is_answer,
    is_message=_is_message,
    is_stream_event=lambda body: body.get("type") in _STREAM_EVENTS,
    is_tool=lambda tool: "input_schema" in tool or ("name" in tool and not _FLAT & tool.keys()),
    list_faults=_list_faults,
    read_delta=_read_delta,
    read_thought=_read_thought,
    bounds=("max_tokens",),
    sdk_method=("messages", "create"),
    sdk_arguments={"messages": [], "max_tokens": 0},
    must_bound=True,
    allows_prefill=True,
    must_be_told=write.must_be_told,
    thinks_manually=write.thinks_manually,
    change_thoughtless=write.change_thoughtless,
    fit_parameters=write.fit_parameters,
    results_in="content",
)
