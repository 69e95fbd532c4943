"""Reads messages, tools and completions as events, and usage wherever a server puts it.

Where the neutral form would not be written as it came, the message's own JSON is kept beside it, if
a provider would accept it: a session sends only valid messages. A relayed request is not checked;
`client_messages` reads it.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import msgspec

from foldline.core.item import Item
from foldline.core.log import (
    Event,
    Instructed,
    ModelSaid,
    Stop,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import (
    Call,
    Gap,
    Media,
    Native,
    Part,
    Text,
    Thought,
    Tool,
    calls_of,
)
from foldline.dialects.json_slices import (
    Json,
    convert_to_json,
    convert_to_shape,
    dict_of,
    encode_json,
    parse_count,
    shaped_bytes,
)
from foldline.dialects.openai_chat.validate import list_faults
from foldline.dialects.openai_chat.write import DIALECT, LEGACY, write_message, write_tool
from foldline.errors import WireError


class _Url(msgspec.Struct):
    url: str


class _FilePart(msgspec.Struct):
    file_data: str = ""
    filename: str = ""


class _Audio(msgspec.Struct):
    data: str = ""
    format: str = ""


class _ContentPart(msgspec.Struct):
    type: str = "unknown"
    text: str | None = None
    refusal: str | None = None
    image_url: _Url | None = None
    file: _FilePart | None = None
    input_audio: _Audio | None = None
    thinking: str | list[Json] | None = None


class _Function(msgspec.Struct):
    name: str
    arguments: str | Json | None = None


class _Custom(msgspec.Struct):
    name: str
    input: str = ""


class _ToolCall(msgspec.Struct):
    function: _Function | None = None
    custom: _Custom | None = None
    id: str | None = None
    type: str | None = None


class _ChatMessage(msgspec.Struct):
    role: str
    content: str | list[_ContentPart] | None = None
    name: str | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    audio: Json | None = None
    function_call: _Function | None = None


class _Schema(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw(b"{}")


class _ToolShape(msgspec.Struct):
    type: str | None = None
    function: _Schema | None = None
    custom: _Schema | None = None


class _CompletionChoice(msgspec.Struct):
    message: Json
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_CompletionChoice]


Said: TypeAlias = UserSaid | ModelSaid | ToolReturned
_STOPS: dict[str, Stop] = {
    "length": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "content_filter": "refused",
    "cut": "cut",  # our own, for a stream that ended too early
    "error": "cut",
    "insufficient_system_resource": "cut",
}
_REASONING = ("reasoning", "reasoning_content")


def parse_message(given: Mapping[str, Any], *, saw: int | None = None) -> Event:
    """Parse a message dict into an event."""
    raw = encode_json(given)
    body: Json = msgspec.json.decode(raw)
    event = event_of(raw, saw=saw)
    if isinstance(event, Instructed):
        return event
    if isinstance(event, ModelSaid):
        body = _strip_server_fields(body)
    same = _strip_empty_fields(body) == _strip_empty_fields(encode_neutral_event(event))
    if same or not _can_send(body, event):
        return event
    native = Native(DIALECT, msgspec.json.encode(body).decode())
    return msgspec.structs.replace(event, native=native)


def parse_completion(
    given: Mapping[str, Any], *, saw: int | None, asked: int | None
) -> list[Event]:
    """Parse a completion into the answer, then its usage."""
    body = convert_to_json(given)
    came = convert_to_shape(body, _Completion, "an OpenAI completion")
    if not came.choices:
        raise WireError("a completion without choices; nothing was answered", path="$.choices")
    choice = came.choices[0]
    try:
        event = parse_message({"role": "", **choice.message} | {"role": "assistant"}, saw=saw)
    except WireError as fault:
        where = f"$.choices[0].message{fault.path[1:]}"
        raise WireError(str(fault), path=where) from fault
    stop = _STOPS.get(choice.finish_reason or "", "done")
    stop = "refused" if choice.message.get("refusal") and stop != "cut" else stop
    reported = parse_usage(body, asked=asked)
    answer = msgspec.structs.replace(cast("ModelSaid", event), stop=stop)
    return [answer, reported] if reported else [answer]


def parse_tool(given: Mapping[str, Any]) -> Tool:
    """Parse a tool dict."""
    raw = encode_json(given)
    body: Json = msgspec.json.decode(raw)
    neutral = tool_of(raw)
    if _strip_empty_fields(body) == _strip_empty_fields(convert_to_json(write_tool(neutral))):
        return neutral
    known = "function" in body or "custom" in body  # any other kind may be new
    if known and list_faults([{"role": "user", "content": "hi"}], tools=[body]):
        return neutral
    return msgspec.structs.replace(neutral, native=Native(DIALECT, raw.decode()))


def tool_of(raw: bytes | msgspec.Raw, *, path: str = "$") -> Tool:
    """Decode a tool's neutral form; a server's own tool is known by its type alone."""
    came = shaped_bytes(raw, _ToolShape, "an OpenAI tool", path=path)
    schema = came.function or came.custom
    if schema is None:
        if not came.type or came.type in ("function", "custom"):
            raise WireError(f"a tool without a function at {path}", path=path)
        return Tool(came.type)
    text = bytes(schema.parameters).decode()
    return Tool(schema.name, schema.description or "", "{}" if text == "null" else text)


def event_of(raw: bytes, *, saw: int | None = None) -> Said | Instructed:
    """Read a message as an event, without its own JSON."""
    came, path = shaped_bytes(raw, _ChatMessage, "an OpenAI message"), "$"
    parts = _parse_parts(came, path)
    if came.role in ("assistant", "model"):
        return ModelSaid(tuple(part for part in parts if not _is_blank(part)), saw=saw)
    # Only a model calls and thinks, whatever fields a message has.
    parts = tuple(part for part in parts if not isinstance(part, Call | Thought))
    match came.role:
        case "user":
            return UserSaid(parts, author=came.name or "")
        case "tool":
            return ToolReturned(came.tool_call_id or "", parts)
        case "function":
            return ToolReturned(f"{LEGACY}{came.name or ''}", parts)
        case "system" | "developer":
            return Instructed(parts)
        case _:
            raise WireError(
                f"a message of role {came.role!r} at {path}; "
                "known are system, developer, user, assistant, tool and function",
                path=f"{path}.role",
            )


def encode_neutral_event(event: Said) -> Json:
    """Write an event from its neutral form alone."""
    # Items get the size 0: counting tokens costs more than all else, and the size is not read here.
    match event:
        case UserSaid():
            return write_message(Item(0, "user", event.parts, 0))
        case ModelSaid():
            return write_message(Item(0, "model", event.parts, 0))
        case ToolReturned():
            return write_message(Item(0, "result", event.parts, 0, call_id=event.call_id))


def _can_send(body: Json, event: Said) -> bool:
    """Whether a provider would accept a message as it came, among its calls and results."""
    calls = calls_of(event.parts)
    if len(calls) > 1 and any(call.id.startswith(LEGACY) for call in calls):
        return False  # a call without an id cannot be paired among other results
    before: list[Json] = []
    if body["role"] == "tool" and isinstance(event, ToolReturned):
        function = {"name": "f", "arguments": "{}"}
        before = [
            {"role": "assistant", "tool_calls": [{"id": event.call_id, "function": function}]}
        ]
    after = [
        {"role": "tool", "tool_call_id": call.id, "content": "x"}
        for call in calls
        if not call.id.startswith(LEGACY)
    ]
    return not list_faults([*before, body, *after])


def _strip_empty_fields(body: Json) -> Json:
    """Drop nulls, empty lists and empty texts from a message or tool."""
    return {key: value for key, value in body.items() if value not in (None, [], "")}


def _strip_server_fields(body: Json) -> Json:
    """Drop from an answer the fields that servers send but do not accept back.

    Reasoning is one of them, except beside calls: there DeepSeek and OpenRouter insist on it.
    """
    wanted = bool(body.get("tool_calls") or body.get("reasoning_details"))
    kept = {
        key: value
        for key, value in body.items()
        if key == "content"
        or (value not in (None, []) and key != "annotations" and (wanted or key not in _REASONING))
    }
    if isinstance(audio := body.get("audio"), dict) and "id" in audio:
        kept["audio"] = {"id": cast("Json", audio)["id"]}
    return kept


def _parse_parts(came: _ChatMessage, path: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    if thought := came.reasoning_content or came.reasoning:
        parts.append(Thought(thought))
    if isinstance(came.content, str):
        parts.append(Text(came.content))
    else:
        parts += [_parse_content_part(content) for content in came.content or ()]
    if came.refusal:
        parts.append(Text(came.refusal))
    # _Audio has no neutral form: it is named, and the message's own JSON goes back.
    parts += [Gap("[audio]")] if came.audio else []
    if came.function_call:
        name = came.function_call.name
        parts.append(Call(f"{LEGACY}{name}", name, _encode_arguments(came.function_call)))
    calls = enumerate(came.tool_calls or ())
    return (*parts, *(_parse_call(call, f"{path}.tool_calls[{place}]") for place, call in calls))


def _is_blank(part: Part) -> bool:
    return isinstance(part, Text) and not part.text.strip()


def _parse_content_part(content: _ContentPart) -> Part:
    if content.image_url is not None:
        return _parse_image_url(content.image_url.url)
    if content.file is not None and content.file.file_data:
        mime, _, body = content.file.file_data.removeprefix("data:").partition(";base64,")
        return Media("file", mime=mime, base64=body, name=content.file.filename)
    if content.input_audio is not None:
        sound_format = content.input_audio.format
        return Media("audio", mime=f"audio/{sound_format}", base64=content.input_audio.data)
    if isinstance(content.thinking, list):  # Mistral's
        thoughts = (str(thought.get("text") or "") for thought in content.thinking)
        return Thought("\n".join(thoughts))
    if content.thinking is not None:
        return Thought(content.thinking)
    words = content.text if content.text is not None else content.refusal
    return Gap(f"[{content.type}]") if words is None else Text(words)


def _parse_call(call: _ToolCall, path: str) -> Call:
    if call.function is not None:
        return Call(call.id or "", call.function.name, _encode_arguments(call.function))
    if call.custom is not None:
        return Call(call.id or "", call.custom.name, call.custom.input)
    if call.id and call.type:
        return Call(call.id, call.type)  # an unknown kind: its own JSON goes back
    raise WireError(
        f"a tool call {call.id!r} that is neither a function nor custom at {path}", path=path
    )


def _encode_arguments(function: _Function) -> str:
    """Return the arguments as text; Mistral and Ollama send an object."""
    if isinstance(function.arguments, str):
        return function.arguments
    return msgspec.json.encode(function.arguments or {}).decode()


def _parse_image_url(url: str) -> Media:
    head, comma, body = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return Media("image", mime=head.removeprefix("data:"), base64=body)
    return Media("image", url=url)


def parse_usage(body: Json, *, asked: int | None) -> UsageReported | None:
    """Return the usage that a whole body reports, or None.

    In every one of these, the prompt's tokens include the cached, and the output the reasoning.
    """
    usage = dict_of(body.get("usage")) or dict_of(dict_of(body.get("x_groq")).get("usage"))
    timings = dict_of(body.get("timings"))  # llama.cpp; its prompt figure excludes the cache
    prompt = dict_of(usage.get("prompt_tokens_details"))
    output = dict_of(usage.get("completion_tokens_details"))
    cache_hit = parse_count(usage, "prompt_cache_hit_tokens")
    cache_n = parse_count(timings, "cache_n")
    report = UsageReported(
        asked=asked,
        input=_find_first(
            parse_count(usage, "prompt_tokens"),
            _sum_counts(cache_hit, parse_count(usage, "prompt_cache_miss_tokens")),
            _sum_counts(cache_n, parse_count(timings, "prompt_n")),
            parse_count(body, "prompt_eval_count"),  # Ollama's own endpoint
        ),
        cache_read=_find_first(parse_count(prompt, "cached_tokens"), cache_hit, cache_n),
        cache_write=_find_first(
            parse_count(prompt, "cache_write_tokens"), parse_count(prompt, "created_cache_tokens")
        ),
        output=_find_first(
            parse_count(usage, "completion_tokens"),
            parse_count(timings, "predicted_n"),
            parse_count(body, "eval_count"),
        ),
        reasoning=parse_count(output, "reasoning_tokens"),
    )
    return None if report == UsageReported(asked=asked) else report


def _find_first(*figures: int | None) -> int | None:
    return next((figure for figure in figures if figure is not None), None)


def _sum_counts(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
