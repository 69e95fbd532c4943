"""OpenAI chat completions, also as llama.cpp, vLLM and Ollama speak them.

A message goes back as it came: where the neutral form would not give it back, its own JSON is kept
beside the event and sent again unless the event is shown shortened.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from foldline.dialects.openai_chat.read import completion, message, said, tool
from foldline.dialects.openai_chat.usage import usage
from foldline.dialects.openai_chat.validate import faults
from foldline.dialects.openai_chat.write import DIALECT, ENCODER, blocks, encode

if TYPE_CHECKING:
    from foldline.dialects.openai_chat.stream import Assembly

__all__ = [
    "DIALECT",
    "ENCODER",
    "Assembly",
    "blocks",
    "completion",
    "encode",
    "faults",
    "message",
    "said",
    "tool",
    "usage",
]

_LATER = {"Assembly": "stream"}


def __getattr__(name: str) -> Any:
    """What gateways and streams need is imported when they do."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
