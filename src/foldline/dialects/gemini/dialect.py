"""Google's `generateContent`, as the registry has it: its facts, and the contents of clients.

Two contents have one digest if they differ only in how their fields are named, in key order, in
blanks at the ends, in where a text is cut into parts, in whether a result is an object or its JSON,
in thoughts and signatures, which clients that resume a conversation drop, in the ids of calls,
which clients invent where the model gave none, or in the session's context, which gemini-cli
writes anew when it resumes.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import msgspec

from foldline.core.item import Item
from foldline.core.log import Event, Instructed, ModelSaid, ToolReturned, UsageReported
from foldline.core.parts import Part, Text, Tool, text_of
from foldline.core.request import Request
from foldline.dialects.base import PathFacts
from foldline.dialects.client_messages import (
    Described,
    append_value,
    check_keys,
    digest_of,
    shows_media,
    without_query,
)
from foldline.dialects.gemini import content_parts, messages, validate, write
from foldline.dialects.gemini.content_parts import (
    SIGNATURE,
    decode_native,
    encode_parts,
    encode_result,
    is_thought,
    number_calls,
    parse_input_parts,
    parse_result,
    parts_of,
    read_name,
    rename_fields,
    rename_outer_fields,
    to_plain_base64,
)
from foldline.dialects.gemini.messages import (
    ROLES,
    build_model_event,
    build_user_events,
    decode_content,
    parse_tools,
)
from foldline.dialects.gemini.stream import GenerateContentAssembly, JoinedContents
from foldline.dialects.google import GoogleDialect
from foldline.dialects.json_slices import (
    Json,
    Slice,
    Splice,
    apply_splices,
    check_readable,
    cut_out,
    dict_of,
    find_fields,
    find_values,
    list_of,
    shaped_bytes,
)

_PATH = re.compile(r"/(?:models|tunedModels|endpoints)/([^/:?]+):(\w+)$")
_SERVED = re.compile(r"google[A-Z]|codeExecution$|urlContext$|fileSearch$|computerUse$|mcpServers$")
_ANSWERS = {"candidates", "promptFeedback", "prompt_feedback"}
_SCHEMAS = {"parameters", "parametersJsonSchema"}
_ESCAPED = re.compile(r"%([2-7][0-9a-fA-F])")


class GeminiDialect(GoogleDialect):
    """Google's `generateContent`, as the Gemini API and Vertex AI speak it."""

    name = content_parts.DIALECT
    encoder = write.ENCODER
    bounds = (
        *("config.maxOutputTokens", "config.max_output_tokens"),
        *("generationConfig.maxOutputTokens", "generationConfig.max_output_tokens"),
    )
    sdk_method = ("models", "generate_content")
    messages = "contents"
    fixed = ("systemInstruction", "tools")
    aliases: ClassVar[Mapping[str, str]] = {
        "system_instruction": "systemInstruction",
        "generation_config": "generationConfig",
        "cached_content": "cachedContent",
    }
    server_state = ("cachedContent",)
    results_in = "parts"
    orders_results = True
    names_in_path = True

    def encode_request(self, request: Request, parameters: Mapping[str, Any]) -> bytes:
        return write.encode_request(request, parameters)

    def encode_blocks(self, request: Request) -> list[bytes]:
        return write.encode_blocks(request)

    def list_faults(self, body: Mapping[str, Any]) -> list[str]:
        config = dict_of(body.get("config"))
        return validate.list_faults(
            list_of(body.get("contents")),
            tools=list_of(config.get("tools")),
            system=config.get("systemInstruction"),
            signed=write.must_sign_calls(str(body.get("model") or "")),
        )

    def write_question(self, text: str) -> Json:
        return {"role": "user", "parts": [{"text": text}]}

    def write_count(self, tokens: int) -> Json:
        return {"totalTokens": tokens}

    def write_tool(self, tool: Tool) -> bytes:
        return msgspec.json.encode(write.write_tool(tool))

    def read_path(self, path: str, query: str) -> PathFacts:
        """Read the model and whether the answer is streamed: only if `alt` asks for events."""
        found = _PATH.search(path)
        model, method = (_ESCAPED.sub(_decode_escaped, found[1]), found[2]) if found else ("", "")
        return PathFacts(model, method == "streamGenerateContent" and "alt=sse" in query)

    # What an SDK gives

    def parse_message(self, given: Mapping[str, Any], saw: int | None) -> list[Event]:
        return messages.parse_message(given, saw=saw)

    def parse_answer(
        self, given: Mapping[str, Any], saw: int | None, asked: int | None
    ) -> list[Event]:
        return messages.parse_answer(given, saw=saw, asked=asked)

    def parse_tools(self, given: Mapping[str, Any]) -> list[Tool]:
        return messages.parse_tools(given)

    def parse_usage(self, body: Json) -> UsageReported | None:
        return messages.parse_usage(body)

    def is_answer(self, body: Mapping[str, Any]) -> bool:
        return bool(_ANSWERS & body.keys())

    def is_message(self, body: Mapping[str, Any]) -> bool:
        return isinstance(body.get("parts"), list)

    def is_tool(self, tool: Mapping[str, Any]) -> bool:
        names = {*content_parts.rename_fields(dict(tool))}
        if "functionDeclarations" in names or (names and all(map(_SERVED.match, names))):
            return True
        return "name" in names and "type" not in names and bool(_SCHEMAS & names)

    # Answers as they come

    def make_assembly(self) -> GenerateContentAssembly:
        return GenerateContentAssembly()

    def join_answers(self, is_ours: Callable[[str], bool]) -> JoinedContents:
        return JoinedContents(is_ours)

    def read_delta(self, body: Json) -> str:
        return _join_texts(body, thought=False)

    def read_thought(self, body: Json) -> str:
        return _join_texts(body, thought=True)

    # Messages of clients

    def describe_message(self, raw: bytes) -> Described:
        check_readable(raw)
        check_keys(raw, "parts")
        said = dict_of(msgspec.json.decode(raw)).get("role")
        if isinstance(said, str) and said and said not in ROLES:
            return Described.describe_opaque(raw)
        role, parts = decode_content(raw)
        said = "assistant" if role == "model" else role
        normal = {"role": said, "parts": _normalise_parts(parts, role)}
        return Described(said, digest_of(normal), marked=False, thinks=False)

    def encode_answer(self, body: Mapping[str, Any]) -> list[bytes]:
        candidate = dict_of(next(iter(list_of(body.get("candidates"))), None))
        content = dict_of(candidate.get("content"))
        return [msgspec.json.encode({"role": "model", "parts": list_of(content.get("parts"))})]

    def read_message(self, raw: bytes, described: Described) -> list[Event]:
        role, parts = decode_content(raw)
        if role == "system":
            return [Instructed(parse_input_parts(parts), aside=True, link=described.digest)]
        exact: list[Event] = []
        if role == "model":
            exact.append(build_model_event(parts, exact=True))
        else:
            exact += build_user_events(parts, exact=True)
        return self.link_message(exact, described)

    def write_message(self, items: Sequence[Item]) -> bytes:
        parts: list[Json] = []
        media: list[Json] = []
        for item in items:
            own = decode_native(item.native)
            if own is not None:
                parts += own
            elif item.role == "result":
                name = read_name(item.call_id)
                first, *more = encode_result(item.call_id, name, item.parts, ok=item.ok)
                first["functionResponse"]["id"] = item.call_id  # results may be repeated
                parts.append(first)
                media += more
            else:
                parts += encode_parts(item.parts)
        role = "model" if items and items[0].role == "model" else "user"
        return msgspec.json.encode({"role": role, "parts": [*parts, *media]})

    def fit_results(self, results: bytes, answer: bytes) -> bytes:
        calls = decode_content(answer)[1]
        known = zip(
            number_calls(calls, "functionCall", placed=True),
            (dict_of(part["functionCall"]).get("id") for part in calls if "functionCall" in part),
            strict=True,
        )
        ids = dict(known)
        parts = decode_content(results)[1]
        for part in parts:
            if "functionResponse" in part:
                given = {**dict_of(part["functionResponse"])}
                own = ids.get(given.pop("id", ""))
                part["functionResponse"] = given | ({"id": own} if own else {})
        return msgspec.json.encode({"role": "user", "parts": parts})

    def read_instructions(
        self, fields: Mapping[str, bytes], leading: Sequence[bytes]
    ) -> Instructed:
        parts: list[Part] = []
        if raw := fields.get("systemInstruction"):
            instruction: Any = msgspec.json.decode(raw)
            if isinstance(instruction, str):
                parts.append(Text(instruction))
            else:
                parts += parse_input_parts(parts_of(dict_of(instruction)))
        for raw in leading:
            parts += parse_input_parts(decode_content(raw)[1])
        tools: list[Tool] = []
        if (raw := fields.get("tools", b"null").strip()) != b"null":
            given = shaped_bytes(raw, list[Json], "a list of tools", path="$.tools")
            tools = [tool for one in given for tool in parse_tools(one)]
        return Instructed(tuple(parts), tuple(tools), replaces=True)

    def replace_text(self, raw: bytes, event: Event, item: Item) -> bytes:
        text = "\n".join(part.text for part in item.parts if isinstance(part, Text))
        places = _find_parts(raw)
        given = dict_of(msgspec.json.decode(raw)).get("parts")
        parts = [rename_outer_fields(dict_of(part)) for part in list_of(given)]
        if isinstance(event, ModelSaid):
            return _write_stub([rename_fields(part) for part in parts], text)
        if isinstance(event, ToolReturned):
            return _replace_result(raw, places, parts, event, text, media=shows_media(item))
        words = [at for at, part in enumerate(parts) if isinstance(part.get("text"), str)]
        gone = words[1:]
        if not shows_media(item):
            gone += [at for at, part in enumerate(parts) if any(kind in part for kind in _MEDIA)]
        if words:
            said = find_fields(raw, places[words[0]])["text"]
            splices = [Splice(*said, msgspec.json.encode(text))]
        elif gone:
            splices = [Splice(*places[gone[0]], msgspec.json.encode({"text": text}))]
            gone = gone[1:]
        else:
            return raw
        return apply_splices(raw, [*splices, *cut_out([places[at] for at in gone], places)])

    def write_handoff(self, items: Sequence[Item], mark: bytes) -> bytes:
        del mark
        written: list[bytes] = []
        for item in items:
            role = "model" if item.role == "model" else "user"
            words = "\n".join(part.text for part in item.parts if isinstance(part, Text))
            written.append(msgspec.json.encode({"role": role, "parts": [{"text": words}]}))
        return b",".join(written)

    def read_words(self, raw: bytes) -> str:
        _, parts = decode_content(raw)
        return "\n".join(str(part["text"]) for part in parts if isinstance(part.get("text"), str))

    def is_results(self, raw: bytes) -> bool:
        _, parts = decode_content(raw)
        return bool(parts) and "functionResponse" in parts[0]

    def add_words(self, raw: bytes, words: str) -> bytes:
        place = find_fields(raw)["parts"]
        put = append_value(raw[slice(*place)], msgspec.json.encode({"text": words}))
        return apply_splices(raw, [Splice(*place, put)]) if put else raw

    def add_tool(self, tools: bytes, tool: Tool) -> bytes | None:
        """Add a function to those of a request, in their list: several lists are refused.

        None if the request has only tools that Google runs: Google refuses functions beside them.
        """
        written = self.write_tool(tool)
        listed = find_values(tools, Slice(0, len(tools))) if tools.startswith(b"[") else []
        for place in listed:
            fields = find_fields(tools, place)
            found = fields.get("functionDeclarations") or fields.get("function_declarations")
            more = append_value(tools[slice(*found)], written) if found else None
            if found and more:
                return apply_splices(tools, [Splice(*found, more)])
        return None if listed else b'[{"functionDeclarations":[' + written + b"]}]"


