"""The entry of Gemini's `generateContent` in the registry."""

import re
from collections.abc import Mapping
from typing import Any

from foldline.core.log import Event
from foldline.dialects.base import Dialect, PathFacts
from foldline.dialects.gemini import client_messages, content_parts, read, validate, write
from foldline.dialects.gemini.content_parts import is_thought, parts_of
from foldline.dialects.gemini.joined_contents import JoinedContents
from foldline.dialects.gemini.stream import GenerateContentAssembly
from foldline.dialects.google import VENDOR
from foldline.dialects.json_slices import Json, dict_of, list_of

_PATH = re.compile(r"/(?:models|tunedModels|endpoints)/([^/:?]+):(\w+)$")
_SERVED = re.compile(r"google[A-Z]|codeExecution$|urlContext$|fileSearch$|computerUse$|mcpServers$")


_ANSWERS = {"candidates", "promptFeedback", "prompt_feedback"}


_ESCAPED = re.compile(r"%([2-7][0-9a-fA-F])")


def _decode(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1], 16))


def _read_path(path: str, query: str) -> PathFacts:
    """Read the model and whether the answer is streamed: as events only if `alt` asks for them."""
    found = _PATH.search(path)
    model, method = (_ESCAPED.sub(_decode, found[1]), found[2]) if found else ("", "")
    return PathFacts(model, method == "streamGenerateContent" and "alt=sse" in query)


def _parse_message(body: Mapping[str, Any], saw: int | None) -> list[Event]:
    return read.parse_message(body, saw=saw)


def _parse_answer(body: Mapping[str, Any], saw: int | None, asked: int | None) -> list[Event]:
    return read.parse_answer(body, saw=saw, asked=asked)


def _is_tool(tool: Mapping[str, Any]) -> bool:
    names = {*content_parts.rename_fields(dict(tool))}
    if "functionDeclarations" in names or (names and all(map(_SERVED.match, names))):
        return True
    return "name" in names and "type" not in names and bool(_SCHEMAS & names)


_SCHEMAS = {"parameters", "parametersJsonSchema"}


def _list_faults(body: Mapping[str, Any]) -> list[str]:
    config = dict_of(body.get("config"))
    return validate.list_faults(
        list_of(body.get("contents")),
        tools=list_of(config.get("tools")),
        system=config.get("systemInstruction"),
        signed=write.must_sign_calls(str(body.get("model") or "")),
    )


def _read_delta(body: Json) -> str:
    candidate = dict_of(next(iter(list_of(body.get("candidates"))), None))
    parts = parts_of(dict_of(candidate.get("content")))
    said = (part["text"] for part in parts if "text" in part and not is_thought(part))
    return "".join(one for one in said if isinstance(one, str))


def _read_thought(body: Json) -> str:
    candidate = dict_of(next(iter(list_of(body.get("candidates"))), None))
    parts = parts_of(dict_of(candidate.get("content")))
    said = (part["text"] for part in parts if "text" in part and is_thought(part))
    return "".join(one for one in said if isinstance(one, str))


DIALECT = Dialect(
    name=content_parts.DIALECT,
    vendor=VENDOR,
    encoder=write.ENCODER,
    encode=write.encode_request,
    assembly=GenerateContentAssembly,
    join_answers=JoinedContents,
    blocks=write.encode_blocks,
    is_silent=write.is_silent,
    parse_message=_parse_message,
    parse_answer=_parse_answer,
    parse_tools=read.parse_tools,
    parse_usage=read.parse_usage,
    is_answer=lambda body: bool(_ANSWERS & body.keys()),
    is_message=lambda body: isinstance(body.get("parts"), list),
    is_stream_event=lambda _: False,  # a piece is a whole answer by itself
    is_tool=_is_tool,
    list_faults=_list_faults,
    read_delta=_read_delta,
    read_thought=_read_thought,
    bounds=(
        "config.maxOutputTokens",
        "config.max_output_tokens",
        "generationConfig.maxOutputTokens",
        "generationConfig.max_output_tokens",
    ),
    sdk_method=("models", "generate_content"),
    sdk_arguments={},
    messages="contents",
    write_question=lambda text: {"role": "user", "parts": [{"text": text}]},
    fixed=("systemInstruction", "tools"),
    aliases={
        "system_instruction": "systemInstruction",
        "generation_config": "generationConfig",
        "cached_content": "cachedContent",
    },
    server_state=("cachedContent",),
    read_path=_read_path,
    must_be_told=write.must_be_told,
    write_count=lambda tokens: {"totalTokens": tokens},
    results_in="parts",
    orders_results=True,
    fit_results=client_messages.fit_results,
)
