"""The Anthropic messages dialect, also as llama.cpp and others speak it.

A message goes back as it came: where the neutral form would lose something, the JSON of its blocks
is kept beside the event and sent again unless the event is shown shortened.
"""

from foldline.dialects.anthropic.messages import parse_answer, parse_message, parse_tool
from foldline.dialects.anthropic.stream import MessagesAssembly
from foldline.dialects.anthropic.validate import list_faults
from foldline.dialects.anthropic.write import DIALECT, ENCODER, encode_request

__all__ = [
    "DIALECT",
    "ENCODER",
    "MessagesAssembly",
    "encode_request",
    "list_faults",
    "parse_answer",
    "parse_message",
    "parse_tool",
]
