"""Both judges of every dialect: our own rules, and the types of the official SDKs.

Knows how to ask them. Refuses to know where a request came from: tests and benches bring theirs.
A dialect without an entry in `SDK` fails here: no dialect is without a second judge.
"""

import json
from collections.abc import Sequence
from typing import Any

import anthropic as anthropic_sdk
import google.genai as google_sdk
import openai as openai_sdk
from anthropic.types import MessageParam, TextBlockParam, ToolUnionParam
from google.genai import interactions
from google.genai.types import Content, GenerateContentConfig
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam
from openai.types.responses import ResponseInputParam, ToolParam
from pydantic import BaseModel, TypeAdapter, ValidationError

from foldline.core.request import Request
from foldline.dialects.base import Dialect, list_dialects

NAMES = (
    f"openai {openai_sdk.__version__}, anthropic {anthropic_sdk.__version__}, "
    f"google-genai {google_sdk.__version__}"
)
CHAT = {
    "messages": TypeAdapter(list[ChatCompletionMessageParam]),
    "tools": TypeAdapter(list[ChatCompletionToolUnionParam]),
}
MESSAGES = {
    "messages": TypeAdapter(list[MessageParam]),
    "tools": TypeAdapter(list[ToolUnionParam]),
    "system": TypeAdapter(str | list[TextBlockParam]),
}
RESPONSES = {
    "input": TypeAdapter(ResponseInputParam),
    "instructions": TypeAdapter(str),
    "tools": TypeAdapter(list[ToolParam]),
}
GEMINI = {"contents": TypeAdapter(list[Content]), "config": TypeAdapter(GenerateContentConfig)}
INTERACTIONS = {
    "input": TypeAdapter(list[interactions.Step]),
    "system_instruction": TypeAdapter(str),
    "tools": TypeAdapter(list[interactions.Tool]),
}
SDK: dict[str, dict[str, TypeAdapter[Any]]] = {
    "openai-chat": CHAT,
    "anthropic": MESSAGES,
    "openai-responses": RESPONSES,
    "gemini": GEMINI,
    "gemini-interactions": INTERACTIONS,
}
"""The second judge: the SDK's own types of a body's fields, by dialect."""
_LAST = "last: the conversation must end"


def refused(request: Request, dialects: Sequence[Dialect] = ()) -> list[str]:
    """What either judge finds in a request, as each dialect encodes it; all, if none is named.

    Who must speak last is no matter of the encoding: a session writes that to its log before it
    asks, and tests/properties/test_tails.py holds it.
    """
    found: list[str] = []
    for dialect in dialects or list_dialects():
        if not dialect.is_silent(request):
            body = json.loads(dialect.encode_request(request, {}))
            found += [f"{dialect.name}: {one}" for one in refused_body(dialect, body)]
    return found


def refused_body(dialect: Dialect, body: dict[str, Any]) -> list[str]:
    """What either judge finds in a body."""
    adapters = SDK[dialect.name]
    given = {name: body[name] for name in adapters if name in body}
    ours = [one for one in dialect.list_faults(body) if not one.startswith(_LAST)]
    return [f"ours: {one}" for one in ours] + [f"SDK: {one}" for one in mistyped(given, adapters)]


def mistyped(given: dict[str, Any], adapters: dict[str, TypeAdapter[Any]]) -> list[str]:
    """What the SDK's types say against the fields of a body."""
    found: list[str] = []
    for name, value in given.items():
        try:
            _drain(adapters[name].validate_python(value))
        except ValidationError as fault:
            first = fault.errors()[0]
            found.append(f"{name}: {fault.error_count()} errors, {first['loc']}: {first['msg']}")
    return found


def _drain(value: object) -> None:
    """Look at everything: iterables of the SDKs' types are judged only when they are read."""
    if isinstance(value, dict):
        for one in value.values():
            _drain(one)
    elif value is not None and not isinstance(value, str | bytes | int | float | BaseModel):
        for one in value:  # type: ignore[attr-defined]
            _drain(one)
