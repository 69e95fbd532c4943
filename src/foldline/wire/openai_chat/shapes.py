"""What servers and clients of this dialect write, as far as we read it; the rest passes by."""

import msgspec

from foldline.wire.reading import Json


class Url(msgspec.Struct):
    url: str


class File(msgspec.Struct):
    file_data: str = ""
    filename: str = ""


class Audio(msgspec.Struct):
    data: str = ""
    format: str = ""


class Content(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: Url | None = None
    file: File | None = None
    input_audio: Audio | None = None


class Function(msgspec.Struct):
    name: str
    arguments: str = "{}"


class Custom(msgspec.Struct):
    name: str
    input: str = ""


class ToolCall(msgspec.Struct):
    function: Function | None = None
    custom: Custom | None = None
    id: str | None = None


class Message(msgspec.Struct):
    role: str
    content: str | list[Content] | None = None
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
    parameters: Json = {}


class ToolShape(msgspec.Struct):
    function: Schema


class Choice(msgspec.Struct):
    message: Json
    finish_reason: str | None = None


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: OutputDetails | None = None


class Completion(msgspec.Struct):
    choices: list[Choice]
    usage: Usage | None = None