DIALECT = GeminiDialect()


_MEDIA = ("inlineData", "fileData")


_CONTEXT = re.compile(r"\s*<session_context>.*</session_context>\s*", re.DOTALL)


"""The context that gemini-cli puts before the user's first words: the date, and the files there."""


def _find_parts(raw: bytes) -> list[Slice]:
    place = find_fields(raw).get("parts")
    return find_values(raw, place) if place and raw.startswith(b"[", place.start) else []


def _normalise_parts(parts: Sequence[Json], role: str) -> list[Any]:
    """Write what parts say in one way: results first, as they are read, and texts joined."""
    found: list[Any] = [
        _normalise_result(call_id, part) for call_id, part in _number_results(parts)
    ]
    own = [part for part in parts if not _CONTEXT.fullmatch(str(part.get("text")))]
    for part in own or parts:
        if "functionResponse" in part:
            continue
        if role == "model" and is_thought(part):
            continue
        if isinstance(part.get("text"), str):
            if found and isinstance(found[-1], str):
                found[-1] += part["text"]
            else:
                found.append(part["text"])
            continue
        found.append(_normalise_part(part))
    texts = (one.strip() if isinstance(one, str) else one for one in found)
    return [one for one in texts if one]


def _normalise_part(part: Json) -> Json:
    kept = {name: value for name, value in part.items() if name not in (SIGNATURE, "thought")}
    if "functionCall" in kept:
        call = {name: one for name, one in dict_of(kept["functionCall"]).items() if name != "id"}
        kept["functionCall"] = {**call, "args": call.get("args") or {}}
    if isinstance(data := dict_of(kept.get("inlineData")).get("data"), str):
        kept["inlineData"] = {**kept["inlineData"], "data": to_plain_base64(data)}
    if "fileUri" in dict_of(kept.get("fileData")):
        file = kept["fileData"]
        kept["fileData"] = {**file, "fileUri": without_query(file["fileUri"])}
    return kept


