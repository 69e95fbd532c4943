"""Anthropic's messages, as the registry has them: their facts, and the messages of clients.

Two messages have one digest if they differ only in cache marks, a string for a list with one text,
key order, blanks at the ends, or thinking.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, cast

import msgspec

from foldline.core.item import Item
from foldline.core.log import Event, Instructed, ModelSaid, ToolReturned, UsageReported, UserSaid
from foldline.core.parts import Call, Part, Text, Tool, text_of
from foldline.core.request import Request
from foldline.core.view import View
from foldline.dialects.anthropic import messages, validate, write
from foldline.dialects.anthropic.blocks import (
    CALLS,
    MESSAGE_FIELDS,
    STATE,
    SUMMARIES,
    THOUGHTS,
    Block,
    blocks_of,
    content_of,
    decode_native,
    encode_parts,
    encode_result,
    kind_of_block,
)
from foldline.dialects.anthropic.messages import (
    build_model_event,
    decode_message,
    from_user,
    message_content,
    parse_instructions,
    tool_of,
)
from foldline.dialects.anthropic.stream import JoinedMessages, MessagesAssembly
from foldline.dialects.anthropic.write import write_tool
from foldline.dialects.base import Dialect, Vendor
from foldline.dialects.client_messages import (
    MARK,
    Described,
    KeptState,
    append_value,
    check_keys,
    cut_blocks,
    digest_of,
    replace_content,
    replace_in_blocks,
    shows_media,
    strip_empty_fields,
    without_query,
)
from foldline.dialects.json_slices import (
    Json,
    Splice,
    apply_splices,
    check_readable,
    dict_of,
    find_fields,
    find_values,
    list_of,
    shaped_bytes,
    str_of,
)
from foldline.errors import WireError

_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "document", "image")
_OTHERS = ("input_", "output_", "refusal")  # how blocks of other dialects' messages are called
_FLAT = {"parameters", "format"}  # what tools of other dialects have beside their name
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_STREAM_EVENTS = (
    *("message_start", "message_delta", "message_stop", "ping"),
    *("content_block_start", "content_block_delta", "content_block_stop"),
)


def encode_error(status: int, _code: str, message: str) -> Json:
    """Write an error as Anthropic's SDK reads it."""
    kind = _ERRORS.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


VENDOR = Vendor(
    name="anthropic",
    title="Anthropic",
    address="https://api.anthropic.com",
    variable="ANTHROPIC_BASE_URL",
    key_header=(b"x-api-key", ""),
    encode_error=encode_error,
    routes=("/v1/messages",),
    marks=(b"anthropic-version",),
)


