"""Parses input items, tools and responses into events.

Neighbouring items of a model are one answer. Where the neutral form would not be written as it
came, the JSON of its items is kept beside the event as a list, if a provider would accept it: a
session sends only valid items. Opaque texts are not in that list but in the event's parts: the
`encrypted_content` of the n-th reasoning or compaction item is the signature of the n-th thought,
and a picture that the provider made is a media part. The list has "" in their place.

A call and its output stay together. Where a model goes on before all of its calls are answered, the
outputs in between are part of its answer, and so are outputs of the provider's own tools: no view
may move or close them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import msgspec

from foldline.core.item import Item
from foldline.core.log import (
    Event,
    Instructed,
    ModelSaid,
    Stop,
    ToolReturned,
    UsageReported,
    UserSaid,
)
from foldline.core.parts import Gap, Native, Part, Text, Tool, replace_surrogates
from foldline.dialects.json_slices import (
    Json,
    convert_to_json,
    convert_to_shape,
    dict_of,
    encode_json,
    list_of,
    parse_count,
    shaped_bytes,
)
from foldline.dialects.openai_responses.items import (
    PLAIN_OUTPUTS,
    Kind,
    call_id_of,
    has_succeeded,
    is_awaited,
    is_hosted_output,
    kind_of,
    parse_message_content,
    parse_model_item,
    parse_output,
    type_of,
)
from foldline.dialects.openai_responses.validate import list_faults, list_item_faults
from foldline.dialects.openai_responses.write import DIALECT, hide_sealed, write_items, write_tool
from foldline.errors import WireError


class _FlatTool(msgspec.Struct):
    type: str | None = None
    name: str | None = None
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw(b"{}")
    defer_loading: object = None


class _Reason(msgspec.Struct):
    reason: str | None = None


class _ResponseBody(msgspec.Struct):
    output: list[Json] | None = None
    status: str | None = None
    incomplete_details: _Reason | None = None
    error: Json | str | None = None


Said: TypeAlias = UserSaid | ModelSaid | ToolReturned
_STOPS: dict[str, Stop] = {
    "max_output_tokens": "length",
    "max_messages": "length",
    "content_filter": "refused",
}
"""Why a response is incomplete; for any other reason, it was cut."""
_MAY_BE_NEW = ("kind", "prefix", "id")
"""Rules of `list_item_faults` that do not keep an item from going back: its type may be new, its id
another server's, and a call id that is too long is shortened when it is written."""
_NULLABLE = ("message", "reasoning", "compaction", *PLAIN_OUTPUTS)
_SDK_FIELDS = ("parsed", "parsed_arguments")
"""Fields that the SDK adds to answers, and that the provider refuses."""


def make_user_event(text: str) -> UserSaid:
    """Make a user's event from plain text."""
    return UserSaid((Text(replace_surrogates(text)),))


def parse_message(given: Mapping[str, Any], *, saw: int | None = None) -> list[Event]:
    """Parse one input item into events."""
    return parse_items([given], saw=saw)


def decode_items(raw: bytes) -> list[Json]:
    """Decode the items of one message; a plain text is a user's message."""
    if raw.startswith(b'"'):
        return [{"role": "user", "content": msgspec.json.decode(raw, type=str)}]
    items = shaped_bytes(b"[" + raw + b"]", list[Json], "items of a Responses input")
    if not items:
        raise WireError("a message without items")
    return items


def parse_items(
    given: str | Sequence[Mapping[str, Any]],
    *,
    saw: int | None = None,
    instructed: Instructed | None = None,
) -> list[Event]:
    """Parse a whole input into events; instructions in it extend the ones before, `instructed`."""
    if isinstance(given, str):
        return [make_user_event(given)]
    items = shaped_bytes(encode_json([*given]), list[Json], "items of a Responses input")
    return _build_events(items, saw=saw, instructed=instructed or Instructed(), path="$")


def parse_response(given: Mapping[str, Any], *, saw: int | None, asked: int | None) -> list[Event]:
    """Parse a response into the answer, then its usage."""
    body = convert_to_json(given)
    came = convert_to_shape(body, _ResponseBody, "a response")
    if came.output is None or (came.error and not came.output):
        said = dict_of(came.error).get("message") or came.error or "nothing was answered"
        raise WireError(f"a response without output: {said}", path="$.output")
    items = [_strip_sdk_fields(item) for item in came.output]
    events = _build_events(items, saw=saw, instructed=Instructed(), path="$.output", is_answer=True)
    last = max(
        (place for place, event in enumerate(events) if isinstance(event, ModelSaid)), default=None
    )
    if last is None:
        last = len(events)
        events.append(ModelSaid((), saw=saw))
    answer = cast("ModelSaid", events[last])
    events[last] = msgspec.structs.replace(answer, stop=_find_stop(came, items))
    reported = parse_usage(body, asked=asked)
    return [*events, reported] if reported else events


