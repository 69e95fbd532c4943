"""The fields that we read of this dialect's JSON; all others are ignored."""

import msgspec

from foldline.dialects.json_slices import Json


class ContentShape(msgspec.Struct):
    type: str = "unknown"
    text: str | None = None
    refusal: str | None = None
    image_url: str | Json | None = None
    file_id: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None


class Message(msgspec.Struct):
    content: str | list[ContentShape] | None = None


class ReasoningText(msgspec.Struct):
    text: str | None = None


class Reasoning(msgspec.Struct):
    summary: list[ReasoningText] | None = None
    content: list[ReasoningText] | None = None
    encrypted_content: str | None = None


class FunctionCall(msgspec.Struct):
    name: str = ""
    call_id: str | None = None
    id: str | None = None
    arguments: str | Json | None = None


class CustomCall(msgspec.Struct):
    name: str = ""
    call_id: str | None = None
    id: str | None = None
    input: str = ""


class GeneratedImage(msgspec.Struct):
    result: str | None = None
    output_format: str | None = None


class Output(msgspec.Struct):
    output: str | list[ContentShape] | Json | None = None


class FlatTool(msgspec.Struct):
    type: str | None = None
    name: str | None = None
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw(b"{}")
    defer_loading: object = None


class Reason(msgspec.Struct):
    reason: str | None = None


class Answer(msgspec.Struct):
    output: list[Json] | None = None
    status: str | None = None
    incomplete_details: Reason | None = None
    error: Json | str | None = None


class ItemEvent(msgspec.Struct):
    item: Json
    output_index: int | None = None


class TextEvent(msgspec.Struct):
    output_index: int | None = None
    content_index: int | None = None
    item_id: str | None = None
    delta: str | None = None
    text: str | None = None
    refusal: str | None = None


class ResponseEvent(msgspec.Struct):
    response: Json