class AnthropicDialect(Dialect):
    """Anthropic's messages, also as llama.cpp and others speak them."""

    name = write.DIALECT
    vendor = VENDOR
    encoder = write.ENCODER
    bounds = ("max_tokens",)
    must_bound = True
    sdk_method = ("messages", "create")
    sdk_arguments: ClassVar[Mapping[str, Any]] = {"messages": [], "max_tokens": 0}
    results_in = "content"
    allows_prefill = True
    least_thinking = write.LEAST_BUDGET

    def encode_request(self, request: Request, parameters: Mapping[str, Any]) -> bytes:
        return write.encode_request(request, parameters)

    def encode_blocks(self, request: Request) -> list[bytes]:
        return write.encode_blocks(request)

    def list_faults(self, body: Mapping[str, Any]) -> list[str]:
        return validate.list_faults(
            list_of(body.get("messages")),
            tools=list_of(body.get("tools")),
            system=body.get("system") or (),
            thinks=self.thinks_manually(body),
        )

    def refuses_end(self, view: View, parameters: Mapping[str, Any]) -> bool:
        return write.refuses_end(view, parameters)

    def thinks_manually(self, parameters: Mapping[str, Any]) -> bool:
        return write.thinks_manually(parameters)

    def change_thoughtless(
        self, parameters: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]
    ) -> Json:
        return write.change_thoughtless(parameters, messages)

    def fit_parameters(self, request: Request, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        return write.fit_parameters(request, parameters)

    # What an SDK gives

    def parse_message(self, given: Mapping[str, Any], saw: int | None) -> list[Event]:
        return messages.parse_message(given, saw=saw)

    def parse_answer(
        self, given: Mapping[str, Any], saw: int | None, asked: int | None
    ) -> list[Event]:
        return messages.parse_answer(given, saw=saw, asked=asked)

    def parse_tools(self, given: Mapping[str, Any]) -> list[Tool]:
        return [messages.parse_tool(given)]

    def parse_usage(self, body: Json) -> UsageReported | None:
        return messages.parse_usage(body)

    def is_answer(self, body: Mapping[str, Any]) -> bool:
        if body.get("type") != "message" or "content" not in body:
            return False
        return not any(kind.startswith(_OTHERS) for kind in _kinds_of(body))

    def is_message(self, body: Mapping[str, Any]) -> bool:
        return any(kind in _BLOCKS for kind in _kinds_of(body))

    def is_tool(self, tool: Mapping[str, Any]) -> bool:
        return "input_schema" in tool or ("name" in tool and not _FLAT & tool.keys())

    # Answers as they come

    def make_assembly(self) -> MessagesAssembly:
        return MessagesAssembly()

    def join_answers(self, is_ours: Callable[[str], bool]) -> JoinedMessages:
        return JoinedMessages(is_ours)

    def is_stream_event(self, body: Mapping[str, Any]) -> bool:
        return body.get("type") in _STREAM_EVENTS

    def read_delta(self, body: Json) -> str:
        return str_of(dict_of(body.get("delta")).get("text"))

    def read_thought(self, body: Json) -> str:
        return str_of(dict_of(body.get("delta")).get("thinking"))

    # Messages of clients

    def describe_message(self, raw: bytes) -> Described:
        check_readable(raw)
        check_keys(raw, "content")
        fields = shaped_bytes(raw, dict[str, Any], "an Anthropic message")
        role = fields.get("role")
        if isinstance(role, str) and role not in _ROLES:
            return Described.describe_opaque(raw)
        came = decode_message(raw)
        content: Any = msgspec.json.decode(came.content)
        if not isinstance(content, str | list):
            raise WireError("a message's content is neither a text nor a list")
        # Results first, as they are read: a message says the same in either order.
        blocks = sorted(
            _parse_blocks(content),
            key=lambda block: kind_of_block(block) != "tool_result",
        )
        kinds = set(map(kind_of_block, blocks))
        role = "compaction" if kinds & SUMMARIES and not kinds & CALLS else came.role
        normal = {"role": came.role, "content": _normalise_blocks(blocks, came.role)}
        return Described(
            role,
            digest_of(normal),
            marked=any(MARK in block for block in blocks),
            thinks=not kinds.isdisjoint(THOUGHTS),
            stays=_has_state(fields, blocks),
        )

    def encode_answer(self, body: Mapping[str, Any]) -> list[bytes]:
        return [msgspec.json.encode({"role": "assistant", "content": body.get("content") or []})]

    def complete_answer(self, body: Json, prefill: bytes) -> Json:
        begun = _parse_blocks(msgspec.json.decode(decode_message(prefill).content))
        return {**body, "content": _join_prefill(begun, _parse_blocks(body.get("content") or []))}

    def read_message(self, raw: bytes, described: Described) -> list[Event]:
        content = message_content(decode_message(raw))
        if described.role == "system":
            return [Instructed(parse_instructions(content), aside=True, link=described.digest)]
        exact: list[Event] = []
        if described.role == "assistant":
            exact.append(build_model_event(content, exact=True))
        else:
            exact += from_user(content, exact=True)
            said = exact[-1]
            if described.stays and isinstance(said, UserSaid) and text_of(said.parts) == _LOADED:
                exact[-1] = msgspec.structs.replace(said, speaker="notice")
        return self.link_message(exact, described)

    def read_instructions(
        self, fields: Mapping[str, bytes], leading: Sequence[bytes]
    ) -> Instructed:
        parts: list[Part] = []
        if _has_value(fields.get("system")):
            parts += parse_instructions(content_of(fields["system"]))
        for raw in leading:
            content = message_content(decode_message(raw))
            parts += parse_instructions(content)
            summaries = (
                one.fields.get("content") for one in content.blocks if one.kind in SUMMARIES
            )
            parts += (Text(summary) for summary in summaries if isinstance(summary, str))
        tools: list[Tool] = []
        if _has_value(fields.get("tools")):
            rows = shaped_bytes(
                fields["tools"], list[msgspec.Raw], "a list of tools", path="$.tools"
            )
            tools = [
                tool_of(raw, path=f"$.tools[{at}]", exact=False) for at, raw in enumerate(rows)
            ]
        return Instructed(tuple(parts), tuple(tools), replaces=True)

    def replace_text(self, raw: bytes, event: Event, item: Item) -> bytes:
        text = "\n".join(part.text for part in item.parts if isinstance(part, Text))
        content = find_fields(raw).get("content")
        if content is None:
            return raw
        media = shows_media(item)
        if isinstance(event, ModelSaid):
            return _with_stub(raw, text)
        is_list = raw[content.start : content.start + 1] == b"["
        if isinstance(event, UserSaid) and not is_list:
            return apply_splices(raw, replace_content(raw, content, text, media=media))
        blocks = [(place, find_fields(raw, place)) for place in find_values(raw, content)]
        if isinstance(event, ToolReturned):
            for _, fields in blocks:
                answers = _decode_slice(raw, fields.get("tool_use_id"))
                if answers == event.call_id and "content" in fields:
                    inner = blocks_of(_decode_slice(raw, fields["content"]))
                    if inner and {kind_of_block(one) for one in inner} <= STATE:
                        return raw  # it says nothing, and shows tools to the model
                    found = replace_content(raw, fields["content"], text, media=media)
                    return apply_splices(raw, found)
            return raw
        words = [
            place
            for place, fields in blocks
            if _decode_slice(raw, fields.get("type")) != "tool_result"
        ]
        every = [place for place, _ in blocks]
        return apply_splices(raw, replace_in_blocks(raw, words, text, media=media, among=every))

    def drop_thinking(self, raw: bytes) -> bytes:
        return cut_blocks(raw, tuple(map(msgspec.json.encode, THOUGHTS)))

    def write_handoff(self, items: Sequence[Item], mark: bytes) -> bytes:
        written: list[bytes] = []
        for item in items:
            role = "assistant" if item.role == "model" else "user"
            words = "\n".join(part.text for part in item.parts if isinstance(part, Text))
            content: Any = words
            if mark and item is items[-1]:
                content = [{"type": "text", "text": words, MARK: msgspec.Raw(mark)}]
            written.append(msgspec.json.encode({"role": role, "content": content}))
        return b",".join(written)

    def write_message(self, items: Sequence[Item]) -> bytes:
        blocks: list[Block] = []
        for item in items:
            own = decode_native(item.native)
            if own is not None:
                blocks += own.blocks
            elif item.role == "result":
                blocks.append(encode_result(item.call_id, item.parts, ok=item.ok))
            else:
                blocks += encode_parts(item.parts)
        role = "assistant" if items and items[0].role == "model" else "user"
        content = [msgspec.Raw(block.body) for block in blocks]
        return msgspec.json.encode({"role": role, "content": content})

    def carry_state(
        self, run: Sequence[bytes], stays: Collection[int], tools: bytes, *, thinks: bool
    ) -> KeptState:
        """Write the files and the shown tools of a folded run of messages.

        Files in a container stay the user's. Tools that results have shown to the model are shown
        by the newest of these results, behind its call; its thinking only if it `thinks`.
        """
        found = {at: shaped_bytes(run[at], dict[str, Any], "an Anthropic message") for at in stays}
        controls = [run[at] for at, fields in found.items() if fields["role"] == "system"]
        blocks = [(at, one) for at, fields in found.items() for one in _list_blocks(fields)]
        uploads = [one for _, one in blocks if one.get("type") == "container_upload"]
        hidden = {one.get("name") for one in _list_tools(tools) if one.get("defer_loading") is True}
        searches: list[Json] = []
        references: dict[object, Json] = {}
        newest: tuple[int, Json] | None = None
        for at, block in blocks:
            named = {one.get("tool_name"): one for one in _list_references(block)}
            shown = {name: one for name, one in named.items() if name in hidden - {*references}}
            if not shown:
                continue
            if block["type"] != "tool_result":
                searches += [*_find_served_call(run[: at + 1], block), block]
                continue
            references |= shown
            newest = at, block
        answer, results = searches, list[Json]()
        if newest is not None and (said := _find_call(run, *newest)):
            thoughts = [one for one in said[:-1] if thinks]
            answer = [*thoughts, *searches, said[-1]]
            results = [{**_without(newest[1], "is_error"), "content": [*references.values()]}]
        messages = [("user", uploads), ("assistant", answer), ("user", results)]
        return KeptState(
            [
                msgspec.json.encode({"role": role, "content": [_without(one) for one in said]})
                for role, said in messages
                if said
            ],
            controls,
        )

    def read_words(self, raw: bytes) -> str:
        content = _parse_blocks(msgspec.json.decode(decode_message(raw).content))
        return "\n".join(
            str(block["text"]) for block in content if isinstance(block.get("text"), str)
        )

    def is_results(self, raw: bytes) -> bool:
        content = _parse_blocks(msgspec.json.decode(decode_message(raw).content))
        return bool(content) and kind_of_block(content[0]) == "tool_result"

    def add_words(self, raw: bytes, words: str) -> bytes:
        content = find_fields(raw).get("content")
        if content is None:
            return raw
        given = raw[slice(*content)]
        if given.startswith(b'"'):
            given = b'[{"type":"text","text":' + given + b"}]"
        put = append_value(given, msgspec.json.encode({"type": "text", "text": words})) or given
        return apply_splices(raw, [Splice(*content, put)])

    def write_tool(self, tool: Tool) -> bytes:
        return write_tool(tool).body


DIALECT = AnthropicDialect()


_ROLES = ("user", "assistant", "system")


_LOADED = "Tool loaded."


"""The words of Claude Code, as its user's, beside a result that names a tool."""


def _has_state(fields: Json, blocks: Sequence[Json]) -> bool:
    """Whether later requests depend on a message, apart from what it says."""
    if fields["role"] == "system" and any(
        value is not None and MESSAGE_FIELDS.get(name, "state") == "state"
        for name, value in fields.items()
    ):
        return True
    kinds = set(map(kind_of_block, blocks))
    if fields["role"] == "system" and kinds - {"text"}:
        return True
    return bool(kinds & STATE) or any(map(_list_references, blocks))


def _list_references(block: Json) -> list[Json]:
    """List the tools that a result names: it shows them to the model."""
    inner = blocks_of(block.get("content"))
    if kind_of_block(block) == "tool_search_tool_result":
        inner = list_of(dict_of(block.get("content")).get("tool_references"))
    return [one for one in map(dict_of, inner) if one.get("type") == "tool_reference"]


def _find_call(run: Sequence[bytes], before: int, result: Json) -> list[Json]:
    """Find the call that a result answers: the thoughts of its message, then the call itself."""
    for raw in reversed(run[:before]):
        fields = shaped_bytes(raw, dict[str, Any], "an Anthropic message")
        if fields.get("role") == "assistant":
            said = _list_blocks(fields)
            calls = [one for one in said if one.get("id") == result.get("tool_use_id")]
            thoughts = [one for one in said if one.get("type") in THOUGHTS]
            return [*thoughts, *calls[:1]] if calls else []
    return []


def _find_served_call(run: Sequence[bytes], result: Json) -> list[Json]:
    """Find the call of the provider's own that a result answers; a turn may pause between them."""
    name = str(result.get("tool_use_id"))
    for raw in reversed(run):
        if name.encode() in raw:
            blocks = _list_blocks(shaped_bytes(raw, dict[str, Any], "an Anthropic message"))
            if found := [one for one in blocks if one.get("id") == name]:
                return found[:1]
    return []


def _list_blocks(fields: Json) -> list[Json]:
    return blocks_of(fields.get("content"))


def _list_tools(tools: bytes) -> list[Json]:
    return [dict_of(one) for one in list_of(msgspec.json.decode(tools or b"[]"))]


def _without(block: Json, *names: str) -> Json:
    """Leave out a block's cache mark, and fields by their names."""
    return {key: value for key, value in block.items() if key not in (MARK, *names)}


def _has_value(raw: bytes | None) -> bool:
    return raw is not None and raw not in (b"null", b'""') and raw[1:-1].strip() != b""


def _decode_slice(raw: bytes, place: Any) -> Any:
    return msgspec.json.decode(raw[slice(*place)]) if place else None


def _parse_blocks(content: Any) -> list[Json]:
    found = blocks_of(content)
    if isinstance(content, list) and len(found) < len(cast("list[Any]", content)):
        raise WireError("a block is no object")
    return found


def _normalise_blocks(blocks: Sequence[Json], role: str) -> list[Json]:
    return [found for block in blocks if (found := _normal_block(block, role)) is not None]


def _normal_block(block: Json, role: str) -> Json | None:
    match kind_of_block(block):
        case "text":
            words = str(block.get("text", "")).strip()
            rest = {} if role == "assistant" else strip_empty_fields(block, "text")
            return {**rest, "type": "text", "text": words} if words else None
        case "thinking" | "redacted_thinking" if role == "assistant":
            return None
        case "tool_use":
            given = {key: block.get(key) for key in ("id", "name")}
            return {**given, "type": "tool_use", "input": block.get("input") or {}}
        case "tool_result":
            rest = strip_empty_fields(block, "content", "is_error")
            said = _normalise_blocks(_parse_blocks(block.get("content") or ""), "user")
            return {**rest, "content": said, "is_error": block.get("is_error") is True}
        case _:
            found = strip_empty_fields(block)
            source = found.get("source")
            if isinstance(source, dict) and "url" in source:
                url = without_query(cast("Json", source)["url"])
                found["source"] = {**cast("Json", source), "url": url}
            return found


def _join_prefill(begun: list[Json], said: list[Json]) -> list[Json]:
    """Join the client's beginning and the answer into one text, as the client sends it back."""
    first, last = begun[-1:] or [{}], said[:1] or [{}]
    if first[0].get("type") == "text" == last[0].get("type"):
        words = f"{first[0].get('text', '')}{last[0].get('text', '')}"
        return [*begun[:-1], {"type": "text", "text": words}, *said[1:]]
    return [*begun, *said]


def _with_stub(raw: bytes, text: str) -> bytes:
    """Replace an answer with a text and its calls without arguments."""
    calls: list[Json] = [
        {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
        for part in build_model_event(message_content(decode_message(raw)), exact=True).parts
        if isinstance(part, Call)
    ]
    content: list[Json] = [{"type": "text", "text": text}, *calls]
    return msgspec.json.encode({"role": "assistant", "content": content})


def _kinds_of(body: Mapping[str, Any]) -> list[str]:
    return [str(dict_of(block).get("type")) for block in list_of(body.get("content"))]
