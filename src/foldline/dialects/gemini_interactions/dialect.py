"""Google's Interactions, as the registry has them: their facts, and the steps of clients.

A client's message is one step, or all steps of one turn of the model, next to each other. Two
messages have one digest if they differ only in key order, a string for a list with one text,
blanks at the ends, nulls, or thoughts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, cast

import msgspec

from foldline.core.item import Item
from foldline.core.log import Event, Instructed, ModelSaid, ToolReturned, UsageReported, UserSaid
from foldline.core.parts import Part, Text, Tool, text_of
from foldline.core.request import Request
from foldline.dialects.client_messages import (
    EMPTY,
    Described,
    FoldMark,
    check_keys,
    digest_of,
    has_visible_parts,
    replace_content,
    shows_media,
    strip_empty_fields,
    without_query,
)
from foldline.dialects.gemini_interactions import messages, steps, validate, write
from foldline.dialects.gemini_interactions.messages import (
    build_input_event,
    build_turn_event,
    decode_steps,
    parse_tool,
)
from foldline.dialects.gemini_interactions.steps import (
    CALL,
    CONTENTS,
    MARK,
    OUTPUT,
    RESULT,
    USER,
    contents_of,
    decode_native,
    encode_input,
    encode_result,
    encode_turn,
    is_models,
    parse_contents,
    type_of,
)
from foldline.dialects.gemini_interactions.stream import InteractionsAssembly, JoinedInteractions
from foldline.dialects.google import GoogleDialect
from foldline.dialects.json_slices import (
    Json,
    Slice,
    apply_splices,
    check_readable,
    dict_of,
    find_fields,
    list_of,
    shaped_bytes,
    str_of,
)
from foldline.errors import WireError

_STEPS = (USER, OUTPUT, RESULT, steps.THOUGHT)


class InteractionsDialect(GoogleDialect):
    """Google's Interactions, which chain by an id on the server, or hold the whole history."""

    name = steps.DIALECT
    encoder = write.ENCODER
    bounds = ("generation_config.max_output_tokens",)
    sdk_method = ("interactions", "create")
    sdk_arguments: ClassVar[Mapping[str, Any]] = {"input": []}
    messages = "input"
    fixed = ("system_instruction", "tools")
    server_state = (
        *("previous_interaction_id", "background", "cached_content"),
        *("continuation_token", "agent"),
    )
    chain_field = "previous_interaction_id"
    has_turns = True

    def encode_request(self, request: Request, parameters: Mapping[str, Any]) -> bytes:
        return write.encode_request(request, parameters)

    def encode_blocks(self, request: Request) -> list[bytes]:
        return write.encode_blocks(request)

    def list_faults(self, body: Mapping[str, Any]) -> list[str]:
        return validate.list_faults(
            body.get("input"),
            tools=list_of(body.get("tools")),
            system=body.get("system_instruction"),
        )

    def write_question(self, text: str) -> Json:
        return {"type": USER, "content": [{"type": "text", "text": text}]}

    def write_tool(self, tool: Tool) -> bytes:
        return msgspec.json.encode(write.write_tool(tool))

    # What an SDK gives

    def parse_message(self, given: Mapping[str, Any], saw: int | None) -> list[Event]:
        return messages.parse_message(given, saw=saw)

    def parse_turn(self, given: Sequence[Mapping[str, Any]], saw: int | None) -> list[Event]:
        return messages.parse_turn(given, saw=saw)

    def parse_answer(
        self, given: Mapping[str, Any], saw: int | None, asked: int | None
    ) -> list[Event]:
        return messages.parse_answer(given, saw=saw, asked=asked)

    def parse_tools(self, given: Mapping[str, Any]) -> list[Tool]:
        return [messages.parse_tool(given)]

    def parse_usage(self, body: Json) -> UsageReported | None:
        return messages.parse_usage(body)

    def is_answer(self, body: Mapping[str, Any]) -> bool:
        return "steps" in body and "status" in body

    def is_message(self, body: Mapping[str, Any]) -> bool:
        """Whether this is a step; the arguments of a call differ from those of Responses."""
        kind = body.get("type")
        return kind in _STEPS or (kind == CALL and isinstance(body.get("arguments"), Mapping))

    def is_tool(self, tool: Mapping[str, Any]) -> bool:
        return False  # they look like those of Responses

    def accepts_tool(self, tool: Mapping[str, Any]) -> bool:
        return "type" in tool and "function" not in tool

    # Answers as they come

    def make_assembly(self) -> InteractionsAssembly:
        return InteractionsAssembly()

    def join_answers(self, is_ours: Callable[[str], bool]) -> JoinedInteractions:
        return JoinedInteractions(is_ours)

    def is_stream_event(self, body: Mapping[str, Any]) -> bool:
        return "event_type" in body

    def read_delta(self, body: Json) -> str:
        delta = dict_of(body.get("delta")) if body.get("event_type") == "step.delta" else {}
        return str_of(delta.get("text") if delta.get("type") == "text" else None)

    def read_thought(self, body: Json) -> str:
        delta = dict_of(body.get("delta")) if body.get("event_type") == "step.delta" else {}
        said = dict_of(delta.get("content")).get("text")
        return said if isinstance(said, str) and delta.get("type") == "thought_summary" else ""

    # Messages of clients

    def is_model_item(self, raw: bytes) -> bool:
        try:
            kind = _heads.decode(raw).type
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return is_models({"type": kind})

    def is_content(self, raw: bytes) -> bool:
        try:
            return _heads.decode(raw).type in CONTENTS
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False

    def describe_message(self, raw: bytes) -> Described:
        check_readable(b"[" + raw + b"]")
        check_keys(raw, "content", "result")
        steps = decode_steps(raw)
        kind = type_of(steps[0])
        if kind == MARK:
            mark = str(steps[0].get("mark"))
            if FoldMark.parse(mark) is None:
                raise WireError("a step that stands for nothing")
            return Described("fold", mark, marked=False, thinks=False)
        role = "assistant" if is_models(steps[0]) else "tool" if kind == RESULT else "user"
        normal = [found for step in steps if (found := _normalise_step(step)) is not None]
        return Described(role, digest_of([role, *normal]), marked=False, thinks=False)

    def encode_answer(self, body: Mapping[str, Any]) -> list[bytes]:
        steps = [dict_of(step) for step in list_of(body.get("steps"))]
        turn = [msgspec.json.encode(step) for step in steps if is_models(step)]
        return [b",".join(turn)] if turn else []

    def read_message(self, raw: bytes, described: Described) -> list[Event]:
        steps = decode_steps(raw)
        event = _read_event(steps)
        if not isinstance(event, ToolReturned) and not has_visible_parts(event.parts):
            event = msgspec.structs.replace(event, parts=(*event.parts, EMPTY))
        return self.link_message([event], described)

    def write_message(self, items: Sequence[Item]) -> bytes:
        return _join_steps(decode_native(items[0].native) or _write_steps(items[0]))

    def read_instructions(
        self, fields: Mapping[str, bytes], leading: Sequence[bytes]
    ) -> Instructed:
        del leading  # no system messages here
        parts: list[Part] = []
        if (instruction := fields.get("system_instruction", b"null").strip()) != b"null":
            said: Any = msgspec.json.decode(instruction)
            content = dict_of(said).get("parts") or said  # an older form has a list of parts
            parts += parse_contents(content if not isinstance(said, dict) else _words_of(content))
        tools: list[Tool] = []
        if (raw := fields.get("tools", b"null").strip()) != b"null":
            given = shaped_bytes(raw, list[Json], "a list of tools", path="$.tools")
            tools = [parse_tool(one) for one in given]
        return Instructed(tuple(parts), tuple(tools), replaces=True)

    def replace_text(self, raw: bytes, event: Event, item: Item) -> bytes:
        text = "\n".join(part.text for part in item.parts if isinstance(part, Text))
        if isinstance(event, ModelSaid):
            return _write_stub(decode_steps(raw), text)
        if raw.startswith(b'"'):
            return msgspec.json.encode(text)
        media = shows_media(item)
        if raw.startswith(b"["):
            whole = Slice(0, len(raw))
            return apply_splices(raw, replace_content(raw, whole, text, media=media))
        fields = find_fields(raw)
        content = fields.get("result" if isinstance(event, ToolReturned) else "content")
        if content is None:
            content = fields.get("text")  # a content alone
        if content is None:
            return raw
        return apply_splices(raw, replace_content(raw, content, text, media=media))

    def write_handoff(self, items: Sequence[Item], mark: bytes) -> bytes:
        written: list[Json] = []
        for item in items:
            words = "\n".join(part.text for part in item.parts if isinstance(part, Text))
            kind = OUTPUT if item.role == "model" else USER
            written.append({"type": kind, "content": [{"type": "text", "text": words}]})
        return _join_steps(written)

    def write_mark(self, mark: FoldMark) -> bytes:
        return msgspec.json.encode({"type": MARK, "mark": mark.encode()})

    def write_instructions(self, event: Instructed) -> list[bytes]:
        return []

    def write_listed(self, raw: bytes) -> bytes:
        step = decode_steps(raw)[0]
        if type_of(step) in (USER, RESULT) or is_models(step):
            return msgspec.json.encode(step) if raw.startswith((b'"', b"[")) else raw
        return msgspec.json.encode({"type": USER, "content": [step]})

    def read_words(self, raw: bytes) -> str:
        steps = decode_steps(raw)
        event = _read_event(steps)
        return text_of(part for part in event.parts if isinstance(part, Text))

    def is_results(self, raw: bytes) -> bool:
        return type_of(decode_steps(raw)[0]) == RESULT

    def add_words(self, raw: bytes, words: str) -> bytes:
        if raw.startswith(b'"'):
            return msgspec.json.encode(f"{msgspec.json.decode(raw)}\n\n{words}")
        content = [{"type": "text", "text": words}]
        return raw + b"," + msgspec.json.encode({"type": "user_input", "content": content})