def _normalise_result(call_id: str, part: Json) -> Json:
    """Write the words and media of a result; the id of its call tells the function's name."""
    given = dict_of(part["functionResponse"])
    rest = {name: one for name, one in given.items() if name not in _RESULT}
    said, ok = parse_result({"response": given.get("response")})
    media = [_normalise_part(one) for one in parts_of(given)]
    words = _decode_object(text_of(said))
    return {**rest, "answers": call_id, "ok": ok, "words": words, "media": media}


_RESULT = ("id", "name", "parts", "response")


def _decode_object(words: str) -> Any:
    """Decode a text that is an object in JSON; any other stays."""
    if words.startswith("{"):
        with suppress(msgspec.DecodeError, RecursionError):
            return msgspec.json.decode(words)
    return words


def _number_results(parts: Sequence[Json]) -> list[tuple[str, Json]]:
    results = [part for part in parts if "functionResponse" in part]
    ids = number_calls(results, "functionResponse", placed=True)
    return [*zip(ids, results, strict=True)]


def _replace_result(  # noqa: PLR0913 - one result in a content
    raw: bytes,
    places: Sequence[Slice],
    parts: Sequence[Json],
    event: ToolReturned,
    text: str,
    *,
    media: bool,
) -> bytes:
    """Replace one function's response by a text; of its media only those that are shown stay."""
    results = [at for at, part in enumerate(parts) if "functionResponse" in part]
    ids = number_calls(parts, "functionResponse", placed=True)
    splices = [  # gemini-cli resumes with results that are repeated: all of them become the text
        _make_result_splice(raw, places[at], parts[at], event, text, media=media)
        for at, one in zip(results, ids, strict=True)
        if one == event.call_id
    ]
    return apply_splices(raw, splices)


