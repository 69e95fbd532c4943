"""OpenAI chat completions: messages, tools and completions ↔ events; requests → bytes.

Knows one dialect, also as llama.cpp, vLLM and Ollama speak it. Refuses to know sessions and HTTP.

A message goes back as it came: where the neutral form would not give it back, its own JSON is kept
beside the event and sent again unless the event is shown shortened.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from foldline.core import item as items
from foldline.core.item import Item
from foldline.core.log import (
    Call,
    Event,
    Gap,
    Instructed,
    Media,
    ModelSaid,
    Native,
    Part,
    Stop,
    Text,
    Thought,
    Tool,
    ToolReturned,
    UsageReported,
    UserSaid,
    calls_of,
    text_of,
)
from foldline.core.request import Request
from foldline.errors import BadInput

DIALECT = "openai-chat"
ENCODER = 1
"""Raised when the same request would be written in other bytes."""

_STOPS: dict[str, Stop] = {"length": "length", "content_filter": "refused"}
_RESPONSE_ONLY = (
    "annotations",
    "audio",
    "function_call",
    "reasoning",
    "reasoning_content",
    "refusal",
)

Json = dict[str, Any]
T = TypeVar("T")


class _Url(msgspec.Struct):
    url: str


class _Content(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: _Url | None = None


class _Function(msgspec.Struct):
    name: str
    arguments: str = "{}"


class _Call(msgspec.Struct):
    function: _Function
    id: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Content] | None = None
    name: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None


class _Schema(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: Json = {}


class _Tool(msgspec.Struct):
    function: _Schema


class _Choice(msgspec.Struct):
    message: Json
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _OutputDetails | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


# Reading.


def said(text: str) -> UserSaid:
    """A user's plain words."""
    return UserSaid((Text(_sound(text)),))


def message(given: Mapping[str, Any], *, saw: int | None = None) -> Event:
    """One message dict as an event."""
    body = _json(given)
    came = _read(body, _Message, "message")
    parts = _parts(came)
    event: Event
    match came.role:
        case "user":
            event = UserSaid(parts, author=came.name or "")
        case "assistant" | "model":
            event = ModelSaid(parts, saw=saw)
        case "tool":
            event = ToolReturned(came.tool_call_id or "", parts)
        case "system" | "developer":
            return Instructed(parts)
        case _:
            raise BadInput(
                f"a message of role {came.role!r}; "
                "known are system, developer, user, assistant and tool"
            )
    if _plain(body) == _plain(_again(event)):
        return event
    native = Native(DIALECT, msgspec.json.encode(body).decode())
    return msgspec.structs.replace(event, native=native)


def completion(given: Mapping[str, Any], *, saw: int | None, asked: int | None) -> list[Event]:
    """A completion as the events it tells of: the answer, then what it cost."""
    came = _read(_json(given), _Completion, "completion")
    if not came.choices:
        raise BadInput("a completion without choices; nothing was answered")
    events: list[Event] = []
    choice = came.choices[0]
    event = message({"role": "assistant", **choice.message}, saw=saw)
    assert isinstance(event, ModelSaid)  # noqa: S101
    stop = (
        "refused"
        if choice.message.get("refusal")
        else _STOPS.get(choice.finish_reason or "", "done")
    )
    events.append(msgspec.structs.replace(event, stop=stop))
    if came.usage is not None:
        prompt, output = came.usage.prompt_tokens_details, came.usage.completion_tokens_details
        events.append(
            UsageReported(
                asked=asked,
                input=came.usage.prompt_tokens,
                cache_read=prompt.cached_tokens if prompt else None,
                cache_write=prompt.cache_write_tokens if prompt else None,
                output=came.usage.completion_tokens,
                reasoning=output.reasoning_tokens if output else None,
            )
        )
    return events


def tool(given: Mapping[str, Any]) -> Tool:
    """One tool dict."""
    body = _json(given)
    schema = _read(body, _Tool, "tool").function
    neutral = Tool(
        schema.name, schema.description or "", msgspec.json.encode(schema.parameters).decode()
    )
    if _plain(body) == _plain(_json(_tool(neutral))):
        return neutral
    native = Native(DIALECT, msgspec.json.encode(body).decode())
    return msgspec.structs.replace(neutral, native=native)


# Writing.


def encode(request: Request, parameters: Mapping[str, Any]) -> bytes:
    """The request's bytes, from which the SDK's keyword arguments are decoded.

    Messages come last, so that a request that only grew begins with the bytes of the one before.
    """
    body: Json = {"model": request.model, **parameters}
    if request.tools:
        body["tools"] = [_raw(tool.native) or _tool(tool) for tool in request.tools]
    body["messages"] = [msgspec.Raw(block) for block in blocks(request)]
    return msgspec.json.encode(body)


