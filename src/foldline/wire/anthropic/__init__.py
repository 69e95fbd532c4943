"""Anthropic messages, also as llama.cpp and others speak them.

A message goes back as it came: where the neutral form would not give it back, its blocks' own JSON
is kept beside the event and sent again unless the event is shown shortened.
"""

from foldline.wire.anthropic.check import faults
from foldline.wire.anthropic.ending import is_silent, must_be_told
from foldline.wire.anthropic.read import answer, message, said, tool
from foldline.wire.anthropic.stream import Assembly
from foldline.wire.anthropic.write import DIALECT, ENCODER, blocks, encode

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
