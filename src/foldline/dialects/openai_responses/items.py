"""The types of items, who each belongs to, and their neutral parts.

An item is not a message. A model's turn is a row of items: reasoning, messages and calls. Calls and
outputs are paired by an id, and need not be neighbours. A provider's own tools put calls, and
sometimes outputs, into the model's turn; no client answers them. A type that is not known here
belongs to the model, or is a result if its name ends with `_output`.

A reasoning item is one thought, also if it is empty, and so is a compaction item: the n-th sealed
item of a turn belongs to its n-th thought, which holds the `encrypted_content` as its signature. A
picture that the provider made is the media part of its call. Calls that a client answers are calls;
whatever the provider did itself is named in brackets.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from foldline.core.parts import Call, Gap, Media, Part, Text, Thought, text_of
from foldline.dialects.json_slices import Json, convert_to_shape, dict_of, list_of

Kind: TypeAlias = Literal[
    "user",
    "system",
    "model",
    "result",
    "tools",
    "compaction",
    "trigger",
    "reference",
    "unknown",
]
PLAIN_OUTPUTS: Final = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}
"""The calls that hold a name and what the model wrote, and the type of their outputs."""
SEALED: Final = ("reasoning", "compaction")
"""Items with an `encrypted_content` that only their provider reads."""
APPROVAL: Final = "mcp_approval_request"
_APPROVED: Final = "mcp_approval_response"
_LOCAL_OUTPUT: Final = "local_shell_call_output"
_ROLES: Final[dict[str, Kind]] = {
    "user": "user",
    "system": "system",
    "developer": "system",
    "assistant": "model",
}
_KINDS: Final[dict[str, Kind]] = {
    "additional_tools": "tools",
    "configuration_update": "tools",
    "compaction": "compaction",
    "compaction_trigger": "trigger",
    "item_reference": "reference",
    _APPROVED: "result",
}
CALLS: Final = frozenset(
    (
        *PLAIN_OUTPUTS,
        *("local_shell_call", "shell_call", "apply_patch_call", "computer_call"),
        "tool_search_call",
    )
)
"""The calls that a client answers, if they have a `call_id`."""
HOSTED: Final = frozenset(
    (
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
        *("mcp_call", "mcp_list_tools", "program"),
    )
)
"""The provider's own calls, which it answers itself."""
OUTPUTS: Final = frozenset((*(f"{call}_output" for call in CALLS - {"tool_search_call"}),)) | {
    "tool_search_output",
    "program_output",
    _APPROVED,
}
STATE: Final = frozenset(
    (
        *("additional_tools", "configuration_update"),
        *("tool_search_output", "code_interpreter_call"),
    )
)
"""What later requests depend on: where it is folded it is carried behind the handoff."""
KNOWN: Final = frozenset(
    ("message", "reasoning", APPROVAL, *CALLS, *HOSTED, *OUTPUTS, *_KINDS),
)
"""The types that the provider documents."""


def type_of(item: Mapping[str, Any]) -> str:
    """Return an item's type; a message and a reference may leave theirs out. "" if it has none."""
    found = item.get("type")
    if found is None:
        if "role" in item:
            return "message"
        return "item_reference" if isinstance(item.get("id"), str) else ""
    return found if isinstance(found, str) else ""


def kind_of(item: Mapping[str, Any]) -> Kind:
    """Return whose item this is, or what it is for."""
    name = type_of(item)
    if name == "message":
        role = item.get("role")
        return _ROLES.get(role, "unknown") if isinstance(role, str) else "unknown"
    if not name:
        return "unknown"
    return _KINDS.get(name) or ("result" if name.endswith("_output") else "model")


def is_awaited(item: Mapping[str, Any]) -> bool:
    """Whether a model's item is a call that the client answers."""
    name = type_of(item)
    if name in PLAIN_OUTPUTS:
        return True
    if name == APPROVAL:
        return bool(call_id_of(item))
    at_server = name == "tool_search_call" and item.get("execution") == "server"
    return name.endswith("_call") and bool(call_id_of(item)) and not at_server


def is_hosted_output(item: Mapping[str, Any]) -> bool:
    """Whether an output is the provider's own, in the middle of the model's turn."""
    match type_of(item):
        case "program_output":
            return True
        case "tool_search_output":
            return item.get("execution") == "server" or not call_id_of(item)
        case _:
            return False


def call_id_field(item: Mapping[str, Any]) -> str:
    """Return the name of the field by which a call and its output are paired."""
    match type_of(item):
        case "mcp_approval_request":
            return "id"
        case "mcp_approval_response":
            return "approval_request_id"
        case "local_shell_call_output" if not item.get("call_id"):
            return "id"
        case _:
            return "call_id"


def call_id_of(item: Mapping[str, Any]) -> str:
    """Return the id by which a call and its output are paired, or ""."""
    found = item.get(call_id_field(item))
    return found if isinstance(found, str) else ""