DIALECT = InteractionsDialect()


class _StepHead(msgspec.Struct):
    """The field that tells whose step it is."""

    type: Any = None


_heads = msgspec.json.Decoder(_StepHead)


def _normalise_step(step: Json) -> Any:
    match type_of(step):
        case "thought":
            return None
        case "user_input" | "model_output":
            return _normalise_contents(step.get("content"))
        case "function_call":
            given = {key: step.get(key) for key in ("id", "name")}
            return {**given, "arguments": step.get("arguments") or {}}
        case "function_result":
            result = step.get("result")
            said = _normalise_contents(result) if isinstance(result, str | list) else result
            is_error = step.get("is_error") is True
            return {"answers": step.get("call_id"), "result": said, "is_error": is_error}
        case kind if not is_models(step):
            return _normalise_contents([step])
        case kind:
            return {**strip_empty_fields(step, "signature"), "type": kind}


def _normalise_contents(given: Any) -> list[Any]:
    if given is not None and not isinstance(given, str | dict | list):
        raise WireError("a content is neither a text nor a list")
    if isinstance(given, list) and not all(
        isinstance(one, dict) for one in cast("list[Any]", given)
    ):
        raise WireError("a content of a list is no object")
    found: list[Any] = []
    for content in contents_of(given):
        if type_of(content) == "text" and isinstance(content.get("text"), str):
            found += [words] if (words := content["text"].strip()) else []
            continue
        rest = strip_empty_fields(content, "annotations")
        if "uri" in rest:
            rest["uri"] = without_query(rest["uri"])
        found.append(rest)
    return found


