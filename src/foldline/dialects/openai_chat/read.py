"""Messages, tools and completions as events.

Knows what servers and clients of this dialect write. Refuses to know sessions. Where the neutral
form would not be written as it came, the message's own JSON is kept beside it, if a provider would
take it: a session sends what is valid, only a relayed request (`request`) goes back whatever it is.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import msgspec

from foldline.core.item import Item
from foldline.core.log import Event, Instructed, ModelSaid, Stop, ToolReturned, UserSaid
from foldline.core.parts import Call, Gap, Media, Native, Part, Text, Thought, Tool, calls_of, sound
from foldline.dialects.json_reader import Json, plain, shaped, shaped_bytes
from foldline.dialects.openai_chat.shapes import (
    ChatMessage,
    Completion,
    ContentPart,
    Function,
    ToolCall,
    ToolShape,
)
from foldline.dialects.openai_chat.usage import usage
from foldline.dialects.openai_chat.validate import faults
from foldline.dialects.openai_chat.write import DIALECT, LEGACY, write_message, write_tool
from foldline.errors import WireError

Said: TypeAlias = UserSaid | ModelSaid | ToolReturned
_STOPS: dict[str, Stop] = {
    "length": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "content_filter": "refused",
    "cut": "cut",  # our own, of a stream that ended too early
    "error": "cut",
    "insufficient_system_resource": "cut",
}
_REASONING = ("reasoning", "reasoning_content")


def said(text: str) -> UserSaid:
    """A user's plain words."""
    return UserSaid((Text(sound(text)),))


def message(given: Mapping[str, Any], *, saw: int | None = None) -> Event:
    """One message dict as an event."""
    body = plain(given)
    event = event_of(shaped(body, ChatMessage, "an OpenAI message"), saw=saw)
    if isinstance(event, Instructed):
        return event
    if isinstance(event, ModelSaid):
        body = _returnable(body)
    if _telling(body) == _telling(written(event)) or not _sendable(body, event):
        return event
    native = Native(DIALECT, msgspec.json.encode(body).decode())
    return msgspec.structs.replace(event, native=native)


def completion(given: Mapping[str, Any], *, saw: int | None, asked: int | None) -> list[Event]:
    """A completion as the events it tells of: the answer, then what it cost."""
    body = plain(given)
    came = shaped(body, Completion, "an OpenAI completion")
    if not came.choices:
        raise WireError("a completion without choices; nothing was answered", path="$.choices")
    choice = came.choices[0]
    try:
        event = message({"role": "", **choice.message} | {"role": "assistant"}, saw=saw)
    except WireError as fault:
        where = f"$.choices[0].message{fault.path[1:]}"
        raise WireError(str(fault), path=where) from fault
    stop = _STOPS.get(choice.finish_reason or "", "done")
    stop = "refused" if choice.message.get("refusal") and stop != "cut" else stop
    reported = usage(body, asked=asked)
    answer = msgspec.structs.replace(cast("ModelSaid", event), stop=stop)
    return [answer, reported] if reported else [answer]


def tool(given: Mapping[str, Any]) -> Tool:
    """One tool dict."""
    body = plain(given)
    raw = msgspec.json.encode(body)
    neutral = tool_of(raw)
    if _telling(body) == _telling(plain(write_tool(neutral))):
        return neutral
    known = "function" in body or "custom" in body  # another kind may be of tomorrow
    if known and faults([{"role": "user", "content": "hi"}], tools=[body]):
        return neutral
    return msgspec.structs.replace(neutral, native=Native(DIALECT, raw.decode()))


def tool_of(raw: bytes | msgspec.Raw, *, path: str = "$") -> Tool:
    """A tool's neutral form; one that the server itself has is known by its type alone."""
    came = shaped_bytes(raw, ToolShape, "an OpenAI tool", path=path)
    schema = came.function or came.custom
    if schema is None:
        if not came.type or came.type in ("function", "custom"):
            raise WireError(f"a tool without a function at {path}", path=path)
        return Tool(came.type)
    text = bytes(schema.parameters).decode()
    return Tool(schema.name, schema.description or "", "{}" if text == "null" else text)


def event_of(came: ChatMessage, *, saw: int | None = None, path: str = "$") -> Said | Instructed:
    """The event that a message is, without its own JSON."""
    parts = _parts(came, path)
    if came.role in ("assistant", "model"):
        return ModelSaid(tuple(part for part in parts if not _blank(part)), saw=saw)
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


def written(event: Said) -> Json:
    """What the neutral form alone would be written as."""
    # Without its size, which costs more than all else and is not looked at.
    match event:
        case UserSaid():
            return write_message(Item(0, "user", event.parts, 0))
        case ModelSaid():
            return write_message(Item(0, "model", event.parts, 0))
        case ToolReturned():
            return write_message(Item(0, "result", event.parts, 0, call_id=event.call_id))


def _sendable(body: Json, event: Said) -> bool:
    """Whether a message would be taken as it came, between what it answers and its answers."""
    calls = calls_of(event.parts)
    if len(calls) > 1 and any(call.id.startswith(LEGACY) for call in calls):
        return False  # one without an id has no place among the others' results
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
    return not faults([*before, body, *after])


def _telling(body: Json) -> Json:
    """A message or tool without what says nothing: nulls, empty lists, empty words."""
    return {key: value for key, value in body.items() if value not in (None, [], "")}


def _returnable(body: Json) -> Json:
    """An answer without what servers put in and do not take back.

    Its reasoning is one of these, but beside calls: there DeepSeek and OpenRouter insist on it.
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


def _parts(came: ChatMessage, path: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    if thought := came.reasoning_content or came.reasoning:
        parts.append(Thought(thought))
    if isinstance(came.content, str):
        parts.append(Text(came.content))
    else:
        parts += [_content(content) for content in came.content or ()]
    if came.refusal:
        parts.append(Text(came.refusal))
    # What has no neutral form yet is at least named; the message's own JSON goes back.
    parts += [Gap("[audio]")] if came.audio else []
    if came.function_call:
        name = came.function_call.name
        parts.append(Call(f"{LEGACY}{name}", name, _arguments(came.function_call)))
    calls = enumerate(came.tool_calls or ())
    return (*parts, *(_call(call, f"{path}.tool_calls[{place}]") for place, call in calls))


def _blank(part: Part) -> bool:
    return isinstance(part, Text) and not part.text.strip()


def _content(content: ContentPart) -> Part:
    if content.image_url is not None:
        return _image(content.image_url.url)
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


def _call(call: ToolCall, path: str) -> Call:
    if call.function is not None:
        return Call(call.id or "", call.function.name, _arguments(call.function))
    if call.custom is not None:
        return Call(call.id or "", call.custom.name, call.custom.input)
    if call.id and call.type:
        return Call(call.id, call.type)  # of a kind that is not known yet: its own JSON goes back
    raise WireError(
        f"a tool call {call.id!r} that is neither a function nor custom at {path}", path=path
    )


def _arguments(function: Function) -> str:
    """What the model wrote; Mistral and Ollama give an object in its place."""
    if isinstance(function.arguments, str):
        return function.arguments
    return msgspec.json.encode(function.arguments or {}).decode()


def _image(url: str) -> Media:
    head, comma, body = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return Media("image", mime=head.removeprefix("data:"), base64=body)
    return Media("image", url=url)
