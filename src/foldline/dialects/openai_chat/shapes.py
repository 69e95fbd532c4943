"""The fields that we read of this dialect's JSON; all others are ignored."""

import msgspec

from foldline.dialects.json_slices import Json


class Url(msgspec.Struct):
    url: str


class FilePart(msgspec.Struct):
    file_data: str = ""
    filename: str = ""


class Audio(msgspec.Struct):
    data: str = ""
    format: str = ""


class ContentPart(msgspec.Struct):
    type: str = "unknown"
    text: str | None = None
    refusal: str | None = None
    image_url: Url | None = None
    file: FilePart | None = None
    input_audio: Audio | None = None
    thinking: str | list[Json] | None = None


class Function(msgspec.Struct):
    name: str
    arguments: str | Json | None = None


class Custom(msgspec.Struct):
    name: str
    input: str = ""


class ToolCall(msgspec.Struct):
    function: Function | None = None
    custom: Custom | None = None
    id: str | None = None
    type: str | None = None


class ChatMessage(msgspec.Struct):
    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    audio: Json | None = None
    function_call: Function | None = None


class Schema(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw(b"{}")


class ToolShape(msgspec.Struct):
    type: str | None = None
    function: Schema | None = None
    custom: Schema | None = None


class Choice(msgspec.Struct):
    message: Json
    finish_reason: str | None = None


class Completion(msgspec.Struct):
    choices: list[Choice]


class FunctionDelta(msgspec.Struct):
    name: str | None = None
    arguments: str | Json | None = None


class CustomDelta(msgspec.Struct):
    name: str | None = None
    input: str | None = None


class CallDelta(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None
    custom: CustomDelta | None = None


class Delta(msgspec.Struct):
    content: str | list[Json] | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[CallDelta] | None = None
    function_call: FunctionDelta | None = None


class StreamChoice(msgspec.Struct):
    index: int | None = None
    delta: Json | None = None
    message: Json | None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    choices: list[StreamChoice] | None = None
