"""Converts the parts of Gemini's contents to neutral parts and back.

Google's servers and SDKs write a field as `inlineData` or as `inline_data`, so both are read. What
arguments, results and schemas hold is the caller's own, and is never renamed.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, cast

import msgspec

from foldline.core.parts import Call, Gap, Media, Native, Part, Text, Thought, text_of
from foldline.dialects import google
from foldline.dialects import tools as kinds
from foldline.dialects.google import LONGEST_NAME
from foldline.dialects.json_slices import Json, dict_of, list_of
from foldline.dialects.tools import Names

DIALECT = "gemini"
NO_ID = "call:"
"""How the id of a call begins that came without one; the name follows, and a number if repeated."""
SIGNATURE = "thoughtSignature"
_ANY = Names({}, LONGEST_NAME, letter_first=True)
_OWN = {
    *("args", "response", "partMetadata", "parameters", "parametersJsonSchema"),
    *("responseJsonSchema", "responseSchema"),
}
PARTS: Final[dict[str, Literal["data", "about"]]] = {
    **dict.fromkeys(("text", "inlineData", "fileData", "functionCall", "functionResponse"), "data"),
    **dict.fromkeys(("executableCode", "codeExecutionResult", "toolCall", "toolResponse"), "data"),
    **dict.fromkeys(("thought", "thoughtSignature", "partMetadata", "mediaResolution"), "about"),
    **dict.fromkeys(("videoMetadata", "audioTranscription", "mediaProcessing"), "about"),
    "speechMetadata": "about",
}
"""The fields of a part: the kind of its data, and what is said about it. Later requests depend on
none: caches and files are named by the request itself."""
_FORMS = {"image": "image", "audio": "audio"}
_BESIDE = {"text", "thought", SIGNATURE}
_WORDS = {"output", "error", "result"}
"""How clients name the words of a result, if it has nothing else."""


def rename_fields(value: Any) -> Any:
    """Write the names of fields in one way, and drop nulls; what is the caller's own stays."""
    if isinstance(value, list):
        return [rename_fields(one) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    named = ((_camel(name), one) for name, one in cast("Json", value).items() if one is not None)
    return {name: one if name in _OWN else rename_fields(one) for name, one in named}


def rename_outer_fields(part: Json) -> Json:
    """Write the names of a part's own fields in one way; what is inside them stays."""
    return {_camel(name): one for name, one in part.items() if one is not None}


def _camel(name: str) -> str:
    if "_" not in name:
        return name
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest) if head else name


def find_kind(part: Mapping[str, Any]) -> str:
    """Return which kind of data a part has; "" if none."""
    return next((kind for kind, of in PARTS.items() if of == "data" and kind in part), "")


def parts_of(content: Mapping[str, Any]) -> list[Json]:
    """Return a content's parts, with their fields named in one way; Google takes one alone, too."""
    given: Any = content.get("parts")
    listed: list[Any] = [given] if isinstance(given, dict) else list_of(given)
    return [rename_fields(part) for part in listed if isinstance(part, dict)]


def is_thought(part: Mapping[str, Any]) -> bool:
    """Whether a part is a text that the model only thought."""
    return part.get("thought") is True and "text" in part


def is_blank(part: Mapping[str, Any]) -> bool:
    """Whether a part is a text without words, and without a signature that must go back."""
    said = part.get("text")
    return isinstance(said, str) and not said.strip() and SIGNATURE not in part


def number_calls(
    parts: Iterable[Mapping[str, Any]], kind: str, *, placed: bool = False
) -> list[str]:
    """Return the id of each call, or of each result, in order.

    Calls without an id are known by name and place, as at Google's servers. With `placed` all are:
    a client may invent ids for calls that came without. Equal ids then share a place.
    """
    found: list[str] = []
    seen: dict[str, int] = {}
    places: dict[str, str] = {}
    for part in parts:
        if kind not in part:
            continue
        given = dict_of(part[kind])
        own, name = given.get("id"), str(given.get("name") or "")
        call_id = own if isinstance(own, str) else ""
        if placed and call_id in places:
            call_id = places[call_id]
        elif placed or not call_id:
            seen[name] = count = seen.get(name, 0) + 1
            place = f"{NO_ID}{name}" if count == 1 else f"{NO_ID}{name}#{count}"
            places |= {call_id: place} if call_id else {}
            call_id = place
        found.append(call_id)
    return found


def read_name(call_id: str) -> str:
    """Return the name of a function whose call had no id; "" if it had one."""
    return call_id.removeprefix(NO_ID).partition("#")[0] if call_id.startswith(NO_ID) else ""


def parse_model_parts(parts: Sequence[Json], *, placed: bool = False) -> tuple[Part, ...]:
    """Convert a model's parts; blank texts are left out. `placed` is as in `number_calls`."""
    ids = iter(number_calls(parts, "functionCall", placed=placed))
    found: list[Part] = []
    for part in parts:
        if "functionCall" in part:
            call = dict_of(part["functionCall"])
            arguments = kinds.unwrap_arguments(dict_of(call.get("args")))
            found.append(Call(next(ids), str(call.get("name") or ""), arguments))
        else:
            found.append(parse_part(part))
    return tuple(one for one in found if not isinstance(one, Text) or one.text.strip())


