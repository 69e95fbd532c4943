"""Google's `generateContent`, as the Gemini API and Vertex AI speak it.

A content goes back as it came: where the neutral form would lose something, its parts are kept
beside the event and sent again unless the event is shown shortened.
"""

from foldline.dialects.gemini.content_parts import DIALECT
from foldline.dialects.gemini.messages import parse_answer, parse_message, parse_tools
from foldline.dialects.gemini.stream import GenerateContentAssembly
from foldline.dialects.gemini.validate import list_faults
from foldline.dialects.gemini.write import ENCODER, encode_request

__all__ = [
    "DIALECT",
    "ENCODER",
    "GenerateContentAssembly",
    "encode_request",
    "list_faults",
    "parse_answer",
    "parse_message",
    "parse_tools",
]
