"""OpenAI's Responses, as the registry has them: their facts, and the messages of clients.

A client's message is one input item, or all items of one turn of the model: reasoning, messages and
calls, next to each other. Two messages have one digest if they differ only in ids, status, key
order, a string for a list with one text, blanks at the ends, the spelling of arguments, or
reasoning.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, cast

import msgspec

from foldline.core.item import Item
from foldline.core.log import Event, Instructed, ModelSaid, ToolReturned, UsageReported, UserSaid
from foldline.core.parts import Gap, Native, Part, Text, Thought, Tool, text_of
from foldline.core.request import Request
from foldline.dialects.base import Dialect
from foldline.dialects.client_messages import (
    EMPTY,
    Described,
    FoldMark,
    KeptState,
    check_keys,
    digest_of,
    has_visible_parts,
    item_of,
    link_events,
    normalise_arguments,
    replace_content,
    shows_media,
    strip_empty_fields,
    without_query,
)
from foldline.dialects.json_slices import (
    Json,
    Slice,
    Splice,
    apply_splices,
    check_readable,
    dict_of,
    find_fields,
    list_of,
    shaped_bytes,
    str_of,
)
from foldline.dialects.openai import VENDOR
from foldline.dialects.openai_responses import compaction, messages, validate, write
from foldline.dialects.openai_responses.items import (
    STATE,
    call_id_of,
    is_hosted_output,
    item_id_of,
    kind_of,
    parse_message_content,
    parse_model_item,
    parse_output,
    type_of,
)
from foldline.dialects.openai_responses.messages import decode_items, tool_of
from foldline.dialects.openai_responses.stream import JoinedResponses, ResponsesAssembly
from foldline.dialects.openai_responses.write import (
    decode_native,
    hide_sealed,
    restore_sealed,
    write_items,
)
from foldline.errors import WireError

_PARTS = ("input_", "output_")
_WORDS = ("response.output_text.delta", "response.refusal.delta")
_REASONING = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")


class ResponsesDialect(Dialect):
    """OpenAI's Responses, also as llama.cpp and vLLM speak them."""

    name = write.DIALECT
    vendor = VENDOR
    encoder = write.ENCODER
    bounds = ("max_output_tokens",)
    sdk_method = ("responses", "create")
    sdk_arguments: ClassVar[Mapping[str, Any]] = {"input": []}
    messages = "input"
    fixed = ("instructions", "tools")
    has_turns = True
    chain_field = "previous_response_id"

    def encode_request(self, request: Request, parameters: Mapping[str, Any]) -> bytes:
        return write.encode_request(request, parameters)

    def encode_blocks(self, request: Request) -> list[bytes]:
        return write.encode_blocks(request)

    def is_silent(self, request: Request) -> bool:
        return write.is_silent(request)

    def list_faults(self, body: Mapping[str, Any]) -> list[str]:
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else list_of(given)
        return validate.list_faults(items, tools=list_of(body.get("tools")))

    def write_count(self, tokens: int) -> Json:
        return {"object": "response.input_tokens", "input_tokens": tokens}

    def write_tool(self, tool: Tool) -> bytes:
        return msgspec.json.encode(write.write_tool(tool))

    # What an SDK gives

    def parse_message(self, given: Mapping[str, Any], saw: int | None) -> list[Event]:
        return messages.parse_items([given], saw=saw)

    def parse_turn(self, given: Sequence[Mapping[str, Any]], saw: int | None) -> list[Event]:
        return messages.parse_items(given, saw=saw)

    def parse_answer(
        self, given: Mapping[str, Any], saw: int | None, asked: int | None
    ) -> list[Event]:
        return messages.parse_response(given, saw=saw, asked=asked)

    def parse_tools(self, given: Mapping[str, Any]) -> list[Tool]:
        return [messages.parse_tool(given)]

    def parse_usage(self, body: Json) -> UsageReported | None:
        return messages.parse_usage(body, asked=None)

    def is_answer(self, body: Mapping[str, Any]) -> bool:
        return body.get("object") == "response" and "output" in body

    def is_message(self, body: Mapping[str, Any]) -> bool:
        """Whether this is an item: it names its type, or has parts that only items have."""
        content, kind = body.get("content"), body.get("type")
        parts = [str(dict_of(part).get("type")) for part in list_of(content)]
        if any(part.startswith(_PARTS) and part != "input_audio" for part in parts):
            return True
        return kind is not None and (kind != "message" or isinstance(content, str))

    def is_tool(self, tool: Mapping[str, Any]) -> bool:
        return "type" in tool and not isinstance(tool.get("function"), Mapping)

    # Answers as they come

    def make_assembly(self) -> ResponsesAssembly:
        return ResponsesAssembly()

    def join_answers(self, is_ours: Callable[[str], bool]) -> JoinedResponses:
        return JoinedResponses(is_ours)

    def is_stream_event(self, body: Mapping[str, Any]) -> bool:
        return str(body.get("type")).startswith("response.")

    def read_delta(self, body: Json) -> str:
        return str_of(body.get("delta") if body.get("type") in _WORDS else None)

    def read_thought(self, body: Json) -> str:
        return str_of(body.get("delta") if body.get("type") in _REASONING else None)

    # Compactions that clients ask for

    def remove_trigger(self, body: bytes) -> bytes | None:
        return compaction.remove_trigger(body)

    def find_threshold(self, parameters: Mapping[str, Any]) -> int | None:
        return compaction.find_threshold(parameters)

    def write_compaction(
        self, body: bytes, mark: FoldMark, *, name: str, created: int, posted: bool
    ) -> tuple[str, bytes]:
        return compaction.write_compaction(body, mark, name=name, created=created, posted=posted)

    # Messages of clients

    def is_model_item(self, raw: bytes) -> bool:
        try:
            head = msgspec.to_builtins(_heads.decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return _is_models(head)

    def describe_message(self, raw: bytes) -> Described:
        check_readable(b"[" + raw + b"]")
        check_keys(raw, "content", "output")
        items = decode_items(raw)
        kind = "model" if _is_models(items[0]) else kind_of(items[0])
        if kind == "unknown" and isinstance(items[0].get("role"), str):
            return Described.describe_opaque(raw)
        role = _ROLES.get(kind)
        if role is None:
            raise WireError(
                f"an item of the type {type_of(items[0])!r}, which stands for no message"
            )
        if role == "compaction":
            sealed = items[0].get("encrypted_content")
            if isinstance(sealed, str) and FoldMark.parse(sealed) is not None:
                return Described("fold", sealed, marked=False, thinks=False)
        digest = digest_of(
            [normal for item in items if (normal := _normalise_item(item)) is not None]
        )
        stays = any(type_of(item) in STATE for item in items)
        return Described(role, digest, marked=False, thinks=False, stays=stays)

    def encode_answer(self, body: Mapping[str, Any]) -> list[bytes]:
        found: list[list[Json]] = []
        for item in map(dict_of, list_of(body.get("output"))):
            if found and _is_models(item) and _is_models(found[-1][-1]):
                found[-1].append(item)
            else:
                found.append([item])
        return [b",".join(map(msgspec.json.encode, turn)) for turn in found]

    def read_message(self, raw: bytes, described: Described) -> list[Event]:
        items = decode_items(raw)
        event: UserSaid | ModelSaid | ToolReturned
        match described.role:
            case "system":
                if described.stays:
                    kept = (Native(self.name, f"[{raw.decode()}]"),)
                    instructed = Instructed((Text(raw.decode()),), native=kept)
                else:
                    instructed = Instructed(parse_message_content(items[0]))
                return [msgspec.structs.replace(instructed, aside=True, link=described.digest)]
            case "user":
                event = UserSaid(parse_message_content(items[0]))
            case "tool":
                # Without outcomes: a clip would write them into what the shell printed.
                parts = parse_output(items[0], outcomes=False)
                event = ToolReturned(call_id_of(items[0]), parts)
            case "assistant":
                event = ModelSaid(_read_turn(items))
            case role:
                raise WireError(f"a {role} is not read as a message")
        if not isinstance(event, ToolReturned) and not has_visible_parts(event.parts):
            event = msgspec.structs.replace(event, parts=(*event.parts, EMPTY))
        sealed = any(isinstance(part, Thought) and part.signature for part in event.parts)
        if (
            sealed
            or self.describe_message(self.write_message([item_of(event)])).digest
            != described.digest
        ):
            body = msgspec.json.encode(hide_sealed(items)).decode()
            event = msgspec.structs.replace(event, native=Native(self.name, body))
        return link_events([event], described.digest)

    def read_instructions(
        self, fields: Mapping[str, bytes], leading: Sequence[bytes]
    ) -> Instructed:
        """Read the instructions, the items before the first message, and the tools of a request.

        The items are kept as they came if the server keeps them too: a later request may name them.
        """
        parts: list[Part] = []
        instructions = fields.get("instructions")
        if instructions is not None and instructions != b"null":
            parts.append(
                Text(shaped_bytes(instructions, str, "instructions", path="$.instructions"))
            )
        for raw in leading:
            parts += _read_leading(raw)
        tools: list[Tool] = []
        given = fields.get("tools")
        if given is not None and given != b"null":
            rows = shaped_bytes(given, list[msgspec.Raw], "a list of tools", path="$.tools")
            for at, raw in enumerate(rows):
                tools += _read_tools(raw, path=f"$.tools[{at}]")
        native = tuple(Native(self.name, f"[{raw.decode()}]") for raw in leading)
        is_kept = fields.get("store") != b"false"
        return Instructed(tuple(parts), tuple(tools), native if is_kept else (), replaces=True)

    def replace_text(self, raw: bytes, event: Event, item: Item) -> bytes:
        if isinstance(event, ModelSaid):
            return _join_items(write_items(item))
        text = text_of(item.parts)
        if raw.startswith(b'"'):
            return msgspec.json.encode(text)
        content = find_fields(raw).get("output" if isinstance(event, ToolReturned) else "content")
        if content is None or raw.startswith(b"{", content.start):
            return raw  # what has no words, as a screenshot, cannot be said in words
        if type_of(decode_items(raw)[0]) == "shell_call_output":
            return apply_splices(raw, [Splice(*content, _write_shell_output(raw, content, text))])
        media = shows_media(item)
        return apply_splices(
            raw, replace_content(raw, content, text, media=media, kind="input_text")
        )

    def write_handoff(self, items: Sequence[Item], mark: bytes) -> bytes:
        return b",".join(_join_items(write_items(item)) for item in items)

    def write_message(self, items: Sequence[Item]) -> bytes:
        own = decode_native(items[0].native)
        restored = restore_sealed(own, items[0].parts) if own is not None else None
        return _join_items(write_items(items[0]) if restored is None else restored)

    def write_mark(self, mark: FoldMark) -> bytes:
        return msgspec.json.encode({"type": "compaction", "encrypted_content": mark.encode()})

    def write_instructions(self, event: Instructed) -> list[bytes]:
        if event.native:
            return [
                native.body[1:-1].encode() for native in event.native if native.dialect == self.name
            ]
        return [_join_items(write_items(Item(0, "system", event.parts, 0)))]

    def write_listed(self, raw: bytes) -> bytes:
        if not raw.startswith(b'"'):
            return raw
        return msgspec.json.encode({"role": "user", "content": msgspec.Raw(raw)})

    def carry_state(
        self, run: Sequence[bytes], stays: Collection[int], tools: bytes, *, thinks: bool
    ) -> KeptState:
        """Write what later requests depend on of a folded run of messages.

        Tools and settings stay as they came. Of calls that found tools or ran in a container the
        newest of each stays, with its output and the reasoning that it needs.
        """
        del tools, thinks
        kept: dict[object, bytes] = {}
        calls: dict[str, list[Json]] = {}
        for at, raw in enumerate(run):
            if at not in stays and b"tool_search_call" not in raw:
                continue
            before: list[Json] = []
            items = decode_items(raw)
            if len(items) == 1 and kind_of(items[0]) == "tools":
                kept[at] = raw
                continue
            for item in items:
                kind, found = type_of(item), [*before, item]
                before = [*before, item] if kind == "reasoning" else []
                if kind == "tool_search_call":
                    calls[call_id_of(item)] = found
                elif kind == "tool_search_output":
                    named = tuple(digest_of(one) for one in list_of(item.get("tools")))
                    kept.pop(named, None)
                    kept[named] = _join_items([*calls.get(call_id_of(item), ()), *found])
                elif kind in STATE:
                    kept.pop(item.get("container_id"), None)
                    kept[item.get("container_id")] = _join_items(found)
        return KeptState([*kept.values()])

    def read_words(self, raw: bytes) -> str:
        found = (part.text for item in decode_items(raw) for part in _read_words(item))
        return "\n".join(found)

    def is_results(self, raw: bytes) -> bool:
        return kind_of(decode_items(raw)[0]) == "result"

    def add_words(self, raw: bytes, words: str) -> bytes:
        if raw.startswith(b'"'):
            return msgspec.json.encode(f"{msgspec.json.decode(raw)}\n\n{words}")
        return raw + b"," + msgspec.json.encode({"role": "user", "content": words})


DIALECT = ResponsesDialect()


_ROLES = {
    "user": "user",
    "system": "system",
    "tools": "system",
    "model": "assistant",
    "result": "tool",
    "compaction": "compaction",
}


_PRIVATE = "internal_"  # how fields begin that a client puts on items for its provider's eyes only


_IGNORED = ("id", "status", "encrypted_content", "created_by", "prompt_cache_breakpoint")


_TEXTS = ("input_text", "output_text", "text")


class _ItemHead(msgspec.Struct):
    """What tells whose item it is."""

    type: Any = None
    role: Any = None
    id: Any = None
    call_id: Any = None
    execution: Any = None


_heads = msgspec.json.Decoder(_ItemHead)


def _is_models(item: Mapping[str, Any]) -> bool:
    """Whether an item belongs to a model's turn; so does a reference to reasoning."""
    return kind_of(item) == "model" or is_hosted_output(item) or _is_thought_reference(item)


def _is_thought_reference(item: Mapping[str, Any]) -> bool:
    return type_of(item) == "item_reference" and str(item.get("id")).startswith("rs_")


def _read_turn(items: Sequence[Json]) -> tuple[Part, ...]:
    return tuple(
        part for item in items if not _is_thought_reference(item) for part in parse_model_item(item)
    )


class _Namespace(msgspec.Struct, tag="namespace", tag_field="type"):
    """The tools of one server, as Codex groups them."""

    name: str
    tools: list[msgspec.Raw]


def _read_tools(raw: msgspec.Raw, *, path: str) -> list[Tool]:
    """Read a tool, or those of a namespace; one without a schema is counted by its JSON."""
    tool = tool_of(raw, path=path)
    if tool.schema != "{}":
        return [tool]
    try:
        space = msgspec.json.decode(raw, type=_Namespace)
    except msgspec.DecodeError:
        return [msgspec.structs.replace(tool, schema=bytes(raw).decode())]
    inside = (tool_of(one, path=f"{path}.tools") for one in space.tools)
    return [msgspec.structs.replace(one, name=f"{space.name}__{one.name}") for one in inside]


def _read_leading(raw: bytes) -> Sequence[Part]:
    """Read an item before the conversation; an item that only a provider reads is named."""
    parts: list[Part] = []
    for item in decode_items(raw):
        match kind_of(item):
            case "user" | "system":
                parts += parse_message_content(item)
            case "result":
                parts += parse_output(item)
            case "tools":
                parts.append(Text(msgspec.json.encode(item).decode()))
            case "model":
                said = _read_turn([item])
                parts += (part for part in said if isinstance(part, Text | Gap))
            case _:
                parts.append(Gap(f"[{type_of(item)}]"))
    return parts


def _read_words(item: Json) -> list[Text]:
    match kind_of(item):
        case "user" | "system" | "model" if type_of(item) == "message":
            found: Sequence[Part] = parse_message_content(item)
        case "result":
            found = parse_output(item)
        case _:
            found = ()
    return [part for part in found if isinstance(part, Text)]


def _write_shell_output(raw: bytes, content: Slice, text: str) -> bytes:
    """Write a text as what a shell printed; how its last command ended stays."""
    chunks = list_of(msgspec.json.decode(raw[slice(*content)]))
    outcomes = [dict_of(dict_of(chunk).get("outcome")) for chunk in chunks]
    outcome = next((one for one in reversed(outcomes) if one), {"type": "exit", "exit_code": 0})
    return msgspec.json.encode([{"stdout": text, "stderr": "", "outcome": outcome}])


def _join_items(items: Sequence[Mapping[str, Any]]) -> bytes:
    return b",".join(map(msgspec.json.encode, items))


def _normalise_item(item: Json) -> Json | None:
    match type_of(item):
        case "reasoning" | "item_reference":
            return None
        case "message":
            role = "system" if item.get("role") == "developer" else item.get("role")
            found: Json = {"role": role, "content": _normalise_content(item.get("content"))}
            return {**found, "phase": item["phase"]} if item.get("phase") else found
        case "function_call":
            written = normalise_arguments(item.get("arguments"))
            found = {"call": call_id_of(item) or item_id_of(item), "arguments": written}
            rest = {key: item[key] for key in ("name", "namespace") if item.get(key)}
            return {**rest, **found}
        case name:
            found = strip_empty_fields(item, *_IGNORED, "output")
            found = {key: value for key, value in found.items() if not key.startswith(_PRIVATE)}
            if name.endswith("_output"):
                found["output"] = _normalise_output(item.get("output"))
            return {**found, "type": name}


def _normalise_output(output: Any) -> Any:
    return _normalise_content(output) if isinstance(output, str | list | None) else output


def _normalise_content(content: Any) -> list[Any]:
    if isinstance(content, str):
        content = [{"type": "input_text", "text": content}]
    if content is None:
        return []
    if not isinstance(content, list):
        raise WireError("a message's content is neither a text nor a list")
    found: list[Any] = []
    for part in cast("list[Any]", content):
        if not isinstance(part, dict):
            raise WireError("a part of a message is no object")
        said = cast("Json", part)
        if said.get("type") in _TEXTS and isinstance(said.get("text"), str):
            if text := said["text"].strip():
                found.append(text)
            continue
        rest = strip_empty_fields(said, *_IGNORED, "annotations", "logprobs")
        if rest.get("detail") == "auto":
            del rest["detail"]
        if isinstance(rest.get("image_url"), str):
            rest["image_url"] = without_query(rest["image_url"])
        found.append(rest)
    return found