def parse_part(part: Json) -> Part:
    """Convert a part that is neither a call nor a result."""
    match find_kind(part):
        case "text":
            words = str(part["text"])
            if not is_thought(part):
                return Text(words)
            return Thought(words, str(part.get(SIGNATURE) or ""), free=True)
        case "inlineData" | "fileData":
            return _parse_media(part)
        case kind:
            return Gap(f"[{kind or next(iter(part), 'empty part')}]")


def parse_input_parts(parts: Iterable[Json]) -> tuple[Part, ...]:
    """Convert parts that are not the model's; thoughts in them are only named."""
    return tuple(
        Gap("[thought]") if isinstance(one := parse_part(part), Thought) else one for part in parts
    )


def parse_result(response: Json) -> tuple[tuple[Part, ...], bool]:
    """Return the parts of a function's response, and whether it went well."""
    answer = dict_of(response.get("response"))
    ok = not (set(answer) == {"error"} and answer["error"])
    only = next(iter(answer.values()), None) if set(answer) <= _WORDS else None
    if len(answer) == 1 and isinstance(only, str):
        words = only
    else:
        words = msgspec.json.encode(answer).decode() if answer else ""
    media = (_parse_media(part) for part in parts_of(response))
    return (*((Text(words),) if words else ()), *media), ok


def _parse_media(part: Json) -> Part:
    data = dict_of(part.get("inlineData")) or dict_of(part.get("fileData"))
    mime, name = str(data.get("mimeType") or ""), str(data.get("displayName") or "")
    form: Any = _FORMS.get(mime.partition("/")[0], "file")
    if isinstance(data.get("data"), str):
        return Media(form, mime=mime, base64=to_plain_base64(data["data"]), name=name)
    if isinstance(data.get("fileUri"), str):
        return Media(form, mime=mime, url=data["fileUri"], name=name)
    return Gap(f"[{find_kind(part) or 'empty part'}]")


def to_plain_base64(text: str) -> str:
    """Return base64 in its usual letters: the SDK writes those for addresses."""
    return text.replace("-", "+").replace("_", "/")


def encode_parts(some: Iterable[Part], names: Names = _ANY) -> list[Json]:
    """Write parts; skip blank words, and thoughts, which go back only as they came."""
    found: list[Json] = []
    for one in some:
        match one:
            case Text(words) | Gap(words):
                found += [{"text": words}] if words.strip() else []
            case Media():
                found.append(encode_media(one))
            case Call():
                found.append(encode_call(one, names))
            case Thought():
                pass
    return found


def encode_call(call: Call, names: Names = _ANY) -> Json:
    """Write a call; one that came without an id has none."""
    shown = {} if call.id.startswith(NO_ID) else {"id": call.id}
    name = names.resolve_name(call.name)
    return {"functionCall": {**shown, "name": name, "args": kinds.wrap_arguments(call.arguments)}}


def encode_result(call_id: str, name: str, some: Sequence[Part], *, ok: bool) -> list[Json]:
    """Write a call's result: its words in an object, and its media after it."""
    shown = {} if call_id.startswith(NO_ID) else {"id": call_id}
    words = text_of(part for part in some if not isinstance(part, Media))
    answer = {"output" if ok else "error": words}
    media = [encode_media(part) for part in some if isinstance(part, Media)]
    return [{"functionResponse": {**shown, "name": name, "response": answer}}, *media]


def encode_media(media: Media) -> Json:
    """Write media as bytes or as an address; what has no known type is named in words."""
    mime = kinds.mime_of(media) or _guess_mime(media)
    named = {"displayName": media.name} if media.name and media.url else {}
    if media.base64 and mime:
        return {"inlineData": {"mimeType": mime, "data": media.base64}}
    if media.url and mime:
        return {"fileData": {"mimeType": mime, "fileUri": media.url, **named}}
    return {"text": kinds.describe_refused_media(media)}


_ENDINGS = {
    **{ending: f"image/{ending}" for ending in ("png", "webp", "heic", "heif", "gif")},
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "pdf": "application/pdf",
    "mp4": "video/mp4",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "txt": "text/plain",
    "md": "text/markdown",
}
_ENDING = re.compile(r"\.([a-zA-Z0-9]{2,4})(?:[?#]|$)")


def _guess_mime(media: Media) -> str:
    found = _ENDING.search(media.url or media.name)
    guessed = _ENDINGS.get(found[1].lower(), "") if found else ""
    return guessed or {"image": "image/jpeg", "audio": "audio/mpeg"}.get(media.form, "")


def make_native(parts: Sequence[Json]) -> Native:
    """Keep parts beside an event, as they came."""
    return google.make_native(parts, DIALECT)


def decode_native(native: Native | None) -> list[Json] | None:
    """Return the parts kept beside an event, if they are of this dialect."""
    return google.decode_native(native, DIALECT)


def has_only_words(part: Mapping[str, Any]) -> bool:
    """Whether a part is a text that its neighbours may be joined with."""
    return part.keys() <= _BESIDE and "text" in part and SIGNATURE not in part
