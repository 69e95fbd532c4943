"""Requests as bytes.

Knows how this dialect writes each item. Refuses to know where the items came from.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from foldline.core.item import Item
from foldline.core.parts import Call, Media, Native, Part, Thought, Tool, calls_of, text_of
from foldline.core.request import Request
from foldline.wire.openai_chat.check import LONGEST_ID
from foldline.wire.openai_chat.shapes import Json

DIALECT = "openai-chat"
ENCODER = 1
"""Raised when the same request would be written in other bytes."""
UNNAMED = "unnamed"
"""What a call is shown as that a model made of no tool: no provider takes an empty name."""
LEGACY = "function:"
"""What the id of a call begins with that came as `function_call`, which has none."""


def encode(request: Request, parameters: Mapping[str, Any]) -> bytes:
    """The request's bytes, from which the SDK's keyword arguments are decoded.

    Messages come last, so that a request that only grew begins with the bytes of the one before.
    """
    body: Json = {"model": request.model, **parameters}
    if request.tools:
        body["tools"] = [_raw(tool.native) or write_tool(tool) for tool in request.tools]
    body["messages"] = [msgspec.Raw(block) for block in blocks(request)]
    return msgspec.json.encode(body)


def blocks(request: Request) -> list[bytes]:
    """The messages of a request, each in its own bytes."""
    written: list[bytes] = []
    media: list[Media] = []
    own = [native.body.encode() for native in request.native if native.dialect == DIALECT]
    if own:
        written += own
    elif text_of(request.system).strip():
        written.append(_write({"role": "system", "content": text_of(request.system)}))
    for item in request.items:
        if media and item.role != "result":
            written.append(_write({"role": "user", "content": _contents(tuple(media))}))
            media = []
        if item.native is not None and item.native.dialect == DIALECT:
            written.append(item.native.body.encode())
            continue
        written.append(_write(write_message(item)))
        if item.role == "result":
            # A tool message holds text only: pictures follow all results, as one user message.
            media += [part for part in item.parts if isinstance(part, Media)]
    if media:
        written.append(_write({"role": "user", "content": _contents(tuple(media))}))
    return written


def write_message(item: Item) -> Json:
    """One item as a message, without regard to a native form."""
    match item.role:
        case "system":
            return {"role": "system", "content": text_of(item.parts)}
        case "handoff" if item.in_system:
            return {"role": "system", "content": text_of(item.parts)}
        case "user" | "handoff":
            return {"role": "user", "content": _contents(item.parts)}
        case "result":
            words = text_of(item.parts)
            if not item.ok and item.state == "whole" and not words.lower().startswith("error"):
                words = f"Error: {words}"
            if item.call_id.startswith(LEGACY):
                name = item.call_id.removeprefix(LEGACY)
                return {"role": "function", "name": name, "content": words}
            return {"role": "tool", "tool_call_id": own_id(item.call_id), "content": words}
        case "model":
            words = "\n".join(
                _named(part) if isinstance(part, Media) else text_of((part,))
                for part in item.parts
                if not isinstance(part, Thought | Call)
            )
            calls = [
                {
                    "id": own_id(call.id),
                    "type": "function",
                    "function": {
                        "name": call.name or UNNAMED,
                        "arguments": call.arguments or "{}",
                    },
                }
                for call in calls_of(item.parts)
                if not call.id.startswith(LEGACY)
            ]
            body: Json = {"role": "assistant", "content": words or None}
            for call in calls_of(item.parts):
                if call.id.startswith(LEGACY):
                    body["function_call"] = {"name": call.name, "arguments": call.arguments}
            return {**body, "tool_calls": calls} if calls else body


def _contents(parts: tuple[Part, ...]) -> str | list[Json]:
    if not any(isinstance(part, Media) for part in parts):
        return text_of(parts)
    return [
        {"type": "text", "text": text_of((part,))} if not isinstance(part, Media) else _media(part)
        for part in parts
        if not isinstance(part, Call)
    ]


def _named(part: Media) -> str:
    """What stands for a picture, a sound or a file where there may be only words."""
    address = f"at {part.url}" if part.url else ""
    return f"[{' '.join(word for word in (part.form, part.name, address) if word)}]"


def _media(part: Media) -> Json:
    if part.url and part.form != "image":  # only pictures are taken by their address
        return {"type": "text", "text": _named(part)}
    match part.form:
        case "image":
            url = part.url or f"data:{part.mime};base64,{part.base64}"
            return {"type": "image_url", "image_url": {"url": url}}
        case "audio":
            audio = {"data": part.base64, "format": part.mime.removeprefix("audio/")}
            return {"type": "input_audio", "input_audio": audio}
        case "file":
            data = f"data:{part.mime};base64,{part.base64}"
            return {"type": "file", "file": {"filename": part.name, "file_data": data}}


def own_id(call_id: str) -> str:
    """A call's id as this dialect takes it: one that is too long is shortened, always the same."""
    if len(call_id) <= LONGEST_ID:
        return call_id
    return f"{call_id[:23]}_{hashlib.sha256(call_id.encode()).hexdigest()[:16]}"


def write_tool(tool: Tool) -> Json:
    """One tool, without regard to a native form."""
    function: Json = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = msgspec.Raw(tool.schema.encode())
    return {"type": "function", "function": function}


def _raw(native: Native | None) -> msgspec.Raw | None:
    return msgspec.Raw(native.body.encode()) if native and native.dialect == DIALECT else None


def _write(body: Json) -> bytes:
    return msgspec.json.encode(body)
