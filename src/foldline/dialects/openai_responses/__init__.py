"""The OpenAI Responses dialect, also as llama.cpp and vLLM speak it.

The input is a list of items, not of messages: a model's turn is several of them. An item goes back
as it came: where the neutral form would lose something, its own JSON is kept beside the event and
sent again unless the event is shown shortened.
"""

from foldline.dialects.openai_responses.messages import (
    make_user_event,
    parse_items,
    parse_message,
    parse_response,
    parse_tool,
    parse_usage,
)
from foldline.dialects.openai_responses.stream import ResponsesAssembly
from foldline.dialects.openai_responses.validate import list_faults
from foldline.dialects.openai_responses.write import DIALECT, ENCODER, encode_blocks, encode_request

__all__ = [
    "DIALECT",
    "ENCODER",
    "ResponsesAssembly",
    "encode_blocks",
    "encode_request",
    "list_faults",
    "make_user_event",
    "parse_items",
    "parse_message",
    "parse_response",
    "parse_tool",
    "parse_usage",
]