def blocks(request: Request) -> list[bytes]:
    """The messages of a request, each in its own bytes."""
    written: list[bytes] = []
    media: list[Media] = []
    if request.system:
        written.append(_write({"role": "system", "content": text_of(request.system)}))
    for item in request.items:
        if media and item.role != "result":
            written.append(_write({"role": "user", "content": _contents(tuple(media))}))
            media = []
        if item.native is not None and item.native.dialect == DIALECT:
            written.append(item.native.body.encode())
            continue
        written.append(_write(_message(item)))
        if item.role == "result":
            # A tool message holds text only: pictures follow all results, as one user message.
            media += [part for part in item.parts if isinstance(part, Media)]
    if media:
        written.append(_write({"role": "user", "content": _contents(tuple(media))}))
    return written


def _message(item: Item) -> Json:
    match item.role:
        case "system":
            return {"role": "system", "content": text_of(item.parts)}
        case "user" | "handoff":
            return {"role": "user", "content": _contents(item.parts)}
        case "result":
            words = text_of(item.parts)
            if not item.ok and item.state == "whole" and not words.lower().startswith("error"):
                words = f"Error: {words}"
            return {"role": "tool", "tool_call_id": item.call_id, "content": words}
        case "model":
            words = text_of(part for part in item.parts if not isinstance(part, Thought))
            calls = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments or "{}"},
                }
                for call in calls_of(item.parts)
            ]
            body: Json = {"role": "assistant", "content": words or None}
            return {**body, "tool_calls": calls} if calls else body


def _contents(parts: tuple[Part, ...]) -> str | list[Json]:
    if not any(isinstance(part, Media) for part in parts):
        return text_of(parts)
    return [
        {"type": "text", "text": text_of((part,))} if not isinstance(part, Media) else _media(part)
        for part in parts
        if not isinstance(part, Call)
    ]


def _media(part: Media) -> Json:
    if part.form == "image":
        url = part.url or f"data:{part.mime};base64,{part.base64}"
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": f"[{part.form} {part.name or part.mime}]"}


def _tool(tool: Tool) -> Json:
    function: Json = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = msgspec.Raw(tool.schema.encode())
    return {"type": "function", "function": function}


def _raw(native: Native | None) -> msgspec.Raw | None:
    return msgspec.Raw(native.body.encode()) if native and native.dialect == DIALECT else None


def _write(body: Json) -> bytes:
    return msgspec.json.encode(body)


def _again(event: UserSaid | ModelSaid | ToolReturned) -> Json:
    """What the neutral form alone would be written as."""
    match event:
        case UserSaid():
            return _message(items.make(0, "user", event.parts))
        case ModelSaid():
            return _message(items.make(0, "model", event.parts))
        case ToolReturned():
            return _message(items.make(0, "result", event.parts, call_id=event.call_id))


def _plain(body: Json) -> Json:
    """A message or tool without what says nothing: nulls, empty lists, answers' own fields."""
    return {
        key: value
        for key, value in body.items()
        if value not in (None, []) and key not in _RESPONSE_ONLY and key != "name"
    }


def _parts(came: _Message) -> tuple[Part, ...]:
    parts: list[Part] = []
    if came.reasoning_content:
        parts.append(Thought(came.reasoning_content))
    if isinstance(came.content, str):
        parts.append(Text(came.content))
    for content in came.content if isinstance(came.content, list) else ():
        if content.image_url is not None:
            parts.append(_image(content.image_url.url))
        else:
            words = content.text if content.text is not None else content.refusal
            parts.append(Gap(f"[{content.type}]") if words is None else Text(words))
    if came.refusal:
        parts.append(Text(came.refusal))
    calls = (Call(c.id, c.function.name, c.function.arguments) for c in came.tool_calls or ())
    return (*parts, *calls)


def _image(url: str) -> Media:
    head, comma, body = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return Media("image", mime=head.removeprefix("data:"), base64=body)
    return Media("image", url=url)


def _sound(text: str) -> str:
    """Text that can be written down: halves of surrogate pairs become the replacement mark."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _json(given: Mapping[str, Any]) -> Json:
    """What was given as plain JSON that can be written down, whatever Python values it was."""
    try:
        return msgspec.json.decode(msgspec.json.encode(given))
    except UnicodeEncodeError:
        return cast("Json", _mended(given))
    except (TypeError, RecursionError, msgspec.DecodeError) as fault:
        raise BadInput(f"what was given is not JSON: {fault}") from fault


def _mended(given: Any) -> Any:
    if isinstance(given, str):
        return _sound(given)
    if isinstance(given, Mapping):
        pairs = cast("Mapping[str, Any]", given).items()
        return {_sound(key): _mended(value) for key, value in pairs}
    if isinstance(given, list | tuple):
        return [_mended(value) for value in cast("Sequence[Any]", given)]
    return given


def _read(given: Json, shape: type[T], what: str) -> T:
    try:
        return msgspec.convert(given, shape)
    except msgspec.ValidationError as fault:
        raise BadInput(f"not an OpenAI {what}: {fault}") from fault
