"""Converts steps of Google's Interactions to neutral parts and back.

A step is not a message. A model's turn is a row of steps: thoughts, outputs and calls, also calls
of Google's own tools with their results. A user's input and the result of a function are a step
each. Anything of a type that is not known here is the model's.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, cast

import msgspec

from foldline.core.parts import Call, Gap, Media, Native, Part, Text, Thought, text_of
from foldline.dialects import google
from foldline.dialects import tools as kinds
from foldline.dialects.google import LONGEST_NAME
from foldline.dialects.json_slices import Json, dict_of, list_of
from foldline.dialects.tools import Names
from foldline.errors import WireError

DIALECT = "gemini-interactions"
CONTENTS = ("text", "image", "audio", "document", "video")
"""The types of content; a list of these alone is one input of the user."""
USER, RESULT, CALL, THOUGHT, OUTPUT = (
    *("user_input", "function_result", "function_call"),
    *("thought", "model_output"),
)
STEPS: Final[dict[str, Literal["user", "model"]]] = {
    **dict.fromkeys((USER, RESULT), "user"),
    **dict.fromkeys((CALL, THOUGHT, OUTPUT), "model"),
    **dict.fromkeys(("code_execution_call", "code_execution_result"), "model"),
    **dict.fromkeys(("file_search_call", "file_search_result"), "model"),
    **dict.fromkeys(("google_maps_call", "google_maps_result"), "model"),
    **dict.fromkeys(("google_search_call", "google_search_result"), "model"),
    **dict.fromkeys(("mcp_server_tool_call", "mcp_server_tool_result"), "model"),
    **dict.fromkeys(("processing_call", "processing_result"), "model"),
    **dict.fromkeys(("retrieval_call", "retrieval_result"), "model"),
    **dict.fromkeys(("url_context_call", "url_context_result"), "model"),
}
"""Whose each type of step is; one that is missing here is the model's. Later requests depend on
none: what Google's own tools keep is named by the request itself."""
MARK = "foldline_fold"
"""The type of a step of ours in place of folded steps; it is never sent."""
ANY = Names({}, LONGEST_NAME, letter_first=True)
_FORMS = {"image": "image", "audio": "audio", "video": "file", "document": "file"}


def type_of(step: Mapping[str, Any]) -> str:
    """Return a step's type, "" if it has none."""
    found = step.get("type")
    return found if isinstance(found, str) else ""


def is_models(step: Mapping[str, Any]) -> bool:
    """Whether a step belongs to a turn of the model."""
    name = type_of(step)
    return STEPS.get(name, "model") == "model" and name not in (MARK, "", *CONTENTS)


def contents_of(given: Any) -> list[Json]:
    """Return a content, however it is written, as a list: a text, one object, or a list."""
    if isinstance(given, str):
        return [{"type": "text", "text": given}]
    if isinstance(given, dict):
        return [cast("Json", given)]
    return [dict_of(one) for one in list_of(given)]


def parse_contents(given: Any) -> tuple[Part, ...]:
    """Convert contents to parts."""
    return tuple(map(_parse_content, contents_of(given)))


def _parse_content(content: Json) -> Part:
    kind = type_of(content)
    if kind == "text" and isinstance(content.get("text"), str):
        return Text(content["text"])
    form: Any = _FORMS.get(kind)
    mime = str(content.get("mime_type") or "")
    if form and isinstance(content.get("data"), str):
        return Media(form, mime=mime, base64=content["data"])
    if form and isinstance(content.get("uri"), str):
        return Media(form, mime=mime, url=content["uri"])
    return Gap(f"[{kind or 'unknown content'}]")


def parse_model_step(step: Json) -> tuple[Part, ...]:
    """Convert a step of the model's turn."""
    match type_of(step):
        case "model_output":
            return parse_contents(step.get("content"))
        case "thought":
            summary = text_of(parse_contents(step.get("summary")))
            return (Thought(summary, str(step.get("signature") or ""), free=True),)
        case "function_call":
            arguments = kinds.unwrap_arguments(dict_of(step.get("arguments")))
            call_id, name = (step.get(key) for key in ("id", "name"))
            return (Call(str(call_id or ""), str(name or ""), arguments),)
        case kind:
            return (Gap(f"[{kind}]"),)


def parse_turn_parts(steps: Iterable[Json]) -> tuple[Part, ...]:
    """Convert the steps of one turn of the model; blank texts are left out."""
    parts = (part for step in steps for part in parse_model_step(step))
    return tuple(one for one in parts if not isinstance(one, Text) or one.text.strip())


def parse_result_parts(step: Json) -> tuple[Part, ...]:
    """Convert a function's result: a text, contents, or any object."""
    given = step.get("result")
    if isinstance(given, str | list):
        return parse_contents(cast("Any", given))
    return (Text(msgspec.json.encode(given).decode()),) if given else ()


def encode_contents(parts: Iterable[Part]) -> list[Json]:
    """Write parts as contents; blank words are left out."""
    found: list[Json] = []
    for part in parts:
        match part:
            case Media():
                found.append(_encode_media(part))
            case Text(words) | Gap(words) if words.strip():
                found.append({"type": "text", "text": words})
            case _:
                pass
    return found


def _encode_media(media: Media) -> Json:
    mime = kinds.mime_of(media)
    kind = {"image": "image", "audio": "audio"}.get(media.form, "document")
    kind = "video" if mime.startswith("video/") else kind
    typed = {"mime_type": mime} if mime else {}
    if media.base64 and mime:
        return {"type": kind, **typed, "data": media.base64}
    if media.url:
        return {"type": kind, **typed, "uri": media.url}
    return {"type": "text", "text": kinds.describe_refused_media(media)}


def encode_turn(parts: Sequence[Part], names: Names = ANY) -> list[Json]:
    """Write a model's parts as steps: words in outputs, calls each by itself; no thoughts."""
    steps: list[Json] = []
    words: list[Part] = []

    def end_output() -> None:
        if content := encode_contents(words):
            steps.append({"type": OUTPUT, "content": content})
        words.clear()

    for part in parts:
        if isinstance(part, Call):
            end_output()
            arguments = kinds.wrap_arguments(part.arguments)
            call = {"id": part.id, "name": names.resolve_name(part.name), "arguments": arguments}
            steps.append({"type": CALL, **call})
        elif not isinstance(part, Thought):
            words.append(part)
    end_output()
    return steps


def encode_result(call_id: str, name: str, parts: Sequence[Part], *, ok: bool) -> Json:
    """Write a function's result."""
    has_media = any(isinstance(part, Media) for part in parts)
    result: Any = encode_contents(parts) if has_media else text_of(parts)
    named = {"name": name} if name else {}
    step = {"type": RESULT, "call_id": call_id, **named, "result": result}
    return step if ok else {**step, "is_error": True}


def encode_input(parts: Iterable[Part]) -> list[Json]:
    """Write a user's input; nothing if it has no words."""
    content = encode_contents(parts)
    return [{"type": USER, "content": content}] if content else []


def make_native(steps: Sequence[Json]) -> Native:
    """Keep steps beside an event, as they came."""
    return google.make_native(steps, DIALECT)


def decode_native(native: Native | None) -> list[Json] | None:
    """Return the steps kept beside an event, if they are of this dialect."""
    return google.decode_native(native, DIALECT)


def must_be_step(step: Any, *, path: str = "$") -> Json:
    """Return a step or a content; raises `WireError` for anything else."""
    found = dict_of(step)
    if not type_of(found):
        raise WireError(f"a step without a type at {path}", path=f"{path}.type")
    return found