def _make_result_splice(  # noqa: PLR0913 - one result in a content
    raw: bytes, part: Slice, read: Json, event: ToolReturned, text: str, *, media: bool
) -> Splice:
    given = dict_of(read["functionResponse"])
    answer = dict_of(given.get("response"))
    name = next(iter(answer)) if len(answer) == 1 else "output" if event.ok else "error"
    put = {name: text}
    place = _find_response(raw, part)
    if place is not None and (media or "parts" not in given):
        return Splice(*place, msgspec.json.encode(put))
    kept = {name: value for name, value in given.items() if name != "parts" or media}
    whole = {**read, "functionResponse": {**kept, "response": put}}
    return Splice(*part, msgspec.json.encode(whole))


def _find_response(raw: bytes, part: Slice) -> Slice | None:
    """Find the value of a function's response, in the part that has it."""
    fields = find_fields(raw, part)
    response = fields.get("functionResponse") or fields.get("function_response")
    return find_fields(raw, response).get("response") if response else None


def _write_stub(parts: Sequence[Json], text: str) -> bytes:
    """Replace an answer with a text and its calls without arguments; signatures stay."""
    calls: list[Json] = [
        {**part, "functionCall": {**dict_of(part["functionCall"]), "args": {}}}
        for part in parts
        if "functionCall" in part
    ]
    return msgspec.json.encode({"role": "model", "parts": [{"text": text}, *calls]})


def _decode_escaped(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1], 16))


def _join_texts(body: Json, *, thought: bool) -> str:
    """Join the texts of an answer that are said, or that are thought."""
    candidate = dict_of(next(iter(list_of(body.get("candidates"))), None))
    parts = parts_of(dict_of(candidate.get("content")))
    texts = (part.get("text") for part in parts if is_thought(part) == thought)
    return "".join(text for text in texts if isinstance(text, str))
