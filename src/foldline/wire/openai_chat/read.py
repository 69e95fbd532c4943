"""Messages, tools and completions as events.

Knows what servers and clients of this dialect write. Refuses to know sessions. Where the neutral
form would not be written as it came, the message's own JSON is kept beside it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from foldline.core import item as items
from foldline.core.log import (
    Event,
    Instructed,
    ModelSaid,
    Stop,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Call, Gap, Media, Native, Part, Text, Thought, Tool, sound
from foldline.errors import BadInput
from foldline.wire.openai_chat.shapes import Completion, Content, Json, Message, ToolCall, ToolShape
from foldline.wire.openai_chat.write import DIALECT, write_message, write_tool
from foldline.wire.reading import plain, shaped

_STOPS: dict[str, Stop] = {"length": "length", "content_filter": "refused"}
_NOT_SENT_BACK = ("annotations", "reasoning", "reasoning_content")


def said(text: str) -> UserSaid:
    """A user's plain words."""
    return UserSaid((Text(sound(text)),))


def message(given: Mapping[str, Any], *, saw: int | None = None) -> Event:
    """One message dict as an event."""
    body = plain(given)
    came = shaped(body, Message, "an OpenAI message")
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
    came = shaped(plain(given), Completion, "an OpenAI completion")
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
    body = plain(given)
    schema = shaped(body, ToolShape, "an OpenAI tool").function
    neutral = Tool(
        schema.name, schema.description or "", msgspec.json.encode(schema.parameters).decode()
    )
    if _plain(body) == _plain(plain(write_tool(neutral))):
        return neutral
    native = Native(DIALECT, msgspec.json.encode(body).decode())
    return msgspec.structs.replace(neutral, native=native)


def _again(event: UserSaid | ModelSaid | ToolReturned) -> Json:
    """What the neutral form alone would be written as."""
    match event:
        case UserSaid():
            return write_message(items.make(0, "user", event.parts))
        case ModelSaid():
            return write_message(items.make(0, "model", event.parts))
        case ToolReturned():
            return write_message(items.make(0, "result", event.parts, call_id=event.call_id))


def _plain(body: Json) -> Json:
    """A message or tool without what says nothing: nulls, empty lists, answers' own fields."""
    return {
        key: value
        for key, value in body.items()
        if value not in (None, []) and key not in _NOT_SENT_BACK and key != "name"
    }


def _parts(came: Message) -> tuple[Part, ...]:
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
    parts += [Gap(f"[called {came.function_call.name}]")] if came.function_call else []
    return (*parts, *(_call(call) for call in came.tool_calls or ()))


def _content(content: Content) -> Part:
    if content.image_url is not None:
        return _image(content.image_url.url)
    if content.file is not None:
        mime, _, body = content.file.file_data.removeprefix("data:").partition(";base64,")
        return Media("file", mime=mime, base64=body, name=content.file.filename)
    if content.input_audio is not None:
        sound_format = content.input_audio.format
        return Media("audio", mime=f"audio/{sound_format}", base64=content.input_audio.data)
    words = content.text if content.text is not None else content.refusal
    return Gap(f"[{content.type}]") if words is None else Text(words)


def _call(call: ToolCall) -> Call:
    if call.function is not None:
        return Call(call.id or "", call.function.name, call.function.arguments)
    if call.custom is not None:
        return Call(call.id or "", call.custom.name, call.custom.input)
    raise BadInput(f"a tool call {call.id!r} that is neither a function nor custom")


def _image(url: str) -> Media:
    head, comma, body = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return Media("image", mime=head.removeprefix("data:"), base64=body)
    return Media("image", url=url)
