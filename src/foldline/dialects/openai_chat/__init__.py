"""The OpenAI chat completions dialect, also as llama.cpp, vLLM and Ollama speak it.

A message goes back as it came: where the neutral form would lose something, its own JSON is kept
beside the event and sent again unless the event is shown shortened.
"""

from foldline.dialects.openai_chat.messages import (
    parse_completion,
    parse_message,
    parse_tool,
    parse_usage,
)
from foldline.dialects.openai_chat.stream import ChatAssembly
from foldline.dialects.openai_chat.validate import list_faults
from foldline.dialects.openai_chat.write import DIALECT, ENCODER, encode_blocks, encode_request

__all__ = [
    "DIALECT",
    "ENCODER",
    "ChatAssembly",
    "encode_blocks",
    "encode_request",
    "list_faults",
    "parse_completion",
    "parse_message",
    "parse_tool",
    "parse_usage",
]
