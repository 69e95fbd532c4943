"""Google's Interactions, which chain by an id on the server, or hold the whole history.

A turn of the model goes back as it came: where the neutral form would lose something, its steps are
kept beside the event and sent again unless the event is shown shortened.
"""

from foldline.dialects.gemini_interactions.messages import parse_answer, parse_message, parse_tool
from foldline.dialects.gemini_interactions.steps import DIALECT
from foldline.dialects.gemini_interactions.stream import InteractionsAssembly
from foldline.dialects.gemini_interactions.validate import list_faults
from foldline.dialects.gemini_interactions.write import ENCODER, encode_request

__all__ = [
    "DIALECT",
    "ENCODER",
    "InteractionsAssembly",
    "encode_request",
    "list_faults",
    "parse_answer",
    "parse_message",
    "parse_tool",
]