def item_id_of(item: Mapping[str, Any]) -> str:
    """Return the id of the item itself, or ""; the output of a local shell has its call's."""
    found = item.get("id")
    return found if isinstance(found, str) and type_of(item) != _LOCAL_OUTPUT else ""


def output_type_of(call: str) -> str:
    """Return the type of the output that answers a call of this type."""
    match call:
        case "mcp_approval_request":
            return _APPROVED
        case "tool_search_call":
            return "tool_search_output"
        case _:
            return f"{call}_output"


class _ContentShape(msgspec.Struct):
    type: str = "unknown"
    text: str | None = None
    refusal: str | None = None
    image_url: str | Json | None = None
    file_id: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None


class _Message(msgspec.Struct):
    content: str | list[_ContentShape] | None = None


class _ReasoningText(msgspec.Struct):
    text: str | None = None


class _Reasoning(msgspec.Struct):
    summary: list[_ReasoningText] | None = None
    content: list[_ReasoningText] | None = None
    encrypted_content: str | None = None


class _FunctionCall(msgspec.Struct):
    name: str = ""
    call_id: str | None = None
    id: str | None = None
    arguments: str | Json | None = None


class _CustomCall(msgspec.Struct):
    name: str = ""
    call_id: str | None = None
    id: str | None = None
    input: str = ""


class _GeneratedImage(msgspec.Struct):
    result: str | None = None
    output_format: str | None = None


class _OutputItem(msgspec.Struct):
    output: str | list[_ContentShape] | Json | None = None


_ENVELOPE = ("type", "id", "call_id", "status", "caller", "created_by")
_WHAT = "an item of a Responses input"


def parse_message_content(item: Json, *, path: str = "$") -> tuple[Part, ...]:
    """Parse the content of a message."""
    return tuple(_parse_content(convert_to_shape(item, _Message, _WHAT, path=path).content))


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
        for part in _parse_content(convert_to_shape(item, _Message, _WHAT, path=path).content):
            if isinstance(part, Media):
                yield Gap(f"[{part.form}]")  # a model's media are pictures that it made
            elif text_of((part,)).strip():
                yield part
    elif name == "reasoning":
        came = convert_to_shape(item, _Reasoning, _WHAT, path=path)
        texts = (piece.text or "" for piece in (*(came.summary or ()), *(came.content or ())))
        yield _seal_thought("\n".join(texts), came.encrypted_content)
    elif name == "compaction":
        came = convert_to_shape(item, _Reasoning, _WHAT, path=path)
        yield _seal_thought("", came.encrypted_content)
        yield Gap("[compaction]")
    elif name == "image_generation_call" and isinstance(item.get("result"), str):
        picture = convert_to_shape(item, _GeneratedImage, _WHAT, path=path)
        mime = f"image/{picture.output_format or 'png'}"
        yield Media("image", mime=mime, base64=picture.result or "")
    else:
        yield Gap(f"[{name}]")


def _seal_thought(text: str, sealed: str | None) -> Thought:
    """Make a thought that may come after an edit: nothing binds it to the words before it."""
    return Thought(text, sealed or "", free=bool(sealed))


def parse_output(item: Json, *, path: str = "$", outcomes: bool = True) -> tuple[Part, ...]:
    """Parse the words and media of a call's output, with `outcomes` also how commands ended."""
    given = item.get("output")
    if type_of(item) == "shell_call_output":
        return (Text(_render_shell_output(list_of(given), outcomes=outcomes)),)
    if type_of(item) == "computer_call_output":
        shape = convert_to_shape(dict_of(given), _ContentShape, _WHAT, path=f"{path}.output")
        return (_parse_media(shape),)
    came = convert_to_shape(item, _OutputItem, _WHAT, path=path).output
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
            came = convert_to_shape(item, _FunctionCall, _WHAT, path=path)
            arguments = came.arguments
            if not isinstance(arguments, str):
                arguments = _encode_text(arguments or {})
            return Call(came.call_id or came.id or "", came.name, arguments)
        case "custom_tool_call":
            custom = convert_to_shape(item, _CustomCall, _WHAT, path=path)
            return Call(custom.call_id or custom.id or "", custom.name, custom.input)
        case name:
            said = payload_of(item)
            keys = () if name == APPROVAL else ("action", "operation", "arguments")
            written = next((said[key] for key in keys if key in said), said)
            return Call(call_id_of(item), name, _encode_text(written))


def _parse_content(content: str | list[_ContentShape] | None) -> Iterator[Part]:
    if isinstance(content, str):
        yield Text(content)
        return
    for part in content or ():
        words = part.text if part.text is not None else part.refusal
        yield _parse_media(part) if words is None else Text(words)


def _parse_media(part: _ContentShape) -> Part:
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