def parse_tool(given: Mapping[str, Any]) -> Tool:
    """Parse a tool dict."""
    raw = encode_json(given)
    body: Json = msgspec.json.decode(raw)
    neutral = tool_of(raw)
    if body == convert_to_json(write_tool(neutral)):
        return neutral
    known = body.get("type") in ("function", "custom")  # any other kind may be new
    if known and list_faults([{"role": "user", "content": "hi"}], tools=[body]):
        return neutral
    return msgspec.structs.replace(neutral, native=Native(DIALECT, raw.decode()))


def tool_of(raw: bytes | msgspec.Raw, *, path: str = "$") -> Tool:
    """Decode a tool's neutral form; a server's own tool is known by its type alone."""
    came = shaped_bytes(raw, _FlatTool, "a tool of the Responses dialect", path=path)
    name = came.name
    if not name and came.type in (None, "function", "custom"):
        raise WireError(f"a tool without a name at {path}", path=path)
    schema = bytes(came.parameters).decode()
    return Tool(
        name or came.type or "",
        came.description or "",
        "{}" if schema == "null" else schema,
        deferred=came.defer_loading is True,
    )


@dataclass(slots=True)
class _ItemRun:
    """An item, or all items of one answer."""

    kind: Kind
    items: list[Json]
    place: int
    inside: set[str] = field(default_factory=set[str])
    """The ids of the calls that are answered inside of it."""


def _build_events(
    items: Sequence[Json],
    *,
    saw: int | None,
    instructed: Instructed,
    path: str,
    is_answer: bool = False,
) -> list[Event]:
    events: list[Event] = []
    kinds = _classify_items(items, path, is_answer=is_answer)
    for turn in _split_turns(items, kinds):
        where, item = f"{path}[{turn.place}]", turn.items[0]
        match turn.kind:
            case "user":
                events.append(_keep_native(UserSaid(parse_message_content(item, path=where)), turn))
            case "result":
                parts = parse_output(item, path=where)
                returned = ToolReturned(call_id_of(item), parts, ok=has_succeeded(item))
                events.append(_keep_native(returned, turn))
            case "trigger":
                trigger = Native(DIALECT, _encode_items([item]))
                events.append(UserSaid((Gap(f"[{type_of(item)}]"),), native=trigger))
            case "system" | "tools":
                instructed = _extend_instructions(instructed, item, where)
                events.append(instructed)
            case _:
                parts = _parse_turn(turn, path)
                events.append(_keep_native(ModelSaid(parts, saw=saw), turn))
    return events


def _classify_items(items: Sequence[Json], path: str, *, is_answer: bool) -> list[Kind]:
    """Say of every item whether it is the model's, a client's result, or of another kind.

    Outputs of the provider's tools are the model's, and so is an output of an unknown call: a
    reference or an item of a new type may replace that call.
    """
    kinds: list[Kind] = []
    called: set[str] = set()
    spoke = referred = False
    for place, item in enumerate(items):
        kind = kind_of(item)
        if kind == "unknown":
            where = f"{path}[{place}]"
            raise WireError(
                f"an item of type {item.get('type')!r} and role {item.get('role')!r} at {where}",
                path=where,
            )
        if kind == "result" and call_id_of(item) not in called:
            hidden = referred if type_of(item) in PLAIN_OUTPUTS.values() else spoke
            kind = "model" if hidden or is_hosted_output(item) else "result"
        referred = referred or kind == "reference"
        if kind in ("compaction", "reference") or (kind == "tools" and _is_models(item, is_answer)):
            kind = "model"
        if kind == "model":
            spoke = True
            called |= {call_id_of(item)} if is_awaited(item) else set()
        kinds.append(kind)
    return kinds


def _is_models(item: Json, is_answer: bool) -> bool:  # noqa: FBT001 - a private question
    """Whether tools were added by the model's own search, not by the developer."""
    return is_answer or item.get("role") not in (None, "developer")


def _split_turns(items: Sequence[Json], kinds: Sequence[Kind]) -> Iterator[_ItemRun]:
    """Join neighbouring items of the model, with outputs that it did not wait to be complete."""
    answer: _ItemRun | None = None
    place = 0
    while place < len(items):
        kind = kinds[place]
        if kind == "model":
            answer = answer or _ItemRun("model", [], place)
            answer.items.append(items[place])
            place += 1
            continue
        end = place + 1
        while kind == "result" and end < len(items) and kinds[end] == "result":
            end += 1
        run = [*items[place:end]]
        answered = {call_id_of(item) for item in run}
        goes_on = kind == "result" and end < len(items) and kinds[end] == "model"
        if answer and goes_on and answered < _find_open_calls(answer):
            answer.items += run
            answer.inside |= answered
        else:
            if answer:
                yield answer
            answer = None
            for at, item in enumerate(run, place):
                yield _ItemRun(kind, [item], at)
        place = end
    if answer:
        yield answer