def _read_event(steps: Sequence[Json]) -> UserSaid | ModelSaid | ToolReturned:
    if is_models(steps[0]):
        return build_turn_event(steps, exact=True)
    return build_input_event(steps[0], exact=True)


def _write_steps(item: Item) -> list[Json]:
    match item.role:
        case "model":
            return encode_turn(item.parts) or [{"type": OUTPUT, "content": []}]
        case "result":
            return [encode_result(item.call_id, "", item.parts, ok=item.ok)]
        case _:
            return encode_input(item.parts) or [{"type": USER, "content": []}]


def _join_steps(steps: Sequence[Json]) -> bytes:
    return b",".join(map(msgspec.json.encode, steps))


def _words_of(content: Any) -> str:
    texts = (dict_of(one).get("text") for one in list_of(content))
    return "\n".join(text for text in texts if isinstance(text, str))


def _write_stub(steps: Sequence[Json], text: str) -> bytes:
    """Replace a turn with a text and its calls without arguments; thoughts before calls stay."""
    kept: list[Json] = [{"type": OUTPUT, "content": [{"type": "text", "text": text}]}]
    thoughts: list[Json] = []
    for step in steps:
        if type_of(step) == "thought":
            thoughts.append(step)
        elif type_of(step) == CALL:
            kept += [*thoughts, {**step, "arguments": {}}]
            thoughts = []
    return _join_steps(kept)
