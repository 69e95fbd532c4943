"""Anthropic messages, also as llama.cpp and others speak them.

A message goes back as it came: where the neutral form would not give it back, its blocks' own JSON
is kept beside the event and sent again unless the event is shown shortened.
"""

from foldline.dialects.anthropic.ending import is_silent, must_be_told
from foldline.dialects.anthropic.read import answer, message, said, tool
from foldline.dialects.anthropic.stream import Assembly
from foldline.dialects.anthropic.validate import faults
from foldline.dialects.anthropic.write import DIALECT, ENCODER, blocks, encode

__all__ = [
    "DIALECT",
    "ENCODER",
    "Assembly",
    "answer",
    "blocks",
    "encode",
    "faults",
    "is_silent",
    "message",
    "must_be_told",
    "said",
    "tool",
]
