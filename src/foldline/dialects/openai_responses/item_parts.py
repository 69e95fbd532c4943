"""Parses items into neutral parts.

A reasoning item is one thought, also if it is empty, and so is a compaction item: the n-th sealed
item of a turn belongs to its n-th thought, which holds the `encrypted_content` as its signature. A
picture that the provider made is the media part of its call. Calls that a client answers are calls;
whatever the provider did itself is named in brackets.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from foldline.core.parts import Call, Gap, Media, Part, Text, Thought, text_of
from foldline.dialects.json_slices import Json, convert_to_shape, dict_of, list_of
from foldline.dialects.openai_responses.item_shapes import (
    ContentShape,
    CustomCall,
    FunctionCall,
    GeneratedImage,
    Message,
    Output,
    Reasoning,
)
from foldline.dialects.openai_responses.items import (
    APPROVAL,
    call_id_of,
    is_awaited,
    kind_of,
    type_of,
)

_ENVELOPE = ("type", "id", "call_id", "status", "caller", "created_by")
_WHAT = "an item of a Responses input"


def parse_message_content(item: Json, *, path: str = "$") -> tuple[Part, ...]:
    """Parse the content of a message."""
    return tuple(_parse_content(convert_to_shape(item, Message, _WHAT, path=path).content))


def parse_model_item(
    item: Json, *, inside: Collection[str] = (), path: str = "$"
) -> Iterator[Part]:
    """Parse an item of a model's turn."""
    name = type_of(item)
    if kind_of(item) == "result":
        words = text_of(parse_output(item, path=path))
        yield Gap(f"[{name}]\n{words}" if words.strip() else f"[{name}]")
    elif is_awaited(item):
        call = _parse_call(item, path)
        yield Gap(f"[{name}]\n{call.arguments}") if call.id in inside else call
    elif name == "message":
        for part in _parse_content(convert_to_shape(item, Message, _WHAT, path=path).content):
            if isinstance(part, Media):
                yield Gap(f"[{part.form}]")  # a model's media are pictures that it made
            elif text_of((part,)).strip():
                yield part
    elif name == "reasoning":
        came = convert_to_shape(item, Reasoning, _WHAT, path=path)
        texts = (piece.text or "" for piece in (*(came.summary or ()), *(came.content or ())))
        yield _seal_thought("\n".join(texts), came.encrypted_content)
    elif name == "compaction":
        came = convert_to_shape(item, Reasoning, _WHAT, path=path)
        yield _seal_thought("", came.encrypted_content)
        yield Gap("[compaction]")
    elif name == "image_generation_call" and isinstance(item.get("result"), str):
        picture = convert_to_shape(item, GeneratedImage, _WHAT, path=path)
        mime = f"image/{picture.output_format or 'png'}"
        yield Media("image", mime=mime, base64=picture.result or "")
    else:
        yield Gap(f"[{name}]")


def _seal_thought(text: str, sealed: str | None) -> Thought:
    """Make a thought that may stand behind an edit: nothing binds it to the words before it."""
    return Thought(text, sealed or "", free=bool(sealed))


def parse_output(item: Json, *, path: str = "$", outcomes: bool = True) -> tuple[Part, ...]:
    """Parse the words and media of a call's output, with `outcomes` also how commands ended."""
    given = item.get("output")
    if type_of(item) == "shell_call_output":
        return (Text(_render_shell_output(list_of(given), outcomes=outcomes)),)
    if type_of(item) == "computer_call_output":
        shape = convert_to_shape(dict_of(given), ContentShape, _WHAT, path=f"{path}.output")
        return (_parse_media(shape),)
    came = convert_to_shape(item, Output, _WHAT, path=path).output
    if isinstance(came, dict):
        return (Text(_encode_text(came)),)
    if came is None:
        return (Text(_encode_text(payload_of(item))),)
    return tuple(_parse_content(came))


def has_succeeded(item: Json) -> bool:
    """Whether an output says of no step that it failed."""
    chunks = list_of(item.get("output")) if type_of(item) == "shell_call_output" else []
    outcomes = [dict_of(dict_of(chunk).get("outcome")) for chunk in chunks]
    failed = (one.get("type") == "timeout" or one.get("exit_code") for one in outcomes)
    return item.get("status") != "failed" and not any(failed)


def payload_of(item: Mapping[str, Any]) -> Json:
    """Return what an item says, without its type, ids and status."""
    return {key: value for key, value in item.items() if key not in _ENVELOPE}


def _parse_call(item: Json, path: str) -> Call:
    match type_of(item):
        case "function_call":
            came = convert_to_shape(item, FunctionCall, _WHAT, path=path)
            arguments = came.arguments
            if not isinstance(arguments, str):
                arguments = _encode_text(arguments or {})
            return Call(came.call_id or came.id or "", came.name, arguments)
        case "custom_tool_call":
            custom = convert_to_shape(item, CustomCall, _WHAT, path=path)
            return Call(custom.call_id or custom.id or "", custom.name, custom.input)
        case name:
            said = payload_of(item)
            keys = () if name == APPROVAL else ("action", "operation", "arguments")
            written = next((said[key] for key in keys if key in said), said)
            return Call(call_id_of(item), name, _encode_text(written))


def _parse_content(content: str | list[ContentShape] | None) -> Iterator[Part]:
    if isinstance(content, str):
        yield Text(content)
        return
    for part in content or ():
        words = part.text if part.text is not None else part.refusal
        yield _parse_media(part) if words is None else Text(words)


def _parse_media(part: ContentShape) -> Part:
    """Parse an image or a file; one that only the provider holds is named."""
    url = part.image_url
    if isinstance(url, dict):  # as in chat completions
        url = str(url.get("url") or "")
    if url:
        mime, body = _split_data_url(url)
        return Media("image", mime=mime, base64=body) if body else Media("image", url=url)
    if part.file_data:
        mime, body = _split_data_url(part.file_data)
        return Media("file", mime=mime, base64=body or part.file_data, name=part.filename or "")
    if part.file_url:
        return Media("file", url=part.file_url, name=part.filename or "")
    return Gap(f"[{part.type}]")


def _split_data_url(url: str) -> tuple[str, str]:
    """Split a data URL into its media type and its base64 text; "" for any other."""
    head, comma, body = url.partition(";base64,")
    return (head.removeprefix("data:"), body) if comma and head.startswith("data:") else ("", "")


def _render_shell_output(chunks: list[Any], *, outcomes: bool) -> str:
    lines: list[str] = []
    for chunk in map(dict_of, chunks):
        lines += [text for key in ("stdout", "stderr") if (text := str(chunk.get(key) or ""))]
        outcome = dict_of(chunk.get("outcome")) if outcomes else {}
        if outcome.get("type") == "timeout":
            lines.append("[timeout]")
        elif outcome.get("exit_code"):
            lines.append(f"[exit code {outcome['exit_code']}]")
    return "\n".join(lines)


def _encode_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
