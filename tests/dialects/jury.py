"""Both judges of both dialects: our own rules, and the types of the official SDKs.

Knows how to ask them. Refuses to know where a request came from: tests and benches bring theirs.
"""

import json
from typing import Any

import anthropic as anthropic_sdk
import openai as openai_sdk
from anthropic.types import MessageParam, TextBlockParam, ToolUnionParam
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam
from pydantic import TypeAdapter, ValidationError

from foldline.core.request import Request
from foldline.dialects import anthropic, openai_chat

NAMES = f"openai {openai_sdk.__version__}, anthropic {anthropic_sdk.__version__}"
CHAT = {
    "messages": TypeAdapter(list[ChatCompletionMessageParam]),
    "tools": TypeAdapter(list[ChatCompletionToolUnionParam]),
}
MESSAGES = {
    "messages": TypeAdapter(list[MessageParam]),
    "tools": TypeAdapter(list[ToolUnionParam]),
    "system": TypeAdapter(str | list[TextBlockParam]),
}
DIALECTS = ((openai_chat, CHAT), (anthropic, MESSAGES))


def refused(request: Request) -> list[str]:
    """What either judge of either dialect finds in a request, as it is encoded.

    Who must speak last is no matter of the encoding: a session writes that to its log before it
    asks, and tests/properties/test_tails.py holds it.
    """
    found: list[str] = []
    for wire, adapters in DIALECTS:
        if wire is anthropic and anthropic.is_silent(request):
            continue
        body = json.loads(wire.encode(request, {}))
        given = {name: body[name] for name in adapters if name in body}
        ends = {"prefill": True} if wire is anthropic else {}
        found += [f"{wire.DIALECT}: ours: {one}" for one in wire.faults(**given, **ends)]
        found += [f"{wire.DIALECT}: SDK: {one}" for one in mistyped(given, adapters)]
    return found


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
    elif value is not None and not isinstance(value, str | bytes | int | float):
        for one in value:  # type: ignore[attr-defined]
            _drain(one)