def _find_open_calls(answer: _ItemRun) -> set[str]:
    return {call_id_of(item) for item in answer.items if is_awaited(item)} - answer.inside


def _parse_turn(turn: _ItemRun, path: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    for at, item in enumerate(turn.items, turn.place):
        parts += parse_model_item(item, inside=turn.inside, path=f"{path}[{at}]")
    return tuple(parts)


def _extend_instructions(instructed: Instructed, item: Json, path: str) -> Instructed:
    """Add a developer's item to the instructions so far; it is kept, or else what it says."""
    added: tuple[Part, ...] = (Gap(f"[{type_of(item)}]"),)
    tools: tuple[Tool, ...] = ()
    sent = [item] if _is_accepted([item]) else []
    if kind_of(item) == "system":
        added = parse_message_content(item, path=path)
        sent = sent or write_items(Item(0, "system", added, 0))
    else:
        tools = tuple(parse_tool(dict_of(tool)) for tool in list_of(item.get("tools")))
    native = (Native(DIALECT, _encode_items(sent)),) if sent else ()
    return Instructed(
        (*instructed.parts, *added), (*instructed.tools, *tools), (*instructed.native, *native)
    )


def _keep_native(event: Said, turn: _ItemRun) -> Event:
    """Keep the items of an event where its neutral form would not be written as they came."""
    if turn.items == _write_neutral(event) or not _is_accepted(turn.items):
        return event
    kept = hide_sealed(turn.items) if isinstance(event, ModelSaid) else turn.items
    return msgspec.structs.replace(event, native=Native(DIALECT, _encode_items(kept)))


def _is_accepted(items: Sequence[Json]) -> bool:
    """Whether a provider would accept items as they came, by today's rules."""
    paired = (*PLAIN_OUTPUTS, *PLAIN_OUTPUTS.values())
    if any(type_of(item) in paired and not call_id_of(item) for item in items):
        return False  # the neutral form gives such a call an id, and its output the same
    return all(fault.startswith(_MAY_BE_NEW) for fault in list_item_faults(items))


def _write_neutral(event: Said) -> list[Json]:
    """Write an event from its neutral form alone."""
    # Items get the size 0: counting tokens costs more than all else, and the size is not read here.
    match event:
        case UserSaid():
            return write_items(Item(0, "user", event.parts, 0))
        case ModelSaid():
            return write_items(Item(0, "model", event.parts, 0))
        case ToolReturned():
            return write_items(
                Item(0, "result", event.parts, 0, call_id=event.call_id, ok=event.ok)
            )


def _find_stop(came: _ResponseBody, items: Sequence[Json]) -> Stop:
    status = came.status or "completed"
    reason = came.incomplete_details.reason if came.incomplete_details else None
    if status == "cancelled":
        return "cancelled"
    if status != "completed":
        return _STOPS.get(reason or "", "cut") if status == "incomplete" else "cut"
    contents = (list_of(item.get("content")) for item in items if type_of(item) == "message")
    refused = any(dict_of(part).get("type") == "refusal" for parts in contents for part in parts)
    return "refused" if refused else "done"


def _strip_sdk_fields(item: Json) -> Json:
    """Drop from an answer's item what the SDK adds to it: its own fields, and nulls."""
    if type_of(item) not in _NULLABLE:
        return item
    kept = _strip_fields(item)
    for key in ("content", "summary"):
        if isinstance(parts := item.get(key), list):
            kept[key] = [
                _strip_fields(cast("Json", part)) if isinstance(part, dict) else part
                for part in cast("list[Any]", parts)
            ]
    return kept


def _strip_fields(body: Json) -> Json:
    return {
        key: value for key, value in body.items() if value is not None and key not in _SDK_FIELDS
    }


def _encode_items(items: Collection[Json]) -> str:
    return msgspec.json.encode(items).decode()


def parse_usage(body: Json, *, asked: int | None) -> UsageReported | None:
    """Return the usage that a response reports, or None.

    The input includes what was read from and written to the cache, and the output the reasoning.
    """
    usage = dict_of(body.get("usage"))
    given = dict_of(usage.get("input_tokens_details"))
    report = UsageReported(
        asked=asked,
        input=parse_count(usage, "input_tokens"),
        cache_read=parse_count(given, "cached_tokens"),
        cache_write=parse_count(given, "cache_write_tokens"),
        output=parse_count(usage, "output_tokens"),
        reasoning=parse_count(dict_of(usage.get("output_tokens_details")), "reasoning_tokens"),
    )
    return None if report == UsageReported(asked=asked) else report
